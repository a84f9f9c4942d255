"""Consumer offsets: the next offset of each consumer group in each queue.

Clients commit offsets all the time, and a broker may keep hundreds of thousands of them, but the
file contains all of them as text. A commit therefore only changes the table in memory and marks its
row. The table is saved periodically, and only the changed rows are encoded again (see
``persisted_table``). After a crash, groups repeat the messages of the offsets that were not saved.
Clients may commit any offset for any group, so the size of the table is limited.

Source: ConsumerOffsetManager @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Final

from twisted.logger import Logger

from twistmq.broker.constants import OFFSETS_BYTES_MAX
from twistmq.broker.request.persisted_table import FileRows, SavedTable, Saving
from twistmq.broker.store.config_file import ConfigFile
from twistmq.broker.store.light_queues import LIGHT_QUEUE_ID
from twistmq.protocol.bodies import (
    ConsumerOffsetSerializeWrapper,
    DataVersion,
    LmqConsumerOffsetSerializeWrapper,
)
from twistmq.protocol.bodies.rows import encode_with_rows, map_row
from twistmq.protocol.errors import WireError
from twistmq.protocol.json_writer import encode_pretty_row
from twistmq.protocol.log_rate import LineRate
from twistmq.protocol.run_to_completion import run_to_completion
from twistmq.protocol.topic_names import is_light

__all__ = ["ConsumerOffsetTable", "LmqConsumerOffsetTable"]

_SEPARATOR = "@"
#: The number of commits after which the data version is incremented.
#: Source: consumerOffsetUpdateVersionStep.
_VERSION_STEP = 500
#: The number of keys that are processed between two checks of the clock.
_KEYS_AT_ONCE = 500
#: The size of a pair of topic and group without its name, which is stored twice (in a dictionary
#: and in a row of the file), and the size of one of its queues; bytes, as measured.
_KEY_BYTES: Final = 450
_QUEUE_BYTES: Final = 120


def _check(table: Mapping[str, Mapping[int, int]]) -> None:
    """:raises WireError: when a queue id or an offset is out of range."""
    for key, queues in table.items():
        for queue_id, offset in queues.items():
            if not -(2**31) <= queue_id < 2**31 or not -(2**63) <= offset < 2**63:
                raise WireError(f"{key} has offset {offset} in queue {queue_id}")


def _size(key: str, queues: Mapping[int, int]) -> int:
    """Estimate the size of the offsets of a group in a topic, bytes."""
    return _KEY_BYTES + 2 * len(key) + _QUEUE_BYTES * len(queues)


class ConsumerOffsetTable(SavedTable):
    """Logical offsets by "topic@group" and queue.

    :param file: consumerOffset.json.
    """

    log = Logger()

    def __init__(self, file: ConfigFile, now_ms: Callable[[], int]) -> None:
        super().__init__(file)
        self._now_ms = now_ms
        self.data_version = DataVersion(timestamp=now_ms())
        self.table: dict[str, dict[int, int]] = {}
        #: The offset at which each group's next pull starts; not saved.
        self._pulled: dict[str, dict[int, int]] = {}
        #: The offsets that an administrator set, kept until the group's next pull.
        self._reset: dict[str, dict[int, int]] = {}
        self._commits = 0
        #: The approximate size of the offsets, bytes.
        self.size_bytes = 0
        self._back_lines = LineRate()
        self._file_rows = FileRows(self._file_row)
        #: The topics of each group, as in the file; None if keys were added since.
        self._topic_rows: list[bytes] | None = None

    def load(self) -> None:
        """Read the saved offsets; :raises StoreDamaged: when the file cannot be read."""
        self._file.load_rows(ConsumerOffsetSerializeWrapper, self._take_saved)

    def _take_saved(self, saved: ConsumerOffsetSerializeWrapper, data: bytes) -> None:
        self.table = saved.offset_table
        self._file_rows.loaded(data, "offsetTable", self.table)
        self._measure()
        if saved.data_version is not None:
            self.data_version.assign(saved.data_version)

    def _measure(self) -> None:
        self.size_bytes = sum(map(_size, self.table, self.table.values()))

    def persist(self) -> None:
        """See SavedTable. A broker without offsets does not have a file."""
        if self.dirty:
            super().persist()

    def saving(self) -> Saving:
        """See SavedTable."""
        while True:
            yield from self._file_rows.write()
            if self._topic_rows is not None:
                break
            self._topic_rows = []
            yield from self._write_topic_rows(self._topic_rows)
        frame, maps = self._file_parts()
        return self._job(frame, maps)

    def _file_parts(self) -> tuple[ConsumerOffsetSerializeWrapper, dict[str, list[bytes]]]:
        """Return the content of the file: a body with empty maps, and the rows of these maps."""
        frame = ConsumerOffsetSerializeWrapper({}, self.data_version, {})
        return frame, {"offsetTable": self._file_rows.rows(),
                       "groupTopicMap": self._topic_rows or []}

    def _file_row(self, key: str) -> bytes | None:
        queues = self.table.get(key)
        return None if queues is None else encode_pretty_row(key, queues)

    def _write_topic_rows(self, rows: list[bytes]) -> Iterator[None]:
        """Write the topics of each group. If keys are added in between, they are written again."""
        topics: dict[str, set[str]] = {}
        for number, key in enumerate(list(self.table)):
            topic, _, group = key.partition(_SEPARATOR)
            if self._is_of_map(group):
                topics.setdefault(group, set()).add(topic)
            if not number % _KEYS_AT_ONCE:
                yield
        for group, of_group in topics.items():
            rows.append(encode_pretty_row(group, of_group))
            yield

    def _is_of_map(self, group: str) -> bool:
        """Whether the file lists the topics of a group."""
        return True

    def wrapper(self) -> ConsumerOffsetSerializeWrapper:
        """Return all offsets, as in the file and in the replies to slaves and tools."""
        return ConsumerOffsetSerializeWrapper(
            self.table, self.data_version, self.topics_by_group())

    def encoding(self) -> Generator[None, None, bytes]:
        """Encode all offsets for a reply, in steps."""
        wrapper = self.wrapper()
        rows = []
        for key, queues in list(wrapper.offset_table.items()):
            rows.append(map_row(key, queues))
            yield
        wrapper.offset_table = {}
        return encode_with_rows(wrapper, b'"offsetTable":{}', rows)

    def commit(
        self, client_host: str, group: str, topic: str, queue_id: int, offset: int
    ) -> None:
        """Store the offset of a group. An offset below the old one is stored and logged."""
        key = topic + _SEPARATOR + group
        queues = self.table.get(key)
        if queues is None:
            queues = self._new_key(key)
        old = queues.get(queue_id)
        if old is None:
            self.size_bytes += _QUEUE_BYTES
        elif offset < old:
            left_out = self._back_lines.left_out(self._now_ms())
            if left_out is not None:
                self.log.warn(
                    "{group} at {peer} moved its offset of {topic}-{queue_id} back from {old} to "
                    "{offset} ({left_out} such lines were left out before)",
                    group=group, peer=client_host, topic=topic, queue_id=queue_id, old=old,
                    offset=offset, left_out=left_out)
        queues[queue_id] = offset
        self._file_rows.changed(key)
        self.dirty = True
        self._commits += 1
        if self._commits % _VERSION_STEP == 0:
            self.data_version.next_version(self._now_ms())

    def merging(
        self, table: Mapping[str, Mapping[int, int]], *, larger_wins: bool
    ) -> Generator[None, None, int]:
        """Take over the offsets of another broker; offsets that it does not have are kept.

        Yields between the steps. It does not change the data version: see :meth:`take_version`.

        :param table: offsets by "topic@group" and queue.
        :param larger_wins: whether an offset below the existing one is skipped, so that no consumer
            moves back.
        :returns: the number of offsets taken over.
        :raises WireError: when a value cannot be an offset; nothing is changed then.
        """
        _check(table)
        merged_count = 0
        for number, (key, offsets) in enumerate(table.items()):
            if number % _KEYS_AT_ONCE == 0:
                yield
            queues = self.table.get(key, {})
            newer = {queue_id: offset for queue_id, offset in offsets.items()
                     if offset != (old := queues.get(queue_id, -1))
                     and not (larger_wins and offset < old)}
            if not newer:
                continue
            if key not in self.table:
                queues = self._new_key(key)
            before = len(queues)
            queues.update(newer)
            self.size_bytes += (len(queues) - before) * _QUEUE_BYTES
            self._file_rows.changed(key)
            self.dirty = True
            merged_count += len(newer)
        return merged_count

    def take_version(self, version: DataVersion) -> None:
        """Adopt the data version of the table that was merged into this one."""
        if self.data_version != version:
            self.data_version.assign(version)
            self.dirty = True

    def has_room(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a client may commit an offset: one exists already, or there is room for it."""
        return self.size_bytes < OFFSETS_BYTES_MAX or queue_id in self.table.get(
            topic + _SEPARATOR + group, ())

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Return the offset that a group has committed, or -1 if it has not committed any."""
        key = topic + _SEPARATOR + group
        reset = self._reset.get(key, {}).get(queue_id)
        return reset if reset is not None else self.table.get(key, {}).get(queue_id, -1)

    def pulled(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Record that a pull was answered, and that the group's next one starts at ``offset``."""
        key = topic + _SEPARATOR + group
        queues = self._pulled.get(key)
        if queues is None:
            queues = self._pulled[key] = {}
        queues[queue_id] = offset

    def query_pulled(self, group: str, topic: str, queue_id: int) -> int:
        """Return the start of the group's next pull, or its consumer offset if it never pulled."""
        offset = self._pulled.get(topic + _SEPARATOR + group, {}).get(queue_id)
        return self.query(group, topic, queue_id) if offset is None else offset

    def progress_in(
        self, group: str, topic: str
    ) -> tuple[Mapping[int, int], Mapping[int, int]]:
        """Return a group's offsets in a topic, as :meth:`query` and :meth:`query_pulled` do.

        :returns: the committed offsets by queue, and the start of the next pull of each queue from
            which the group has pulled; they may change later.
        """
        key = topic + _SEPARATOR + group
        committed = self.table.get(key, {})
        reset = self._reset.get(key)
        return committed | reset if reset else committed, self._pulled.get(key, {})

    def last_pulls(self) -> Iterator[tuple[str, str, dict[int, int]]]:
        """Yield topic, group, and next pull offsets by queue, for all pulls since the start."""
        for key, queues in list(self._pulled.items()):
            topic, _, group = key.partition(_SEPARATOR)
            yield topic, group, queues

    def topics_of_group(self, group: str) -> set[str]:
        """Return the topics that a group ever consumed."""
        end = _SEPARATOR + group
        return {key[: -len(end)] for key in self.table if key.endswith(end)}

    def topics_by_group(self) -> dict[str, set[str]]:
        """Return the topics that each group ever consumed."""
        return run_to_completion(self.reading_topics())

    def reading_topics(self) -> Generator[None, None, dict[str, set[str]]]:
        """Find the topics that a group reads, in steps, because it may take long."""
        topics: dict[str, set[str]] = {}
        for number, key in enumerate(list(self.table)):
            topic, _, group = key.partition(_SEPARATOR)
            topics.setdefault(group, set()).add(topic)
            if not number % _KEYS_AT_ONCE:
                yield
        return topics

    def groups_of_topic(self, topic: str) -> set[str]:
        """Return the groups that ever consumed a topic."""
        start = topic + _SEPARATOR
        return {key[len(start):] for key in self.table if key.startswith(start)}

    def offsets_in(self, group: str, topic: str) -> dict[int, int]:
        """Return the offsets of a group in all queues of a topic that it ever consumed."""
        return dict(self.table.get(topic + _SEPARATOR + group, {}))

    # --- offsets set by an administrator

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Make the group's next pull of a queue start at ``offset``."""
        key = topic + _SEPARATOR + group
        self._reset.setdefault(key, {})[queue_id] = offset
        queues = self.table.get(key)
        if queues is None:
            queues = self._new_key(key)
        if queue_id not in queues:
            self.size_bytes += _QUEUE_BYTES
        queues[queue_id] = offset
        self._file_rows.changed(key)
        self.dirty = True

    def clone(self, source: str, group: str, topic: str) -> bool:
        """Copy a group's offsets in a topic to another group; :returns: whether there were any."""
        offsets = self.offsets_in(source, topic)
        if not offsets or source == group:
            return False
        key = topic + _SEPARATOR + group
        old = self.table.get(key)
        if old is not None:
            self.size_bytes -= _size(key, old)
        self._new_key(key).update(offsets)
        self.size_bytes += len(offsets) * _QUEUE_BYTES
        self._file_rows.changed(key)
        self.dirty = True
        return True

    def _new_key(self, key: str) -> dict[int, int]:
        queues = self.table[key] = {}
        self.size_bytes += _size(key, queues)
        self._topic_rows = None
        return queues

    def is_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a reset offset waits for the group's next pull."""
        return queue_id in self._reset.get(topic + _SEPARATOR + group, ())

    def take_reset_offset(self, topic: str, group: str, queue_id: int) -> int | None:
        """Return, once, the offset at which a pull must start."""
        if not self._reset:
            return None
        key = topic + _SEPARATOR + group
        queues = self._reset.get(key)
        if queues is None:
            return None
        offset = queues.pop(queue_id, None)
        if not queues:
            del self._reset[key]
        return offset

    # --- deletion

    def clean_group(self, group: str) -> None:
        """Forget the offsets of a group."""
        end = _SEPARATOR + group
        self._forget(lambda key: key.endswith(end))

    def clean_topics(self, topics: Iterable[str]) -> None:
        """Forget the offsets in the given topics."""
        cleaned_topics = frozenset(topics)
        self._forget(lambda key: key.partition(_SEPARATOR)[0] in cleaned_topics)

    def _forget(self, is_gone: Callable[[str], bool]) -> None:
        for table in (self.table, self._reset, self._pulled):
            for key in list(filter(is_gone, table)):
                queues = table.pop(key)
                if table is self.table:
                    self.size_bytes -= _size(key, queues)
                self._file_rows.changed(key)
                self._topic_rows = None
                self.dirty = True


