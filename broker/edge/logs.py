"""Log files of a process: one line an event, rotated by size.

``<data>/logs/NAME.log`` is the newest file, ``NAME.log.1`` the one before. Events come through
``twisted.logger``; the level is one for all of them. Bodies of messages and secrets are no part of
any event. Under ``twistd`` this module is not used: twistd has its own log options.
"""

from __future__ import annotations

import os
from typing import IO, cast

from twisted.logger import (
    FilteringLogObserver,
    ILogObserver,
    LogLevel,
    LogLevelFilterPredicate,
    globalLogBeginner,
    textFileLogObserver,
)
from twisted.python.logfile import LogFile

from twistmq.broker.errors import SettingsError
from twistmq.broker.settings import Settings

__all__ = ["begin_logging", "file_observer", "open_log"]


def begin_logging(name: str, folder: str, settings: Settings) -> None:
    """Send every event of this process to its log file from now on.

    Standard output stays what it is: boot lines are printed there.

    :raises SettingsError: when the folder or the file cannot be written.
    """
    file = open_log(name, folder, settings)
    globalLogBeginner.beginLoggingTo([file_observer(file, settings)], redirectStandardIO=False)


def open_log(name: str, folder: str, settings: Settings) -> LogFile:
    """Open ``NAME.log``, which rotates itself.

    :raises SettingsError: when the folder or the file cannot be written.
    """
    try:
        os.makedirs(folder, exist_ok=True)
        return LogFile(f"{name}.log", folder, rotateLength=settings.int("log.size_max"),
                       maxRotatedFiles=settings.int("log.files_max"))
    except OSError as error:
        raise SettingsError(f"log.dir={folder}: {error.strerror}") from None


def file_observer(file: LogFile, settings: Settings) -> ILogObserver:
    """An observer that writes the events of ``log.level`` and above."""
    level = LogLevel.levelWithName(settings.text("log.level"))
    return FilteringLogObserver(textFileLogObserver(cast(IO[str], file)),
                                [LogLevelFilterPredicate(defaultLogLevel=level)])
