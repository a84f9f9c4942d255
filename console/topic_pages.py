"""The list of topics, the page of one topic, and the changes that this page offers.

The list needs two requests for each master: for the settings of all topics, and for the progress of
all groups. A topic of which brokers have different settings is listed once. An account to which a
broker denies the settings sees the names that the name servers know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from twistmq.console.group_progress import begin_progress, collect_progress
from twistmq.console.page import Cell, Column, Page, Table
from twistmq.console.page_session import Answers, PageSession
from twistmq.console.query import BadQuery, Query, cut_table
from twistmq.console.sample_table import line_chart, rate_chart
from twistmq.protocol.bodies import TopicConfig, TopicConfigSerializeWrapper, TopicStatsTable
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.topic_names import (
    DLQ_GROUP_TOPIC_PREFIX,
    RETRY_GROUP_TOPIC_PREFIX,
    is_system_group,
    is_system_topic,
    topic_fault,
)
from twistmq.tools.admin.rows import Row
from twistmq.tools.admin.send_commands import send_message
from twistmq.tools.admin.session import Broker
from twistmq.tools.admin.statistics import PUT_NUMS, day_sum, figures, minute_rate
from twistmq.tools.admin.topics import delete_topic, topic_stats, update_topic

__all__ = ["KINDS", "begin_topics", "change_topic", "create_topic", "is_system_name",
           "own_topics", "topic_page", "topics_page"]

_TOPICS: Final = (
    Column("topic", "topic"), Column("type", "state"), Column("queues", "number"),
    Column("permission", "code"), Column("groups", "number"), Column("lag", "number"),
    Column("brokers", "list"))
_QUEUES: Final = (
    Column("broker", "code"), Column("queue", "number"), Column("first_offset", "number"),
    Column("end_offset", "number"), Column("messages", "number"),
    Column("last_stored", "time"))
_GROUPS: Final = (
    Column("group", "group"), Column("lag", "number"), Column("in_flight", "number"),
    Column("consumed_per_s", "rate", "Consumed/s"), Column("last_consumed", "time"))
#: The kinds of topics by which the list is filtered; the first one is the default.
KINDS: Final = ("user", "retry", "dead-letter", "system", "all")
#: The value of the attribute in which brokers from 5.0 on keep the type of a topic.
_TYPE_ATTRIBUTE: Final = "message.type"
_QUEUES_MAX: Final = 1024
_BODY_MAX: Final = 256 * 1024


def is_system_name(topic: str) -> bool:
    """Return whether a topic belongs to servers or to a group, and not to a program."""
    return _kind(topic) != "user"


def own_topics(brokers: Iterable[Broker]) -> set[str]:
    """Return the topics that each broker creates for itself and for its cluster."""
    return {name for broker in brokers for name in (
        broker.name, broker.cluster, f"{broker.cluster}_REPLY_TOPIC")}


def _kind(topic: str) -> str:
    if topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        return "retry"
    if topic.startswith(DLQ_GROUP_TOPIC_PREFIX):
        return "dead-letter"
    return "system" if is_system_topic(topic) else "user"


def _type(config: TopicConfig) -> str:
    kind = _kind(config.topic_name)
    if kind != "user":
        return kind
    attribute = config.attributes.get(_TYPE_ATTRIBUTE, "").lower()
    return attribute or ("ordered" if config.order else "normal")


def _permission(perm: int) -> str:
    return "".join(letter for bit, letter in ((4, "R"), (2, "W"), (1, "X")) if perm & bit) or "-"


def begin_topics(
    session: PageSession, brokers: Iterable[Broker]
) -> Answers[dict[str, TopicConfig]]:
    """Begin to ask brokers for the settings of all their topics; the answers are by name."""
    return session.begin(brokers, lambda broker: TopicConfigSerializeWrapper.decode_reply(
        session.ask(broker.address, RequestCode.GET_ALL_TOPIC_CONFIG).body).topic_config_table)


def topics_page(session: PageSession, query: Query) -> Page:
    """List topics; ``kind`` is one of ``KINDS``, and see :func:`cut_table`."""
    kind = query.one_of("kind", KINDS)
    masters = session.brokers()
    all_progress = begin_progress(session, masters, with_times=False)
    all_topics = begin_topics(session, masters)
    own_names = own_topics(masters)

    def is_listed(name: str) -> bool:
        return kind in ("all", "system" if name in own_names else _kind(name))

    # The settings of each topic, by the name of the broker.
    all_configs: dict[str, dict[str, TopicConfig]] = {}
    for broker, configs in all_topics.collect():
        for name, config in configs.items():
            if is_listed(name):
                all_configs.setdefault(name, {})[broker.name] = config
    lags: Counter[str] = Counter()
    groups: Counter[str] = Counter()
    for (group, topic), progress in collect_progress(all_progress).items():
        if not is_system_group(group):
            lags[topic] += progress.lag
            groups[topic] += 1
    rows = [_row(name, configs, groups[name], lags[name]) for name, configs in all_configs.items()]
    if session.denying:
        rows += [_row_without_settings(name) for name in session.topics()
                 if name not in all_configs and is_listed(name)]
    table = Table(_TOPICS, rows, empty="There is no topic of this kind. Create one below, or let a "
                                       "producer send to it if autoCreateTopicEnable is set.")
    cut_table(table, query, sort="topic")
    page = Page("topics", "Topics", {"topics": table})
    page.facts = {"kind": kind, "kinds": list(KINDS), "clusters": session.cluster_names()}
    return page


def _row(
    topic: str, configs: Mapping[str, TopicConfig], group_count: int, lag: int
) -> tuple[Cell, ...]:
    """Return the row of a topic, with the type and the permission that the first broker reports."""
    first = next(iter(configs.values()))
    return (topic, _type(first), sum(each.read_queue_nums for each in configs.values()),
            _permission(first.perm), group_count, lag, sorted(configs))


def _row_without_settings(topic: str) -> tuple[Cell, ...]:
    """Return the row of a topic of which only the name is known, and the kind that it tells."""
    kind = _kind(topic)
    return topic, None if kind == "user" else kind, None, None, None, None, []


def topic_page(session: PageSession, query: Query) -> Page:
    """Show the queues of a topic, and the groups that consume it."""
    topic = query.required_text("topic")
    brokers = session.brokers_of(topic)
    all_stats = session.begin(brokers, lambda each: topic_stats(session, each, topic))
    all_progress = begin_progress(session, brokers, with_times=True, topic=topic)
    all_counts = session.begin(brokers, lambda each: figures(session, each, PUT_NUMS, topic))
    queues = _queue_table(all_stats)
    groups = Table(_GROUPS, [
        (group, each.lag, each.in_flight, each.rate, each.last_ms or None)
        for (group, name), each in sorted(collect_progress(all_progress).items())
        if name == topic and not is_system_group(group)],
        "Consumer groups", "No group has consumed this topic yet.")
    counts = [each for _, each in all_counts.collect()]
    lag = groups.column_sum("lag")
    page = Page("topic", topic, {"groups": groups, "queues": queues})
    page.facts = {
        "topic": topic, "kind": _kind(topic),
        "clusters": sorted({each.cluster for each in brokers}),
        "brokers": sorted({each.name for each in brokers}), "queues": len(queues.rows),
        "messages": queues.column_sum("messages"), "in_per_s": sum(map(minute_rate, counts)),
        "stored_in_a_day": sum(map(day_sum, counts)), "lag": lag}
    samples = session.sample(("topic", topic), queues.column_sum("end_offset"), lag)
    page.charts = {"rate": rate_chart("Stored per second", samples, stored=0),
                   "lag": line_chart("Lag of all groups", samples, lag=1)}
    return page


def _queue_table(answers: Answers[TopicStatsTable]) -> Table:
    """Return the bounds of each queue; the brokers are in the order of the answers."""
    return Table(_QUEUES, [
        (queue.broker_name or broker.name, queue.queue_id, bounds.min_offset, bounds.max_offset,
         bounds.max_offset - bounds.min_offset, bounds.last_update_timestamp or None)
        for broker, stats in answers.collect()
        for queue, bounds in sorted(stats.offset_table.items())],
        "Queues", "No broker reported a queue.")


# --- changes


def create_topic(session: PageSession, form: Query) -> str:
    """Create a topic on all masters of a cluster; :returns: a sentence about the result.

    :raises BadQuery: when a field is not valid.
    """
    topic = form.required_text("topic")
    fault = topic_fault(topic)
    if fault is not None:
        raise BadQuery(fault)
    cluster = form.text("cluster") or session.cluster_names()[0]
    queues = form.number("queues", 8, 1, _QUEUES_MAX)
    kind = form.one_of("type", ("", "NORMAL", "FIFO", "DELAY", "TRANSACTION"))
    rows = list(update_topic(
        session, topic=topic, broker=None, cluster=cluster,
        attributes=f"+{_TYPE_ATTRIBUTE}={kind}" if kind else None, read_queues=queues,
        write_queues=queues, perm=6, order=False, unit=False, unit_sub=False))
    return f"Topic {topic} has {queues} queues on each of {_brokers(rows)}."


def change_topic(session: PageSession, form: Query) -> str:
    """Send a message to a topic, or delete it; :returns: a sentence about the result.

    :raises BadQuery: when a field is not valid, or the name was not typed to confirm.
    """
    topic = form.required_text("topic")
    if form.one_of("act", ("send", "delete")) == "send":
        return _send(session, topic, form)
    if form.text("confirm") != topic:
        raise BadQuery("type the name of the topic to confirm that it is deleted")
    rows: list[Row] = []
    for cluster in sorted({each.cluster for each in session.brokers_of(topic)}):
        rows += delete_topic(session, topic=topic, cluster=cluster)
    return f"Topic {topic} is deleted from {_brokers(rows)}."


def _send(session: PageSession, topic: str, form: Query) -> str:
    body = form.values.get("body", "")
    if len(body.encode()) > _BODY_MAX:
        raise BadQuery(f"the body is larger than {_BODY_MAX} bytes")
    [row] = send_message(
        session, topic=topic, body=body, keys=form.text("keys") or None,
        tags=form.text("tags") or None, broker=None, queue=None, trace=False)
    broker, queue, offset, status, message_id, _ = row
    return (f"Message {message_id} is stored in queue {queue} of {broker} at offset {offset} "
            f"({status}).")


def _brokers(rows: list[Row]) -> str:
    count = len(rows)
    return "1 broker" if count == 1 else f"{count} brokers"
