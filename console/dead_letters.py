"""Dead letters: how they are found, sent again and exported.

The messages that a group could not consume are in its dead-letter topic. A message that is sent
again stays in this topic as well, because a broker removes messages by age only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from twistmq.client.base.codecs import decompress
from twistmq.client.base.errors import Undecodable
from twistmq.client.base.json_body import body_members, damage_members
from twistmq.console.page_session import PageSession
from twistmq.console.query import BadQuery
from twistmq.console.queue_offsets import QueueOffsets
from twistmq.console.queue_span import PULL_MAX, pull_span
from twistmq.protocol import properties as names
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.errors import BrokerError, RemotingTimeout, RequestRefused
from twistmq.protocol.record import SYS_COMPRESSED, SYS_COMPRESSION_MASK, StoredMessage
from twistmq.protocol.topic_names import dlq_topic, retry_topic
from twistmq.tools.admin.records import message_id_of
from twistmq.tools.admin.send_commands import send_to_queue
from twistmq.tools.admin.session import AdminError, Broker
from twistmq.tools.admin.topics import topic_stats

__all__ = ["DESTINATIONS", "Letter", "LetterList", "LetterReader", "Outcome", "Position",
           "cut_lines", "destination_topic", "letter_line", "origin_topic", "read_letters",
           "send_letter"]

#: Where a letter is sent: to its group alone, or to its topic and so to all groups of it.
DESTINATIONS: Final = ("group", "topic")
#: The letters that are read first; large ones are read in small numbers.
_PIECE_MIN: Final = 4
_PIECE_BYTES: Final = 1024 * 1024
#: The properties that describe the delivery of the dead letter, and not its message.
_OF_DELIVERY: Final = frozenset({
    names.DELAY, names.REAL_TOPIC, names.REAL_QID, names.TRAN_MSG, names.PGROUP, names.MIN_OFFSET,
    names.MAX_OFFSET, names.RECONSUME_TIME, names.MAX_RECONSUME_TIMES, names.CONSUME_START_TIME,
    names.TRAN_PREPARED_QUEUE_OFFSET, names.TRANSACTION_ID, names.TRANSACTION_CHECK_TIMES,
    names.CHECK_IMMUNITY_TIME_IN_SECONDS, names.INNER_NUM, names.INNER_BASE, names.POP_CK,
    names.POP_CK_OFFSET, names.FIRST_POP_TIME, names.FORWARD_QUEUE_ID, names.REDIRECT,
    names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS, names.TIMER_DELIVER_MS, names.TIMER_ENQUEUE_MS,
    names.TIMER_DEQUEUE_MS, names.TIMER_ROLL_TIMES, names.TIMER_OUT_MS, names.TIMER_DEL_UNIQKEY,
    names.TIMER_DELAY_LEVEL, names.BORN_HOST, names.BORN_TIMESTAMP, names.CRC32,
    names.DLQ_ORIGIN_TOPIC, names.DLQ_ORIGIN_MESSAGE_ID})
#: The properties by which a client replaces the retry topic with the topic of the message.
_OF_RETRY: Final = frozenset({names.RETRY_TOPIC, names.ORIGIN_MESSAGE_ID})

#: The properties that have separate members in a line, or that a producer sets itself.
_WRITTEN: Final = frozenset({names.TAGS, names.KEYS, names.WAIT, names.UNIQ_KEY, names.CLUSTER,
                             names.MSG_REGION, names.TRACE_ON})


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """The place of a dead letter in the dead-letter topic of its group."""

    broker: str
    queue_id: int
    offset: int

    @property
    def text(self) -> str:
        """The form in addresses and forms."""
        return f"{self.broker}:{self.queue_id}:{self.offset}"

    @classmethod
    def from_text(cls, text: str) -> Position:
        """Read the form in addresses; :raises BadQuery: when it has another form."""
        broker, *numbers = text.rsplit(":", 2)
        if not broker or len(numbers) != 2 or not all(
                each.isascii() and each.isdigit() and len(each) <= 18 for each in numbers):
            raise BadQuery(f"select={text[:80]} is not BROKER:QUEUE:OFFSET")
        return cls(broker, int(numbers[0]), int(numbers[1]))


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter."""

    position: Position
    message: StoredMessage


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of sending a letter again.

    :param sent_to: the topic, the broker, the queue and the offset; empty: it was not sent.
    :param fault: why it was not sent.
    """

    message_id: str
    sent_to: str = ""
    fault: str = ""

    @property
    def text(self) -> str:
        """One line for the operator."""
        return (f"{self.message_id}: {self.sent_to}" if self.sent_to else
                f"{self.message_id}: not sent, {self.fault}")


def origin_topic(message: StoredMessage) -> str:
    """Return the topic to which a program sent a dead letter; empty: it is not known."""
    properties = message.properties_map()
    return properties.get(names.RETRY_TOPIC) or properties.get(names.DLQ_ORIGIN_TOPIC) or ""


# --- reading


@dataclass(frozen=True, slots=True)
class LetterList:
    """The newest dead letters of a group.

    :param letters: the newest one first.
    :param total: the number of all letters of the group.
    :param ends: where each queue that has older letters goes on; empty: there are no older ones.
    """

    letters: list[Letter]
    total: int
    ends: QueueOffsets


@dataclass(slots=True)
class _QueueLetters:
    """The newest letters of a queue before an offset.

    :param begin: the offset of the oldest letter that the queue has.
    :param end: the offset before which the letters are.
    :param is_whole: whether all of them were read.
    """

    key: tuple[str, int]
    begin: int
    end: int
    total: int
    letters: list[Letter] = field(default_factory=list)
    is_whole: bool = True


def read_letters(
    session: PageSession, group: str, count: int, bytes_max: int, *,
    ends: QueueOffsets | None = None,
) -> LetterList:
    """Return the newest dead letters of a group.

    :param bytes_max: a queue is left when the bodies that were read have this size.
    :param ends: the letters are before these offsets, and in no other queue; None: the newest ones.
    """
    topic = dlq_topic(group)

    def of_broker(broker: Broker) -> list[_QueueLetters]:
        try:
            stats = topic_stats(session, broker, topic)
        except RequestRefused as error:
            if error.response_code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            return []
        queues = []
        for queue, bounds in sorted(stats.offset_table.items()):
            key = broker.name, queue.queue_id
            end = bounds.max_offset if ends is None else min(
                ends.get(key, bounds.min_offset), bounds.max_offset)
            each = _QueueLetters(key, bounds.min_offset, end,
                                 bounds.max_offset - bounds.min_offset)
            _read_newest(session, broker, queue, each, count, bytes_max)
            queues.append(each)
        return queues

    answers = session.begin(_brokers_of(session, topic), of_broker).collect()
    queues = [queue for _, each in answers for queue in each]
    # The unread letters of a queue may be newer than letters of other queues.
    cut_ms = max((queue.letters[-1].message.store_timestamp for queue in queues
                  if queue.letters and not queue.is_whole), default=0)
    letters = [letter for queue in queues for letter in queue.letters
               if letter.message.store_timestamp >= cut_ms]
    letters.sort(key=lambda each: (each.message.store_timestamp, each.position), reverse=True)
    letters = letters[:count]
    following = {queue.key: queue.end for queue in queues if queue.end > queue.begin}
    for letter in letters:
        position = letter.position
        following[position.broker, position.queue_id] = position.offset
    return LetterList(letters, sum(queue.total for queue in queues), {
        queue.key: following[queue.key] for queue in queues
        if following.get(queue.key, 0) > queue.begin})


def _brokers_of(session: PageSession, topic: str) -> list[Broker]:
    """Return the brokers that may have a topic; a new one is not known to the name servers yet."""
    try:
        return session.brokers_of(topic)
    except RequestRefused as error:
        if error.response_code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        return session.brokers()


def _read_newest(
    session: PageSession, broker: Broker, queue: MessageQueue, result: _QueueLetters, count: int,
    bytes_max: int,
) -> None:
    """Read a queue backwards from the end of a result, and put the letters into it."""
    size, piece, end = 0, _PIECE_MIN, result.end
    while end > result.begin and len(result.letters) < count and size < bytes_max:
        at = max(end - min(piece, count - len(result.letters)), result.begin)
        span = _span(session, broker, queue, at, end)
        result.letters += reversed(span)
        read = sum(len(each.message.body) for each in span)
        size += read
        # A queue of large messages is read in small pieces, which memory holds.
        piece = min(4 * piece, PULL_MAX) if read < _PIECE_BYTES else _PIECE_MIN
        end = at
    result.is_whole = end <= result.begin


def _span(
    session: PageSession, broker: Broker, queue: MessageQueue, begin: int, end: int
) -> list[Letter]:
    """Return the letters of a part of a queue."""
    return [Letter(Position(broker.name, queue.queue_id, each.queue_offset), each)
            for piece in pull_span(session, broker, queue, begin, end) for each in piece.messages]


class LetterReader:
    """Reads dead letters of a group one by one, so that memory holds one of them."""

    def __init__(self, session: PageSession, group: str) -> None:
        self._session = session
        self._topic = dlq_topic(group)
        self._brokers = {each.name: each for each in _brokers_of(session, self._topic)}

    def read_letter(self, position: Position) -> Letter | None:
        """Return the letter at a position; None: the letter no longer exists."""
        broker = self._brokers.get(position.broker)
        if broker is None:
            return None
        queue = MessageQueue(self._topic, position.broker, position.queue_id)
        letters = _span(self._session, broker, queue, position.offset, position.offset + 1)
        return letters[0] if letters else None


# --- sending again


def destination_topic(group: str, message: StoredMessage, destination: str) -> str:
    """Return the topic to which a letter is sent; empty: its topic is not known.

    :param destination: one of ``DESTINATIONS``.
    """
    return retry_topic(group) if destination == "group" else origin_topic(message)


def send_letter(
    session: PageSession, group: str, letter: Letter, destination: str
) -> Outcome:
    """Send a dead letter again under its own id, with its properties and no attempt counted."""
    message = letter.message
    message_id = message_id_of(message)
    topic = destination_topic(group, message, destination)
    if not topic:
        return Outcome(message_id, fault="its topic is not known")
    dropped = _OF_DELIVERY if destination == "group" else _OF_DELIVERY | _OF_RETRY
    properties = {name: text for name, text in message.properties_map().items()
                  if name not in dropped}
    if destination == "group":
        properties.setdefault(names.RETRY_TOPIC, origin_topic(message) or topic)
    try:
        queue = (MessageQueue(topic, letter.position.broker, 0) if destination == "group" else
                 _queue_for(session, topic, letter.position))
        broker, queue_id, offset, status, *_ = send_to_queue(
            session, queue, session.named(queue.broker_name).address, message.body,
            {**properties, names.WAIT: "true"}, message.flag,
            message.sys_flag & (SYS_COMPRESSED | SYS_COMPRESSION_MASK))
    except RemotingTimeout:
        return Outcome(message_id, fault=f"no answer in time; {topic} may contain it")
    except BrokerError as error:
        return Outcome(message_id, fault=str(error))
    return Outcome(message_id, f"{topic}, queue {queue_id} of {broker}, offset {offset} ({status})")


def _queue_for(session: PageSession, topic: str, position: Position) -> MessageQueue:
    """Return a queue of a topic, on the broker of the dead letter if possible.

    :raises AdminError: when the topic cannot be written to.
    """
    queues = session.write_queues(topic)
    if not queues:
        raise AdminError(f"topic {topic} cannot be written to")
    near = [each for each in queues if each.broker_name == position.broker] or queues
    return near[position.offset % len(near)]


# --- export


def letter_line(group: str, letter: Letter) -> bytes:
    """Return a letter as a line of JSON, which ``twistmq produce --json`` reads.

    A body that is not text is in ``body64``, and one that cannot be decompressed in ``raw64``.
    """
    message, properties = letter.message, letter.message.properties_map()
    row: dict[str, Any] = {
        "group": group, "topic": origin_topic(message), "broker": letter.position.broker,
        "queue": letter.position.queue_id, "offset": letter.position.offset,
        "id": message_id_of(message), "tags": properties.get(names.TAGS, ""),
        "keys": [key for key in properties.get(names.KEYS, "").split(names.KEY_SEPARATOR) if key],
        "attempt": message.reconsume_times,
        "stored_at": _time(message.store_timestamp), "properties": {
            name: text for name, text in properties.items()
            if name not in _OF_DELIVERY | _OF_RETRY | _WRITTEN}}
    try:
        row |= body_members(bytes(decompress(message.body, message.sys_flag)))
    except Undecodable as error:
        row |= damage_members(str(error), bytes(message.body))
    return json.dumps(row).encode() + b"\n"


def _time(at_ms: int) -> str:
    """Return a time in ISO 8601."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return str(at_ms)


def cut_lines(
    letters: Iterable[Letter], line: Callable[[Letter], bytes], bytes_max: int
) -> tuple[bytes, int]:
    """Join the lines of letters up to a size; :returns: the lines, the last one first, and their
    number.
    """
    lines: list[bytes] = []
    size = 0
    for letter in letters:
        text = line(letter)
        size += len(text)
        if size > bytes_max:
            break
        lines.append(text)
    return b"".join(reversed(lines)), len(lines)
