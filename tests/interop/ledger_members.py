"""Members of Apache's DLedger in one Java process, without brokers: tests/interop/java."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.interop.capture_store import wait_for
from tests.interop.java_process import JavaProcess
from tests.interop.peer import PLAIN

__all__ = ["GROUP", "HEARTBEAT_MS", "LedgerMembers", "MemberRole", "peers_text"]

GROUP: Final = "G0"
#: The interval of heartbeats, which is shorter than the default so that elections take less time.
HEARTBEAT_MS: Final = 500
#: How long an election may take, on a busy machine, seconds.
_ELECTION_SECONDS: Final = 60


@dataclass(frozen=True)
class MemberRole:
    """A member as it describes itself; -1 means no term, and an end of an empty log."""

    role: str
    term: int
    leader: str
    begin_index: int
    end_index: int


def peers_text(ports: Mapping[str, int]) -> str:
    """Write a list of peers as Apache's settings have it."""
    return ";".join(f"{member}-127.0.0.1:{port}" for member, port in ports.items())


class LedgerMembers(JavaProcess):
    """Members that start at once.

    :param peers: for each member the ports at which it reaches the members, its own included.
    :param batches: whether entries are pushed in batches.
    """

    def __init__(self, version: str, folder: Path, peers: Mapping[str, Mapping[str, int]], *,
                 batches: bool = False) -> None:
        #: The ids of the members that run.
        self.members = list(peers)
        super().__init__(
            version, "LedgerMembers", GROUP, str(folder),
            *(f"{member}={peers_text(ports)}" for member, ports in peers.items()),
            # Without TLS a start takes half of the processor time, see peer.PLAIN.
            properties=(*(f"{name}={value}" for name, value in PLAIN.items()),
                        f"ledger.batch_push={str(batches).lower()}",
                        f"ledger.heartbeat_ms={HEARTBEAT_MS}"))
        try:
            self.wait_for("ready")
        except AssertionError:
            self.close()
            raise

    def role(self, member: str) -> MemberRole:
        """Ask a member for its role."""
        _, _, role, term, leader, begin, end = self.ask(f"role {member}", "role")
        return MemberRole(role, int(term), "" if leader == "null" else leader, int(begin), int(end))

    def find_leader(self) -> str:
        """Return the member that leads and is followed by the others; empty if there is none."""
        leaders = {self.role(member).leader for member in self.members}
        leader = leaders.pop() if len(leaders) == 1 else ""
        return leader if leader in self.members and self.role(leader).role == "LEADER" else ""

    def wait_for_leader(self) -> str:
        """Wait until these members have a leader among them, and return its id."""
        found = ""

        def has_leader() -> bool:
            nonlocal found
            found = self.find_leader()
            return bool(found)

        wait_for("one of the members leads", has_leader, _ELECTION_SECONDS)
        return found

    def append(self, count: int, size: int) -> tuple[str, int]:
        """Append bodies at the leader, or at the next one if it loses the lead meanwhile.

        :returns: the leader, and the index of the last body.
        """
        leader, index = "", -1

        def is_appended() -> bool:
            nonlocal leader, index
            leader = self.wait_for_leader()
            _, _, code, last, _ = self.ask(f"append {leader} {count} {size}", "appended")
            index = int(last)
            return code == "200"

        wait_for("the group accepts entries", is_appended, _ELECTION_SECONDS)
        return leader, index

    def wait_for_equal_logs(self) -> None:
        """Wait until all these members have logs of one length."""
        wait_for("all members have all entries", lambda: len(
            {self.role(member).end_index for member in self.members}) == 1, _ELECTION_SECONDS)

    def stop_member(self, member: str) -> None:
        """Stop one member."""
        self.members.remove(member)
        self.ask(f"stop {member}", "stopped")

    def start_member(self, member: str) -> None:
        """Start a member that was stopped."""
        self.ask(f"start {member}", "started")
        self.members.append(member)

    def transfer(self, leader: str, transferee: str) -> str:
        """Ask for a transfer of the lead by Apache's client; :returns: the code of the answer."""
        term = self.role(leader).term
        return self.ask(f"transfer {leader} {transferee} {term}", "transferred")[1]
