"""A message store for tests, on any disk, with a clock that the test controls.

    box = StoreBox().open()
    box.append(message("T", b"body", keys="k1"))
    again = box.after_kill()

The files are small, so that a few messages of a test are enough to fill a log file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from twisted.internet.defer import Deferred, execute

from twistmq.broker.store.interfaces import IStoreIO
from twistmq.broker.store.message_store import MessageStore, StoreSettings
from twistmq.broker.store.stored_records import TagsCode
from twistmq.broker.testing.disk import MemoryDisk
from twistmq.protocol.batch import encode_batch
from twistmq.protocol.properties import INNER_NUM, format_properties, index_keys, tags_code
from twistmq.protocol.record import (
    SYS_INNER_BATCH,
    SYS_NEED_UNWRAP,
    MessageRecord,
    decode_record,
    host_bytes,
)

__all__ = ["StoreBox", "inner_batch", "message", "small_settings"]

_HOST = host_bytes("127.0.0.1", 10911)


def message(
    topic: str = "TopicTest",
    body: bytes = b"hello",
    queue_id: int = 0,
    tag: str = "",
    keys: str = "",
    unique_key: str = "",
    **fields: Any,
) -> MessageRecord:
    """Make a record from a message, as a broker does.

    :param keys: keys separated by blanks.
    :param fields: further fields of MessageRecord.
    """
    fixed_properties = {"UNIQ_KEY": unique_key, "TAGS": tag, "KEYS": keys}
    properties = {name: value for name, value in fixed_properties.items() if value}
    fields.setdefault("properties", format_properties(properties))
    return MessageRecord(
        topic=topic,
        queue_id=queue_id,
        body=body,
        born_timestamp=fields.pop("born_timestamp", 1),
        born_host=fields.pop("born_host", _HOST),
        store_host=fields.pop("store_host", _HOST),
        keys=index_keys(properties),
        tags_code=tags_code(tag),
        **fields,
    )


def inner_batch(
    topic: str, bodies: Sequence[bytes], queue_id: int = 0, **fields: Any
) -> MessageRecord:
    """Make the record of a batch for a batch queue."""
    return message(
        topic, encode_batch([(0, body, "") for body in bodies]), queue_id,
        sys_flag=SYS_NEED_UNWRAP | SYS_INNER_BATCH, message_count=len(bodies),
        properties=format_properties({INNER_NUM: str(len(bodies))}), **fields)


def small_settings(root: str = "/store", **changes: Any) -> StoreSettings:
    """Make settings with files of a few kilobytes."""
    values: dict[str, Any] = {
        "store_path_root_dir": root,
        "mapped_file_size_commit_log": 64 * 1024,
        "mapped_file_size_consume_queue": 400,
        "mapper_file_size_batch_consume_queue": 46 * 5,
        "max_hash_slot_num": 50,
        "max_index_num": 200,
        **changes,
    }
    return StoreSettings(**values)


class StoreBox:
    """A running store, its disk and its clock.

    :param changes: the settings that differ from ``small_settings``.
    """

    def __init__(
        self, disk: IStoreIO | None = None, settings: StoreSettings | None = None, **changes: Any
    ) -> None:
        self.disk = disk or MemoryDisk()
        self.settings = settings or small_settings(**changes)
        self.now_ms = 1_700_000_000_000
        #: Topics whose queues are batch queues.
        self.batch_topics: set[str] = set()
        #: Functions by topic that return the number in a record's queue entry, for topics that do
        #: not use the hash of the tag.
        self.tags_codes: Mapping[str, TagsCode] = {}
        #: Runs the work for threads, here at once; replace it to hold work back.
        self.in_thread: Callable[[Callable[[], None]], Deferred[None]] = execute
        if isinstance(self.disk, MemoryDisk):
            self.disk.now_ms = lambda: self.now_ms
        self.store = self._make()

    def _make(self) -> MessageStore:
        return MessageStore(
            self.settings, self.disk, lambda: self.now_ms, lambda job: self.in_thread(job)
        )

    def is_batch_topic(self, topic: str) -> bool | None:
        """Return whether a topic has batch queues; replace it to make topics unknown."""
        return topic in self.batch_topics

    def load(self) -> None:
        """Load the store.

        :raises StoreError: when the store cannot be loaded.
        """
        self.store.load(lambda topic: self.is_batch_topic(topic), self.tags_codes)

    def open(self) -> Self:
        """Load and start the store."""
        self.load()
        self.store.start()
        return self

    def append(self, *records: MessageRecord) -> list[MessageRecord]:
        """Append records in one call."""
        self.store.append(records)
        return list(records)

    def bodies(self, topic: str = "TopicTest", queue_id: int = 0) -> list[bytes]:
        """Read the bodies of all messages of a queue, from its first readable message."""
        bodies: list[bytes] = []
        offset = self.store.queues.min_offset(topic, queue_id)
        while offset < self.store.queues.max_offset(topic, queue_id):
            result = self.store.get_message(topic, queue_id, offset, 32)
            bodies += [decode_record(record).body for record in result.messages]
            if result.next_begin_offset == offset:
                break
            offset = result.next_begin_offset
        return bodies

    def step(self, elapsed_ms: int = 0, count: int = 1) -> None:
        """Move the clock and let the store do its due work, ``count`` times."""
        for _ in range(count):
            self.now_ms += elapsed_ms
            self.store.flush_step(self.now_ms)

    def after_kill(self, **changes: Any) -> Self:
        """Abandon the store as a killed process does, and open another one over its files."""
        self.store.close()
        return self._again(**changes).open()

    def after_stop(self, **changes: Any) -> Self:
        """Stop the store cleanly, and open another one over its files."""
        stopped = self.store.stop()
        assert stopped.called, "work was held back"
        return self._again(**changes).open()

    def _again(self, **changes: Any) -> Self:
        box = type(self)(self.disk, dataclasses.replace(self.settings, **changes))
        box.now_ms = self.now_ms
        box.batch_topics = self.batch_topics
        return box
