"""The consumer groups of a broker: table, file, creation on demand, forbidden topics.

Source: SubscriptionGroupManager @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from twisted.logger import Logger

from twistmq.broker.request.attributes import GROUP_ATTRIBUTES, alter_attributes
from twistmq.broker.settings import Settings
from twistmq.broker.store.config_file import ConfigFile
from twistmq.broker.topic_names import SYSTEM_GROUPS, group_fault, is_light, is_system_group
from twistmq.broker.wire.bodies import (
    DataVersion,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)

__all__ = ["SubscriptionGroupTable"]


class SubscriptionGroupTable:
    """Groups by name.

    :param file: subscriptionGroup.json.
    """

    log = Logger()

    def __init__(self, settings: Settings, file: ConfigFile, now_ms: Callable[[], int]) -> None:
        self._file = file
        #: How a change is saved; the kernel's way outlives a full disk.
        self.save: Callable[[], None] = self.persist
        self._now_ms = now_ms
        self._light = settings.flag("enableLmq")
        self._auto_create = settings.flag("autoCreateSubscriptionGroup")
        self.data_version = DataVersion(timestamp=now_ms())
        self.table: dict[str, SubscriptionGroupConfig] = {
            group: SubscriptionGroupConfig(group) for group in sorted(SYSTEM_GROUPS)}
        #: Group, topic, mask of what is forbidden.
        self.forbidden: dict[str, dict[str, int]] = {}

    def load(self) -> None:
        """Take over what was saved; :raises StoreDamaged: when it cannot be read."""
        self._file.load(self._decode)

    def _decode(self, text: str) -> None:
        saved = SubscriptionGroupWrapper.decode_saved(text.encode())
        self.table.update(saved.subscription_group_table)
        self.forbidden = saved.forbidden_table or {}
        self.data_version.assign(saved.data_version)

    def persist(self) -> None:
        self._file.save(self.wrapper().encode_pretty().decode())

    def wrapper(self) -> SubscriptionGroupWrapper:
        return SubscriptionGroupWrapper(self.table, self.data_version, self.forbidden)

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
        self.changed()
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
        self.changed()

    def delete(self, group: str) -> bool:
        """Forget a group and what it is forbidden; :returns: whether it was there."""
        self.forbidden.pop(group, None)
        if self.table.pop(group, None) is None:
            return False
        self.changed()
        return True

    def is_forbidden(self, group: str, topic: str, index: int) -> bool:
        """Whether bit ``index`` of the group's mask for the topic is set."""
        mask = self.forbidden.get(group, {}).get(topic, 0)
        return bool(mask >> index & 1)

    def changed(self) -> None:
        """Count one more change and save."""
        self.data_version.next_version(self._now_ms())
        self.save()
