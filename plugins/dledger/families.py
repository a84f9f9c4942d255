"""The metrics of a group. Apache's broker lacks them, so all names are specific to twistmq."""

from __future__ import annotations

from twistmq.broker.api import MetricFamily
from twistmq.broker.api.observe import single
from twistmq.plugins.dledger.commit_stage import CommitStage
from twistmq.plugins.dledger.node import GroupNode
from twistmq.raft.actions import Role

__all__ = ["families"]


def families(node: GroupNode, stage: CommitStage, end_index: int) -> list[MetricFamily]:
    """Make the families of one member.

    :param end_index: the index of the last entry of its log.
    """
    member = node.member
    return [
        single("dledger_leader", "Whether this broker leads its group.",
               int(member.role is Role.LEADER)),
        single("dledger_has_leader", "Whether this broker knows the leader of its group.",
               int(bool(member.leader))),
        single("dledger_term", "The term of this broker, which rises with each election.",
               member.term),
        single("dledger_leads", "How often this broker has begun to lead since its start.",
               node.leads, "counter"),
        single("dledger_end_index", "The index of the last entry of the ledger.", end_index),
        single("dledger_committed_index", "The index of the last entry that the group agreed on.",
               member.committed_index),
        single("dledger_waiting_sends", "Sends that wait for a majority.", stage.count),
        single("dledger_waited_sends", "Sends that waited for a majority.", stage.waits,
               "counter"),
        single("dledger_late_sends", "Sends that waited too long for a majority.",
               stage.timeouts, "counter"),
    ]
