"""The core of a consumer that is asked for messages, instead of giving them to handlers.

A poll acknowledges the messages of the one before. Only those are committed, each five seconds, by
``commit`` and at the close, so messages whose poll was the last come again.

Queues come by subscription, divided among the members of the group, or are assigned by the
program. The rounds of ``rebalance.py`` take and drop them in both cases.

Source: DefaultLitePullConsumerImpl, AssignedMessageQueue @5.3.3. Differs from Apache: a close
commits; and its client commits what was polled and not yet processed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, TypeVar

from twistmq.broker.errors import BrokerError
from twistmq.broker.topic_names import retry_topic
from twistmq.broker.wire.bodies import ConsumeType, MessageQueue
from twistmq.client.core.consuming import Member
from twistmq.client.core.held import Batch, Held
from twistmq.client.core.polls import Poll, Polls
from twistmq.client.core.queries import Queries
from twistmq.client.core.subscriptions import Subscription
from twistmq.client.errors import Closed, NotAssigned, OptionError

__all__ = ["PullMember"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")


class PullMember(Member[T]):
    """A member that is polled; queues have the names of the namespace here.

    The messages of a poll are not timed: a program may take as long as it likes.
    """

    consume_type = ConsumeType.CONSUME_ACTIVELY

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # No message is sent back, so there are no retries to read.
        self.subscriptions.pop(retry_topic(self.group), None)
        self._queries = Queries(self.client)
        #: The batches that polls handed out and no later poll acknowledged.
        self._out: list[Batch[T]] = []
        self.polls: Polls[T] = Polls()

    # --- polls

    async def poll(self, poll: Poll[T], max_count: int, timeout_ms: float) -> list[Batch[T]]:
        """Wait for messages; see :meth:`poll_now`.

        :returns: the messages by queue; empty when the time is over.
        """
        deadline_ms = self.tasks.now_ms + timeout_ms
        taken = self.poll_now(poll, max_count)
        while not taken and (left_ms := deadline_ms - self.tasks.now_ms) > 0:
            waiting = self.tasks.spawn(self.ready(), "poll")
            try:
                await self.tasks.within(left_ms, waiting, TimeoutError)
            except TimeoutError:
                return []
            finally:
                waiting.cancel()
            taken = self._take_all(poll, max_count)
        return taken

    def poll_now(self, poll: Poll[T], max_count: int) -> list[Batch[T]]:
        """Hand out the messages that are there.

        The messages of earlier polls that reached the program are acknowledged. Those whose poll
        was cancelled are handed out again.

        :param poll: the call that this is for, from :attr:`polls`.
        :param max_count: messages of all queues together.
        :returns: the messages by queue, which ``poll`` notes.
        :raises Closed: when the consumer closes.
        """
        if max_count < 1:
            raise OptionError(f"a poll of {max_count} messages, not of at least 1")
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
                self.succeed(batch.held, batch.messages)
            else:
                self.release(batch.held, batch.messages)

    def _take_all(self, poll: Poll[T], max_count: int) -> list[Batch[T]]:
        taken: list[Batch[T]] = []
        count = 0
        while count < max_count and (batch := self.take(max_count - count)) is not None:
            taken.append(batch)
            count += len(batch.messages)
        poll.taken += taken
        self._out += taken
        return taken

    # --- queues

    def subscribe(self, wanted: Subscription) -> None:
        """Add or change a subscription.

        :raises OptionError: when queues are assigned.
        """
        if self.fixed is not None:
            raise OptionError("this consumer has assigned queues: it cannot subscribe")
        super().subscribe(wanted)

    async def assign(self, queues: Sequence[MessageQueue]) -> None:
        """Read these queues and no other, whatever other members read.

        :raises OptionError: when the consumer has subscriptions, or a topic has no such queue.
        :raises RequestRefused, RemotingError: when a topic is not found.
        """
        if self.fixed is None and self.subscriptions:
            raise OptionError("this consumer has subscriptions: no queue can be assigned to it")
        wanted = {self._at_broker(queue) for queue in queues}
        for topic in sorted({queue.topic for queue in wanted}):
            route = await self.client.routes.find(topic, again=True)
            for queue in sorted(wanted):
                if queue.topic == topic and queue not in route.read_queues:
                    raise OptionError(f"there is no queue {queue} to read")
        self.fixed = frozenset(wanted)
        for topic in set(self.subscriptions) - {queue.topic for queue in wanted}:
            self.unsubscribe(topic)
        for topic in sorted({queue.topic for queue in wanted} - set(self.subscriptions)):
            super().subscribe(Subscription(topic))
        self.rebalance.wake()

    def _at_broker(self, queue: MessageQueue) -> MessageQueue:
        return MessageQueue(self.client.namespace.topic(queue.topic), queue.broker_name,
                            queue.queue_id)

    def _held(self, queue: MessageQueue) -> Held[T]:
        held = self.held.get(self._at_broker(queue))
        if held is None or held.window.is_dropped:
            raise NotAssigned(f"this consumer does not have the queue {queue} now")
        return held

    async def commit_new(self) -> None:
        """Commit where new queues begin, and an offset in the group's topic of retries.

        That is the one topic that is deleted with the group only. A group that reads a single topic
        is known by it when that topic is made again while the group is away.
        """
        await super().commit_new()
        for name in sorted({self.client.routes.broker_of(queue) for queue in self.held}):
            retries = MessageQueue(retry_topic(self.group), name, 0)
            try:
                if await self.offsets.read(retries) is None:
                    await self.offsets.write({retries: 0})
            except BrokerError as error:
                log.debug("broker %s keeps no mark of the group: %s", name, error)

    # --- positions

    def position(self, queue: MessageQueue) -> int:
        """The offset from which the next poll hands out messages of a queue.

        :raises NotAssigned: when the queue is not one of this consumer's now.
        """
        held = self._held(queue)
        waiting = held.window.next_waiting
        return held.next_offset if waiting is None else waiting

    async def committed(self, queue: MessageQueue) -> int | None:
        """The offset that is committed for the group; None when there never was one.

        :raises BrokerError: when it cannot be known now.
        """
        await self.client.locate(queue)
        return await self.offsets.read(self._at_broker(queue))

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue a queue at an offset; the next commit commits it.

        :raises NotAssigned: when the queue is not one of this consumer's now.
        :raises OptionError: when the queue has no such offset.
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
        # Of a queue that it does not have, Apache's broker says that it begins at -1.
        self.rebalance.restart(self._held(queue), max(first, 0))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue a queue at the message that comes next."""
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
        """Commit what polls acknowledged, and leave the group.

        The messages of the last poll are not acknowledged: another member gets them.
        """
        if not self.is_closing:
            out, self._out = self._out, []
            for batch in out:
                self.release(batch.held, batch.messages)
        await self.close(0)
