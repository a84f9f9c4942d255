"""The window of a queue, by examples and against a very simple model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twistmq.client.base.received_message import Read
from twistmq.client.core.consumer.window import IDLE_MS, LOCK_MS, ByteTotal, QueueWindow
from twistmq.protocol.bodies import MessageQueue

QUEUE = MessageQueue("T", "b", 0)


def samples(*offsets: int, size: int = 10) -> list[Read]:
    """Messages with these offsets, of so many bytes each."""
    return [Read(offset, size) for offset in offsets]


def offsets_of(messages: Sequence[Read]) -> list[int]:
    """Return the offsets of messages."""
    return [message.offset for message in messages]


def window(*offsets: int, start: int = 0) -> QueueWindow[Read]:
    """Return a window with messages of 10 bytes each."""
    made = QueueWindow[Read](QUEUE, start, 0)
    made.put(samples(*offsets))
    return made


class CommitTests(SynchronousTestCase):
    """The offset to commit."""

    def test_it_is_the_first_unfinished_offset(self) -> None:
        """Messages behind one that runs may be finished; the offset waits for the first."""
        queue = window(5, 6, 9, start=5)
        queue.take(3, 0)
        self.assertTrue(queue.done(6))
        self.assertEqual(queue.committable, 5)
        self.assertTrue(queue.done(5))
        self.assertEqual(queue.committable, 9)

    def test_it_is_one_behind_the_last_when_all_are_finished(self) -> None:
        """After the last message it is the offset of the next."""
        queue = window(5, 6, 9, start=5)
        self.assertEqual(queue.done_all(queue.take(3, 0)), 3)
        self.assertEqual((queue.committable, queue.count, queue.byte_count), (10, 0, 0))

    def test_it_starts_where_the_first_pull_begins(self) -> None:
        """A queue without messages yet has its start to commit."""
        self.assertEqual(window(start=7).committable, 7)

    def test_it_advances_over_what_does_not_fit_only_when_nothing_is_cached(self) -> None:
        """A pull without matching tags advances it, but never past a message."""
        queue = window(3)
        queue.correct_tags_offset(50)
        self.assertEqual(queue.committable, 3)
        queue.done_all(queue.take(1, 0))
        queue.correct_tags_offset(50)
        self.assertEqual(queue.committable, 50)
        queue.correct_tags_offset(40)
        self.assertEqual(queue.committable, 50)

    def test_it_does_not_go_back_with_the_broker(self) -> None:
        """A broker that lost messages gives lower offsets; these are consumed, and it stays."""
        queue = window(10, 11)
        queue.done_all(queue.take(2, 0))
        self.assertEqual(queue.committable, 12)
        self.assertEqual(queue.put(samples(4, 5, size=1)), 2)
        self.assertEqual([message.offset for message in queue.take(9, 0)], [4, 5])
        self.assertEqual(queue.committable, 12)

    def test_a_moved_offset_is_frozen_even_lower(self) -> None:
        """After OFFSET_ILLEGAL the broker's next offset is the one to commit."""
        queue = window(10, 11)
        running = queue.take(1, 0)
        queue.freeze_at(2)
        queue.done_all(running)
        self.assertEqual((queue.is_dropped, queue.committable), (True, 2))


