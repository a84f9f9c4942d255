"""The timeline of a message, compiled from its traces.

Clients write traces if an option asks for them, and the plugin ``trace`` of a broker writes them
for clients that do not. Each attempt of a group to consume the message is a separate event.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from twistmq.console.page import Cell, Column, Page, Table
from twistmq.console.page_session import PageSession
from twistmq.console.query import Query
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.errors import RequestRefused
from twistmq.protocol.record import host_text
from twistmq.protocol.topic_names import TRACE_TOPIC
from twistmq.protocol.trace_records import (
    ContextCode,
    EndTransaction,
    MessageType,
    Pub,
    Recall,
    SubAfter,
    SubBefore,
    TraceRecord,
    decode_records,
)
from twistmq.tools.admin.messages import find_messages

__all__ = ["trace_page", "traces_page"]

_EVENTS: Final = (
    Column("time", "time"), Column("ended", "time"), Column("after_ms", "number", "After, ms"),
    Column("event", "state"), Column("group", "group"), Column("client", "code"),
    Column("ms", "number", "Duration, ms"), Column("status", "state"), Column("details", "list"))
#: The messages with traces that each broker returns at most.
_MESSAGES_MAX: Final = 64
#: The width of a bar in the timeline at least, of 1000.
_BAR_MIN: Final = 6
_BAR_WHOLE: Final = 1000


@dataclass(frozen=True, slots=True)
class _Event:
    """Something that happened to the message.

    :param ms: its duration; None: it is not recorded.
    :param ended_ms: when a client recorded its end; None: no record has that.
    :param topic: the topic of the message, if the record names it.
    """

    time_ms: int
    kind: str
    group: str | None
    client: str
    ms: int | None
    status: str
    details: tuple[str, ...] = ()
    topic: str = ""
    keys: str | None = None
    ended_ms: int | None = None


def trace_page(session: PageSession, query: Query) -> Page:
    """Show the timeline of a message.

    ``topic`` is the topic of traces. ``of`` is the topic of the message, to which the page links if
    the traces do not name it.
    """
    message_id, topic = query.required_text("id"), query.text("topic", TRACE_TOPIC)
    page = Page("trace", message_id, {"events": Table(
        _EVENTS, [], empty=f"The topic {topic} has no trace of this message.")})
    page.facts = {"message": message_id, "trace_topic": topic, "topic": query.text("of"),
                  "keys": "", "span_ms": 0, "begin_ms": None, "attempts": 0, "groups": 0,
                  "bars": [], "bar_whole": _BAR_WHOLE}
    try:
        events = _events(session, message_id, topic)
    except RequestRefused as error:
        if error.response_code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        page.tables["events"].empty = f"There is no topic {topic}, so nothing is traced."
        events = []
    if events:
        _show(page, events)
    return page


def _show(page: Page, events: list[_Event]) -> None:
    begin_ms = events[0].time_ms
    span_ms = max(each.time_ms + (each.ms or 0) for each in events) - begin_ms
    page.tables["events"].rows = [_row(event, begin_ms) for event in events]
    consumed = [each for each in events if each.kind == "consumed"]
    page.facts |= {
        "topic": next((each.topic for each in events if each.topic), page.facts["topic"]),
        "keys": next((each.keys for each in events if each.keys), ""),
        "span_ms": span_ms, "begin_ms": begin_ms, "attempts": len(consumed),
        "groups": len({each.group for each in consumed}),
        "bars": [_bar(event, begin_ms, span_ms) for event in events]}


def _row(event: _Event, begin_ms: int) -> tuple[Cell, ...]:
    return (event.time_ms, event.ended_ms, event.time_ms - begin_ms, event.kind, event.group,
            event.client, event.ms, event.status, list(event.details))


def _bar(event: _Event, begin_ms: int, span_ms: int) -> list[int]:
    """Return the begin and the width of an event in the timeline."""
    whole = max(span_ms, 1)
    width = max((event.ms or 0) * _BAR_WHOLE // whole, _BAR_MIN)
    return [min((event.time_ms - begin_ms) * _BAR_WHOLE // whole, _BAR_WHOLE - width), width]


# --- events


def _events(session: PageSession, message_id: str, topic: str) -> list[_Event]:
    """Return all events of a message in the order of their times."""
    events: list[_Event] = []
    begins: dict[str, tuple[SubBefore, str]] = {}
    ends: dict[str, tuple[SubAfter, str]] = {}
    for message in find_messages(session, topic, message_id, max_count=_MESSAGES_MAX):
        client = host_text(message.born_host).rpartition(":")[0]
        for record in _records_of(message.body, message_id):
            if isinstance(record, SubBefore):
                begins[record.request_id] = record, client
            elif isinstance(record, SubAfter):
                ends[record.request_id] = record, client
            else:
                events.append(_single(record, client))
    events += [_consumption(begins.get(request_id), ends.get(request_id))
               for request_id in begins | ends]
    return sorted(events, key=lambda event: event.time_ms)


def _records_of(body: bytes, message_id: str) -> Iterable[TraceRecord]:
    """Return the records of a message; a record of a batch names several messages."""
    return [record for record in decode_records(body).records
            if message_id in record.message_id.split(",")]


def _single(record: Pub | EndTransaction | Recall, client: str) -> _Event:
    """Return the event of a producer."""
    if isinstance(record, Pub):
        details = [_type_name(record.message_type), f"{record.body_length:,} bytes",
                   f"stored by {record.store_host}" if record.store_host else ""]
        return _Event(record.time_ms, "sent", record.group, record.client_host or client,
                      record.cost_ms, _status(record.success),
                      tuple(each for each in details if each), record.topic, record.keys)
    if isinstance(record, EndTransaction):
        details = [record.state, "after a check" if record.from_check else ""]
        return _Event(record.time_ms, "transaction", record.group, client, None, "success",
                      tuple(each for each in details if each), record.topic, record.keys)
    return _Event(record.time_ms, "recalled", record.group, client, None,
                  _status(record.success), topic=record.topic)


def _consumption(
    begin: tuple[SubBefore, str] | None, end: tuple[SubAfter, str] | None
) -> _Event:
    """Return the event of an attempt, of which one half may be missing."""
    before, after = begin[0] if begin else None, end[0] if end else None
    client = (before.client_host if before else None) or (end or begin or (None, ""))[1]
    begin_ms = before.time_ms if before else 0
    if not begin_ms and after is not None:
        begin_ms = max((after.time_ms or 0) - after.cost_ms, 0)
    details = [f"attempt {before.retry_times + 1}" if before else "",
               _code_name(after.context_code) if after and not after.success else ""]
    group = (after.group if after else None) or (before.group if before else None)
    return _Event(
        begin_ms, "consumed", group, client, after.cost_ms if after else None,
        _status(after.success) if after else "no end",
        tuple(each for each in details if each), keys=before.keys if before else None,
        ended_ms=after.time_ms if after else None)


def _status(is_success: bool) -> str:
    return "success" if is_success else "failed"


def _type_name(number: int) -> str:
    """Return the name of a type of message that is not normal."""
    try:
        name = MessageType(number).name.lower().replace("_", " ")
    except ValueError:
        return f"type {number}"
    return "" if name == "normal" else name


def _code_name(number: int | None) -> str:
    """Return why an attempt failed."""
    if number is None:
        return ""
    try:
        return ContextCode(number).name.lower().replace("_", " ")
    except ValueError:
        return f"code {number}"


def traces_page(session: PageSession, query: Query) -> Page:
    """Show the timeline of the message ``id``, or ask for it."""
    if query.text("id"):
        return trace_page(session, query)
    return Page("traces", "Traces", facts={"trace_topic": TRACE_TOPIC})
