"""Long work in slices."""

from __future__ import annotations

from collections.abc import Callable, Generator

from twisted.trial.unittest import SynchronousTestCase

from tests.cost import GROWTH_MAX, growth
from twistmq.broker.scheduling.scheduler import (
    CONTINUE_PERIOD_MS,
    IDLE_PERIOD_MS,
    SLICE_MS,
    Scheduler,
)


class SchedulerCase(SynchronousTestCase):
    """A scheduler whose clock moves with the work."""

    def setUp(self) -> None:
        self.now_ms = 0
        self.scheduler = Scheduler(lambda: self.now_ms)
        self.lane = self.scheduler.lane()
        #: The names of finished work, in order.
        self.done: list[str] = []

    def work(self, name: str, steps: int) -> Generator[None, None, str]:
        """Return work with steps of a millisecond."""
        for _ in range(steps):
            self.now_ms += 1
            yield
        self.done.append(name)
        return name

    def run_all(self) -> int:
        """Call the scheduler until no work waits; :returns: the number of slices."""
        slices = 0
        while self.scheduler.period_ms() == CONTINUE_PERIOD_MS:
            before = self.now_ms
            self.scheduler.step(self.now_ms)
            self.assertLessEqual(self.now_ms - before, SLICE_MS)
            slices += 1
        return slices


class LaneTests(SchedulerCase):
    """The work of one lane."""

    def test_short_work_is_done_at_once(self) -> None:
        """Work that fits into one slice is done at once."""
        self.assertEqual(self.successResultOf(self.lane.run(self.work("a", SLICE_MS - 1))), "a")
        self.assertEqual(self.scheduler.period_ms(), IDLE_PERIOD_MS)

    def test_long_work_takes_turns(self) -> None:
        """No step blocks the reactor for more than a slice, and short work overtakes long work."""
        long = self.lane.run(self.work("long", 10 * SLICE_MS))
        short = self.lane.run(self.work("short", SLICE_MS + 1))
        self.assertEqual(self.scheduler.period_ms(), CONTINUE_PERIOD_MS)
        self.assertEqual(self.run_all(), 11)
        self.assertEqual(self.done, ["short", "long"])
        self.assertEqual([self.successResultOf(each) for each in (long, short)],
                         ["long", "short"])

    def test_work_that_fails_fails_its_deferred(self) -> None:
        """An error fails the Deferred of its work, at once or later."""
        def failing(steps: int) -> Generator[None, None, str]:
            yield from self.work("x", steps)
            raise ValueError(steps)
        self.failureResultOf(self.lane.run(failing(1)), ValueError)
        later = self.lane.run(failing(2 * SLICE_MS))
        self.assertNoResult(later)
        self.lane.finish()
        self.failureResultOf(later, ValueError)

    def test_work_of_one_owner_keeps_its_order(self) -> None:
        """The work of one owner is done in its order, and another owner does not wait for it."""
        for name in "ab":
            self.lane.run(self.work(name, 3 * SLICE_MS), ("one",))
        self.lane.run(self.work("c", SLICE_MS), ("two",))
        self.run_all()
        self.assertEqual(self.done, ["c", "a", "b"])

    def test_first_slice(self) -> None:
        """The first slice runs at once or later, as the caller chooses."""
        waiting = self.lane.run(self.work("waits", 1), at_once=False)
        self.assertNoResult(waiting)
        self.assertEqual(self.successResultOf(self.lane.run(self.work("now", 1), at_once=True)),
                         "now")
        self.assertNoResult(self.lane.run(self.work("behind", 1)))
        self.run_all()
        self.assertEqual(self.done, ["now", "waits", "behind"])

    def test_unwanted_work_is_closed_and_its_deferred_fires(self) -> None:
        """Work is closed when its result is not needed, and its Deferred fires with None."""
        wanted = [True]
        closed: list[bool] = []

        def work() -> Generator[None, None, str]:
            try:
                yield from self.work("x", 2 * SLICE_MS)
            finally:
                closed.append(True)
            return "x"

        result = self.lane.run(work(), is_wanted=lambda: wanted[0])
        wanted[0] = False
        self.run_all()
        self.assertIsNone(self.successResultOf(result))
        self.assertEqual((closed, self.done), ([True], []))


