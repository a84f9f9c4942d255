"""The list of consumer groups, the page of one group, and the report of one of its clients.

The list needs three requests for each master: for the settings of all groups, for their progress,
and for the times of the groups on the page. It does not say which groups have clients, because
brokers answer that for one group at a time only.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from twistmq.console.group_progress import begin_progress, collect_progress, group_stats
from twistmq.console.page import Cell, Column, Page, Table
from twistmq.console.page_session import Answers, PageSession
from twistmq.console.query import SIZE, Query, cut_table, page_size
from twistmq.console.sample_table import line_chart, rate_chart
from twistmq.protocol.bodies import (
    ConsumerConnection,
    ConsumeStats,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from twistmq.protocol.bodies.progress_table import (
    Progress,
    joined_progress,
    progress_by_group,
)
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
    has_all_times = _needs_all_times(query)
    masters = session.brokers()
    all_progress = begin_progress(session, masters, with_times=has_all_times)
    all_configs = _begin_configs(session, masters)
    configs = {name: config for _, table in all_configs.collect()
               for name, config in table.items()}
    answers = all_progress.collect()
    # Brokers of Apache report the times in any case.
    without_times = [broker for broker, table in answers
                     if not any(each.last_ms for each in table.values())]
    progress = joined_progress(table for _, table in answers)
    sums, topics = progress_by_group(progress), Counter(group for group, _ in progress)

    def row_of(name: str) -> tuple[Cell, ...]:
        total, config = sums.get(name, Progress()), configs.get(name)
        state = ("no settings" if config is None else
                 "enabled" if config.consume_enable else "disabled")
        return (name, total.lag, total.in_flight, topics[name], total.rate, total.last_ms or None,
                config.retry_max_times if config else None, state)

    groups = Table(
        _GROUPS, [row_of(name) for name in configs.keys() | sums.keys()
                  if kind == "all" or (kind == "system") == is_system_group(name)],
        empty="There is no group of this kind. A consumer that starts creates its group if "
              "autoCreateSubscriptionGroup is set.")
    cut_table(groups, query, sort="-lag")
    page = Page("groups", "Consumer groups", {"groups": groups})
    page.facts = {"kind": kind, "kinds": list(KINDS)}
    shown = [str(row[0]) for row in groups.rows if row[0] in sums]
    if shown and without_times and not has_all_times:
        if session.remaining_s:
            _add_times(session, without_times, shown, sums)
            groups.rows = [row_of(str(row[0])) for row in groups.rows]
        else:
            page.notes.append("The times of the last consumed messages are missing, because a "
                              "broker did not answer in time.")
    return page


def _needs_all_times(query: Query) -> bool:
    """Return whether the page needs the times of all groups, and not only of those in its rows.

    Each time costs a broker reads of its store.
    """
    return "last_consumed" in query.text("sort") or page_size(query) > SIZE


def _add_times(
    session: PageSession, brokers: list[Broker], groups: list[str], sums: dict[str, Progress]
) -> None:
    """Ask brokers when some groups consumed their last messages, and add it to their sums."""
    all_times = begin_progress(session, brokers, with_times=True, groups=groups)
    for group, each in progress_by_group(collect_progress(all_times)).items():
        if group in sums:
            sums[group].last_ms = max(sums[group].last_ms, each.last_ms)


def group_page(session: PageSession, query: Query) -> Page:
    """Show the lag of a group by queue, its clients, subscriptions and settings."""
    group = query.required_text("group")
    masters = session.brokers()
    all_stats = session.begin(masters, lambda broker: group_stats(session, broker, group))
    all_clients = session.begin(
        masters, lambda broker: connected_clients(session, broker.address, group))
    all_configs = _begin_configs(session, masters)
    queues = _queue_table(all_stats)
    clients, subscriptions, mode = _client_tables(all_clients)
    settings = _setting_table(all_configs, group)
    if not queues.rows and not clients.rows and not settings.rows and not session.unanswered:
        raise AdminError(f"no broker has a group {group}")
    page = Page("group", group, {"queues": queues, "clients": clients,
                                 "subscriptions": subscriptions, "settings": settings})
    lag = queues.column_sum("lag")
    page.facts = {
        "group": group, "lag": lag, "in_flight": queues.column_sum("in_flight"),
        "clients": len(clients.rows), "mode": mode,
        "topics": sorted({str(row[0]) for row in queues.rows})}
    samples = session.sample(("group", group), lag, queues.column_sum("end_offset"),
                             queues.column_sum("committed_offset"))
    page.charts = {"lag": line_chart("Lag", samples, lag=0),
                   "rate": rate_chart("Messages per second", samples, stored=1, consumed=2)}
    return page


def _queue_table(answers: Answers[ConsumeStats]) -> Table:
    """Return the progress in each queue, in the order of topics, brokers and numbers."""
    rows: list[tuple[Cell, ...]] = []
    for broker, stats in answers.collect():
        for queue, offsets in stats.offset_table.items():
            end, committed = offsets.broker_offset, offsets.consumer_offset
            rows.append((
                queue.topic, queue.broker_name or broker.name, queue.queue_id, end, committed,
                end - committed, max(offsets.pull_offset - committed, 0),
                offsets.last_timestamp or None))
    return Table(_QUEUES, sorted(rows, key=lambda row: row[:3]), "Lag by queue",
                 "The group has not committed an offset yet.")


def _client_tables(answers: Answers[ConsumerConnection]) -> tuple[Table, Table, str]:
    """Return the clients of all masters, their subscriptions, and the mode of consumption.

    A client is connected to several masters, and each of them reports it.
    """
    brokers: dict[str, list[str]] = {}
    clients: dict[str, tuple[Cell, ...]] = {}
    subscriptions: dict[str, tuple[Cell, ...]] = {}
    mode = ""
    for broker, answer in answers.collect():
        for each in answer.connection_set:
            client = each.client_id or ""
            brokers.setdefault(client, []).append(broker.name)
            clients[client] = client, each.client_addr, each.language, version_name(each.version)
        for topic, data in answer.subscription_table.items():
            subscriptions[topic] = topic, data.sub_string, data.expression_type
        if answer.connection_set and answer.message_model is not None:
            mode = answer.message_model.value.lower()
    return (
        Table(_CLIENTS, [(*row, sorted(brokers[client]))
                         for client, row in sorted(clients.items())],
              "Clients", "No client of this group is connected."),
        Table(_SUBSCRIPTIONS, [row for _, row in sorted(subscriptions.items())],
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


def _setting_table(answers: Answers[dict[str, SubscriptionGroupConfig]], group: str) -> Table:
    """Return the settings of a group, each value with the brokers that have it."""
    brokers: dict[tuple[str, str], list[str]] = {}
    for broker, configs in answers.collect():
        if group in configs:
            for name, value in msgspec.to_builtins(configs[group]).items():
                text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
                brokers.setdefault((name, text), []).append(broker.name)
    return Table(_SETTINGS, [(name, text, names) for (name, text), names in brokers.items()],
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
