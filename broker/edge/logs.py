"""Log files of a process: one line an event, rotated by size.

``<data>/logs/NAME.log`` is the newest file, ``NAME.log.1`` the one before. Events come through
``twisted.logger``; what is written of them is said by ``log.level``, and for parts of the process
by ``log.levels``. Both, and the sizes of files, hold at once when they change. Bodies of messages
and secrets are no part of any event. Under ``twistd`` this module is not used: twistd has its own
log options.

Names, addresses, remarks and errors in an event may be what a peer sent. So whatever is written
here is one line that begins with its time, of a bounded length: control characters are shown, not
written, and a long field is cut before it is put into the line. Lines of a traceback begin with a
tab.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from threading import RLock
from typing import IO, Any, Final, cast

from twisted.logger import (
    FileLogObserver,
    FilteringLogObserver,
    ILogFilterPredicate,
    ILogObserver,
    InvalidLogLevelError,
    LogEvent,
    LogLevel,
    LogLevelFilterPredicate,
    formatEvent,
    formatEventAsClassicLogText,
    globalLogBeginner,
)
from twisted.python.failure import Failure
from twisted.python.logfile import LogFile
from zope.interface import implementer

from twistmq.broker.config.settings import Settings, SettingValue
from twistmq.broker.constants import (
    LOG_FIELD_CHARS_MAX,
    LOG_LINE_CHARS_MAX,
    LOG_TRACEBACK_LINES_MAX,
)
from twistmq.broker.errors import SettingUnavailable

__all__ = ["LogLevels", "begin_logging", "file_observer", "format_event", "level_filter",
           "open_log"]

#: Characters that a terminal or a reader of lines may act on: C0 and C1 controls, separators of
#: lines, marks that turn the direction of writing; and lone surrogates, which UTF-8 cannot say.
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


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
        file = LogFile(f"{name}.log", folder, rotateLength=settings.int("log.size_max"),
                       maxRotatedFiles=settings.int("log.files_max"))
    except OSError as error:
        raise SettingUnavailable(f"log.dir={folder}: {error.strerror}") from None
    # The lock that Twisted would give it is taken in several steps. A signal's handler logs too,
    # between any two of them, and would wait for itself: a process that never stops.
    file._threadable_lock = RLock()  # type: ignore[attr-defined]
    return file


def file_observer(file: LogFile, settings: Settings) -> ILogObserver:
    """An observer that writes the events of the levels that the settings name, now and later.

    :raises SettingsError: when they name none.
    """
    def changed(changes: Mapping[str, SettingValue]) -> None:
        file.rotateLength = settings.int("log.size_max")
        file.maxRotatedFiles = settings.int("log.files_max")

    settings.on_change.append(changed)
    return FilteringLogObserver(FileLogObserver(cast(IO[str], file), format_event),
                                [LogLevels(settings)])


@implementer(ILogFilterPredicate)
class LogLevels:
    """Which events are written: those of a level, which may be another for parts of the process.

    :raises SettingsError: when ``log.levels`` has no meaning.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._predicate = level_filter(settings)
        settings.on_change.append(self._settings_changed)

    def __call__(self, event: LogEvent) -> Any:
        return self._predicate(event)

    def _settings_changed(self, changes: Mapping[str, SettingValue]) -> None:
        if "log.level" in changes or "log.levels" in changes:
            self._predicate = level_filter(self._settings)


def level_filter(settings: Settings) -> LogLevelFilterPredicate:
    """The events that ``log.level`` and ``log.levels`` let be written.

    :raises SettingsError: when ``log.levels`` has no meaning.
    """
    predicate = LogLevelFilterPredicate(LogLevel.levelWithName(settings.text("log.level")))
    for pair in settings.names("log.levels"):
        namespace, _, level = (part.strip() for part in pair.partition("="))
        try:
            predicate.setLogLevelForNamespace(namespace, LogLevel.levelWithName(level))
        except InvalidLogLevelError:
            names = ", ".join(level.name for level in LogLevel.iterconstants())
            raise settings.error(
                "log.levels", f"contains {pair!r}, which is not part=level with one of "
                              f"{names}") from None
    return predicate


def format_event(event: LogEvent) -> str | None:
    """Write an event as one line, and its traceback, if it has one, as indented lines below.

    :returns: None when the event has nothing to say.
    """
    short = {name: _shorten(value, LOG_FIELD_CHARS_MAX) if name != "log_format" else value
             for name, value in event.items()}
    message = _one_line(formatEvent(short), LOG_LINE_CHARS_MAX)
    line = formatEventAsClassicLogText({
        "log_format": "{message}", "message": message, "log_time": event.get("log_time"),
        "log_system": event.get("log_system"), "log_level": event.get("log_level"),
        "log_namespace": event.get("log_namespace")})
    failure = event.get("log_failure")
    if line is None or not isinstance(failure, Failure):
        return line
    return line + "".join([f"\t{each}\n" for each in _traceback_lines(failure)])


def _traceback_lines(failure: Failure) -> list[str]:
    """A failure's traceback; what is left out of a long one is its middle."""
    lines = failure.getTraceback().rstrip("\n").split("\n")
    if len(lines) > LOG_TRACEBACK_LINES_MAX:
        half = LOG_TRACEBACK_LINES_MAX // 2
        lines[half:-half] = [f"... {len(lines) - 2 * half} lines left out"]
    return [_one_line(line, LOG_FIELD_CHARS_MAX) for line in lines]


def _shorten(value: Any, chars_max: int) -> Any:
    """Cut text or bytes that are too long, and say how long they were; leave all else."""
    if isinstance(value, str) and len(value) > chars_max:
        return f"{value[:chars_max]}... ({len(value)} characters)"
    if isinstance(value, bytes) and len(value) > chars_max:
        return value[:chars_max] + f"... ({len(value)} bytes)".encode()
    return value


def _one_line(text: str, chars_max: int) -> str:
    """Show what cannot be printed as Python writes it, in text that is cut when it is too long."""
    text = cast(str, _shorten(text, chars_max))
    return _UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], text)
