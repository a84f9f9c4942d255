"""The parts of a simulated world: its time, its links, its disks and its invariants."""

from __future__ import annotations

import random

from twisted.trial.unittest import SynchronousTestCase

from tests.raft.simulation.disk import Disk, DiskLog
from tests.raft.simulation.world import InvariantBroken, Links, World
from twistmq.raft.hard_state import HardState
from twistmq.raft.log import LogError, LogRejected
from twistmq.raft.messages import Entry


def log_of(disk: Disk, cuts: list[int] | None = None) -> DiskLog:
    """A log on a disk, which notes its cuts."""
    return DiskLog(disk, lambda entry, previous: None, ([] if cuts is None else cuts).append)


class WorldTests(SynchronousTestCase):
    """``World`` and ``Links``."""

    def test_events_happen_in_the_order_of_their_times(self) -> None:
        """Events of one moment happen in the order in which they were requested."""
        world, done = World(1), []
        for delay, name in ((5, "c"), (0, "a"), (0, "b"), (9, "d")):
            world.call_later(delay, lambda name=name: done.append((world.now_ms, name)))
        world.run_until(7)
        self.assertEqual((done, world.now_ms), ([(0, "a"), (0, "b"), (5, "c")], 7))

    def test_a_loop_at_one_moment_is_found(self) -> None:
        """An event that causes itself without a delay breaks an invariant."""
        world = World(1)

        def again() -> None:
            world.call_later(0, again)
        again()
        error = self.assertRaises(InvariantBroken, world.run_until, 1)
        self.assertEqual(error.rule, "I17")

    def carried(self, links: Links, world: World, count: int = 200) -> list[int]:
        """Carry numbers from "a" to "b" and return them as they arrive."""
        arrived: list[int] = []
        for number in range(count):
            links.carry("a", "b", arrived.append, number)
        world.run_until(world.now_ms + 10_000)
        return arrived

    def test_links_lose_double_delay_and_cut(self) -> None:
        """Each fault does what it says, and a repair ends all of them."""
        world = World(1)
        links = Links(world)
        links.delay_ms_max = 0
        self.assertEqual(self.carried(links, world), list(range(200)))
        links.delay_ms_max = 50
        reordered = self.carried(links, world)
        self.assertNotEqual(reordered, list(range(200)))
        self.assertEqual(sorted(reordered), list(range(200)))
        links.loss = 0.3
        self.assertTrue(100 < len(self.carried(links, world)) < 200)
        links.loss, links.copies = 0.0, 0.3
        self.assertTrue(200 < len(self.carried(links, world)) < 300)
        links.cuts.add(("a", "b"))
        self.assertEqual(self.carried(links, world), [])
        links.repair()
        self.assertEqual(len(self.carried(links, world)), 200)

    def test_a_cut_is_of_one_direction(self) -> None:
        """The other direction still carries messages, and the sender knows of a loss."""
        world, arrived = World(1), []
        links = Links(world)
        links.cuts.add(("b", "a"))
        self.assertFalse(links.carry("b", "a", arrived.append, 1))
        self.assertEqual(self.carried(links, world, 1), [0])

    def test_a_slow_link_delays(self) -> None:
        """The delay of a slow link is added."""
        world, times = World(1), []
        links = Links(world)
        links.slow_ms["a", "b"] = 4000
        links.carry("a", "b", lambda: times.append(world.now_ms))
        world.run_until(10_000)
        self.assertTrue(4000 <= times[0] <= 4004, msg=times)


class DiskTests(SynchronousTestCase):
    """``Disk`` and ``DiskLog``."""

    def test_a_loss_of_power_keeps_what_was_synced(self) -> None:
        """A power failure may lose the last writes since the last sync."""
        ends = set()
        for seed in range(50):
            disk = Disk()
            log = log_of(disk)
            log.extend(1, [b"a", b"b"])
            number = disk.begin_sync()
            log.extend(1, [b"c"])
            disk.end_sync(number)
            log.extend(1, [b"d"])
            disk.lose_power(random.Random(seed))
            ends.add(b"".join(entry.body for entry in disk.entries))
        self.assertEqual(ends, {b"ab", b"abc", b"abcd"})

    def test_a_cut_that_was_not_synced_may_come_back(self) -> None:
        """The old end is one of the states since the last sync."""
        ends = set()
        for seed in range(50):
            disk, cuts = Disk(), []
            log = log_of(disk, cuts)
            log.extend(1, [b"a", b"b"])
            disk.sync_all()
            log.truncate(0)
            log.extend(2, [b"c"])
            self.assertEqual(cuts, [0])
            disk.lose_power(random.Random(seed))
            ends.add(b"".join(entry.body for entry in disk.entries))
        self.assertEqual(ends, {b"ab", b"a", b"ac"})

    def test_a_kill_loses_no_entry(self) -> None:
        """What was written is there."""
        disk = Disk()
        log_of(disk).extend(1, [b"a"])
        disk.kill(random.Random(1))
        self.assertEqual(len(disk.entries), 1)

    def test_a_hard_state_under_way_may_be_there_and_a_saved_one_is(self) -> None:
        """After a crash the disk has the last durable state or a later one."""
        terms = set()
        for seed in range(50):
            disk = Disk()
            for number in (1, 2, 3, 4):
                disk.begin_save(number, HardState(number))
            disk.end_save(2)
            disk.lose_power(random.Random(seed))
            assert disk.hard_state is not None
            terms.add(disk.hard_state.term)
        self.assertEqual(terms, {2, 3, 4})

    def test_a_wiped_disk_is_empty(self) -> None:
        """Neither entries nor a hard state are left."""
        disk = Disk()
        log_of(disk).extend(1, [b"a"])
        disk.begin_save(1, HardState(1))
        disk.end_save(1)
        disk.wipe()
        self.assertEqual((disk.entries, disk.synced, disk.hard_state, disk.committed_index),
                         ([], [], None, -1))

    def test_a_failing_disk_takes_nothing(self) -> None:
        """Each change of the log raises LogError."""
        disk = Disk()
        log = log_of(disk)
        log.extend(1, [b"a"])
        disk.is_failing = True
        entry = log.entry_at(0)
        for change in (lambda: log.extend(1, [b"b"]), lambda: log.append([Entry(1, 1, b"", 49)]),
                       lambda: log.truncate(-1), lambda: log.restart(entry)):
            self.assertRaises(LogError, change)
        self.assertEqual(disk.entries, [entry])

    def test_positions_are_those_of_the_bytes_before(self) -> None:
        """An entry with another position is rejected; a log may begin anywhere."""
        disk = Disk()
        log = log_of(disk)
        log.restart(Entry(7, 2, b"abc", 4096))
        self.assertRaises(LogRejected, log.append, [Entry(8, 2, b"", 4096)])
        log.append([Entry(8, 2, b"x", 4096 + 51), Entry(9, 3, b"", 4096 + 100)])
        log.extend(3, [b"y"])
        self.assertEqual([(entry.index, entry.position) for entry in disk.entries],
                         [(7, 4096), (8, 4147), (9, 4196), (10, 4244)])
        log.drop_before(9)
        self.assertEqual((log.begin_index, log.end_index, log.term_at(9)), (9, 10, 3))
        self.assertEqual([entry.index for entry in log.read(9, 0)], [9])
        self.assertEqual([entry.index for entry in log.read(9, 1)], [9, 10])
