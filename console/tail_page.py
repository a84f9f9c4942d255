"""The live tail of a topic: the messages that were stored since the last look.

The page asks once in a while for the messages since a mark, an offset for each queue. A look costs
one request for each broker, and further ones only for queues with new messages. No group and no
offset is involved, and nothing remains on a server when the page is closed.
"""

from __future__ import annotations

from typing import Final

from twistmq.console.message_filter import FIELDS, MessageFilter
from twistmq.console.message_scan import (
    MESSAGES,
    Hit,
    QueueReader,
    QueueScan,
    merged,
)
from twistmq.console.page import Page, Table
from twistmq.console.page_session import PageSession
from twistmq.console.query import Query
from twistmq.console.queue_offsets import offsets_text, read_offsets
from twistmq.tools.admin.session import Broker
from twistmq.tools.admin.topics import topic_stats

__all__ = ["tail_page"]

#: The time between two looks, ms.
PERIOD_MS: Final = 600
#: The number of messages with which a tail begins, and the largest number of one look.
_FIRST_COUNT: Final = 10
_COUNT_MAX: Final = 200


def tail_page(session: PageSession, query: Query) -> Page:
    """Show the messages of ``topic`` since ``from``, the newest first.

    ``tag``, ``sql`` and ``text`` belong to the :class:`MessageFilter`. Without ``from``, the page
    shows the newest messages. The fact ``from`` is the mark for the next look, and ``skipped`` is
    the number of messages that were too many for this look.

    :raises TooManyTails: when too many tails look at the same time.
    """
    topic, mark = query.text("topic"), read_offsets(query.text("from"), "from")
    page = Page("tail", topic or "Live tail", {"messages": Table(
        MESSAGES, [], empty="Each message appears here as soon as it is stored." if topic else (
            "Enter the name of a topic."))})
    page.facts = {"topic": topic, "from": "", "skipped": 0, "period_ms": PERIOD_MS,
                  "values": {name: query.text(name) for name in FIELDS}}
    if topic:
        with session.tail_limit.serve():
            _look(session, topic, MessageFilter(query), mark, page)
    return page


def _look(
    session: PageSession, topic: str, selection: MessageFilter, mark: dict[tuple[str, int], int],
    page: Page,
) -> None:
    count = _COUNT_MAX if mark else _FIRST_COUNT
    reader = QueueReader(session, topic, selection, count)
    following = dict(mark)

    def look(broker: Broker) -> tuple[list[QueueScan], dict[tuple[str, int], int], int]:
        scans, ends, skipped = [], {}, 0
        for queue, bounds in topic_stats(session, broker, topic).offset_table.items():
            key = broker.name, queue.queue_id
            if not mark:
                scans.append(reader.read_backward(
                    broker, queue.queue_id, bounds, bounds.max_offset))
            # A queue that is new since the last look is read from its beginning.
            elif (begin := mark.get(key, bounds.min_offset)) < bounds.max_offset:
                newest = max(begin, bounds.max_offset - _COUNT_MAX)
                skipped += newest - begin
                scans.append(reader.read_forward(broker, queue.queue_id, bounds, newest))
                ends[key] = scans[-1].stop
                continue
            ends[key] = bounds.max_offset
        return scans, ends, skipped

    hits: list[Hit] = []
    all_scans: list[QueueScan] = []
    for _, (scans, ends, skipped) in session.begin(session.brokers_of(topic), look).collect():
        all_scans += scans
        following |= ends
        page.facts["skipped"] += skipped
    if mark:
        hits = sorted((hit for scan in all_scans for hit in scan.hits),
                      key=lambda hit: (-hit.stored_ms, -hit.offset))
        page.facts["skipped"] += max(len(hits) - count, 0)
        hits = hits[:count]
    else:
        hits, _ = merged(all_scans, count)
    page.tables["messages"].rows = [hit.row for hit in hits]
    page.facts["from"] = offsets_text(following)
