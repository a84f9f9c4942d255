"""The page of messages: the newest of a topic, or those with a key, an id, an offset or a time.

Reading does not move the offset of any group. A search reads a bounded number of messages,
names the offset at which it stopped, and offers to go on from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from twistmq.client.base.codecs import decompress
from twistmq.client.base.errors import Undecodable
from twistmq.console.body_decoder import decode_body
from twistmq.console.dead_letters import origin_topic
from twistmq.console.message_filter import FIELDS, MessageFilter
from twistmq.console.message_groups import message_groups
from twistmq.console.message_scan import (
    MESSAGES,
    QueueReader,
    QueueScan,
    merged,
    message_row,
    stop_notes,
)
from twistmq.console.page import Cell, Column, Download, Page, Table
from twistmq.console.page_session import PageSession
from twistmq.console.query import BadQuery, Query, read_time_ms
from twistmq.console.queue_offsets import offsets_text, read_offsets
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.record import StoredMessage, host_text
from twistmq.protocol.topic_names import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX
from twistmq.tools.admin.messages import by_either_id, find_messages
from twistmq.tools.admin.offsets import offset_at
from twistmq.tools.admin.output import time_text
from twistmq.tools.admin.records import message_id_of, offset_id
from twistmq.tools.admin.session import AdminError, Broker
from twistmq.tools.admin.topics import topic_stats

__all__ = ["WAYS", "body_page", "messages_page"]

#: The ways to find messages; the first one is the default.
WAYS: Final = ("newest", "time", "offset", "key", "id")
_DETAILS: Final = (Column("name", "code"), Column("value"))
#: The messages on a page: as a default, and at most.
_COUNT: Final = 50
COUNT_MAX: Final = 500
_KEY_COUNT_MAX: Final = 64
_NO_END: Final = 2**63 - 1
#: The topics of a group alone.
_OF_GROUPS: Final = (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX)


def messages_page(session: PageSession, query: Query) -> Page:
    """Show messages.

    ``topic`` is their topic and ``by`` one of ``WAYS``. ``value`` is the key, the id, the time or
    the offset; an offset also has ``broker`` and ``queue``. ``tag``, ``sql`` and ``text`` belong
    to the :class:`MessageFilter`, and ``count`` is the number of messages. If the fact ``from``
    is not empty, the search can go on: the same address with the parameter ``from`` shows the
    following messages. An id, and a key that only one message has, also show the body, the
    properties and the groups of the message.
    """
    by, topic = query.one_of("by", WAYS), query.text("topic")
    page = Page("messages", topic or "Messages", {"messages": Table(
        MESSAGES, [], empty=_empty_text(query, by) if topic else "Enter the name of a topic.")})
    page.facts = {"topic": topic, "by": by, "ways": list(WAYS), "from": "", "values": {
        name: query.text(name) for name in ("value", "broker", "queue", *FIELDS, "count")},
        "is_continued": bool(query.text("from"))}
    if not topic:
        return page
    if by in ("key", "id"):
        text = query.required_text("value")
        messages = (by_either_id(session, topic, text, None) if by == "id" else find_messages(
            session, topic, text, max_count=_KEY_COUNT_MAX))
        if by == "id" or len(messages) == 1:
            _show_details(session, page, messages)
        names = {each.address: each.name for each in session.all_brokers()}
        page.tables["messages"].rows = [_row(message, names) for message in messages]
    else:
        _search(session, query, by, topic, page)
    return page


def _empty_text(query: Query, by: str) -> str:
    """Return what an operator can do when a search finds nothing."""
    if by == "key":
        return ("No message of this topic has this key. A key is compared as a whole, and messages "
                "leave when they are as old as the broker keeps them.")
    if any(query.text(name) for name in FIELDS):
        return "No message matches: remove a part of the filter."
    if by == "newest":
        return "The topic has no messages: send one on the page of the topic, or start a producer."
    return "There is no message from here on: choose an earlier time or offset."


def _show_details(session: PageSession, page: Page, messages: list[StoredMessage]) -> None:
    """Show the body, the properties and the groups of the newest message."""
    for message in messages[-1:]:
        _add_details(page, message)
        if not message.topic.startswith(_OF_GROUPS):
            page.tables["groups"] = message_groups(session, message)


def _search(session: PageSession, query: Query, by: str, topic: str, page: Page) -> None:
    count = query.number("count", _COUNT, 1, COUNT_MAX)
    reader = QueueReader(session, topic, MessageFilter(query), count)
    mark = read_offsets(query.text("from"), "from")
    broker_name = query.required_text("broker") if by == "offset" else ""
    if by == "offset" and not mark:
        mark = {(broker_name, query.number("queue", 0)): query.number("value", 0)}
    begin_ms = read_time_ms(query.required_text("value")) if by == "time" and not mark else 0

    def scan(broker: Broker) -> list[QueueScan]:
        scans = []
        for queue, bounds in sorted(topic_stats(session, broker, topic).offset_table.items()):
            at = mark.get((broker.name, queue.queue_id))
            if mark and at is None:
                continue
            if by == "newest":
                scans.append(reader.read_backward(
                    broker, queue.queue_id, bounds, _NO_END if at is None else at))
                continue
            if at is None:
                at = offset_at(session, broker.address,
                               MessageQueue(topic, broker.name, queue.queue_id), begin_ms)
            scans.append(reader.read_forward(broker, queue.queue_id, bounds, at))
        return scans

    brokers = [session.named(broker_name)] if by == "offset" else [
        each for each in session.brokers_of(topic)
        if not mark or any(name == each.name for name, _ in mark)]
    scans = [each for _, part in session.begin(brokers, scan).collect() for each in part]
    if by == "offset" and not scans and not session.unanswered:
        raise AdminError(f"{broker_name} has no such queue of topic {topic}")
    hits, following = merged(scans, count)
    page.tables["messages"].rows = [hit.row for hit in hits]
    page.notes += stop_notes(scans, count)
    try:
        page.facts["from"] = offsets_text(following)
    except BadQuery as error:
        page.notes.append(f"{error}.")
    if following:
        page.tables["messages"].empty = "The search has not found a message yet."


def _row(message: StoredMessage, names: Mapping[str, str]) -> tuple[Cell, ...]:
    """Return the row of a message; ``names`` has the names of brokers by address."""
    address = host_text(message.store_host)
    return message_row(message, decode_body(message), names.get(address, address))


def body_page(session: PageSession, query: Query) -> Page:
    """Return the body of the message with ``id`` in ``topic`` as a file.

    The file has the bytes that the producer sent.
    """
    topic, text = query.required_text("topic"), query.required_text("id")
    messages = by_either_id(session, topic, text, None)
    if not messages:
        raise AdminError(f"the message {text} of topic {topic} is damaged")
    message = messages[-1]
    try:
        body = bytes(decompress(message.body, message.sys_flag))
    except Undecodable:
        # What cannot be decompressed is returned as it is stored.
        body = bytes(message.body)
    name = message_id_of(message)
    return Page("body", "Body", facts={"topic": topic, "message": name, "body_bytes": len(body)},
                file=Download(f"{name}.bin", body))


def _add_details(page: Page, message: StoredMessage) -> None:
    body = decode_body(message)
    rows: list[tuple[Cell, ...]] = [
        ("offset id", offset_id(message)), ("born", time_text(message.born_timestamp)),
        ("born host", host_text(message.born_host)), ("reconsume times", message.reconsume_times),
        *((name, text) for name, text in sorted(message.properties_map().items()))]
    page.tables["details"] = Table(_DETAILS, rows, "Properties")
    page.facts |= {"id": message_id_of(message), "body": body.text, "body_kind": body.kind,
                   "body_bytes": body.size, "is_body_cut": body.is_cut,
                   "letters_of": message.topic.removeprefix(DLQ_GROUP_TOPIC_PREFIX)
                   if message.topic.startswith(DLQ_GROUP_TOPIC_PREFIX) else "",
                   "origin": origin_topic(message)}
