"""Log files: levels, rotation, errors."""

from __future__ import annotations

from pathlib import Path

from twisted.logger import Logger
from twisted.trial.unittest import SynchronousTestCase

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
