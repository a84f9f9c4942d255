"""Several brokers of one command, as real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Timer
from urllib.error import HTTPError
from urllib.request import urlopen

from twisted.trial.unittest import SynchronousTestCase

from tests.interop.ports import free_ports
from tests.interop.servers import take_default_signals
from tests.tools.test_command_line import PATIENCE, TWISTD, TWISTMQ, call
from twistmq.client import Producer
from twistmq.client.blocking.client import Client


def free_base(count: int) -> int:
    """Return a port after which enough ports are free for all brokers."""
    return free_ports(10 * count) + 2


def until(condition: Callable[[], object], what: str) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"after {PATIENCE} s: {what}")
        time.sleep(0.05)


def broker_processes(data: Path) -> dict[str, int]:
    """The brokers' processes of an ``up`` with a folder, by name."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (folder / "cmdline").read_text().split("\0")
        except OSError:
            continue
        if f"storePathRootDir={data}/store/" in "\0".join(arguments):
            name = next(text for text in arguments if text.startswith("brokerName=b-"))
            found[name.partition("=")[2]] = int(folder.name)
    return found


class SupervisorTestCase(SynchronousTestCase):
    """A test case with a folder for its commands."""

    def setUp(self) -> None:
        self.data = Path(self.mktemp()).absolute()
        self.base = free_base(4)
        # Both lie between the ports of brokers.
        self.namesrv, self.pages = f"127.0.0.1:{self.base + 5}", self.base + 7

    def start(
        self, *command: str, count: int = 2, until_line: str = "Ctrl-C stops",
        settings: Sequence[str] = (),
    ) -> str:
        """Start ``up``; :returns: its output up to a line."""
        self.launch(*command, count=count, settings=settings)
        return self.read_until(until_line)

    def launch(self, *command: str, count: int = 2, settings: Sequence[str] = ()) -> None:
        """Start ``up``, and wait for nothing.

        :param count: 0: it has no ``--brokers``.
        """
        self.process = subprocess.Popen(
            [*command, "up", *(["--brokers", str(count)] if count else []),
             "--data", str(self.data), "--namesrv-port", str(self.base + 5),
             "--broker-port", str(self.base), "brokerName=b",
             "mappedFileSizeCommitLog=1048576", *settings],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ,
            preexec_fn=take_default_signals)
        self.addCleanup(self.end, self.process)

    def end(self, process: subprocess.Popen[str]) -> None:
        process.kill()
        process.wait(PATIENCE)
        assert process.stdout is not None
        process.stdout.close()

    def read_until(self, pattern: str) -> str:
        """Read lines until one fits."""
        assert self.process.stdout is not None
        watchdog = Timer(PATIENCE, self.process.kill)
        watchdog.start()
        seen = ""
        try:
            for line in self.process.stdout:
                seen += line
                if re.search(pattern, line):
                    return seen
        finally:
            watchdog.cancel()
        raise AssertionError(f"no {pattern!r} in:\n{seen}")

    def make_topic(self) -> None:
        """Make the topic T on all brokers."""
        status, _, err = call("admin", "updateTopic", "-n", self.namesrv, "-c", "DefaultCluster",
                              "-t", "T")
        self.assertEqual((status, err), (0, ""))

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