class LmqConsumerOffsetTable(ConsumerOffsetTable):
    """The table under enableLmq, whose file stores the offsets of light queues separately.

    Source: LmqConsumerOffsetManager @5.3.3.

    :param file: lmqConsumerOffset.json.
    :param plain_file: consumerOffset.json, which is read as long as the other file does not exist.
        Differs from Apache, whose groups start again when enableLmq is switched on.
    """

    def __init__(
        self, file: ConfigFile, plain_file: ConfigFile, now_ms: Callable[[], int]
    ) -> None:
        super().__init__(file, now_ms)
        self._plain_file = plain_file

    def load(self) -> None:
        """Read the saved offsets; :raises StoreDamaged: when the file cannot be read."""
        if not self._file.load_rows(LmqConsumerOffsetSerializeWrapper, self._take_all):
            self._plain_file.load_rows(ConsumerOffsetSerializeWrapper, self._take_saved)

    def _take_all(self, saved: LmqConsumerOffsetSerializeWrapper, data: bytes) -> None:
        self._take_saved(saved, data)
        for key, offset in saved.lmq_offset_table.items():
            self.table[key] = {LIGHT_QUEUE_ID: offset}
            self._file_rows.changed(key)
        self._measure()

    def _is_of_map(self, group: str) -> bool:
        return not is_light(group)

    def _file_parts(self) -> tuple[ConsumerOffsetSerializeWrapper, dict[str, list[bytes]]]:
        light = self._light_keys()
        _, maps = super()._file_parts()
        maps["offsetTable"] = self._file_rows.rows(but=light)
        maps["lmqOffsetTable"] = [encode_pretty_row(key, offset) for key, offset in light.items()]
        return LmqConsumerOffsetSerializeWrapper({}, self.data_version, {}, {}), maps

    def _light_keys(self) -> dict[str, int]:
        """Return the offsets of groups in light queues."""
        return {key: queues[LIGHT_QUEUE_ID] for key, queues in self.table.items()
                if is_light(key.partition(_SEPARATOR)[2]) and LIGHT_QUEUE_ID in queues}

    def wrapper(self) -> LmqConsumerOffsetSerializeWrapper:
        """Return all offsets, with the offsets of groups in light queues in a separate map."""
        light = self._light_keys()
        whole = super().wrapper()
        return LmqConsumerOffsetSerializeWrapper(
            {key: queues for key, queues in whole.offset_table.items() if key not in light},
            whole.data_version,
            {group: topics for group, topics in (whole.group_topic_map or {}).items()
             if not is_light(group)},
            light)
