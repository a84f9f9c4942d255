"""The core of a consumer that a program polls, instead of passing messages to handlers.

A poll acknowledges the messages of the previous poll. Only acknowledged messages are committed:
every five seconds, by ``commit`` and at the close. The messages of the last poll are therefore
delivered again.

Queues are assigned by subscription, divided among the members of the group, or they are assigned
by the program. The rounds of ``rebalance.py`` take and drop them in both cases.

Source: DefaultLitePullConsumerImpl, AssignedMessageQueue @5.3.3. Differs from Apache: a close
commits; and Apache's client commits messages that were polled and not yet processed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, TypeVar

from twistmq.client.base.errors import Closed, NotAssigned, OptionError
from twistmq.client.core.consumer.assigned_queues import AssignedQueue, Batch
from twistmq.client.core.consumer.member import Member
from twistmq.client.core.consumer.polls import Poll, Polls
from twistmq.client.core.consumer.queries import Queries
from twistmq.client.core.consumer.subscriptions import Subscription
from twistmq.protocol.bodies import ConsumeType, MessageQueue
from twistmq.protocol.errors import BrokerError
from twistmq.protocol.topic_names import retry_topic

__all__ = ["PullMember"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")


class PullMember(Member[T]):
    """A member that is polled; its queues have their names in the namespace here.

    The messages of a poll have no time-out: a program may take as long as it likes.
    """

    consume_type = ConsumeType.CONSUME_ACTIVELY

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # No message is sent back, so there are no retries to read.
        self.subscriptions.pop(retry_topic(self.group), None)
        self._queries = Queries(self.client)
        #: The batches that polls handed out and that no later poll has acknowledged.
        self._out: list[Batch[T]] = []
        self.polls: Polls[T] = Polls()

    # --- polls

    async def poll(self, poll: Poll[T], max_count: int, timeout_ms: float) -> list[Batch[T]]:
        """Wait for messages; see :meth:`poll_now`.

        :returns: the messages by queue; empty when the time is over.
        """
        deadline_ms = self.tasks.now_ms + timeout_ms
        batches = self.poll_now(poll, max_count)
        while not batches and (remaining_ms := deadline_ms - self.tasks.now_ms) > 0:
            waiting = self.tasks.spawn(self.ready(), "poll")
            try:
                await self.tasks.wait_for(remaining_ms, waiting, TimeoutError)
            except TimeoutError:
                return []
            finally:
                waiting.cancel()
            batches = self._take_all(poll, max_count)
        return batches

    def poll_now(self, poll: Poll[T], max_count: int) -> list[Batch[T]]:
        """Hand out the messages that are available.

        The messages of earlier polls that reached the program are acknowledged. Messages whose
        poll was cancelled are handed out again.

        :param poll: the poll that this call belongs to, from :attr:`polls`.
        :param max_count: the maximum number of messages, of all queues together.
        :returns: the messages by queue, which ``poll`` notes.
        :raises Closed: when the consumer closes.
        """
        if max_count < 1:
            raise OptionError(f"a poll asks for {max_count} messages; it must ask for at least 1")
        self._settle()
        if self.is_closing:
            raise Closed("the consumer is closed")
        return self._take_all(poll, max_count)

    def _settle(self) -> None:
        out, self._out = self._out, []
        for batch in out:
            if self.polls.is_under_way(batch):
                self._out.append(batch)
            elif self.polls.acknowledge(batch):
                self.succeed(batch.assigned, batch.messages)
            else:
                self.release(batch.assigned, batch.messages)

    def _take_all(self, poll: Poll[T], max_count: int) -> list[Batch[T]]:
        batches: list[Batch[T]] = []
        count = 0
        while count < max_count and (batch := self.take(max_count - count)) is not None:
            batches.append(batch)
            count += len(batch.messages)
        poll.batches += batches
        self._out += batches
        return batches

    # --- queues

    def subscribe(self, subscription: Subscription) -> None:
        """Add or change a subscription.

        :raises OptionError: when queues are assigned.
        """
        if self.fixed is not None:
            raise OptionError("this consumer has assigned queues: it cannot subscribe")
        super().subscribe(subscription)

    async def assign(self, queues: Sequence[MessageQueue]) -> None:
        """Read exactly these queues, whatever other members read.

        :raises OptionError: when the consumer has subscriptions, or a topic has no such queue.
        :raises RequestRefused, RemotingError: when a topic is not found.
        """
        if self.fixed is None and self.subscriptions:
            raise OptionError("this consumer has subscriptions: no queue can be assigned to it")
        assigned = {self._at_broker(queue) for queue in queues}
        for topic in sorted({queue.topic for queue in assigned}):
            route = await self.client.routes.find(topic, again=True)
            for queue in sorted(assigned):
                if queue.topic == topic and queue not in route.read_queues:
                    raise OptionError(f"there is no queue {queue} to read")
        self.fixed = frozenset(assigned)
        for topic in set(self.subscriptions) - {queue.topic for queue in assigned}:
            self.unsubscribe(topic)
        for topic in sorted({queue.topic for queue in assigned} - set(self.subscriptions)):
            super().subscribe(Subscription(topic))
        self.rebalance.wake()

    def _at_broker(self, queue: MessageQueue) -> MessageQueue:
        return MessageQueue(self.client.namespace.topic(queue.topic), queue.broker_name,
                            queue.queue_id)

    def _held(self, queue: MessageQueue) -> AssignedQueue[T]:
        assigned = self.assigned_queues.get(self._at_broker(queue))
        if assigned is None or assigned.window.is_dropped:
            raise NotAssigned(f"this consumer does not have the queue {queue} now")
        return assigned

    async def commit_new(self) -> None:
        """Commit the start offsets of new queues, and an offset in the group's retry topic.

        The retry topic is the only topic that is deleted together with the group only. It marks a
        group that reads a single topic as known if this topic is created again while the group is
        away.
        """
        await super().commit_new()
        for name in sorted({self.client.routes.broker_of(queue) for queue in self.assigned_queues}):
            retries = MessageQueue(retry_topic(self.group), name, 0)
            try:
                if await self.offsets.read(retries) is None:
                    await self.offsets.write({retries: 0})
            except BrokerError as error:
                log.debug("broker %s keeps no mark of the group: %s", name, error)

    # --- positions

    def position(self, queue: MessageQueue) -> int:
        """Return the offset from which the next poll hands out messages of a queue.

        :raises NotAssigned: when the queue is not assigned to this consumer now.
        """
        assigned = self._held(queue)
        waiting = assigned.window.next_waiting
        return assigned.next_offset if waiting is None else waiting

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the committed offset of the group; None when there never was one.

        :raises BrokerError: when it cannot be determined now.
        """
        await self.client.locate(queue)
        return await self.offsets.read(self._at_broker(queue))

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue a queue at an offset; the next commit commits it.

        :raises NotAssigned: when the queue is not assigned to this consumer now.
        :raises OptionError: when the queue does not have this offset.
        """
        self._held(queue)
        first = await self._queries.min_offset(queue)
        end = await self._queries.max_offset(queue)
        if not max(first, 0) <= offset <= end:
            raise OptionError(f"the queue {queue} has offsets from {first} to {end}, not {offset}")
        self.rebalance.restart(self._held(queue), offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue a queue at its first message."""
        self._held(queue)
        first = await self._queries.min_offset(queue)
        # Apache's broker reports -1 as the beginning of a queue that it does not have.
        self.rebalance.restart(self._held(queue), max(first, 0))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue a queue at its next new message."""
        self._held(queue)
        end = await self._queries.max_offset(queue)
        self.rebalance.restart(self._held(queue), end)

    async def seek_to_time(self, queue: MessageQueue, time_ms: int) -> None:
        """Continue a queue at the first message stored at that Unix ms or later."""
        self._held(queue)
        offset = await self._queries.search_offset(queue, time_ms)
        self.rebalance.restart(self._held(queue), offset)

    # --- the end

    async def leave(self) -> None:
        """Commit the acknowledged messages, and leave the group.

        The messages of the last poll are not acknowledged: another member gets them.
        """
        if not self.is_closing:
            out, self._out = self._out, []
            for batch in out:
                self.release(batch.assigned, batch.messages)
        await self.close(0)
