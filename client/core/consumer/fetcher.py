"""Pulls the queues of a member: one task per queue, within the flow control.

    the response               the next pull
    messages, nothing new      at once; the broker holds a pull of a queue without new messages
    nothing, and not held      100 ms later
    a limit is reached         50 ms later, see flow_control.py
    stops at a damaged message 5 s later; see damaged_messages.py
    an error, no response      1 s later; with a heartbeat if the broker does not know the group
    the offset moved           the queue is dropped at the broker's offset, and assigned again

If a pull returned as many messages as it requested, its response states how many more the queue
has. The member then starts several pulls at once, each at the offset where the previous one should
end. If a pull ends at another offset, the responses to the later pulls are ignored. Apache's client
starts only one pull at a time.

Source: DefaultMQPushConsumerImpl.pullMessage, PullAPIWrapper @5.3.3.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar, cast

from twistmq.client.base.errors import NoRoute, RequestRefused, Undecodable
from twistmq.client.base.messages import PullResult, PullStatus, ReceivedMessage
from twistmq.client.base.received_message import DamagedMessage
from twistmq.client.core.connection.tasks import Future
from twistmq.client.core.consumer.assigned_queues import AssignedQueue
from twistmq.client.core.consumer.damaged_messages import sort_out
from twistmq.client.core.consumer.flow_control import (
    FAILED_MS,
    FULL_MS,
    PAUSED_MS,
    PullUnderWay,
    delay_after_refusal,
)
from twistmq.client.core.consumer.pull_request import messages_of, pull_header, pull_result
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import BrokerError

if TYPE_CHECKING:
    from twistmq.client.core.consumer.member import Member

__all__ = ["HOLD_MS", "UNKNOWN_GROUP", "Fetcher"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")

#: How long a broker may hold a pull, and the time-out of its response, in ms.
HOLD_MS: Final = 15_000
TIMEOUT_MS: Final = 30_000
#: The wait after a pull that returned nothing and was answered faster than this, in ms.
SOON_MS: Final = 100
#: The wait before a damaged message at which a queue stopped is requested again, in ms.
STOPPED_MS: Final = 5_000
#: The maximum number of pulls of a queue in flight.
AHEAD_MAX: Final = 8
#: The response codes of a broker that does not know the group or its newest subscription.
UNKNOWN_GROUP: Final = frozenset({
    ResponseCode.SUBSCRIPTION_PARSE_FAILED, ResponseCode.SUBSCRIPTION_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_NOT_LATEST, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
})


class _Pull(NamedTuple):
    """A pull in flight.

    :param offset: the offset at which it begins.
    """

    offset: int
    address: str
    under_way: PullUnderWay
    reply: Future[RemotingCommand]


class Fetcher(Generic[T]):
    """The pulls of one member."""

    def __init__(self, member: Member[T]) -> None:
        self._member = member
        self._client = member.client

    async def pull_always(self, held: AssignedQueue[T], delay_ms: float) -> None:
        """Pull a queue until it is dropped, for the first time after ``delay_ms``."""
        tasks = self._client.tasks
        await tasks.sleep(delay_ms)
        if delay_ms:
            await self._look_again(held)
        self._member.settled(held)
        while not held.window.is_dropped:
            wait_ms = self._wait_ms(held)
            if not wait_ms:
                try:
                    wait_ms = await self._pull(held)
                except BrokerError as error:
                    wait_ms = self._after(held, error)
                except Exception:
                    log.exception("a pull of %s failed, and is tried again", held.queue)
                    wait_ms = float(FAILED_MS)
            if wait_ms:
                held.window.pulled_ms = int(tasks.now_ms)
                await tasks.sleep(wait_ms)

    async def _look_again(self, held: AssignedQueue[T]) -> None:
        """Ask again where a new queue begins, because the previous member may have committed."""
        member = self._member
        if member.options.is_broadcast or member.fixed is not None:
            return
        try:
            offset = await member.offsets.read(held.queue)
        except BrokerError as error:
            log.debug("%s begins at the offset that was read first: %s", held.queue, error)
            return
        if offset is None or held.window.is_dropped:
            return
        # The offset may also be lower than the start of a queue that the group did not know: then
        # the previous member had it only for a moment, and messages arrived in between.
        if offset > held.next_offset or held.is_new:
            held.next_offset = held.committed = offset
            held.window.begin_at(offset)

    def _wait_ms(self, held: AssignedQueue[T], under_way: int = 0) -> float:
        """Return how long the queue has to wait, in ms; with 0, it may be pulled now.

        :param under_way: the number of messages that pulls of the queue in flight may return.
        """
        member = self._member
        now_ms = int(self._client.tasks.now_ms)
        if member.is_paused or held.is_paused:
            return PAUSED_MS
        if member.locks is not None and not held.window.holds_lock(now_ms):
            return PAUSED_MS
        queues = sum(each.queue.topic == held.queue.topic for each in member.held.values()) if (
            member.options.limits.topic_count >= 0
            or member.options.limits.topic_byte_count >= 0) else 1
        if member.flow.excess(held.window, now_ms, queues, in_order=member.options.in_order,
                              under_way=under_way):
            return FULL_MS
        return 0

    async def _pull(self, held: AssignedQueue[T]) -> float:
        """Make one pull, or several at once if the queue is known to have more messages.

        :returns: the wait before the next pull, in ms.
        """
        client, offset = self._client, held.next_offset
        now_ms = client.tasks.now_ms
        count = 1 if held.is_alone else self._member.options.pull_count
        pulls = [self._begin(held, offset, count)]
        while len(pulls) < AHEAD_MAX and held.behind > len(pulls) * count and (
                not self._wait_ms(held, len(pulls) * count)):
            pulls.append(self._begin(held, offset + len(pulls) * count, count))
        duration_ms = 0.0
        try:
            for pull in pulls:
                if held.next_offset != pull.offset:
                    # The previous pull returned fewer messages, or other messages, than expected.
                    break
                result = pull_result(await pull.reply, pull.address)
                if held.window.is_dropped:
                    return 0
                duration_ms = client.tasks.now_ms - now_ms
                await self._take(held, result, duration_ms)
                self._member.flow.end(pull.under_way)
        finally:
            for pull in pulls:
                self._member.flow.end(pull.under_way)
        if held.stopped_at == held.next_offset:
            return STOPPED_MS
        return SOON_MS if held.next_offset == offset and duration_ms < SOON_MS else 0

    def _begin(self, held: AssignedQueue[T], offset: int, count: int) -> _Pull:
        """Start a pull of ``count`` messages from an offset."""
        member, client = self._member, self._client
        now_ms = int(client.tasks.now_ms)
        held.window.pulled_ms = now_ms
        name = client.routes.broker_of(held.queue)
        address = client.routes.reader(name, held.broker_id)
        header = pull_header(
            held.queue, offset, member.group, max_count=count,
            expression=None, expression_type=held.subscription.kind, hold_ms=HOLD_MS,
            sub_version=member.sub_version, max_bytes=member.options.pull_bytes)
        return _Pull(offset, address, member.flow.begin(now_ms), client.engine.invoke(
            address, RequestCode.PULL_MESSAGE, header, timeout_ms=TIMEOUT_MS))

    async def _take(self, held: AssignedQueue[T], result: PullResult, duration_ms: float) -> None:
        """Put the messages of a response into the window."""
        member = self._member
        held.broker_id = result.broker_id
        if result.status is PullStatus.OFFSET_MOVED:
            await self._move(held, result)
            return
        if result.next_offset < held.next_offset or (
                result.next_offset == held.next_offset and result.status is PullStatus.FOUND):
            raise Undecodable(f"the answer to a pull at offset {held.next_offset} goes on at "
                              f"{result.next_offset}, not after it")
        begin = held.next_offset
        is_full = result.next_offset - begin == member.options.pull_count
        held.next_offset = result.next_offset
        held.behind = result.max_offset - result.next_offset if is_full else 0
        if result.status is PullStatus.FOUND:
            damaged: list[DamagedMessage[T]] = []
            messages = messages_of(result, held.named, held.subscription.tags, member.decode,
                                   damaged, begin)
            if damaged:
                messages = self._sort_out(held, result, messages, damaged)
            held.is_alone = held.is_alone and bool(damaged)
            if messages:
                member.stats.pulled(held.queue.topic, self._client.tasks.now_ms, len(messages),
                                    duration_ms)
                held.window.put(messages)
                member.arrived(held)
                return
        held.window.correct_tags_offset(held.next_offset)

    def _sort_out(
        self, held: AssignedQueue[T], result: PullResult, messages: list[ReceivedMessage[T]],
        damaged: list[DamagedMessage[T]],
    ) -> list[ReceivedMessage[T]]:
        """Treat damaged messages as the option requires; :returns: the messages for the window."""
        member = self._member
        sorted_out = sort_out(member.options.damaged, result, messages, damaged,
                              f"group {member.group}", was_alone=held.is_alone)
        member.damaged_count += sorted_out.skipped
        held.is_alone = sorted_out.is_alone
        if sorted_out.next_offset != held.next_offset:
            held.next_offset, held.behind = sorted_out.next_offset, 0
        if sorted_out.stopped is not None and held.stopped_at != sorted_out.next_offset:
            held.stopped_at = sorted_out.next_offset
            log.error("group %s: the queue stops at %r: %s. It is requested again every %d s until "
                      "a tool moves the group past it", member.group, sorted_out.stopped,
                      sorted_out.stopped.damage, STOPPED_MS / 1000)
        return cast(list[ReceivedMessage[T]], sorted_out.messages)

    async def _move(self, held: AssignedQueue[T], result: PullResult) -> None:
        """Continue at the broker's offset, because the queue does not have the requested one.

        A queue that became shorter may have been created again together with its topic, and then
        all its messages are new to the group.
        """
        member, offset = self._member, result.next_offset
        if offset < held.next_offset:
            tasks = self._client.tasks
            taken_ms = tasks.clock.wall_ms() - (tasks.now_ms - held.taken_ms)
            if await member.rebalance.beginnings.is_made_again(held.queue, taken_ms):
                offset = result.min_offset
        if held.window.is_dropped:
            return
        log.warning("group %s: %s has no offset %d, and continues at %d", member.group, held.queue,
                    held.next_offset, offset)
        await member.move_to({held.queue: offset})

    def _after(self, held: AssignedQueue[T], error: BrokerError) -> float:
        """Return the wait after a failed pull, in ms."""
        code = error.response_code if isinstance(error, RequestRefused) else 0
        if code in UNKNOWN_GROUP:
            log.info("group %s is announced again: %s", self._member.group, error)
            self._client.tasks.spawn(self._client.heartbeat_all(), "heartbeat")
        elif isinstance(error, NoRoute) or self._client.is_closed:
            log.debug("%s: %s", held.queue, error)
        elif code == ResponseCode.TOPIC_NOT_EXIST and held.next_offset:
            log.warning("group %s: %s is gone: %s", self._member.group, held.queue, error)
            self._member.rebalance.deleted(held)
        elif isinstance(error, Undecodable):
            log.warning("group %s: the response of %s to a pull of %s at offset %d is unusable: "
                        "%s. The pull is repeated until a tool moves the group past it",
                        self._member.group, self._client.routes.broker_of(held.queue), held.queue,
                        held.next_offset, error)
        else:
            log.warning("the pull of %s failed: %s", held.queue, error)
        # A slave that does not answer is only asked again when the master suggests it.
        held.broker_id = 0
        return delay_after_refusal(code)
