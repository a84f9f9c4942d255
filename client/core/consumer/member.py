"""A member of a consumer group, made of parts.

    intake     gets messages from the brokers             queue_intake.py, core/pop/pop_intake.py
    delivery   hands the messages out                     delivery.py, core/pop/pop_delivery.py
    results    handles the results of handlers            results.py, core/pop/pop_results.py

Each part is given the parts that it uses, and none of them knows the member. ``push_consumer.py``,
``pull_consumer.py`` and ``core/pop/pop_consumer.py`` make the three kinds of members.

Everything runs in the engine. A shell takes messages with ``take``, and waits for more with
``ready``.

Source: DefaultMQPushConsumerImpl, ConsumeMessageConcurrentlyService,
ConsumeMessageOrderlyService @5.3.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from twistmq.client.base.errors import OptionError
from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.core.connection.tasks import Cancelled, Task
from twistmq.client.core.consumer.assigned_queues import AssignedQueue, Batch
from twistmq.client.core.consumer.member_parts import MemberParts
from twistmq.client.core.consumer.subscriber import Subscriber
from twistmq.client.core.consumer.subscriptions import Subscription
from twistmq.protocol.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    MessageQueue,
)
from twistmq.protocol.topic_names import RETRY_GROUP_TOPIC_PREFIX

__all__ = ["Intake", "Member", "MemberKind", "MessageSource", "ResultHandler"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")

#: The number of unfinished messages that the log names when a close gives up.
_NAMED_MAX: Final = 16


class MemberKind(NamedTuple):
    """A kind of member.

    :param name: its name in errors.
    :param consume_type: its name in heartbeats and tools.
    """

    name: str
    consume_type: ConsumeType


class Intake(Protocol):
    """The part of a member that gets messages from the brokers."""

    #: Whether the member commits offsets, so that tools can ask for them.
    has_offsets: bool

    async def begin(self) -> None:
        """Begin to read, once the member is in its group.

        :raises Closed: when the client or the member is closed during this call.
        """

    def assigned(self) -> list[MessageQueue]:
        """Return the queues that this member reads, in order."""

    def set_paused(self, queues: Sequence[MessageQueue] | None, paused: bool) -> None:
        """Pause or resume some queues (named as in the namespace), or all."""

    async def commit(self) -> bool:
        """Report finished messages to the brokers; :returns: whether they know all of them."""

    async def move_to(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue queues at other offsets, because a tool moved them."""

    def pop_table(self) -> dict[MessageQueue, dict[str, int | bool]]:
        """Return the sources that are popped, for tools."""

    def stop(self) -> None:
        """Stop reading messages, because the member closes."""

    async def leave(self) -> None:
        """Report finished messages to the brokers, and give up the queues."""


class MessageSource(Protocol[T]):
    """The part of a member from which a shell takes messages."""

    def take(self, max_count: int) -> Batch[T] | None:
        """Hand out the next messages of one queue, or return None if there are none to hand out."""

    async def ready(self) -> None:
        """Wait for messages; :raises Closed: when the consumer stops or closes."""


class ResultHandler(Protocol[T]):
    """The part of a member that handles the results of handlers."""

    def succeed(self, assigned: AssignedQueue[T], messages: Sequence[ReceivedMessage[T]]) -> None:
        """Handle messages of one queue that handlers processed."""

    def release(self, assigned: AssignedQueue[T], messages: Sequence[ReceivedMessage[T]]) -> None:
        """Let messages wait again that were handed out but not begun."""

    def fail(
        self, assigned: AssignedQueue[T], messages: Sequence[ReceivedMessage[T]], level: int = 0
    ) -> None:
        """Handle messages of one queue that handlers could not process.

        :param level: the delay level of the next attempt; 0: chosen by the attempts; -1: there is
            no other attempt.
        """


