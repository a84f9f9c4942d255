"""Three brokers of one group in this process, each on a reactor of its own, and a name server.

    group = kept(self, live_group)

The name server has a broker beside it that is in no group: ``plain``.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.interop.ports import free_port
from tests.plugins.ha.pair import LoneBroker, lone_broker, wait_until
from twistmq.broker.testing import running_broker
from twistmq.client import Client
from twistmq.plugins.dledger.group_broker import GroupBroker

__all__ = ["GROUP", "IDS", "LiveGroup", "live_group", "live_group_of"]

IDS: Final = ("n0", "n1", "n2")
#: The name of the group, which its brokers also have.
GROUP: Final = "orders"


class LiveGroup:
    """The group; all brokers run.

    :param settings: more settings of all brokers.
    """

    def __init__(self, folder: Path, stack: ExitStack, settings: Mapping[str, str]) -> None:
        beside = stack.enter_context(running_broker({"brokerName": "plain"}))
        self.namesrv = beside.namesrv_address
        self.plain = beside.broker_address
        self.addresses = {member: f"127.0.0.1:{free_port()}" for member in IDS}
        self.peers = ";".join(f"{member}-{address}" for member, address in self.addresses.items())
        self.settings = {
            "brokerName": GROUP, "enableDLegerCommitLog": "true", "dLegerGroup": GROUP,
            "dLegerPeers": self.peers, "namesrvAddr": self.namesrv, **settings}
        self._folder = folder
        self._stacks = {member: stack.enter_context(ExitStack()) for member in IDS}
        self.brokers: dict[str, LoneBroker] = {}
        for member in IDS:
            self.start(member)
        self.find_leader()

    def start(self, member: str, **settings: str) -> None:
        """Start a broker, with further settings."""
        self.brokers[member] = self._stacks[member].enter_context(lone_broker(
            self._folder / member, {**self.settings, "dLegerSelfId": member, **settings}))

    def stop(self, member: str) -> None:
        """Stop a broker."""
        self._stacks[member].close()
        del self.brokers[member]

    def rows(self, member: str) -> Mapping[str, str]:
        """What a broker says about itself."""
        with Client(self.namesrv) as client:
            return client.runtime_info(self.brokers[member].address)

    @property
    def leader(self) -> str:
        """The member that is the master, which all that run know; empty before they agree."""
        rows = {member: self.rows(member) for member in self.brokers}
        leaders = {row.get("dledgerLeader", "") for row in rows.values()}
        masters = [member for member, row in rows.items()
                   if row.get("brokerRole") == "SYNC_MASTER"]
        # A member of a new group may need some entries before it takes part in elections.
        is_whole = all(row.get("dledgerMayVote") == "true" for row in rows.values())
        return masters[0] if is_whole and leaders == set(masters) and len(masters) == 1 else ""

    def find_leader(self) -> str:
        """Wait until all agree on a leader; :returns: its id."""
        found: list[str] = []

        def is_found() -> bool:
            found[:] = [self.leader]
            return bool(found[0])

        wait_until(is_found, "a leader")
        return found[0]

    def hooks(self, member: str) -> GroupBroker:
        """The plugin of a broker."""
        hooks = self.brokers[member].kernel.hooks.find(GroupBroker)
        assert hooks is not None
        return hooks


def live_group(folder: Path, stack: ExitStack) -> LiveGroup:
    """For ``kept``: a group without further settings."""
    return LiveGroup(folder, stack, {})


def live_group_of(folder: Path, stack: ExitStack, **settings: str) -> LiveGroup:
    """A group with further settings."""
    return LiveGroup(folder, stack, settings)
