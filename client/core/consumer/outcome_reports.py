"""Reports of the results of handlers to statistics, traces and interceptors.

Source: ConsumeMessageHook, ConsumerStatsManager @5.3.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.consumer.assigned_queues import AssignedQueue, MemberOptions
from twistmq.client.core.consumer.stats import MemberStats

if TYPE_CHECKING:
    from twistmq.client.core.producer.tracer import Trace

__all__ = ["OutcomeReports"]


class OutcomeReports:
    """Reports the results of one member.

    :param client: the client, whose interceptors learn the results.
    :param trace: records the results; None: the consumer is not traced.
    """

    def __init__(
        self, client: ClientCore, options: MemberOptions, stats: MemberStats,
        trace: Trace | None = None,
    ) -> None:
        self._client = client
        self._tasks = client.tasks
        self._group = options.group
        self._timeout_ms = options.consume_timeout_ms
        self._stats = stats
        self._trace = trace

    def report(
        self, assigned: AssignedQueue[Any], messages: Sequence[ReceivedMessage[Any]], outcome: str
    ) -> None:
        """Report the result of messages of one handler, before they leave their window.

        :param outcome: the outcome for interceptors, before the handler's time is checked.
        """
        now_ms = self._tasks.now_ms
        begin_ms = assigned.window.began_ms(messages[0].offset) if messages else None
        if begin_ms is not None:
            self._stats.handled(assigned.queue.topic, now_ms, len(messages), now_ms - begin_ms,
                                is_success=outcome == "success")
        if self._trace is None and not self._client.interceptors:
            return
        # Messages that were sent back after their time-out already have a result.
        messages = [each for each in messages if assigned.window.began_ms(each.offset) is not None]
        if not messages:
            return
        if (outcome in ("success", "retry") and begin_ms is not None
                and now_ms - begin_ms >= self._timeout_ms):
            outcome = "time-out"
        if self._trace is not None:
            self._trace.consumed(assigned.public_queue, messages, outcome)
        if self._client.interceptors:
            self._client.interceptors.call(
                "after_consume", self._group, assigned.public_queue, messages, outcome)
