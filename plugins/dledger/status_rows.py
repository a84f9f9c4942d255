"""The rows of the runtime table that describe a member and its group.

``twistmq admin dledgerStatus``, the console and the doctor read them. Apache's broker lacks them,
so all names are specific to twistmq.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from twistmq.broker.api.ledger import EntryLog

if TYPE_CHECKING:
    from twistmq.plugins.dledger.peer_group import PeerGroup
    from twistmq.raft.member import Member

__all__ = ["status_rows"]

#: The value of a lag that is not known yet.
_UNKNOWN: Final = "unknown"


def status_rows(group: PeerGroup, member: Member, log: EntryLog) -> Mapping[str, str]:
    """Return the rows of one member; those about the other members are the leader's alone.

    An index is -1 if there is no such entry.
    """
    rows = {
        "dledgerGroup": group.name,
        "dledgerMember": group.member_id,
        "dledgerRole": member.role.value,
        "dledgerLeader": member.leader,
        "dledgerTerm": str(member.term),
        "dledgerBeginIndex": str(log.begin_index),
        "dledgerEndIndex": str(log.end_index),
        "dledgerCommittedIndex": str(member.committed_index),
        "dledgerMayVote": str(member.has_joined).lower(),
    }
    for progress in member.list_progress():
        lag = _UNKNOWN if progress.lag is None else str(progress.lag)
        rows[f"dledgerLag.{progress.peer}"] = lag
        rows[f"dledgerReachable.{progress.peer}"] = str(progress.is_reachable).lower()
    return rows
