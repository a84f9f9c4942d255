"""The waiting requests, their order, and the state in which a broker is behind."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.cost import GROWTH_MAX, growth
from twistmq.broker.constants import TURN_SECONDS
from twistmq.broker.net.run_queue import READ_SIZE, RunQueue, WaitingFrames
from twistmq.broker.net.slices import PIECE_FRAMES_MAX, Slice
from twistmq.protocol.frame import JSON, Frame


def frames(count: int, first: int = 0) -> list[Frame]:
    return [(JSON, b"h", b"%04d" % number) for number in range(first, first + count)]


class Member:
    """A connection whose turns take some time."""

    def __init__(self, run_queue: RunQueue, seconds: list[float], cost: float, pieces: int) -> None:
        self.run_queue, self.seconds, self.cost = run_queue, seconds, cost
        self.waiting = WaitingFrames(run_queue)
        for number in range(pieces):
            self.waiting.add(frames(PIECE_FRAMES_MAX), float(number))
        self.served = 0
        run_queue.add(self, self.waiting)

    def begin_slice(self) -> Slice | None:
        _, piece = self.waiting.take()
        return Slice(self, piece, 0, ([], None), None)  # type: ignore[arg-type]

    def run_slice(self, part: Slice) -> None:
        self.served += 1
        self.seconds[0] += self.cost
        if self.waiting:
            self.run_queue.add(self, self.waiting)


class Watching:
    """A flow control that records rounds."""

    rejects = False

    def __init__(self) -> None:
        self.rounds = 0

    def begin_round(self, waiting: object) -> None:
        self.rounds += 1


class WaitingFramesTests(SynchronousTestCase):
    """The frames of one connection."""

    def setUp(self) -> None:
        self.run_queue = RunQueue(Clock(), lambda: 0.0)
        self.waiting = WaitingFrames(self.run_queue)

    def counts(self) -> tuple[int, int]:
        self.assertEqual((self.waiting.request_count, self.waiting.size_bytes),
                         (self.run_queue.request_count, self.run_queue.size_bytes))
        return self.waiting.request_count, self.waiting.size_bytes

    def test_order_and_counts(self) -> None:
        """The first frames run first, in pieces; requests and bytes are counted all the time."""
        count = 2 * PIECE_FRAMES_MAX + 3
        self.waiting.add(frames(count), 1.0)
        self.assertEqual(self.counts(), (count, count * 5))
        taken: list[Frame] = []
        sizes = []
        while self.waiting:
            came, piece = self.waiting.take()
            self.assertEqual(came, 1.0)
            taken += piece
            sizes.append(len(piece))
            self.assertEqual(self.counts()[0], count - len(taken))
        self.assertEqual(taken, frames(count))
        self.assertEqual(sizes, [PIECE_FRAMES_MAX, PIECE_FRAMES_MAX, 3])

    def test_small_reads_are_one_piece(self) -> None:
        """Small reads are served together, unless long times lie between them."""
        for number, came in enumerate((1.0, 1.01, 1.5)):
            self.waiting.add(frames(2, 2 * number), came)
        self.assertEqual(self.waiting.take(), (1.0, frames(4)))
        self.assertEqual(self.waiting.head_came(), 1.5)
        self.assertEqual(self.waiting.take(), (1.5, frames(2, 4)))
        self.assertEqual((self.counts(), self.waiting.head_came()), ((0, 0), None))

    def test_time_that_the_connection_itself_caused_does_not_count(self) -> None:
        """Time that a connection itself was to blame for does not count."""
        self.waiting.add(frames(1), 1.0)
        self.waiting.restart_wait(7.0)
        self.assertEqual(self.waiting.take(), (7.0, frames(1)))

    def test_cleared_frames_are_not_counted_any_more(self) -> None:
        """Frames of a peer that cannot read replies no longer count."""
        other = WaitingFrames(self.run_queue)
        other.add(frames(1), 1.0)
        self.waiting.add(frames(5), 1.0)
        self.assertEqual(list(self.waiting.frames()), frames(5))
        self.waiting.clear()
        self.assertEqual(list(self.waiting.frames()), [])
        self.assertFalse(self.waiting)
        self.assertEqual((self.run_queue.request_count, self.run_queue.size_bytes), (1, 5))


class TurnsTests(SynchronousTestCase):
    """The turns of all connections."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.seconds = [0.0]
        self.run_queue = RunQueue(self.clock, lambda: self.seconds[0])
        self.addCleanup(self.run_queue.stop)

    def test_in_turn(self) -> None:
        """Each connection has one piece served before any has two; a step lasts one turn."""
        members = [Member(self.run_queue, self.seconds, TURN_SECONDS / 3.9, 3) for _ in range(3)]
        self.assertEqual(self.run_queue.connection_count, 3)
        watching = Watching()
        self.run_queue.start(watching)  # type: ignore[arg-type]
        begun: list[int] = []

        def begin_round(waiting: object) -> None:
            served = [member.served for member in members]
            self.assertLessEqual(max(served) - min(served), 1)
            begun.append(sum(served))

        self.patch(watching, "begin_round", begin_round)
        # This clock runs a call for now at once, where a reactor has reads before it.
        self.clock.advance(0)
        self.assertEqual((begun, sum(member.served for member in members)), ([0, 4, 8], 9))
        self.run_queue.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_the_loop_is_behind_when_others_wait_or_a_read_was_full(self) -> None:
        """The loop is behind if connections wait, if a read was full, and late in a round."""
        self.run_queue.start(Watching())  # type: ignore[arg-type]
        self.assertFalse(self.run_queue.is_behind(0.0, READ_SIZE - 1))
        self.assertTrue(self.run_queue.is_behind(0.0, READ_SIZE))
        self.assertTrue(self.run_queue.is_behind(0.2, 1))
        self.seconds[0] = 0.2
        self.clock.advance(0.01)
        self.assertFalse(self.run_queue.is_behind(0.2, 1), msg="a new round began")
        Member(self.run_queue, self.seconds, 0.0, 1)
        self.assertTrue(self.run_queue.is_behind(0.2, 1))
        self.clock.advance(0)
        self.assertFalse(self.run_queue.is_behind(0.2, 1))

    def test_flow_control_runs_each_ten_milliseconds(self) -> None:
        """Flow control begins a round every ten milliseconds, and before turns."""
        watching = Watching()
        self.run_queue.start(watching)  # type: ignore[arg-type]
        for _ in range(5):
            self.clock.advance(0.01)
        self.assertEqual(watching.rounds, 5)
        Member(self.run_queue, self.seconds, 0.0, 1)
        self.clock.advance(0)
        self.assertEqual(watching.rounds, 6)
        self.run_queue.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_ticks_are_rare_without_input(self) -> None:
        """After five ticks without a read the ticks are rare, and the next read is not late."""
        watching = Watching()
        self.run_queue.start(watching)  # type: ignore[arg-type]
        for _ in range(300):
            self.advance(0.01)
        self.assertLessEqual(watching.rounds, 8)
        self.seconds[0] += 0.5
        begin, rounds = self.seconds[0], watching.rounds
        self.assertFalse(self.run_queue.is_behind(begin, 1))
        self.assertFalse(self.run_queue.is_behind(begin + 0.025, 1))
        self.assertTrue(self.run_queue.is_behind(begin + 0.031, 1))
        self.assertEqual(watching.rounds, rounds + 1)
        for _ in range(4):
            self.advance(0.01)
        self.assertEqual(watching.rounds, rounds + 5)
        self.run_queue.is_behind(self.seconds[0], 1)
        for _ in range(4):
            self.advance(0.01)
        self.assertEqual(watching.rounds, rounds + 9)
        for _ in range(80):
            self.advance(0.01)
        self.assertEqual(watching.rounds, rounds + 11)

    def test_a_long_round_is_no_pause(self) -> None:
        """A round without reads counts once, however long it lasts, and later reads are late."""
        watching = Watching()
        self.run_queue.start(watching)  # type: ignore[arg-type]
        self.run_queue.is_behind(self.seconds[0], 1)
        self.advance(0.01)
        self.advance(2)
        self.seconds[0] += 0.05
        self.assertTrue(self.run_queue.is_behind(self.seconds[0], 1))
        self.run_queue.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def advance(self, seconds: float) -> None:
        """Advance both clocks."""
        self.seconds[0] += seconds
        self.clock.advance(seconds)

    def test_nobody_watches(self) -> None:
        """Without flow control no rounds are begun."""
        self.run_queue.start(None)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_head_wait(self) -> None:
        """The longest wait over all connections is known."""
        self.assertEqual(self.run_queue.head_wait_ms(), 0)
        for came in (3.0, 2.0):
            member = Member(self.run_queue, self.seconds, 0.0, 0)
            member.waiting.add(frames(1), came)
        self.seconds[0] = 4.5
        self.assertEqual(self.run_queue.head_wait_ms(), 2500)

    def test_cost_of_many(self) -> None:
        """The next connection is found in constant time, however many had their turns."""
        def prepare(count: int) -> Callable[[], object]:
            clock = Clock()
            run_queue = RunQueue(clock, lambda: 0.0)
            for _ in range(count):
                Member(run_queue, [0.0], 0.0, 0)
            return lambda: clock.advance(0)

        self.patch(Member, "begin_slice", lambda member: None)
        self.assertLess(growth(prepare, 10_000), GROWTH_MAX)

    def test_a_connection_that_is_gone_has_no_turn(self) -> None:
        """A connection that is lost has no turn."""
        member = Member(self.run_queue, self.seconds, 0.0, 1)
        self.run_queue.remove(member)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.clock.advance(0)
        self.assertEqual(member.served, 0)
