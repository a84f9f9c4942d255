"""Long polling: pulls that found nothing wait here until a message comes or their time is up.

Thousands may wait on one queue. They are looked at, and run again, in rounds: a round goes through
the pulls of a queue that a reason concerns in the order they came, for a few milliseconds at a
time, and the reactor serves other clients in between. Reasons to wake that come meanwhile make the
next round of
that queue. A message concerns those that may want its tag, see ``waiting_by_tag``.

Source: PullRequestHoldService @5.3.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from twistmq.broker.constants import (
    HELD_PULLS_FREE,
    HELD_PULLS_MAX,
    HOLD_MS_MAX,
    TURN_SECONDS,
)
from twistmq.broker.remoting.messages import Handled, Reply, Request
from twistmq.broker.request.filters import wants_any
from twistmq.broker.request.host import Host
from twistmq.broker.request.waiting_by_tag import WaitingByTag, index_size
from twistmq.broker.scheduling.log_rate import LineRate
from twistmq.broker.scheduling.scheduler import Scheduler
from twistmq.broker.store.message_store import MessageFilter, MessageStore
from twistmq.protocol.record import MessageRecord

__all__ = ["PullHold"]

#: Pulls that are looked at between two looks at the clock.
_LOOKS: Final = 64
#: Reasons that a queue's next round keeps apart; when there are more, it wakes every pull.
_REASONS_MAX: Final = 100


@dataclass(slots=True, eq=False)
class _HeldPull:
    """One pull that waits."""

    request: Request[Any]
    #: First queue offset that ends the wait.
    offset: int
    #: None: every message.
    wants: MessageFilter | None
    #: By the clock for durations.
    deadline_ms: int
    #: Runs the pull again; it must not be held a second time.
    run_again: Callable[[Request[Any], int], Handled]
    #: Fires with the reply, or with None when its connection is lost.
    reply: Deferred[Any]
    is_over: bool = False
    #: Whether it is one of those that its connection may have when there are too many.
    is_extra: bool = False


#: Says whether a wait is over.
_Ends = Callable[[_HeldPull], bool]
#: The pulls a reason may wake: those that may want one of these records; None for all pulls.
_Reason = tuple[_Ends, Sequence[MessageRecord] | None]


@dataclass(slots=True, eq=False)
class _Round:
    """One way through pulls of a queue."""

    pulls: list[_HeldPull]
    ends: list[_Ends]
    at: int = 0
    #: Reasons of the next round.
    later: list[_Reason] = field(default_factory=list)


class PullHold:
    """The pulls that wait, by topic and queue.

    :param scheduler: gives slices to long rounds.
    """

    log = Logger()

    def __init__(self, host: Host, store: MessageStore, scheduler: Scheduler) -> None:
        self._host = host
        self._store = store
        self._held: dict[tuple[str, int], WaitingByTag[_HeldPull]] = {}
        #: Rounds that did not end within their first slice go on here.
        self._lane = scheduler.lane()
        #: The queues whose pulls are gone through.
        self._rounds: dict[tuple[str, int], _Round] = {}
        self.count = 0
        #: Those that wait though there are too many, by connection.
        self._extra: Counter[int] = Counter()
        self._full_lines = LineRate()

    def hold(
        self, request: Request[Any], timeout_ms: int, message_filter: MessageFilter | None,
        run_again: Callable[[Request[Any], int], Handled],
    ) -> Deferred[Reply] | None:
        """Let a pull wait.

        :param timeout_ms: how long at most; it counts up to ``HOLD_MS_MAX``.
        :param run_again: called with the request and the time once a message came or the time
            is up; what it returns is the pull's reply.
        :returns: None when too many wait already, and some of this connection: the pull must be
            answered now.
        """
        is_extra = self.count >= HELD_PULLS_MAX
        if is_extra:
            if self._extra[request.channel.channel_id] >= HELD_PULLS_FREE:
                self._log_full(request)
                return None
            self._extra[request.channel.channel_id] += 1
        header = request.header
        held = _HeldPull(request, header.queue_offset, message_filter,
                         self._host.steady.now_ms() + min(timeout_ms, HOLD_MS_MAX), run_again,
                         Deferred(), is_extra=is_extra)
        key = header.topic, header.queue_id
        waiting = self._held.get(key)
        if waiting is None:
            waiting = self._held[key] = WaitingByTag()
        waiting.add(held)
        self.count += 1
        request.kept_bytes = getattr(message_filter, "size_bytes", 0) + index_size(message_filter)
        return held.reply

    def _log_full(self, request: Request[Any]) -> None:
        left_out = self._full_lines.left_out(self._host.now_ms())
        if left_out is not None:
            self.log.warn("a pull from {peer} is answered at once, because {count} pulls are held "
                          "already ({left_out} such lines were left out before)", count=self.count,
                          peer=request.channel.remote_address, left_out=left_out)

    def arrived(self, records: Sequence[MessageRecord]) -> None:
        """Wake the pulls that wait for one of these records."""
        if not self.count:
            return
        arrived: dict[tuple[str, int], list[MessageRecord]] = {}
        for record in records:
            key = (record.topic, record.queue_id)
            if key in self._held:
                arrived.setdefault(key, []).append(record)
        end_ms = self._turn_end_ms()
        for key, there in arrived.items():
            self._wake(key, (partial(_wants_any, there), there), end_ms)

    def check(self, _: int) -> None:
        """End the waits whose time is up or whose message came unnoticed; run periodically."""
        end_ms, now_ms = self._turn_end_ms(), self._host.steady.now_ms()
        for topic, queue_id in list(self._held):
            if (topic, queue_id) in self._rounds:
                continue
            maximum = self._store.queues.max_offset(topic, queue_id)
            self._wake((topic, queue_id), (partial(_is_over, now_ms, maximum), None), end_ms)

    def topic_deleted(self, topic: str) -> None:
        """End the waits for a topic that is gone, so that its consumers hear of it at once.

        Differs from Apache, whose consumers do not notice a topic that is made again soon: they go
        on at offsets of the old one.
        """
        end_ms = self._turn_end_ms()
        for key in [key for key in self._held if key[0] == topic]:
            self._wake(key, _ALL_PULLS, end_ms)

    def release_all(self) -> None:
        """End all waits: the broker stops."""
        for key in list(self._held):
            self._wake(key, _ALL_PULLS, None)
        while self._rounds:
            key = next(iter(self._rounds))
            self._continue(key, self._rounds[key], None)

    def _turn_end_ms(self) -> float:
        """The time at which the current slice ends, ms."""
        return self._host.steady.now_ms() + TURN_SECONDS * 1000

    def _wake(self, key: tuple[str, int], reason: _Reason, end_ms: float | None) -> None:
        """End the waits of one queue for which there is a reason, now or soon.

        :param end_ms: when to make way; None: the round is not cut.
        """
        running = self._rounds.get(key)
        if running is not None:
            if len(running.later) >= _REASONS_MAX:
                running.later = [_ALL_PULLS]
            running.later.append(reason)
            return
        running = self._begin(key, [reason])
        if running is None:
            return
        if not self._continue(key, running, end_ms):
            self._lane.run(self._rest(key), at_once=False)

    def _begin(self, key: tuple[str, int], reasons: Sequence[_Reason]) -> _Round | None:
        """Begin a round for these reasons; :returns: None when they concern no pull."""
        waiting = self._held.get(key)
        if waiting is None:
            return None
        came: list[MessageRecord] = []
        for _, records in reasons:
            if records is None:
                pulls = list(waiting)
                break
            came += records
        else:
            pulls = waiting.candidates(came)
        if not pulls:
            return None
        running = self._rounds[key] = _Round(pulls, [ends for ends, _ in reasons])
        return running

    def _rest(self, key: tuple[str, int]) -> Generator[None, None, None]:
        """Go on with the round of a queue, some pulls at a time."""
        while key in self._rounds and not self._continue(key, self._rounds[key], 0):
            yield

    def _continue(self, key: tuple[str, int], running: _Round, end_ms: float | None) -> bool:
        """Go on with a queue's pulls; :returns: False when the time is over."""
        now_ms, steady_ms = self._host.now_ms, self._host.steady.now_ms
        looks = 0
        while True:
            while running.at < len(running.pulls):
                held = running.pulls[running.at]
                running.at += 1
                if held.is_over:
                    # It was named twice.
                    continue
                if any(ends(held) for ends in running.ends):
                    self._leave(key, held)
                    self._run(held, now_ms())
                    looks = _LOOKS
                else:
                    looks += 1
                if looks >= _LOOKS and end_ms is not None:
                    looks = 0
                    if steady_ms() >= end_ms:
                        return False
            del self._rounds[key]
            following = self._begin(key, running.later) if running.later else None
            if following is None:
                return True
            running = following

    def _leave(self, key: tuple[str, int], held: _HeldPull) -> None:
        """The wait of a pull is over."""
        held.is_over = True
        self.count -= 1
        if held.is_extra:
            channel_id = held.request.channel.channel_id
            self._extra[channel_id] -= 1
            if not self._extra[channel_id]:
                del self._extra[channel_id]
        waiting = self._held[key]
        waiting.remove(held)
        if not waiting:
            del self._held[key]

    @staticmethod
    def _run(held: _HeldPull, now_ms: int) -> None:
        if not held.request.channel.active:
            # The connection is lost; the Deferred still fires, so that its bytes are released.
            held.reply.callback(None)
            return
        try:
            answer = held.run_again(held.request, now_ms)
        except Exception:
            held.reply.errback()
            return
        assert isinstance(answer, Reply)
        held.reply.callback(answer)


def _wants_any(records: Sequence[MessageRecord], held: _HeldPull) -> bool:
    """Whether a pull wants one of these records."""
    return wants_any(held.wants, records)


def _is_over(now_ms: int, max_offset: int, held: _HeldPull) -> bool:
    """Whether a pull need not wait longer."""
    return (held.deadline_ms <= now_ms or not held.request.channel.active
            or (held.wants is None and held.offset < max_offset))


def _always(held: _HeldPull) -> bool:
    return True


_ALL_PULLS: Final[_Reason] = _always, None
