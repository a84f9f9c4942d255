"""Queries during restarts of brokers, topics and drivers: each fault once, and the checker.

`python -m tests.long.spark_faults` does it for an hour.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.spark_bridge import records  # noqa: F401  (skips where the extra is not installed)
from tests.spark_bridge.faults.check import Checker
from tests.spark_bridge.faults.faults import KINDS
from tests.spark_bridge.faults.harness import Plan, run
from tests.spark_bridge.faults.ledger import Ledger, Outcome, Sent
from tests.spark_bridge.faults.queries import Batch, Generation, Row, losses_of
from tests.spark_bridge.session import missing_for_spark

PLACE = ("steady", "solo", 0)
NAME = "topic steady, broker solo, queue 0"
SKIPPED = (f"{NAME}, offset 2 is not there: the queue begins at 4, and the range to read is 2 to "
           "6; 2 offsets are skipped, 2 to 3")


class LineTests(SynchronousTestCase):
    """The losses that lines of the log report."""

    def test_lines(self) -> None:
        """The three forms of a loss are recognised, and no other line."""
        for line, first, last, count in (
            (SKIPPED, 2, 3, 2),
            (f"{NAME}: the topic is gone, broker solo has no such topic, offset 7 was next; its "
             "messages from offset 7 on are skipped", 7, 1 << 62, None),
            (f"{NAME}: the queue ends at 6, offset 9 was next; 3 offsets that were read are gone, "
             "6 to 8, and it continues at 6", 9, 1 << 62, None),
            (f"{NAME}: the message before offset 5 is not the one that was read: the topic was "
             "created again or lost its end; it continues at 0, with the first message stored "
             "after that one", 5, 1 << 62, None),
        ):
            found = losses_of(line, 1.0)
            assert found is not None, line
            self.assertEqual((found.place, found.first, found.last, found.count),
                             (PLACE, first, last, count))
        for line in ("waiting for up to 120 s: topic steady: no broker is registered", "",
                     f"waiting for up to 120 s: {NAME}, offset 7: broker solo has no master"):
            self.assertIsNone(losses_of(line, 1.0))


class CheckerTests(SynchronousTestCase):
    """The checker notices each thing that it is for."""

    def setUp(self) -> None:
        self.ledger = Ledger()
        self.sent = [self.send() for _ in range(6)]
        self.rows = [self.row(sent) for sent in self.sent]

    def send(self, offset: int | None = None) -> Sent:
        """A message that was acknowledged; by itself the next one of its queue."""
        sent = self.ledger.begin(PLACE)
        self.ledger.end(sent, Outcome.ACKNOWLEDGED,
                        len(self.ledger.sent) - 1 if offset is None else offset)
        sent.begin_s = sent.end_s = 1.0
        return sent

    def row(self, sent: Sent) -> Row:
        return (*sent.place, sent.offset, sent.body)

    def checker(self, *lines: str, kept: list[Sent] | None = None) -> Checker:
        """Return a checker with the messages of the queue, the sent ones, and lines of a log."""
        warned = [found for line in lines if (found := losses_of(line, 9.0)) is not None]
        self.assertEqual(len(warned), len(lines))
        content = [(sent.offset, sent.body) for sent in (self.sent if kept is None else kept)]
        return Checker(self.ledger, {PLACE: content}, warned)

    def lose(self, kind: str, first: int, after: int) -> None:
        self.ledger.lose(kind, [PLACE], lambda sent: first <= sent.offset < after, 5.0)

    def assertProblem(self, checker: Checker, *texts: str) -> None:
        """Check that the problems are these."""
        self.assertEqual(len(checker.problems), len(texts), msg=str(checker.problems))
        for problem, text in zip(checker.problems, texts, strict=True):
            self.assertIn(text, problem)

    def test_all_is_well(self) -> None:
        """Every message occurs once, or is lost and reported."""
        checker = self.checker()
        checker.check_brokers()
        checker.check_loose(self.rows)
        checker.check_copy([(f"m{number}", row[4]) for number, row in enumerate(self.rows)] * 2)
        self.assertProblem(checker)
        self.lose("expired", 0, 4)
        checker = self.checker(SKIPPED, kept=self.sent[4:])
        checker.check_brokers()
        checker.check_warnings()
        checker.check_loose(self.rows[:2] + self.rows[4:])
        self.assertProblem(checker)
        self.assertEqual(checker.counts["loose: lost and told"], 2)

    def test_a_stream_lacks_a_row_or_has_it_twice(self) -> None:
        """Each problem has its sentence, and so has a row that was never sent, or
        sent elsewhere.
        """
        checker = self.checker()
        checker.check_loose(self.rows[1:])
        self.assertProblem(checker, "loose lacks what the broker has", "loose lacks: steady")
        checker = self.checker()
        checker.check_loose([*self.rows, self.rows[2]])
        self.assertProblem(checker, "loose has 2 times")
        for row in ((*PLACE, 6, "other"), (*PLACE, 5, self.sent[0].body)):
            checker = self.checker()
            checker.check_loose([*self.rows, row])
            self.assertIn("was not sent so", checker.problems[-1])

    def test_a_loss_that_is_not_told(self) -> None:
        """A stream and a batch are tested; a line about other offsets does not help."""
        self.lose("expired", 2, 5)
        checker = self.checker(SKIPPED, kept=self.sent[5:])
        checker.check_loose(self.rows[:2] + self.rows[5:])
        self.assertProblem(checker, "does not say that it lacks: steady/solo/0/5")
        for fails in (True, False):
            checker = self.checker(kept=self.sent[5:])
            checker.check_batch(Batch(0, {PLACE: (4, 6)}, fails, 4.0, 6.0, self.rows[5:]))
            self.assertProblem(checker, "batch 0 does not say that it lacks: steady/solo/0/5")

    def test_a_loss_that_did_not_happen(self) -> None:
        """A count that differs from the offsets is a problem as well."""
        checker = self.checker(SKIPPED.replace("2 offsets", "3 offsets"))
        checker.check_warnings()
        self.assertProblem(checker, "a wrong count", "that did not happen")

    def test_a_broker_loses_what_it_acknowledged(self) -> None:
        """Its sentence differs from that for a query that lacks a message."""
        checker = self.checker(kept=self.sent[1:])
        checker.check_brokers()
        self.assertProblem(checker, "the broker has lost: steady/solo/0/1")

    def test_a_topic_that_was_made_again(self) -> None:
        """Unread messages of its first life must be reported."""
        self.lose("deleted", 0, 9)
        self.ledger.new_life([PLACE])
        again = [self.send(offset) for offset in range(3)]
        rows = [*self.rows[:4], *map(self.row, again)]
        checker = self.checker(kept=again)
        checker.check_loose(rows)
        self.assertProblem(checker, *["does not say that it lacks"] * 2)
        checker = self.checker(f"{NAME}: the topic is gone, offset 4 was next; it is skipped",
                               kept=again)
        checker.check_loose(rows)
        self.assertProblem(checker)
        generation = Generation("strict", 0, Path(), 0.0)
        checker.check_strict([generation], {0: rows})
        self.assertProblem(checker, *["strict 0 passed over"] * 2)

    def test_messages_at_offsets_that_were_read_before(self) -> None:
        """They are not noticed if they expire before any message of their life is read."""
        def send(offset: int, time_s: float) -> Sent:
            sent = self.send(offset)
            sent.begin_s = sent.end_s = time_s
            return sent

        self.ledger.lose("tail", [PLACE], lambda sent: sent.offset >= 4, 5.0)
        self.ledger.new_life([PLACE])
        expired = [send(4, 6.0), send(5, 7.0)]
        self.ledger.lose("expired", [PLACE], lambda sent: sent in expired, 8.0)
        later = send(6, 9.0)
        checker = self.checker(kept=[later])
        checker.check_loose([*self.rows, self.row(later)])
        self.assertProblem(checker)
        self.assertEqual(checker.counts["loose: lost before it was known"], 2)
        # A sink that has read one of them knows the life, so it must tell of the other.
        checker = self.checker(kept=[later])
        checker.check_loose([*self.rows, self.row(expired[0]), self.row(later)])
        self.assertProblem(checker, "does not say that it lacks: steady/solo/0/8")

    def test_strict_ends_without_a_loss_or_passes_over_a_row(self) -> None:
        """The stream may end only for a loss in its own topic and time."""
        generation = Generation("strict", 0, Path(), 40.0, f"DataLoss: {NAME}: gone", 50.0)
        checker = self.checker()
        checker.check_strict([generation], {0: [*self.rows[:2], *self.rows[3:]]})
        self.assertProblem(checker, "strict 0 passed over: steady/solo/0/3",
                           "strict 0 ended without a loss")
        self.lose("expired", 0, 1)
        self.ledger.losses[0] = type(self.ledger.losses[0])(PLACE, "expired", 45.0)
        checker = self.checker()
        checker.check_strict([generation], {0: self.rows})
        self.assertProblem(checker)

    def test_marks(self) -> None:
        """One mark on two rows, and two marks on one row, are problems."""
        checker = self.checker()
        checker.check_copy([("m", row[4]) for row in self.rows])
        self.assertProblem(checker, "a mark on different rows: m")
        checker = self.checker()
        checker.check_copy([(row[4], row[4]) for row in self.rows] + [("m", self.rows[0][4])])
        self.assertProblem(checker, "a row with different marks: steady/solo/0/1")

    def test_batches(self) -> None:
        """A batch lacks a row, has another one, or fails without a loss."""
        checker = self.checker()
        for rows in (self.rows[1:3], self.rows[:4]):
            checker.check_batch(Batch(0, {PLACE: (0, 3)}, True, 4.0, 6.0, rows))
        checker.check_batch(Batch(0, {PLACE: (0, 3)}, True, 4.0, 6.0, None, "StillAway"))
        self.assertProblem(checker, "batch 0 lacks: steady/solo/0/1",
                           "batch 0 has a row outside its range: steady/solo/0/4",
                           "batch 0 failed: StillAway")


class RunTests(SynchronousTestCase):
    """The harness itself."""

    def test_each_fault_once(self) -> None:
        """No message is lost or duplicated without a report."""
        missing_for_spark()
        folder = tempfile.TemporaryDirectory(prefix="twistmq-faults-")
        self.addCleanup(folder.cleanup)
        # A driver is killed for what expires.
        kinds = tuple(kind for kind in KINDS if kind != "driver")
        verdict = run(Plan(Path(folder.name), sys.executable, None, 1, kinds, rate=10.0,
                           trigger_s=1.0, pause_s=(0.2, 0.5), away_s=(0.5, 1.5), check_s=1.0,
                           batch_s=2.0, end_s=200.0))
        self.assertEqual(verdict.problems, [], msg=str(verdict))
        self.assertEqual(set(verdict.faults), set(KINDS))
        self.assertGreater(verdict.counts["batches that were read"], 0, msg=str(verdict))
        self.assertGreater(verdict.counts["loose: lost and told"], 0, msg=str(verdict))
