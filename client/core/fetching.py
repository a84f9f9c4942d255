"""Pulling the queues of a member: one task a queue, within the flow control.

    the answer                 the next pull
    messages, nothing new      at once; the broker holds a pull of a queue that has nothing
    nothing, and not held      100 ms later
    a bound is reached         50 ms later, see flow.py
    stops at a damaged message 5 s later; see damaged.py
    an error, no answer        1 s later; with a heartbeat if the broker does not know the group
    the offset moved           the queue is dropped at the broker's offset, and taken again

A pull that brought as many messages as it asked for says how many are behind it. Then several
pulls are begun at once, each where the one before will end; when one ends elsewhere, the answers
to those behind it are not looked at. Apache's client begins one at a time.

Source: DefaultMQPushConsumerImpl.pullMessage, PullAPIWrapper @5.3.3.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar, cast

from twistmq.broker.codes import RequestCode, ResponseCode
from twistmq.broker.errors import BrokerError
from twistmq.broker.wire.command import RemotingCommand
from twistmq.client.core.damaged import sort_out
from twistmq.client.core.flow import (
    FAILED_MS,
    FULL_MS,
    PAUSED_MS,
    PullUnderWay,
    delay_after_refusal,
)
from twistmq.client.core.held import Held
from twistmq.client.core.pulling import messages_of, pull_header, pull_result
from twistmq.client.core.tasks import Future
from twistmq.client.errors import NoRoute, RequestRefused, Undecodable
from twistmq.client.messages import PullResult, PullStatus, ReceivedMessage
from twistmq.client.received_message import DamagedMessage

if TYPE_CHECKING:
    from twistmq.client.core.consuming import Member

__all__ = ["HOLD_MS", "UNKNOWN_GROUP", "Fetcher"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")

#: How long a broker may hold a pull, and how long its answer is waited for, ms.
HOLD_MS: Final = 15_000
TIMEOUT_MS: Final = 30_000
#: The wait after a pull that brought nothing and was answered sooner than this, ms.
SOON_MS: Final = 100
#: The wait before a damaged message that a queue stops at is asked for again, ms.
STOPPED_MS: Final = 5_000
#: Pulls of a queue that are begun at once.
AHEAD_MAX: Final = 8
#: Answers of a broker that does not know the group or its newest subscription.
UNKNOWN_GROUP: Final = frozenset({
    ResponseCode.SUBSCRIPTION_PARSE_FAILED, ResponseCode.SUBSCRIPTION_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_NOT_LATEST, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
})


class _Pull(NamedTuple):
    """A pull that was begun.

    :param offset: where it begins.
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

    async def pull_always(self, held: Held[T], delay_ms: float) -> None:
        """Pull a queue until it is dropped; the first time after ``delay_ms``."""
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

    async def _look_again(self, held: Held[T]) -> None:
        """Ask again where a new queue begins: the member before has committed meanwhile."""
        member = self._member
        if member.options.is_broadcast or member.fixed is not None:
            return
        try:
            offset = await member.offsets.read(held.queue)
        except BrokerError as error:
            log.debug("%s begins where it was first said: %s", held.queue, error)
            return
        if offset is None or held.window.is_dropped:
            return
        # An offset below that of a queue that the group did not know: the member before had it
        # for a moment only, and messages came into it meanwhile.
        if offset > held.next_offset or held.is_new:
            held.next_offset = held.committed = offset
            held.window.begin_at(offset)

    def _wait_ms(self, held: Held[T], under_way: int = 0) -> float:
        """How long the queue has to wait now, ms; 0: it may be pulled.

        :param under_way: messages that pulls of the queue bring which were begun already.
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

    async def _pull(self, held: Held[T]) -> float:
        """Pull once, or several times at once where messages are there for sure.

        :returns: the wait before the next pull, ms.
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
                    # The one before brought less than it asked for, or not what follows.
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

    def _begin(self, held: Held[T], offset: int, count: int) -> _Pull:
        """Begin a pull of so many messages from an offset on."""
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

    async def _take(self, held: Held[T], result: PullResult, duration_ms: float) -> None:
        """Put the messages of an answer into the window."""
        member = self._member
        held.broker_id = result.broker_id
        if result.status is PullStatus.OFFSET_MOVED:
            await self._move(held, result)
            return
        if result.next_offset < held.next_offset or (
                result.next_offset == held.next_offset and result.status is PullStatus.FOUND):
            raise Undecodable(f"the answer to a pull at offset {held.next_offset} goes on at "
                              f"{result.next_offset}, not behind it")
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
        self, held: Held[T], result: PullResult, messages: list[ReceivedMessage[T]],
        damaged: list[DamagedMessage[T]],
    ) -> list[ReceivedMessage[T]]:
        """Treat damaged messages as the option says; :returns: the messages for the window."""
        member = self._member
        found = sort_out(member.options.damaged, result, messages, damaged,
                         f"group {member.group}", was_alone=held.is_alone,
                         say=member.log_damaged)
        member.damaged_count += found.skipped
        held.is_alone = found.is_alone
        if found.next_offset != held.next_offset:
            held.next_offset, held.behind = found.next_offset, 0
        if found.stopped is not None and held.stopped_at != found.next_offset:
            held.stopped_at = found.next_offset
            log.error("group %s: the queue stops at %r: %s. It is asked for again each %d s until "
                      "a tool moves the group over it", member.group, found.stopped,
                      found.stopped.damage, STOPPED_MS / 1000)
        return cast(list[ReceivedMessage[T]], found.messages)

    async def _move(self, held: Held[T], result: PullResult) -> None:
        """The queue has not the offset that was asked for: continue where the broker says.

        A queue that became shorter was perhaps made again with its topic, and then all that is in
        it is new to the group.
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

    def _after(self, held: Held[T], error: BrokerError) -> float:
        """The wait after a pull that failed, ms."""
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
            log.warning("group %s: what %s answers to a pull of %s at offset %d is of no use: %s. "
                        "It is asked again until a tool moves the group over it",
                        self._member.group, self._client.routes.broker_of(held.queue), held.queue,
                        held.next_offset, error)
        else:
            log.warning("the pull of %s failed: %s", held.queue, error)
        # A slave that does not answer is not asked again before the master says so.
        held.broker_id = 0
        return delay_after_refusal(code)
