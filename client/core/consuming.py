"""A member of a consumer group: its queues, what was read of them, and what is finished.

    rebalance     which queues are this member's              rebalance.py
    pull          one task a queue, within the flow control   fetching.py
    take          messages go to handlers                     here
    succeed, fail results come back                           here, retries.py
    commit        how far the group has come                  offsets.py

Everything runs in the engine. A shell takes messages by :meth:`Member.take`, and waits for more
with :meth:`Member.ready`.

Source: DefaultMQPushConsumerImpl, ConsumeMessageConcurrentlyService,
ConsumeMessageOrderlyService @5.3.3.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from twistmq.broker.codes import ResponseCode
from twistmq.broker.topic_names import RETRY_GROUP_TOPIC_PREFIX, group_fault, retry_topic
from twistmq.broker.wire.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    MessageQueue,
)
from twistmq.client.core.client import ClientCore
from twistmq.client.core.fetching import Fetcher
from twistmq.client.core.flow import PullFlow
from twistmq.client.core.held import Batch, Held, MemberOptions
from twistmq.client.core.offsets import FileAccess, LocalOffsets, OffsetStore, RemoteOffsets
from twistmq.client.core.ordering import Locks
from twistmq.client.core.rebalance import Rebalance
from twistmq.client.core.retries import DEAD_LEVEL, Retries
from twistmq.client.core.sending import Sender
from twistmq.client.core.stats import MemberStats
from twistmq.client.core.subscriptions import Subscription
from twistmq.client.core.tasks import Future, Task
from twistmq.client.core.window import ByteTotal, QueueWindow
from twistmq.client.errors import Busy, Closed, OptionError
from twistmq.client.messages import ReceivedMessage

if TYPE_CHECKING:
    from twistmq.client.core.tracing import Trace

__all__ = ["Member"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")

#: The first commit, ms. Source: MQClientInstance.startScheduledTask.
COMMIT_FIRST_MS: Final = 10_000
#: How long a message waits here when it cannot be sent back, ms.
LOCAL_RETRY_MS: Final = 5_000
#: Attempts of concurrent consumption. Source: DefaultMQPushConsumer.maxReconsumeTimes.
MAX_ATTEMPTS: Final = 16
#: When a retry topic that was just made is looked for, ms.
_RETRY_TOPIC_MS: Final = 1000
_INT32_MAX: Final = 2**31 - 1
#: Messages of tools that may wait at once.
_DIRECT_MAX: Final = 64
#: How often messages that run for too long are looked for, ms at most.
_EXPIRE_MS: Final = 60_000
#: The delay level of a message whose handler takes too long. Source: cleanExpiredMsg.
_TIMEOUT_LEVEL: Final = 3


class Member(Generic[T]):
    """The core of a consumer.

    :param client: the client, perhaps shared.
    :param wanted: the subscriptions by topic, with the names at brokers.
    :param decode: makes the value of a message; None: the value is the body.
    :param file: where a broadcasting member keeps its offsets.

    ``on_assigned`` and ``on_lost`` are called with the queues that came and went.
    """

    #: As heartbeats and tools call this kind of consumer.
    consume_type = ConsumeType.CONSUME_PASSIVELY
    #: Whether it commits offsets, and tools can ask for them.
    has_offsets = True

    def __init__(
        self, client: ClientCore, options: MemberOptions, wanted: Mapping[str, Subscription],
        sender: Sender, *, decode: Callable[[ReceivedMessage[T]], T] | None = None,
        file: FileAccess | None = None,
    ) -> None:
        fault = group_fault(options.group)
        if fault is not None:
            raise OptionError(f"group {options.group!r}: {fault}")
        self.client = client
        self.tasks = client.tasks
        self.options = options
        #: The group's name at brokers.
        self.group = client.namespace.group(options.group)
        self.decode = decode
        self.subscriptions: dict[str, Subscription] = dict(wanted)
        if not options.is_broadcast:
            topic = retry_topic(self.group)
            self.subscriptions[topic] = Subscription(topic)
        self.sub_version = client.tasks.clock.wall_ms()
        self.total = ByteTotal()
        self.flow = PullFlow(self.total, options.limits, options.cache_bytes_max)
        self.offsets: OffsetStore = (LocalOffsets(client, file) if options.is_broadcast
                                     else RemoteOffsets(client, self.group))
        self.sender = sender
        #: Records what is consumed; None: the consumer is not traced.
        self.trace: Trace | None = None
        self.retries = Retries(client, self.group, sender, self.max_attempts)
        self.locks: Locks | None = (
            Locks(client, self.group, self.held_queues)
            if options.in_order and not options.is_broadcast else None)
        #: The queues of this member.
        self.held: dict[MessageQueue, Held[T]] = {}
        self.rebalance: Rebalance[T] = Rebalance(self)
        self.fetcher: Fetcher[T] = Fetcher(self)
        self.on_assigned: list[Callable[[list[MessageQueue]], object]] = []
        self.on_lost: list[Callable[[list[MessageQueue]], object]] = []
        self.is_paused = False
        self.is_closing = False
        #: The queues that the program assigned; None: the group's members divide them.
        self.fixed: frozenset[MessageQueue] | None = None
        self._ready: deque[Held[T]] = deque()
        self._waiting: deque[Future[None]] = deque()
        self._loops: list[Task[None]] = []
        #: Messages that were handed out and are not finished.
        self.running = 0
        self._idle: Future[None] | None = None
        self.stats = MemberStats()
        #: When the member was made, Unix ms.
        self.started_ms = client.tasks.clock.wall_ms()
        #: Messages of tools that have no result yet.
        self._direct_count = 0

    @property
    def max_attempts(self) -> int:
        """After so many attempts a message is dead."""
        if self.options.max_attempts is not None:
            return self.options.max_attempts
        return _INT32_MAX if self.options.in_order else MAX_ATTEMPTS

    # --- the group

    def producer_data(self) -> None:
        """A consumer produces nothing."""

    def consumer_data(self) -> ConsumerData:
        """The member's part of a heartbeat."""
        start = self.options.start
        where = (ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET if start == "last" else
                 ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET if start == "first" else
                 ConsumeFromWhere.CONSUME_FROM_TIMESTAMP)
        return ConsumerData(
            group_name=self.group, consume_type=self.consume_type,
            message_model=(MessageModel.BROADCASTING if self.options.is_broadcast
                           else MessageModel.CLUSTERING),
            consume_from_where=where,
            subscription_data_set=tuple(each.data(self.sub_version)
                                        for each in self.subscriptions.values()))

    async def start(self) -> None:
        """Join the group and begin to read.

        :raises Closed: when the client is closed.
        :raises OptionError: when the client has a member of the group.
        """
        self.client.add(self)
        for topic in self.subscriptions:
            self.client.routes.follow(topic)
        await self.rebalance.begin()
        self._loops.append(self.tasks.spawn(self._commit_always(), "commits"))
        self._loops.append(self.tasks.spawn(self._expire_always(), "time-outs of handlers"))
        if self.locks is not None:
            self._loops.append(self.tasks.spawn(self.locks.renew_always(), "locks"))

    def subscribe(self, wanted: Subscription) -> None:
        """Add or change a subscription."""
        self.subscriptions[wanted.topic] = wanted
        self.client.routes.follow(wanted.topic)
        self.sub_version = self.tasks.clock.wall_ms()
        for held in self.held.values():
            if held.queue.topic == wanted.topic:
                held.subscription = wanted
        self.tasks.spawn(self.client.heartbeat_all(), "heartbeat")
        self.rebalance.wake()

    def unsubscribe(self, topic: str) -> None:
        """Read a topic no more."""
        if self.subscriptions.pop(topic, None) is not None:
            self.sub_version = self.tasks.clock.wall_ms()
            self.tasks.spawn(self.client.heartbeat_all(), "heartbeat")
            self.rebalance.wake()

    def assigned(self) -> list[MessageQueue]:
        """The queues of the topics that were asked for, without those of retries, in order."""
        return sorted(held.named for held in self.held.values()
                      if not held.queue.topic.startswith(RETRY_GROUP_TOPIC_PREFIX))

    def set_paused(self, queues: Sequence[MessageQueue] | None, paused: bool) -> None:
        """Stop or resume the pulls of some queues, named as in the namespace, or of all."""
        if queues is None:
            self.is_paused = paused
        for held in self.held.values():
            if queues is None or held.named in queues:
                held.is_paused = paused

    def pop_table(self) -> dict[MessageQueue, dict[str, int | bool]]:
        """The sources of a member that pops, for tools; empty for all other members."""
        return {}

    def held_queues(self) -> list[tuple[MessageQueue, QueueWindow[Any]]]:
        """The queues of this member with their windows."""
        return [(queue, held.window) for queue, held in self.held.items()]

    # --- handing out

    def arrived(self, held: Held[T]) -> None:
        """Messages of a queue can be handed out, perhaps."""
        if held.is_ready or not held.window.waiting_count or held.window.is_dropped:
            return
        if self.options.in_order and held.window.running_count:
            return
        held.is_ready = True
        self._ready.append(held)
        self._notify()

    def _notify(self) -> None:
        """Wake one that waits for messages."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.is_done:
                waiter.set_result(None)
                break

    @property
    def has_ready(self) -> bool:
        """Whether there may be messages to hand out."""
        return bool(self._ready)

    def take(self, most: int) -> Batch[T] | None:
        """Hand out the next messages of one queue; the queues take turns.

        :returns: None when there is nothing to hand out now.
        """
        now_ms = self.tasks.now_ms
        in_order = self.options.in_order
        for _ in range(len(self._ready)):
            held = self._ready.popleft()
            held.is_ready = False
            window = held.window
            if window.is_dropped or self.is_closing:
                continue
            if in_order:
                if not self._may_run(held):
                    self.tasks.later(max(held.in_order_until_ms - now_ms, 100),
                                     self.arrived, held)
                    continue
                messages = window.take_in_order(most, int(now_ms))
            else:
                messages = window.take(most, int(now_ms))
                self.arrived(held)
            if messages:
                held.taken_ms = now_ms
                self.running += len(messages)
                if self.trace is not None:
                    self.trace.consuming(held.named, messages)
                if self.client.interceptors:
                    self.client.interceptors.call(
                        "before_consume", self.options.group, held.named, messages)
                return Batch(held, messages)
        return None

    def _may_run(self, held: Held[T]) -> bool:
        """Whether messages of an ordered queue may be handed out: the lock is held."""
        if held.in_order_until_ms > self.tasks.now_ms:
            return False
        return self.locks is None or held.window.holds_lock(int(self.tasks.now_ms))

    async def ready(self) -> None:
        """Wait until there may be something to hand out.

        :raises Closed: when the consumer closes.
        """
        while self.is_closing or not self._ready:
            if self.is_closing:
                raise Closed("the consumer is closed")
            waiter: Future[None] = Future()
            with self.waiting(waiter):
                await waiter

    @contextmanager
    def waiting(self, waiter: Future[None]) -> Iterator[None]:
        """While the block waits, ``waiter`` is told when there may be something to hand out."""
        self._waiting.append(waiter)
        try:
            yield
        except BaseException:
            # Cancelled: the notice, if it came, is for another one that waits.
            if waiter not in self._waiting and self._ready:
                self._notify()
            raise
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)

    def wake_all(self) -> None:
        """Let all that wait in :meth:`ready` look again, and give up."""
        waiting, self._waiting = self._waiting, deque()
        for waiter in waiting:
            waiter.set_error(Closed("the consumer stops"))

    # --- results

    def succeed(self, held: Held[T], messages: Sequence[ReceivedMessage[T]]) -> None:
        """Handlers finished these messages of one queue."""
        self.tell(held, messages, "success")
        if held.outcome is not None:
            held.outcome.set_result(True)
        held.window.done_all(messages)
        self._ended(len(messages), held)

    def release(self, held: Held[T], messages: Sequence[ReceivedMessage[T]]) -> None:
        """These were handed out and not begun: they wait again."""
        held.window.put_back(messages)
        self._ended(len(messages), held)

    def fail(
        self, held: Held[T], messages: Sequence[ReceivedMessage[T]], level: int = 0
    ) -> None:
        """Handlers could not process these messages of one queue.

        :param level: the delay level of the next attempt; 0: the broker chooses; -1: no more.
        """
        self.tell(held, messages, "retry")
        if held.outcome is not None:
            held.outcome.set_result(False)
            held.window.done_all(messages)
            self._ended(len(messages), held)
        elif self.options.is_broadcast:
            for message in messages:
                log.warning("%r failed, and is dropped: the group broadcasts", message)
            held.window.done_all(messages)
            self._ended(len(messages), held)
        elif self.options.in_order:
            self._suspend(held, messages, level)
        else:
            for message in messages:
                self.tasks.spawn(self._send_back(held, message, level), "send back")

    def tell(
        self, held: Held[T], messages: Sequence[ReceivedMessage[T]], outcome: str
    ) -> None:
        """Tell traces, statistics and interceptors the result of messages."""
        if self.trace is not None:
            self.trace.consumed(held.named, messages, outcome)
        now_ms = self.tasks.now_ms
        begin_ms = held.window.began_ms(messages[0].offset) if messages else None
        if begin_ms is not None:
            self.stats.handled(held.queue.topic, now_ms, len(messages), now_ms - begin_ms,
                               is_success=outcome == "success")
        if self.client.interceptors:
            self.client.interceptors.call(
                "after_consume", self.options.group, held.named, messages, outcome)

    def _suspend(
        self, held: Held[T], messages: Sequence[ReceivedMessage[T]], level: int
    ) -> None:
        """Hand out failed messages of an order again after a while, or send away the dead."""
        over = [message for message in messages
                if level == DEAD_LEVEL or message.attempt > self.max_attempts]
        again = [message for message in messages if message not in over]
        for message in again:
            message.earlier_attempts += 1
        held.in_order_until_ms = self.tasks.now_ms + min(max(self.options.suspend_ms, 10), 30_000)
        if over:
            self.tasks.spawn(self._bury(held, over, again), "send back in order")
        else:
            self.release(held, again)
            self.tasks.later(held.in_order_until_ms - self.tasks.now_ms, self.arrived, held)

    async def _bury(
        self, held: Held[T], over: Sequence[ReceivedMessage[T]],
        again: Sequence[ReceivedMessage[T]],
    ) -> None:
        """Send the dead messages of an order away; the queue waits for it."""
        for message in over:
            while not held.window.is_dropped and not await self.retries.send_back(
                    message, DEAD_LEVEL):
                await self.tasks.sleep(LOCAL_RETRY_MS)
        held.window.done_all(over)
        self.running -= len(over)
        held.in_order_until_ms = 0.0
        self.release(held, again)

    async def _send_back(self, held: Held[T], message: ReceivedMessage[T], level: int) -> None:
        """Send a message back; without success it is handed out again here."""
        if held.window.is_dropped:
            self._ended(1, held)
            return
        if await self.retries.send_back(message, level):
            self._expect_retries()
            held.window.done(message.offset)
            self._ended(1, held)
            return
        message.earlier_attempts += 1
        self.tasks.later(LOCAL_RETRY_MS, self.release, held, [message])

    def _expect_retries(self) -> None:
        """The first message that is sent back makes the retry topic: look for its queues soon."""
        if self.client.routes.known(retry_topic(self.group)) is None:
            self.tasks.later(_RETRY_TOPIC_MS, self.rebalance.wake)

    def _ended(self, count: int, held: Held[T]) -> None:
        self.running -= count
        self.arrived(held)
        if self._idle is not None and self.running <= 0:
            self._idle.set_result(None)

    async def consume_now(self, message: ReceivedMessage[T], timeout_ms: float) -> bool:
        """Hand out a message that a tool sent; :returns: whether it was processed.

        It counts for no offset, and is not sent back.

        :raises Busy: when too many of them wait.
        :raises Closed: when the consumer closes.
        :raises TimeoutError: when there is no result in time; it is handed out no more.
        """
        if self.is_closing:
            raise Closed("the consumer is closed")
        if self._direct_count >= _DIRECT_MAX:
            raise Busy(ResponseCode.SYSTEM_BUSY, f"{_DIRECT_MAX} messages of tools wait already")
        window: QueueWindow[Any] = QueueWindow(
            message.queue, message.offset, int(self.tasks.now_ms), self.total)
        held = Held(message.queue, message.queue, Subscription(message.queue.topic), window,
                    message.offset)
        outcome: Future[bool] = Future()
        held.outcome = outcome
        window.locked(int(self.tasks.now_ms))
        window.put([message], [message.record.size])
        self._direct_count += 1
        self.arrived(held)
        try:
            return await self.tasks.within(timeout_ms, outcome, lambda: TimeoutError(
                f"the handler did not end in {timeout_ms:.0f} ms"))
        finally:
            self._direct_count -= 1
            window.drop()

    async def _expire_always(self) -> None:
        """Send back the messages whose handlers take too long; their late results do not count."""
        timeout_ms = self.options.consume_timeout_ms
        while True:
            await self.tasks.sleep(min(timeout_ms, _EXPIRE_MS))
            if self.options.in_order or self.options.is_broadcast:
                continue
            for held in list(self.held.values()):
                for message in held.window.expired(int(self.tasks.now_ms), int(timeout_ms)):
                    log.warning("the handler of %r takes longer than %d ms, and it is sent back",
                                message, timeout_ms)
                    self.tell(held, [message], "time-out")
                    if await self.retries.send_back(message, _TIMEOUT_LEVEL):
                        held.window.done(message.offset)

    # --- offsets

    async def commit(self, queues: Sequence[Held[T]] | None = None) -> None:
        """Commit how far the queues have come, those that changed since the last time."""
        table = {held.queue: held.window.committable
                 for held in (self.held.values() if queues is None else queues)
                 if held.window.committable != held.committed}
        if not table:
            return
        kept = await self.offsets.write(table)
        for held in list(self.held.values()) if queues is None else queues:
            if held.queue in kept:
                held.committed = kept[held.queue]

    async def move_to(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue queues at other offsets, also at lower ones; what was read is forgotten.

        Results of messages that run do not count. Queues of other members are left out.
        """
        moved = {queue: offset for queue, offset in offsets.items() if queue in self.held}
        for queue, offset in moved.items():
            window = self.held[queue].window
            for message in window.drop():
                message.lost = True
            window.freeze_at(offset)
        if not moved:
            return
        log.warning("group %s: these queues continue at other offsets: %s", self.group,
                    ", ".join(f"{queue} at {offset}" for queue, offset in moved.items()))
        for queue, offset in (await self.offsets.write(moved)).items():
            if queue in self.held and self.held[queue].window.is_dropped:
                self.held[queue].committed = offset
        self.rebalance.wake()

    async def _commit_always(self) -> None:
        await self.tasks.sleep(min(COMMIT_FIRST_MS, self.options.commit_ms * 2))
        while True:
            await self.commit()
            await self.tasks.sleep(self.options.commit_ms)

    # --- the end

    async def close(self, timeout_ms: float = 10_000) -> None:
        """Stop reading, wait for the handlers, commit, unlock, and leave the group."""
        if self.is_closing:
            return
        self.is_closing = True
        self.rebalance.stop()
        for held in self.held.values():
            if held.task is not None:
                held.task.cancel()
        while self._waiting:
            self._waiting.popleft().set_error(Closed("the consumer is closed"))
        await self._wait_for_handlers(timeout_ms)
        for loop in self._loops:
            loop.cancel()
        await self.commit()
        for held in self.held.values():
            for message in held.window.drop():
                message.lost = True
        if self.locks is not None:
            # The lock of a handler that still runs ends by itself, at the broker.
            self.locks.unlock_all([held.queue for held in self.held.values()
                                   if not held.window.running_count])
        self.held.clear()
        for topic in self.subscriptions:
            self.client.routes.unfollow(topic)
        if self.trace is not None:
            await self.trace.close()
        await self.client.remove(self)

    async def _wait_for_handlers(self, timeout_ms: float) -> None:
        if self.running <= 0:
            return
        self._idle = Future()
        try:
            await self.tasks.within(timeout_ms, self._idle, lambda: TimeoutError())
        except TimeoutError:
            left = [message for held in self.held.values()
                    for message in held.window.expired(int(self.tasks.now_ms), -1, 16)]
            log.warning("%d handlers did not end in %d ms; their messages come again: %s",
                        self.running, timeout_ms, ", ".join(map(repr, left)))