class HandOutTests(SynchronousTestCase):
    """Messages that are taken and put back."""

    def test_messages_are_handed_out_in_order_once(self) -> None:
        """Each message is handed out once, up to the requested number."""
        queue = window(1, 2, 3)
        self.assertEqual(offsets_of(queue.take(2, 0)), [1, 2])
        self.assertEqual(offsets_of(queue.take(2, 0)), [3])
        self.assertEqual(queue.take(2, 0), [])
        self.assertEqual((queue.running_count, queue.running_bounds), (3, (1, 3)))

    def test_in_order_nothing_is_handed_out_while_a_message_runs(self) -> None:
        """The next messages follow when the last ones are finished."""
        queue = window(1, 2, 3)
        first = queue.take_in_order(2, 0)
        self.assertEqual(queue.take_in_order(2, 0), [])
        queue.done_all(first)
        self.assertEqual(offsets_of(queue.take_in_order(2, 0)), [3])

    def test_messages_that_are_put_back_come_before_those_behind_them(self) -> None:
        """A suspended batch is tried again before anything else."""
        queue = window(1, 2, 3, 4)
        queue.put_back(queue.take_in_order(2, 0))
        self.assertEqual(offsets_of(queue.take_in_order(3, 0)), [1, 2, 3])
        queue.put_back(samples(2))
        self.assertEqual(offsets_of(queue.take(9, 0)), [2, 4])

    def test_a_message_that_does_not_run_cannot_be_put_back(self) -> None:
        """Afterwards neither a finished message nor a waiting one exists twice."""
        queue = window(1, 2)
        queue.done_all(queue.take(1, 0))
        queue.put_back(samples(1, 2, 99))
        self.assertEqual(offsets_of(queue.take(9, 0)), [2])

    def test_a_message_that_is_read_again_is_left_out(self) -> None:
        """Two pulls that overlap return each message once."""
        queue = window(1, 2)
        queue.take(1, 0)
        self.assertEqual(queue.put(samples(1, 2, 3)), 1)
        self.assertEqual((queue.count, queue.byte_count), (3, 30))
        self.assertEqual(offsets_of(queue.take(9, 0)), [2, 3])

    def test_bytes_count_and_span_follow(self) -> None:
        """The numbers count only unfinished messages."""
        queue = window(1, 2, 100)
        self.assertEqual((queue.count, queue.byte_count, queue.span), (3, 30, 99))
        queue.take(3, 0)
        queue.done(100)
        self.assertEqual((queue.count, queue.byte_count, queue.span, queue.bounds),
                         (2, 20, 1, (1, 2)))


    def test_windows_that_share_a_total_are_counted_together(self) -> None:
        """Messages that arrive, are finished, or are lost with their queue change the total."""
        total = ByteTotal()
        first, second = (QueueWindow[Read](QUEUE, 0, 0, total) for _ in range(2))
        first.put([Read(5, 1), Read(6, 2), Read(7, 4)])
        first.put(samples(3, size=8))
        second.put([Read(1, 16), Read(2, 32)])
        self.assertEqual(total.byte_count, 63)
        first.take(9, 0)
        first.done(6)
        first.done_all(samples(3, 7))
        self.assertEqual(total.byte_count, 49)
        second.drop()
        second.drop()
        self.assertEqual((total.byte_count, first.byte_count, second.byte_count), (1, 1, 0))


class LostTests(SynchronousTestCase):
    """A queue that another member has now."""

    def test_results_of_a_lost_queue_do_not_count(self) -> None:
        """The offset to commit remains that of the time when the queue was lost."""
        queue = window(1, 2, 3)
        running = queue.take(2, 0)
        queue.done(1)
        self.assertEqual(queue.drop(), running[1:])
        self.assertFalse(queue.done(2))
        self.assertEqual((queue.committable, queue.running_count), (2, 0))

    def test_nothing_is_handed_out_or_added_any_more(self) -> None:
        """Waiting messages are dropped, and so is the answer of an open pull."""
        queue = window(1, 2, 3)
        running = queue.take(1, 0)
        queue.drop()
        self.assertEqual(queue.put(samples(4)), 0)
        queue.put_back(running)
        self.assertEqual(queue.take(9, 0), [])
        queue.correct_tags_offset(50)
        self.assertEqual((queue.count, queue.byte_count, queue.committable), (0, 0, 1))
        self.assertEqual(queue.done_all(running), 0)

    def test_a_lock_is_believed_in_for_thirty_seconds(self) -> None:
        """A member that is not notified in time stops before the broker grants the
        lock to others.
        """
        queue = window()
        self.assertFalse(queue.holds_lock(0))
        queue.locked(1000)
        self.assertEqual(queue.lock_ms, 1000)
        self.assertTrue(queue.holds_lock(1000 + LOCK_MS))
        self.assertFalse(queue.holds_lock(1001 + LOCK_MS))
        queue.unlocked()
        self.assertFalse(queue.holds_lock(1000))

    def test_a_queue_that_is_not_pulled_is_noticed(self) -> None:
        """Two minutes after the last pull the queue counts as idle."""
        queue = window()
        queue.pulled_ms = 500
        self.assertFalse(queue.is_idle(500 + IDLE_MS))
        self.assertTrue(queue.is_idle(501 + IDLE_MS))


class TimeOutTests(SynchronousTestCase):
    """Messages that run for too long."""

    def test_the_oldest_that_run_are_found(self) -> None:
        """Messages above the time-out are found, the longest first, up to the requested number."""
        queue = window(*range(30))
        queue.take(1, 100)
        queue.take(20, 200)
        queue.take(1, 1200)
        self.assertEqual(queue.expired(1200, 1100), [])
        self.assertEqual(offsets_of(queue.expired(1201, 1100)), [0])
        self.assertEqual(offsets_of(queue.expired(1301, 1100)), [*range(16)])
        self.assertEqual(offsets_of(queue.expired(1301, 1100, 2)), [0, 1])

    def test_the_late_result_of_a_message_that_was_sent_back_does_not_count(self) -> None:
        """It was finished when it was sent back."""
        queue = window(0, 1)
        queue.take(2, 0)
        self.assertTrue(queue.done(0))
        self.assertFalse(queue.done(0))
        self.assertEqual((queue.committable, queue.byte_count), (1, 10))

    def test_a_message_that_is_tried_again_runs_from_its_new_start(self) -> None:
        """A message that was put back is as old as its new run."""
        queue = window(0, 1)
        queue.put_back(queue.take(1, 0))
        queue.take(2, 1000)
        self.assertEqual(queue.expired(1500, 600), [])


