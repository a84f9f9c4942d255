"""A DLedger group of whole brokers in processes of their own, which mixes ours with Apache's.

    with LedgerGroup(folder, "5.5.0", ours={"n2"}) as group:
        group.start()
        group.give_lead("n2")

The members know each other's ports from the start, so any of them can be killed and started again.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from tests.interop.ledger_members import peers_text
from tests.interop.peer import class_path, java_command
from tests.interop.ports import free_port
from tests.interop.replicas import ApacheReplica, Group, OurReplica, same_log
from tests.interop.servers import wait_until
from twistmq.broker.testing import RawClient
from twistmq.protocol.bodies.dledger import (
    LeadershipTransferRequest,
    LeadershipTransferResponse,
    MetadataRequest,
    MetadataResponse,
)
from twistmq.protocol.codes import DLedgerRequestCode
from twistmq.protocol.errors import BrokerError

__all__ = ["GROUP", "IDS", "ApacheMember", "LedgerGroup", "LedgerMember", "OurMember"]

IDS: Final = ("n0", "n1", "n2")
GROUP: Final = "G0"
#: How long an election and its consequences may take, on a busy machine, seconds.
_PATIENCE_SECONDS: Final = 90.0
#: How long a member may take to answer, seconds: a transfer is answered after it has ended.
_ANSWER_SECONDS: Final = 10.0
#: The command line of DLedger, and the version of Apache's broker whose jars contain it.
_CLI: Final = "io.openmessaging.storage.dledger.cmdline.BossCommand"
_CLI_VERSION: Final = "4.9.4"


class OurMember(OurReplica):
    """Our broker, whose log is a ledger."""

    @property
    def log_folder(self) -> Path:
        return self.data / "store" / f"dledger-{self.settings['dLegerSelfId']}" / "data"


class ApacheMember(ApacheReplica):
    """Apache's broker, whose log is a ledger."""

    @property
    def log_folder(self) -> Path:
        return (self.peer.home / "store" / f"dledger-{self.peer.settings['dLegerSelfId']}"
                / "data")


LedgerMember = OurMember | ApacheMember


class LedgerGroup(Group):
    """The brokers of one group, beside our name server.

    :param version: of Apache's brokers.
    :param ours: the ids of the members that are ours.
    :param ids: of all members, three by default.
    """

    def __init__(
        self, folder: Path, version: str, ours: Collection[str], ids: Sequence[str] = IDS,
    ) -> None:
        super().__init__(folder)
        self.ids = tuple(ids)
        self.ours_ids = set(ours)
        self._version = version
        self.ports = {member: free_port() for member in self.ids}
        self.members: dict[str, LedgerMember] = {}
        self._running: set[str] = set()

    def __enter__(self) -> Self:
        super().__enter__()
        for member in self.ids:
            self.members[member] = self._make(member)
        return self

    def _make(self, member: str) -> LedgerMember:
        replica = (self.make_ours if member in self.ours_ids else self.make_apaches)(
            self.folder / member, {
                "enableDLegerCommitLog": "true", "dLegerGroup": GROUP,
                "dLegerPeers": peers_text(self.ports_for(member)), "dLegerSelfId": member})
        self._stack.callback(replica.end, signal.SIGKILL)
        return replica

    def make_ours(self, folder: Path, settings: dict[str, str]) -> LedgerMember:
        """Make a broker of ours, which does not run yet."""
        return OurMember(folder, self.namesrv.address, settings)

    def make_apaches(self, folder: Path, settings: dict[str, str]) -> LedgerMember:
        """Make a broker of Apache's, which does not run yet."""
        return ApacheMember(folder, self._version, self.namesrv.address, settings)

    def ports_for(self, member: str) -> Mapping[str, int]:
        """Return the ports at which a member reaches the members, its own port included."""
        return self.ports

    def exchange(self, member: str) -> None:
        """Put a broker of the other kind in place of a stopped member, over the same folder."""
        assert member not in self._running, member
        self.ours_ids ^= {member}
        self.members[member] = self._make(member)

    def start(self, *members: str) -> None:
        """Start members; all of them without arguments."""
        for member in members or self.ids:
            self.members[member].start()
            self._running.add(member)

    def kill(self, member: str) -> None:
        """End the process of a member at once."""
        self.end(member, signal.SIGKILL)

    def end(self, member: str, how: signal.Signals = signal.SIGTERM) -> None:
        """End the process of a member by a signal."""
        self._running.discard(member)
        self.members[member].end(how)

    @property
    def peers(self) -> str:
        """The setting dLegerPeers, and the name of the group is ``GROUP``."""
        return peers_text(self.ports)

    def leader_of(self, member: str) -> str:
        """Return the leader that a member follows; empty if it knows none or does not answer."""
        try:
            with RawClient(f"127.0.0.1:{self.ports[member]}", _ANSWER_SECONDS) as client:
                reply = client.request(DLedgerRequestCode.METADATA, None, MetadataRequest(
                    group=GROUP, remote_id=member).encode())
        except (BrokerError, OSError):
            return ""
        leader = MetadataResponse.decode(reply.body).leader_id
        return leader if isinstance(leader, str) else ""

    def leader(self) -> str:
        """Return the leader that all running members follow; empty while they do not agree."""
        leaders = {self.leader_of(member) for member in self._running}
        leader = leaders.pop() if len(leaders) == 1 else ""
        return leader if leader in self._running else ""

    def wait_for_leader(self) -> str:
        """Wait until all running members follow one of them."""
        wait_until("the running members follow one leader", lambda: bool(self.leader()),
                   _PATIENCE_SECONDS)
        return self.leader() or self.wait_for_leader()

    def give_lead(self, member: str) -> None:
        """Let a member lead, as Apache's tool does it. Members that lag are asked again."""
        def leads() -> bool:
            leader = self.leader()
            if leader and leader != member:
                self._transfer(leader, member)
            return leader == member

        wait_until(f"{member} leads", leads, _PATIENCE_SECONDS)

    def transfer_by_tool(self, member: str) -> str:
        """Let the command line of DLedger give the lead to a member once.

        :returns: the leader afterwards, which is another one if the transfer was refused.
        """
        leader = self.wait_for_leader()
        if leader != member:
            java = java_command(self.folder / "cli", [class_path(_CLI_VERSION)])
            subprocess.run(
                [*java, _CLI, "leadershipTransfer", "-g", GROUP, "-p", self.peers, "-l", leader,
                 "-t", member, "--term", self.term_of(leader)],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=_PATIENCE_SECONDS)
        return self.wait_for_leader()

    def term_of(self, member: str) -> str:
        """The term in the file of a member."""
        lines = (self.members[member].log_folder.parent / "currterm").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)["currTerm"]

    def _transfer(self, leader: str, member: str) -> int:
        """Ask a leader to transfer the lead; :returns: the code of the answer."""
        request = LeadershipTransferRequest(
            group=GROUP, remote_id=leader, term=int(self.term_of(leader)), transfer_id=leader,
            transferee_id=member)
        try:
            with RawClient(f"127.0.0.1:{self.ports[leader]}", _ANSWER_SECONDS) as client:
                reply = client.request(
                    DLedgerRequestCode.LEADERSHIP_TRANSFER, None, request.encode())
        except (BrokerError, OSError):
            return -1
        return LeadershipTransferResponse.decode(reply.body).code

    def wait_for_equal_logs(self) -> int:
        """Wait until all members have the leader's log; :returns: where it ends.

        :raises AssertionError: when the files are not the same.
        """
        leader = self.wait_for_leader()
        return same_log(self.members[leader], [
            self.members[member] for member in self.ids if member != leader])
