"""The list of consumer groups, the page of one group, and the report of one of its clients.

The list needs two requests for each master: for the settings of all groups, and for their progress.
It does not say which groups have clients, because brokers answer that for one group at a time only.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from twistmq.console.group_progress import begin_progress, collect_progress, group_stats
from twistmq.console.page import Cell, Column, Page, Table, column_sum
from twistmq.console.page_session import Answers, PageSession
from twistmq.console.query import Query, cut_table
from twistmq.console.sample_table import line_chart, rate_chart
from twistmq.protocol.bodies import (
    ConsumerConnection,
    ConsumeStats,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from twistmq.protocol.bodies.progress_table import Progress, progress_by_group
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.topic_names import is_system_group
from twistmq.tools.admin.clients import connected_clients, version_name
from twistmq.tools.admin.groups import consumer_status
from twistmq.tools.admin.rows import Table as AdminTable
from twistmq.tools.admin.session import AdminError, Broker

__all__ = ["KINDS", "client_page", "group_page", "groups_page"]

_GROUPS: Final = (
    Column("group", "group"), Column("lag", "number"), Column("in_flight", "number"),
    Column("topics", "number"), Column("consumed_per_s", "rate", "Consumed/s"),
    Column("last_consumed", "time"), Column("retries_max", "number", "Retries, max"),
    Column("state", "state"))
_QUEUES: Final = (
    Column("topic", "topic"), Column("broker", "code"), Column("queue", "number"),
    Column("end_offset", "number"), Column("committed_offset", "number"), Column("lag", "number"),
    Column("in_flight", "number"), Column("last_consumed", "time"))
_CLIENTS: Final = (
    Column("client", "client"), Column("address", "code"), Column("language"), Column("version"),
    Column("brokers", "list"))
_SUBSCRIPTIONS: Final = (Column("topic", "topic"), Column("expression", "code"),
                         Column("kind", "state"))
_SETTINGS: Final = (Column("setting", "code"), Column("value"), Column("brokers", "list"))
_REPORT: Final = (Column("section", "state"), Column("name", "code"), Column("value", "text"))
KINDS: Final = ("user", "system", "all")


def groups_page(session: PageSession, query: Query) -> Page:
    """List groups; ``kind`` is one of ``KINDS``, and see :func:`cut_table`."""
    kind = query.one_of("kind", KINDS)
    masters = session.brokers()
    all_progress = begin_progress(session, masters, with_times=True)
    all_groups = _begin_configs(session, masters)
    configs: dict[str, SubscriptionGroupConfig] = {}
    for _, table in all_groups.collect():
        configs |= table
    progress = collect_progress(all_progress)
    sums, topics = progress_by_group(progress), Counter(group for group, _ in progress)
    rows: list[tuple[Cell, ...]] = []
    for name in configs.keys() | sums.keys():
        if kind != "all" and (kind == "system") != is_system_group(name):
            continue
        total, config = sums.get(name, Progress()), configs.get(name)
        state = ("no settings" if config is None else
                 "enabled" if config.consume_enable else "disabled")
        rows.append((name, total.lag, total.in_flight, topics[name], total.rate,
                     total.last_ms or None, config.retry_max_times if config else None, state))
    groups = Table(_GROUPS, rows, empty="There is no group of this kind. A consumer that starts "
                                        "creates its group if autoCreateSubscriptionGroup is set.")
    cut_table(groups, query, sort="-lag")
    page = Page("groups", "Consumer groups", {"groups": groups})
    page.facts = {"kind": kind, "kinds": list(KINDS)}
    return page


def group_page(session: PageSession, query: Query) -> Page:
    """Show the lag of a group by queue, its clients, subscriptions and settings."""
    group = query.required_text("group")
    masters = session.brokers()
    all_stats, all_clients, all_settings = (
        session.begin(masters, lambda broker: group_stats(session, broker, group)),
        _begin_clients(session, masters, group),
        _begin_configs(session, masters))
    queues = _queues(all_stats)
    clients, subscriptions, mode = _clients(all_clients)
    settings = _settings(all_settings, group)
    if not queues and not clients.rows and not settings.rows and not session.unanswered:
        raise AdminError(f"no broker has a group {group}")
    page = Page("group", group, {
        "queues": Table(_QUEUES, queues, "Lag by queue",
                        "The group has not committed an offset yet."),
        "clients": clients, "subscriptions": subscriptions, "settings": settings})
    page.facts = {
        "group": group, "lag": column_sum(queues, 5), "in_flight": column_sum(queues, 6),
        "clients": len(clients.rows), "mode": mode,
        "topics": sorted({str(row[0]) for row in queues})}
    samples = session.sample(
        ("group", group), page.facts["lag"], column_sum(queues, 3), column_sum(queues, 4))
    page.charts = {"lag": line_chart("Lag", samples, lag=0),
                   "rate": rate_chart("Messages per second", samples, stored=1, consumed=2)}
    return page


def _queues(answers: Answers[ConsumeStats]) -> list[tuple[Cell, ...]]:
    return sorted(
        [(queue.topic, queue.broker_name or broker.name, queue.queue_id, each.broker_offset,
          each.consumer_offset, each.broker_offset - each.consumer_offset,
          max(each.pull_offset - each.consumer_offset, 0), each.last_timestamp or None)
         for broker, answer in answers.collect()
         for queue, each in answer.offset_table.items()],
        key=lambda row: (row[0], row[1], row[2]))


def _begin_clients(
    session: PageSession, masters: list[Broker], group: str
) -> Answers[ConsumerConnection]:
    return session.begin(
        masters, lambda broker: connected_clients(session, broker.address, group))


def _clients(answers: Answers[ConsumerConnection]) -> tuple[Table, Table, str]:
    """Return the clients of all masters, their subscriptions, and the mode of consumption."""
    brokers: dict[str, list[str]] = {}
    rows: dict[str, tuple[Cell, ...]] = {}
    subscriptions: dict[str, tuple[Cell, ...]] = {}
    mode = ""
    for broker, answer in answers.collect():
        for each in answer.connection_set:
            client = each.client_id or ""
            brokers.setdefault(client, []).append(broker.name)
            rows[client] = client, each.client_addr, each.language, version_name(each.version)
        for topic, data in answer.subscription_table.items():
            subscriptions[topic] = topic, data.sub_string, data.expression_type
        if answer.connection_set and answer.message_model is not None:
            mode = answer.message_model.value.lower()
    return (
        Table(_CLIENTS, [(*rows[each], sorted(brokers[each])) for each in sorted(rows)], "Clients",
              "No client of this group is connected."),
        Table(_SUBSCRIPTIONS, [subscriptions[each] for each in sorted(subscriptions)],
              "Subscriptions", "There is no subscription while no client is connected."), mode)


def _begin_configs(
    session: PageSession, masters: list[Broker]
) -> Answers[dict[str, SubscriptionGroupConfig]]:
    """Begin to ask brokers for the settings of all their groups.

    The page of one group asks for all groups as well, because a broker may create a group for which
    it is asked by name.
    """
    def configs(broker: Broker) -> dict[str, SubscriptionGroupConfig]:
        reply = session.ask(broker.address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        return SubscriptionGroupWrapper.decode_reply(reply.body).subscription_group_table

    return session.begin(masters, configs)


def _settings(answers: Answers[dict[str, SubscriptionGroupConfig]], group: str) -> Table:
    """Return the settings of a group, each value with the brokers that have it."""
    values: dict[tuple[str, str], list[str]] = {}
    for broker, answer in answers.collect():
        if group in answer:
            for name, value in msgspec.to_builtins(answer[group]).items():
                text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
                values.setdefault((name, text), []).append(broker.name)
    return Table(_SETTINGS, [(name, text, brokers) for (name, text), brokers in values.items()],
                 "Settings", "No broker reports the settings of this group.")


def client_page(session: PageSession, query: Query) -> Page:
    """Show the report of a client on itself, with the stacks of its threads."""
    group, client = query.required_text("group"), query.required_text("client")
    result = consumer_status(session, group=group, client=client, broker=None, stack=True)
    assert isinstance(result, AdminTable)
    rows = list(result.rows)
    stacks = [str(value) for section, _, value in rows if section == "stack"]
    page = Page("client", client, {"report": Table(
        _REPORT, [row for row in rows if row[0] != "stack"],
        empty="The client reported nothing about itself.")})
    page.facts = {"group": group, "client": client, "stack": "\n".join(stacks)}
    return page
