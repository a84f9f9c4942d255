"""Rebalance: decides which queues this member has, and takes or gives up queues accordingly.

The members of a group divide the queues of each topic among themselves. Each member applies the
same rule to the same two lists (queues and members), so that all agree without a coordinator. A
member divides the queues every 20 s, when a broker reports that the members changed (request 40),
when a route changes, and every second while something is missing: a lock, a first offset, or the
list of members.

The difficult part is the handover of a queue, because for a moment two members may both believe
that they have it. The member that loses a queue drops it first: waiting messages are forgotten and
running messages are marked as lost. Then it commits the offset, and gives the lock back when the
handler ends. The member that gets the queue waits for half a second before its first pull, so that
the previous member can commit, and then asks for the offset again.

Apache's client does not ask again: with its first pull it commits the offset that it found first,
which resets the group if the previous member committed in between. Therefore this member commits
as soon as it learns of a change, and if a queue comes back to it soon, it continues where it
stopped.

Source: RebalanceService, RebalanceImpl, RebalancePushImpl, MQClientInstance.findConsumerIdList
@5.3.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from twistmq.client.base.errors import Closed, NoRoute, RemotingError, RequestRefused, refusal
from twistmq.client.core.connection.engine import Connection
from twistmq.client.core.connection.loops import Loop
from twistmq.client.core.connection.routes import Route
from twistmq.client.core.connection.tasks import Cancelled, Future, Task
from twistmq.client.core.consumer.assigned_queues import AssignedQueue
from twistmq.client.core.consumer.flow_control import NEW_QUEUE_MS
from twistmq.client.core.consumer.initial_offsets import Beginnings
from twistmq.client.core.consumer.strategies import share, sorted_queues
from twistmq.client.core.consumer.subscription_check import SubscriptionCheck
from twistmq.client.core.consumer.window import QueueWindow
from twistmq.protocol.bodies import GetConsumerListByGroupResponseBody, MessageQueue
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import BrokerError
from twistmq.protocol.headers import offset as headers
from twistmq.protocol.headers.client import (
    GetConsumerListByGroupRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
)
from twistmq.protocol.topic_names import RETRY_GROUP_TOPIC_PREFIX

if TYPE_CHECKING:
    from twistmq.client.core.consumer.member import Member

__all__ = ["Rebalance", "call_listeners"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")

#: The shortest time between two rounds, and the wait while something is missing, in ms.
#: Source: RebalanceService.
MIN_INTERVAL_MS: Final = 1000
#: The shortest time between two rounds if the second one was requested, in ms.
WOKEN_INTERVAL_MS: Final = 100
#: The wait before a refused lock is requested again, in ms.
LOCK_RETRY_MS: Final = 500
#: How long to wait for the handler of a lost ordered queue before its lock is given back, in ms: a
#: broker releases a lock that was not renewed for this time.
UNLOCK_WAIT_MS: Final = 60_000
#: The longest time for the commit of a lost queue, in ms.
COMMIT_WAIT_MS: Final = 1000
#: The time that handlers of lost queues have to end, in ms, and the tolerance when it is checked.
HANDLERS_WAIT_MS: Final = 300
LATE_MS: Final = 50
_MEMBERS_TIMEOUT_MS: Final = 3000
#: Changes of members within this time count as one change, in ms.
FLOOR_MS: Final = 3_000
#: How long this member remembers where it stopped in a lost queue, in ms: members of Apache's
#: client commit twice in that time.
STOPPED_MS: Final = 10_000


class _Stop(NamedTuple):
    """The position at which this member stopped in a queue that it lost.

    :param floor: the offset that was committed before the members changed. A member of Apache's
        client cannot have found a lower one, so a lower offset was set by a tool.
    :param ms: the time when it stopped, by the monotonic clock.
    :param connection: the connection to the broker; at the end of another connection, the queue
        may have other messages.
    """

    offset: int
    floor: int
    ms: float
    connection: Connection


class StartOffset(NamedTuple):
    """The offset at which a queue begins for a member.

    :param is_committed: whether the group has committed this offset.
    :param is_new: whether the group does not have an offset for the queue.
    """

    offset: int
    is_committed: bool = False
    is_new: bool = False


class Rebalance(Generic[T]):
    """The rebalance of one member."""

    def __init__(self, member: Member[T]) -> None:
        self._member = member
        self._client = member.client
        self._waker: Future[None] | None = None
        self._is_wanted = False
        self._loop: Task[None] | None = None
        self._last_ms = float("-inf")
        #: Ordered queues that are lost and still locked, with the tasks that give the locks back.
        self._ending: dict[MessageQueue, tuple[AssignedQueue[T], Task[None]]] = {}
        #: The tasks that give up queues.
        self._leaving: set[Task[None]] = set()
        #: Topics without a route for which this was logged.
        self._missing: set[str] = set()
        self.subscription_check = SubscriptionCheck(member)
        #: Queues of topics that were deleted: all messages in them will be new.
        self._deleted: set[MessageQueue] = set()
        #: Lost queues whose commits are in flight, and the connections to their brokers.
        self._stopping: dict[MessageQueue, tuple[AssignedQueue[T], Connection]] = {}
        #: The positions at which this member stopped in queues that other members have now.
        self._stopped: dict[MessageQueue, _Stop] = {}
        self.beginnings = Beginnings(member)

    async def begin(self) -> None:
        """Find the topics, register with the brokers, and start the rounds.

        :raises Closed: when the client or the member is closed during this call.
        """
        client = self._client
        for topic in self._member.subscriptions:
            try:
                route = await client.routes.find(topic)
                self.beginnings.note_queues(topic, route.read_queues)
            except BrokerError as error:
                self._no_route(topic, error)
                # The retry topic does not exist before the first retry.
                log.debug("topic %s has no route yet: %s", topic, error)
        _listeners(client.engine.handlers, self)
        # A broker lists only members from which it has received a heartbeat.
        await client.heartbeat_all()
        client.check_open()
        if self._member.is_closing:
            raise Closed("the consumer is closed")
        client.routes.on_change.append(self._route_changed)
        client.on_heartbeat.append(self._heartbeat_taken)
        self._loop = client.tasks.spawn(self._rounds(), "rebalance")

    def stop(self) -> None:
        """End the rounds."""
        if self._loop is not None:
            self._loop.cancel()
            self._client.routes.on_change.remove(self._route_changed)
            self._client.on_heartbeat.remove(self._heartbeat_taken)
        listeners = _listeners(self._client.engine.handlers, None)
        if self in listeners:
            listeners.remove(self)

    async def finish(self) -> None:
        """Complete the work for lost queues: commits, and locks that can be given back.

        The lock of a handler that still runs expires at the broker.
        """
        if self._loop is not None:
            await self._client.tasks.all_of([self._loop])
        await self._client.tasks.all_of(self._leaving)
        ended = []
        for queue, (assigned, unlocking) in self._ending.items():
            # Otherwise it would give back the lock of a later member of this client.
            unlocking.cancel()
            if not assigned.window.running_count:
                ended.append(queue)
        if self._member.locks is not None:
            self._member.locks.unlock_all(ended)

    def wake(self) -> None:
        """Request a round soon."""
        self._is_wanted = True
        if self._waker is not None:
            self._waker.set_result(None)

    def members_changed(self, group: str) -> None:
        """Handle a broker's report that the members of a group changed."""
        if group == self._member.group:
            # The next member of a queue may ask for its offset before this member gives it up.
            for assigned in self._member.assigned_queues.values():
                self._set_floor(assigned)
            if not self._member.options.is_broadcast:
                self._client.tasks.spawn(self._member.commit(), "commit before a rebalance")
            self.wake()

    def _set_floor(self, assigned: AssignedQueue[T]) -> None:
        """Note the committed offset, unless that was done shortly before for the same change."""
        now_ms = self._client.tasks.now_ms
        if assigned.committed is not None and now_ms - assigned.floor_ms > FLOOR_MS:
            assigned.floor, assigned.floor_ms = assigned.committed, now_ms

    def _route_changed(self, route: Route) -> None:
        if route.topic in self._member.subscriptions:
            self.wake()

    def _heartbeat_taken(self, address: str) -> None:
        if not self._member.assigned_queues:
            self.wake()

    async def _rounds(self) -> None:
        tasks = self._client.tasks
        loop = Loop(f"the rebalance of group {self._member.group}", otherwise=False)
        while True:
            self._is_wanted = False
            self._last_ms = tasks.now_ms
            is_complete = await loop.turn(self.round())
            wait_ms = self._member.options.rebalance_ms if is_complete else MIN_INTERVAL_MS
            if not self._is_wanted:
                self._waker = Future()
                timer = tasks.call_later(wait_ms, self._waker.set_result, None)
                await self._waker
                timer.cancel()
            interval_ms = (MIN_INTERVAL_MS if is_complete and not self._is_wanted
                           else WOKEN_INTERVAL_MS)
            await tasks.sleep(max(self._last_ms + interval_ms - tasks.now_ms, 0))

    async def round(self) -> bool:
        """Divide the queues of all topics once; :returns: whether nothing is missing."""
        is_complete = True
        changed = False
        for topic in list(self._member.subscriptions):
            complete, change = await self._divide(topic)
            is_complete = is_complete and complete
            changed = changed or change
        unwanted = [assigned for assigned in self._member.assigned_queues.values()
                    if assigned.queue.topic not in self._member.subscriptions]
        if unwanted:
            changed = True
            await self.give_up(unwanted)
        if changed:
            # Brokers filter by the newest version of a subscription.
            self._member.sub_version = self._client.tasks.clock.wall_ms()
            await self._client.heartbeat_all()
        return is_complete

    async def _divide(self, topic: str) -> tuple[bool, bool]:
        """Divide the queues of a topic; :returns: if nothing is missing, if anything changed."""
        member = self._member
        route = self._client.routes.cached_route(topic)
        if route is None:
            try:
                route = await self._client.routes.find(topic)
            except BrokerError as error:
                self._no_route(topic, error)
                # The retry topic does not exist before the first retry.
                is_retry = topic.startswith(RETRY_GROUP_TOPIC_PREFIX)
                if not is_retry and topic not in self._missing:
                    self._missing.add(topic)
                    log.warning("group %s waits for topic %s: %s", member.group, topic, error)
                return is_retry, False
            self._missing.discard(topic)
        queues = route.read_queues
        self.beginnings.note_queues(topic, queues)
        if member.fixed is not None:
            mine = [queue for queue in sorted_queues(queues) if queue in member.fixed]
        elif member.options.is_broadcast:
            mine = sorted_queues(queues)
        else:
            members = await self._members(route)
            if members is None:
                return False, False
            mine = share(member.options.strategy, self._client.client_id, queues, members)
        lost = [assigned for assigned in member.assigned_queues.values()
                if assigned.queue.topic == topic and (
                    assigned.queue not in mine or assigned.window.is_dropped
                    or assigned.window.is_idle(int(self._client.tasks.now_ms)))]
        await self.give_up(lost)
        missing = [queue for queue in mine if queue not in member.assigned_queues]
        acquired = await self._take(missing)
        return len(acquired) == len(missing), bool(lost or acquired)

    def _no_route(self, topic: str, error: BrokerError) -> None:
        """If a topic does not exist, note that no queue of it is older than this member."""
        if isinstance(error, RequestRefused) and (
                error.response_code == ResponseCode.TOPIC_NOT_EXIST):
            self.beginnings.note_queues(topic, ())

    async def _members(self, route: Route) -> list[str] | None:
        """Return the members of the group, as a broker of the topic lists them, or None.

        All brokers know all members. Therefore, if one broker does not answer, another one is
        asked, and the time-out of the first leaves time for the second.
        """
        names = sorted({queue.broker_name for queue in route.read_queues})
        if route.owners:
            names = sorted(set(route.owners.values()))
        if not names:
            return None
        first = self._client.randrange(len(names))
        broker_names = [
            names[first], *([names[(first + 1) % len(names)]] if len(names) > 1 else [])]
        errors: list[str] = []
        for name in broker_names:
            try:
                members = await self._members_at(name, _MEMBERS_TIMEOUT_MS / len(broker_names))
            except (RemotingError, NoRoute) as error:
                errors.append(str(error))
            except BrokerError as error:
                errors.append(str(error))
                break
            else:
                self.subscription_check.has_others = len(members) > 1
                self._client.tasks.spawn(self.subscription_check.run(name),
                                         "subscriptions of the group")
                return members
        log.warning("the members of group %s are not known now: %s", self._member.group,
                    "; ".join(errors))
        return None

    async def _members_at(self, name: str, timeout_ms: float) -> list[str]:
        """Return the members that one broker lists; :raises BrokerError: without a valid answer."""
        header = GetConsumerListByGroupRequestHeader(consumer_group=self._member.group)
        address = self._client.routes.reader(name)
        reply = await self._client.engine.invoke(
            address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header, timeout_ms=timeout_ms)
        if reply.code != ResponseCode.SUCCESS:
            raise refusal(reply.code, reply.remark, address)
        return GetConsumerListByGroupResponseBody.decode_reply(reply.body).consumer_id_list

    # --- queues that go

    async def give_up(self, lost: list[AssignedQueue[T]]) -> None:
        """Commit queues, drop them, and give their locks back.

        If handlers end soon, their results are committed too, because the member that gets a queue
        asks for its offset only after ``NEW_QUEUE_MS``.
        """
        unread = [assigned for assigned in lost if assigned.is_unread]
        for assigned in lost:
            self._member.assigned_queues.pop(assigned.queue, None)
            if assigned.task is not None:
                assigned.task.cancel()
            if (self._member.fixed is None and assigned.is_settled
                    and not assigned.window.is_dropped):
                self._set_floor(assigned)
                connection = self._connection(assigned.queue)
                if connection is not None:
                    self._stopping[assigned.queue] = assigned, connection
            for message in assigned.window.stop_handing_out():
                message.lost = True
        if lost:
            # This task continues even if the rounds end.
            leaving = self._client.tasks.spawn(
                self._commit_lost(lost, unread), "queues that are lost")
            self._leaving.add(leaving)
            leaving.when_done(lambda _: self._leaving.discard(leaving))
            await leaving

    async def _commit_lost(
        self, lost: list[AssignedQueue[T]], unread: list[AssignedQueue[T]]
    ) -> None:
        member, tasks = self._member, self._client.tasks
        until_ms = tasks.now_ms + HANDLERS_WAIT_MS
        running = [assigned for assigned in lost if assigned.window.running_count]
        committing: list[Task[Any]] = [
            tasks.spawn(member.commit(lost), "commit of lost queues"),
            tasks.spawn(member.commit_beginnings(unread), "beginnings of lost queues")]
        try:
            while tasks.now_ms < until_ms and any(assigned.window.running_count
                                                  for assigned in running):
                await tasks.sleep(10)
            # Later than this, the new member may have made more progress.
            if running and tasks.now_ms <= until_ms + LATE_MS:
                committing.append(tasks.spawn(member.commit(running), "commit of lost queues"))
            await tasks.wait_for(COMMIT_WAIT_MS, tasks.spawn(tasks.all_of(committing)),
                                 TimeoutError)
        except TimeoutError:
            log.warning("%d queues that another member has now were not committed in time",
                        len(lost))
        finally:
            for assigned in lost:
                assigned.window.drop()
        self._remember(lost)
        if member.locks is not None:
            for assigned in lost:
                self._ending[assigned.queue] = assigned, tasks.spawn(self._unlock(assigned),
                                                                     "unlock")
        log.info("group %s: this member has lost %d queues", member.group, len(lost))
        call_listeners(member.on_lost, _asked_for(lost))

    def _remember(self, lost: list[AssignedQueue[T]]) -> None:
        """Remember where this member stopped in queues, in case they come back soon."""
        now_ms = self._client.tasks.now_ms
        self._stopped = {queue: stop for queue, stop in self._stopped.items()
                         if now_ms - stop.ms <= STOPPED_MS}
        for assigned in lost:
            stopping, connection = self._stopping.get(assigned.queue, (None, None))
            if stopping is assigned and connection is not None:
                del self._stopping[assigned.queue]
                self._stopped[assigned.queue] = _Stop(
                    assigned.window.committable, assigned.floor, now_ms, connection)

    def _connection(self, queue: MessageQueue) -> Connection | None:
        """Return the connection to the broker from which a queue is read; None without a route."""
        try:
            address = self._client.routes.reader(self._client.routes.broker_of(queue))
        except NoRoute:
            return None
        return self._client.engine.connection(address)

    def forget(self, queues: Iterable[MessageQueue]) -> None:
        """Forget where this member stopped in queues, because a tool moved their offsets."""
        for queue in queues:
            self._stopping.pop(queue, None)
            self._stopped.pop(queue, None)

    async def _unlock(self, assigned: AssignedQueue[T]) -> None:
        """Give a lock back after the handler has ended; only then the queue is taken again."""
        assert self._member.locks is not None
        end_ms = self._client.tasks.now_ms + UNLOCK_WAIT_MS
        while assigned.window.running_count and self._client.tasks.now_ms < end_ms:
            await self._client.tasks.sleep(20)
        self._ending.pop(assigned.queue, None)
        if assigned.queue not in self._member.assigned_queues:
            self._member.locks.unlock_all([assigned.queue])

    # --- queues that come

    async def _take(self, queues: list[MessageQueue]) -> list[MessageQueue]:
        """Take queues; :returns: the queues that could be taken."""
        locks = self._member.locks
        queues = [queue for queue in queues if queue not in self._ending]
        if not queues or locks is None:
            return await self._take_all(queues)
        locking = self._client.tasks.spawn(locks.lock(queues), "locks")
        try:
            locked = await locking
            return await self._take_all([queue for queue in queues if queue in locked])
        except Cancelled:
            # The member closes, and does not have the queues yet.
            await self._client.tasks.all_of([locking])
            locks.unlock_all(queues)
            raise

    async def _take_all(self, queues: list[MessageQueue]) -> list[MessageQueue]:
        """Take queues, which are already locked if that is necessary.

        The queues of one broker do not wait for another broker, which may hang.
        """
        brokers: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            brokers.setdefault(self._client.routes.broker_of(queue), []).append(queue)
        taking = [self._client.tasks.spawn(self._take_of(each), "queues of a broker")
                  for each in brokers.values()]
        try:
            await self._client.tasks.all_of(taking)
        except Cancelled:
            for task in taking:
                task.cancel()
            raise
        return [queue for task in taking for queue in task.result()]

    async def _take_of(self, queues: list[MessageQueue]) -> list[MessageQueue]:
        """Take queues of one broker; :returns: the queues that could be taken."""
        member = self._member
        starts = [self._client.tasks.spawn(self.first_offset(queue), "first offset")
                  for queue in queues]
        outcomes = await self._client.tasks.all_of(starts)
        acquired: list[AssignedQueue[T]] = []
        if member.is_closing:
            return []
        for queue, start in zip(queues, outcomes, strict=True):
            if isinstance(start, BaseException):
                log.warning("the first offset of %s is not known now: %s", queue, start)
                continue
            acquired.append(self._hold(queue, start))
        if acquired:
            log.info("group %s: this member was assigned %d queues", member.group, len(acquired))
            call_listeners(member.on_assigned, _asked_for(acquired))
        return [assigned.queue for assigned in acquired]

    def deleted(self, assigned: AssignedQueue[T]) -> None:
        """Start a queue from the beginning in the next round, because its topic was deleted."""
        self._deleted.add(assigned.queue)
        self._member.offsets.topic_deleted(assigned.queue)
        for message in assigned.window.drop():
            message.lost = True
        assigned.committed = assigned.window.committable
        self.wake()

    def restart(self, assigned: AssignedQueue[T], offset: int) -> None:
        """Continue a queue of this member at another offset; messages read are forgotten."""
        if assigned.task is not None:
            assigned.task.cancel()
        for message in assigned.window.drop():
            message.lost = True
        new = self._hold(assigned.queue, StartOffset(offset), 0)
        new.committed = assigned.committed
        new.is_paused = assigned.is_paused

    def _hold(
        self, queue: MessageQueue, start: StartOffset, delay_ms: float = NEW_QUEUE_MS
    ) -> AssignedQueue[T]:
        member, tasks = self._member, self._client.tasks
        now_ms = int(tasks.now_ms)
        topic = self._client.namespace.without(queue.topic)
        window: QueueWindow[Any] = QueueWindow(queue, start.offset, now_ms, member.total)
        if member.locks is not None:
            window.locked(now_ms)
        assigned = AssignedQueue(queue, MessageQueue(topic, queue.broker_name, queue.queue_id),
                    member.subscriptions[queue.topic], window, start.offset)
        assigned.is_settled = not delay_ms
        assigned.is_new = start.is_new
        if start.is_committed:
            assigned.committed = start.offset
        member.assigned_queues[queue] = assigned
        self._deleted.discard(queue)
        assigned.task = tasks.spawn(member.fetcher.pull_always(assigned, delay_ms),
                                    f"pulls of {queue}")
        return assigned

    async def first_offset(self, queue: MessageQueue) -> StartOffset:
        """Return the offset at which a queue begins for the group.

        :raises BrokerError: when it cannot be determined now: an unknown offset is never a number.
        """
        member = self._member
        stored = await member.offsets.read(queue)
        stop = self._stopped.get(queue)
        if stop is not None and queue not in self._deleted and (
                self._client.tasks.now_ms - stop.ms <= STOPPED_MS
                and stop.connection is self._connection(queue)
                and (stored is None or stop.floor <= stored < stop.offset)):
            end = await self._end(queue)
            if self._stopped.get(queue) is not stop:
                # A tool moved the offset while the end of the queue was requested.
                stored = await member.offsets.read(queue)
            elif stop.offset <= end:
                del self._stopped[queue]
                log.info("%s is back at %s: this member continues at %d, where it stopped", queue,
                         stored, stop.offset)
                return StartOffset(stop.offset)
            else:
                # A log does not become shorter at one broker: the topic was created again.
                self._deleted.add(queue)
        self._stopped.pop(queue, None)
        if stored is not None:
            self.beginnings.has_offset(queue.topic)
            known_ms = await member.offsets.written_ms(queue)
            if stored and known_ms and await self.beginnings.is_made_again(queue, known_ms):
                log.warning("group %s: %s was created again since the offset %d was written to the "
                            "file, and is read from its first message", member.group, queue,
                            stored)
                return StartOffset(0)
            return StartOffset(stored, is_committed=True)
        offset = await self.beginnings.offset(queue, is_made_again=queue in self._deleted)
        return StartOffset(offset, is_new=True)

    async def _end(self, queue: MessageQueue) -> int:
        """Return the offset that the next message of a queue will have."""
        address = self._client.routes.reader(self._client.routes.broker_of(queue))
        reply = await self._client.engine.invoke(
            address, RequestCode.GET_MAX_OFFSET, headers.GetMaxOffsetRequestHeader(
                topic=queue.topic, queue_id=queue.queue_id), timeout_ms=6000)
        if reply.code != ResponseCode.SUCCESS:
            raise refusal(reply.code, reply.remark, address)
        return reply.header(headers.GetMaxOffsetResponseHeader).offset