class Member(Generic[T]):
    """The core of a consumer.

    :param loops: further functions that run as long as the member, by their names.
    """

    #: The value of ``GroupMember`` for consumers.
    send_timeout_ms = 0.0

    def __init__(
        self, kind: MemberKind, parts: MemberParts[T], source: MessageSource[T],
        results: ResultHandler[T], intake: Intake, subscriber: Subscriber,
        loops: Mapping[str, Callable[[], Coroutine[Any, Any, None]]],
    ) -> None:
        self.kind = kind.name
        self.consume_type = kind.consume_type
        self.client = parts.client
        self.tasks = parts.client.tasks
        self.options = parts.options
        #: The group's name at brokers.
        self.group = parts.group
        self.subscriptions = parts.subscriptions
        #: The queues that are assigned to this member.
        self.assigned_queues = parts.queues
        self.delivery = parts.delivery
        self.intake = intake
        self.stats = parts.stats
        self.tool_messages = parts.tool_messages
        self.listeners = parts.listeners
        self.sender = parts.sender
        self.decode = parts.decode
        #: The time when the member was made, in Unix ms.
        self.started_ms = parts.client.tasks.clock.wall_ms()
        # The methods of parts that a shell calls for each message are attributes, so that no call
        # lies between the shell and the part.
        self.take = source.take
        self.ready = source.ready
        self.succeed = results.succeed
        self.release = results.release
        self.fail = results.fail
        self._parts = parts
        self._subscriber = subscriber
        self._loops = loops
        self._running_loops: list[Task[None]] = []
        #: The task that completes a close; None before a close.
        self._leaving: Task[None] | None = None

    # --- the group

    def __repr__(self) -> str:
        topics = ", ".join(sorted(topic for topic in self.subscriptions
                                  if not topic.startswith(RETRY_GROUP_TOPIC_PREFIX)))
        return f"consumer of group {self.group} with topics {topics or 'not chosen yet'}"

    def producer_data(self) -> None:
        """Return None, because a consumer produces nothing."""

    def consumer_data(self) -> ConsumerData:
        """Return the member's part of a heartbeat."""
        start = self.options.start
        where = (ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET if start == "last" else
                 ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET if start == "first" else
                 ConsumeFromWhere.CONSUME_FROM_TIMESTAMP)
        return ConsumerData(
            group_name=self.group, consume_type=self.consume_type,
            message_model=(MessageModel.BROADCASTING if self.options.is_broadcast
                           else MessageModel.CLUSTERING),
            consume_from_where=where, subscription_data_set=self.subscriptions.data())

    async def start(self) -> None:
        """Join the group and begin to read; if this fails or is cancelled, leave again.

        :raises Closed: when the client is closed.
        :raises OptionError: when the client has a member of the group.
        :raises Unsupported: when the member pops and a broker does not support that.
        """
        try:
            self.client.add(self)
            for topic in self.subscriptions:
                self.client.routes.follow(topic)
            await self.intake.begin()
        except (Exception, Cancelled):
            await self.close(0)
            raise
        self._running_loops += [self.tasks.spawn(function(), name)
                                for name, function in self._loops.items()]

    # --- queues

    def subscribe(self, subscription: Subscription) -> None:
        """Add or change a subscription.

        :raises OptionError: when queues are assigned.
        """
        if self.assigned_queues.fixed is not None:
            raise OptionError("this consumer has assigned queues: it cannot subscribe")
        self._subscriber.subscribe(subscription)

    def unsubscribe(self, topic: str) -> None:
        """Stop reading a topic."""
        self._subscriber.unsubscribe(topic)

    def assigned(self) -> list[MessageQueue]:
        """See :class:`Intake`."""
        return self.intake.assigned()

    def set_paused(self, queues: Sequence[MessageQueue] | None, paused: bool) -> None:
        """See :class:`Intake`."""
        self.intake.set_paused(queues, paused)

    async def commit(self) -> bool:
        """See :class:`Intake`."""
        return await self.intake.commit()

    @property
    def damaged_count(self) -> int:
        """The number of damaged messages that were left out."""
        return self._parts.damage.count

    # --- the end

    def wake_all(self) -> None:
        """Make all callers of ``ready`` raise, so that they check for a stop."""
        self.delivery.wake_all()

    @property
    def is_closing(self) -> bool:
        """Whether a close has begun."""
        return self._parts.closing.is_set

    @property
    def has_left(self) -> bool:
        """Whether a close has completed."""
        return self._leaving is not None and self._leaving.is_done

    async def finish(self) -> None:
        """See ``GroupMember``: reports the results of handlers to the brokers."""
        await self.commit()
        if self._parts.trace is not None:
            await self._parts.trace.flush()

    async def close(self, timeout_ms: float = 10_000) -> None:
        """Stop reading, wait for the handlers, give up the queues, and leave the group.

        A second call waits for the end of the first. If a call is cancelled, the close no longer
        waits for handlers, but completes all other steps.
        """
        if self._leaving is None:
            self.intake.stop()
            self._parts.closing.set()
            self.delivery.wake_all("the consumer is closed")
            self._leaving = self.tasks.spawn(self._leave(timeout_ms), "close of a consumer")
            # This comes before the traces, which record the last results.
            self.client.before_close.insert(0, self._wait_closed)
        try:
            await self._leaving
        except Cancelled:
            self.delivery.stop_waiting()
            raise

    async def _wait_closed(self) -> None:
        """Wait until the close has completed."""
        assert self._leaving is not None
        await self.tasks.all_of([self._leaving])

    async def _leave(self, timeout_ms: float) -> None:
        try:
            await self._wait_for_handlers(timeout_ms)
            for loop in self._running_loops:
                loop.cancel()
            await self.intake.leave()
            self.assigned_queues.clear()
            self._unfollow()
            if self._parts.trace is not None:
                await self._parts.trace.close()
            await self.client.remove(self)
        finally:
            self.client.before_close.remove(self._wait_closed)

    async def _wait_for_handlers(self, timeout_ms: float) -> None:
        try:
            await self.delivery.wait_until_idle(timeout_ms)
        except TimeoutError:
            unfinished = [
                message for assigned in self.assigned_queues.values()
                for message in assigned.window.expired(int(self.tasks.now_ms), -1, _NAMED_MAX)]
            log.warning("%d handlers did not end in %d ms; their messages will be delivered again: "
                        "%s", self.delivery.running, timeout_ms, ", ".join(map(repr, unfinished)))

    def _unfollow(self) -> None:
        """Stop following topics, except topics that other members of the client read."""
        if self not in self.client.members:
            return
        others = {topic for each in self.client.members
                  if isinstance(each, Member) and not each.is_closing
                  for topic in each.subscriptions}
        for topic in self.subscriptions.keys() - others:
            self.client.routes.unfollow(topic)
