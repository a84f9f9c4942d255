"""The intake of a member: puts the messages of the responses to pulls into their windows."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Generic, TypeVar, cast

from twistmq.client.base.errors import Undecodable
from twistmq.client.base.messages import PullResult, PullStatus, ReceivedMessage
from twistmq.client.base.received_message import DamagedMessage
from twistmq.client.core.connection.tasks import Scheduler
from twistmq.client.core.consumer.assigned_queues import AssignedQueue, MemberOptions
from twistmq.client.core.consumer.damaged_messages import DamageLog, sort_out
from twistmq.client.core.consumer.delivery import Delivery
from twistmq.client.core.consumer.pull_request import messages_of
from twistmq.client.core.consumer.stats import MemberStats

__all__ = ["STOPPED_MS", "MessageIntake"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")

#: The wait before a damaged message at which a queue stopped is requested again, in ms.
STOPPED_MS: Final = 5_000


class MessageIntake(Generic[T]):
    """Takes in the messages of one member's queues.

    :param group: the group's name at brokers.
    :param decode: returns the value of a message; with None, the value is the body.
    """

    def __init__(
        self, tasks: Scheduler, group: str, options: MemberOptions, delivery: Delivery[T],
        stats: MemberStats, damage: DamageLog, decode: Callable[[ReceivedMessage[T]], T] | None,
    ) -> None:
        self._tasks = tasks
        self._group = group
        self._options = options
        self._delivery = delivery
        self._stats = stats
        self._damage = damage
        self._decode = decode

    def put(self, assigned: AssignedQueue[T], result: PullResult, duration_ms: float) -> None:
        """Put the messages of a response into the window of their queue.

        :param duration_ms: the duration of the pull.
        :raises Undecodable: when the response has no message, or leads no further.
        """
        if result.status is PullStatus.FOUND and not result.body:
            raise Undecodable("it contains no message, although its code says that there are some")
        begin = assigned.next_offset
        if result.next_offset < begin or (
                result.next_offset == begin and result.status is PullStatus.FOUND):
            raise Undecodable(f"the response to a pull at offset {begin} continues at "
                              f"{result.next_offset}, which is not after it")
        is_full = result.next_offset - begin == self._options.pull_count
        assigned.next_offset = result.next_offset
        assigned.behind = result.max_offset - result.next_offset if is_full else 0
        if result.status is PullStatus.FOUND:
            damaged: list[DamagedMessage[T]] = []
            messages = messages_of(result, assigned.public_queue, assigned.subscription.tags,
                                   self._decode, damaged, begin)
            if damaged:
                messages = self._sort_out(assigned, result, messages, damaged)
            assigned.is_alone = assigned.is_alone and bool(damaged)
            if messages:
                self._stats.pulled(assigned.queue.topic, self._tasks.now_ms, len(messages),
                                   duration_ms)
                assigned.window.put(messages)
                self._delivery.arrived(assigned)
                return
        assigned.window.correct_tags_offset(assigned.next_offset)

    def _sort_out(
        self, assigned: AssignedQueue[T], result: PullResult, messages: list[ReceivedMessage[T]],
        damaged: list[DamagedMessage[T]],
    ) -> list[ReceivedMessage[T]]:
        """Treat damaged messages as the option requires; :returns: the messages for the window."""
        sorted_out = sort_out(self._options.damaged, result, messages, damaged,
                              f"group {self._group}", was_alone=assigned.is_alone,
                              log_error=self._damage.log_error)
        self._damage.count += sorted_out.skipped
        assigned.is_alone = sorted_out.is_alone
        if sorted_out.next_offset != assigned.next_offset:
            assigned.next_offset, assigned.behind = sorted_out.next_offset, 0
        if sorted_out.stopped is not None and assigned.stopped_at != sorted_out.next_offset:
            assigned.stopped_at = sorted_out.next_offset
            log.error("group %s: the queue stops at %r: %s. It is requested again every %d s until "
                      "a tool moves the group past it", self._group, sorted_out.stopped,
                      sorted_out.stopped.damage, STOPPED_MS / 1000)
        return cast(list[ReceivedMessage[T]], sorted_out.messages)
