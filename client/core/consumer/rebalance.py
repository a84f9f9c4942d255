"""Rebalance: which queues are this member's, and how they come and go.

The members of a group divide the queues of each topic among themselves, each by the same rule over
the same two lists, so that they agree without a coordinator. A member does so each 20 s, when a
broker says that the members changed (40), when a route changes, and each second while something
is missing: a lock, a first offset, the list of members.

A queue that goes is dropped first: what waits is forgotten, running messages are marked as lost.
Its offset is committed, and its lock given back when its handler ends. A new
queue is pulled half a second after it came, so that the member before it can commit, and its
offset is asked for again then. Apache's client does not ask again: with its first pull it commits
what it found, and sets the group back when the member before it committed in between. So this
member commits as soon as it hears of a change, and when a queue comes back to it soon, it goes on
from where it stopped.

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
from twistmq.client.core.consumer.flow_control import NEW_QUEUE_MS
from twistmq.client.core.consumer.held_queues import Held
from twistmq.client.core.consumer.initial_offsets import Beginnings
from twistmq.client.core.consumer.strategies import share, sorted_queues
from twistmq.client.core.consumer.subscription_check import Differences
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

__all__ = ["Rebalance", "tell"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")

#: The shortest time between two rounds, and the wait while something is missing, ms.
#: Source: RebalanceService.
MIN_INTERVAL_MS: Final = 1000
#: The shortest time between two rounds of which the second was asked for, ms.
WOKEN_INTERVAL_MS: Final = 100
#: The wait before a lock that was refused is asked for again, ms.
LOCK_RETRY_MS: Final = 500
#: How long the handler of a lost ordered queue is waited for before its lock is given back, ms: a
#: broker takes a lock back by itself when it was not renewed for so long.
UNLOCK_WAIT_MS: Final = 60_000
#: How long the commit of a lost queue may take, ms.
COMMIT_WAIT_MS: Final = 1000
#: The time that handlers of lost queues have to end, ms, and how late that may be noticed.
HANDLERS_WAIT_MS: Final = 300
LATE_MS: Final = 50
_MEMBERS_TIMEOUT_MS: Final = 3000
#: Changes of members within this time are one, ms.
FLOOR_MS: Final = 3_000
#: How long it is remembered where this member stopped in a lost queue, ms: members of Apache's
#: client commit twice in that time.
STOPPED_MS: Final = 10_000


class _Stop(NamedTuple):
    """Where a member stopped in a queue that it lost.

    :param floor: what was committed before the members changed: the least that a member of Apache's
        client may have found, so that a lower offset is a tool's.
    :param ms: when; steady clock.
    :param connection: to the broker; behind another one the queue may have other messages.
    """

    offset: int
    floor: int
    ms: float
    connection: Connection


class Beginning(NamedTuple):
    """Where a queue begins for a member.

    :param is_committed: whether the group is there.
    :param is_new: whether the group has no offset of the queue.
    """

    offset: int
    is_committed: bool = False
    is_new: bool = False


class Rebalance(Generic[T]):
    """The rebalance of one member."""

    def __init__(self, member: Member[T]) -> None:
        self._member = member
        self._client = member.client
        self._wanted: Future[None] | None = None
        self._is_wanted = False
        self._loop: Task[None] | None = None
        self._last_ms = float("-inf")
        #: Ordered queues that are lost and still locked, and what gives each lock back.
        self._ending: dict[MessageQueue, tuple[Held[T], Task[None]]] = {}
        #: Queues that are being given up.
        self._leaving: set[Task[None]] = set()
        #: Topics without a route of which the log says so.
        self._missing: set[str] = set()
        self.differences = Differences(member)
        #: Queues of topics that were deleted: all that comes into them is new.
        self._deleted: set[MessageQueue] = set()
        #: Lost queues whose commits are under way, and the connections to their brokers.
        self._stopping: dict[MessageQueue, tuple[Held[T], Connection]] = {}
        #: Where this member stopped in queues that others have now.
        self._stopped: dict[MessageQueue, _Stop] = {}
        self.beginnings = Beginnings(member)

    async def begin(self) -> None:
        """Find the topics, be known to the brokers, and start the rounds.

        :raises Closed: when the client or the member is closed meanwhile.
        """
        client = self._client
        for topic in self._member.subscriptions:
            try:
                route = await client.routes.find(topic)
                self.beginnings.seen(topic, route.read_queues)
            except BrokerError as error:
                self._no_route(topic, error)
                # The retry topic does not exist before the first retry.
                log.debug("topic %s has no route yet: %s", topic, error)
        _listeners(client.engine.handlers, self)
        # A broker lists only members that it had a heartbeat from.
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
        """End what was begun with queues that were lost: commits, and locks that can be given back.

        The lock of a handler that still runs ends by itself, at the broker.
        """
        if self._loop is not None:
            await self._client.tasks.all_of([self._loop])
        await self._client.tasks.all_of(self._leaving)
        ended = []
        for queue, (held, unlocking) in self._ending.items():
            # It would give back the lock of a later member of this client.
            unlocking.cancel()
            if not held.window.running_count:
                ended.append(queue)
        if self._member.locks is not None:
            self._member.locks.unlock_all(ended)

    def wake(self) -> None:
        """Have a round soon."""
        self._is_wanted = True
        if self._wanted is not None:
            self._wanted.set_result(None)

    def members_changed(self, group: str) -> None:
        """A broker says that the members of a group changed."""
        if group == self._member.group:
            # The member that gets a queue may ask where it begins before this one gives it up.
            for held in self._member.held.values():
                self._set_floor(held)
            if not self._member.options.is_broadcast:
                self._client.tasks.spawn(self._member.commit(), "commit before a rebalance")
            self.wake()

    def _set_floor(self, held: Held[T]) -> None:
        """Note what is committed, unless that was done shortly before, by the same change."""
        now_ms = self._client.tasks.now_ms
        if held.committed is not None and now_ms - held.floor_ms > FLOOR_MS:
            held.floor, held.floor_ms = held.committed, now_ms

    def _route_changed(self, route: Route) -> None:
        if route.topic in self._member.subscriptions:
            self.wake()

    def _heartbeat_taken(self, address: str) -> None:
        if not self._member.held:
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
                self._wanted = Future()
                timer = tasks.later(wait_ms, self._wanted.set_result, None)
                await self._wanted
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
        unwanted = [held for held in self._member.held.values()
                    if held.queue.topic not in self._member.subscriptions]
        if unwanted:
            changed = True
            await self.give_up(unwanted)
        if changed:
            # Brokers filter by the newest version of a subscription.
            self._member.sub_version = self._client.tasks.clock.wall_ms()
            await self._client.heartbeat_all()
        return is_complete

    async def _divide(self, topic: str) -> tuple[bool, bool]:
        """Divide the queues of a topic; :returns: whether nothing is missing, and has changed."""
        member = self._member
        route = self._client.routes.known(topic)
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
        self.beginnings.seen(topic, queues)
        if member.fixed is not None:
            mine = [queue for queue in sorted_queues(queues) if queue in member.fixed]
        elif member.options.is_broadcast:
            mine = sorted_queues(queues)
        else:
            members = await self._members(route)
            if members is None:
                return False, False
            mine = share(member.options.strategy, self._client.client_id, queues, members)
        lost = [held for held in member.held.values()
                if held.queue.topic == topic and (
                    held.queue not in mine or held.window.is_dropped
                    or held.window.is_idle(int(self._client.tasks.now_ms)))]
        await self.give_up(lost)
        missing = [queue for queue in mine if queue not in member.held]
        taken = await self._take(missing)
        return len(taken) == len(missing), bool(lost or taken)

    def _no_route(self, topic: str, error: BrokerError) -> None:
        """A topic that is not there has no queue that is older than this member."""
        if isinstance(error, RequestRefused) and (
                error.response_code == ResponseCode.TOPIC_NOT_EXIST):
            self.beginnings.seen(topic, ())

    async def _members(self, route: Route) -> list[str] | None:
        """The members of the group, as a broker of the topic knows them; None without an answer.

        All brokers know all members, so one that does not answer gives way to another, and leaves
        time for it.
        """
        names = sorted({queue.broker_name for queue in route.read_queues})
        if route.owners:
            names = sorted(set(route.owners.values()))
        if not names:
            return None
        first = self._client.randrange(len(names))
        asked = [names[first], *([names[(first + 1) % len(names)]] if len(names) > 1 else [])]
        errors: list[str] = []
        for name in asked:
            try:
                members = await self._members_at(name, _MEMBERS_TIMEOUT_MS / len(asked))
            except (RemotingError, NoRoute) as error:
                errors.append(str(error))
            except BrokerError as error:
                errors.append(str(error))
                break
            else:
                self.differences.has_others = len(members) > 1
                self._client.tasks.spawn(self.differences.look(name), "subscriptions of the group")
                return members
        log.warning("the members of group %s are not known now: %s", self._member.group,
                    "; ".join(errors))
        return None

    async def _members_at(self, name: str, timeout_ms: float) -> list[str]:
        """The members of the group, as one broker knows them; :raises BrokerError: without them."""
        header = GetConsumerListByGroupRequestHeader(consumer_group=self._member.group)
        address = self._client.routes.reader(name)
        reply = await self._client.engine.invoke(
            address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header, timeout_ms=timeout_ms)
        if reply.code != ResponseCode.SUCCESS:
            raise refusal(reply.code, reply.remark, address)
        return GetConsumerListByGroupResponseBody.decode_reply(reply.body).consumer_id_list

    # --- queues that go

    async def give_up(self, lost: list[Held[T]]) -> None:
        """Commit queues and drop them, and give their locks back.

        Handlers that end soon have their results committed too: the member that has a queue now
        looks where it begins after ``NEW_QUEUE_MS``.
        """
        unread = [held for held in lost if held.is_unread]
        for held in lost:
            self._member.held.pop(held.queue, None)
            if held.task is not None:
                held.task.cancel()
            if self._member.fixed is None and held.is_settled and not held.window.is_dropped:
                self._set_floor(held)
                connection = self._connection(held.queue)
                if connection is not None:
                    self._stopping[held.queue] = held, connection
            for message in held.window.lose():
                message.lost = True
        if lost:
            # The end of the rounds does not end this.
            leaving = self._client.tasks.spawn(
                self._commit_lost(lost, unread), "queues that are lost")
            self._leaving.add(leaving)
            leaving.when_done(lambda _: self._leaving.discard(leaving))
            await leaving

    async def _commit_lost(self, lost: list[Held[T]], unread: list[Held[T]]) -> None:
        member, tasks = self._member, self._client.tasks
        until_ms = tasks.now_ms + HANDLERS_WAIT_MS
        running = [held for held in lost if held.window.running_count]
        committing: list[Task[Any]] = [
            tasks.spawn(member.commit(lost), "commit of lost queues"),
            tasks.spawn(member.commit_beginnings(unread), "beginnings of lost queues")]
        try:
            while tasks.now_ms < until_ms and any(held.window.running_count for held in running):
                await tasks.sleep(10)
            # Later the other member may have come further.
            if running and tasks.now_ms <= until_ms + LATE_MS:
                committing.append(tasks.spawn(member.commit(running), "commit of lost queues"))
            await tasks.within(COMMIT_WAIT_MS, tasks.spawn(tasks.all_of(committing)), TimeoutError)
        except TimeoutError:
            log.warning("%d queues that another member has now are not committed in time",
                        len(lost))
        finally:
            for held in lost:
                held.window.drop()
        self._remember(lost)
        if member.locks is not None:
            for held in lost:
                self._ending[held.queue] = held, tasks.spawn(self._unlock(held), "unlock")
        log.info("group %s: this member has %d queues less", member.group, len(lost))
        tell(member.on_lost, _asked_for(lost))

    def _remember(self, lost: list[Held[T]]) -> None:
        """Keep where this member stopped in queues, for the case that they come back soon."""
        now_ms = self._client.tasks.now_ms
        self._stopped = {queue: stop for queue, stop in self._stopped.items()
                         if now_ms - stop.ms <= STOPPED_MS}
        for held in lost:
            stopping, connection = self._stopping.get(held.queue, (None, None))
            if stopping is held and connection is not None:
                del self._stopping[held.queue]
                self._stopped[held.queue] = _Stop(
                    held.window.committable, held.floor, now_ms, connection)

    def _connection(self, queue: MessageQueue) -> Connection | None:
        """The connection to the broker that a queue is read from; None without a route."""
        try:
            address = self._client.routes.reader(self._client.routes.broker_of(queue))
        except NoRoute:
            return None
        return self._client.engine.connection(address)

    def forget(self, queues: Iterable[MessageQueue]) -> None:
        """A tool moved the offsets of queues: where this member stopped in them does not count."""
        for queue in queues:
            self._stopping.pop(queue, None)
            self._stopped.pop(queue, None)

    async def _unlock(self, held: Held[T]) -> None:
        """Give a lock back once the handler ended; the queue is not taken again before."""
        assert self._member.locks is not None
        end_ms = self._client.tasks.now_ms + UNLOCK_WAIT_MS
        while held.window.running_count and self._client.tasks.now_ms < end_ms:
            await self._client.tasks.sleep(20)
        self._ending.pop(held.queue, None)
        if held.queue not in self._member.held:
            self._member.locks.unlock_all([held.queue])

    # --- queues that come

    async def _take(self, queues: list[MessageQueue]) -> list[MessageQueue]:
        """Take queues; :returns: those that could be taken."""
        locks = self._member.locks
        queues = [queue for queue in queues if queue not in self._ending]
        if not queues or locks is None:
            return await self._take_all(queues)
        locking = self._client.tasks.spawn(locks.lock(queues), "locks")
        try:
            locked = await locking
            return await self._take_all([queue for queue in queues if queue in locked])
        except Cancelled:
            # The member closes, and does not have them yet.
            await self._client.tasks.all_of([locking])
            locks.unlock_all(queues)
            raise

    async def _take_all(self, queues: list[MessageQueue]) -> list[MessageQueue]:
        """Take queues, which are locked if need be.

        Those of a broker do not wait for another broker, which may hang.
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
        """Take queues of one broker; :returns: those that could be taken."""
        member = self._member
        starts = [self._client.tasks.spawn(self.first_offset(queue), "first offset")
                  for queue in queues]
        outcomes = await self._client.tasks.all_of(starts)
        taken: list[Held[T]] = []
        if member.is_closing:
            return []
        for queue, start in zip(queues, outcomes, strict=True):
            if isinstance(start, BaseException):
                log.warning("the first offset of %s is not known now: %s", queue, start)
                continue
            taken.append(self._hold(queue, start))
        if taken:
            log.info("group %s: this member has %d queues more", member.group, len(taken))
            tell(member.on_assigned, _asked_for(taken))
        return [held.queue for held in taken]

    def deleted(self, held: Held[T]) -> None:
        """The topic of a queue was deleted: the queue begins again with the next one."""
        self._deleted.add(held.queue)
        self._member.offsets.topic_deleted(held.queue)
        for message in held.window.drop():
            message.lost = True
        held.committed = held.window.committable
        self.wake()

    def restart(self, held: Held[T], offset: int) -> None:
        """Continue a queue that this member keeps at another offset; what was read is forgotten."""
        if held.task is not None:
            held.task.cancel()
        for message in held.window.drop():
            message.lost = True
        new = self._hold(held.queue, Beginning(offset), 0)
        new.committed = held.committed
        new.is_paused = held.is_paused

    def _hold(
        self, queue: MessageQueue, start: Beginning, delay_ms: float = NEW_QUEUE_MS
    ) -> Held[T]:
        member, tasks = self._member, self._client.tasks
        now_ms = int(tasks.now_ms)
        topic = self._client.namespace.without(queue.topic)
        window: QueueWindow[Any] = QueueWindow(queue, start.offset, now_ms, member.total)
        if member.locks is not None:
            window.locked(now_ms)
        held = Held(queue, MessageQueue(topic, queue.broker_name, queue.queue_id),
                    member.subscriptions[queue.topic], window, start.offset)
        held.is_settled = not delay_ms
        held.is_new = start.is_new
        if start.is_committed:
            held.committed = start.offset
        member.held[queue] = held
        self._deleted.discard(queue)
        held.task = tasks.spawn(member.fetcher.pull_always(held, delay_ms), f"pulls of {queue}")
        return held

    async def first_offset(self, queue: MessageQueue) -> Beginning:
        """Where a queue begins for the group.

        :raises BrokerError: when it is not known now: an unknown offset is never a number.
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
                # A tool has moved the offset meanwhile.
                stored = await member.offsets.read(queue)
            elif stop.offset <= end:
                del self._stopped[queue]
                log.info("%s is back at %s: this member goes on at %d, where it stopped", queue,
                         stored, stop.offset)
                return Beginning(stop.offset)
            else:
                # A log does not become shorter at one broker: the topic was made again.
                self._deleted.add(queue)
        self._stopped.pop(queue, None)
        if stored is not None:
            self.beginnings.has_offset(queue.topic)
            known_ms = await member.offsets.written_ms(queue)
            if stored and known_ms and await self.beginnings.is_made_again(queue, known_ms):
                log.warning("group %s: %s was made again since the offset %d was written to the "
                            "file, and is read from its first message", member.group, queue,
                            stored)
                return Beginning(0)
            return Beginning(stored, is_committed=True)
        offset = await self.beginnings.offset(queue, is_made_again=queue in self._deleted)
        return Beginning(offset, is_new=True)

    async def _end(self, queue: MessageQueue) -> int:
        """The offset that the next message of a queue will have."""
        address = self._client.routes.reader(self._client.routes.broker_of(queue))
        reply = await self._client.engine.invoke(
            address, RequestCode.GET_MAX_OFFSET, headers.GetMaxOffsetRequestHeader(
                topic=queue.topic, queue_id=queue.queue_id), timeout_ms=6000)
        if reply.code != ResponseCode.SUCCESS:
            raise refusal(reply.code, reply.remark, address)
        return reply.header(headers.GetMaxOffsetResponseHeader).offset


def _asked_for(queues: list[Held[Any]]) -> list[MessageQueue]:
    """The queues of the topics that were asked for, without those of retries."""
    return [held.named for held in queues
            if not held.queue.topic.startswith(RETRY_GROUP_TOPIC_PREFIX)]


def tell(
    listeners: list[Callable[[list[MessageQueue]], object]], queues: list[MessageQueue]
) -> None:
    """Tell which queues came or went, if any; an error is logged."""
    for listener in list(listeners) if queues else ():
        try:
            listener(queues)
        except Exception:
            log.exception("a listener for changed queues failed")


def _listeners(handlers: dict[int, Any], add: Rebalance[Any] | None) -> list[Rebalance[Any]]:
    """The rebalances of a client, which share the handler of the request 40."""
    handler = handlers.get(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
    if not isinstance(handler, _MembersChanged):
        handler = handlers[RequestCode.NOTIFY_CONSUMER_IDS_CHANGED] = _MembersChanged()
    if add is not None:
        handler.rebalances.append(add)
    return handler.rebalances


class _MembersChanged:
    """Serves the request 40, which is one-way."""

    def __init__(self) -> None:
        self.rebalances: list[Rebalance[Any]] = []

    def __call__(self, connection: Connection, request: RemotingCommand) -> None:
        group = request.header(NotifyConsumerIdsChangedRequestHeader).consumer_group
        for rebalance in list(self.rebalances):
            rebalance.members_changed(group)
