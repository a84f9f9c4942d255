"""The metrics of a group. Apache's broker lacks them, so all names are specific to twistmq."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from twistmq.broker.api import MetricFamily
from twistmq.broker.api.observe import single
from twistmq.plugins.dledger.commit_stage import CommitStage
from twistmq.plugins.dledger.node import GroupNode
from twistmq.raft.actions import Role

if TYPE_CHECKING:
    from twistmq.broker.api.ledger import EntryLog
    from twistmq.plugins.dledger.roles import BrokerRoles

__all__ = ["families"]


def families(
    node: GroupNode, roles: BrokerRoles, stage: CommitStage, log: EntryLog,
    repeated: Mapping[tuple[str, int], int],
) -> list[MetricFamily]:
    """Make the families of one member; those about the other members are the leader's alone.

    :param repeated: see ``Dispatch.repeated_offsets``.
    """
    member = node.member
    role = MetricFamily("dledger_role", "gauge", "The role of this broker in its group: the sample "
                        "of that role is 1, and the others are 0.", ("role",))
    for each in Role:
        role.add(int(member.role is each), each.value)
    return [
        role,
        single("dledger_leader", "Whether this broker leads its group.",
               int(member.role is Role.LEADER)),
        single("dledger_has_leader", "Whether this broker knows the leader of its group.",
               int(bool(member.leader))),
        single("dledger_may_vote", "Whether this broker may vote: a broker whose disk was replaced "
               "may not before it has caught up.", int(member.has_joined)),
        single("dledger_term", "The term of this broker, which rises with each election.",
               member.term),
        single("dledger_elections", "How often this broker has lost its leader, or the lead, since "
               "its start, so that an election followed.", roles.elections, "counter"),
        single("dledger_leads", "How often this broker has begun to lead since its start.",
               node.leads, "counter"),
        single("dledger_begin_index", "The index of the first entry of the ledger.",
               log.begin_index),
        single("dledger_end_index", "The index of the last entry of the ledger.", log.end_index),
        single("dledger_committed_index", "The index of the last entry that the group agreed on.",
               member.committed_index),
        *_member_families(node),
        single("dledger_waiting_sends", "Sends that wait for a majority.", stage.count),
        single("dledger_waited_sends", "Sends that waited for a majority.", stage.waits,
               "counter"),
        single("dledger_late_sends", "Sends that waited too long for a majority.",
               stage.timeouts, "counter"),
        *_repeated_families(repeated),
    ]


def _repeated_families(repeated: Mapping[tuple[str, int], int]) -> list[MetricFamily]:
    family = MetricFamily("dledger_repeated_offsets", "counter", "Messages that enter no queue, "
                          "because a leader gave their offset a second time.", ("topic", "queue"))
    for (topic, queue_id), count in repeated.items():
        family.add(count, topic, str(queue_id))
    return [family] if family.samples else []


def _member_families(node: GroupNode) -> list[MetricFamily]:
    lag = MetricFamily("dledger_member_lag_entries", "gauge",
                       "Entries that another member lacks, as the leader knows.", ("member",))
    reachable = MetricFamily("dledger_member_reachable", "gauge",
                             "Whether another member has lately answered the leader.", ("member",))
    for progress in node.member.list_progress():
        if progress.lag is not None:
            lag.add(progress.lag, progress.peer)
        reachable.add(int(progress.is_reachable), progress.peer)
    return [family for family in (lag, reachable) if family.samples]