def _asked_for(queues: list[AssignedQueue[Any]]) -> list[MessageQueue]:
    """Return the queues of the subscribed topics, without retry topics."""
    return [assigned.public_queue for assigned in queues
            if not assigned.queue.topic.startswith(RETRY_GROUP_TOPIC_PREFIX)]


def call_listeners(
    listeners: list[Callable[[list[MessageQueue]], object]], queues: list[MessageQueue]
) -> None:
    """Report assigned or lost queues to the listeners, if there are any; errors are logged."""
    for listener in list(listeners) if queues else ():
        try:
            listener(queues)
        except Exception:
            log.exception("a listener for changed queues failed")


def _listeners(handlers: dict[int, Any], add: Rebalance[Any] | None) -> list[Rebalance[Any]]:
    """Return the rebalances of a client, which share the handler of request 40."""
    handler = handlers.get(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
    if not isinstance(handler, _MembersChanged):
        handler = handlers[RequestCode.NOTIFY_CONSUMER_IDS_CHANGED] = _MembersChanged()
    if add is not None:
        handler.rebalances.append(add)
    return handler.rebalances


class _MembersChanged:
    """Serves request 40, which is one-way."""

    def __init__(self) -> None:
        self.rebalances: list[Rebalance[Any]] = []

    def __call__(self, connection: Connection, request: RemotingCommand) -> None:
        group = request.header(NotifyConsumerIdsChangedRequestHeader).consumer_group
        for rebalance in list(self.rebalances):
            rebalance.members_changed(group)
