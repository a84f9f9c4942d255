"""The questions about the progress of groups: of all groups of a broker, and of one group."""

from __future__ import annotations

from collections.abc import Iterable

from twistmq.console.page_session import Answers, PageSession
from twistmq.protocol.bodies import ConsumeStats, GroupList
from twistmq.protocol.bodies.progress_table import ProgressTable, joined_progress, read_progress
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import RequestRefused
from twistmq.protocol.headers.admin import GetConsumeStatsInBrokerHeader
from twistmq.protocol.headers.topic import GetConsumeStatsRequestHeader
from twistmq.tools.admin.session import Broker

__all__ = ["begin_progress", "collect_progress", "group_stats"]


def begin_progress(
    session: PageSession, brokers: Iterable[Broker], *, with_times: bool,
    groups: Iterable[str] | None = None, topic: str | None = None,
) -> Answers[ProgressTable]:
    """Begin to ask brokers for the progress of their groups.

    :param with_times: whether the page shows when messages were consumed. A broker has to read the
        time of each queue from its store.
    :param groups: the groups that the page shows; None: all groups. A broker of Apache answers for
        all of them, and with their times.
    :param topic: the topic that the page shows; None: all topics. The same holds for Apache's.
    """
    header = GetConsumeStatsInBrokerHeader(
        is_order=False, with_times=None if with_times else False, topic=topic)
    body = b"" if groups is None else GroupList(set(groups)).encode_standard()
    return session.begin(brokers, lambda broker: read_progress(session.ask(
        broker.address, RequestCode.GET_BROKER_CONSUME_STATS, header, body).body))


def collect_progress(answers: Answers[ProgressTable]) -> ProgressTable:
    """Return the progress of all groups on all brokers that answer."""
    return joined_progress(table for _, table in answers.collect())


def group_stats(
    session: PageSession, broker: Broker, group: str, topic: str | None = None
) -> ConsumeStats:
    """Return the progress of one group on a broker; it is empty if the broker knows none.

    :param topic: the only topic that is included; None: all topics of the group.
    """
    header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
    try:
        return ConsumeStats.decode_reply(session.ask(
            broker.address, RequestCode.GET_CONSUME_STATS, header).body)
    except RequestRefused as error:
        if error.response_code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
        return ConsumeStats()
