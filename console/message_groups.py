"""The state of one message in each group of its topic.

A group that failed to consume a message sends it back to the broker. Its retry topic, and after the
last attempt its dead-letter topic, then have a copy with the same id, and the newest copy tells how
far the group is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from twistmq.console.group_progress import group_stats
from twistmq.console.page import Cell, Column, Table
from twistmq.console.page_session import PageSession
from twistmq.protocol.bodies import GroupList, MessageQueue
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.headers.topic import QueryTopicConsumeByWhoRequestHeader
from twistmq.protocol.record import StoredMessage, host_text
from twistmq.protocol.topic_names import dlq_topic, is_system_group, retry_topic
from twistmq.tools.admin.messages import find_messages
from twistmq.tools.admin.records import message_id_of
from twistmq.tools.admin.session import Broker

__all__ = ["GROUPS_MAX", "message_groups"]

_GROUPS: Final = (
    Column("group", "group"), Column("state", "state"), Column("since", "time"),
    Column("dead_letters", "letters", "Dead letters of"))
#: The groups of a topic that are asked about a message.
GROUPS_MAX: Final = 16
#: The copies of a message in the topics of a group that are looked at.
_COPIES_MAX: Final = 64


def message_groups(session: PageSession, message: StoredMessage) -> Table:
    """Return a table with a row for each group of the topic of a message.

    A state is one of "waiting", "consumed", "retrying", "consumed again" and "dead letter". A group
    that passed the message by, because of its tags or a reset, counts as one that has consumed it.
    A broker that does not answer is named on the page, and its groups are left out.
    """
    table = Table(_GROUPS, [], "Groups", "No group has consumed this topic yet.")
    brokers = {each.address: each for each in session.all_brokers()}
    home = brokers.get(host_text(message.store_host))
    if home is None:
        table.empty = "The name server does not know the broker of this message."
        return table

    def group_names(broker: Broker) -> list[str]:
        reply = session.ask(broker.address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
                            QueryTopicConsumeByWhoRequestHeader(topic=message.topic))
        return sorted(GroupList.decode_reply(reply.body).group_list)

    groups = [name for _, names in session.begin([home], group_names).collect() for name in names
              if not is_system_group(name)]

    def row_of(group: str) -> Callable[[Broker], tuple[Cell, ...]]:
        return lambda _: _row(session, message, group, brokers)

    # All groups are asked at the same time.
    states = [session.begin([home], row_of(group)) for group in groups[:GROUPS_MAX]]
    table.rows = [row for answers in states for _, row in answers.collect()]
    table.total = len(groups)
    return table


def _row(
    session: PageSession, message: StoredMessage, group: str, brokers: Mapping[str, Broker]
) -> tuple[Cell, ...]:
    """Return the row of a group."""
    letters = _copies(session, dlq_topic(group), message)
    retries = _copies(session, retry_topic(group), message)
    newest = max([*letters, *retries, message], key=lambda each: each.store_timestamp)
    if newest in letters:
        return group, "dead letter", newest.store_timestamp, group
    is_first = newest is message
    if _is_consumed(session, newest, group, brokers):
        state = "consumed" if is_first else "consumed again"
    else:
        state = "waiting" if is_first else "retrying"
    return group, state, newest.store_timestamp, group if letters else None


def _copies(session: PageSession, topic: str, message: StoredMessage) -> list[StoredMessage]:
    """Return the copies of a message in a topic of a group, which may not exist.

    The brokers of the message are asked, because the name servers do not know a new topic yet.
    """
    return find_messages(session, topic, message_id_of(message), unique=True,
                         max_count=_COPIES_MAX, route_topic=message.topic)


def _is_consumed(
    session: PageSession, message: StoredMessage, group: str, brokers: Mapping[str, Broker]
) -> bool:
    """Return whether a group has committed an offset after a message."""
    broker = brokers.get(host_text(message.store_host))
    if broker is None:
        return False
    stats = group_stats(session, broker, group, message.topic)
    progress = stats.offset_table.get(
        MessageQueue(message.topic, broker.name, message.queue_id))
    return progress is not None and progress.consumer_offset > message.queue_offset
