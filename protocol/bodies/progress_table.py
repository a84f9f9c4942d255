"""The progress of all groups of a broker, read from one answer of up to several megabytes.

The answer to GET_BROKER_CONSUME_STATS writes queues as keys of a map, which is not JSON:

    "offsetTable":{{"brokerName":"a","queueId":0,"topic":"t"}:{"brokerOffset":9,...},...}

The general reader of that dialect takes seconds for some thousand groups. This module joins each
key with its value into one object and makes the map a list, which are a few replacements of bytes.
A compiled reader of plain JSON reads the result. A body that looks different goes to the general
reader.

Source: ConsumeStatsList, ConsumeStats, OffsetWrapper @5.3.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from twistmq.protocol.bodies.admin import ConsumeStatsList
from twistmq.protocol.bodies.group import ConsumeStats
from twistmq.protocol.header import Int64

__all__ = ["Progress", "ProgressTable", "joined_progress", "progress_by_group", "read_progress"]

#: The replacements, in their order. The end of a map is the end of its last value and its own; no
#: other place of such a body has that many braces.
_REPLACEMENTS: Final = (
    (b'"}:{"', b'","'), (b'"offsetTable":{{', b'"offsetTable":[{'),
    (b'"offsetTable":{}', b'"offsetTable":[]'), (b"}}}", b"}]}"), (b'}},"', b'}],"'))


class _Entry(msgspec.Struct, rename="camel", gc=False):
    """The progress in one queue."""

    topic: str
    broker_offset: Int64
    consumer_offset: Int64
    pull_offset: Int64 = 0
    last_timestamp: Int64 = 0


class _Stats(msgspec.Struct, rename="camel", gc=False):
    offset_table: list[_Entry]
    consume_tps: float = 0.0


class _StatsList(msgspec.Struct, rename="camel", gc=False):
    consume_stats_list: list[dict[str, list[_Stats]]]


_lists: Final = msgspec.json.Decoder(_StatsList)


@dataclass(slots=True)
class Progress:
    """The progress of a group in one topic, over all queues of the brokers that answered.

    :ivar lag: messages that are stored and not consumed.
    :ivar in_flight: messages that are pulled and not consumed.
    :ivar rate: messages that are consumed per second.
    :ivar last_ms: when the newest consumed message was stored, Unix ms; 0: unknown.
    """

    lag: int = 0
    in_flight: int = 0
    rate: float = 0.0
    last_ms: int = 0

    def add(self, other: Progress) -> None:
        """Add the progress in other queues."""
        self.lag += other.lag
        self.in_flight += other.in_flight
        self.rate += other.rate
        self.last_ms = max(self.last_ms, other.last_ms)


#: The progress by group and topic.
ProgressTable = dict[tuple[str, str], Progress]


def read_progress(body: bytes) -> ProgressTable:
    """Read an answer to GET_BROKER_CONSUME_STATS.

    :raises WireError: when the body is not such an answer.
    """
    plain = body
    for old, new in _REPLACEMENTS:
        plain = plain.replace(old, new)
    try:
        answer = _lists.decode(plain)
    except (msgspec.MsgspecError, RecursionError):
        answer = _general(body)
    table: ProgressTable = {}
    for groups in answer.consume_stats_list:
        for group, all_stats in groups.items():
            for stats in all_stats:
                _add(table, group, stats)
    return table


def _general(body: bytes) -> _StatsList:
    """Read a body with the reader of the dialect, which states the faults of a body."""
    def entries(stats: ConsumeStats) -> list[_Entry]:
        return [_Entry(queue.topic, offsets.broker_offset, offsets.consumer_offset,
                       offsets.pull_offset, offsets.last_timestamp)
                for queue, offsets in stats.offset_table.items()]

    return _StatsList([
        {group: [_Stats(entries(each), each.consume_tps) for each in all_stats]
         for group, all_stats in groups.items()}
        for groups in ConsumeStatsList.decode_reply(body).consume_stats_list])


def _add(table: ProgressTable, group: str, stats: _Stats) -> None:
    """Add the queues of one entry, which belong to one topic as a rule."""
    topic: str | None = None
    progress = Progress()
    for queue in stats.offset_table:
        if queue.topic != topic:
            topic = queue.topic
            progress = table.setdefault((group, topic), Progress())
            progress.rate += stats.consume_tps
        progress.lag += queue.broker_offset - queue.consumer_offset
        if queue.pull_offset > queue.consumer_offset:
            progress.in_flight += queue.pull_offset - queue.consumer_offset
        if queue.last_timestamp > progress.last_ms:
            progress.last_ms = queue.last_timestamp


def joined_progress(tables: Iterable[ProgressTable]) -> ProgressTable:
    """Return the progress of all groups on several brokers, whose own tables are used up."""
    total: ProgressTable = {}
    for table in tables:
        for key, progress in table.items():
            known = total.setdefault(key, progress)
            if known is not progress:
                known.add(progress)
    return total


def progress_by_group(table: ProgressTable) -> dict[str, Progress]:
    """Return the sums over the topics of each group."""
    sums: dict[str, Progress] = {}
    for (group, _), each in table.items():
        sums.setdefault(group, Progress()).add(each)
    return sums
