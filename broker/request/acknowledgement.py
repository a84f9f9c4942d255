"""When a stored message may be acknowledged: a chain of stages that can each make it wait.

The only stage today is the flush to disk under SYNC_FLUSH; a replication plugin adds its own to
``stages``. A stage that takes longer than the time-out does not lose the message: the client
is told so by a code of its own and counts the send as done.

Source: CommitLog.handleDiskFlushAndHA, GroupCommitService @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from twisted.internet.defer import Deferred

from twistmq.broker.codes import ResponseCode
from twistmq.broker.store.message_store import MessageStore

__all__ = ["Acknowledgement", "Stage"]

#: Given the commit-log offset that must be safe: None when it is, else a Deferred that fires
#: when it is. The code is what a client is told when that takes too long.
Stage = tuple[Callable[[int], Deferred[None] | None], ResponseCode]


class _Waiting:
    """One wait of one stage."""

    __slots__ = ("done", "fired", "timeout_code")

    def __init__(self, timeout_code: ResponseCode) -> None:
        self.timeout_code = timeout_code
        self.done: Deferred[ResponseCode] = Deferred()
        self.fired = False

    def fire(self, code: ResponseCode) -> None:
        if not self.fired:
            self.fired = True
            self.done.callback(code)


class Acknowledgement:
    """Waits until messages are as safe as the settings demand.

    :param steady_ms: the clock for durations, ms.
    """

    def __init__(self, store: MessageStore, steady_ms: Callable[[], int]) -> None:
        self._steady_ms = steady_ms
        #: How long a stage may take.
        self.timeout_ms = store.settings.sync_flush_timeout_ms
        self.stages: list[Stage] = []
        if store.settings.sync_flush:
            self.stages.append((store.flushed, ResponseCode.FLUSH_DISK_TIMEOUT))
        #: A heap of (deadline, number, wait): a later stage's wait has the deadline of the first.
        self._waiting: list[tuple[int, int, _Waiting]] = []
        self._numbers = count()

    def wait(self, offset: int) -> Deferred[ResponseCode] | None:
        """Wait until the commit log is safe up to ``offset``.

        :returns: None when it is; else fires with SUCCESS, or with the code of the first stage
            that took too long.
        """
        return self._pass(0, offset, self._steady_ms()) if self.stages else None

    def _pass(self, index: int, offset: int, now_ms: int) -> Deferred[ResponseCode] | None:
        while index < len(self.stages):
            begin, timeout_code = self.stages[index]
            index += 1
            safe = begin(offset)
            if safe is not None:
                return self._wait(safe, timeout_code, index, offset, now_ms)
        return None

    def _wait(
        self, safe: Deferred[None], timeout_code: ResponseCode, index: int, offset: int, now_ms: int
    ) -> Deferred[ResponseCode]:
        waiting = _Waiting(timeout_code)
        heappush(self._waiting, (now_ms + self.timeout_ms, next(self._numbers), waiting))
        safe.addCallbacks(
            lambda _: waiting.fire(ResponseCode.SUCCESS), lambda _: waiting.fire(timeout_code)
        )

        def next_stage(code: ResponseCode) -> ResponseCode | Deferred[ResponseCode]:
            if code != ResponseCode.SUCCESS:
                return code
            return self._pass(index, offset, now_ms) or code

        return waiting.done.addCallback(next_stage)

    def expire(self, _: int) -> None:
        """Give up the waits whose time is over; run periodically."""
        waiting, now_ms = self._waiting, self._steady_ms()
        while waiting and (waiting[0][2].fired or waiting[0][0] <= now_ms):
            expired = heappop(waiting)[2]
            expired.fire(expired.timeout_code)
