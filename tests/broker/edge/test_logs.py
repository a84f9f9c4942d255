"""Log files: levels, rotation, errors."""

from __future__ import annotations

from pathlib import Path

from twisted.logger import Logger
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.constants import (
    LOG_FIELD_CHARS_MAX,
    LOG_LINE_CHARS_MAX,
    LOG_TRACEBACK_LINES_MAX,
)
from twistmq.broker.edge.logs import file_observer, open_log
from twistmq.broker.errors import SettingsError
from twistmq.broker.setting_rows import LOG_ROWS
from twistmq.broker.settings import Settings


class FileObserverTests(SynchronousTestCase):
    """Events become lines of a file."""

    def logger(self, folder: Path, **overrides: str) -> Logger:
        """A logger whose events go to ``broker.log`` in a folder only."""
        names = {name.replace("_", ".", 1): text for name, text in overrides.items()}
        settings = Settings.load(LOG_ROWS, overrides=names)
        file = open_log("broker", str(folder), settings)
        self.addCleanup(file.close)
        return Logger(observer=file_observer(file, settings))

    def test_level(self) -> None:
        """Events below the level are left out; text of any script is written."""
        folder = Path(self.mktemp())
        log = self.logger(folder, log_level="warn")
        log.info("quiet")
        log.warn("loud {name}", name="\u4f60\u597d")
        lines = (folder / "broker.log").read_text(encoding="utf-8").splitlines()
        self.assertEqual(len(lines), 1)
        self.assertIn("loud \u4f60\u597d", lines[0])

    def lines(self, folder: Path) -> list[str]:
        """What was written, cut at newlines only."""
        return (folder / "broker.log").read_bytes().decode("utf-8").split("\n")[:-1]

    def test_an_event_is_one_line(self) -> None:
        """What a peer sent can begin no line of its own and move no terminal's cursor."""
        folder = Path(self.mktemp())
        log = self.logger(folder)
        log.info("producer {name} and {other!r}", other=b"\n\x1b",
                 name="c\n2026-11-21 FAKE\r\x1b[2J\x85\u2028\u202e\ud800\u4f60\t\0")
        [line] = self.lines(folder)
        self.assertTrue(line.endswith(
            "producer c\\n2026-11-21 FAKE\\r\\x1b[2J\\x85\\u2028\\u202e\\ud800\u4f60\\t\\x00"
            " and b'\\n\\x1b'"), msg=line)

    def test_long_fields_are_cut(self) -> None:
        """A field of megabytes leaves what is behind it in the line, and says how long it is."""
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
        """No line of an error's text looks like an event, and no error fills the log."""
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

    def test_rotation(self) -> None:
        """A full file is put aside, and only so many are kept."""
        folder = Path(self.mktemp())
        log = self.logger(folder, log_size_max="4096", log_files_max="2")
        for number in range(300):
            log.info("event {number} of some length, to fill the file", number=number)
        self.assertEqual(sorted(path.name for path in folder.iterdir()),
                         ["broker.log", "broker.log.1", "broker.log.2"])
        self.assertIn("event 299", (folder / "broker.log").read_text())
        self.assertLess((folder / "broker.log.1").stat().st_size, 4096 + 200)

    def test_cannot_be_written(self) -> None:
        """A folder that cannot be made is an error with its name."""
        file = Path(self.mktemp())
        file.write_text("")
        error = self.assertRaises(SettingsError, self.logger, file / "logs")
        self.assertIn(str(file / "logs"), str(error))
