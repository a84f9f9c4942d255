"""Long work in slices, so that the reactor serves other clients in between.

One reactor serves all clients, so a single long piece of work, such as reading a large table, would
stop all of them. Threads would not help: they would share the interpreter lock, and every table
would need a lock. Long work is therefore a generator, which yields wherever it can pause and
returns its result. The scheduler runs a generator for a slice of a few milliseconds, lets the
reactor serve other events, and continues with the next slice. Most work is done within its first
slice and costs about as much as a function call. Every piece of work belongs to a lane, and the
lanes of a scheduler get slices in turn, so that one kind of work cannot delay the other kinds.

Source: none; Apache's broker has threads for it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Hashable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from twisted.internet.defer import Deferred, fail, succeed

from twistmq.broker.scheduling.turns import Turns

__all__ = ["CONTINUE_PERIOD_MS", "IDLE_PERIOD_MS", "SLICE_MS", "Lane", "Scheduler"]

T = TypeVar("T")

#: The approximate duration of a slice, ms; a handler may block the reactor for 10 ms.
SLICE_MS: Final = 4
#: The time between two slices of a scheduler without ``run_soon``, ms.
CONTINUE_PERIOD_MS: Final = 8
#: The longest time until such a scheduler notices work that did not fit into its first slice, ms.
IDLE_PERIOD_MS: Final = 50

#: Marks the end of a slice of work that is not done.
_NOT_DONE: Final = object()


@dataclass(slots=True, eq=False)
class _Job:
    """A piece of work that waits for its next slice."""

    work: Generator[None, None, Any]
    #: Fires with the result of the work.
    done: Deferred[Any]
    #: Returns whether the result is still needed; None: the work is always completed.
    is_wanted: Callable[[], bool] | None
    #: Data of the caller about the work.
    about: Any


class Scheduler:
    """Gives slices to long work, one lane at a time.

    :param now_ms: the clock for durations.
    :param run_soon: calls a function once the reactor has served other events; work continues at
        that time. None: :meth:`step` is called periodically, each :meth:`period_ms`, and work gets
        at most half of the time of the reactor.
    """

    def __init__(
        self, now_ms: Callable[[], int],
        run_soon: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        self.now_ms = now_ms
        self._run_soon = run_soon
        #: The lanes with waiting work; the lane whose turn it is comes first.
        self._busy: OrderedDict[Lane, None] = OrderedDict()
        self._is_called = False

    def lane(self, *, one_at_a_time: bool = False) -> Lane:
        """Make a lane.

        :param one_at_a_time: whether work of the lane is completed before other work of the lane
            begins.
        """
        return Lane(self, one_at_a_time)

    def period_ms(self) -> int:
        """Return the time between two calls of :meth:`step`, ms."""
        return CONTINUE_PERIOD_MS if self._busy else IDLE_PERIOD_MS

    def rest_ms(self) -> int | None:
        """Return how long :meth:`step` has nothing to do, ms; None while no work waits."""
        return 0 if self._busy else None

    def step(self, now_ms: int = 0) -> None:
        """Continue work for a slice; called periodically."""
        end_ms = self.now_ms() + SLICE_MS
        while self._busy and self.now_ms() < end_ms:
            lane, _ = self._busy.popitem(last=False)
            lane.run_until(end_ms)
            if lane.is_waiting:
                self._busy[lane] = None

    def wake(self, lane: Lane) -> None:
        """Record that work of a lane is waiting."""
        self._busy[lane] = None
        if self._run_soon is not None and not self._is_called:
            self._is_called = True
            self._run_soon(self._turn)

    def _turn(self) -> None:
        """Continue for a slice, and again after other events have had their turn."""
        self._is_called = False
        self.step()
        if self._busy:
            self.wake(next(iter(self._busy)))


class Lane:
    """Work of one kind; created by :meth:`Scheduler.lane`."""

    def __init__(self, scheduler: Scheduler, one_at_a_time: bool) -> None:
        self._scheduler = scheduler
        self._now_ms = scheduler.now_ms
        self._one_at_a_time = one_at_a_time
        self._waiting: Turns[_Job] = Turns()
        #: The work in progress of a lane that runs one piece of work at a time.
        self._begun: tuple[tuple[Hashable, ...], _Job] | None = None
        self._is_running = False

    @property
    def is_waiting(self) -> bool:
        """Whether work waits for a slice."""
        return bool(self._waiting) or self._begun is not None

    @property
    def is_idle(self) -> bool:
        """Whether new work may begin at once: nothing waits, and nothing runs exclusively."""
        return not self.is_waiting and not (self._one_at_a_time and self._is_running)

    @property
    def count(self) -> int:
        """The number of waiting pieces of work."""
        return len(self._waiting) + (self._begun is not None)

    @property
    def owners(self) -> int:
        """The number of owners, the first keys of turns, with waiting work."""
        return self._waiting.owners

    def waiting_of(self, turn: tuple[Hashable, ...]) -> int:
        """Return the number of pieces of work that wait for the same turn."""
        return self._waiting.count(turn)

    def run(
        self, work: Generator[None, None, T], turn: tuple[Hashable, ...] | None = None, *,
        at_once: bool | None = None, is_wanted: Callable[[], bool] | None = None,
        about: Any = None,
    ) -> Deferred[T]:
        """Begin work.

        :param turn: the keys of its owner, such as a host and a connection. Owners get slices in
            turn, and the work of one owner is done in its order. None: the work is its own owner.
        :param at_once: whether it gets its first slice now; None: only if no other work waits.
        :param is_wanted: called before each later slice; once it returns False, the work is closed
            and its Deferred fires with None.
        :param about: data of the caller about the work, for :meth:`drop`.
        :returns: fires with the result of the work; it has fired already if one slice was enough.
        """
        if at_once or (at_once is None and self.is_idle):
            try:
                result = self._advance(work, self._now_ms() + SLICE_MS)
            except Exception:
                return fail()
            if result is not _NOT_DONE:
                return succeed(result)
        job = _Job(work, Deferred(), is_wanted, about)
        path = (id(job),) if turn is None else turn
        if self._one_at_a_time and self.is_idle and at_once is not False:
            self._begun = path, job
        else:
            self._waiting.add(path, job)
        self._scheduler.wake(self)
        return job.done

    def run_until(self, end_ms: float) -> None:
        """Run the work whose turn it is, until a given time; called by the scheduler."""
        if self._begun is not None:
            path, job = self._begun
            self._begun = None
        elif self._waiting:
            path, job = self._waiting.take()
        else:
            return
        result: Any = None
        try:
            if job.is_wanted is None or job.is_wanted():
                result = self._advance(job.work, end_ms)
            else:
                job.work.close()
        except Exception:
            job.done.errback()
            return
        if result is not _NOT_DONE:
            job.done.callback(result)
        elif self._one_at_a_time:
            self._begun = path, job
        else:
            self._waiting.put_back(path, job)

    def finish(self) -> None:
        """Complete all waiting work, regardless of its duration; called at the end."""
        while self.is_waiting:
            self.run_until(float("inf"))

    def drop(self, turn: tuple[Hashable, ...], is_dropped: Callable[[Any], bool]) -> list[
            tuple[Deferred[Any], Any]]:
        """Close work that has not begun yet.

        :param is_dropped: called with ``about`` of each piece of work of this turn.
        :returns: the Deferred of each closed piece of work, which has not fired, and its ``about``.
        """
        dropped = self._waiting.drop(turn, lambda job: is_dropped(job.about))
        for job in dropped:
            job.work.close()
        return [(job.done, job.about) for job in dropped]

    def _advance(self, work: Generator[None, None, Any], end_ms: float) -> Any:
        """Continue a piece of work until its end or a given time; return its result."""
        self._is_running = True
        try:
            while True:
                next(work)
                if self._now_ms() >= end_ms:
                    return _NOT_DONE
        except StopIteration as done:
            return done.value
        finally:
            self._is_running = False