@dataclass
class Model:
    """The same behaviour, by lists that are searched."""

    committable: int
    last: int = -1
    waiting: list[int] = field(default_factory=list)
    running: list[int] = field(default_factory=list)

    def put(self, offsets: list[int]) -> None:
        """Add messages."""
        for offset in offsets:
            if offset not in self.waiting + self.running:
                self.waiting = sorted([*self.waiting, offset])
                self.last = max(self.last, offset)
        self.commit()

    def commit(self) -> None:
        """Return the offset to commit."""
        left = self.waiting + self.running
        self.committable = max(self.committable, min(left, default=self.last + 1))

    def take(self, most: int) -> list[int]:
        """Hand messages out."""
        taken, self.waiting = self.waiting[:most], self.waiting[most:]
        self.running += taken
        return taken


PUTS = st.tuples(st.just("put"), st.lists(st.integers(0, 40), max_size=6, unique=True).map(sorted))
PULLS = st.tuples(st.just("pull"), st.lists(st.integers(1, 3), min_size=1, max_size=6))
TAKES = st.tuples(st.sampled_from(["take", "take_in_order"]), st.integers(0, 5))
ENDS = st.tuples(st.sampled_from(["done", "done_all", "put_back"]),
                 st.lists(st.integers(0, 60), max_size=6, unique=True))
TAGS = st.tuples(st.just("tags"), st.integers(0, 60))


class ModelTests(SynchronousTestCase):
    """The window and the model, through the same steps."""

    @given(st.integers(0, 20), st.lists(PUTS | PULLS | TAKES | ENDS | TAGS, max_size=40))
    def test_it_does_as_the_model_does(
        self, start: int, steps: list[tuple[str, int | list[int]]]
    ) -> None:
        """For any order of steps, contents and offset to commit are equal."""
        queue, model = window(start=start), Model(start)
        committed = start
        for kind, argument in steps:
            self.step(queue, model, kind, argument)
            model.commit()
            self.assertGreaterEqual(queue.committable, committed)
            committed = queue.committable
            left = sorted(model.waiting + model.running)
            self.assertEqual(
                (queue.committable, queue.count, queue.waiting_count, queue.running_count,
                 queue.byte_count, queue.bounds, queue.running_bounds, queue.span),
                (model.committable, len(left), len(model.waiting), len(model.running),
                 sum(offset + 1 for offset in left), (left[0], left[-1]) if left else None,
                 (min(model.running), max(model.running)) if model.running else None,
                 left[-1] - left[0] if left else 0))
        while taken := queue.take(3, 0):
            self.assertEqual([message.offset for message in taken], model.take(3))

    def step(
        self, queue: QueueWindow[Read], model: Model, kind: str, argument: int | list[int]
    ) -> None:
        """Make one step in both."""
        if isinstance(argument, int):
            if kind == "tags":
                queue.correct_tags_offset(argument)
                if not model.waiting + model.running:
                    model.committable = max(model.committable, argument)
            else:
                taken = getattr(queue, kind)(argument, 0)
                may = kind == "take" or not model.running
                self.assertEqual([message.offset for message in taken],
                                 model.take(argument) if may else [])
        elif kind in ("put", "pull"):
            offsets = argument
            if kind == "pull":
                offsets = [model.last + sum(argument[:end + 1]) for end in range(len(argument))]
            queue.put([Read(offset, offset + 1) for offset in offsets])
            model.put(offsets)
        else:
            self.end(queue, model, kind, argument)

    def end(
        self, queue: QueueWindow[Read], model: Model, kind: str, offsets: list[int]
    ) -> None:
        """End messages, or put them back."""
        ended = [offset for offset in offsets if offset in model.running]
        model.running = [offset for offset in model.running if offset not in ended]
        if kind == "done":
            self.assertEqual([offset for offset in offsets if queue.done(offset)], ended)
        elif kind == "done_all":
            self.assertEqual(queue.done_all(samples(*offsets)), len(ended))
        else:
            queue.put_back(samples(*offsets))
            model.waiting = sorted(model.waiting + ended)
