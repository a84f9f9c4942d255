"""Which clients trace their own messages, so that the broker does not do it a second time.

A client with its trace on sends its records to a trace topic, from a producer of its own whose
group begins with ``_INNER_TRACE_PRODUCER``. Each record names the group it is about; the ip it
comes from is the client's. So a client is known to trace itself once a first record of its group
came from its ip, for sends and for consumption apart. Clients keep records back for up to five
seconds, so the decision on a new client is made after six: what it does meanwhile waits.
One whose trace topic is at another broker cannot be recognised.

Source: AsyncTraceDispatcher @4.4.0 to @5.3.3 (flushTraceInterval, genGroupNameForTrace); trace.go
@v2.1.2.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from twistmq.trace.records import RECORD_SEPARATOR, SubAfter, SubBefore, decode_records

__all__ = ["TRACE_GROUP_PREFIX", "ClientKey", "TracingClients", "Verdict"]

#: The prefix of the groups of producers of traces. Source: TraceConstants.GROUP_NAME_PREFIX.
TRACE_GROUP_PREFIX: Final = "_INNER_TRACE_PRODUCER"
#: How long a client is watched before it is decided on, ms; longer than clients keep records back.
WATCH_MS: Final = 6000
#: A client that did nothing for so long is forgotten, ms.
FORGET_MS: Final = 600_000
_RECORD_END: Final = RECORD_SEPARATOR.encode()
#: Clients that are remembered; one that is not among them is taken for one that does not trace.
CLIENTS_MAX: Final = 20_000
#: The bytes that are decoded of one request. Clients send 128,000 at most, but a stranger may send
#: more to a trace topic, and decoding holds up the other connections.
#: Source: AsyncTraceDispatcher.maxMsgSize @5.3.3.
DECODED_MAX: Final = 256 * 1024


class ClientKey(NamedTuple):
    """The key by which traces distinguish clients."""

    #: Its address, 4 or 16 bytes.
    ip: bytes
    #: Without the namespace, which records leave out.
    group: str
    is_consumer: bool


class Verdict(Enum):
    """The decision on the records of a client."""

    RECORD = auto()
    #: Not known yet.
    WAIT = auto()
    #: It traces itself.
    SKIP = auto()


@dataclass(slots=True)
class _Seen:
    """The times known of a client, Unix ms."""

    first_ms: int
    last_ms: int
    traces: bool = False


def client_key(host: bytes, group: str, is_consumer: bool) -> ClientKey:
    """:param host: address and int32 port, as records hold them."""
    # A namespace ends with the last % before the name itself, which has no %.
    return ClientKey(host[:-4], group.rpartition("%")[2], is_consumer)


class TracingClients:
    """The clients of one broker."""

    def __init__(self) -> None:
        self._seen: dict[ClientKey, _Seen] = {}

    def traced(self, host: bytes, bodies: Iterable[bytes], now_ms: int) -> None:
        """A client sent records of its own.

        :param host: its address and port.
        :param bodies: of the messages of one request; what is over the limit is not read.
        """
        found: set[tuple[str, bool]] = set()
        room = DECODED_MAX
        for body in bodies:
            if len(body) > room:
                # The record that the cut goes through would name a part of a group.
                body = body[:room].rpartition(_RECORD_END)[0]
                room = 0
            room -= len(body)
            found.update((record.group, isinstance(record, SubBefore | SubAfter))
                         for record in decode_records(body).records if record.group is not None)
            if room <= 0:
                break
        for group, is_consumer in found:
            seen = self._find(client_key(host, group, is_consumer), now_ms)
            if seen is not None:
                seen.traces, seen.last_ms = True, now_ms

    def verdict(self, client: ClientKey, now_ms: int) -> Verdict:
        """Decide on what a client did."""
        seen = self._find(client, now_ms)
        if seen is None:
            return Verdict.RECORD
        seen.last_ms = now_ms
        if seen.traces:
            return Verdict.SKIP
        return Verdict.WAIT if now_ms - seen.first_ms < WATCH_MS else Verdict.RECORD

    def _find(self, client: ClientKey, now_ms: int) -> _Seen | None:
        seen = self._seen.get(client)
        if seen is None and len(self._seen) < CLIENTS_MAX:
            seen = self._seen[client] = _Seen(now_ms, now_ms)
        return seen

    def forget_idle(self, now_ms: int) -> None:
        """Forget clients that did nothing for long; run now and then."""
        self._seen = {client: seen for client, seen in self._seen.items()
                      if now_ms - seen.last_ms < FORGET_MS}
