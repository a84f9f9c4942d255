"""Pops the sources of a member: one task per source, while a caller waits for messages.

A source is one queue of a broker, or all its queues of a topic; the queue id is then -1. A broker
also returns messages of the group's retry topics.

Messages are popped only on demand, because a popped message is hidden from other members: a member
that does not take messages does not hide any. The broker holds a pop for as long as a caller waits
here, but at most for ``HOLD_MS``. The response to one pop may bring more messages than the caller
wanted; the remaining messages wait here for the next demand.

    the response                  the next pop
    messages, no messages         at once, if a caller waits
    no messages, and not held     100 ms later
    no message that can be read   1 s later
    too many pops are held        1 s later
    an error, no response         1 s later; with a heartbeat if the broker does not know the group

Source: DefaultMQPushConsumerImpl.popMessage, MQClientAPIImpl.processPopResponse @5.3.3. Differs
from Apache, whose client pops ahead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Final, Generic, TypeVar

from twistmq.client.base.errors import NoRoute, RemotingError, RequestRefused, Unsupported, refusal
from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.base.received_message import DamagedMessage
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.connection.tasks import Future, Task
from twistmq.client.core.consumer.assigned_queues import AssignedQueues, PopOptions
from twistmq.client.core.consumer.close_signal import CloseSignal
from twistmq.client.core.consumer.damaged_messages import DamageLog
from twistmq.client.core.consumer.delivery import Delivery
from twistmq.client.core.consumer.fetcher import UNKNOWN_GROUP
from twistmq.client.core.consumer.flow_control import FAILED_MS, PullFlow, delay_after_refusal
from twistmq.client.core.consumer.subscriptions import Subscription, SubscriptionTable
from twistmq.client.core.pop.acknowledger import Acknowledger
from twistmq.client.core.pop.popped_message import PoppedMessage
from twistmq.client.core.pop.receipts import popped_messages, with_receipts
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import BrokerError
from twistmq.protocol.headers.pop import PopMessageRequestHeader, PopMessageResponseHeader
from twistmq.protocol.log_rate import LimitedLines

__all__ = ["HOLD_MS", "PopLoop", "Source"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")

#: How long a broker may hold a pop, and the additional time for its response, in ms.
#: Source: DefaultMQPushConsumerImpl.BROKER_SUSPEND_MAX_TIME_MILLIS.
HOLD_MS: Final = 15_000
_LATE_MS: Final = 15_000
#: The wait after a response without messages that came sooner than this, in ms.
_SOON_MS: Final = 100
#: How long a broker that does not support pop is left out, in ms.
_UNSUPPORTED_MS: Final = 30_000
_NOTHING: Final = (ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL,
                   ResponseCode.PULL_NOT_FOUND)
#: The offset at which a new group begins. Source: ConsumeInitMode.
_INIT_MIN, _INIT_MAX = 0, 1
#: The numbers of the pops of this process.
_numbers = count()


class Source:
    """A queue, or all queues of a broker, that one task pops.

    :param queue: the queue with the topic's name at brokers; id -1 stands for all queues.
    :param public_queue: the same with the topic's name in the namespace.
    """

    __slots__ = (
        "attempt_id",
        "is_dropped",
        "is_paused",
        "number",
        "popped_ms",
        "public_queue",
        "queue",
        "task",
    )

    def __init__(self, queue: MessageQueue, public_queue: MessageQueue) -> None:
        self.queue = queue
        self.public_queue = public_queue
        self.is_dropped = False
        self.is_paused = False
        #: The id of a pop without a response: if it is sent again, an ordered pop returns the same
        #: messages.
        self.attempt_id: str | None = None
        self.task: Task[None] | None = None
        #: When it was last popped, in Unix ms (0: never); and the number of that pop.
        self.popped_ms = 0
        self.number = -1


class PopLoop(Generic[T]):
    """The pops of one member.

    :param group: the group's name at brokers.
    :param delivery: nothing is popped while it has messages to hand out.
    :param popped: called with the source, its subscription, the messages and the duration in ms.
    :param decode: returns the value of a message; with None, the value is the body.

    The functions in ``on_end`` are called when a pop has ended, with messages or without.
    """

    def __init__(
        self, client: ClientCore, group: str, options: PopOptions, closing: CloseSignal,
        subscriptions: SubscriptionTable, queues: AssignedQueues[T], flow: PullFlow,
        delivery: Delivery[T], damage: DamageLog, acks: Acknowledger,
        popped: Callable[[Source, Subscription, list[PoppedMessage[T]], float], object],
        decode: Callable[[ReceivedMessage[T]], T] | None,
    ) -> None:
        self._client = client
        self._group = group
        self._options = options
        self._closing = closing
        self._subscriptions = subscriptions
        self._queues = queues
        self._flow = flow
        self._delivery = delivery
        self._damage = damage
        self._acks = acks
        self._popped = popped
        self._decode = decode
        #: Whether all sources are paused.
        self.is_paused = False
        self.on_end: list[Callable[[], object]] = []
        self.sources: dict[MessageQueue, Source] = {}
        #: The time for which the next pops hide messages, in ms.
        self.invisible_ms = options.invisible_ms
        #: For each waiting caller: the end of its wait, by the monotonic clock, and its first pop.
        self._demands: list[tuple[float, int]] = []
        self._sleeping: list[Future[None]] = []
        #: The pops that have begun, the pops in flight, and the messages that these may return.
        self.begun = self.under_way = 0
        self._expected = 0
        #: The rate of the lines about brokers that report another invisible time than requested.
        self._time_lines = LimitedLines(log.warning)

    # --- demand

    @contextmanager
    def pop_until(self, until_ms: float, first: int | None = None) -> Iterator[None]:
        """Pop messages while the block waits, until a time of the monotonic clock.

        :param first: the number of the first pop that counts for this demand, if its caller waits
            again; None: the number of the next pop.
        """
        demand = until_ms, self.begun if first is None else first
        self._demands.append(demand)
        self.wake()
        try:
            yield
        finally:
            self._demands.remove(demand)

    def wake(self) -> None:
        """Make idle tasks check whether they should pop, because something changed."""
        sleeping, self._sleeping = self._sleeping, []
        for each in sleeping:
            each.set_result(None)

    def _hold_ms(self, source: Source) -> float | None:
        """Return how long a pop may be held, or None if no caller needs messages from a pop.

        A caller whose wait is over still needs one pop of each source, which is not held.
        """
        if self._delivery.ready_queues:
            return None
        now_ms = self._client.tasks.now_ms
        remaining_ms = [until_ms - now_ms for until_ms, first in self._demands
                        if until_ms > now_ms or source.number < first]
        return min(max(max(remaining_ms), 0), HOLD_MS) if remaining_ms else None

    # --- sources

    def change(self, sources: Sequence[Source]) -> tuple[list[Source], list[Source]]:
        """Pop exactly these sources; :returns: the added sources and the removed sources."""
        queues = {source.queue for source in sources}
        lost = [source for queue, source in self.sources.items() if queue not in queues]
        added = [source for source in sources if source.queue not in self.sources]
        for source in lost:
            # A pop in flight is not stopped: its messages belong to this member.
            source.is_dropped = True
            del self.sources[source.queue]
        for source in added:
            self.sources[source.queue] = source
            source.task = self._client.tasks.spawn(
                self._pop_always(source), f"pops of {source.queue}")
        self.wake()
        return added, lost

    async def _pop_always(self, source: Source) -> None:
        """Pop a source while a caller waits, until it is dropped, or the member or client closes.
        """
        while not (source.is_dropped or self._closing.is_set or self._client.is_closed):
            max_count, hold_ms = self._room(), self._hold_ms(source)
            if hold_ms is None or max_count < 1 or self.is_paused or source.is_paused:
                sleeping: Future[None] = Future()
                self._sleeping.append(sleeping)
                await sleeping
                continue
            source.number = self._begin(max_count)
            try:
                wait_ms = await self._pop(source, max_count, hold_ms)
            except BrokerError as error:
                wait_ms = self._after(source, error)
            except Exception:
                log.exception("a pop of %s failed, and is tried again", source.queue)
                wait_ms = FAILED_MS
            finally:
                self._end(max_count)
            if wait_ms:
                await self._client.tasks.sleep(wait_ms)

    def _room(self) -> int:
        """Return how many messages a pop may bring now."""
        if self._flow.is_full(self._client.tasks.now_ms):
            return 0
        in_flight = sum(assigned.window.count for assigned in self._queues.values())
        remaining = self._options.in_flight_max - in_flight - self._expected
        return min(remaining, self._options.pull_count)

    def _begin(self, max_count: int) -> int:
        """Note that a pop begins; :returns: its number."""
        self.begun += 1
        self.under_way += 1
        self._expected += max_count
        return self.begun - 1

    def _end(self, max_count: int) -> None:
        self.under_way -= 1
        self._expected -= max_count
        for listener in self.on_end:
            listener()
        # There may be room for another source.
        self.wake()

    # --- one pop

    async def _pop(self, source: Source, max_count: int, hold_ms: float) -> float:
        """Pop once; :returns: the wait before the next pop, in ms."""
        client = self._client
        subscription = self._subscriptions.get(source.queue.topic)
        if subscription is None:
            return FAILED_MS
        address = client.routes.master(source.queue.broker_name)
        now_ms = client.tasks.now_ms
        source.popped_ms = client.tasks.clock.wall_ms()
        header = self._header(source, subscription, max_count, hold_ms)
        under_way = self._flow.begin(now_ms)
        try:
            reply = await client.engine.invoke(
                address, RequestCode.POP_MESSAGE, header, timeout_ms=hold_ms + _LATE_MS)
            source.attempt_id = None
            messages = self._messages(source, header, reply, address)
            duration_ms = client.tasks.now_ms - now_ms
            if messages:
                self._popped(source, subscription, messages, duration_ms)
                return 0
        finally:
            self._flow.end(under_way)
        if reply.code in (ResponseCode.POLLING_FULL, ResponseCode.SUCCESS):
            return FAILED_MS
        return _SOON_MS if hold_ms > duration_ms < _SOON_MS else 0

    def _header(
        self, source: Source, subscription: Subscription, max_count: int, hold_ms: float
    ) -> PopMessageRequestHeader:
        if source.attempt_id is None and self._options.in_order:
            source.attempt_id = f"{self._client.client_id}-{next(_numbers)}"[-200:]
        # Without a birth time, the broker counts from the arrival of the request, so that this
        # machine's clock does not matter.
        return PopMessageRequestHeader(
            consumer_group=self._group, topic=source.queue.topic, queue_id=source.queue.queue_id,
            max_msg_nums=max_count, invisible_time=int(self.invisible_ms), poll_time=int(hold_ms),
            init_mode=_INIT_MIN if self._options.start == "first" else _INIT_MAX, born_time=0,
            exp_type=subscription.kind, exp=subscription.expression,
            order=self._options.in_order, attempt_id=source.attempt_id)

    def _messages(
        self, source: Source, header: PopMessageRequestHeader, reply: RemotingCommand, address: str
    ) -> list[PoppedMessage[T]]:
        """Return the messages of a response.

        Damaged messages are not acknowledged: their broker delivers them again, and may then have
        an intact copy. An ordered group acknowledges them, because its broker would otherwise give
        out the same messages again and again, and none behind them.

        :raises RequestRefused: when it is an error; Undecodable: when messages cannot be read.
        """
        if reply.code in _NOTHING:
            return []
        if reply.code != ResponseCode.SUCCESS:
            raise refusal(reply.code, reply.remark, address)
        damaged: list[DamagedMessage[T]] = []
        answer = reply.header(PopMessageResponseHeader)
        messages = popped_messages(
            answer, reply.body, source.queue, self._group, source.public_queue.topic,
            self._decode, self._client.tasks.now_ms + header.invisible_time, damaged)
        for message in messages:
            message.requested_invisible_ms = header.invisible_time
        if messages and answer.invisible_time != header.invisible_time:
            self._log_other_time(header.invisible_time, answer.invisible_time, address)
        self._damage.count += len(damaged)
        for each in damaged:
            self._damage.log_error(
                "group %s: %r is left out: %s" if self._options.in_order
                else "group %s: %r is left to the retries of its broker: %s",
                self._group, each, each.damage)
        if damaged and self._options.in_order:
            for known in with_receipts(
                    damaged, messages, answer, source.queue, self._group,
                    self._client.tasks.now_ms + header.invisible_time):
                self._acks.add(known).when_done(lambda _: None)
        return messages

    def _log_other_time(self, requested_ms: int, reported_ms: int, address: str) -> None:
        """Log that a broker reports another invisible time than this member requested."""
        self._time_lines.write(
            self._client.tasks.now_ms, "group %s: %s was asked to hide messages for %d ms, and "
            "reports that it hides them for %d ms: the requested time applies here",
            self._group, address, requested_ms, reported_ms)

    def _after(self, source: Source, error: BrokerError) -> float:
        """Return the wait after a failed pop, in ms."""
        code = error.response_code if isinstance(error, RequestRefused) else 0
        if not isinstance(error, RemotingError):
            source.attempt_id = None
        if self._client.is_closed or self._closing.is_set:
            return 0
        if isinstance(error, Unsupported):
            log.error("broker %s has no pop consumption, which needs RocketMQ 5.0 or later: the "
                      "messages that it has of topic %s are not consumed by group %s",
                      source.queue.broker_name, source.public_queue.topic, self._group)
            return _UNSUPPORTED_MS
        if code in UNKNOWN_GROUP:
            log.info("group %s is announced again: %s", self._group, error)
            self._client.tasks.spawn(self._client.heartbeat_all(), "heartbeat")
        elif isinstance(error, NoRoute):
            log.debug("%s: %s", source.queue, error)
        else:
            log.warning("the pop of %s failed: %s", source.queue, error)
        return delay_after_refusal(code)

