"""How far each group has come in each queue.

Source: ConsumerOffsetManager @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.logger import Logger

from twistmq.broker.store.config_file import ConfigFile
from twistmq.broker.store.light_queues import LIGHT_QUEUE_ID
from twistmq.broker.topic_names import is_light
from twistmq.broker.wire.bodies import (
    ConsumerOffsetSerializeWrapper,
    DataVersion,
    LmqConsumerOffsetSerializeWrapper,
)

__all__ = ["ConsumerOffsetTable", "LmqConsumerOffsetTable"]

_SEPARATOR = "@"
#: Commits after which the data version counts one more change.
#: Source: consumerOffsetUpdateVersionStep.
_VERSION_STEP = 500


class ConsumerOffsetTable:
    """Logical offsets by "topic@group" and queue.

    :param file: consumerOffset.json.
    """

    log = Logger()

    def __init__(self, file: ConfigFile, now_ms: Callable[[], int]) -> None:
        self._file = file
        self._now_ms = now_ms
        self.data_version = DataVersion(timestamp=now_ms())
        self.table: dict[str, dict[int, int]] = {}
        #: Where each group's next pull goes; not saved.
        self._pulled: dict[str, dict[int, int]] = {}
        #: Offsets an administrator set, until the group's next pull.
        self._reset: dict[str, dict[int, int]] = {}
        self._commits = 0
        self._dirty = False

    def load(self) -> None:
        """Take over what was saved; :raises StoreDamaged: when it cannot be read."""
        self._file.load(self._decode)

    def _decode(self, text: str) -> None:
        saved = ConsumerOffsetSerializeWrapper.decode_saved(text.encode())
        self.table = saved.offset_table
        if saved.data_version is not None:
            self.data_version.assign(saved.data_version)

    def persist(self) -> None:
        if self._dirty:
            self._file.save(self.wrapper().encode_pretty().decode())
            self._dirty = False

    def wrapper(self) -> ConsumerOffsetSerializeWrapper:
        """All offsets, as the file holds them and a slave or a tool is told them."""
        topics: dict[str, set[str]] = {}
        for key in self.table:
            topic, _, group = key.partition(_SEPARATOR)
            topics.setdefault(group, set()).add(topic)
        return ConsumerOffsetSerializeWrapper(self.table, self.data_version, topics)

    def commit(
        self, client_host: str, group: str, topic: str, queue_id: int, offset: int
    ) -> None:
        """A group has come to ``offset``; one that goes back is logged and taken."""
        queues = self.table.setdefault(topic + _SEPARATOR + group, {})
        old = queues.get(queue_id)
        if old is not None and offset < old:
            self.log.warn("{group} of {peer} goes back in {topic}-{queue_id}: {old} to {offset}",
                          group=group, peer=client_host, topic=topic, queue_id=queue_id, old=old,
                          offset=offset)
        queues[queue_id] = offset
        self._dirty = True
        self._commits += 1
        if self._commits % _VERSION_STEP == 0:
            self.data_version.next_version(self._now_ms())

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """The first offset the group has not consumed; -1 when it never committed one."""
        key = topic + _SEPARATOR + group
        reset = self._reset.get(key, {}).get(queue_id)
        return reset if reset is not None else self.table.get(key, {}).get(queue_id, -1)

    def pulled(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """A pull was answered: the group's next one goes to ``offset``."""
        key = topic + _SEPARATOR + group
        queues = self._pulled.get(key)
        if queues is None:
            queues = self._pulled[key] = {}
        queues[queue_id] = offset

    def query_pulled(self, group: str, topic: str, queue_id: int) -> int:
        """The offset the group's next pull goes to; its consumer offset when it never pulled."""
        offset = self._pulled.get(topic + _SEPARATOR + group, {}).get(queue_id)
        return self.query(group, topic, queue_id) if offset is None else offset

    def topics_of_group(self, group: str) -> set[str]:
        """The topics a group ever consumed."""
        end = _SEPARATOR + group
        return {key[: -len(end)] for key in self.table if key.endswith(end)}

    def groups_of_topic(self, topic: str) -> set[str]:
        """The groups that ever consumed a topic."""
        start = topic + _SEPARATOR
        return {key[len(start):] for key in self.table if key.startswith(start)}

    # --- offsets set by an administrator

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Make the group's next pull of a queue go to ``offset``."""
        key = topic + _SEPARATOR + group
        self._reset.setdefault(key, {})[queue_id] = offset
        self.table.setdefault(key, {})[queue_id] = offset
        self._dirty = True

    def is_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a reset waits for the group's next pull."""
        return queue_id in self._reset.get(topic + _SEPARATOR + group, ())

    def take_reset_offset(self, topic: str, group: str, queue_id: int) -> int | None:
        """The offset a pull must go to, once."""
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
        self._forget(_SEPARATOR + group, str.endswith)

    def clean_topic(self, topic: str) -> None:
        """Forget the offsets in a topic."""
        self._forget(topic + _SEPARATOR, str.startswith)

    def _forget(self, part: str, has: Callable[[str, str], bool]) -> None:
        for table in (self.table, self._reset, self._pulled):
            for key in [key for key in table if has(key, part)]:
                del table[key]
                self._dirty = True


class LmqConsumerOffsetTable(ConsumerOffsetTable):
    """The same under enableLmq: what groups of light queues consumed is kept apart in the file.

    Source: LmqConsumerOffsetManager @5.3.3.

    :param file: lmqConsumerOffset.json.
    :param plain_file: consumerOffset.json, which is read as long as the other is not there.
        Differs from Apache, whose groups begin anew when enableLmq is switched on.
    """

    def __init__(
        self, file: ConfigFile, plain_file: ConfigFile, now_ms: Callable[[], int]
    ) -> None:
        super().__init__(file, now_ms)
        self._plain_file = plain_file

    def load(self) -> None:
        """Take over what was saved; :raises StoreDamaged: when it cannot be read."""
        if not self._file.load(self._decode_all):
            self._plain_file.load(self._decode)

    def _decode_all(self, text: str) -> None:
        self._decode(text)
        saved = LmqConsumerOffsetSerializeWrapper.decode_saved(text.encode())
        for key, offset in saved.lmq_offset_table.items():
            self.table[key] = {LIGHT_QUEUE_ID: offset}

    def wrapper(self) -> LmqConsumerOffsetSerializeWrapper:
        """All offsets; those of groups of light queues apart."""
        light = {key: queues[LIGHT_QUEUE_ID] for key, queues in self.table.items()
                 if is_light(key.partition(_SEPARATOR)[2]) and LIGHT_QUEUE_ID in queues}
        whole = super().wrapper()
        return LmqConsumerOffsetSerializeWrapper(
            {key: queues for key, queues in whole.offset_table.items() if key not in light},
            whole.data_version,
            {group: topics for group, topics in (whole.group_topic_map or {}).items()
             if not is_light(group)},
            light)
