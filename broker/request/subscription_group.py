"""The consumer groups of a broker: table, file, creation on demand, forbidden topics.

Source: SubscriptionGroupManager @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from twisted.logger import Logger

from twistmq.broker.request.attributes import GROUP_ATTRIBUTES, alter_attributes
from twistmq.broker.request.saved_table import FileRows, SavedTable, Saving
from twistmq.broker.settings import Settings
from twistmq.broker.store.config_file import ConfigFile
from twistmq.broker.topic_names import SYSTEM_GROUPS, group_fault, is_light, is_system_group
from twistmq.broker.wire.bodies import (
    DataVersion,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from twistmq.broker.wire.json_writer import encode_pretty_row

__all__ = ["SubscriptionGroupTable"]


class SubscriptionGroupTable(SavedTable):
    """Groups by name.

    :param file: subscriptionGroup.json.
    """

    log = Logger()

    def __init__(self, settings: Settings, file: ConfigFile, now_ms: Callable[[], int]) -> None:
        super().__init__(file)
        self._now_ms = now_ms
        self._light = settings.flag("enableLmq")
        self._auto_create = settings.flag("autoCreateSubscriptionGroup")
        self.data_version = DataVersion(timestamp=now_ms())
        self.table: dict[str, SubscriptionGroupConfig] = {
            group: SubscriptionGroupConfig(group) for group in sorted(SYSTEM_GROUPS)}
        #: Group, topic, mask of what is forbidden.
        self.forbidden: dict[str, dict[str, int]] = {}
        self._file_rows = FileRows(self._file_row)
        self._all_rows_changed()

    def _all_rows_changed(self) -> None:
        for group in self.table:
            self._file_rows.changed(group)

    def _file_row(self, group: str) -> bytes | None:
        config = self.table.get(group)
        return None if config is None else encode_pretty_row(group, config)

    def load(self) -> None:
        """Take over what was saved; :raises StoreDamaged: when it cannot be read."""
        self._file.load(self._decode)

    def _decode(self, text: str) -> None:
        saved = SubscriptionGroupWrapper.decode_saved(text.encode())
        self.table.update(saved.subscription_group_table)
        self.forbidden = saved.forbidden_table or {}
        self.data_version.assign(saved.data_version)
        self._all_rows_changed()

    def saving(self) -> Saving:
        """See SavedTable."""
        yield from self._file_rows.write()
        wrapper = SubscriptionGroupWrapper({}, self.data_version, self.forbidden)
        return self._job(
            wrapper, {"subscriptionGroupTable": self._file_rows.in_order(self.table)})

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """A group; created when it is not there and the settings allow that.

        Differs from Apache: a blank name creates no group.
        """
        config = self.table.get(group)
        if config is not None:
            return config
        if self._light and is_light(group):
            return SubscriptionGroupConfig(group)
        if not (self._auto_create or is_system_group(group)) or group_fault(group):
            return None
        config = SubscriptionGroupConfig(group)
        self.log.info("group {group} created", group=group)
        self.table[group] = config
        self._changed(group)
        return config

    def has(self, group: str) -> bool:
        """Whether there is such a group; those of light queues always are."""
        return group in self.table or (self._light and is_light(group))

    def update(
        self, config: SubscriptionGroupConfig, attribute_changes: Mapping[str, str]
    ) -> None:
        """Create or replace a group.

        :raises RequestRefused: when an attribute change is not allowed; nothing is changed then.
        """
        if self._light and is_light(config.group_name):
            return
        old = self.table.get(config.group_name)
        config.attributes = alter_attributes(
            old is None, GROUP_ATTRIBUTES, old.attributes if old else {}, attribute_changes)
        self.log.info("group {config} replaces {old}", config=config, old=old)
        self.table[config.group_name] = config
        self._changed(config.group_name)

    def delete(self, group: str) -> bool:
        """Forget a group and what it is forbidden; :returns: whether it was there."""
        if self.forbidden.pop(group, None) is not None:
            self.dirty = True
        if self.table.pop(group, None) is None:
            return False
        self._changed(group)
        return True

    def is_forbidden(self, group: str, topic: str, index: int) -> bool:
        """Whether bit ``index`` of the group's mask for the topic is set."""
        mask = self.forbidden.get(group, {}).get(topic, 0)
        return bool(mask >> index & 1)

    def _changed(self, group: str) -> None:
        """Count one more change, to be saved."""
        self._file_rows.changed(group)
        self.data_version.next_version(self._now_ms())
        self.dirty = True
