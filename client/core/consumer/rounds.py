"""The rounds of a member: at intervals it determines which queues it reads.

A round is due every 20 s, when a broker reports that the members of the group changed (request 40),
when a route changes, and every second while something is missing: a lock, a first offset, or the
list of members. Members that pull divide queues in a round (``rebalance.py``), and members that pop
ask for assignments (``core/pop/assignments.py``).

Source: RebalanceService, ClientRemotingProcessor.notifyConsumerIdsChanged @5.3.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sized
from typing import Any, Final

from twistmq.client.base.errors import Closed
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.connection.engine import Connection
from twistmq.client.core.connection.loops import Loop
from twistmq.client.core.connection.routes import Route
from twistmq.client.core.connection.tasks import Future, Task
from twistmq.client.core.consumer.close_signal import CloseSignal
from twistmq.client.core.consumer.subscriptions import SubscriptionTable
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.headers.client import NotifyConsumerIdsChangedRequestHeader

__all__ = ["Rounds"]

log = logging.getLogger("twistmq.client")

#: The shortest time between two rounds, and the wait while something is missing, in ms.
#: Source: RebalanceService.
MIN_INTERVAL_MS: Final = 1000
#: The shortest time between two rounds if the second one was requested, in ms.
WOKEN_INTERVAL_MS: Final = 100
#: The delay, in ms, before a round that looks for a topic that was just created.
_NEW_TOPIC_MS: Final = 1000


class Rounds:
    """The rounds of one member.

    :param group: the group's name at brokers.
    :param interval_ms: the interval between rounds while nothing is missing.
    :param queues: the queues that the member has; without any, each heartbeat wakes it.

    The functions in ``on_members_changed`` are called when a broker reports a change of the group.
    """

    def __init__(
        self, client: ClientCore, group: str, interval_ms: float, closing: CloseSignal,
        subscriptions: SubscriptionTable, queues: Sized,
    ) -> None:
        self._client = client
        self._group = group
        self._interval_ms = interval_ms
        self._closing = closing
        self._subscriptions = subscriptions
        self._queues = queues
        self.on_members_changed: list[Callable[[], object]] = []
        self._waker: Future[None] | None = None
        self._is_wanted = False
        self._loop: Task[None] | None = None
        self._last_ms = float("-inf")

    async def begin(self, work: Callable[[], Coroutine[Any, Any, bool]]) -> None:
        """Register with the brokers, and start the rounds.

        :param work: one round; it returns whether nothing is missing.
        :raises Closed: when the client or the member is closed during this call.
        """
        client = self._client
        _listeners(client.engine.handlers).append(self)
        # A broker lists only members from which it has received a heartbeat.
        await client.heartbeat_all()
        client.check_open()
        if client.is_closing:
            raise Closed("the client is closed")
        if self._closing.is_set:
            raise Closed("the consumer is closed")
        client.routes.on_change.append(self._route_changed)
        client.on_heartbeat.append(self._heartbeat_taken)
        self._loop = client.tasks.spawn(self._run(work), "rebalance")

    def stop(self) -> None:
        """End the rounds."""
        if self._loop is not None:
            self._loop.cancel()
            self._client.routes.on_change.remove(self._route_changed)
            self._client.on_heartbeat.remove(self._heartbeat_taken)
        listeners = _listeners(self._client.engine.handlers)
        if self in listeners:
            listeners.remove(self)

    async def finish(self) -> None:
        """Wait for the end of a round that was running at the stop."""
        if self._loop is not None:
            await self._client.tasks.all_of([self._loop])

    def wake(self) -> None:
        """Request a round soon."""
        self._is_wanted = True
        if self._waker is not None:
            self._waker.set_result(None)

    def expect_topic(self, topic: str) -> None:
        """Look for a topic soon, unless it has a route: it is being created."""
        if self._client.routes.cached_route(topic) is None:
            self._client.tasks.call_later(_NEW_TOPIC_MS, self.wake)

    def members_changed(self, group: str) -> None:
        """Handle a broker's report that the members of a group changed."""
        if group == self._group:
            for listener in self.on_members_changed:
                listener()
            self.wake()

    def _route_changed(self, route: Route) -> None:
        if route.topic in self._subscriptions:
            self.wake()

    def _heartbeat_taken(self, address: str) -> None:
        if not len(self._queues):
            self.wake()

    async def _run(self, work: Callable[[], Coroutine[Any, Any, bool]]) -> None:
        tasks = self._client.tasks
        loop = Loop(f"the rebalance of group {self._group}", otherwise=False)
        while True:
            self._is_wanted = False
            self._last_ms = tasks.now_ms
            is_complete = await loop.turn(work())
            wait_ms = self._interval_ms if is_complete else MIN_INTERVAL_MS
            if not self._is_wanted:
                self._waker = Future()
                timer = tasks.call_later(wait_ms, self._waker.set_result, None)
                await self._waker
                timer.cancel()
            interval_ms = (MIN_INTERVAL_MS if is_complete and not self._is_wanted
                           else WOKEN_INTERVAL_MS)
            await tasks.sleep(max(self._last_ms + interval_ms - tasks.now_ms, 0))


def _listeners(handlers: dict[int, Any]) -> list[Rounds]:
    """Return the rounds of a client's members, which share the handler of request 40."""
    handler = handlers.get(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
    if not isinstance(handler, _MembersChanged):
        handler = handlers[RequestCode.NOTIFY_CONSUMER_IDS_CHANGED] = _MembersChanged()
    return handler.rounds


class _MembersChanged:
    """Serves request 40, which is one-way."""

    def __init__(self) -> None:
        self.rounds: list[Rounds] = []

    def __call__(self, connection: Connection, request: RemotingCommand) -> None:
        group = request.header(NotifyConsumerIdsChangedRequestHeader).consumer_group
        for rounds in list(self.rounds):
            rounds.members_changed(group)
