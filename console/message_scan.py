"""A bounded search in the queues of a topic, which can go on where it stopped.

The search reads each queue on its own, and the caller merges the queues by time and keeps the first
messages. What remains is written as one text, a mark, which has an offset for each queue that is
not finished: "broker-a:0.60,1.58;broker-b:0.12". A search that gets a mark reads only these queues,
from these offsets on.

Bodies are decoded when they are read, and only the beginning is kept. A search therefore occupies
little memory, whatever the size of the messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from twistmq.console.body_decoder import DecodedBody, body_preview, decode_body
from twistmq.console.message_filter import MessageFilter
from twistmq.console.page import Cell, Column
from twistmq.console.page_session import PageSession
from twistmq.console.queue_offsets import OFFSET_MAX
from twistmq.console.queue_span import PULL_MAX, pull_span
from twistmq.protocol.bodies import MessageQueue, TopicOffset
from twistmq.protocol.properties import KEYS, TAGS
from twistmq.protocol.record import StoredMessage
from twistmq.tools.admin.records import message_id_of
from twistmq.tools.admin.session import Broker

__all__ = ["MESSAGES", "Hit", "QueueReader", "QueueScan", "merged", "message_row", "stop_notes"]

#: The columns of a list of messages.
MESSAGES: Final = (
    Column("message", "text"), Column("stored", "time"), Column("broker", "code"),
    Column("queue", "number"), Column("offset", "number"), Column("tag", "code"),
    Column("keys", "code"), Column("bytes", "bytes", "Size"), Column("body", "code"))
#: The messages of one queue that a search reads.
SCAN_MAX: Final = 1_000
#: A search stops this long before the deadline of its page, seconds.
_SPARE_S: Final = 0.4
#: The queues that are named in notes.
_NOTES_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class Hit:
    """A message that a search found.

    :param offset: in its queue.
    :param row: the cells of ``MESSAGES``.
    """

    stored_ms: int
    offset: int
    row: tuple[Cell, ...]


@dataclass(slots=True)
class QueueScan:
    """What a search read of a queue.

    :ivar hits: in the order of reading.
    :ivar stop: where the search goes on: the next offset if it reads forward, and the offset after
        the next one if it reads backward.
    :ivar is_whole: whether the search has reached the end.
    """

    broker: str
    queue_id: int
    stop: int
    is_backward: bool = False
    is_whole: bool = False
    hits: list[Hit] = field(default_factory=list)


class QueueReader:
    """Reads queues of a topic.

    :param count: the number of messages after which a queue is left.
    """

    def __init__(
        self, session: PageSession, topic: str, selection: MessageFilter, count: int
    ) -> None:
        self._session = session
        self._topic = topic
        self._selection = selection
        self._count = count

    def read_backward(
        self, broker: Broker, queue_id: int, bounds: TopicOffset, end: int
    ) -> QueueScan:
        """Read the messages before an offset, the newest first, one piece after the other.

        :param bounds: the first offset of the queue, and the one after the last.
        """
        low, end = bounds.min_offset, min(end, bounds.max_offset)
        scan = QueueScan(broker.name, queue_id, end, is_backward=True)
        bound = max(low, end - SCAN_MAX)
        while scan.stop > bound and len(scan.hits) < self._count and self._has_time:
            begin = max(scan.stop - PULL_MAX, bound)
            piece = QueueScan(broker.name, queue_id, begin)
            self._read(broker, piece, scan.stop, PULL_MAX)
            if piece.stop < scan.stop and not piece.is_whole:
                break  # The time is over: the piece is read again.
            scan.hits += reversed(piece.hits)
            scan.stop = begin
        scan.is_whole = scan.stop <= low
        return scan

    def read_forward(
        self, broker: Broker, queue_id: int, bounds: TopicOffset, begin: int
    ) -> QueueScan:
        """Read the messages from an offset on; see :meth:`read_backward`."""
        begin, end = max(begin, bounds.min_offset), bounds.max_offset
        scan = QueueScan(broker.name, queue_id, begin)
        self._read(broker, scan, min(end, begin + SCAN_MAX), self._count)
        scan.is_whole = scan.is_whole or scan.stop >= end
        return scan

    @property
    def _has_time(self) -> bool:
        return self._session.remaining_s > _SPARE_S

    def _read(self, broker: Broker, scan: QueueScan, end: int, max_count: int) -> None:
        """Read a queue forward, and advance ``stop``."""
        queue = MessageQueue(self._topic, broker.name, scan.queue_id)
        if not self._has_time:
            return
        for piece in pull_span(
                self._session, broker, queue, scan.stop, end, self._selection.tags):
            for message in piece.messages:
                self._add(scan, broker, message)
            scan.stop, scan.is_whole = piece.stop, piece.is_end
            if len(scan.hits) >= max_count or not self._has_time:
                return

    def _add(self, scan: QueueScan, broker: Broker, message: StoredMessage) -> None:
        body = decode_body(message)
        if self._selection.accepts(message, body):
            scan.hits.append(Hit(message.store_timestamp, message.queue_offset, message_row(
                message, body, broker.name)))


def message_row(message: StoredMessage, body: DecodedBody, broker: str) -> tuple[Cell, ...]:
    """Return the row of a message on the broker with a name."""
    properties = message.properties_map()
    return (message_id_of(message), message.store_timestamp, broker, message.queue_id,
            message.queue_offset, properties.get(TAGS), properties.get(KEYS), body.size,
            body_preview(body))


def merged(scans: Iterable[QueueScan], count: int) -> tuple[list[Hit], dict[tuple[str, int], int]]:
    """Return the first messages of all queues by time, and where each queue goes on.

    :returns: at most ``count`` messages, and the offsets of the queues that are not finished.
    """
    scans = list(scans)
    pairs = [(hit, at) for at, scan in enumerate(scans) for hit in scan.hits]
    pairs.sort(key=lambda pair: (pair[0].stored_ms, pair[0].offset),
               reverse=any(scan.is_backward for scan in scans))
    mark: dict[tuple[str, int], int] = {}
    for scan in scans:
        if not scan.is_whole:
            mark[scan.broker, scan.queue_id] = scan.stop
    for hit, at in pairs[count:]:
        scan = scans[at]
        key = scan.broker, scan.queue_id
        if scan.is_backward:
            mark[key] = max(mark.get(key, 0), hit.offset + 1)
        else:
            mark[key] = min(mark.get(key, OFFSET_MAX), hit.offset)
    return [hit for hit, _ in pairs[:count]], mark


def stop_notes(scans: Iterable[QueueScan], count: int) -> list[str]:
    """Return a sentence for each queue in which a search stopped without enough messages."""
    notes = sorted(
        f"The search in queue {scan.queue_id} of {scan.broker} stopped at offset {scan.stop}: "
        f"{'older' if scan.is_backward else 'newer'} messages were not read."
        for scan in scans if not scan.is_whole and len(scan.hits) < count)
    more = len(notes) - _NOTES_MAX
    return notes if more <= 0 else [
        *notes[:_NOTES_MAX], f"The search stopped in {more} more queues in the same way."]
