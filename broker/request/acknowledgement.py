"""When a stored message may be acknowledged: a chain of stages that can each make it wait.

The kernel's only stage is the flush to disk under SYNC_FLUSH; a replication plugin adds its own to
``stages``. A stage that is late does not lose the message: the client is told so by the stage's
code and counts the send as done. A stage that knows more says it: it fires with another code of a
message that is stored, or fails with RequestRefused when the message does not count as stored.

Source: CommitLog.handleDiskFlushAndHA, GroupCommitService @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from twistmq.broker.store.message_store import MessageStore
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.errors import RequestRefused

__all__ = ["Acknowledgement", "Stage"]


@dataclass(frozen=True, slots=True)
class Stage:
    """One condition of an acknowledgement.

    :param begin: given the commit-log offset that must be safe, returns None when it is, else a
        Deferred. That fires with None or SUCCESS once it is safe, or with the code that the client
        is told of a message that is stored. When it fails with RequestRefused, that refusal is the
        reply; any other failure counts as being late.
    :param late_code: what the client is told when it takes too long.
    :param timeout_ms: returns how long it may take, counted from the append; None: as
        syncFlushTimeout says.
    """

    begin: Callable[[int], Deferred[None] | Deferred[ResponseCode] | None]
    late_code: ResponseCode
    timeout_ms: Callable[[], int] | None = None


class _Waiting:
    """One wait of one stage."""

    __slots__ = ("done", "fired", "late_code")

    def __init__(self, late_code: ResponseCode) -> None:
        self.late_code = late_code
        self.done: Deferred[ResponseCode] = Deferred()
        self.fired = False

    def fire(self, code: ResponseCode) -> None:
        if not self.fired:
            self.fired = True
            self.done.callback(code)

    def fail(self, failure: Failure) -> None:
        """The stage failed."""
        if not self.fired:
            self.fired = True
            if failure.check(RequestRefused):
                self.done.errback(failure)
            else:
                self.done.callback(self.late_code)


class Acknowledgement:
    """Waits until messages are as safe as the settings demand.

    :param steady_ms: the clock for durations, ms.
    """

    def __init__(self, store: MessageStore, steady_ms: Callable[[], int]) -> None:
        self._steady_ms = steady_ms
        #: How long a stage without a time-out of its own may take.
        self.timeout_ms = store.settings.sync_flush_timeout_ms
        self.stages: list[Stage] = []
        if store.settings.sync_flush:
            self.stages.append(Stage(store.flush.flushed, ResponseCode.FLUSH_DISK_TIMEOUT))
        #: A heap of (deadline, number, wait): deadlines count from the append.
        self._waiting: list[tuple[int, int, _Waiting]] = []
        self._numbers = count()

    def wait(self, offset: int) -> Deferred[ResponseCode] | None:
        """Wait until the commit log is safe up to ``offset``.

        :returns: None when it is; else fires with SUCCESS, or with the code of the first stage
            that took too long or says so itself, or fails with the refusal of a stage.
        """
        return self._pass(0, offset, self._steady_ms()) if self.stages else None

    def _pass(self, index: int, offset: int, now_ms: int) -> Deferred[ResponseCode] | None:
        while index < len(self.stages):
            stage = self.stages[index]
            index += 1
            safe = stage.begin(offset)
            if safe is not None:
                return self._wait(safe, stage, index, offset, now_ms)
        return None

    def _wait(
        self, safe: Deferred[None] | Deferred[ResponseCode], stage: Stage, index: int, offset: int,
        now_ms: int,
    ) -> Deferred[ResponseCode]:
        waiting = _Waiting(stage.late_code)
        timeout_ms = self.timeout_ms if stage.timeout_ms is None else stage.timeout_ms()
        heappush(self._waiting, (now_ms + timeout_ms, next(self._numbers), waiting))
        safe.addCallbacks(lambda code: waiting.fire(code or ResponseCode.SUCCESS), waiting.fail)

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
            expired.fire(expired.late_code)
