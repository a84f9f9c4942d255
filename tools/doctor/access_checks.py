"""The refusals of the last hour by access control, each with its reason and a way to end it.

They are read from the broker's log: ``acl/denials.py`` writes the lines.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from twistmq.broker.config.settings import Settings
from twistmq.broker.edge.boot import log_folder
from twistmq.broker.edge.logs import is_log_on_stderr
from twistmq.protocol.topic_names import TRACE_TOPIC
from twistmq.tools.doctor.findings import Finding, fine, warning

__all__ = ["denial_findings"]

_CHECK: Final = "access"
_REFUSAL: Final = re.compile(
    r"^(\S+) .*access denied: user=(.*) action=(\S*) resource=(.*) address=(\S*) code=(\d+): "
    r"(.*?)(?: \((\d+) more before\))?$")
_HOUR_MS: Final = 3_600_000
#: The end of each log file that is read, bytes, and the number of refusals that are displayed.
_READ_MAX: Final = 4 * 1024 * 1024
_SHOWN_MAX: Final = 20
_TRACE_TOPIC: Final = f"Topic:{TRACE_TOPIC}"


class _JsonEvent(msgspec.Struct):
    """The members that are read of a line under ``log.format=json``."""

    time: str | None
    message: str


class _Refusal(NamedTuple):
    """Equal refusals."""

    user: str
    action: str
    resource: str
    address: str
    code: str
    reason: str


def denial_findings(kind: str, settings: Settings, now_ms: int) -> Iterator[Finding]:
    """List the refusals that occur most often; a broker without ACL 2.0 has no findings.

    :param kind: "up" or "broker", after which the log file is named.
    """
    if settings.access_setting != "authenticationEnabled":
        return
    counts = Counter[_Refusal]()
    if is_log_on_stderr(settings):
        yield fine(_CHECK, "no refusals are known, because log.output=stderr leaves no log to read")
        return
    log = os.path.join(log_folder(settings), f"{kind}.log")
    if not os.access(log, os.R_OK):
        yield fine(_CHECK, f"no refusals are known, because there is no log {log} to read")
        return
    for line in _lines(log):
        match = _REFUSAL.match(_as_text(line))
        if match is not None and 0 <= now_ms - _time_ms(match[1]) <= _HOUR_MS:
            counts[_Refusal(*match.groups()[1:7])] += 1 + int(match[8] or 0)
    for refusal, count in counts.most_common(_SHOWN_MAX):
        yield warning(_CHECK, _text(refusal, count), _mend(refusal))
    if len(counts) > _SHOWN_MAX:
        yield warning(_CHECK, f"{len(counts) - _SHOWN_MAX} other kinds of refusals",
                      "see the lines \"access denied\" of the log")
    if not counts:
        yield fine(_CHECK, "no request was refused in the last hour")


def _text(refusal: _Refusal, count: int) -> str:
    times = "once" if count == 1 else f"{count} times"
    if refusal.resource == "-":
        what = f"request {refusal.code}"
    else:
        what = f"{refusal.action.replace(',', ' or ')} on {refusal.resource} " \
               f"(request {refusal.code})"
    return f"{refusal.user} from {refusal.address}: {what} was refused {times}: {refusal.reason}"


def _mend(refusal: _Refusal) -> str:
    user, reason = refusal.user, refusal.reason
    if reason.startswith("no matched policies"):
        hint = "; traces of messages need it" if refusal.resource == _TRACE_TOPIC else ""
        return (f"twistmq admin updateAcl -s User:{user} -r {refusal.resource} -a "
                f"{refusal.action.partition(',')[0]} -d Allow, if the user may do this{hint}")
    if reason.startswith("the decision is deny"):
        return f"twistmq admin getAcl -s User:{user} shows the entry; change or delete it"
    if reason.endswith("is not found."):
        return f"create the user with twistmq admin createUser -u {user}, or correct its name"
    if reason.endswith("is disabled."):
        return f"twistmq admin updateUser -u {user} -s enable, if the user may work again"
    if reason.startswith("check signature failed"):
        return "the client signs with another password: compare its secret key with the user's"
    if reason.startswith("username cannot be null"):
        return "the client has no access key: set the user's name and password as its two keys"
    return "only a super user may send this request"


def _lines(path: str) -> Iterator[str]:
    """Yield the last lines of a log file and of the file before it, if they can be read."""
    for each in (f"{path}.1", path):
        try:
            with open(each, "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _READ_MAX))
                yield from file.read(_READ_MAX).decode("utf-8", "replace").splitlines()
        except OSError:
            continue


def _as_text(line: str) -> str:
    """Return time and message of a line that is a JSON object; other lines are returned as is."""
    if not line.startswith("{"):
        return line
    try:
        event = msgspec.json.decode(line, type=_JsonEvent)
    except msgspec.MsgspecError:
        return line
    return f"{event.time} {event.message}"


def _time_ms(text: str) -> int:
    """Return the time of a line, Unix ms; 0 for a line that does not begin with a time."""
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return 0
