"""Op messages record which half messages need no further checks; they are written in batches.

When a transaction ends, its half message cannot be marked as ended or removed, because the commit
log is never changed in place. Instead, the end is recorded in a second queue, by an op message that
names the half message. A check reads the half queue and its op queue side by side, and passes the
half messages that an op message names. One op message names many half messages, so that the end of
a transaction does not cost an append of its own.

An op message is stored in RMQ_SYS_TRANS_OP_HALF_TOPIC, in the queue with the id of its half queue.
Its tag is "d", and its body lists queue offsets of half messages, each followed by a comma. The end
of a copy also names the original half message, so that other copies of it are known to be ended.

Source: TransactionalMessageServiceImpl.deletePrepareMessage, batchSendOpMessage, fillOpRemoveMap,
calculateOpOffset @5.3.3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from twisted.logger import Logger

from twistmq.broker.api import MessageRecord, StoredMessage, decode_record, format_properties
from twistmq.broker.api.errors import StoreDamaged
from twistmq.broker.api.topics import HALF_TOPIC, OP_HALF_TOPIC
from twistmq.broker.api.wire import TAGS, WAIT, tags_code

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["KnownOps", "OpBatches", "op_record"]

REMOVE_TAG: Final = "d"
#: The number of op messages that are read at once. Source: OP_MSG_PULL_NUMS.
READ_COUNT: Final = 32
_OFFSET: Final = re.compile(rb"\d{1,18}")


def op_record(broker: Broker, queue_id: int, offsets: Iterable[int]) -> MessageRecord:
    """Make the op message for half messages that are ended.

    :param offsets: the queue offsets of the half messages.
    """
    properties = {TAGS: REMOVE_TAG, WAIT: "true"}
    body = "".join([f"{offset}," for offset in offsets]).encode()
    return MessageRecord(
        OP_HALF_TOPIC, queue_id, body, format_properties(properties), broker.now_ms(),
        broker.store_host, broker.store_host, [], tags_code(REMOVE_TAG))


class OpBatches:
    """Ends of half messages that wait to be written as op messages, by half queue."""

    log = Logger()

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        #: Half queue to the queue offsets, and the number of bytes that they will take.
        self._waiting: dict[int, list[int]] = {}
        self._sizes: dict[int, int] = {}
        self._failing = False

    def waits(self, queue_id: int) -> bool:
        """Whether ends of a half queue are not written yet."""
        return queue_id in self._waiting

    def add(self, queue_id: int, offsets: Sequence[int]) -> None:
        """Note half messages that are ended; many are written at once."""
        self._waiting.setdefault(queue_id, []).extend(offsets)
        size = self._sizes.get(queue_id, 0) + sum([len(str(each)) + 1 for each in offsets])
        self._sizes[queue_id] = size
        if size > self._broker.settings.int("transactionOpMsgMaxSize"):
            self.write()

    def clear(self) -> None:
        """Forget the ends that are not written, because the log was cut."""
        self._waiting.clear()
        self._sizes.clear()

    def write(self) -> bool:
        """Write all waiting ends; :returns: False when some of them still wait."""
        size_max = self._broker.settings.int("transactionOpMsgMaxSize")
        for queue_id in list(self._waiting):
            parts = _parts(self._waiting.pop(queue_id), size_max)
            del self._sizes[queue_id]
            records = [op_record(self._broker, queue_id, part) for part in parts]
            refusals = self._broker.append(records)
            stored = [each for index, each in enumerate(records) if index not in refusals]
            self._broker.stats.messages_put(stored)
            for index, error in refusals.items():
                if not self._failing:
                    self.log.error("ends of half messages cannot be written: {error}",
                                   error=str(error))
                self._failing = True
                self._waiting.setdefault(queue_id, []).extend(parts[index])
                self._sizes[queue_id] = self._sizes.get(queue_id, 0) + len(records[index].body)
        self._failing = self._failing and bool(self._waiting)
        return not self._waiting


def _parts(offsets: Sequence[int], size_max: int) -> list[list[int]]:
    """Split offsets so that each part ends with the one that reaches ``size_max`` bytes."""
    parts: list[list[int]] = [[]]
    size = 0
    for offset in offsets:
        if size >= size_max:
            parts.append([])
            size = 0
        parts[-1].append(offset)
        size += len(str(offset)) + 1
    return parts


class KnownOps:
    """The op messages of one half queue, starting with the first that is not consumed.

    The object outlives a check: an op message that ends a half message which was put back is kept
    until a check has reached the copy.
    """

    log = Logger()

    def __init__(self, broker: Broker, queue_id: int, offset: int) -> None:
        self._store = broker.store
        self._queue_id = queue_id
        #: The first op message that is not consumed, and the next one to read.
        self.offset = offset
        self._next = offset
        #: The op message of each ended half message that the check has not reached yet, and the
        #: number of such half messages of each op message.
        self._ends: dict[int, int] = {}
        self._open: dict[int, int] = {}
        #: Half messages that a check passed before they were ended.
        self.late: set[int] = set()
        #: Op messages that name such half messages; kept until a check reaches this half message.
        self._until: dict[int, tuple[int, list[int]]] = {}
        self._done: set[int] = set()

    @property
    def all_read(self) -> bool:
        return self._next >= self._store.queues.max_offset(OP_HALF_TOPIC, self._queue_id)

    def take(self, half_offset: int) -> bool:
        """Remove a half message from the ended ones; :returns: whether it was ended."""
        op_offset = self._ends.pop(half_offset, None)
        if op_offset is None:
            return False
        self._passed(op_offset)
        return True

    def skip_to(self, half_offset: int) -> None:
        """Drop the half messages before this one, because they no longer exist."""
        for offset in [offset for offset in self._ends if offset < half_offset]:
            self.take(offset)

    def _passed(self, op_offset: int) -> None:
        self._open[op_offset] -= 1
        if not self._open[op_offset]:
            del self._open[op_offset]
            if op_offset not in self._until:
                self._done.add(op_offset)

    def read(self, half_offset: int) -> None:
        """Read the next op messages.

        :param half_offset: the offset of the check, which ignores half messages before it.
        """
        min_offset = self._store.queues.min_offset(OP_HALF_TOPIC, self._queue_id)
        if self._next < min_offset:
            self.log.error("{count} op messages of {topic}-{queue_id} were removed before they "
                           "were read: the half messages that they end are checked again. Reading "
                           "continues at {least}, the beginning, instead of {offset}",
                           count=min_offset - self._next, topic=OP_HALF_TOPIC,
                           queue_id=self._queue_id, least=min_offset, offset=self._next)
            self._next = min_offset
        self.offset = max(self.offset, min_offset)
        entries = self._store.queues.entries(OP_HALF_TOPIC, self._queue_id, self._next, READ_COUNT)
        for log_offset, _, _ in entries:
            data = self._store.look_message(log_offset)
            try:
                if data is None:
                    raise StoreDamaged("it is not in the commit log")
                self._note(self._next, decode_record(data), half_offset)
            except StoreDamaged as error:
                self.log.error("op message {offset} of {topic}-{queue_id}, at {place} of the "
                               "commit log, cannot be read: the half messages that it ends are "
                               "checked again: {error}", offset=self._next, topic=OP_HALF_TOPIC,
                               queue_id=self._queue_id, place=log_offset, error=str(error))
                self._done.add(self._next)
            self._next += 1
        if not entries:
            # There should be entries, but none can be read.
            self._next = self._store.queues.max_offset(OP_HALF_TOPIC, self._queue_id)

    def _note(self, op_offset: int, message: StoredMessage, half_offset: int) -> None:
        tag = message.properties_map().get(TAGS)
        if tag != REMOVE_TAG:
            self.log.error("op message {offset} of queue {queue_id} has the tag {tag}",
                           offset=op_offset, queue_id=self._queue_id, tag=tag)
            self._done.add(op_offset)
            return
        late: list[int] = []
        for text in message.body.split(b","):
            if _OFFSET.fullmatch(text) is None:
                continue
            offset = int(text)
            if offset >= half_offset:
                before = self._ends.get(offset)
                self._ends[offset] = op_offset
                self._open[op_offset] = self._open.get(op_offset, 0) + 1
                if before is not None:
                    self._passed(before)
            else:
                late.append(offset)
        if late:
            self.late.update(late)
            max_offset = self._store.queues.max_offset(HALF_TOPIC, self._queue_id)
            self._until[op_offset] = (max_offset, late)
        elif op_offset not in self._open:
            self._done.add(op_offset)

    def consume(self, half_offset: int) -> int:
        """Drop the op messages that a check no longer needs.

        :param half_offset: the offset that the check has reached.
        :returns: the first op message that is still needed.
        """
        for op_offset, (until, late) in list(self._until.items()):
            if half_offset >= until:
                del self._until[op_offset]
                self.late.difference_update(late)
                if op_offset not in self._open:
                    self._done.add(op_offset)
        while self.offset in self._done:
            self._done.remove(self.offset)
            self.offset += 1
        return self.offset
