"""Pulls the queues of a member: one task per queue, within the flow control.

Messages must be in the member before a handler asks for them, but not so many that they fill the
memory, and a slow broker must not hold up the queues of the other brokers. Therefore each queue has
a task of its own. After each response, the task decides when to pull again:

    the response               the next pull
    messages, nothing new      at once; the broker holds a pull of a queue without new messages
    nothing, and not held      100 ms later
    a limit is reached         50 ms later, see pull_gate.py and flow_control.py
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
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

from twistmq.client.base.errors import NoRoute, RequestRefused, Undecodable
from twistmq.client.base.messages import PullResult, PullStatus
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.connection.tasks import Future
from twistmq.client.core.consumer.assigned_queues import (
    AssignedQueue,
    AssignedQueues,
    MemberOptions,
)
from twistmq.client.core.consumer.flow_control import (
    FAILED_MS,
    PullFlow,
    PullUnderWay,
    delay_after_refusal,
)
from twistmq.client.core.consumer.initial_offsets import Beginnings
from twistmq.client.core.consumer.message_intake import STOPPED_MS, MessageIntake
from twistmq.client.core.consumer.offset_moves import OffsetMoves
from twistmq.client.core.consumer.offsets import OffsetStore
from twistmq.client.core.consumer.pull_gate import PullGate
from twistmq.client.core.consumer.pull_request import pull_header, pull_result
from twistmq.client.core.consumer.subscriptions import SubscriptionTable
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import BrokerError

__all__ = ["HOLD_MS", "UNKNOWN_GROUP", "Fetcher"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")

#: How long a broker may hold a pull, and the time-out of its response, in ms.
HOLD_MS: Final = 15_000
TIMEOUT_MS: Final = 30_000
#: The wait after a pull that returned nothing and was answered faster than this, in ms.
SOON_MS: Final = 100
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
    """The pulls of one member.

    :param group: the group's name at brokers.
    :param gate: decides when a queue may be pulled.
    :param intake: puts the messages of the responses into the windows.
    :param offsets: the offsets of the group, and ``moves`` changes them.
    :param beginnings: recognises a queue that was created again.
    :param settled: called with a queue when its start offset is known.
    """

    def __init__(
        self, client: ClientCore, group: str, options: MemberOptions,
        subscriptions: SubscriptionTable, queues: AssignedQueues[T], flow: PullFlow,
        gate: PullGate, intake: MessageIntake[T], offsets: OffsetStore, moves: OffsetMoves,
        beginnings: Beginnings, settled: Callable[[AssignedQueue[T]], object],
    ) -> None:
        self._client = client
        self._group = group
        self._options = options
        self._subscriptions = subscriptions
        self._queues = queues
        self._flow = flow
        self._gate = gate
        self._intake = intake
        self._offsets = offsets
        self._moves = moves
        self._beginnings = beginnings
        self._settled = settled

    async def pull_always(self, assigned: AssignedQueue[T], delay_ms: float) -> None:
        """Pull a queue until it is dropped, for the first time after ``delay_ms``."""
        tasks = self._client.tasks
        await tasks.sleep(delay_ms)
        if delay_ms:
            await self._look_again(assigned)
        self._settled(assigned)
        while not assigned.window.is_dropped:
            wait_ms = self._gate.wait_ms(assigned)
            if not wait_ms:
                try:
                    wait_ms = await self._pull(assigned)
                except BrokerError as error:
                    wait_ms = self._after(assigned, error)
                except Exception:
                    log.exception("a pull of %s failed, and is tried again", assigned.queue)
                    wait_ms = float(FAILED_MS)
            if wait_ms:
                assigned.window.pulled_ms = int(tasks.now_ms)
                await tasks.sleep(wait_ms)

    async def _look_again(self, assigned: AssignedQueue[T]) -> None:
        """Ask again where a new queue begins, because the previous member may have committed."""
        if self._options.is_broadcast or self._queues.fixed is not None:
            return
        try:
            offset = await self._offsets.read(assigned.queue)
        except BrokerError as error:
            log.debug("%s begins at the offset that was read first: %s", assigned.queue, error)
            return
        if offset is None or assigned.window.is_dropped:
            return
        # The offset may also be lower than the start of a queue that the group did not know: then
        # the previous member had it only for a moment, and messages arrived in between.
        if offset > assigned.next_offset or assigned.is_new:
            assigned.next_offset = assigned.committed = offset
            assigned.window.begin_at(offset)

    async def _pull(self, assigned: AssignedQueue[T]) -> float:
        """Make one pull, or several at once if the queue is known to have more messages.

        :returns: the wait before the next pull, in ms.
        """
        client, offset = self._client, assigned.next_offset
        now_ms = client.tasks.now_ms
        count = 1 if assigned.is_alone else self._options.pull_count
        pulls = [self._begin(assigned, offset, count)]
        while len(pulls) < AHEAD_MAX and assigned.behind > len(pulls) * count and (
                not self._gate.wait_ms(assigned, len(pulls) * count)):
            pulls.append(self._begin(assigned, offset + len(pulls) * count, count))
        duration_ms = 0.0
        try:
            for pull in pulls:
                if assigned.next_offset != pull.offset:
                    # The previous pull returned fewer messages, or other messages, than expected.
                    break
                result = pull_result(await pull.reply, pull.address)
                if assigned.window.is_dropped:
                    return 0
                duration_ms = client.tasks.now_ms - now_ms
                assigned.broker_id = result.broker_id
                if result.status is PullStatus.OFFSET_MOVED:
                    await self._move(assigned, result)
                else:
                    self._intake.put(assigned, result, duration_ms)
                self._flow.end(pull.under_way)
        finally:
            for pull in pulls:
                self._flow.end(pull.under_way)
        if assigned.stopped_at == assigned.next_offset:
            return STOPPED_MS
        return SOON_MS if assigned.next_offset == offset and duration_ms < SOON_MS else 0

    def _begin(self, assigned: AssignedQueue[T], offset: int, count: int) -> _Pull:
        """Start a pull of ``count`` messages from an offset."""
        client = self._client
        now_ms = int(client.tasks.now_ms)
        assigned.window.pulled_ms = now_ms
        name = client.routes.broker_of(assigned.queue)
        address = client.routes.reader(name, assigned.broker_id)
        header = pull_header(
            assigned.queue, offset, self._group, max_count=count,
            expression=None, expression_type=assigned.subscription.kind, hold_ms=HOLD_MS,
            sub_version=self._subscriptions.version, max_bytes=self._options.pull_bytes)
        return _Pull(offset, address, self._flow.begin(now_ms), client.engine.invoke(
            address, RequestCode.PULL_MESSAGE, header, timeout_ms=TIMEOUT_MS))

    async def _move(self, assigned: AssignedQueue[T], result: PullResult) -> None:
        """Continue at the broker's offset, because the queue does not have the requested one.

        A queue that became shorter may have been created again together with its topic, and then
        all its messages are new to the group.
        """
        offset = result.next_offset
        if offset < assigned.next_offset:
            tasks = self._client.tasks
            taken_ms = tasks.clock.wall_ms() - (tasks.now_ms - assigned.taken_ms)
            if await self._beginnings.is_made_again(assigned.queue, taken_ms):
                offset = result.min_offset
        if assigned.window.is_dropped:
            return
        log.debug("group %s: %s has no offset %d", self._group, assigned.queue,
                  assigned.next_offset)
        await self._moves.move_to({assigned.queue: offset})

    def _after(self, assigned: AssignedQueue[T], error: BrokerError) -> float:
        """Return the wait after a failed pull, in ms."""
        code = error.response_code if isinstance(error, RequestRefused) else 0
        if code in UNKNOWN_GROUP:
            log.info("group %s is announced again: %s", self._group, error)
            self._client.tasks.spawn(self._client.heartbeat_all(), "heartbeat")
        elif isinstance(error, NoRoute) or self._client.is_closed:
            log.debug("%s: %s", assigned.queue, error)
        elif code == ResponseCode.TOPIC_NOT_EXIST and assigned.next_offset:
            log.warning("group %s: %s is gone: %s", self._group, assigned.queue, error)
            self._moves.topic_deleted(assigned)
        elif isinstance(error, Undecodable):
            log.warning("group %s: the response of %s to a pull of %s at offset %d is unusable: "
                        "%s. The pull is repeated until a tool moves the group past it",
                        self._group, self._client.routes.broker_of(assigned.queue),
                        assigned.queue, assigned.next_offset, error)
        else:
            log.warning("the pull of %s failed: %s", assigned.queue, error)
        # A slave that does not answer is only asked again when the master suggests it.
        assigned.broker_id = 0
        return delay_after_refusal(code)
