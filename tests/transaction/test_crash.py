"""The process or the power fails at every change of the disk during transactions.

A producer sends half messages and ends them in every way while checks go on; the process ends at
the nth change of the disk, for each n. The next broker is left to finish what is open, with a
producer that answers every question. What is to be committed must come, what is to be rolled back
must not, and twice comes only what was committed while no op message said so yet.
"""

from __future__ import annotations

from collections import Counter

from tests.every_change import EveryChangeCase
from tests.kernel_case import run_all
from tests.transaction.case import COMMIT, ROLLBACK, TransactionTestCase
from twistmq.broker.testing.power_loss import PowerLossDisk

#: How each transaction is to end.
DECISIONS = {
    b"commit": COMMIT, b"rollback": ROLLBACK, b"late commit": COMMIT, b"commit when asked": COMMIT,
    b"rollback when asked": ROLLBACK, b"own time": COMMIT, b"own time, late": COMMIT,
    b"own time, rollback": ROLLBACK,
}


class CrashTests(EveryChangeCase, TransactionTestCase):
    """A failure at every change of the disk."""

    told = ("known",)
    settings = {"flushDiskType": "SYNC_FLUSH"}  # noqa: RUF012

    def begin(self) -> None:
        """Create a store."""
        self.disk = PowerLossDisk()
        self.box = self.start()
        self.producer = self.new_producer()
        #: What was acknowledged.
        self.known: set[bytes] = set()

    def save(self) -> None:
        """Save what a broker saves every few seconds."""
        self.box.kernel.store.flush_step(self.box.now_ms)
        self.box.kernel.persist()

    def live(self) -> None:
        """Run a broker through every course that a transaction can take."""
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
        self.box.stop()

    def finish(self) -> None:
        """Let checks go on until they ask no client any more."""
        quiet = 0
        while quiet < 6:
            asked = self.check(30_000)
            for each in asked:
                self.answer(each, DECISIONS[each.message.body])
            self.write_ends()
            self.save()
            quiet = 0 if asked else quiet + 1

    def ended_by_op(self) -> set[bytes]:
        """Return the bodies of the half messages that an op message names."""
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

    def test_the_process_ends(self) -> None:
        """The process ends; all that it wrote remains."""
        self.killed_at_every_change()

    def test_power_is_cut(self) -> None:
        """The power fails; only a part of the data that was not synced remains."""
        self.cut_at_every_change()



class ProgressTests(TransactionTestCase):
    """The group's offsets never tell of copies that are not on the disk."""

    def test_offsets_wait_for_the_log(self) -> None:
        """While the log cannot be synced, the saved offsets do not advance."""
        self.half()
        self.disk.fail_sync_in = 1
        self.assertEqual(self.asked(6000), [b"half"])
        run_all(self.box, "write ends of half messages")
        self.assertEqual(self.progress(), (-1, -1))
        self.disk.fail_sync_in = None
        self.assertGreater(len(self.flushLoggedErrors(OSError)), 0)
