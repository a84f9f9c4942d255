"""Log files: their levels, rotation and errors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from twisted.logger import Logger
from twisted.trial.unittest import SynchronousTestCase

from tests.interop.servers import servers
from twistmq.broker.config.setting_rows import LOG_ROWS
from twistmq.broker.config.settings import Settings
from twistmq.broker.constants import (
    LOG_FIELD_CHARS_MAX,
    LOG_LINE_CHARS_MAX,
    LOG_TRACEBACK_LINES_MAX,
)
from twistmq.broker.edge.logs import (
    file_observer,
    format_event_as_json,
    open_log,
    stderr_observer,
)
from twistmq.broker.errors import SettingsError
from twistmq.broker.testing.raw_client import RawClient
from twistmq.protocol.codes import RequestCode

#: The program ``twistmq``.
_PROGRAM: Final = "import sys; from twistmq.tools.entry import main; sys.exit(main())"


class FileObserverTests(SynchronousTestCase):
    """Events become lines of a file."""

    def logger(self, folder: Path, **overrides: str) -> Logger:
        """Return a logger whose events are written only to ``broker.log`` in a folder."""
        names = {name.replace("_", ".", 1): text for name, text in overrides.items()}
        self.settings = Settings.load(LOG_ROWS, overrides=names)
        file = open_log("broker", str(folder), self.settings)
        self.addCleanup(file.close)
        self.observer = file_observer(file, self.settings)
        return Logger(observer=self.observer)

    def test_events_below_the_level_are_left_out(self) -> None:
        """Events below the level are left out; text in any script is written."""
        folder = Path(self.mktemp())
        log = self.logger(folder, log_level="warn")
        log.info("quiet")
        log.warn("loud {name}", name="\u4f60\u597d")
        lines = (folder / "broker.log").read_text(encoding="utf-8").splitlines()
        self.assertEqual(len(lines), 1)
        self.assertIn("loud \u4f60\u597d", lines[0])

    def lines(self, folder: Path) -> list[str]:
        """Return the written lines, split only at newlines."""
        return (folder / "broker.log").read_bytes().decode("utf-8").split("\n")[:-1]

    def test_an_event_is_one_line(self) -> None:
        """Text of a peer can neither begin a line nor control a terminal."""
        folder = Path(self.mktemp())
        log = self.logger(folder)
        log.info("producer {name} and {other!r}", other=b"\n\x1b",
                 name="c\n2026-11-21 FAKE\r\x1b[2J\x85\u2028\u202e\ud800\u4f60\t\0")
        [line] = self.lines(folder)
        self.assertTrue(line.endswith(
            "producer c\\n2026-11-21 FAKE\\r\\x1b[2J\\x85\\u2028\\u202e\\ud800\u4f60\\t\\x00"
            " and b'\\n\\x1b'"), msg=line)

    def test_long_fields_are_cut(self) -> None:
        """The line keeps the text after a very long field, with the length of the field."""
        folder = Path(self.mktemp())
        log = self.logger(folder)
        log.info("key {key}, value {value}, {size} bytes", key="k" * 3_000_000,
                 value=b"v" * 3_000_000, size=7)
        log.info("{names}", names=["n" * 1000] * 1000)
        first, second = self.lines(folder)
        self.assertIn("kkk... (3000000 characters), value b'vvv", first)
        self.assertIn("vvv... (3000000 bytes)', 7 bytes", first)
        self.assertLess(len(first), 3 * LOG_FIELD_CHARS_MAX)
        self.assertLess(len(second), LOG_LINE_CHARS_MAX + 200)

    def test_a_traceback_is_indented_and_bounded(self) -> None:
        """No line of an error's text looks like an event, and its length is limited."""
        folder = Path(self.mktemp())
        log = self.logger(folder)
        try:
            raise ValueError("first\n2026 FAKE\x1b[2J\n" + "line\n" * 100_000 + "x" * 100_000)
        except ValueError:
            log.failure("request {code} failed", code=10)
        event, *traceback = self.lines(folder)
        self.assertTrue(event.endswith("request 10 failed"), msg=event)
        self.assertTrue(all(line.startswith("\t") for line in traceback))
        self.assertIn("\t2026 FAKE\\x1b[2J", traceback)
        self.assertLessEqual(len(traceback), LOG_TRACEBACK_LINES_MAX + 1)
        self.assertLess(max(map(len, traceback)), LOG_FIELD_CHARS_MAX + 100)

    def test_a_full_file_is_put_aside(self) -> None:
        """A full file is renamed, and a limited number of files is kept."""
        folder = Path(self.mktemp())
        log = self.logger(folder, log_size_max="4096", log_files_max="2")
        for number in range(300):
            log.info("event {number} of some length, to fill the file", number=number)
        self.assertEqual(sorted(path.name for path in folder.iterdir()),
                         ["broker.log", "broker.log.1", "broker.log.2"])
        self.assertIn("event 299", (folder / "broker.log").read_text())
        self.assertLess((folder / "broker.log.1").stat().st_size, 4096 + 200)

    def test_levels_of_parts(self) -> None:
        """A part has the level of the longest configured prefix of its name."""
        folder = Path(self.mktemp())
        self.logger(folder, log_level="warn",
                    log_levels="twistmq.broker=info, twistmq.broker.store=debug,twisted=critical")
        for namespace, level in (
            ("twistmq.broker.store.disk", "debug"), ("twistmq.broker.storefront", "debug"),
            ("twistmq.broker.kernel.kernel", "info"), ("twistmq.broker.kernel.kernel", "debug"),
            ("twistmq.plugins.timer", "info"), ("twistmq.plugins.timer", "warn"),
            ("twisted.web", "error"), ("mine", "error"),
        ):
            getattr(Logger(namespace, observer=self.observer), level)(
                "{part} at {how}", part=namespace, how=level)
        self.assertEqual([line.partition("] ")[2] for line in self.lines(folder)], [
            "twistmq.broker.store.disk at debug", "twistmq.broker.kernel.kernel at info",
            "twistmq.plugins.timer at warn", "mine at error"])

    def test_live_change(self) -> None:
        """Levels and sizes hold from their change on; levels without a meaning are refused."""
        folder = Path(self.mktemp())
        log = self.logger(folder, log_level="warn")
        log.debug("first")
        self.settings.update({"log.level": "debug"})
        log.debug("second")
        self.settings.update({"log.levels": f"{log.namespace}=error"})
        log.warn("third")
        self.assertRaises(SettingsError, self.settings.update,
                          {"log.levels": f"{log.namespace}=loud"})
        log.warn("fourth")
        self.settings.update({"log.levels": ""})
        log.debug("fifth")
        self.assertEqual([line.rpartition(" ")[2] for line in self.lines(folder)],
                         ["second", "fifth"])
        self.settings.update({"log.size_max": "4096", "log.files_max": "1"})
        for number in range(300):
            log.info("event {number} of some length, to fill the file", number=number)
        self.assertEqual(sorted(path.name for path in folder.iterdir()),
                         ["broker.log", "broker.log.1"])

    def test_levels_without_a_meaning(self) -> None:
        """They stop the start with the reason."""
        for text in ("twistmq", "twistmq=loud", "a=info,=", "twistmq:debug"):
            error = self.assertRaises(SettingsError, self.logger, Path(self.mktemp()),
                                      log_levels=text)
            self.assertIn("log.levels=", str(error), msg=text)
            self.assertIn("debug, info, warn, error, critical", str(error), msg=text)

    def test_cannot_be_written(self) -> None:
        """A folder that cannot be made is an error with its name."""
        file = Path(self.mktemp())
        file.write_text("")
        error = self.assertRaises(SettingsError, self.logger, file / "logs")
        self.assertIn(str(file / "logs"), str(error))

    def test_a_signal_in_a_line(self) -> None:
        """A signal handler that logs while a line is being written does not block.

        SIGTERM's does. It came between two steps of taking a lock once in thousands of stops, and
        the process never ended.
        """
        folder = Path(self.mktemp())
        log = self.logger(folder)
        came = 0

        def handler(*_: object) -> None:
            nonlocal came
            came += 1
            log.info("a signal")

        before = signal.signal(signal.SIGALRM, handler)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        self.addCleanup(signal.setitimer, signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
        while came < 1000:
            log.info("a line")
        signal.setitimer(signal.ITIMER_REAL, 0)
        found = [line.rpartition("] ")[2] for line in self.lines(folder)]
        self.assertEqual(set(found), {"a signal", "a line"})


class JsonTests(SynchronousTestCase):
    """Events as JSON objects, a line each."""

    def setUp(self) -> None:
        self.folder = Path(self.mktemp())
        self.settings = Settings.load(LOG_ROWS, overrides={"log.format": "json"})
        file = open_log("broker", str(self.folder), self.settings)
        self.addCleanup(file.close)
        self.observer = file_observer(file, self.settings)
        self.log = Logger("twistmq.broker.store.disk", observer=self.observer)

    def events(self) -> list[dict[str, Any]]:
        """What was written; a line that is not an object fails."""
        data = (self.folder / "broker.log").read_bytes()
        self.assertTrue(not data or data.endswith(b"\n"))
        return [json.loads(line) for line in data.split(b"\n")[:-1]]

    def test_the_members_of_an_event(self) -> None:
        """Time, level, part and text; a field that the text does not name is not written."""
        self.log.warn("the disk {name} is slow", name="\u4f60\u597d", password="secret-word")
        [event] = self.events()
        written = datetime.fromisoformat(event.pop("time"))
        self.assertEqual(written.utcoffset(), timedelta(0))
        self.assertLess(abs(written.timestamp() - datetime.now().timestamp()), 60)
        self.assertEqual(event, {"level": "warn", "logger": "twistmq.broker.store.disk",
                                 "message": "the disk \u4f60\u597d is slow"})
        self.assertNotIn("secret-word", (self.folder / "broker.log").read_text())

    def test_selection_by_level(self) -> None:
        """Settings of levels hold as for text, also after a change."""
        self.log.debug("first")
        self.settings.update({"log.levels": "twistmq.broker.store=debug"})
        self.log.debug("second")
        self.log.info("")
        self.assertEqual([(event["level"], event["message"]) for event in self.events()],
                         [("debug", "second")])

    def test_what_a_peer_sent_stays_within_its_line(self) -> None:
        """Controls are shown as escapes in the text, so a terminal that prints it is safe."""
        self.log.info("{name} \"said\" {other!r}", other=b"\n\x1b",
                      name="c\n{\"level\":\"FAKE\"}\r\x1b[2J\x85\u2028\u202e\ud800\0")
        [event] = self.events()
        self.assertEqual(
            event["message"], "c\\n{\"level\":\"FAKE\"}\\r\\x1b[2J\\x85\\u2028\\u202e"
            "\\ud800\\x00 \"said\" b'\\n\\x1b'")

    def test_a_failure_has_its_traceback(self) -> None:
        """The lines are one text, whose middle is left out if it is longer than a runtime takes."""
        for size in (10, 100_000):
            try:
                raise ValueError("a\x1b" + "line\n" * size + "end")
            except ValueError:
                self.log.failure("request {code} failed", code=size)
        short, long = self.events()
        for event in (short, long):
            self.assertEqual(event["level"], "critical")
            self.assertTrue(event["failure"].startswith("Traceback (most recent call last):\n"))
            self.assertTrue(event["failure"].endswith("\nend"), msg=event["failure"][-80:])
            self.assertNotIn("\x1b", event["failure"])
            self.assertLess(len(event["failure"]), LOG_LINE_CHARS_MAX + 100)
        self.assertEqual(short["message"], "request 10 failed")
        self.assertIn("raise ValueError", short["failure"])

    def test_an_event_without_time_or_level(self) -> None:
        """An event that another library made still becomes an object."""
        event = {"log_format": "{text}", "text": "plain"}
        for system, more in (("a\n", {"system": "a\\n"}), ("-", {}), (None, {})):
            line = format_event_as_json({**event, "log_system": system})
            self.assertEqual(json.loads(line or ""), {
                "time": None, "level": "info", "logger": "", "message": "plain", **more})

    def test_standard_error(self) -> None:
        """The lines go to standard error; an output that is closed stops nothing."""
        reading, writing = os.pipe()
        before = os.dup(2)
        self.addCleanup(os.close, before)
        log = Logger("part", observer=stderr_observer(self.settings))
        os.dup2(writing, 2)
        os.close(writing)
        try:
            log.info("to a pipe")
            os.dup2(before, 2)
            with open(reading, "rb") as output:
                lines = output.read().splitlines()
            os.close(2)
            log.info("to nobody")
        finally:
            os.dup2(before, 2)
        self.assertEqual([json.loads(line)["message"] for line in lines], ["to a pipe"])


class ContainerTests(SynchronousTestCase):
    """Servers whose log is standard error, as in a container."""

    def test_each_command(self) -> None:
        """Standard error has objects only, and nothing else is printed or written as a log.

        The console prints its address on standard output, since no log may contain the token.
        """
        folder = tempfile.TemporaryDirectory(prefix="twistmq-logs-")
        self.addCleanup(folder.cleanup)
        data, common = folder.name, ("log.output=stderr", "log.format=json")
        commands = (
            ("up", "--data", f"{data}/up", "--namesrv-port", "0", "--broker-port", "0",
             "--console", "--console-port", "0", *common),
            ("namesrv", "listenPort=0", "bindAddress=127.0.0.1",
             f"kvConfigPath={data}/namesrv/kv.json", *common),
            ("broker", "listenPort=0", "bindAddress=127.0.0.1", "brokerIP1=127.0.0.1",
             f"storePathRootDir={data}/broker/store", *common))
        processes = [subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *command], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE) for command in commands]
        for process in processes:
            self.addCleanup(process.kill)
        for command, process in zip(commands, processes, strict=True):
            assert process.stderr is not None
            lines = []
            for line in process.stderr:
                lines.append(line)
                if b"boot success" in line:
                    break
            process.terminate()
            out, rest = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0, msg=f"{command} {lines} {rest!r}")
            token = out.partition(b"token=")[2].strip()
            self.assertEqual((out.count(b"\n"), bool(token)), (1, True) if command[0] == "up" else (
                0, False), msg=f"{command} {out!r}")
            self.assertFalse(token and token in b"".join(lines) + rest)
            events = [json.loads(line) for line in [*lines, *rest.splitlines()]]
            self.assertIn("SIGTERM received, stopping", [each["message"] for each in events])
            for event in events:
                # Twisted's own events may name a subsystem.
                self.assertEqual(set(event) - {"system"}, {"time", "level", "logger", "message"})
        self.assertEqual(list(Path(data).rglob("*.log")), [])


class LiveTests(SynchronousTestCase):
    """A process whose levels a tool changes."""

    def test_change_by_request(self) -> None:
        """The change takes effect with the response, only for the named part."""
        folder = tempfile.TemporaryDirectory(prefix="twistmq-logs-")
        self.addCleanup(folder.cleanup)
        with servers(Path(folder.name)) as running, \
                RawClient(f"127.0.0.1:{running.broker_port}") as client:
            def refused() -> bool:
                """Send a request that is refused and logged at debug; :returns: whether it was
                logged.
                """
                reply = client.request(RequestCode.HEART_BEAT, None, b"{")
                self.assertNotEqual(reply.code, 0)
                return "request 34 from" in running.log()

            def update(text: str) -> None:
                reply = client.request(RequestCode.UPDATE_BROKER_CONFIG, None, text.encode())
                self.assertEqual(reply.code, 0, msg=reply.remark)

            self.assertFalse(refused())
            update("log.levels=twistmq.broker.store=debug\n")
            self.assertFalse(refused())
            update("log.levels=twistmq.broker.remoting.dispatcher=debug\n")
            self.assertTrue(refused())
