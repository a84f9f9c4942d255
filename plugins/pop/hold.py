"""Pops, and requests to be notified of new messages, that wait on the broker.

All members of a group may pop the same queue, so thousands of requests may wait for the same
message, but only one of them can get it. Waking all of them would cost one read each, and all but
one would find nothing. Therefore a message wakes a single request of each group: the first one
whose filter matches. If messages remain after its pop, that pop wakes the next request.

Waiting requests are indexed by topic, group and queue; the queue id -1 stands for any queue. A
waiting request is checked after other work had its turn, and not in the middle of an append,
because a pop itself appends records.

Source: PopLongPollingService, PopRequest @5.3.3.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from twistmq.broker.api import MessageRecord, Reply, Request
from twistmq.broker.api.limits import HOLD_MS_MAX
from twistmq.broker.api.requests import WaitingByTag, index_size, wants_any
from twistmq.broker.api.store import MessageFilter
from twistmq.plugins.pop.offsets import QueueKey

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["ANY_QUEUE", "HeldPop", "PopHold"]

ANY_QUEUE: Final = -1
#: The minimum number of finished requests that are removed from the list of deadlines together.
_OVER_LEAST: Final = 100
#: A wait ends this long before its client gives up, ms.
_AHEAD_MS: Final = 50


class HeldPop:
    """One request that waits.

    :param key: the queue for which the request waits.
    :param deadline_ms: the time at which the wait ends, Unix ms.
    :param wants: the filter of the request; None accepts every message.
    :param look: called with this object and whether its time is over; it returns the reply, or None
        to wait longer.
    :param pushed_out: called with this object when its room is needed for another request; it
        returns the reply.
    """

    __slots__ = ("deadline_ms", "has_deadline", "is_due", "is_over", "key", "look", "pushed_out",
                 "reply", "request", "wants")

    def __init__(
        self, request: Request[Any], key: QueueKey, deadline_ms: int,
        wants: MessageFilter | None, look: Callable[[HeldPop, bool], Reply | None],
        pushed_out: Callable[[HeldPop], Reply],
    ) -> None:
        self.request = request
        self.key = key
        self.deadline_ms = deadline_ms
        self.wants = wants
        self.look = look
        self.pushed_out = pushed_out
        self.is_over = self.is_due = False
        #: Whether the request is still in the list of deadlines.
        self.has_deadline = True
        #: Fires with the reply, or with None when the connection is lost.
        self.reply: Deferred[Any] = Deferred()


#: Waiting requests by the id of their connection, each in order of arrival.
_ByConnection = dict[int, dict[HeldPop, None]]


class PopHold:
    """The waiting pops of one broker.

    :param newest_first: which of several requests that wait for the same queue is woken first.
    """

    log = Logger()

    def __init__(self, broker: Broker, newest_first: bool = False) -> None:
        self._broker = broker
        self._newest_first = newest_first
        self._waiting: dict[QueueKey, WaitingByTag[HeldPop]] = {}
        #: The same requests in order of arrival: by connection, and by queue and connection.
        self._of_connection: _ByConnection = {}
        self._of_key: dict[QueueKey, _ByConnection] = {}
        #: Topic to the waiting groups, and to the queues for which each group waits.
        self._groups: dict[str, dict[str, dict[int, None]]] = {}
        #: Some of the entries are over, and this is counted.
        self._deadlines: list[tuple[int, int, HeldPop]] = []
        self._over_count = 0
        self._numbers = count()
        #: Waiting requests that must be checked.
        self._due: OrderedDict[HeldPop, None] = OrderedDict()
        #: Whether ``_look_at_due`` is scheduled or running.
        self._is_scheduled = False
        self._lane = broker.foreground.lane()
        self.count = 0

    def waiting(self, key: QueueKey) -> int:
        """Return the number of requests that wait for a queue."""
        return len(self._waiting.get(key, ()))

    def has_room(self, request: Request[Any], key: QueueKey) -> bool:
        """Whether a request may wait.

        If too many requests wait already, the oldest one of the connection with the most waiting
        requests is answered to make room.

        Differs from Apache, where one connection can keep all other connections from waiting.
        """
        settings = self._broker.settings
        channel_id = request.channel.channel_id
        if self.waiting(key) > settings.int("popPollingSize"):
            return self._make_room(self._of_key[key], channel_id)
        if self.count >= settings.int("maxPopPollingSize"):
            return self._make_room(self._of_connection, channel_id)
        return True

    def _make_room(self, by_connection: _ByConnection, channel_id: int) -> bool:
        """End the oldest wait of the connection that has the most; :returns: whether one ended.

        :param channel_id: the connection that needs the room; it must have fewer waits.
        """
        largest = max(by_connection.values(), key=len, default=None)
        if largest is None or len(largest) <= len(by_connection.get(channel_id, ())) + 1:
            return False
        oldest = next(iter(largest))
        self._end(oldest, oldest.pushed_out(oldest))
        return True

    @staticmethod
    def deadline_ms(born_ms: int, poll_ms: int, now_ms: int) -> int:
        """Return the end of a wait, Unix ms.

        Differs from Apache, where a client may ask for a wait of any length, and where a client
        whose clock is ahead waits longer than it asked for.

        :param born_ms: the time at which the client sent the request, by its own clock, Unix ms.
        :param poll_ms: the time that the client asks to wait, ms.
        """
        return min(born_ms + poll_ms, now_ms + min(poll_ms, HOLD_MS_MAX))

    @staticmethod
    def is_too_late(deadline_ms: int, now_ms: int) -> bool:
        """Whether no time is left to wait."""
        return now_ms > deadline_ms - _AHEAD_MS

    def hold(self, waiting: HeldPop) -> Deferred[Any]:
        """Let a request wait; the caller has checked that there is room and time for it."""
        self._enter(waiting)
        # The deadline is a time of the client's clock. Only the interval until then is used, which
        # does not depend on the broker's clock.
        remaining_ms = waiting.deadline_ms - _AHEAD_MS - waiting.request.now_ms
        heappush(self._deadlines,
                 (self._broker.steady.now_ms() + remaining_ms, next(self._numbers), waiting))
        waiting.request.kept_bytes = (
            getattr(waiting.wants, "size_bytes", 0) + index_size(waiting.wants))
        return waiting.reply

    def _enter(self, waiting: HeldPop) -> None:
        key = waiting.key
        waits = self._waiting.get(key)
        if waits is None:
            waits = self._waiting[key] = WaitingByTag()
            groups = self._groups.setdefault(key[0], {})
            groups.setdefault(key[1], {})[key[2]] = None
        waits.add(waiting)
        channel_id = waiting.request.channel.channel_id
        for connections in (self._of_connection, self._of_key.setdefault(key, {})):
            connections.setdefault(channel_id, {})[waiting] = None
        self.count += 1

    def _leave(self, waiting: HeldPop) -> None:
        key = waiting.key
        waits = self._waiting[key]
        waits.remove(waiting)
        channel_id = waiting.request.channel.channel_id
        for connections in (self._of_connection, self._of_key[key]):
            del connections[channel_id][waiting]
            if not connections[channel_id]:
                del connections[channel_id]
        self.count -= 1
        if not waits:
            del self._waiting[key], self._of_key[key]
            groups = self._groups[key[0]]
            del groups[key[1]][key[2]]
            if not groups[key[1]]:
                del groups[key[1]]
                if not groups:
                    del self._groups[key[0]]

    # --- reasons to look

    def arrived(self, records: Sequence[MessageRecord]) -> None:
        """Wake one request of each group that may want the new messages."""
        if not self.count:
            return
        groups, interval = self._groups, self._broker.settings.int(
            "popLongPollingForceNotifyInterval")
        by_queue: dict[tuple[str, int], list[MessageRecord]] = {}
        for record in records:
            if record.topic in groups:
                by_queue.setdefault((record.topic, record.queue_id), []).append(record)
        for (topic, queue_id), queue_records in by_queue.items():
            forced = bool(interval) and any(
                record.queue_offset % interval == 0 for record in queue_records)
            for group in list(groups.get(topic, ())):
                for waited_id in (ANY_QUEUE, queue_id):
                    self._wake((topic, group, waited_id), None if forced else queue_records)

    def wake_any(self, topic: str, group: str) -> None:
        """Wake one request that pops a topic with new messages, for whichever queue it waits."""
        queue_ids = self._groups.get(topic, {}).get(group)
        if queue_ids:
            self._wake((topic, group, next(iter(queue_ids))), None)

    def wake(self, topic: str, group: str, queue_id: int) -> None:
        """Wake one pop that waits for any queue and one that waits for this queue.

        There may be new messages in the queue.
        """
        for waited_id in {ANY_QUEUE, queue_id}:
            self._wake((topic, group, waited_id), None)

    def _wake(self, key: QueueKey, records: Sequence[MessageRecord] | None) -> None:
        """Wake one waiting request whose filter matches one of the records.

        :param records: the new messages; None wakes a request without testing its filter.
        """
        waits = self._waiting.get(key)
        if not waits:
            return
        candidates: Iterable[HeldPop]
        if records is not None:
            candidates = waits.candidates(records)
            if self._newest_first:
                candidates = reversed(candidates)
        else:
            candidates = reversed(waits) if self._newest_first else waits
        for waiting in candidates:
            if not waiting.is_due and waiting.request.channel.active and (
                    records is None or wants_any(waiting.wants, records)):
                self.look_soon(waiting)
                return

    def look_soon(self, waiting: HeldPop, *, schedule: bool = True) -> None:
        """Check a waiting request after other connections had their turn.

        :param schedule: False if the caller schedules the check after it has named all requests.
        """
        waiting.is_due = True
        self._due[waiting] = None
        if schedule:
            self._schedule()

    @property
    def next_end_ms(self) -> int | None:
        """When the first wait may be over, on the clock for durations, ms; None without waits."""
        return self._deadlines[0][0] if self._deadlines else None

    def check(self) -> None:
        """End the waits whose time is over or whose client is gone; called periodically."""
        now_ms = self._broker.steady.now_ms()
        deadlines = self._deadlines
        while deadlines and (deadlines[0][0] <= now_ms or deadlines[0][2].is_over):
            waiting = heappop(deadlines)[2]
            if waiting.is_over:
                self._over_count -= 1
            else:
                waiting.has_deadline = False
                self._look(waiting, is_last=True)

    def forget_gone(self) -> None:
        """End the waits of disconnected clients, whatever time they asked for; periodic."""
        for waits in self._waiting.values():
            for waiting in waits:
                if not waiting.request.channel.active:
                    self.look_soon(waiting, schedule=False)
        if self._due:
            self._schedule()

    def release_all(self) -> None:
        """End all waits because the broker stops."""
        for waiting in [each for waits in self._waiting.values() for each in waits]:
            self._look(waiting, is_last=True)

    # --- looking

    def _schedule(self) -> None:
        if self._is_scheduled:
            return
        self._is_scheduled = True
        self._lane.run(self._look_at_due(), at_once=False)

    def _look_at_due(self) -> Generator[None, None, None]:
        """Check the waiting requests that are due."""
        try:
            while self._due:
                waiting, _ = self._due.popitem(last=False)
                waiting.is_due = False
                if not waiting.is_over:
                    self._look(waiting, is_last=False)
                yield
        finally:
            self._is_scheduled = False

    def _look(self, waiting: HeldPop, is_last: bool) -> None:
        if not waiting.request.channel.active:
            self._end(waiting, None)
            return
        try:
            answer = waiting.look(waiting, is_last)
        except Exception:
            self._leave_for_good(waiting)
            waiting.reply.errback()
            return
        if answer is not None:
            self._end(waiting, answer)

    def _leave_for_good(self, waiting: HeldPop) -> None:
        waiting.is_over = True
        self._due.pop(waiting, None)
        self._leave(waiting)
        if waiting.has_deadline:
            self._over_count += 1
            if self._over_count > max(self.count, _OVER_LEAST):
                self._forget_over()

    def _forget_over(self) -> None:
        """Remove finished requests from the list of deadlines, in place."""
        self._deadlines[:] = [each for each in self._deadlines if not each[2].is_over]
        heapify(self._deadlines)
        self._over_count = 0

    def _end(self, waiting: HeldPop, answer: Reply | None) -> None:
        self._leave_for_good(waiting)
        waiting.reply.callback(answer)
