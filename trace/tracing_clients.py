"""Recognises clients that trace their own messages, so that the broker does not trace them again.

A tracing client sends its records to a trace topic, with a separate producer whose group begins
with ``_INNER_TRACE_PRODUCER``. Each record names the group that it is about, and it comes from the
client's ip. So when the first record about a group arrives from an ip, the client is known to trace
itself; sends and consumption are recognised separately. Clients may delay records for up to five
seconds. Therefore the decision on a new client is made after six seconds, and its records wait
until then. A client whose trace topic is on another broker cannot be recognised.

Two programs may share an ip and a group, and only the one that starts later may trace. The broker
then records the activities of the first program that are more than six seconds older than the first
record of the second one, because no record about them can still be on its way.

Source: AsyncTraceDispatcher @4.4.0 to @5.3.3 (flushTraceInterval, genGroupNameForTrace); trace.go
@v2.1.2.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from twistmq.protocol.trace_records import (
    RECORD_SEPARATOR,
    SubAfter,
    SubBefore,
    decode_records,
)

__all__ = ["TRACE_GROUP_PREFIX", "ClientKey", "TracingClients", "Verdict"]

#: The prefix of the groups of trace producers. Source: TraceConstants.GROUP_NAME_PREFIX.
TRACE_GROUP_PREFIX: Final = "_INNER_TRACE_PRODUCER"
#: Time until a client is decided on, ms; longer than clients delay their records.
WATCH_MS: Final = 6000
#: A client that was idle for this long is forgotten, ms.
FORGET_MS: Final = 600_000
_RECORD_END: Final = RECORD_SEPARATOR.encode()
#: The number of remembered clients; any other client is treated as one that does not trace.
CLIENTS_MAX: Final = 20_000
#: Limit of the bytes that are decoded from one request. Clients send at most 128,000, but any
#: producer may send more to a trace topic, and other connections wait while records are decoded.
#: Source: AsyncTraceDispatcher.maxMsgSize @5.3.3.
DECODED_MAX: Final = 256 * 1024


class ClientKey(NamedTuple):
    """The key that identifies a client for tracing."""

    #: The client's address, 4 or 16 bytes.
    ip: bytes
    #: The group without its namespace, which records leave out.
    group: str
    is_consumer: bool


class Verdict(Enum):
    """The decision on the records of a client."""

    RECORD = auto()
    #: The client is not decided on yet.
    WAIT = auto()
    #: The client traces itself.
    SKIP = auto()


@dataclass(slots=True)
class _Activity:
    """The first and last activity of a client, ms."""

    first_ms: int
    last_ms: int
    #: The client traces its activities from this time on, ms; None if it does not trace.
    traces_from_ms: int | None = None


def client_key(host: bytes, group: str, is_consumer: bool) -> ClientKey:
    """:param host: the address and an int32 port, as in records."""
    # A namespace ends with the last % before the name, which does not contain %.
    return ClientKey(host[:-4], group.rpartition("%")[2], is_consumer)


class TracingClients:
    """The clients of one broker."""

    def __init__(self) -> None:
        self._activities: dict[ClientKey, _Activity] = {}

    def traced(self, host: bytes, bodies: Iterable[bytes], now_ms: int) -> None:
        """Note that a client sent trace records.

        :param host: the client's address and port.
        :param bodies: the bodies of the messages of one request; bytes over the limit are not read.
        """
        groups: set[tuple[str, bool]] = set()
        remaining = DECODED_MAX
        for body in bodies:
            if len(body) > remaining:
                # The record at the cut is left out, because it would name only a part of a group.
                body = body[:remaining].rpartition(_RECORD_END)[0]
                remaining = 0
            remaining -= len(body)
            groups.update((record.group, isinstance(record, SubBefore | SubAfter))
                          for record in decode_records(body).records if record.group is not None)
            if remaining <= 0:
                break
        for group, is_consumer in groups:
            activity = self._find(client_key(host, group, is_consumer), now_ms)
            if activity is not None:
                activity.last_ms = now_ms
                if activity.traces_from_ms is None:
                    activity.traces_from_ms = now_ms - WATCH_MS

    def verdict(self, client: ClientKey, now_ms: int, age_ms: int = 0) -> Verdict:
        """Decide whether to record an activity of a client.

        :param age_ms: the time since the activity.
        """
        activity = self._find(client, now_ms)
        if activity is None:
            return Verdict.RECORD
        activity.last_ms = now_ms
        if activity.traces_from_ms is not None:
            was_before = now_ms - age_ms < activity.traces_from_ms
            return Verdict.RECORD if was_before else Verdict.SKIP
        return Verdict.WAIT if now_ms - activity.first_ms < WATCH_MS else Verdict.RECORD

    def _find(self, client: ClientKey, now_ms: int) -> _Activity | None:
        activity = self._activities.get(client)
        if activity is None and len(self._activities) < CLIENTS_MAX:
            activity = self._activities[client] = _Activity(now_ms, now_ms)
        return activity

    def forget_idle(self, now_ms: int) -> None:
        """Forget clients that were idle for long; called from time to time."""
        self._activities = {client: activity for client, activity in self._activities.items()
                            if now_ms - activity.last_ms < FORGET_MS}
