"""``twistmq admin`` as a program: output, errors, statuses, completion, keys."""

from __future__ import annotations

import dataclasses
import json
import os
import pty
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from twisted.trial.unittest import SynchronousTestCase

from tests.certificates import Authority
from tests.tools.admin.case import AdminCase, call
from twistmq.protocol.codes import RequestCode
from twistmq.tools.admin.command_line import all_commands
from twistmq.tools.admin.rows import Command

_MAIN = "from twistmq.tools.command_line import main; raise SystemExit(main())"
#: Imported by no command: a reactor, the plugins, an editor of YAML.
_SLOW = {"twisted", "twistmq.broker.plugin.hookspecs", "twistmq.broker.kernel.kernel", "lark",
         "yaml", "asyncio"}


def program(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run ``twistmq`` in a process of its own."""
    environment = {**os.environ, **options.pop("env", {})}
    return subprocess.run([sys.executable, "-c", _MAIN, *arguments], text=True, timeout=60,
                          check=False, capture_output=True, env=environment, **options)


class HelpTests(SynchronousTestCase):
    """The help and the completion."""

    def test_all_commands(self) -> None:
        """The help lists every command under its group."""
        status, out, _ = call("--help")
        self.assertEqual(status, 0)
        for name in all_commands():
            self.assertIn(f"  {name} ", out)
        self.assertLess(out.index("Topics:"), out.index("Consumer groups:"))

    def test_each_command(self) -> None:
        """It has the options of the command, those that are required, and the defaults."""
        for name, row in all_commands().items():
            status, out, _ = call(name, "--help")
            self.assertEqual(status, 0, msg=name)
            for option in row.options:
                self.assertIn(option.flags[-1], out, msg=name)
        self.assertIn("[required]", call("topicRoute", "--help")[1])
        self.assertIn("[default: 8]", call("updateTopic", "--help")[1])

    def test_a_shell_completes_commands_and_options(self) -> None:
        """A shell completes commands and options."""
        def completed(words: str) -> list[str]:
            environment = {"_TWISTMQ_COMPLETE": "bash_complete", "COMP_WORDS": words,
                           "COMP_CWORD": str(words.count(" "))}
            found = program(env=environment)
            self.assertEqual(found.stderr, "")
            return found.stdout.split()

        self.assertEqual(completed("twistmq admin topicR"), ["plain,topicRoute"])
        self.assertIn("plain,--method", completed("twistmq admin updateOrderConf --"))
        self.assertEqual(completed("twistmq admin updateOrderConf -m g"), ["plain,get"])

    def test_commands_of_packages(self) -> None:
        """A package may add commands; one that cannot be imported removes only its own."""
        row = Command("someOther", "topic", "Do it.", "some.module:function", (),
                      (RequestCode.PUT_KV_CONFIG,), ("a",))
        titled = dataclasses.replace(row, name="someTitled", group="Topics")
        points = [mock.Mock(load=mock.Mock(side_effect=ImportError("no such\nthing"))),
                  mock.Mock(load=lambda: mock.Mock(COMMANDS=(row, titled)))]
        for point, name in zip(points, ("broken", "other"), strict=True):
            point.name = name
        all_commands.cache_clear()
        self.addCleanup(all_commands.cache_clear)
        with mock.patch("importlib.metadata.entry_points", return_value=points):
            status, out, err = call("--help")
        self.assertEqual((status, err), (0, "twistmq: the commands of broken cannot be had: "
                                         "ImportError: no such thing\n"))
        self.assertIn("  someOther ", out)
        self.assertEqual(out.count("Topics:"), 1)
        self.assertLess(out.index("  someTitled "), out.index("Consumer groups:"))
        self.assertIn("  topicRoute ", out)

    def test_starts_quickly(self) -> None:
        """No command imports slow modules at its start."""
        source = ("import sys; from twistmq.tools.command_line import main; "
                  "main(['admin', 'topicList', '-n', '127.0.0.1:1', '--timeout', '1']); "
                  "sys.stdout = sys.stderr; main(['admin', '--help']); "
                  f"print(sorted({_SLOW!r} & set(sys.modules)), file=sys.__stdout__)")
        found = subprocess.run([sys.executable, "-c", source], text=True, timeout=60, check=False,
                               capture_output=True)
        self.assertEqual(found.stdout, "[]\n", msg=found.stderr)


class ErrorTests(SynchronousTestCase):
    """Command lines that cannot be done, without servers."""

    def one_line(self, *arguments: str) -> str:
        status, out, err = call(*arguments)
        self.assertEqual((status, out), (1, ""), msg=arguments)
        self.assertEqual(err.count("\n"), 1, msg=err)
        return err

    def test_nobody_answers(self) -> None:
        """A name server that is down causes one line with its address."""
        err = self.one_line("topicList", "-n", "127.0.0.1:1")
        self.assertTrue(err.startswith(
            "twistmq: no name server answers: connect to 127.0.0.1:1 failed: "), msg=err)

    def test_bad_command_lines(self) -> None:
        """A missing or invalid argument causes one line, which names the help."""
        for arguments, part in (
                (("nosuch",), "No such command 'nosuch'"),
                (("topicRoute",), "Missing option '-t'"),
                (("topicRoute", "--nosuch"), "No such option"),
                (("updateTopic", "-t", "T"), "give one of -b and -c"),
                (("updateTopic", "-t", "T", "-b", "h:1", "-c", "C"), "give one of -b and -c"),
                (("updateOrderConf", "-t", "T", "-m", "nosuch"), "'nosuch' is not one of"),
                (("resetOffsetByTime", "-g", "g", "-t", "T", "-s", "noon"), "'noon' is neither"),
                (("updateTopicList", "-c", "C", "-f", "/no/such"), "does not exist"),
                (("topicList", "-n", "nowhere"), "'nowhere' is not host:port")):
            err = self.one_line(*arguments)
            self.assertIn(part, err)
            self.assertTrue(err.startswith("twistmq: "), msg=err)

    def test_a_time_is_read_in_each_form(self) -> None:
        """Each accepted form of a time is read."""
        from click import Context, Option

        from twistmq.tools.admin.command_line import _time, admin

        def read(text: str) -> int | None:
            return _time(Context(admin), Option(["-s"]), text)

        self.assertEqual(read("1700000000123"), 1_700_000_000_123)
        self.assertEqual(read("-1"), -1)
        self.assertEqual(read("2023-11-14T22:13:20.123+00:00"), 1_700_000_000_123)
        with mock.patch.dict(os.environ, {"TZ": "UTC"}):
            import time

            time.tzset()
            try:
                self.assertEqual(read("2023-11-14#22:13:20:123"), 1_700_000_000_123)
            finally:
                self.addCleanup(time.tzset)
        self.assertLess(abs((read("now") or 0) / 1000 - time.time()), 60)


class OutputTests(AdminCase):
    """Tables and JSON from a running broker."""

    def test_table_and_json(self) -> None:
        """The rows are the same in both forms."""
        status, out, err = self.call("clusterList")
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(out.splitlines()[2].split()[:4],
                         ["DefaultCluster", "broker-a", "0", self.broker])
        [row] = self.rows("clusterList")
        self.assertEqual((row["cluster"], row["id"], row["active"]), ("DefaultCluster", 0, True))

    def test_a_refusal_does_not_act_on_a_terminal(self) -> None:
        """Text from a server is escaped, as in tables and JSON."""
        err = self.refusal("topicRoute", "-t", "None\x9b31m\u202e\x07")
        self.assertIn("None\\x9b31m\\u202e\\x07", err)
        self.assertTrue(err.rstrip("\n").isprintable())

    def test_a_refusal_is_one_line_with_remark_and_code(self) -> None:
        """A refusal of a server is one line with its remark and code."""
        self.assertIn("answered 17: No topic route info", self.refusal("topicRoute", "-t", "None"))

    def test_the_name_servers_may_be_in_the_environment(self) -> None:
        """The name servers may be in the environment."""
        with mock.patch.dict(os.environ, {"NAMESRV_ADDR": self.running.namesrv_address}):
            self.assertEqual(call("topicList")[0], 0)

    def test_the_option_i_repeats_a_command_until_it_is_stopped(self) -> None:
        """With -i a command is run again and again, until it is stopped."""
        with mock.patch("time.sleep", side_effect=[None, KeyboardInterrupt]) as sleep:
            status, out, _ = self.call("clusterList", "-i", "2.5")
        self.assertEqual(sleep.call_args_list, [mock.call(2.5)] * 2)
        self.assertEqual((status, out.count("broker-a")), (130, 2))

    def test_colour_is_for_terminals(self) -> None:
        """Heads are bold on a terminal, unless NO_COLOR is set, and in no file."""
        command = [sys.executable, "-c", _MAIN, "admin", "clusterList", "-n",
                   self.running.namesrv_address]

        def seen(environment: dict[str, str]) -> bytes:
            mine, its = pty.openpty()
            process = subprocess.Popen(command, stdout=its, stderr=subprocess.DEVNULL,
                                       env={**os.environ, **environment})
            os.close(its)
            found = b""
            try:
                while data := os.read(mine, 65536):
                    found += data
            except OSError:
                pass  # A terminal raises this error when its last writer has closed it.
            finally:
                os.close(mine)
            self.assertEqual(process.wait(60), 0)
            return found

        self.assertIn(b"\x1b[1mcluster", seen({"NO_COLOR": ""}))
        self.assertNotIn(b"\x1b", seen({"NO_COLOR": "1"}))
        self.assertNotIn("\x1b", program(*command[3:]).stdout)

    def test_nobody_reads(self) -> None:
        """If the reader closes the pipe, the command ends without a traceback."""
        reading, writing = os.pipe()
        os.close(reading)
        try:
            found = subprocess.run(
                [sys.executable, "-c", _MAIN, "admin", "topicList", "-n",
                 self.running.namesrv_address], stdout=writing, stderr=subprocess.PIPE,
                timeout=60, check=False)
        finally:
            os.close(writing)
        self.assertEqual((found.returncode, found.stderr), (141, b""))


class TlsTests(AdminCase):
    """Servers that require TLS."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="twistmq-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        authority = Authority(self.folder)
        pair = authority.pair("server")
        self.trust = authority.cert
        self.settings = {**AdminCase.settings, "tls.server.mode": "enforcing", "tls.enable": "true",
                         "tls.server.certPath": str(pair.cert), "tls.server.keyPath": str(pair.key)}
        super().setUp()

    def test_tls_is_spoken_only_with_the_option(self) -> None:
        """With --tls all commands work; without it the connection fails."""
        self.assertIn({"topic": "TBW102"}, self.rows("topicList", "--tls"))
        self.refusal("topicList", "--timeout", "2")

    def test_checks_the_server(self) -> None:
        """A file has the trusted authority; a server of another one is refused."""
        file = self.folder / "tls.properties"
        file.write_text(f"tls.client.authServer=true\ntls.client.trustCertPath={self.trust}\n")
        self.assertTrue(self.rows("topicList", "--tls-config", str(file)))
        other = Authority(self.folder, "other")
        file.write_text(f"tls.client.authServer=true\ntls.client.trustCertPath={other.cert}\n")
        self.assertIn("certificate", self.refusal("topicList", "--tls-config", str(file)))
        file.write_text("tls.client.authServer=perhaps\n")
        self.refusal("topicList", "--tls-config", str(file))


class KeyTests(AdminCase):
    """Signed requests."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="twistmq-")
        self.addCleanup(folder.cleanup)
        self.home = Path(folder.name)
        (self.home / "conf").mkdir()
        (self.home / "conf" / "plain_acl.yml").write_text(json.dumps({"accounts": [
            {"accessKey": "admin-key", "secretKey": "secret-of-admin", "admin": True},
            {"accessKey": "some-key", "secretKey": "secret-of-some"}]}))
        self.settings = {**AdminCase.settings, "aclEnable": "true", "rocketmqHome": str(self.home)}
        super().setUp()

    def keys(self, **names: str) -> Any:
        """Set the environment to these keys."""
        names = {name: text for name, text in {
            **os.environ, "ROCKETMQ_HOME": "/no/such", **names}.items() if text}
        return mock.patch.dict(os.environ, names, clear=True)

    def test_secret_key_of_the_environment(self) -> None:
        """The access key is an option, and the secret key is in the environment."""
        with self.keys(ROCKETMQ_SECRET_KEY="secret-of-admin"):
            status, out, err = self.call("brokerStatus", "-b", self.broker, "--access-key",
                                         "admin-key")
        self.assertEqual((status, err), (0, ""))
        self.assertNotIn("secret", out)

    def test_wrong_and_missing_keys(self) -> None:
        """The error is one line without the secret."""
        with self.keys(ROCKETMQ_SECRET_KEY="not-the-secret"):
            err = self.refusal("brokerStatus", "-b", self.broker, "--access-key", "admin-key")
        self.assertNotIn("not-the-secret", err)
        with self.keys():
            self.assertIn("answered", self.refusal("brokerStatus", "-b", self.broker))

    def test_secret_key_is_asked_for(self) -> None:
        """The typed text is not shown."""
        with self.keys(), mock.patch("click.prompt", return_value="secret-of-admin") as prompt:
            status, out, err = self.call("brokerStatus", "-b", self.broker, "--access-key",
                                         "admin-key")
        self.assertEqual((status, err), (0, ""))
        self.assertTrue(prompt.call_args.kwargs["hide_input"])
        self.assertNotIn("secret", out)

    def test_file_of_mqadmin(self) -> None:
        """Both keys may be in the file of mqadmin."""
        file = self.home / "conf" / "tools.yml"
        file.write_text("accessKey: admin-key\nsecretKey: secret-of-admin\n")
        with self.keys(ROCKETMQ_HOME=str(self.home)):
            self.assertTrue(self.rows("brokerStatus", "-b", self.broker))
            file.write_text("- just\n- a list\n")
            self.assertIn("tools.yml", self.refusal("brokerStatus", "-b", self.broker))

    def test_accounts_are_added(self) -> None:
        """Accounts are added, shown without their secrets, and deleted."""
        with self.keys(ROCKETMQ_SECRET_KEY="secret-of-admin", ROCKETMQ_ACCESS_KEY="admin-key"):
            self.rows("updateAclConfig", "-b", self.broker, "-a", "new-key", "-s", "secret-of-new",
                      "-i", "SUB", "-t", "A=PUB,B=DENY")
            accounts = {row["account"]: row for row in self.rows("getAclConfig", "-b",
                                                                 self.broker)}
            self.assertEqual((accounts["new-key"]["topic_perm"],
                              sorted(accounts["new-key"]["topic_perms"])),
                             ("SUB", ["A=PUB", "B=DENY"]))
            self.assertNotIn("secret-of-", json.dumps(accounts))
            with mock.patch("click.prompt", return_value="secret-of-other") as prompt:
                self.rows("updateAclConfig", "-c", "DefaultCluster", "-a", "other-key", "-s", "-")
            self.assertTrue(prompt.call_args.kwargs["hide_input"])
            self.rows("updateGlobalWhiteAddr", "-b", self.broker, "-g", "10.0.0.*")
            [version] = self.rows("clusterAclConfigVersion", "-b", self.broker)
            self.assertEqual(version["file"], str(self.home / "conf" / "plain_acl.yml"))
            self.rows("deleteAclConfig", "-b", self.broker, "-a", "new-key")
            left = {row["account"] for row in self.rows("getAclConfig", "-b", self.broker)}
            self.assertEqual(left, {"admin-key", "some-key", "other-key"})
