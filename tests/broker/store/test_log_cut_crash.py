"""The process or the power fails at every change of the disk during a cut of the log."""

from __future__ import annotations

import random

from tests.every_change import EveryChangeCase
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.power_loss import PowerLossDisk
from twistmq.broker.testing.store import message
from twistmq.protocol.record import MessageRecord, decode_record


class EveryChangeTests(EveryChangeCase):
    """A failure at every change of the disk during a cut."""

    told = ("before", "after", "is_cut")

    def begin(self) -> None:
        """Create a broker whose log has three files, of which the first ones are flushed."""
        self.disk = PowerLossDisk()
        self.box = self.open()
        self.before: list[MessageRecord] = []
        self.after: list[MessageRecord] = []
        self.is_cut = False
        self.append(self.before, 14, "m")
        self.steps(70_000)

    def open(self) -> KernelBox:
        return KernelBox((), {"flushDiskType": "SYNC_FLUSH", "mappedFileSizeCommitLog": "2048",
                              "maxIndexNum": "12"}, self.disk)

    def append(self, to: list[MessageRecord], count: int, text: str) -> None:
        store = self.box.kernel.store
        for number in range(count):
            self.box.now_ms += 1000
            record = message("T", f"{text}{number}".encode() * 50, keys=f"{text}{number} all")
            store.append([record])
            flushed = store.flush.flushed(record.next_offset)
            if flushed is not None:
                self.successResultOf(flushed)
            to.append(record)

    def steps(self, elapsed_ms: int) -> None:
        self.box.now_ms += elapsed_ms
        for _ in range(40):
            self.box.kernel.store.flush_step(self.box.now_ms)

    def live(self) -> None:
        """Cut in the middle of the second file, and append other messages there."""
        self.successResultOf(
            self.box.kernel.store.log_cut.truncate(self.before[8].physical_offset))
        self.is_cut = True
        self.append(self.after, 4, "n")
        self.steps(70_000)
        self.append(self.after, 7, "o")
        self.steps(70_000)

    def look(self, end: str) -> int:
        """Check that log, queue and index have everything that was kept and acknowledged."""
        if end != "no end":
            self.box = self.open()
        kept = self.bodies()
        wanted = [r.body for r in self.before]
        if self.is_cut:
            wanted = [*wanted[:8], *[r.body for r in self.after]]
            self.assertEqual(kept[:len(wanted)], wanted, end)
        else:
            self.assertGreaterEqual(len(kept), 8, end)
            self.assertEqual(kept, wanted[:len(kept)], end)
        more: list[MessageRecord] = []
        self.append(more, 7, "p")
        kept += [r.body for r in more]
        self.assertEqual(self.bodies(), kept, end)
        for key in {f"{text}{number}" for text in "mnop" for number in range(14)}:
            has = [body for body in kept if body.startswith(key.encode() * 2)]
            self.assertEqual(self.found(key), has, (end, key))
        self.assertEqual(sorted(self.found("all")), sorted(kept), end)
        return int(not self.is_cut and len(kept) < len(self.before) + len(more))

    def bodies(self) -> list[bytes]:
        """Return the bodies in the queue."""
        store = self.box.kernel.store
        return [decode_record(record).body
                for offset in range(store.queues.max_offset("T", 0))
                for record in store.get_message("T", 0, offset, 1).messages]

    def found(self, key: str) -> list[bytes]:
        """Return the bodies that a key finds."""
        return [decode_record(record).body
                for record in self.box.kernel.store.reader.query("T", key, 64, 0, 2**62)[0]]

    def test_a_kill(self) -> None:
        """The process is killed at each change."""
        self.killed_at_every_change()

    def test_a_loss_of_power(self) -> None:
        """The power fails at each change."""
        self.cut_at_every_change()


class UndispatchedTests(EveryChangeTests):
    """The same if only the log has to be cut, because replicas did not confirm its end."""

    def append(self, to: list[MessageRecord], count: int, text: str) -> None:
        """Append messages; of the first ones, eight are confirmed, and all of the others."""
        dispatch = self.box.kernel.store.dispatch
        if not to and to is self.before:
            super().append(to, 8, text)
            dispatch.advance_confirm_offset(to[-1].next_offset)
            count -= 8
        super().append(to, count, text)
        if to is not self.before:
            dispatch.advance_confirm_offset(to[-1].next_offset)

    def live(self) -> None:
        self.successResultOf(
            self.box.kernel.store.log_cut.cut_undispatched(self.before[8].physical_offset))
        self.is_cut = True
        self.append(self.after, 4, "n")
        self.steps(70_000)
        self.append(self.after, 7, "o")
        self.steps(70_000)



class RemovedIndexFileTests(EveryChangeTests):
    """A deleted index file may reappear after a loss of power."""

    def live(self) -> None:
        """Cut, and append what fits into the last remaining index file."""
        self.steps(70_000)
        index = self.box.kernel.store.index
        assert index is not None
        self.assertEqual((len(index.files), index.is_flushed), (3, True))
        self.successResultOf(
            self.box.kernel.store.log_cut.truncate(self.before[8].physical_offset))
        self.is_cut = True
        for text in "no":
            self.append(self.after, 1, text)
            self.steps(70_000)

    def test_a_loss_of_power(self) -> None:
        """It does not reappear once the checkpoint says that the index is durable."""
        self.begin()
        self.live()
        disk, after = self.disk, self.after
        for seed in range(40):
            self.disk, self.after = disk.copy(), list(after)
            self.disk.crash(random.Random(seed))
            self.look(f"seed {seed}")
            self.box.stop()

    def test_a_kill(self) -> None:
        self.begin()
        self.live()
        self.disk = self.disk.copy()
        self.disk.kill()
        self.look("a kill")
