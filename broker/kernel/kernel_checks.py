"""Checks of broker settings that do not depend on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twistmq.broker.config.settings import SettingCheck, Settings
from twistmq.broker.errors import SettingsError
from twistmq.protocol.topic_names import FILE_NAME_SIZE_MAX, can_be_directory

if TYPE_CHECKING:
    from twistmq.broker.plugin.hooks import Hooks

__all__ = ["kernel_checks"]

#: The length of the longest prefix before the name of a broker or cluster in the name of a topic.
_PREFIX_SIZE: Final = len("rmq_sys_SYNC_BROKER_MEMBER_")


def kernel_checks(hooks: Hooks) -> list[SettingCheck]:
    """Return the checks of the kernel and of the plugins in use."""
    def accounts(settings: Settings) -> None:
        name = settings.access_setting
        if name and not hooks.has_access_validators(name):
            raise SettingsError(f"{name}=true, but no plugin that is in use checks "
                                "requests")

    return [
        SettingCheck((), Settings.store_settings),
        SettingCheck(("brokerName", "brokerClusterName", "traceTopicEnable", "msgTraceTopicName"),
                     _require_topics),
        SettingCheck(("aclEnable", "authenticationEnabled", "plugins.enabled",
                      "plugins.disabled"), accounts),
        *hooks.collect_setting_checks(),
    ]


def _require_topics(settings: Settings) -> None:
    """:raises SettingsError: when the folder of a topic that the broker creates cannot exist."""
    for name in ("brokerName", "brokerClusterName"):
        text = settings.text(name)
        if not can_be_directory(text) or len(text.encode()) > FILE_NAME_SIZE_MAX - _PREFIX_SIZE:
            raise settings.error(name, "is a part of topic names, but cannot be in the name of a "
                                       "folder")
    name = "msgTraceTopicName"
    if settings.flag("traceTopicEnable") and not can_be_directory(settings.text(name)):
        raise settings.error(name, "is a topic's name, but cannot be the name of a folder")
