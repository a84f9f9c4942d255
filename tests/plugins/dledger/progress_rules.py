"""Rule I14: the progress of a broker names nothing that its group has not committed.

Progress is in files of a broker, and in the answers from which other members copy it: consumer
offsets (43), offsets of delayed messages (45), and the check point and the counts of the timer (60,
61). Work that counts as done must be in the committed log: the delivery of a delayed or timed
message, and the end or the copy of a half message. No offset is beyond the committed end of its
queue.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Final

import msgspec

from twistmq.broker.testing.kernel import KernelBox
from twistmq.plugins.timer.checkpoint import TimerCheckpoint
from twistmq.protocol.bodies import (
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.properties import (
    REAL_TOPIC,
    TIMER_OUT_MS,
    TRAN_PREPARED_QUEUE_OFFSET,
    UNIQ_KEY,
)
from twistmq.protocol.record import StoredMessage
from twistmq.protocol.topic_names import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from twistmq.transaction.service import SYSTEM_GROUP

__all__ = ["progress_faults"]

#: The precision of the timer, ms.
_TICK_MS: Final = 1000
_FOLDER: Final = "/store/config"


class _Committed:
    """What one broker can read, all of which is committed."""

    def __init__(self, box: KernelBox) -> None:
        self._box = box
        self._queues: dict[tuple[str, int], list[StoredMessage]] = {}
        self._bodies: dict[str, set[bytes]] = {}

    def end(self, topic: str, queue_id: int) -> int:
        """Return the end of a queue."""
        return self._box.kernel.store.queues.max_offset(topic, queue_id)

    def messages(self, topic: str, queue_id: int) -> list[StoredMessage]:
        """Return the messages of a queue."""
        key = topic, queue_id
        if key not in self._queues:
            self._queues[key] = self._box.stored(topic, queue_id)
        return self._queues[key]

    def bodies(self, topic: str) -> set[bytes]:
        """Return the bodies of a topic, whose messages are in its first queue."""
        if topic not in self._bodies:
            self._bodies[topic] = {message.body for message in self.messages(topic, 0)}
        return self._bodies[topic]

    @cached_property
    def ended_halves(self) -> set[int]:
        """The offsets of half messages whose end is noted."""
        return {int(offset) for message in self.messages(OP_HALF_TOPIC, 0)
                for offset in re.findall(rb"\d+", message.body)}


def progress_faults(box: KernelBox) -> Iterator[str]:
    """Return what the files and the answers of a broker count as done, and is not committed."""
    committed = _Committed(box)
    answers = {code: _answer(box, code) for code in (
        RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_DELAY_OFFSET,
        RequestCode.GET_TIMER_CHECK_POINT, RequestCode.GET_TIMER_METRICS)}
    for source, data in (("answer 43", answers[RequestCode.GET_ALL_CONSUMER_OFFSET]),
                         ("consumerOffset.json", _file(box, "consumerOffset.json"))):
        if data:
            table = ConsumerOffsetSerializeWrapper.decode(data).offset_table
            yield from (f"{source}: {fault}" for fault in _offset_faults(committed, table))
    for source, data in (("answer 45", answers[RequestCode.GET_ALL_DELAY_OFFSET]),
                         ("delayOffset.json", _file(box, "delayOffset.json"))):
        if data:
            offsets = DelayOffsetSerializeWrapper.decode(data).offset_table
            yield from (f"{source}: {fault}" for fault in _delay_faults(committed, offsets))
    for source, data in (("answer 60", answers[RequestCode.GET_TIMER_CHECK_POINT]),
                         ("timercheck", _file(box, "timercheck"))):
        if data:
            yield from (f"{source}: {fault}" for fault in _timer_faults(
                committed, TimerCheckpoint.decode(data)))
    if answers[RequestCode.GET_TIMER_METRICS]:
        counts: Any = msgspec.json.decode(answers[RequestCode.GET_TIMER_METRICS])
        topics = {message.properties_map()[REAL_TOPIC]
                  for message in committed.messages(TIMER_TOPIC, 0)}
        for topic, count in counts.get("timingCount", {}).items():
            # The number may be too large: a follower adds the messages that its leader counted.
            if int(count["count"]) > 0 and topic not in topics:
                yield f"answer 61: messages of {topic} wait, and none is committed"


def _answer(box: KernelBox, code: int) -> bytes:
    """Return the body of an answer; empty if the broker has none at this moment."""
    reply = box.send(box.peer(), code)
    return reply.body if reply is not None and reply.code == ResponseCode.SUCCESS else b""


def _file(box: KernelBox, name: str) -> bytes:
    disk: Any = box.disk
    path = f"{_FOLDER}/{name}"
    return disk.read_file(path) if disk.exists(path) else b""  # type: ignore[no-any-return]


def _offset_faults(
    committed: _Committed, table: Mapping[str, Mapping[int, int]]
) -> Iterator[str]:
    for key, offsets in table.items():
        topic, _, group = key.partition("@")
        for queue_id, offset in offsets.items():
            end = committed.end(topic, queue_id)
            if offset > end:
                yield f"{group} is at {offset} of {topic}-{queue_id}, and {end} are committed"
    halves = committed.messages(HALF_TOPIC, 0)
    done = table.get(f"{HALF_TOPIC}@{SYSTEM_GROUP}", {}).get(0, 0)
    later: set[str | None] = set()
    for message in reversed(halves):
        properties = message.properties_map()
        unique = properties.get(UNIQ_KEY)
        # The end of a copy names the original message.
        original = int(properties.get(TRAN_PREPARED_QUEUE_OFFSET, message.queue_offset))
        if (message.queue_offset < done and unique not in later
                and not {message.queue_offset, original} & committed.ended_halves):
            yield (f"the half message at {message.queue_offset} is passed by {done}, and has "
                   "neither an end nor a copy")
        later.add(unique)


def _delay_faults(committed: _Committed, offsets: Mapping[int, int]) -> Iterator[str]:
    for level, offset in offsets.items():
        messages = committed.messages(SCHEDULE_TOPIC, level - 1)
        if offset > len(messages):
            yield f"level {level} is at {offset}, and {len(messages)} are committed"
        for message in messages[:offset]:
            topic = message.properties_map()[REAL_TOPIC]
            if message.body not in committed.bodies(topic):
                yield f"level {level} is at {offset}, and {message.body!r} is not in {topic}"


def _timer_faults(committed: _Committed, values: TimerCheckpoint) -> Iterator[str]:
    messages = committed.messages(TIMER_TOPIC, 0)
    entered = max(values.last_timer_queue_offset, values.master_timer_queue_offset)
    if entered > len(messages):
        yield f"the timer has entered {entered}, and {len(messages)} are committed"
    for message in messages[:values.last_timer_queue_offset]:
        properties = message.properties_map()
        topic = properties[REAL_TOPIC]
        if (int(properties[TIMER_OUT_MS]) + _TICK_MS <= values.last_read_ms
                and message.body not in committed.bodies(topic)):
            yield (f"the timer has delivered up to {values.last_read_ms}, and {message.body!r} of "
                   f"{properties[TIMER_OUT_MS]} is not in {topic}")
