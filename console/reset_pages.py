"""The reset of the offsets of a group, with each queue before and after it.

The reset itself is the code of ``twistmq admin resetOffsetByTime``: the broker moves a group with
clients and informs them, and a group without clients gets new commits.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from twistmq.console.group_progress import group_stats
from twistmq.console.page import Cell, Column, Page, Table
from twistmq.console.page_session import PageSession
from twistmq.console.query import BadQuery, Query, read_time_ms
from twistmq.console.queue_offsets import QueueOffsets, offsets_text, read_offsets
from twistmq.protocol.bodies import MessageQueue
from twistmq.tools.admin.brokers import runtime_table
from twistmq.tools.admin.clients import connected_clients
from twistmq.tools.admin.offsets import offset_at, reset_offsets
from twistmq.tools.admin.session import AdminError, Broker
from twistmq.tools.admin.topics import topic_stats

__all__ = ["WAYS", "reset_group", "reset_page"]

#: Where a group is moved: to a time, the first message, the end, or an offset in each queue.
WAYS: Final = ("time", "begin", "end", "offsets")
#: The times that stand for the first message and for the end of a queue.
_BEGIN_MS: Final = 0
_END_MS: Final = -1
#: The digits of a time in Unix milliseconds at most.
_TIME_DIGITS_MAX: Final = 15
_QUEUES: Final = (
    Column("broker", "code"), Column("queue", "number"), Column("first_offset", "number"),
    Column("end_offset", "number"), Column("before", "number"), Column("after", "number"),
    Column("change", "number"), Column("lag_after", "number"))
#: Versions of brokers that cannot move a single queue of a group with clients.
_WHOLE_TOPIC: Final = ("V3", "V4")


@dataclass(frozen=True, slots=True)
class _Move:
    """One queue.

    :param before: the offset of the group; None: it has not committed any.
    :param after: None: the queue stays where it is.
    """

    broker: str
    queue_id: int
    first: int
    end: int
    before: int | None
    after: int | None


def reset_page(session: PageSession, query: Query) -> Page:
    """Show the effect of a reset before it happens.

    ``topic`` is the topic, ``to`` one of ``WAYS``, and ``value`` a time, or offsets as
    "BROKER:QUEUE=OFFSET,...". ``undo`` marks the page that follows a reset and leads back.
    """
    group, topic = query.required_text("group"), query.text("topic")
    way, value = query.one_of("to", WAYS), query.text("value")
    table = Table(_QUEUES, [], empty="Choose a topic, and where the group continues in it.")
    page = Page("reset", group, {"queues": table})
    page.facts = {"group": group, "topic": topic, "to": way, "ways": list(WAYS), "value": value,
                  "topics": _topics_of(session, group), "is_undo": query.text("undo") == "1",
                  "is_ready": False, "clients": 0, "shortcuts": _shortcuts(time.time())}
    if not topic or (not value and way in ("time", "offsets")):
        return page
    all_clients = session.begin(session.brokers_of(topic), lambda broker: connected_clients(
        session, broker.address, group))
    moves = _moves(session, group, topic, way, value)
    table.rows = [_row(move) for move in moves]
    table.empty = f"The group {group} has no queue in {topic}."
    page.facts |= {
        "is_ready": any(move.after is not None and move.after != move.before for move in moves),
        "clients": len({each.client_id for _, answer in all_clients.collect()
                        for each in answer.connection_set}),
        "again": sum(max(_difference(move), 0) for move in moves),
        "skipped": sum(max(-_difference(move), 0) for move in moves),
        "undo": _way_back(moves, page)}
    return page


def _shortcuts(now_s: float) -> list[dict[str, str]]:
    """Return the places to which groups are moved most, with the parameters of this page."""
    def ago(text: str, seconds: int) -> dict[str, str]:
        moment = datetime.fromtimestamp(now_s - seconds)
        return {"text": text, "to": "time", "value": moment.isoformat(" ", "minutes")}

    return [ago("An hour ago", 3_600), ago("A day ago", 86_400),
            {"text": "The first message", "to": "begin", "value": ""},
            {"text": "The end", "to": "end", "value": ""}]


def _difference(move: _Move) -> int:
    """Return how many messages of a queue are consumed again; a negative number is skipped."""
    if move.before is None or move.after is None:
        return 0
    return move.before - move.after


def _row(move: _Move) -> tuple[Cell, ...]:
    after = move.before if move.after is None else move.after
    change = None if move.before is None or after is None else after - move.before
    return (move.broker, move.queue_id, move.first, move.end, move.before, after, change,
            None if after is None else max(move.end - after, 0))


def _way_back(moves: Iterable[_Move], page: Page) -> str:
    """Return the offsets before a reset, in the form that the page reads; empty: there is none."""
    try:
        return offsets_text({(move.broker, move.queue_id): move.before for move in moves
                             if move.before is not None and move.after is not None})
    except BadQuery:
        page.notes.append("This topic has too many queues for a way back by one form.")
        return ""


def _topics_of(session: PageSession, group: str) -> list[str]:
    """Return the topics in which a group has offsets."""
    answers = session.begin(session.brokers(), lambda broker: group_stats(session, broker, group))
    return sorted({queue.topic for _, stats in answers.collect() for queue in stats.offset_table})


def _moves(
    session: PageSession, group: str, topic: str, way: str, value: str
) -> list[_Move]:
    """Return the queues of a topic, in their order, with the offsets before and after a reset.

    :raises BadQuery: when the value is not valid.
    """
    given = read_offsets(value, "value") if way == "offsets" else {}
    at_ms = 0 if way == "offsets" else _time_of(way, value)

    def of_broker(broker: Broker) -> list[_Move]:
        progress = group_stats(session, broker, group, topic).offset_table
        moves = []
        for queue, bounds in sorted(topic_stats(session, broker, topic).offset_table.items()):
            own = progress.get(MessageQueue(topic, queue.broker_name, queue.queue_id))
            name = queue.broker_name or broker.name
            after = (given.get((name, queue.queue_id)) if way == "offsets" else
                     offset_at(session, broker.address, queue, at_ms))
            moves.append(_Move(name, queue.queue_id, bounds.min_offset, bounds.max_offset,
                               own.consumer_offset if own else None, after))
        return moves

    answers = session.begin(session.brokers_of(topic), of_broker)
    moves = [move for _, each in answers.collect() for move in each]
    if not session.unanswered:
        _check_offsets(topic, given, moves)
    return moves


def _check_offsets(topic: str, offsets: QueueOffsets, moves: Iterable[_Move]) -> None:
    """:raises BadQuery: when a queue does not exist, or ends before its new offset."""
    ends = {(move.broker, move.queue_id): move.end for move in moves}
    for (broker, queue_id), offset in sorted(offsets.items()):
        end = ends.get((broker, queue_id))
        if end is None:
            raise BadQuery(f"topic {topic} has no queue {queue_id} of {broker}")
        if offset > end:
            raise BadQuery(f"queue {queue_id} of {broker} ends at offset {end}")


def _time_of(way: str, value: str) -> int:
    """Return the time of a reset, Unix ms; :raises BadQuery: when the value cannot be read."""
    if way != "time":
        return _BEGIN_MS if way == "begin" else _END_MS
    return max(read_time_ms(value, digits_max=_TIME_DIGITS_MAX), _BEGIN_MS)


# --- the reset


def reset_group(session: PageSession, form: Query) -> str:
    """Move a group; :returns: a line with the result, and a line for each queue.

    :raises BadQuery: when a field is not valid, or the form was already carried out.
    """
    group, topic = form.required_text("group"), form.required_text("topic")
    way = form.one_of("to", WAYS)
    value = form.required_text("value") if way in ("time", "offsets") else ""
    before = {(move.broker, move.queue_id): move.before
              for move in _moves(session, group, topic, way, value)}
    moved = (_move_queues(session, group, topic, read_offsets(value, "value"), before)
             if way == "offsets" else
             _move_topic(session, group, topic, _time_of(way, value)))
    lines = [f"queue {queue} of {broker}: from {_text(before.get((broker, queue)))} to {offset}"
             for (broker, queue), offset in sorted(moved.items())]
    return "\n".join([f"The group {group} was moved in {len(lines)} queues of {topic}.", *lines,
                      *(f"failed: {each}" for each in session.failures)])


def _text(offset: int | None) -> str:
    return "no offset" if offset is None else str(offset)


def _move_topic(session: PageSession, group: str, topic: str, at_ms: int) -> QueueOffsets:
    rows = reset_offsets(session, group=group, topic=topic, at_ms=at_ms, force=True, broker=None,
                         queue=None, offset=None, route_topic=None, cplus=False)
    return {(str(broker), int(str(queue))): int(str(offset)) for broker, _, queue, offset in rows}


def _move_queues(
    session: PageSession, group: str, topic: str, offsets: QueueOffsets,
    known: Mapping[tuple[str, int], int | None],
) -> QueueOffsets:
    """Move single queues; a queue that does not exist stops the reset before anything is moved."""
    brokers = {each.name: each for each in session.brokers_of(topic)}
    for name, queue_id in offsets:
        if (name, queue_id) not in known:
            raise BadQuery(f"topic {topic} has no queue {queue_id} of {name}")
    for name in sorted({name for name, _ in offsets}):
        _check_single_queues(session, group, brokers[name])
    moved: dict[tuple[str, int], int] = {}
    for (name, queue_id), offset in sorted(offsets.items()):
        [row] = reset_offsets(
            session, group=group, topic=topic, at_ms=_BEGIN_MS, force=True,
            broker=brokers[name].address, queue=queue_id, offset=offset, route_topic=None,
            cplus=False)
        moved[name, queue_id] = int(str(row[3]))
    return moved


def _check_single_queues(session: PageSession, group: str, broker: Broker) -> None:
    """:raises AdminError: when a broker would move the whole topic instead of a queue."""
    version = runtime_table(session, broker).get("brokerVersionDesc", "")
    if version.startswith(_WHOLE_TOPIC) and connected_clients(
            session, broker.address, group).connection_set:
        raise AdminError(f"{broker.name} is older than 5.0 and cannot move single queues of a "
                         "group with clients: stop the clients first")
