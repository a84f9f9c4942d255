"""Transactions over the end of the process, or of the power, at every change of the disk.

A producer sends half messages and ends them in every way while checks go on; the process ends at
the nth change of the disk, for each n. The next broker is left to finish what is open, with a
producer that answers every question. What is to be committed must come, what is to be rolled back
must not, and twice comes only what was committed while no op message said so yet.
"""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Callable

from twisted.internet.defer import ensureDeferred

from tests.transaction.case import COMMIT, ROLLBACK, TransactionTestCase, run_task
from twistmq.broker.errors import StoreError
from twistmq.broker.testing.power_loss import PowerCut, PowerLossDisk

#: How each transaction is to end.
DECISIONS = {
    b"commit": COMMIT, b"rollback": ROLLBACK, b"late commit": COMMIT, b"commit when asked": COMMIT,
    b"rollback when asked": ROLLBACK, b"own time": COMMIT, b"own time, late": COMMIT,
    b"own time, rollback": ROLLBACK,
}
#: More changes of the disk than there are.
MANY = 1_000_000


class CrashTests(TransactionTestCase):
    """The end comes at every change of the disk."""

    disk: PowerLossDisk  # type: ignore[assignment]
    settings = {"flushDiskType": "SYNC_FLUSH"}  # noqa: RUF012

    def setUp(self) -> None:
        self.addCleanup(lambda: self.box.stop())

    def begin(self) -> None:
        """A new store."""
        self.disk = PowerLossDisk()
        self.box = self.start()
        self.producer = self.new_producer()
        #: What was acknowledged.
        self.known: set[bytes] = set()

    def save(self) -> None:
        """What the broker does every few seconds."""
        self.box.kernel.store.flush_step(self.box.now_ms)
        self.box.kernel.persist()

    def live(self) -> None:
        """The life of a broker, with every way that a transaction takes."""
        halves = {}
        for body in DECISIONS:
            own = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "100"} if body.startswith(b"own") else {}
            halves[body] = self.half(body, **own)
            self.known.add(body)
        for body in (b"commit", b"rollback", b"own time"):
            self.must_end(halves[body], DECISIONS[body])
        self.save()
        self.write_ends()
        asked = {each.message.body: each for each in self.check(6000)}
        self.save()
        self.must_end(halves[b"late commit"], COMMIT)
        self.must_end(halves[b"own time, late"], COMMIT)
        self.must_end(halves[b"own time, rollback"], ROLLBACK)
        self.save()
        self.answer(asked[b"commit when asked"], COMMIT)
        self.write_ends()
        for each in self.check(30_000):
            if each.message.body == b"rollback when asked":
                self.answer(each, ROLLBACK)
        self.save()
        self.check(30_000)
        self.save()
        # A stop that the end comes in does not end.
        ensureDeferred(self.box.kernel.stop()).addErrback(
            lambda failure: failure.trap(PowerCut, StoreError))

    def finish(self) -> None:
        """Let checks go on until nobody is asked any more."""
        quiet = 0
        while quiet < 6:
            asked = self.check(30_000)
            for each in asked:
                self.answer(each, DECISIONS[each.message.body])
            self.write_ends()
            self.save()
            quiet = 0 if asked else quiet + 1

    def ended_by_op(self) -> set[bytes]:
        """The bodies whose end an op message tells."""
        bodies = {each.queue_offset: each.body for each in self.halves()}
        return {bodies[int(text)] for op in self.ops() for text in op.body.split(b",") if text}

    def look(self, message: str) -> int:
        """Open the store again, finish, compare; :returns: how many messages came twice."""
        self.box = self.start()
        self.producer = self.new_producer()
        before, told = Counter(self.bodies()), self.ended_by_op()
        self.finish()
        after = Counter(self.bodies())
        for body, decision in DECISIONS.items():
            most = 1 + (body in before and body not in told)
            least = 1 if body in self.known else 0
            if decision == ROLLBACK:
                least = most = 0
            self.assertTrue(least <= after[body] <= most,
                            msg=f"{message}: {body!r} came {after[body]} times, {before[body]} "
                                f"before the end; {least} to {most} are allowed")
        self.assertEqual(self.given_up(), [], msg=message)
        return sum((after - Counter(DECISIONS.keys())).values())

    def changes(self) -> int:
        """How many changes of the disk a life takes."""
        self.begin()
        self.disk.cut_in = MANY
        self.live()
        changes = MANY - self.disk.cut_in
        self.disk.cut_in = None
        self.assertEqual(self.look("no end"), 0)
        self.box.stop()
        return changes

    def end_at_every_change(self, end: Callable[[int], None]) -> None:
        changes = self.changes()
        self.assertGreater(changes, 60)
        twice = ends = 0
        for number in range(1, changes):
            self.begin()
            self.disk.cut_in = number
            try:
                self.live()
            except (PowerCut, self.failureException):
                # A sync that does not return may be seen as one that failed.
                self.assertTrue(self.disk.is_cut)
            ends += self.disk.is_cut
            # What waited for a sync is told that it failed, when it is collected at the latest.
            gc.collect()
            self.flushLoggedErrors(PowerCut, StoreError)
            end(number)
            twice += self.look(f"change {number}")
            self.box.stop()
        self.assertEqual(ends, changes - 1)
        # Some ends come between a commit and its op message.
        self.assertGreater(twice, 0)

    def test_killed(self) -> None:
        """The process ends; all that it wrote is there."""
        self.end_at_every_change(lambda number: self.disk.kill())

    def test_power_is_cut(self) -> None:
        """The power ends; what was not synced is there in part."""
        self.end_at_every_change(
            lambda number: self.disk.crash(random.Random(number)))


class ProgressTests(TransactionTestCase):
    """The group's offsets never tell of copies that are not on the disk."""

    def test_offsets_wait_for_the_log(self) -> None:
        """As long as the log cannot be synced, the offsets stay, however often they are saved."""
        self.half()
        self.disk.fail_sync_in = 1
        self.assertEqual(self.asked(6000), [b"half"])
        run_task(self.box, "write ends of half messages")
        self.assertEqual(self.progress(), (-1, -1))
        self.disk.fail_sync_in = None
        self.assertGreater(len(self.flushLoggedErrors(OSError)), 0)