class SupervisorTests(SupervisorTestCase):
    """``twistmq up --brokers 2``."""

    def test_a_topic_lies_on_all_brokers_and_one_signal_stops_them(self) -> None:
        """The messages of a topic are on both brokers; SIGHUP stops everything with status 0."""
        seen = self.start(*TWISTMQ)
        for index in range(2):
            self.assertRegex(
                seen, rf"The broker\[b-{index}, 127.0.0.1:{self.base + 10 * index}\] boot success")
        self.assertEqual(seen.count("set flushDiskType=SYNC_FLUSH"), 1)
        self.assertIn("2 brokers are up: b-0, b-1\n", seen)
        self.make_topic()
        with Producer(self.namesrv, group="g") as producer:
            sent = {producer.send("T", b"%d" % number).queue.broker_name for number in range(40)}
        self.assertEqual(sent, {"b-0", "b-1"})
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            self.process.send_signal(number)
        # What a terminal sends that is closed.
        self.process.send_signal(signal.SIGHUP)
        self.assertEqual(self.process.wait(PATIENCE), 0)
        self.assertEqual(broker_processes(self.data), {})
        for index in range(2):
            self.assertFalse((self.data / f"store/b-{index}/abort").exists())
            self.assertTrue((self.data / f"logs/b-{index}_0/broker.log").exists())

    def test_a_killed_broker_is_back_with_all_that_was_acknowledged(self) -> None:
        """A broker that is killed is started again; the other continues, and no message is lost."""
        self.start(*TWISTMQ)
        self.make_topic()
        with Producer(self.namesrv, group="g") as producer:
            sent = {producer.send("T", b"a%d" % number).id for number in range(20)}
            os.kill(before := broker_processes(self.data)["b-0"], signal.SIGKILL)
            sent |= {producer.send("T", b"b%d" % number).id for number in range(20)}
            self.read_until(r"boot success")
            until(lambda: broker_processes(self.data).get("b-0") not in (None, before), "b-0 again")
            until(lambda: producer.send("T", b"c").queue.broker_name == "b-0", "sends to b-0")
        with Client(self.namesrv) as client:
            found = {message.id for queue in client.read_queues("T", again=True)
                     for message in client.read(queue)}
        self.assertEqual(sent - found, set())
        log = (self.data / "logs/brokers.log").read_text()
        self.assertRegex(log, "the broker b-0 was ended by signal 9 after [0-9]+ s; it is started "
                              "again in 1 s")
        self.assertEqual(self.stop(), 0)

    def test_all_brokers_are_watched_at_one_port(self) -> None:
        """/metrics has the samples of each broker once, and /health names the
        broker with a fault.
        """
        self.start(*TWISTMQ, settings=(
            "metricsExporterType=PROM", f"metricsPromExporterPort={self.pages}"))
        page = self.get(self.pages, "/metrics")[1]
        for name in ("b-0", "b-1"):
            self.assertEqual(len(re.findall(
                rf'rocketmq_topic_number{{.*node_id="{name}".*}}', page)), 1)
            self.assertIn(f'process_open_fds{{node_id="{name}"}}', page)
        self.assertEqual(page.count("# TYPE process_open_fds gauge"), 1)
        self.assertEqual(self.get(self.pages, "/health")[0], 200)
        os.kill(broker_processes(self.data)["b-1"], signal.SIGSTOP)
        until(lambda: self.get(self.pages, "/health")[0] == 503, "a health page that is red")
        health = json.loads(self.get(self.pages, "/health")[1])
        os.kill(broker_processes(self.data)["b-1"], signal.SIGCONT)
        self.assertEqual([reason.partition(":")[0] for reason in health["reasons"]], ["b-1"])
        self.assertEqual(health["servers"]["b-0"]["status"], "ok")
        self.assertEqual(self.stop(), 0)

    def get(self, port: int, path: str) -> tuple[int, str]:
        """Return the status and the text of a page."""
        try:
            with urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()

    def test_one_broker_more_has_the_topics_and_one_less_is_named(self) -> None:
        """A new broker has the topics of the others; a store without a broker is named."""
        self.start(*TWISTMQ, count=1)
        with Producer(self.namesrv, group="g") as producer:
            producer.send("T", b"1")
        self.assertEqual(self.stop(), 0)
        self.start(*TWISTMQ)
        with Client(self.namesrv) as client:
            self.assertEqual({queue.broker_name for queue in client.write_queues("T")},
                             {"b-0", "b-1"})
        self.assertEqual(self.stop(), 0)
        seen = self.start(*TWISTMQ, count=1)
        self.assertIn(f"twistmq: the store {self.data}/store/b-1 is not served: no consumer gets "
                      "its messages until a broker has it again\n", seen)

    def test_the_store_of_one_broker_becomes_that_of_the_first(self) -> None:
        """Moved into its folder it is served: its messages, its topics, and both brokers."""
        self.start(*TWISTMQ, count=0)
        with Producer(self.namesrv, group="g") as producer:
            sent = {producer.send("T", b"%d" % number).id for number in range(5)}
        self.assertEqual(self.stop(), 0)
        store = self.data / "store"
        parts = list(store.iterdir())
        (store / "b-0").mkdir()
        for part in parts:
            part.rename(store / "b-0" / part.name)
        self.assertNotIn("is not served", self.start(*TWISTMQ))
        with Client(self.namesrv) as client:
            self.assertEqual({queue.broker_name for queue in client.write_queues("T")},
                             {"b-0", "b-1"})
            found = {message.id for queue in client.read_queues("T")
                     for message in client.read(queue)}
        self.assertEqual(sent - found, set())
        self.assertEqual(self.stop(), 0)

    def test_brokers_stop_when_their_supervisor_is_killed(self) -> None:
        """The brokers end when their supervisor is killed."""
        self.start(*TWISTMQ)
        self.assertEqual(len(broker_processes(self.data)), 2)
        self.process.kill()
        until(lambda: not broker_processes(self.data), "the brokers' end")
        self.assertFalse((self.data / "store/b-0/abort").exists())

    def test_a_broker_that_cannot_start_stops_all(self) -> None:
        """If one broker cannot start, the command fails with its reason and its status."""
        with socket.create_server(("127.0.0.1", self.base + 10)):
            done = subprocess.run(
                [*TWISTMQ, "broker", "--brokers", "2", f"listenPort={self.base}",
                 "bindAddress=127.0.0.1", "brokerIP1=127.0.0.1", "brokerName=b",
                 f"storePathRootDir={self.data}/store"],
                capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, 255)
        self.assertRegex(done.stderr, "the broker b-1 did not start: .*cannot listen on "
                                      f"127.0.0.1:{self.base + 10}")
        self.assertNotIn("Traceback", done.stderr)
        self.assertEqual(broker_processes(self.data), {})

    def test_twistd_runs_several_brokers(self) -> None:
        """``twistd`` has the same option."""
        self.start(*TWISTD, "-n", "--pidfile", "", "twistmq", until_line="2 brokers are up")
        self.assertEqual(len(broker_processes(self.data)), 2)
        self.process.send_signal(signal.SIGTERM)
        self.read_until("Server Shut Down")
        self.process.wait(PATIENCE)
        self.assertEqual(broker_processes(self.data), {})

    def test_a_signal_that_stops_nothing_leaves_the_brokers_alone(self) -> None:
        """SIGUSR1 rotates the log of twistd, and the processes of the brokers continue."""
        log = self.data.parent / f"{self.data.name}.log"
        self.launch(*TWISTD, "-n", "--pidfile", "", "--logfile", str(log), "twistmq")
        until(lambda: log.exists() and "2 brokers are up" in log.read_text(), "the start")
        before = broker_processes(self.data)
        self.process.send_signal(signal.SIGUSR1)
        until(Path(f"{log}.1").exists, "a log that was rotated")
        self.assertEqual((len(before), broker_processes(self.data)), (2, before))
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE)
        self.assertNotIn("was ended by signal", log.read_text())

    def test_output_that_nobody_reads_keeps_no_start(self) -> None:
        """If the reader closes the output, all brokers still start, and one signal stops them."""
        self.launch(*TWISTMQ)
        assert self.process.stdout is not None
        self.process.stdout.close()
        log = self.data / "logs/brokers.log"
        until(lambda: log.exists() and "2 brokers are up" in log.read_text(), "the start")
        self.assertEqual(self.stop(), 0)
        self.assertNotIn("Traceback", log.read_text())

    def test_a_stop_during_the_start_is_a_clean_one(self) -> None:
        """A stop while the brokers import ends with status 0, and no process remains."""
        self.launch(*TWISTMQ)
        until(lambda: broker_processes(self.data), "the brokers' processes")
        self.process.send_signal(signal.SIGTERM)
        assert self.process.stdout is not None
        seen = self.process.stdout.read()
        self.assertEqual(self.process.wait(PATIENCE), 0, msg=seen)
        self.assertNotIn("cleanly", seen)
        self.assertEqual(broker_processes(self.data), {})

    def test_systemd_hears_when_all_answer(self) -> None:
        """READY=1 is sent when all brokers are ready, and STOPPING=1 when the supervisor stops."""
        self.data.mkdir()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
            name = f"/tmp/twistmq-notify-{os.getpid()}"
            self.addCleanup(os.unlink, name)
            systemd.bind(name)
            systemd.settimeout(PATIENCE)
            self.patch(os, "environ", {**os.environ, "NOTIFY_SOCKET": name})
            self.start(*TWISTMQ)
            self.assertEqual(systemd.recv(100), b"READY=1")
            self.assertEqual(self.stop(), 0)
            # The brokers said nothing: the service is the supervisor.
            self.assertEqual(systemd.recv(100), b"STOPPING=1")


class PrintingTests(SynchronousTestCase):
    """The option ``-p``, and wrong command lines."""

    def test_the_settings_of_each_broker_are_printed(self) -> None:
        """-p prints each broker's settings behind its name."""
        status, out, err = call("broker", "--brokers", "2", "-p", "brokerName=b",
                                "listenPort=20911", "storePathRootDir=/d")
        self.assertEqual((status, err), (0, ""))
        first, second = out.split("# b-1\n")
        self.assertTrue(first.startswith("# b-0\n"))
        self.assertIn("listenPort=20911\n", first)
        for line in ("brokerName=b-1", "listenPort=20921", "haListenPort=20922",
                     "storePathRootDir=/d/b-1", "metricsPromExporterPort=5577"):
            self.assertIn(f"{line}\n", second)

    def test_a_wrong_number_is_a_bad_command_line(self) -> None:
        """The number is refused with status 1, before anything is started."""
        status, _, err = call("broker", "--brokers", "many")
        self.assertEqual(status, 1)
        self.assertIn("--brokers many: a number from 1 to 64 is expected, or auto", err)
