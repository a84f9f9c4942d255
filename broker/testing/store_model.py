"""A model of the expected contents of a store, with which a simulation compares the store.

The model knows the bytes and the offset of every record that was ever given to the store, and which
of the records are in the commit log. ``check`` reads everything by offset, by queue and by key.
``after_restart`` first takes over the remaining part of the log, which must be a part of the sent
records and must contain all acknowledged ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto

from twistmq.broker.store.message_store import MessageStore
from twistmq.protocol.properties import (
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    parse_properties,
)
from twistmq.protocol.record import (
    SYS_TRANSACTION_MASK,
    SYS_TRANSACTION_PREPARED,
    SYS_TRANSACTION_ROLLBACK,
    MessageRecord,
    encode_record,
)

__all__ = ["EndKind", "ModelBroken", "Sent", "StoreModel"]

_FOREVER_MS = 2**62


class ModelBroken(AssertionError):
    """The store broke a guarantee, which the text describes."""


class EndKind(Enum):
    """The ways in which a store ends."""

    STOP = auto()
    KILL = auto()
    POWER_LOSS = auto()


#: A queue: its topic and queue id.
Queue = tuple[str, int]


class Sent:
    """A record that was given to the store."""

    def __init__(self, record: MessageRecord) -> None:
        kind = record.sys_flag & SYS_TRANSACTION_MASK
        self.topic = record.topic
        #: For each queue with an entry for it: its first offset there, and the offset after its
        #: last.
        self.offsets: dict[Queue, tuple[int, int]] = {}
        if kind not in (SYS_TRANSACTION_PREPARED, SYS_TRANSACTION_ROLLBACK):
            first = record.queue_offset
            self.offsets[record.topic, record.queue_id] = first, first + record.message_count
            fields = parse_properties(record.properties)
            if INNER_MULTI_DISPATCH in fields:
                for name, offset in zip(fields[INNER_MULTI_DISPATCH].split(","),
                                        fields[INNER_MULTI_QUEUE_OFFSET].split(","), strict=True):
                    self.offsets[name, 0] = int(offset), int(offset) + 1
        self.keys = [] if kind == SYS_TRANSACTION_ROLLBACK else record.keys
        self.start = record.physical_offset
        self.end = record.next_offset
        self.tags_code = record.tags_code
        self.data = encode_record(record)

    def __repr__(self) -> str:
        return f"{self.topic} {self.offsets} at {self.start}"


def require(holds: bool, *text: object) -> None:
    """Fail with a text unless a condition holds."""
    if not holds:
        raise ModelBroken(" ".join(map(str, text)))


class StoreModel:
    """The records that were given to a store, and the records that it acknowledged.

    :param file_size: bytes of a commit-log file.
    :param keeps_keys: whether the index must also be complete after a crash (messageIndexSafe).
    """

    def __init__(self, file_size: int, keeps_keys: bool) -> None:
        #: The records in the log, in order.
        self.log: list[Sent] = []
        #: Every record that was ever given, by offset and bytes.
        self.given: dict[tuple[int, bytes], Sent] = {}
        #: The end of the records that must survive every fault.
        self.durable_end = 0
        #: The start of the records that must be found by key.
        self.keys_from = 0
        #: Whether a refused record may come back because its bytes were possibly not erased.
        self.may_return = False
        #: The offset at which the log begins.
        self.min_offset = 0
        #: Messages before this offset may be missing, because their files were removed.
        self._removed_to = 0
        #: The offset after the newest removed message of each queue.
        self._removed: dict[Queue, int] = {}
        self._file_size = file_size
        self._keeps_keys = keeps_keys

    # # --- events

    def attempted(self, records: Sequence[MessageRecord]) -> list[Sent]:
        """Handle records that are given to the store and have their offsets."""
        sent = [Sent(record) for record in records]
        self.given.update({(each.start, each.data): each for each in sent})
        return sent

    def appended(self, sent: list[Sent]) -> None:
        """Handle accepted records, which must have the next offsets of their queues."""
        for each in sent:
            for queue, (first, _) in each.offsets.items():
                end = self._end_of(queue)
                require(first == end, each, "does not continue with", end)
            require(not self.log or each.start >= self.log[-1].end, each, "overwrites a message")
            self.log.append(each)

    def promised(self, end: int) -> None:
        """Handle the store's report that the log is durable up to an offset."""
        self.durable_end = max(self.durable_end, end)

    def _end_of(self, queue: Queue) -> int:
        """Return the offset after the newest message of a queue, even a removed one; or 0."""
        ends = (each.offsets[queue][1] for each in reversed(self.log) if queue in each.offsets)
        return next(ends, self._removed.get(queue, 0))

    # --- checks

    def after_restart(self, store: MessageStore, ending: EndKind, cut: Sequence[Sent]) -> None:
        """Take over the contents of a restarted store, if they are allowed.

        :param cut: the records that were being given to the store when it ended.
        """
        before, self.log = self.log, self._walk(store)
        require(
            store.commit_log.min_offset <= self.min_offset, "files are missing that were not "
                                                            "removed")
        self._removed_to = max(self._removed_to, self.min_offset)
        self.min_offset = store.commit_log.min_offset
        recovered = {(each.start, each.data) for each in self.log}
        for each in before:
            if each.start < self.min_offset:
                self._removed.update((queue, end) for queue, (_, end) in each.offsets.items())
            elif ending is not EndKind.POWER_LOSS or each.end <= self.durable_end:
                require((each.start, each.data) in recovered, each, "is lost after", ending.name)
        if ending is not EndKind.POWER_LOSS and not self.may_return:
            allowed = {(each.start, each.data) for each in [*before, *cut]}
            for each in self.log:
                require((each.start, each.data) in allowed, each, "was refused and is there")
        if ending is EndKind.POWER_LOSS:
            # The recovered records were read from the disk.
            self.promised(store.commit_log.max_offset)
        if ending is not EndKind.STOP and not self._keeps_keys:
            self.keys_from = store.commit_log.max_offset
        self._check_offsets()
        self.check(store)

    def _walk(self, store: MessageStore) -> list[Sent]:
        """Read the log record by record; each record must have been given to the store."""
        records: list[Sent] = []
        log_offset = store.commit_log.min_offset
        while log_offset < store.commit_log.max_offset:
            data = store.look_message(log_offset)
            if data is None:
                following = log_offset - log_offset % self._file_size + self._file_size
                require(following <= store.commit_log.max_offset, "nothing at", log_offset,
                        "in the log")
                log_offset = following
                continue
            sent = self.given.get((log_offset, data))
            if sent is None:
                raise ModelBroken(f"what is at {log_offset} was never sent: {data!r}")
            records.append(sent)
            log_offset = sent.end
        return records

    def _check_offsets(self) -> None:
        """Check that queue offsets have neither gaps nor duplicates."""
        ends: dict[Queue, int] = {}
        for each in self.log:
            for queue, (first, end) in each.offsets.items():
                require(first == ends.get(queue, first), each, "should be", ends.get(queue))
                require(self.min_offset > 0 or queue in ends or not first,
                        each, "is the first of", queue)
                ends[queue] = end

    def check(self, store: MessageStore) -> None:
        """Compare everything that can be read by queue and by key."""
        queues: dict[Queue, list[Sent]] = {}
        keys: dict[tuple[str, str], list[Sent]] = {}
        for each in self.log:
            if each.start < store.commit_log.min_offset:
                continue
            for queue in each.offsets:
                queues.setdefault(queue, []).append(each)
            for key in each.keys:
                keys.setdefault((each.topic, key), []).append(each)
        for topic, ids in store.queues.ids_by_topic().items():
            for queue_id in ids:
                queues.setdefault((topic, queue_id), [])
        for (topic, queue_id), expected in queues.items():
            self._check_queue(store, topic, queue_id, expected)
        for (topic, key), sent in keys.items():
            messages = store.reader.query(topic, key, 64, 0, _FOREVER_MS)[0]
            sent_messages = [each.data for each in sent]
            require(all(each in sent_messages for each in messages), "key", key,
                    "finds messages that it should not")
            for each in sent:
                if each.start >= max(self.keys_from, self._removed_to):
                    require(each.data in messages, each, "is not found by key", key)

    def _check_queue(
        self, store: MessageStore, topic: str, queue_id: int, expected: list[Sent]
    ) -> None:
        """Read a queue from its first message."""
        messages: list[bytes] = []
        offset = store.queues.min_offset(topic, queue_id)
        while offset < store.queues.max_offset(topic, queue_id):
            result = store.get_message(topic, queue_id, offset, 32)
            messages += result.messages
            if result.next_begin_offset <= offset:
                break
            offset = result.next_begin_offset
        while len(messages) < len(expected) and expected[0].start < self._removed_to:
            expected = expected[1:]
        require(messages == [each.data for each in expected],
                f"{topic}-{queue_id} has {len(messages)} messages, not {expected}")
        for each in expected:
            entries = store.queues.entries(topic, queue_id, each.offsets[topic, queue_id][0], 1)
            expected_entry = (each.start, len(each.data), each.tags_code)
            require(entries == [expected_entry], each,
                    "does not match the entry in its queue:", entries)
        if expected:
            end = expected[-1].offsets[topic, queue_id][1]
            require(store.queues.max_offset(topic, queue_id) == end,
                    f"{topic}-{queue_id} continues after", expected[-1])
