"""Long polling: a pull that found nothing waits here until a message comes or its time is up.

A waiting pull is a Deferred in a table, so waiting costs only memory. Waking is the hard part:
thousands of pulls may wait on one queue, and examining all of them for each message would block
every other client for seconds. The pulls are therefore examined in rounds. A round visits the pulls
of a queue in order of arrival and runs again each one whose wait is over, for a few milliseconds at
a time, and the reactor serves other clients between these slices. While a round is in progress, new
messages do not start a second one; they are collected as the reasons of the next round of that
queue, so that each queue has at most one round. To keep rounds short, a message only visits the
pulls that may want its tag (see ``waiting_by_tag``).

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
from twistmq.broker.scheduling.scheduler import Scheduler
from twistmq.broker.store.message_store import MessageFilter, MessageStore
from twistmq.protocol.log_rate import LineRate
from twistmq.protocol.record import MessageRecord

__all__ = ["PullHold"]

#: The number of pulls that are examined between two checks of the clock.
_LOOKS: Final = 64
#: The number of reasons that a queue's next round keeps apart. With more, it wakes every pull.
_REASONS_MAX: Final = 100


@dataclass(slots=True, eq=False)
class _HeldPull:
    """A waiting pull."""

    request: Request[Any]
    #: The first queue offset that ends the wait.
    offset: int
    #: The filter of the pull; None if it wants every message.
    wants: MessageFilter | None
    #: The end of the wait, by the clock for durations.
    deadline_ms: int
    #: Runs the pull again; the pull must not be held a second time.
    run_again: Callable[[Request[Any], int], Handled]
    #: Fires with the reply, or with None when the connection is lost.
    reply: Deferred[Any]
    is_over: bool = False
    #: Whether the pull exceeds the limit and uses the allowance of its connection.
    is_extra: bool = False


#: Returns whether a wait is over.
_Ends = Callable[[_HeldPull], bool]
#: The pulls that a reason may wake: those that may want one of the records; None for all pulls.
_Reason = tuple[_Ends, Sequence[MessageRecord] | None]


@dataclass(slots=True, eq=False)
class _Round:
    """One pass through pulls of a queue."""

    pulls: list[_HeldPull]
    ends: list[_Ends]
    at: int = 0
    #: The reasons of the next round.
    later: list[_Reason] = field(default_factory=list)


class PullHold:
    """The waiting pulls, by topic and queue.

    :param scheduler: gives slices to long rounds.
    """

    log = Logger()

    def __init__(self, host: Host, store: MessageStore, scheduler: Scheduler) -> None:
        self._host = host
        self._store = store
        self._held: dict[tuple[str, int], WaitingByTag[_HeldPull]] = {}
        #: Rounds that do not end within their first slice continue here.
        self._lane = scheduler.lane()
        #: The queues with a round in progress.
        self._rounds: dict[tuple[str, int], _Round] = {}
        self.count = 0
        #: The pulls that wait although the limit is reached, by connection.
        self._extra: Counter[int] = Counter()
        self._full_lines = LineRate()

    def hold(
        self, request: Request[Any], timeout_ms: int, message_filter: MessageFilter | None,
        run_again: Callable[[Request[Any], int], Handled],
    ) -> Deferred[Reply] | None:
        """Let a pull wait.

        :param timeout_ms: the longest time to wait; values above ``HOLD_MS_MAX`` are reduced.
        :param run_again: called with the request and the time when a message has come or the time
            is up; it returns the pull's reply.
        :returns: None when too many pulls wait already, several of them from this connection. The
            pull must then be answered now.
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
        for key, queue_records in arrived.items():
            self._wake(key, (partial(_wants_any, queue_records), queue_records), end_ms)

    def check(self, _: int) -> None:
        """End waits that are over or whose message came unnoticed. Called periodically."""
        end_ms, now_ms = self._turn_end_ms(), self._host.steady.now_ms()
        for topic, queue_id in list(self._held):
            if (topic, queue_id) in self._rounds:
                continue
            maximum = self._store.queues.max_offset(topic, queue_id)
            self._wake((topic, queue_id), (partial(_is_over, now_ms, maximum), None), end_ms)

    def topic_deleted(self, topic: str) -> None:
        """End the waits for a deleted topic, so that its consumers learn of it at once.

        Differs from Apache, whose consumers do not notice if the topic is soon created again, and
        continue at offsets of the old topic.
        """
        end_ms = self._turn_end_ms()
        for key in [key for key in self._held if key[0] == topic]:
            self._wake(key, _ALL_PULLS, end_ms)

    def log_cut(self) -> None:
        """End the waits for offsets beyond the end of their queue, after the log was cut.

        Otherwise such a consumer would miss the messages that get the offsets before its own.
        """
        end_ms = self._turn_end_ms()
        for key in list(self._held):
            maximum = self._store.queues.max_offset(*key)
            self._wake(key, (partial(_is_beyond, maximum), None), end_ms)

    def release_all(self) -> None:
        """End all waits because the broker stops."""
        for key in list(self._held):
            self._wake(key, _ALL_PULLS, None)
        while self._rounds:
            key = next(iter(self._rounds))
            self._continue(key, self._rounds[key], None)

    def _turn_end_ms(self) -> float:
        """Return the time at which the current slice ends, ms."""
        return self._host.steady.now_ms() + TURN_SECONDS * 1000

    def _wake(self, key: tuple[str, int], reason: _Reason, end_ms: float | None) -> None:
        """End the waits of one queue for which there is a reason, now or soon.

        :param end_ms: the end of the slice; None if the round must not be interrupted.
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
        """Begin a round for these reasons; :returns: None when they do not concern any pull."""
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
        """Continue the round of a queue, some pulls at a time."""
        while key in self._rounds and not self._continue(key, self._rounds[key], 0):
            yield

    def _continue(self, key: tuple[str, int], running: _Round, end_ms: float | None) -> bool:
        """Continue with a queue's pulls; :returns: False when the time is over."""
        now_ms, steady_ms = self._host.now_ms, self._host.steady.now_ms
        looks = 0
        while True:
            while running.at < len(running.pulls):
                held = running.pulls[running.at]
                running.at += 1
                if held.is_over:
                    # The round contains it twice.
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
        """Remove a pull whose wait is over."""
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
    """Whether a pull no longer has to wait."""
    return (held.deadline_ms <= now_ms or not held.request.channel.active
            or (held.wants is None and held.offset < max_offset))


def _is_beyond(max_offset: int, held: _HeldPull) -> bool:
    """Whether a pull waits for an offset that its queue does not reach with the next message."""
    return held.offset > max_offset


def _always(held: _HeldPull) -> bool:
    return True


_ALL_PULLS: Final[_Reason] = _always, None
