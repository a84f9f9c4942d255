"""The pages of brokers and the overview.

Each broker gets two requests: for its figures, and for the state of its replication.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from twistmq.console.group_progress import begin_progress, collect_progress
from twistmq.console.page import Cell, Column, Page, Table
from twistmq.console.page_session import Answers, PageSession
from twistmq.console.query import Query
from twistmq.console.sample_table import line_chart
from twistmq.console.topic_pages import begin_topics, is_system_name, own_topics
from twistmq.protocol.bodies import HARuntimeInfo
from twistmq.protocol.bodies.progress_table import ProgressTable, progress_by_group
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.decimal_text import whole_number
from twistmq.protocol.errors import RequestRefused
from twistmq.protocol.flags import MASTER_ID
from twistmq.protocol.topic_names import is_system_group
from twistmq.tools.admin.brokers import runtime_table
from twistmq.tools.admin.session import Broker

__all__ = ["brokers_page", "overview_page"]

_BROKERS: Final = (
    Column("broker", "code"), Column("cluster", "text"), Column("role", "state"),
    Column("address", "code"), Column("version"), Column("in_per_s", "rate", "In/s"),
    Column("out_per_s", "rate", "Out/s"), Column("stored_today", "number"),
    Column("disk", "percent"), Column("replication", "list"))
_LAGS: Final = (Column("group", "group"), Column("lag", "number"),
                Column("consumed_per_s", "rate", "Consumed/s"))
#: The row in the figures of a broker that is a member of a group (DLedger).
_GROUP_ROLE: Final = "dledgerRole"
#: Rows of the groups with the largest lag on the overview.
_LAGS_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class _State:
    """The answers of a broker.

    :param replication: None: the broker does not report it.
    :param refusal: the reason why it does not.
    """

    figures: Mapping[str, str]
    replication: HARuntimeInfo | None
    refusal: str = ""


def _state(session: PageSession, broker: Broker) -> _State:
    figures = runtime_table(session, broker)
    if _GROUP_ROLE in figures:
        # A group replaces the replication of pairs.
        return _State(figures, None)
    try:
        return _State(figures, HARuntimeInfo.decode(
            session.ask(broker.address, RequestCode.GET_BROKER_HA_STATUS).body))
    except RequestRefused as error:
        # Brokers before 5.0 do not know the request, and a small account may not use it.
        is_old = error.response_code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        return _State(figures, None, "not reported by this release" if is_old
                      else "refused to this account")


def _first_number(text: str | None) -> float | None:
    """Return the first number of a figure such as "12.5 10.1 9.9"; or None."""
    try:
        number = float((text or "").split()[0])
    except (ValueError, IndexError):
        return None
    return number if math.isfinite(number) else None


def _difference(figures: Mapping[str, str], begin: str, end: str) -> int | None:
    first, last = (whole_number(figures.get(name, "")) for name in (begin, end))
    return None if first is None or last is None else last - first


def _role(broker: Broker, state: _State) -> str:
    """Return the role that the broker reports, or the one that its registration implies."""
    role = state.figures.get("brokerRole", "")
    if not role and state.replication is not None:
        role = "" if state.replication.master else "SLAVE"
    is_slave = role == "SLAVE" if role else broker.broker_id != MASTER_ID
    return "slave" if is_slave else "master"


def _replication(state: _State) -> list[str]:
    """Return a line for each connection of the replication, or for each member of a group."""
    if _GROUP_ROLE in state.figures:
        return _membership(state.figures)
    info = state.replication
    if info is None:
        return [state.refusal]
    if not info.master:
        own = info.ha_client_runtime_info
        if not own.activated:
            return ["not connected to its master"]
        behind = max(own.master_flush_offset - own.max_offset, 0)
        return [f"follows {own.master_addr}, {behind:,} bytes behind"]
    return [f"{each.addr}: {max(each.diff, 0):,} bytes behind"
            + ("" if each.in_sync else ", not in sync") for each in info.ha_connection_info]


def _membership(figures: Mapping[str, str]) -> list[str]:
    """Return the place of a broker in its group, and the other members as the leader knows them."""
    term, leader = figures.get("dledgerTerm", ""), figures.get("dledgerLeader", "")
    if figures[_GROUP_ROLE] == "leader":
        lines = [f"leads its group in term {term}"]
    elif leader:
        lines = [f"follows {leader} in term {term}"]
    else:
        lines = [f"knows no leader in term {term}"]
    if figures.get("dledgerMayVote") == "false":
        lines.append("may not vote before it has caught up")
    for name, text in sorted(figures.items()):
        kind, _, member = name.partition(".")
        if kind == "dledgerLag":
            lag = whole_number(text)
            line = f"{member}: {'unknown' if lag is None else f'{lag:,}'} entries behind"
            is_silent = figures.get(f"dledgerReachable.{member}") == "false"
            lines.append(f"{line}, does not answer" if is_silent else line)
    return lines


def _row(broker: Broker, state: _State | None, *, is_denied: bool) -> tuple[Cell, ...]:
    if state is None:
        return (broker.name, broker.cluster, "denied" if is_denied else "no answer",
                broker.address, *(None,) * 5, [])
    figures = state.figures
    ratio = _first_number(figures.get("commitLogDiskRatio"))
    return (broker.name, broker.cluster, _role(broker, state), broker.address,
            figures.get("brokerVersionDesc"), _first_number(figures.get("putTps")),
            _first_number(figures.get("getTransferredTps")),
            _difference(figures, "msgPutTotalTodayMorning", "msgPutTotalTodayNow"),
            None if ratio is None else ratio * 100, _replication(state))


def _begin_states(session: PageSession) -> Answers[_State]:
    return session.begin(session.all_brokers(), lambda broker: _state(session, broker))


def _broker_table(session: PageSession, answers: Answers[_State]) -> tuple[Table, int]:
    """Return the table of all brokers, and the number of brokers that answered."""
    states = {broker.address: state for broker, state in answers.collect()}
    rows = [_row(broker, states.get(broker.address),
                 is_denied=broker.address in session.denying)
            for broker in session.all_brokers()]
    return Table(_BROKERS, rows, empty=(
        "The name server knows no broker. Start one with this name server, or check the address "
        "after -n.")), len(states)


def brokers_page(session: PageSession, query: Query) -> Page:
    """Show all masters and slaves with their figures."""
    table, answer_count = _broker_table(session, _begin_states(session))
    return Page("brokers", "Brokers", {"brokers": table},
                {"count": len(table.rows), "answering": answer_count})


def overview_page(session: PageSession, query: Query) -> Page:
    """Show the sums of all clusters, the brokers, and the groups with the largest lag."""
    masters = [broker for broker in session.all_brokers() if broker.broker_id == MASTER_ID]
    states = _begin_states(session)
    all_progress = begin_progress(session, masters, with_times=False)
    all_topics = begin_topics(session, masters)
    table, answer_count = _broker_table(session, states)
    progress = {key: each for key, each in collect_progress(all_progress).items()
                if not is_system_group(key[0])}
    own_names = own_topics(masters)
    topics = {name for _, topics in all_topics.collect() for name in topics
              if not is_system_name(name) and name not in own_names}
    page = Page("overview", "Overview", {"brokers": table, "lags": _lag_table(progress)}, {
        "brokers": len(table.rows), "answering": answer_count,
        "denied": len(session.denying), "topics": len(topics),
        "groups": len({group for group, _ in progress}),
        "in_per_s": table.column_sum("in_per_s"),
        "out_per_s": table.column_sum("out_per_s"),
        "stored_today": int(table.column_sum("stored_today")),
        "lag": sum(each.lag for each in progress.values())})
    samples = session.sample(("overview", ""), *(
        page.facts[name] for name in ("in_per_s", "out_per_s", "lag")))
    page.charts = {
        "rate": line_chart("Messages per second", samples, **{"in": 0, "out": 1}),
        "lag": line_chart("Lag of all groups", samples, lag=2)}
    return page


def _lag_table(progress: ProgressTable) -> Table:
    sums = progress_by_group(progress)
    largest = sorted((name for name, each in sums.items() if each.lag > 0),
                     key=lambda name: (-sums[name].lag, name))[:_LAGS_MAX]
    return Table(_LAGS, [(name, sums[name].lag, sums[name].rate) for name in largest],
                 "Largest lag", "No group has messages that wait for it.")
