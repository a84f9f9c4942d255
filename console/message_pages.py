"""The page of messages: the newest of a topic, or those with a key, an id, an offset or a time.

Reading does not move the offset of any group. A search for a text reads a bounded number of
messages and says where it stopped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from twistmq.console.body_decoder import body_preview, decode_body
from twistmq.console.page import Cell, Column, Page, Table
from twistmq.console.page_session import PageSession
from twistmq.console.query import BadQuery, Query
from twistmq.protocol.bodies import MessageQueue, TopicOffset
from twistmq.protocol.properties import KEYS, TAGS
from twistmq.protocol.record import StoredMessage, host_text
from twistmq.tools.admin.message_listing import pull
from twistmq.tools.admin.messages import by_either_id, find_messages
from twistmq.tools.admin.offsets import offset_at
from twistmq.tools.admin.output import time_text
from twistmq.tools.admin.records import message_id_of, offset_id
from twistmq.tools.admin.session import Broker
from twistmq.tools.admin.topics import topic_stats

__all__ = ["WAYS", "messages_page"]

#: The ways to find messages; the first one is the default.
WAYS: Final = ("newest", "time", "offset", "key", "id")
_MESSAGES: Final = (
    Column("message", "text"), Column("stored", "time"), Column("broker", "code"),
    Column("queue", "number"), Column("offset", "number"), Column("tag", "code"),
    Column("keys", "code"), Column("bytes", "bytes", "Size"), Column("body", "code"))
_DETAILS: Final = (Column("name", "code"), Column("value"))
#: The messages on a page: as a default, and at most.
_COUNT: Final = 50
COUNT_MAX: Final = 500
#: The messages of one queue that a search for a text reads.
SCAN_MAX: Final = 1_000
_PULL_MAX: Final = 32
_KEY_COUNT_MAX: Final = 64


def messages_page(session: PageSession, query: Query) -> Page:
    """Show messages.

    ``topic`` is their topic and ``by`` one of ``WAYS``. ``value`` is the key, the id, the time or
    the offset; an offset also has ``broker`` and ``queue``. ``tag`` is an expression such as
    "a || b", ``text`` a part of the body, and ``count`` the number of messages.
    """
    by, topic = query.one_of("by", WAYS), query.text("topic")
    page = Page("messages", topic or "Messages", {"messages": Table(
        _MESSAGES, [], empty="No message was found." if topic else "Enter the name of a topic.")})
    page.facts = {"topic": topic, "by": by, "ways": list(WAYS), "values": {
        name: query.text(name) for name in ("value", "broker", "queue", "tag", "text", "count")}}
    if topic:
        messages = _find(session, query, by, topic, page)
        names = {each.address: each.name for each in session.all_brokers()}
        page.tables["messages"].rows = [_row(message, names) for message in messages]
    return page


def _find(
    session: PageSession, query: Query, by: str, topic: str, page: Page
) -> list[StoredMessage]:
    count = query.number("count", _COUNT, 1, COUNT_MAX)
    if by == "key":
        return find_messages(session, topic, query.required_text("value"),
                             max_count=_KEY_COUNT_MAX)
    if by == "id":
        messages = by_either_id(session, topic, query.required_text("value"), None)
        for message in messages[-1:]:
            _add_details(page, message)
        return messages
    scan = _Scan(session, topic, query.text("tag", "*"), query.text("text").lower(), count)
    if by == "offset":
        broker, queue = query.required_text("broker"), query.number("queue", 0)
        messages = scan.read_forward(session.named(broker), MessageQueue(topic, broker, queue),
                                query.number("value", 0))
    else:
        begin = None if by == "newest" else _time_ms(query.required_text("value"))
        messages = [message for _, each in session.begin(
            session.brokers_of(topic), lambda broker: scan.of_broker(broker, begin)).collect()
            for message in each]
        messages.sort(key=lambda each: (each.store_timestamp, each.queue_offset),
                      reverse=by == "newest")
    page.notes += sorted(scan.notes)
    return messages[:count]


class _Scan:
    """Reads queues of a topic; ``notes`` say where it stopped before the end.

    :param expression: the tags of the messages.
    :param text: a part of their bodies in lower case; empty: every message counts.
    :param count: the number of messages after which a queue is left.
    """

    def __init__(
        self, session: PageSession, topic: str, expression: str, text: str, count: int
    ) -> None:
        self._session = session
        self._topic = topic
        self._expression = expression
        self._text = text
        self._count = count
        self.notes: set[str] = set()

    def of_broker(self, broker: Broker, begin_ms: int | None) -> list[StoredMessage]:
        """Return messages of all queues of a broker: from a time on, or None: the newest."""
        messages: list[StoredMessage] = []
        stats = topic_stats(self._session, broker, self._topic)
        for queue, bounds in sorted(stats.offset_table.items()):
            if begin_ms is None:
                messages += self._newest(broker, queue, bounds)
            else:
                begin = offset_at(self._session, broker.address, queue, begin_ms)
                messages += self.read_forward(broker, queue, begin)
        return messages

    def _newest(
        self, broker: Broker, queue: MessageQueue, bounds: TopicOffset
    ) -> list[StoredMessage]:
        """Read a queue backwards, one piece after the other."""
        messages: list[StoredMessage] = []
        end, lowest = bounds.max_offset, max(bounds.min_offset, bounds.max_offset - SCAN_MAX)
        while end > lowest and len(messages) < self._count:
            begin = max(end - _PULL_MAX, lowest)
            messages += reversed(self._read(broker, queue, begin, end))
            end = begin
        if len(messages) < self._count and end > bounds.min_offset:
            self._note(queue, end, "older")
        return messages

    def read_forward(self, broker: Broker, queue: MessageQueue, begin: int) -> list[StoredMessage]:
        """Read a queue from an offset on."""
        end = min(offset_at(self._session, broker.address, queue, -1), begin + SCAN_MAX)
        messages = self._read(broker, queue, begin, end, self._count)
        if len(messages) < self._count and end == begin + SCAN_MAX:
            self._note(queue, end, "newer")
        return messages

    def _note(self, queue: MessageQueue, offset: int, kind: str) -> None:
        self.notes.add(f"The search in queue {queue.queue_id} of {queue.broker_name} stopped at "
                       f"offset {offset}: {kind} messages were not read.")

    def _read(
        self, broker: Broker, queue: MessageQueue, begin: int, end: int,
        max_count: int = SCAN_MAX,
    ) -> list[StoredMessage]:
        messages: list[StoredMessage] = []
        offset = begin
        while offset < end and len(messages) < max_count:
            pulled, following, is_end = pull(
                self._session, broker.address, queue, offset, _PULL_MAX, self._expression)
            messages += [each for each in pulled
                         if each.queue_offset < end and self._has_text(each)]
            if is_end or following <= offset:
                break
            offset = following
        return messages

    def _has_text(self, message: StoredMessage) -> bool:
        return not self._text or self._text in decode_body(message).text.lower()


def _row(message: StoredMessage, names: Mapping[str, str]) -> tuple[Cell, ...]:
    """Return the row of a message; ``names`` has the names of brokers by address."""
    properties = message.properties_map()
    body = decode_body(message)
    address = host_text(message.store_host)
    return (message_id_of(message), message.store_timestamp, names.get(address, address),
            message.queue_id, message.queue_offset, properties.get(TAGS), properties.get(KEYS),
            body.size, body_preview(body))


def _add_details(page: Page, message: StoredMessage) -> None:
    body = decode_body(message)
    rows: list[tuple[Cell, ...]] = [
        ("offset id", offset_id(message)), ("born", time_text(message.born_timestamp)),
        ("born host", host_text(message.born_host)), ("reconsume times", message.reconsume_times),
        *((name, text) for name, text in sorted(message.properties_map().items()))]
    page.tables["details"] = Table(_DETAILS, rows, "Properties")
    page.facts |= {"body": body.text, "body_kind": body.kind, "body_bytes": body.size,
                   "is_body_cut": body.is_cut}


def _time_ms(text: str) -> int:
    """Read a time: Unix ms, or a local date and time.

    :raises BadQuery: when it is neither.
    """
    if re.fullmatch(r"[0-9]{1,18}", text):
        return int(text)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise BadQuery("value is not a time such as 2026-11-30 14:05") from None
