"""A group of brokers that agrees on one log and elects its master, also when the master is lost.

The log of each broker is a ledger in Apache's file format. The members of the group agree on its
entries by Raft, in the dialect of Apache's DLedger (``twistmq.raft``). The plugin connects the
agreement to the broker: the elected leader becomes the master and acknowledges a message when a
majority has it; the others follow as slaves and copy the tables of the leader.

Source: DLedgerCommitLog, DLedgerRoleChangeHandler @5.3.3, dledger-0.3.1.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from twistmq.broker.api import Setting, SettingCheck, Settings, hookimpl
from twistmq.plugins.dledger.settings import (
    CHECKS,
    ENABLE,
    SETTINGS,
    group_notices,
    group_settings,
    ledger_folder,
)

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["Plugin"]

#: The name under which the hooks of a member of a group are registered.
_HOOKS: Final = "dledger_member"


class Plugin:
    """The plugin of one broker; without ``enableDLegerCommitLog`` it has no further hooks."""

    def __init__(self, broker: Broker) -> None:
        if broker.settings.flag(ENABLE):
            from twistmq.plugins.dledger.group_broker import GroupBroker
            from twistmq.plugins.dledger.peers import connect_group

            group = group_settings(broker.settings)
            broker.hooks.notices.extend(group_notices(broker.settings, group))
            broker.hooks.add(_HOOKS, GroupBroker(broker, group, connect_group))

    @staticmethod
    @hookimpl
    def register_settings() -> Sequence[Setting]:
        return SETTINGS

    @staticmethod
    @hookimpl
    def register_setting_checks() -> Sequence[SettingCheck]:
        return CHECKS

    @staticmethod
    @hookimpl
    def choose_ledger_folder(settings: Settings) -> str | None:
        if not settings.flag(ENABLE):
            return None
        group_settings(settings)
        return ledger_folder(settings)
