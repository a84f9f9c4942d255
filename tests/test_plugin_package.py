"""The plugin of a third party is installed with pip, used and removed; another one only raises."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import venv
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import distribution
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker import hookimpl
from twistmq.broker.plugin import hookspecs
from twistmq.broker.remoting.messages import RequestHandler
from twistmq.broker.scheduling.periodic import PeriodicTask
from twistmq.broker.testing import RawClient, running_broker
from twistmq.broker.testing.raw_client import pull_header, send_header
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import encode_request
from twistmq.protocol.errors import RequestRefused
from twistmq.protocol.headers.offset import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
)
from twistmq.protocol.headers.pull import PullMessageResponseHeader
from twistmq.protocol.headers.send import SendMessageResponseHeader
from twistmq.protocol.headers.transaction import EndTransactionRequestHeader
from twistmq.protocol.message_id import parse_offset_message_id

PACKAGE = Path(__file__).resolve().parent / "plugin_package"
COUNTS_CODE = 31_001
COMMAND_LINE = "import sys; from twistmq.tools.command_line import main; sys.exit(main())"


class Environment:
    """A new environment that also sees the packages of this one.

    It needs no network: nothing is downloaded, the package is built with what is here.
    """

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=False)
        self.python = folder / "bin" / "python"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.site_packages = folder / "lib" / version / "site-packages"
        here = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"),
                str(distribution("twistmq").locate_file(""))}
        (self.site_packages / "this_environment.pth").write_text("\n".join(sorted(here)))
        self.before = self.files()

    def files(self) -> set[str]:
        """Return the installed files."""
        return {path.name for path in self.site_packages.iterdir()}

    def run(self, *arguments: str | Path, check: bool = True) -> str:
        """Run its Python; :returns: the output."""
        result = subprocess.run(
            [self.python, *arguments], capture_output=True, text=True, timeout=120, check=False,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
        if check and result.returncode:
            raise AssertionError(f"{arguments}:\n{result.stdout}\n{result.stderr}")
        return result.stdout + result.stderr

    def pip(self, *arguments: str | Path) -> None:
        """Run this environment's pip on that one."""
        result = subprocess.run(
            [sys.executable, "-m", "pip", "--python", self.python, "--quiet",
             "--disable-pip-version-check", "--no-input", *arguments],
            capture_output=True, text=True, timeout=120, check=False)
        if result.returncode:
            raise AssertionError(f"pip {arguments}:\n{result.stdout}\n{result.stderr}")

    def twistmq(self, *arguments: str) -> str:
        """Run its command ``twistmq``; :returns: the output."""
        return self.run("-c", COMMAND_LINE, *arguments, check=False)

    @contextmanager
    def broker(self, data: Path, **settings: str) -> Iterator[str]:
        """Run ``twistmq up`` in it; :yields: the broker's address."""
        process = subprocess.Popen(
            [self.python, "-c", COMMAND_LINE, "up", "--data", data, "--namesrv-port", "0",
             "--broker-port", "0", *[f"{name}={text}" for name, text in settings.items()]],
            stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
        assert process.stdout is not None
        try:
            for line in process.stdout:
                found = re.search(r"The broker\[.+, (\S+)\] boot success", line)
                if found:
                    break
            else:
                raise AssertionError("the broker does not start")
            yield found[1]
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


class PluginPackageTests(SynchronousTestCase):
    """tests/plugin_package, from ``pip install`` to ``pip uninstall``."""

    def setUp(self) -> None:
        folder = Path(self.mktemp()).absolute()
        self.environment = Environment(folder / "environment")
        self.data = folder / "data"
        # pip builds in the folder it is given, which is not the checkout's then.
        shutil.copytree(PACKAGE, folder / "package",
                        ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
        self.environment.pip("install", "--no-index", "--no-deps", "--no-build-isolation",
                             folder / "package")

    def test_the_package_works_when_installed_and_leaves_no_trace(self) -> None:
        """Nothing remains after it is removed."""
        with self.environment.broker(
            self.data, **{"sample.forbidden_word": "secret", "sample.paused_groups": "lazy",
                          "sample.tick_ms": "10", "enablePropertyFilter": "true",
                          "sample.count_routes": "true"}
        ) as address, RawClient(address) as client:
            self.refuses_and_counts(client)
            self.other_hooks(client, address)
        log = (self.data / "logs" / "up.log").read_text()
        self.assertIn("sample stops: ", log)
        self.assertIn("sample: routes were asked for 0 times", log)
        self.files()
        with self.environment.broker(self.data, **{
            "sample.transactions": "true", "sample.timers_at_once": "true",
            "timerWheelEnable": "false",
        }) as address, RawClient(address) as client:
            self.transactions(client)
            self.timers(client)
        self.access()
        self.access_instead()
        self.one_filter_for_all()
        self.patience()
        self.only_news()
        self.command_line()
        self.environment.pip("uninstall", "--yes", "twistmq-sample-plugin")
        self.no_trace()

    def counts(self, client: RawClient) -> dict[str, Any]:
        """Return the response to the request code of the plugin."""
        reply = client.request(COUNTS_CODE)
        self.assertEqual((reply.code, reply.remark), (ResponseCode.SUCCESS, None))
        counts: dict[str, Any] = json.loads(reply.body)
        return counts

    def refuses_and_counts(self, client: RawClient) -> None:
        """The plugin adds a request code, refuses sends, and counts consumption."""
        for body in (b"1", b"2", b"3"):
            client.send("orders", body)
        error = self.assertRaises(RequestRefused, client.send, "orders", b"a secret word")
        self.assertEqual((error.response_code, str(error)),
                         (ResponseCode.MESSAGE_ILLEGAL, "the message has a forbidden word"))
        messages = client.pull("orders", group="eager")
        self.assertEqual([message.body for message in messages], [b"1", b"2", b"3"])
        self.assertEqual(messages[0].properties_map()["SAMPLE_MARK"], "seen")
        client.pull("orders", 1, group="eager", max_count=1)
        counts = self.counts(client)
        self.assertEqual((counts["sent"], counts["refused"]), (3, 1))
        self.assertEqual((counts["stored"], counts["arrived"]), (3, 3))
        self.assertEqual(counts["consumed"], {"orders@eager": 4})
        self.assertEqual((counts["role"], counts["started"]), ("ASYNC_MASTER", True))

    def other_hooks(self, client: RawClient, address: str) -> None:
        """A paused group, a filter language, clients, runtime rows, the task, the command."""
        error = self.assertRaises(RequestRefused, client.pull, "orders", group="lazy")
        self.assertEqual(str(error), "the group lazy is paused")
        client.send("orders", b"4", properties={"colour": "dark red"})
        found = client.pull("orders", expression="colour=dark", expression_type="PREFIX")
        self.assertEqual([message.body for message in found], [b"4"])
        client.request(RequestCode.HEART_BEAT, None, json.dumps({
            "clientID": "me", "producerDataSet": [{"groupName": "g"}]}).encode())
        rows = json.loads(client.request(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
        self.assertEqual((rows["sampleSent"], rows["sampleConsumed"]), ("4", "5"))
        while self.counts(client)["ticks"] < 2:
            pass
        self.assertGreater(self.counts(client)["client_changes"], 0)
        asked = self.counts(client)["ends_asked"]
        end = client.request(RequestCode.GET_MAX_OFFSET,
                             GetMaxOffsetRequestHeader(topic="orders", queue_id=0))
        self.assertEqual(end.header(GetMaxOffsetResponseHeader).offset, 4)
        self.assertEqual(self.counts(client)["ends_asked"], asked + 1)
        self.assertGreater(self.counts(client)["registrations"], 0)
        printed = self.environment.twistmq("sample-counts", address)
        self.assertEqual(json.loads(printed)["consumed"]["orders@eager"], 4)

    def files(self) -> None:
        """The file it leaves in the store is checked, and listed."""
        store = self.data / "store"
        checked = self.environment.twistmq("store", "check", str(store))
        self.assertRegex(checked, r"1  sample files\n *0  problems\n$")
        listed = self.environment.twistmq(
            "store", "dump", str(store), "--view", "sample-counts", "--topic", "orders")
        self.assertIn("orders  eager  4\n", listed)
        counts = store / "config" / "sampleCounts"
        left = counts.read_bytes()
        counts.write_bytes(left.replace(b'"stored": 4', b'"stored": 4000'))
        checked = self.environment.twistmq("store", "check", str(store))
        self.assertRegex(checked, r"config/sampleCounts: expected \d+ stored at most, found 4000\n")
        counts.write_bytes(left)

    def one_filter_for_all(self) -> None:
        """It replaces the stock plugin for filters."""
        with self.environment.broker(
            self.data, **{"sample.prefix_for_all": "colour=light", "enablePropertyFilter": "true"}
        ) as address, RawClient(address) as client:
            for colour in ("light", "dark"):
                client.send("lamps", colour.encode(), properties={"colour": colour})
            found = client.pull("lamps", expression="colour=dark", expression_type="PREFIX")
            self.assertEqual([message.body for message in found], [b"light"])

    def patience(self) -> None:
        """It replaces the stock plugin for flow control: a number of requests may wait."""
        with self.environment.broker(self.data, **{"sample.waiting_max": "100"}) as address, \
                RawClient(address) as client:
            count = 3000
            opaques = range(10_000, 10_000 + count)
            client.begin_frames(b"".join(
                encode_request(RequestCode.SEND_MESSAGE_V2, opaque, send_header("many", 1), b"x")
                for opaque in opaques), opaques)
            codes = Counter(client.reply(opaque).code for opaque in opaques)
            self.assertEqual(set(codes), {ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY})
            client.send("many", b"afterwards")

    def only_news(self) -> None:
        """A proxy's broadcast client without an offset is sent to the end."""
        with self.environment.broker(self.data, **{"sample.news_topic": "news"}) as address, \
                RawClient(address) as client:
            for body in (b"old", b"older"):
                client.send("news", body)
            header = pull_header("news", -1)
            header.request_source, header.proxy_froward_client_id = 1, "behind"
            reply = client.request(RequestCode.PULL_MESSAGE, header)
            self.assertEqual(reply.code, ResponseCode.PULL_OFFSET_MOVED)
            self.assertEqual(reply.header(PullMessageResponseHeader).next_begin_offset, 2)

    def timers(self, client: RawClient) -> None:
        """Timed messages are delivered at once if the plugin claims their properties."""
        client.send("timers", b"at once", properties={"TIMER_DELAY_SEC": "3600"})
        self.assertEqual([m.body for m in client.pull("timers")], [b"at once"])

    def transactions(self, client: RawClient) -> None:
        """Committed half messages can be read, and those that were rolled back cannot."""
        def send_half(body: bytes) -> SendMessageResponseHeader:
            return client.send("orders", body, queue_id=1,
                               properties={"TRAN_MSG": "true", "PGROUP": "g"})

        def end(half: SendMessageResponseHeader, how: int) -> int:
            place = parse_offset_message_id(half.msg_id)[2]
            return client.request(RequestCode.END_TRANSACTION, EndTransactionRequestHeader(
                producer_group="g", tran_state_table_offset=half.queue_offset,
                commit_log_offset=place, commit_or_rollback=how, msg_id=half.msg_id)).code

        halves = [send_half(body) for body in (b"committed", b"rolled back", b"unknown")]
        self.assertEqual(client.pull("orders", queue_id=1), [])
        self.assertEqual([end(half, how) for half, how in zip(halves, (8, 12, 0), strict=True)],
                         [ResponseCode.SUCCESS] * 3)
        self.assertEqual([end(half, 8) for half in halves[:2]], [ResponseCode.SYSTEM_ERROR] * 2)
        [message] = client.pull("orders", queue_id=1)
        self.assertEqual(message.body, b"committed")
        self.assertNotIn("SAMPLE_REAL_TOPIC", message.properties_map())
        self.assertEqual(self.counts(client)["discarded_half_messages"], 1)

    def access(self) -> None:
        """With a token in the settings only requests with it are accepted."""
        with self.environment.broker(self.data, **{"sample.token": "open"}) as address, \
                RawClient(address) as client:
            error = self.assertRaises(RequestRefused, client.send, "orders", b"5")
            self.assertEqual(error.response_code, ResponseCode.NO_PERMISSION)
            header = send_header("orders", 1, queue_id=2)
            frame = encode_request(RequestCode.SEND_MESSAGE_V2, 77, header, b"5",
                                   extra_fields={"sampleToken": "open"})
            client.begin_frames(frame, [77])
            self.assertEqual(client.reply(77).code, ResponseCode.SUCCESS)

    def access_instead(self) -> None:
        """It replaces the stock validator with Apache's switch on.

        Without a validator that switch refuses the start.
        """
        settings = {"aclEnable": "true", "plugins.disabled": "acl"}
        failed = self.environment.twistmq(
            "up", "--data", str(self.data), "--broker-port", "0", "--namesrv-port", "0",
            *[f"{name}={value}" for name, value in settings.items()])
        self.assertIn("aclEnable", failed)
        settings["sample.token"] = "open"
        with self.environment.broker(self.data, **settings) as address, \
                RawClient(address) as client:
            self.assertRaises(RequestRefused, client.pull, "orders")
            frame = encode_request(RequestCode.GET_BROKER_CLUSTER_ACL_INFO, 78,
                                   extra_fields={"sampleToken": "open"})
            client.begin_frames(frame, [78])
            self.assertEqual(client.reply(78).code, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)

    def command_line(self) -> None:
        """Its settings are printed, its command is listed, and a wrong setting stops the start."""
        printed = self.environment.twistmq("up", "-p", "--data", str(self.data))
        self.assertIn("sample.tick_ms=60000", printed)
        self.assertIn("sample.count_routes=false", printed)
        self.assertEqual(self.environment.twistmq("namesrv", "-p").count("\nsample."), 1)
        self.assertIn("sample-counts", self.environment.twistmq("--help"))
        failed = self.environment.twistmq("up", "--data", str(self.data), "--broker-port", "0",
                                          "--namesrv-port", "0", "sample.tick_ms=soon")
        self.assertIn("sample.tick_ms=soon", failed)

    def no_trace(self) -> None:
        """No file of it remains, and a broker works as without it."""
        environment = self.environment
        self.assertEqual(environment.files() - {"__pycache__"}, environment.before)
        self.assertNotIn("sample", environment.twistmq("up", "-p", "--data", str(self.data)))
        self.assertNotIn("sample", environment.twistmq("--help"))
        with environment.broker(self.data, **{"sample.forbidden_word": "secret"}) as address, \
                RawClient(address) as client:
            self.assertEqual(client.request(COUNTS_CODE).code,
                             ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
            self.assertEqual(len(client.pull("orders", group="lazy")), 4)
            client.send("orders", b"a secret word", queue_id=3)
            [message] = client.pull("orders", queue_id=3)
            self.assertNotIn("SAMPLE_MARK", message.properties_map())
            rows = json.loads(client.request(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
            self.assertNotIn("sampleSent", rows)


def hook_names() -> list[str]:
    """Return the names of all hooks."""
    return [name for name, value in vars(hookspecs).items() if hasattr(value, "twistmq_spec")]


class BrokenPlugin:
    """A plugin that raises in every other hook; ``called`` has the hooks that were called."""

    def __init__(self, *but: str, error: type[BaseException] = ZeroDivisionError) -> None:
        self.called: set[str] = set()
        for name in hook_names():
            if name not in but:
                setattr(self, name, hookimpl(self.raising(name, error)))

    def raising(self, name: str, error: type[BaseException]) -> Callable[[], None]:
        def raises() -> None:
            self.called.add(name)
            raise error("broken")

        return raises


class BrokenPluginTests(SynchronousTestCase):
    """Such a plugin cannot stop the broker."""

    def serves(self, plugin: object) -> None:
        """A broker with this plugin does all a broker does."""
        with running_broker(plugins=[("broken", plugin)], namesrv_plugins=[("broken", plugin)]) \
                as broker, broker.client() as client:
            self.assertIn("broken", broker.kernel.hooks.plugin_names)
            client.request(RequestCode.HEART_BEAT, None, json.dumps({
                "clientID": "me", "consumerDataSet": [{"groupName": "g"}]}).encode())
            for body in (b"1", b"2"):
                client.send("orders", body)
            self.assertEqual([m.body for m in client.pull("orders")], [b"1", b"2"])
            broker.call(broker.kernel.set_role, "SYNC_MASTER", 0)
            broker.call(broker.kernel.hooks.half_message_discarded, b"")
            commands = broker.call(broker.kernel.hooks.collect_commands)
            self.assertEqual([command.name for command in commands], ["spark"])
            files = broker.call(broker.kernel.hooks.collect_store_files)
            self.assertEqual(sorted(files), [
                "delays", "filters", "pops", "static topics", "timers", "users"])
            self.assertEqual(client.request(RequestCode.GET_BROKER_RUNTIME_INFO).code,
                             ResponseCode.SUCCESS)
            broker.call(broker.kernel.hooks.metrics)
            broker.call(broker.kernel.hooks.collect_synced_tables)
            name_server = broker.service.namesrv.name_server
            self.assertIn("broken", name_server.hooks.plugin_names)
            broker.call(name_server.hooks.namesrv_metrics)

    def test_every_hook(self) -> None:
        """The broker sends, stores and serves, whatever is raised, even SystemExit."""
        for error in (ZeroDivisionError, SystemExit):
            plugin = BrokenPlugin("provide_access_validators", error=error)
            self.serves(plugin)
            # The second one is a supervisor's, in another process.
            self.assertEqual(set(hook_names()) - plugin.called,
                             {"provide_access_validators", "register_supervisor_pages"})
            self.assertGreaterEqual(len(self.flushLoggedErrors(error)), len(plugin.called))

    def test_a_validator_that_raises_denies_every_request(self) -> None:
        """The broker runs and logs the error."""
        with running_broker(plugins=[("broken", BrokenPlugin())]) as broker, \
                broker.client() as client:
            for _ in range(2):
                error = self.assertRaises(RequestRefused, client.send, "orders", b"1")
                self.assertEqual((error.response_code, str(error)), (
                    ResponseCode.NO_PERMISSION,
                    "the plugin broken failed to supply its access validators"))
        self.assertGreater(len(self.flushLoggedErrors(ZeroDivisionError)), 5)

    def test_what_hooks_return(self) -> None:
        """Handlers, tasks, languages and services of a plugin may raise as well."""
        def raises(*arguments: object) -> Any:
            raise ZeroDivisionError("broken")

        broken = SimpleNamespace(compile=raises, prepare=raises)
        rows = {
            "register_request_handlers": [RequestHandler(COUNTS_CODE, raises)],
            "register_periodic_tasks": [PeriodicTask("broken", 1, 1, raises)],
            "register_filter_languages": {"BROKEN": broken},
            "provide_transaction_service": broken,
        }
        plugin = SimpleNamespace(**{
            name: hookimpl(lambda *ignored, answer=answer: answer)
            for name, answer in rows.items()})
        with running_broker({"enablePropertyFilter": "true"}, plugins=[("broken", plugin)]) \
                as broker, broker.client() as client:
            client.send("orders", b"1")
            self.assertEqual(client.request(COUNTS_CODE).code, ResponseCode.SYSTEM_ERROR)
            for call in (lambda: client.pull("orders", expression="x", expression_type="BROKEN"),
                         lambda: client.send("orders", b"2", properties={"TRAN_MSG": "true"})):
                error = self.assertRaises(RequestRefused, call)
                self.assertEqual(error.response_code, ResponseCode.SYSTEM_ERROR)
            self.assertEqual([m.body for m in client.pull("orders")], [b"1"])
        self.assertGreater(len(self.flushLoggedErrors(ZeroDivisionError)), 3)
