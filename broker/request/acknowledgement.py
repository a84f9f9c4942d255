"""Decides when a stored message may be acknowledged: a chain of stages, each of which may wait.

The kernel has a single stage, the flush to disk under SYNC_FLUSH. A replication plugin adds its own
stage to ``stages``. A late stage does not lose the message: the client gets the stage's code and
counts the send as done. A stage can also report the outcome itself. It fires with another code for
a message that is stored, or fails with RequestRefused if the message does not count as stored.

Source: CommitLog.handleDiskFlushAndHA, GroupCommitService @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from twistmq.broker.errors import StoreCut
from twistmq.broker.store.message_store import MessageStore
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.errors import RequestRefused

__all__ = ["Acknowledgement", "Stage"]


@dataclass(frozen=True, slots=True)
class Stage:
    """One condition of an acknowledgement.

    :param begin: is given the commit-log offset that must be safe. Returns None if it is safe, and
        otherwise a Deferred. The Deferred fires with None or SUCCESS once the offset is safe, or
        with the code that the client gets for a message that is stored. If it fails with
        RequestRefused, that refusal is the reply, and after a StoreCut the message is refused too;
        any other failure counts as being late.
    :param late_code: the code that the client gets if the stage takes too long.
    :param timeout_ms: returns how long the stage may take, counted from the append. If it is None,
        ``syncFlushTimeout`` applies.
    :param is_mandatory: whether messages with WAIT=false wait for the stage as well.
    """

    begin: Callable[[int], Deferred[None] | Deferred[ResponseCode] | None]
    late_code: ResponseCode
    timeout_ms: Callable[[], int] | None = None
    is_mandatory: bool = False


class _StageWait:
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
            elif failure.check(StoreCut):
                # The client would count a late message as stored.
                self.done.errback(RequestRefused(ResponseCode.SYSTEM_ERROR, str(failure.value)))
            else:
                self.done.callback(self.late_code)


class Acknowledgement:
    """Waits until messages are as safe as the settings demand.

    :param steady_ms: the clock for durations, ms.
    """

    def __init__(self, store: MessageStore, steady_ms: Callable[[], int]) -> None:
        self._steady_ms = steady_ms
        #: The time-out of a stage that does not set one.
        self.timeout_ms = store.settings.sync_flush_timeout_ms
        self.stages: list[Stage] = []
        if store.settings.sync_flush:
            self.stages.append(Stage(store.flush.flushed, ResponseCode.FLUSH_DISK_TIMEOUT))
        #: A heap of (deadline, number, wait). Deadlines count from the append.
        self._waiting: list[tuple[int, int, _StageWait]] = []
        self._numbers = count()

    @property
    def has_mandatory(self) -> bool:
        """Whether messages with WAIT=false have to wait for a stage."""
        return any(stage.is_mandatory for stage in self.stages)

    def wait(
        self, offset: int, *, only_mandatory: bool = False
    ) -> Deferred[ResponseCode] | None:
        """Wait until the commit log is safe up to ``offset``.

        :param only_mandatory: True for messages with WAIT=false, which skip all other stages.
        :returns: None if it is safe already. Otherwise a Deferred that fires with SUCCESS or with
            the code of the first stage that is late or reports a code, or fails with the refusal
            of a stage.
        """
        if not self.stages:
            return None
        return self._pass(0, offset, self._steady_ms(), only_mandatory)

    def _pass(
        self, index: int, offset: int, now_ms: int, only_mandatory: bool
    ) -> Deferred[ResponseCode] | None:
        while index < len(self.stages):
            stage = self.stages[index]
            index += 1
            if only_mandatory and not stage.is_mandatory:
                continue
            safe = stage.begin(offset)
            if safe is not None:
                return self._wait(safe, stage, index, offset, now_ms, only_mandatory)
        return None

    def _wait(
        self, safe: Deferred[None] | Deferred[ResponseCode], stage: Stage, index: int, offset: int,
        now_ms: int, only_mandatory: bool,
    ) -> Deferred[ResponseCode]:
        waiting = _StageWait(stage.late_code)
        timeout_ms = self.timeout_ms if stage.timeout_ms is None else stage.timeout_ms()
        heappush(self._waiting, (now_ms + timeout_ms, next(self._numbers), waiting))
        safe.addCallbacks(lambda code: waiting.fire(code or ResponseCode.SUCCESS), waiting.fail)

        def next_stage(code: ResponseCode) -> ResponseCode | Deferred[ResponseCode]:
            if code != ResponseCode.SUCCESS:
                return code
            return self._pass(index, offset, now_ms, only_mandatory) or code

        return waiting.done.addCallback(next_stage)

    def rest_ms(self) -> int | None:
        """Return how long :meth:`expire` has nothing to do, ms; None while nothing waits."""
        return 0 if self._waiting else None

    def expire(self, _: int) -> None:
        """Give up waits whose time-out is over. This method is called periodically."""
        waiting, now_ms = self._waiting, self._steady_ms()
        while waiting and (waiting[0][2].fired or waiting[0][0] <= now_ms):
            expired = heappop(waiting)[2]
            expired.fire(expired.late_code)
