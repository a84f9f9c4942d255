"""Popping the sources of a member: one task a source, while something waits for messages.

A source is a queue of a broker, or all its queues of a topic: then its queue id is -1. A broker
gives out messages of the group's retries as well.

Messages are popped on demand only, because a popped message is hidden from the other members: a
member that takes none hides none. A pop is held by the broker for as long as something here waits,
for ``HOLD_MS`` at most. The answer of one pop may bring more than was waited for; the rest waits
here for the next demand.

    the answer                    the next pop
    messages, no messages         at once, if something waits
    no messages, and not held     100 ms later
    no message that can be read   1 s later
    too many pops are held        1 s later
    an error, no answer           1 s later; with a heartbeat if the broker does not know the group

Source: DefaultMQPushConsumerImpl.popMessage, MQClientAPIImpl.processPopResponse @5.3.3. Differs
from Apache, whose client pops ahead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from twistmq.broker.codes import RequestCode, ResponseCode
from twistmq.broker.errors import BrokerError, RemotingError
from twistmq.broker.observe.log_rate import LineRate
from twistmq.broker.wire.bodies import MessageQueue
from twistmq.broker.wire.command import RemotingCommand
from twistmq.broker.wire.headers.pop import PopMessageRequestHeader, PopMessageResponseHeader
from twistmq.client.core.fetching import UNKNOWN_GROUP
from twistmq.client.core.flow import FAILED_MS, delay_after_refusal
from twistmq.client.core.held import PopOptions
from twistmq.client.core.popped_message import PoppedMessage
from twistmq.client.core.receipts import popped_messages
from twistmq.client.core.subscriptions import Subscription
from twistmq.client.core.tasks import Future, Task
from twistmq.client.errors import NoRoute, RequestRefused, Unsupported, refusal
from twistmq.client.received_message import DamagedMessage

if TYPE_CHECKING:
    from twistmq.client.core.consuming import Member

__all__ = ["HOLD_MS", "Popping", "Source"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")

#: How long a broker may hold a pop, and how much longer its answer is waited for, ms.
#: Source: DefaultMQPushConsumerImpl.BROKER_SUSPEND_MAX_TIME_MILLIS.
HOLD_MS: Final = 15_000
_LATE_MS: Final = 15_000
#: The wait after an answer without messages that came sooner than this, ms.
_SOON_MS: Final = 100
#: How long a broker that cannot pop is left out, ms.
_UNSUPPORTED_MS: Final = 30_000
_NOTHING: Final = (ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL,
                   ResponseCode.PULL_NOT_FOUND)
#: Where a new group begins. Source: ConsumeInitMode.
_INIT_MIN, _INIT_MAX = 0, 1
#: The pops of this process.
_numbers = count()


class Source:
    """A queue, or all queues of a broker, that one task pops.

    :param queue: with the topic's name at brokers; the id -1 stands for all queues of the broker.
    :param named: the same with the topic's name in the namespace.
    """

    __slots__ = ("attempt_id", "is_dropped", "is_paused", "named", "number", "popped_ms", "queue",
                 "task")

    def __init__(self, queue: MessageQueue, named: MessageQueue) -> None:
        self.queue = queue
        self.named = named
        self.is_dropped = False
        self.is_paused = False
        #: Of a pop whose answer did not come: sent again, it gets the same messages of an order.
        self.attempt_id: str | None = None
        self.task: Task[None] | None = None
        #: When it was popped last, Unix ms, 0: never; and the number of that pop.
        self.popped_ms = 0
        self.number = -1


class Popping(Generic[T]):
    """The pops of one member.

    :param popped: is given the source, its subscription, the messages and the ms it took.

    ``on_end`` functions are called when a pop has ended, with messages or without.
    """

    def __init__(
        self, member: Member[T], options: PopOptions,
        popped: Callable[[Source, Subscription, list[PoppedMessage[T]], float], object],
    ) -> None:
        self._member = member
        self._options = options
        self._client = member.client
        self._popped = popped
        self.on_end: list[Callable[[], object]] = []
        self.sources: dict[MessageQueue, Source] = {}
        #: For how long the next pops hide messages, ms.
        self.invisible_ms = options.invisible_ms
        #: Of each that waits for messages: until when, steady clock, and which pop is its first.
        self._wants: list[tuple[float, int]] = []
        self._sleeping: list[Future[None]] = []
        #: Pops that were begun, those under way, and the messages that these may bring.
        self.begun = self.under_way = 0
        self._expected = 0
        #: Lines about brokers that say another time than the one that was asked for.
        self._time_lines = LineRate()

    # --- demand

    @contextmanager
    def wanted(self, until_ms: float, first: int | None = None) -> Iterator[None]:
        """While the block waits, until a time of the steady clock, messages are popped.

        :param first: the number of the first pop that counts for it, if it waits once more; None:
            that of the next one.
        """
        want = until_ms, self.begun if first is None else first
        self._wants.append(want)
        self.wake()
        try:
            yield
        finally:
            self._wants.remove(want)

    def wake(self) -> None:
        """Something changed: tasks that do not pop look whether they should."""
        sleeping, self._sleeping = self._sleeping, []
        for each in sleeping:
            each.set_result(None)

    def _hold_ms(self, source: Source) -> float | None:
        """How long a pop may be held; None: nothing waits for it, or it will find messages here.

        A wait that is over wants one pop of each source, which is not held.
        """
        if self._member.has_ready:
            return None
        now_ms = self._client.tasks.now_ms
        left_ms = [until_ms - now_ms for until_ms, first in self._wants
                   if until_ms > now_ms or source.number < first]
        return min(max(max(left_ms), 0), HOLD_MS) if left_ms else None

    # --- sources

    def change(self, wanted: Sequence[Source]) -> tuple[list[Source], list[Source]]:
        """Pop these and no other; :returns: the sources that came, and those that went."""
        queues = {source.queue for source in wanted}
        lost = [source for queue, source in self.sources.items() if queue not in queues]
        taken = [source for source in wanted if source.queue not in self.sources]
        for source in lost:
            # A pop under way ends in its own time: its messages are this member's.
            source.is_dropped = True
            del self.sources[source.queue]
        for source in taken:
            self.sources[source.queue] = source
            source.task = self._client.tasks.spawn(
                self._pop_always(source), f"pops of {source.queue}")
        self.wake()
        return taken, lost

    async def _pop_always(self, source: Source) -> None:
        """Pop a source while something waits, until it is dropped or the member closes."""
        while not source.is_dropped and not self._member.is_closing:
            most, hold_ms = self._room(), self._hold_ms(source)
            if hold_ms is None or most < 1 or self._member.is_paused or source.is_paused:
                sleeping: Future[None] = Future()
                self._sleeping.append(sleeping)
                await sleeping
                continue
            source.number = self._begin(most)
            try:
                wait_ms = await self._pop(source, most, hold_ms)
            except BrokerError as error:
                wait_ms = self._after(source, error)
            except Exception:
                log.exception("a pop of %s failed, and is tried again", source.queue)
                wait_ms = FAILED_MS
            finally:
                self._end(most)
            if wait_ms:
                await self._client.tasks.sleep(wait_ms)

    def _room(self) -> int:
        """How many messages a pop may bring now."""
        member = self._member
        if member.flow.is_full(self._client.tasks.now_ms):
            return 0
        in_flight = sum(held.window.count for held in member.held.values())
        left = self._options.in_flight_max - in_flight - self._expected
        return min(left, self._options.pull_count)

    def _begin(self, most: int) -> int:
        """A pop begins; :returns: its number."""
        self.begun += 1
        self.under_way += 1
        self._expected += most
        return self.begun - 1

    def _end(self, most: int) -> None:
        self.under_way -= 1
        self._expected -= most
        for listener in self.on_end:
            listener()
        # There may be room for another source.
        self.wake()

    # --- one pop

    async def _pop(self, source: Source, most: int, hold_ms: float) -> float:
        """Pop once; :returns: the wait before the next pop, ms."""
        member, client = self._member, self._client
        subscription = member.subscriptions.get(source.queue.topic)
        if subscription is None:
            return FAILED_MS
        address = client.routes.master(source.queue.broker_name)
        now_ms = client.tasks.now_ms
        source.popped_ms = client.tasks.clock.wall_ms()
        header = self._header(source, subscription, most, hold_ms)
        under_way = member.flow.begin(now_ms)
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
            member.flow.end(under_way)
        if reply.code in (ResponseCode.POLLING_FULL, ResponseCode.SUCCESS):
            return FAILED_MS
        return _SOON_MS if hold_ms > duration_ms < _SOON_MS else 0

    def _header(
        self, source: Source, subscription: Subscription, most: int, hold_ms: float
    ) -> PopMessageRequestHeader:
        member = self._member
        if source.attempt_id is None and member.options.in_order:
            source.attempt_id = f"{self._client.client_id}-{next(_numbers)}"[-200:]
        # Without a time of birth the broker counts from when it gets the request, whatever this
        # machine's clock says.
        return PopMessageRequestHeader(
            consumer_group=member.group, topic=source.queue.topic, queue_id=source.queue.queue_id,
            max_msg_nums=most, invisible_time=int(self.invisible_ms), poll_time=int(hold_ms),
            init_mode=_INIT_MIN if member.options.start == "first" else _INIT_MAX, born_time=0,
            exp_type=subscription.kind, exp=subscription.expression,
            order=member.options.in_order, attempt_id=source.attempt_id)

    def _messages(
        self, source: Source, header: PopMessageRequestHeader, reply: RemotingCommand, address: str
    ) -> list[PoppedMessage[T]]:
        """The messages of a reply.

        Damaged ones are not acknowledged: their broker delivers them again, and may have a whole
        copy then.

        :raises RequestRefused: when it is an error; Undecodable: when they cannot be read.
        """
        if reply.code in _NOTHING:
            return []
        if reply.code != ResponseCode.SUCCESS:
            raise refusal(reply.code, reply.remark, address)
        damaged: list[DamagedMessage[T]] = []
        answer = reply.header(PopMessageResponseHeader)
        messages = popped_messages(
            answer, reply.body, source.queue, self._member.group, source.named.topic,
            self._member.decode, self._client.tasks.now_ms + header.invisible_time, damaged)
        for message in messages:
            message.hidden_ms = header.invisible_time
        if messages and answer.invisible_time != header.invisible_time:
            self._log_other_time(header.invisible_time, answer.invisible_time, address)
        self._member.damaged_count += len(damaged)
        for each in damaged:
            self._member.log_damaged("group %s: %r is left to the retries of its broker: %s",
                                     self._member.group, each, each.damage)
        return messages

    def _log_other_time(self, asked_ms: int, said_ms: int, address: str) -> None:
        """Log that a broker hides messages for another time than it was asked to."""
        left_out = self._time_lines.left_out(int(self._client.tasks.now_ms))
        if left_out is not None:
            log.warning("group %s: %s was asked to hide messages for %d ms, and says that it hides "
                        "them for %d ms: the time that was asked for counts here%s",
                        self._member.group, address, asked_ms, said_ms,
                        f" ({left_out} more since the last line)" if left_out else "")

    def _after(self, source: Source, error: BrokerError) -> float:
        """The wait after a pop that failed, ms."""
        code = error.response_code if isinstance(error, RequestRefused) else 0
        if not isinstance(error, RemotingError):
            source.attempt_id = None
        if self._client.is_closed or self._member.is_closing:
            return 0
        if isinstance(error, Unsupported):
            log.error("broker %s has no pop consumption, which needs RocketMQ 5.0 or later: the "
                      "messages that it has of topic %s are not consumed by group %s",
                      source.queue.broker_name, source.named.topic, self._member.group)
            return _UNSUPPORTED_MS
        if code in UNKNOWN_GROUP:
            log.info("group %s is announced again: %s", self._member.group, error)
            self._client.tasks.spawn(self._client.heartbeat_all(), "heartbeat")
        elif isinstance(error, NoRoute):
            log.debug("%s: %s", source.queue, error)
        else:
            log.warning("the pop of %s failed: %s", source.queue, error)
        return delay_after_refusal(code)

