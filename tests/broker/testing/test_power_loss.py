"""The disk that loses data: the losses that are possible, and those that are not."""

import random

from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from twistmq.broker.errors import StoreFull
from twistmq.broker.store.interfaces import IStoreFile, IStoreIO
from twistmq.broker.testing.power_loss import PowerCut, PowerLossDisk
from twistmq.protocol.errors import StoreError

SEEDS = range(200)
SIZE = 2048


class PowerLossDiskTests(SynchronousTestCase):
    """The class PowerLossDisk."""

    def setUp(self) -> None:
        """Create a durable directory."""
        self.disk = PowerLossDisk()
        self.disk.make_directory("/d")
        self.disk.sync_path("/")

    def crash(self, seed: int) -> None:
        self.disk.crash(random.Random(seed))

    def synced(self) -> PowerLossDisk:
        """Return a disk with a durable file of ones."""
        self.setUp()
        file = self.disk.allocate("/d/f", SIZE)
        file.write_at(0, b"1" * SIZE)
        file.sync()
        self.disk.sync_path("/d")
        return self.disk

    def test_the_disk_provides_the_interface(self) -> None:
        """It has the interface of the other disks."""
        verifyObject(IStoreIO, self.disk)
        verifyObject(IStoreFile, self.disk.allocate("/d/f", 10))

    def test_synced_bytes_stay(self) -> None:
        """This is so whatever is written elsewhere; overwritten ones are kept by sectors."""
        states = set()
        for seed in SEEDS:
            file = self.synced().open_file("/d/f")
            file.write_at(1000, b"2" * 600)
            self.crash(seed)
            data = self.disk.read_file("/d/f")
            self.assertEqual((data[:1000], data[1600:]), (b"1" * 1000, b"1" * 448))
            for begin, end in ((1000, 1024), (1024, 1536), (1536, 1600)):
                self.assertEqual(len(set(data[begin:end])), 1, "sectors are whole")
            states.add(data)
        self.assertEqual(len(states), 8, "each sector is kept or not")

    def test_torn_at_any_byte(self) -> None:
        """A new part of a file may be torn; nothing remains after the torn sector."""
        ends = set()
        for seed in SEEDS:
            self.setUp()
            file = self.disk.allocate("/d/f", SIZE)
            file.sync()
            self.disk.sync_path("/d")
            file.write_at(0, b"2" * SIZE)
            self.crash(seed)
            data = self.disk.read_file("/d/f")
            end = len(data.rstrip(b"\0"))
            if end % 512:
                ends.add(end)
                self.assertFalse(any(data[end:]))
        self.assertGreater(len(ends), 20)

    def test_each_state_of_a_sector(self) -> None:
        """A sector that was written twice may have its intermediate state."""
        states = set()
        for seed in SEEDS:
            file = self.synced().open_file("/d/f")
            file.write_at(0, b"2")
            file.write_at(0, b"3")
            self.crash(seed)
            states.add(self.disk.read_file("/d/f")[:1])
        self.assertEqual(states, {b"1", b"2", b"3"})

    def test_length_of_a_file_that_was_never_synced(self) -> None:
        """The file may be empty."""
        sizes = set()
        for seed in SEEDS:
            self.setUp()
            self.disk.allocate("/d/f", SIZE)
            self.disk.sync_path("/d")
            self.crash(seed)
            sizes.add(self.disk.file_size("/d/f"))
        self.assertEqual(sizes, {0, SIZE})

    def test_new_names_are_lost_until_their_directory_is_synced(self) -> None:
        """From some change on they are lost, until the directory is synced."""
        states = set()
        for seed in SEEDS:
            self.synced()
            self.disk.allocate("/d/g", 10)
            self.disk.remove("/d/f")
            self.disk.allocate("/d/h", 10)
            self.crash(seed)
            states.add(tuple(self.disk.list_directory("/d")))
        self.assertEqual(states, {("f",), ("f", "g"), ("g",), ("g", "h")})

    def test_a_file_is_gone_with_the_directory_it_is_in(self) -> None:
        """A file is lost with its directory, whether or not it is durable itself."""
        lost = False
        for seed in SEEDS:
            self.setUp()
            self.disk.make_directory("/d/e")
            file = self.disk.allocate("/d/e/f", 10)
            file.sync()
            self.disk.sync_path("/d/e")
            self.crash(seed)
            self.assertEqual(self.disk.exists("/d/e"), self.disk.exists("/d/e/f"))
            lost |= not self.disk.exists("/d/e")
        self.assertTrue(lost)

    def test_replaced_atomically(self) -> None:
        """The old or the new file is whole; after the return it is the new one."""
        for cut in range(1, 6):
            for seed in SEEDS[:20]:
                self.setUp()
                self.disk.write_file_atomically("/d/f", b"old")
                self.disk.cut_in = cut
                done = False
                try:
                    self.disk.write_file_atomically("/d/f", b"new", keep_backup=True)
                    done = True
                except PowerCut:
                    pass
                self.crash(seed)
                data = self.disk.read_file("/d/f")
                self.assertIn(data, [b"new"] if done else [b"old", b"new"])

    def test_a_failed_sync_is_believed(self) -> None:
        """Data of a failed sync may be lost although a later sync succeeds."""
        states = set()
        for seed in SEEDS:
            file = self.synced().open_file("/d/f")
            file.write_at(0, b"2" * 512)
            self.disk.fail_sync_in = 1
            self.assertRaises(OSError, file.sync)
            self.assertTrue(self.disk.has_dropped)
            self.disk.fail_sync_in = None
            file.sync()
            self.crash(seed)
            states.add(self.disk.read_file("/d/f")[:1])
        self.assertEqual(states, {b"1", b"2"})

    def test_rewritten_after_a_failed_sync(self) -> None:
        """The next sync then covers it, and nothing of it is lost."""
        for seed in SEEDS:
            file = self.synced().open_file("/d/f")
            file.write_at(0, b"2" * 512)
            self.disk.fail_sync_of = "/d/"
            self.disk.sync_path("/d")
            self.assertRaises(OSError, file.sync)
            self.disk.rewrite("/d/f")
            file.sync()
            self.assertFalse(self.disk.has_dropped)
            self.crash(seed)
            self.assertEqual(self.disk.read_file("/d/f")[:512], b"2" * 512)

    def test_a_kill_keeps_all_writes_and_frees_locks(self) -> None:
        """All written data remains, and locks are free."""
        file = self.disk.allocate("/d/f", 10)
        file.write_at(0, b"abc")
        self.disk.lock("/d/lock")
        self.assertRaises(StoreError, self.disk.lock, "/d/lock")
        self.disk.kill()
        self.disk.lock("/d/lock")
        self.assertEqual(self.disk.read_file("/d/f"), b"abc" + bytes(7))

    def test_the_nth_change_and_all_later_ones_raise(self) -> None:
        """The nth change and all later ones raise; reads continue."""
        file = self.disk.allocate("/d/f", 10)
        self.disk.cut_in = 3
        file.write_at(0, b"a")
        file.sync()
        self.assertFalse(self.disk.is_cut)
        self.assertRaises(PowerCut, file.write_at, 1, b"b")
        self.assertRaises(PowerCut, self.disk.remove, "/d/f")
        self.assertTrue(self.disk.is_cut)
        self.assertEqual(file.read_at(0, 2), b"a\0")

    def test_a_copy_keeps_what_was_not_synced_and_shares_nothing(self) -> None:
        """A copy ends as its original would, which continues."""
        left = set()
        for seed in SEEDS:
            file = self.synced().open_file("/d/f")
            file.write_at(0, b"2" * 512)
            twin = self.disk.copy()
            file.sync()
            twin.crash(random.Random(seed))
            left.add(twin.read_file("/d/f")[:1])
            self.crash(seed)
            self.assertEqual(self.disk.read_file("/d/f")[:512], b"2" * 512)
        self.assertEqual(left, {b"1", b"2"})

    def test_each_change_and_sync_is_told_before_it_is_done(self) -> None:
        """The hook sees the disk before the change."""
        seen: list[bytes] = []
        file = self.disk.allocate("/d/f", 1)
        self.disk.before_change = lambda: seen.append(self.disk.read_file("/d/f"))
        file.write_at(0, b"a")
        file.sync()
        self.disk.clear_from("/d/f", 0)
        self.disk.remove("/d/f")
        self.assertEqual(seen, [bytes(1), b"a", b"a", bytes(1)])

    def test_a_full_disk_writes_what_fits_and_keeps_its_room(self) -> None:
        """Data that fits is written; data that was written before keeps its room."""
        file = self.disk.allocate("/d/f", 10)
        file.write_at(0, b"abc")
        self.disk.room_bytes = 2
        self.assertRaises(StoreFull, file.write_at, 1, b"BCDEF")
        self.assertEqual(file.read_at(0, 10), b"aBCDE" + bytes(5))
        file.write_at(0, b"ABC")
