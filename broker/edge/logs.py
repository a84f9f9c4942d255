"""The log of a process: one line for each event, in files that are rotated by size.

``<data>/logs/NAME.log`` is the newest file, ``NAME.log.1`` is the previous one. With
``log.output=stderr``, the lines go to standard error instead. Events come from
``twisted.logger``; ``log.level`` selects the events that are written, and ``log.levels`` does so
for parts of the process. Changes of both settings, and of the file sizes, take effect at once. No
event contains the body of a message or a secret. Under ``twistd`` this module is not used, because
twistd has its own log options.

Names, addresses, remarks and errors in an event may come from a peer. Every event is therefore
written as one line of bounded length that begins with its time: control characters are shown as
escapes, and a long field is cut before it becomes part of the line. The lines of a traceback begin
with a tab.

With ``log.format=json``, each line is a JSON object with the same texts, traceback included::

    time      when the event occurred, in RFC 3339, UTC; null if the event has no time
    level     debug, info, warn, error or critical
    logger    the part of the process, as in log.levels
    system    the subsystem; only if the event names one
    message   the text of the event
    failure   the traceback of the error, as lines; only if the event has an error

The fields of an event are not part of the object, because only the text is free of secrets.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from threading import RLock
from typing import IO, Any, Final, cast

import msgspec
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

__all__ = ["LogLevels", "begin_logging", "file_observer", "format_event", "format_event_as_json",
           "is_log_on_stderr", "level_filter", "open_log", "stderr_observer"]

_STDERR: Final = 2
#: The subsystem that the older functions of Twisted give to an event without one.
_NO_SYSTEM: Final = "-"

#: Characters to which a terminal or a program that reads lines may react: C0 and C1 controls, line
#: separators and marks that change the writing direction. Lone surrogates are included because
#: UTF-8 cannot encode them.
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def begin_logging(name: str, folder: str, settings: Settings) -> None:
    """Send every event of this process to its log from now on.

    Standard output is not redirected: boot lines are printed there.

    :raises SettingsError: when the folder or the file cannot be written.
    """
    observer = (stderr_observer(settings) if is_log_on_stderr(settings)
                else file_observer(open_log(name, folder, settings), settings))
    globalLogBeginner.beginLoggingTo([observer], redirectStandardIO=False)


def is_log_on_stderr(settings: Settings) -> bool:
    """Whether the log is written to standard error instead of a file."""
    return settings.text("log.output") == "stderr"


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
    # Twisted's own lock is acquired in several steps. A signal handler also logs, possibly between
    # two of these steps, and would wait for itself, so that the process would never stop.
    file._threadable_lock = RLock()  # type: ignore[attr-defined]
    return file


def file_observer(file: LogFile, settings: Settings) -> ILogObserver:
    """Return an observer that writes the events selected by the current log-level settings.

    :raises SettingsError: when the settings do not name levels.
    """
    def changed(changes: Mapping[str, SettingValue]) -> None:
        file.rotateLength = settings.int("log.size_max")
        file.maxRotatedFiles = settings.int("log.files_max")

    settings.on_change.append(changed)
    return _observer(cast(IO[str], file), settings)


def stderr_observer(settings: Settings) -> ILogObserver:
    """Return an observer that writes the selected events to standard error.

    :raises SettingsError: when the settings do not name levels.
    """
    return _observer(cast(IO[str], _StandardError()), settings)


def _observer(output: IO[str], settings: Settings) -> ILogObserver:
    is_json = settings.text("log.format") == "json"
    formatter: Callable[[LogEvent], str | None] = (
        format_event_as_json if is_json else format_event)
    return FilteringLogObserver(FileLogObserver(output, formatter), [LogLevels(settings)])


class _StandardError:
    """Standard error without a buffer.

    A signal handler also logs, and a buffer of Python refuses a write within a write.
    """

    @staticmethod
    def write(text: str) -> None:
        """Write lines; nothing reports an output that is closed."""
        data = text.encode()
        with suppress(OSError):
            while data:
                data = data[os.write(_STDERR, data):]

    def flush(self) -> None:
        """Do nothing: each write is complete."""


@implementer(ILogFilterPredicate)
class LogLevels:
    """The selection of the events to write, by a level that may differ for parts of the process.

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
    """Return the filter of the events that ``log.level`` and ``log.levels`` select.

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

    :returns: None if the event has no text.
    """
    line = formatEventAsClassicLogText({
        "log_format": "{message}", "message": _message(event), "log_time": event.get("log_time"),
        "log_system": event.get("log_system"), "log_level": event.get("log_level"),
        "log_namespace": event.get("log_namespace")})
    failure = event.get("log_failure")
    if line is None or not isinstance(failure, Failure):
        return line
    return line + "".join([f"\t{each}\n" for each in _traceback_lines(failure)])


def format_event_as_json(event: LogEvent) -> str | None:
    """Write an event as a JSON object on one line; the module describes its members.

    :returns: None if the event has no text.
    """
    message = _message(event)
    if not message:
        return None
    time_s, level = event.get("log_time"), event.get("log_level")
    members: dict[str, str | None] = {
        "time": None if time_s is None else datetime.fromtimestamp(time_s, UTC).isoformat(
            timespec="microseconds"),
        "level": getattr(level, "name", "info"),
        "logger": _one_line(str(event.get("log_namespace", "")), LOG_FIELD_CHARS_MAX),
    }
    system = event.get("log_system")
    if system not in (None, _NO_SYSTEM):
        members["system"] = _one_line(str(system), LOG_FIELD_CHARS_MAX)
    members["message"] = message
    failure = event.get("log_failure")
    if isinstance(failure, Failure):
        members["failure"] = _bounded_text(_traceback_lines(failure))
    return msgspec.json.encode(members).decode() + "\n"


def _message(event: LogEvent) -> str:
    """Return the text of an event as one line of bounded length."""
    short = {name: _shorten(value, LOG_FIELD_CHARS_MAX) if name != "log_format" else value
             for name, value in event.items()}
    return _one_line(formatEvent(short), LOG_LINE_CHARS_MAX)


def _traceback_lines(failure: Failure) -> list[str]:
    """Return the traceback of a failure; the middle of a long one is left out."""
    lines = failure.getTraceback().rstrip("\n").split("\n")
    if len(lines) > LOG_TRACEBACK_LINES_MAX:
        half = LOG_TRACEBACK_LINES_MAX // 2
        lines[half:-half] = [f"... {len(lines) - 2 * half} lines left out"]
    return [_one_line(line, LOG_FIELD_CHARS_MAX) for line in lines]


def _bounded_text(lines: list[str]) -> str:
    """Join the lines of a traceback; if the text is too long, its middle is left out.

    Container runtimes split lines that have more than 16 KiB.
    """
    text = "\n".join(lines)
    half = LOG_LINE_CHARS_MAX // 2
    if len(text) <= LOG_LINE_CHARS_MAX:
        return text
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out\n{text[-half:]}"


def _shorten(value: Any, chars_max: int) -> Any:
    """Cut text or bytes that are too long and state their length; keep other values."""
    if isinstance(value, str) and len(value) > chars_max:
        return f"{value[:chars_max]}... ({len(value)} characters)"
    if isinstance(value, bytes) and len(value) > chars_max:
        return value[:chars_max] + f"... ({len(value)} bytes)".encode()
    return value


def _one_line(text: str, chars_max: int) -> str:
    """Show characters that cannot be printed as Python escapes, and cut text that is too long."""
    text = cast(str, _shorten(text, chars_max))
    return _UNPRINTABLE.sub(lambda match: ascii(match[0])[1:-1], text)
