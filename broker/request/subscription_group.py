"""The consumer groups of a broker: table, file, creation on demand, forbidden topics.

Source: SubscriptionGroupManager @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Final

from msgspec.structs import replace
from twisted.logger import Logger

from twistmq.broker.config.settings import Settings
from twistmq.broker.constants import GROUP_ROWS_KEPT, GROUP_ROWS_SIZE_MAX
from twistmq.broker.request.attributes import GROUP_ATTRIBUTES, alter_attributes
from twistmq.broker.request.persisted_table import FileRows, SavedTable, Saving
from twistmq.broker.store.config_file import ConfigFile
from twistmq.protocol.bodies import (
    DataVersion,
    GroupRetryPolicy,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from twistmq.protocol.bodies.rows import map_row
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.errors import RequestRefused, WireError
from twistmq.protocol.json_writer import encode_pretty_row
from twistmq.protocol.log_rate import EVENTS_A_MINUTE, LimitedLog, LineRate
from twistmq.protocol.topic_names import (
    GROUP_LENGTH_MAX,
    SYSTEM_GROUPS,
    group_fault,
    is_light,
    is_system_group,
)

__all__ = ["SubscriptionGroupTable", "row_size"]

#: The size of the row of a plain group without its name, which the row contains twice; bytes.
_ROW_SIZE: Final = 380
#: The size of a mask without the names.
_MASK_SIZE: Final = 20
#: The default retry policy of a group.
_POLICY: Final = GroupRetryPolicy()
#: The number of another broker's groups that are compared between two checks of the clock.
_ROWS_AT_ONCE: Final = 100


def _has_room(group: str) -> bool:
    """The default of ``has_room_for_topics``: there is always room."""
    return True


class SubscriptionGroupTable(SavedTable):
    """Groups by name.

    :param file: subscriptionGroup.json.
    :param has_room_for_topics: returns whether there is room for the topics of a new group.
    """

    log = Logger()

    def __init__(
        self, settings: Settings, file: ConfigFile, now_ms: Callable[[], int],
        has_room_for_topics: Callable[[str], bool] = _has_room,
    ) -> None:
        super().__init__(file)
        self._now_ms = now_ms
        self._light = settings.flag("enableLmq")
        self._settings = settings
        self.data_version = DataVersion(timestamp=now_ms())
        self.table: dict[str, SubscriptionGroupConfig] = {
            group: SubscriptionGroupConfig(group) for group in sorted(SYSTEM_GROUPS)}
        #: Masks of forbidden operations by group and topic.
        self.forbidden: dict[str, dict[str, int]] = {}
        #: The rows of these masks in the file. They belong to the thread that saves.
        self._forbidden_rows: dict[str, bytes] = {}
        #: Groups with outdated rows.
        self._forbidden_changed: set[str] = set()
        #: The row of each group in a reply to a tool, once it was asked for.
        self._reply_rows: dict[str, bytes] = {}
        #: The approximate size of the groups in a reply to a tool, bytes.
        self.rows_size = 0
        self.has_room_for_topics = has_room_for_topics
        self._created_lines = LineRate(EVENTS_A_MINUTE)
        self._full_lines = LineRate()
        self._lines = LimitedLog(self.log)
        self._file_rows = FileRows(self._file_row)
        for group in self.table:
            self._file_rows.changed(group)
        self._measure_rows()

    def _measure_rows(self) -> None:
        self.rows_size = sum(map(row_size, self.table.values())) + sum(
            _forbidden_size(group, topic)
            for group, topics in self.forbidden.items() for topic in topics)

    def _file_row(self, group: str) -> bytes | None:
        config = self.table.get(group)
        return None if config is None else encode_pretty_row(group, config)

    def load(self) -> None:
        """Read the saved groups; :raises StoreDamaged: when the file cannot be read."""
        self._file.load(self._decode)

    def _decode(self, text: str) -> None:
        data = text.encode()
        saved = SubscriptionGroupWrapper.decode_saved(data)
        self.table.update(saved.subscription_group_table)
        self._reply_rows.clear()
        self._file_rows.loaded(data, "subscriptionGroupTable", saved.subscription_group_table)
        self.forbidden = saved.forbidden_table or {}
        self._forbidden_changed.update(self.forbidden)
        self.data_version.assign(saved.data_version)
        self._measure_rows()

    def saving(self) -> Saving:
        """See SavedTable."""
        yield from self._file_rows.write()
        changed, self._forbidden_changed = self._forbidden_changed, set()
        unsaved = {group: dict(topics) for group, topics in self.forbidden.items()
                   if group in changed}
        unsaved.update((group, {}) for group in changed if group not in self.forbidden)
        maps = {"subscriptionGroupTable": self._file_rows.rows()}
        job = self._job(SubscriptionGroupWrapper({}, self.data_version, {}), maps)

        def save() -> None:
            # A group may have masks for thousands of topics, so the thread writes its row.
            for group, topics in unsaved.items():
                if topics:
                    self._forbidden_rows[group] = encode_pretty_row(group, topics)
                else:
                    self._forbidden_rows.pop(group, None)
            maps["forbiddenTable"] = list(self._forbidden_rows.values())
            job()

        return save

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """Find a group; create it if it does not exist, the settings allow it and there is room.

        Differs from Apache: a blank name creates no group.
        """
        config = self.table.get(group)
        if config is not None:
            return config
        if self._is_light(group):
            return SubscriptionGroupConfig(group)
        if not self._may_be_made(group):
            return None
        config = SubscriptionGroupConfig(group)
        if not self._has_room(config, GROUP_ROWS_KEPT):
            return None
        if not (is_system_group(group) or self.has_room_for_topics(group)):
            self._log_full("topics")
            return None
        left_out = self._created_lines.left_out(self._now_ms())
        if left_out is not None:
            self.log.info("group {group} created ({left_out} such lines were left out before)"
                          if left_out else "group {group} created", group=group, left_out=left_out)
        self._enter(config)
        return config

    def _may_be_made(self, group: str) -> bool:
        """Whether a group may be created on demand."""
        is_allowed = self._settings.flag("autoCreateSubscriptionGroup") or is_system_group(group)
        return is_allowed and group_fault(group) is None

    def _has_room(self, config: SubscriptionGroupConfig, kept: int = 0) -> bool:
        """Whether all groups, and ``kept`` further bytes, still fit into a tool's reply."""
        old = self.table.get(config.group_name)
        return self._fits(row_size(config) - (row_size(old) if old is not None else 0), kept)

    def _fits(self, growth: int, kept: int = 0) -> bool:
        """Whether ``growth`` more bytes, and ``kept`` on top, still fit into a tool's reply."""
        if growth <= 0 or self.rows_size + growth <= GROUP_ROWS_SIZE_MAX - kept:
            return True
        self._log_full("groups")
        return False

    def _log_full(self, what: str) -> None:
        left_out = self._full_lines.left_out(self._now_ms())
        if left_out is not None:
            self.log.warn("no room for more groups than {count}: the table of {what} is full "
                          "({left_out} such lines were left out before)",
                          count=len(self.table), what=what, left_out=left_out)

    def has(self, group: str) -> bool:
        """Whether a group exists; a group of light queues always does."""
        return group in self.table or self._is_light(group)

    def _is_light(self, group: str) -> bool:
        """Whether it is a group of light queues, which exists without an entry in the table."""
        return self._light and is_light(group) and len(group) <= GROUP_LENGTH_MAX

    def update(
        self, config: SubscriptionGroupConfig, attribute_changes: Mapping[str, str]
    ) -> None:
        """Create or replace a group.

        :raises RequestRefused: when an attribute change is not allowed, or there is no room for
            another group; nothing is changed then.
        """
        if self._is_light(config.group_name):
            return
        old = self.table.get(config.group_name)
        config.attributes = alter_attributes(
            old is None, GROUP_ATTRIBUTES, old.attributes if old else {}, attribute_changes)
        if not self._has_room(config):
            raise self._full()
        self._lines.info(self._now_ms(), "group {config} replaces {old}", config=config, old=old)
        self._enter(config)

    def disable_consume(self, group: str) -> bool:
        """Stop the delivery of messages to a group; :returns: whether it was enabled before."""
        config = self.table.get(group)
        if config is None or not config.consume_enable:
            return False
        self._enter(replace(config, consume_enable=False))
        return True

    def _full(self) -> RequestRefused:
        return RequestRefused(
            ResponseCode.SYSTEM_ERROR,
            f"the broker has {len(self.table)} groups, about {self.rows_size} bytes in a "
            f"tool's reply; with another group they would exceed {GROUP_ROWS_SIZE_MAX}")

    def _enter(self, config: SubscriptionGroupConfig) -> None:
        """Enter a new or changed group."""
        old = self.table.get(config.group_name)
        self.rows_size += row_size(config) - (row_size(old) if old is not None else 0)
        self.table[config.group_name] = config
        self._changed(config.group_name)

    def delete(self, group: str) -> bool:
        """Forget a group and its masks; :returns: whether it existed."""
        topics = self.forbidden.pop(group, None)
        if topics is not None:
            self.rows_size -= sum(_forbidden_size(group, topic) for topic in topics)
            self._forbidden_changed.add(group)
            self.dirty = True
        config = self.table.pop(group, None)
        if config is None:
            return False
        self.rows_size -= row_size(config)
        self._changed(group)
        return True

    def replacing(
        self, groups: Mapping[str, SubscriptionGroupConfig],
        forbidden: Mapping[str, Mapping[str, int]] | None,
    ) -> Generator[None, None, list[str]]:
        """Take over the groups of another broker's table; yields in between.

        Only groups that differ are changed. System groups are kept, whether or not the other broker
        has them.

        :param forbidden: masks by group and topic; None from an older broker, which does not send
            any.
        :returns: groups that the other broker does not have: the caller deletes them before
            :meth:`take_version`.
        :raises WireError: when a group is not valid; nothing is changed then.
        """
        for name, config in groups.items():
            if name != config.group_name or not name:
                raise WireError(f"there cannot be a group {name!r} that is {config}")
        for number, (name, config) in enumerate(groups.items()):
            if number % _ROWS_AT_ONCE == 0:
                yield
            if self.table.get(name) != config:
                self._enter(config)
        if forbidden is not None and forbidden != self.forbidden:
            self._forbidden_changed.update(self.forbidden, forbidden)
            self.forbidden = {group: dict(topics) for group, topics in forbidden.items() if topics}
            self._measure_rows()
            self.dirty = True
        return [name for name in self.table if name not in groups and not is_system_group(name)]

    def take_version(self, version: DataVersion) -> None:
        """Adopt the data version of the table that this one was made equal to."""
        if self.data_version != version:
            self.data_version.assign(version)
            self.dirty = True

    def is_forbidden(self, group: str, topic: str, index: int) -> bool:
        """Whether bit ``index`` of the group's mask for the topic is set."""
        mask = self.forbidden.get(group, {}).get(topic, 0)
        return bool(mask >> index & 1)

    def forbid(self, group: str, topic: str, index: int, *, forbidden: bool) -> None:
        """Set or clear bit ``index`` of the group's mask for a topic.

        Differs from Apache: clearing the last bit of one mask does not remove the other masks.

        :raises RequestRefused: when there is no room for another mask.
        """
        old = self.forbidden.get(group, {}).get(topic, 0)
        mask = old | 1 << index if forbidden else old & ~(1 << index)
        if mask == old:
            return
        if not old and not self._fits(_forbidden_size(group, topic)):
            raise self._full()
        self._lines.info(
            self._now_ms(),
            "forbidden operations of group {group} in {topic}: {old} becomes {mask}",
            group=group, topic=topic, old=old, mask=mask)
        topics = self.forbidden.setdefault(group, {})
        if mask:
            topics[topic] = mask
            self.rows_size += 0 if old else _forbidden_size(group, topic)
        else:
            del topics[topic]
            self.rows_size -= _forbidden_size(group, topic)
        if not topics:
            del self.forbidden[group]
        self._forbidden_changed.add(group)
        self.data_version.next_version(self._now_ms())
        self.dirty = True

    def reply_row(self, group: str) -> bytes:
        """Return the row of an existing group in a reply to a tool; it is kept for the next one."""
        row = self._reply_rows.get(group)
        if row is None:
            row = self._reply_rows[group] = map_row(group, self.table[group])
        return row

    def _changed(self, group: str) -> None:
        """Count a change, so that the table is saved."""
        self._reply_rows.pop(group, None)
        self._file_rows.changed(group)
        self.data_version.next_version(self._now_ms())
        self.dirty = True


def row_size(config: SubscriptionGroupConfig) -> int:
    """Estimate the size of a group in a reply to a tool, bytes."""
    if config.attributes or config.subscription_data_set or config.group_retry_policy != _POLICY:
        return len(map_row(config.group_name, config))
    return _ROW_SIZE + 2 * len(config.group_name)


def _forbidden_size(group: str, topic: str) -> int:
    """Return the largest size of a mask in a reply to a tool, bytes."""
    return len(group) + len(topic) + _MASK_SIZE
