"""The settings of a group, and the conditions that a start checks.

Source: MessageStoreConfig @5.3.3, DLedgerConfig @dledger-0.3.1.2.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from twistmq.broker.api import Setting, SettingCheck, Settings
from twistmq.plugins.dledger.peer_group import MEMBER_ID, PeerGroup, read_peers
from twistmq.plugins.dledger.peer_settings import PEER_SETTINGS
from twistmq.raft.settings import MemberSettings

__all__ = ["CHECKS", "ENABLE", "SETTINGS", "GroupSettings", "group_notices", "group_settings",
           "ledger_folder"]

_STORE: Final = "MessageStoreConfig"
ENABLE: Final = "enableDLegerCommitLog"
_GROUP: Final = "dLegerGroup"
_PEERS: Final = "dLegerPeers"
_SELF: Final = "dLegerSelfId"
_PREFERRED: Final = "preferredLeaderId"
_PATH: Final = "storePathDLedgerCommitLog"
_QUICK: Final = "dledger.quick_failover"
#: A setting of the plugin ``ha``.
_ACTING: Final = "enableSlaveActingMaster"

SETTINGS: Final = (
    Setting(ENABLE, "flag", False,
            "Whether the log of this broker is a ledger, on which a group of brokers of one name "
            "agrees. The group elects the master.", source=_STORE, important=True, at_start=True),
    Setting(_GROUP, "text", "",
            "The name of the group; it is the same at all members.", source=_STORE,
            default_text="none", at_start=True, only_with=f"{ENABLE}=true"),
    Setting(_PEERS, "text", "",
            "All members of the group and the ports at which they reach each other: "
            "ID-HOST:PORT, separated by semicolons.", source=_STORE, default_text="none",
            at_start=True, only_with=f"{ENABLE}=true"),
    Setting(_SELF, "text", "",
            "The id of this broker in dLegerPeers, a letter and a number. As a slave, the broker "
            "has the number plus 1 as its id.", source=_STORE, default_text="none", at_start=True,
            of_each="one_broker", only_with=f"{ENABLE}=true"),
    Setting(_PREFERRED, "text", "",
            "The members that should lead when they are able to, separated by semicolons.",
            source=_STORE, default_text="none", at_start=True, only_with=f"{ENABLE}=true"),
    Setting(_PATH, "path", "",
            "The folder that contains the ledger's own folder, dledger-ID.", source=_STORE,
            default_text="storePathRootDir", at_start=True, of_each="one_broker",
            only_with=f"{ENABLE}=true"),
    Setting(_QUICK, "flag", False,
            "Whether an election begins at once when the process of the leader is gone: its host "
            "has closed the connection and accepts no other one. Without this, followers wait for "
            "three heartbeats, 6 s.", at_start=True, only_with=f"{ENABLE}=true"),
    *PEER_SETTINGS,
)


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The group of this broker.

    :param addresses: "HOST:PORT" by the id of each member.
    :param broker_id: the id of this broker as a slave.
    """

    group: str
    self_id: str
    addresses: dict[str, str]
    preferred: tuple[str, ...]
    broker_id: int
    quick_failover: bool
    is_durable: bool

    def of_peers(self) -> PeerGroup:
        """Return the part that the connections between the members need."""
        return PeerGroup(self.group, self.self_id, self.addresses)

    def of_member(self) -> MemberSettings:
        """Return the settings of the state machine."""
        return MemberSettings(
            self.group, self.self_id, tuple(self.addresses), preferred_leaders=self.preferred,
            durable=self.is_durable, quick_failover=self.quick_failover)


def ledger_folder(settings: Settings) -> str:
    """Return the folder of the ledger."""
    parent = settings.text(_PATH).strip() or settings.text("storePathRootDir")
    return os.path.join(parent, f"dledger-{settings.text(_SELF).strip()}")


def group_settings(settings: Settings) -> GroupSettings:
    """Read the settings of the group.

    :raises SettingsError: when they are missing, or contradict each other.
    """
    group, self_id = settings.text(_GROUP).strip(), settings.text(_SELF).strip()
    if not group:
        raise settings.error(_GROUP, f"is empty: {ENABLE}=true needs the name of the group")
    match = MEMBER_ID.fullmatch(self_id)
    if match is None:
        raise settings.error(_SELF, "is not a letter and a number, such as n0")
    addresses = _addresses(settings)
    if self_id not in addresses:
        raise settings.error(_SELF, f"is not in {_PEERS}: {', '.join(addresses) or 'empty'}")
    preferred = tuple(filter(None, map(str.strip, settings.text(_PREFERRED).split(";"))))
    for each in preferred:
        if each not in addresses:
            raise settings.error(_PREFERRED, f"names {each}, which is not in {_PEERS}")
    if "," in settings.text(_PATH):
        # Differs from Apache, whose files go to the folders in turn.
        raise settings.error(_PATH, "names several folders, but a ledger has only one")
    return GroupSettings(
        group, self_id, addresses, preferred, int(match[1]) + 1, settings.flag(_QUICK),
        settings.text("flushDiskType") == "SYNC_FLUSH")


def group_notices(settings: Settings, group: GroupSettings) -> list[str]:
    """Return warnings about settings that a group does not use, or that do not suit one."""
    notices = []
    count = len(group.addresses)
    if count % 2 == 0:
        notices.append(f"{_PEERS} has {count} members: the group survives the loss of no more "
                       f"members than a group of {count - 1}; the number should be odd")
    role = settings.text("brokerRole")
    if role != "ASYNC_MASTER":
        notices.append(f"brokerRole={role} is not used: with {ENABLE}=true, the group elects the "
                       "master")
    if settings.has(_ACTING) and settings.flag(_ACTING):
        notices.append(f"{_ACTING}=true is not used: with {ENABLE}=true, the group elects a master "
                       "when the previous one is lost")
    return notices


def _addresses(settings: Settings) -> dict[str, str]:
    """Read the members of the group.

    :raises SettingsError: when the list is not valid.
    """
    try:
        return read_peers(settings.text(_PEERS))
    except ValueError as error:
        raise settings.error(_PEERS, str(error)) from None


def _check_group(settings: Settings) -> None:
    """:raises SettingsError: when a ledger is enabled and its settings are not valid."""
    if settings.flag(ENABLE):
        group_settings(settings)


CHECKS: Final = (
    SettingCheck((ENABLE, _GROUP, _PEERS, _SELF, _PREFERRED, _PATH), _check_group),
)