class OneAtATimeTests(SchedulerCase):
    """A lane in which work is completed before other work begins."""

    def setUp(self) -> None:
        super().setUp()
        self.lane = self.scheduler.lane(one_at_a_time=True)

    def test_begun_work_is_done_first(self) -> None:
        """Work that has begun is completed first; then the owners have turns."""
        self.lane.run(self.work("first", 3 * SLICE_MS), ("one", 1))
        for name, turn in (("b", ("one", 1)), ("c", ("one", 2)), ("d", ("two", 1))):
            self.lane.run(self.work(name, 2 * SLICE_MS), turn)
        self.run_all()
        self.assertEqual(self.done, ["first", "b", "d", "c"])

    def test_work_begun_by_work_waits(self) -> None:
        """Work that is started by other work of the lane waits until that is complete."""
        def outer() -> Generator[None, None, None]:
            self.assertFalse(self.lane.is_idle)
            self.assertNoResult(self.lane.run(self.work("inner", 1)))
            self.done.append("outer")
            yield
        self.lane.run(outer())
        self.run_all()
        self.assertEqual(self.done, ["outer", "inner"])
        self.assertTrue(self.lane.is_idle)

    def test_only_work_that_has_not_begun_is_dropped(self) -> None:
        """Only work that has not begun is dropped; other work continues."""
        self.lane.run(self.work("begun", 2 * SLICE_MS), ("one",), about="drop me")
        waiting = [self.lane.run(self.work(about, 1), ("one",), about=about)
                   for about in ("drop me", "keep me")]
        dropped = self.lane.drop(("one",), lambda about: about == "drop me")
        self.assertEqual(dropped, [(waiting[0], "drop me")])
        self.assertEqual(self.lane.drop(("two",), lambda about: True), [])
        self.run_all()
        self.assertNoResult(waiting[0])
        self.assertEqual(self.done, ["begun", "keep me"])


class LanesTests(SchedulerCase):
    """Several lanes of one scheduler."""

    def test_lanes_have_slices_in_turn(self) -> None:
        """A lane with much work does not delay another lane."""
        other = self.scheduler.lane()
        for number in range(5):
            self.lane.run(self.work(f"long {number}", 3 * SLICE_MS))
        result = other.run(self.work("other", 2 * SLICE_MS))
        for _ in range(4):
            self.scheduler.step()
        self.assertEqual(self.successResultOf(result), "other")
        self.assertEqual(self.done, ["other"])


class CostTests(SchedulerCase):
    """The cost of one slice."""

    def test_cost_of_many_owners(self) -> None:
        """The next work is found in constant time, however much work waits."""
        def prepare(count: int) -> Callable[[], object]:
            for number in range(count):
                self.lane.run(self.work("x", 10**6), (number,), at_once=False)
            return self.scheduler.step

        self.assertLess(growth(prepare, 10_000), GROWTH_MAX)


class RunSoonTests(SchedulerCase):
    """A scheduler that continues as soon as others had their turns."""

    def setUp(self) -> None:
        super().setUp()
        self.calls: list[Callable[[], None]] = []
        self.scheduler = Scheduler(lambda: self.now_ms, self.calls.append)
        self.lane = self.scheduler.lane()

    def test_one_call_is_pending_while_work_waits(self) -> None:
        """One call is pending while any work waits, and none afterwards."""
        for name in "ab":
            self.lane.run(self.work(name, 2 * SLICE_MS))
        turns = 0
        while self.calls:
            self.assertEqual(len(self.calls), 1)
            before = self.now_ms
            self.calls.pop()()
            self.assertLessEqual(self.now_ms - before, SLICE_MS)
            turns += 1
        self.assertEqual((sorted(self.done), turns), (["a", "b"], 4))
