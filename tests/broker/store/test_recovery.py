"""Finding out what a store holds: after a stop, after a kill, after damage."""

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.store.checkpoint import Checkpoint
from twistmq.broker.store.commit_log import CommitLog
from twistmq.broker.store.message_store import MessageStore
from twistmq.broker.store.recovery import record_of, scan_log, start_after_crash
from twistmq.broker.store.segment_files import segment_path
from twistmq.broker.testing.disk import MemoryDisk
from twistmq.broker.testing.store import StoreBox, message
from twistmq.broker.wire.record import (
    SYS_TRANSACTION_PREPARED,
    SYS_TRANSACTION_ROLLBACK,
    decode_record,
    encode_record,
)

LOG_PATH = segment_path("/store/commitlog", 0)


def overwrite(box: StoreBox, path: str, position: int, data: bytes) -> None:
    """Damage a file."""
    file = box.disk.open_file(path)
    file.write_at(position, data)
    file.close()


class CleanStartTests(SynchronousTestCase):
    """After a clean stop everything is there."""

    def setUp(self) -> None:
        """Messages of several topics, in several files of every kind."""
        self.box = StoreBox(mapped_file_size_commit_log=4000).open()
        for number in range(60):
            self.box.append(
                message(f"T{number % 3}", b"%d" % number, number % 2, keys=f"k{number} all"),
                message("T0", b"half", sys_flag=SYS_TRANSACTION_PREPARED, keys="half"),
            )

    def check(self, box: StoreBox) -> None:
        """Everything is read by queue, by key and by place."""
        for topic in range(3):
            for queue_id in range(2):
                expected = [
                    b"%d" % n for n in range(60) if n % 3 == topic and n % 2 == queue_id
                ]
                self.assertEqual(box.bodies(f"T{topic}", queue_id), expected)
        for number in range(60):
            records, _, _ = box.store.query(f"T{number % 3}", f"k{number}", 9, 0, 2**62)
            self.assertEqual([decode_record(r).body for r in records], [b"%d" % number])
        self.assertEqual(len(box.store.query("T0", "half", 99, 0, 2**62)[0]), 60)

    def test_after_a_stop(self) -> None:
        """And messages go on where they ended."""
        end = self.box.store.max_offset
        box = self.box.after_stop()
        self.assertEqual(box.store.max_offset, end)
        self.check(box)
        (record,) = box.append(message("T0"))
        self.assertEqual((record.queue_offset, record.physical_offset), (10, end))
        self.check_count(box.after_stop())

    def check_count(self, box: StoreBox) -> None:
        """One more message than before."""
        self.assertEqual(len(box.bodies("T0", 0)), 11)

    def test_after_a_stop_without_messages(self) -> None:
        """An empty store is empty again."""
        box = StoreBox().open().after_stop()
        self.assertEqual((box.store.max_offset, box.store.queues()), (0, {}))

    def test_after_a_kill(self) -> None:
        """Nothing that was acknowledged is lost, whatever was written of queues and index."""
        for steps in range(0, 40, 3):
            self.setUp()
            self.box.step(500, steps)
            self.box.append(message("T5", b"last", keys="last"))
            box = self.box.after_kill()
            self.check(box)
            self.assertEqual(box.bodies("T5"), [b"last"])
            self.assertEqual(len(box.store.query("T5", "last", 9, 0, 2**62)[0]), 1)
            box = box.after_kill()
            self.check(box)
            self.check(box.after_stop())

    def test_queues_are_made_again(self) -> None:
        """All entries are in the commit log."""
        self.successResultOf(self.box.store.stop())
        self.box.disk.remove("/store/consumequeue")
        self.check(self.box.after_kill())

    def test_everything_is_made_again(self) -> None:
        """With nothing left but the commit log and the mark of a crash."""
        self.box.store.close()
        for name in ("consumequeue", "index", "checkpoint"):
            self.box.disk.remove(f"/store/{name}")
        self.check(self.box.after_kill())

    def test_commit_log_is_gone(self) -> None:
        """Queues that point nowhere are removed, and offsets begin at 0."""
        self.successResultOf(self.box.store.stop())
        self.box.disk.remove("/store/commitlog")
        box = self.box.after_kill()
        self.assertEqual((box.store.max_offset, box.store.queues()), (0, {}))
        (record,) = box.append(message("T0"))
        self.assertEqual((record.queue_offset, record.physical_offset), (0, 0))

    def test_first_files_are_gone(self) -> None:
        """Queues begin with their first message that is still there."""
        self.successResultOf(self.box.store.stop())
        self.box.disk.remove(LOG_PATH)
        box = self.box.after_kill()
        self.assertEqual(box.store.min_offset, 4000)
        minimum = box.store.min_offset_in_queue("T0", 0)
        self.assertGreater(minimum, 0)
        place = box.store.commit_log_offset("T0", 0, minimum)
        self.assertGreaterEqual(place, 4000)
        self.assertEqual(box.bodies("T0", 0)[-1], b"54")


class DamageTests(SynchronousTestCase):
    """What is not whole ends the log and is never served."""

    def setUp(self) -> None:
        """Ten messages, then a kill."""
        self.box = StoreBox().open()
        self.records = self.box.append(*[message(body=b"%d" % n, keys="k") for n in range(10)])

    def check(self, box: StoreBox, count: int) -> StoreBox:
        """So many are left, and the log goes on behind them."""
        self.assertEqual(box.bodies(), [b"%d" % n for n in range(count)])
        self.assertEqual(box.store.max_offset, self.records[count - 1].next_offset)
        self.assertEqual(len(box.store.query("TopicTest", "k", 64, 0, 2**62)[0]), count)
        (record,) = box.append(message(body=b"new"))
        self.assertEqual(record.queue_offset, count)
        box = box.after_kill()
        self.assertEqual(box.bodies()[count:], [b"new"])
        return box

    def test_torn_at_any_byte(self) -> None:
        """A record that was written in part is not there; those before it are."""
        start, end = self.records[7].physical_offset, self.records[7].next_offset
        for position in range(start, end):
            self.setUp()
            self.box.store.close()
            self.box.disk.clear_from(LOG_PATH, position)
            self.check(self.box.after_kill(), 7)

    def test_wrong_body(self) -> None:
        """Its CRC gives it away; what is behind it does not come back later."""
        body = self.records[4].physical_offset + 88
        overwrite(self.box, LOG_PATH, body, b"X")
        box = self.box.after_kill()
        self.assertEqual(len(self.check(box, 4).after_kill().bodies()), 5)

    def test_record_of_another_place(self) -> None:
        """A whole record that was not written there ends the log."""
        stray = message(body=b"stray")
        stray.physical_offset = 1
        overwrite(self.box, LOG_PATH, self.records[9].next_offset, encode_record(stray))
        self.check(self.box.after_kill(), 10)

    def test_garbage_behind_the_end_of_a_clean_log(self) -> None:
        """It is cleared, so that it cannot follow later records."""
        self.successResultOf(self.box.store.stop())
        overwrite(self.box, LOG_PATH, self.records[9].next_offset, b"garbage")
        self.check(self.box.after_kill(), 10)

    def test_torn_first_record(self) -> None:
        """Nothing is left: queues are empty, and offsets begin anew."""
        overwrite(self.box, LOG_PATH, 4, b"\0")
        box = self.box.after_kill()
        self.assertEqual((box.bodies(), box.store.max_offset), ([], 0))

    def test_queue_points_behind_the_log(self) -> None:
        """After a clean stop too, the log decides."""
        self.successResultOf(self.box.store.stop())
        self.box.disk.clear_from(LOG_PATH, self.records[6].physical_offset)
        box = self.box._again().open()
        self.assertEqual(len(box.bodies()), 6)
        self.assertEqual(box.store.max_offset, self.records[6].physical_offset)

    @settings(max_examples=60, deadline=None)
    @given(
        st.integers(0, 9),
        st.sampled_from([(0, 12), (28, 8), (84, 5)]),
        st.binary(min_size=12, max_size=12),
        st.integers(0, 40),
    )
    def test_any_damage(
        self, number: int, field: tuple[int, int], data: bytes, steps: int
    ) -> None:
        """Size, magic, CRC, place, body: what is served was sent, in order, from the first on.

        The format has no check of a record's other fields.
        """
        self.setUp()
        self.box.step(500, steps)
        position = self.records[number].physical_offset + field[0]
        overwrite(self.box, LOG_PATH, position, data[: field[1]])
        box = self.box.after_kill()
        bodies = box.bodies()
        self.assertEqual(bodies, [b"%d" % n for n in range(10)][: len(bodies)])
        box.append(message(body=b"new"))
        self.assertEqual(box.after_kill().bodies(), [*bodies, b"new"])


class TopicMadeAgainTests(SynchronousTestCase):
    """Offsets of a topic that was deleted and made again."""

    def test_kill_afterwards(self) -> None:
        """Messages of the new topic are there, those of the old are not."""
        box = StoreBox().open()
        box.append(*[message(body=b"old%d" % n) for n in range(30)])
        box.step(1000)
        self.assertEqual(box.store.delete_topic("TopicTest"), 1)
        box.append(*[message(body=b"new%d" % n) for n in range(3)])
        self.assertEqual(len(box.bodies()), 3)
        box = box.after_kill()
        self.assertEqual(box.bodies(), [b"new0", b"new1", b"new2"])
        self.assertEqual(box.after_stop().bodies(), [b"new0", b"new1", b"new2"])


class ScanTests(SynchronousTestCase):
    """scan_log and where it starts."""

    def make_log(self, bodies: list[bytes]) -> MessageStore:
        """A store with messages."""
        self.box = StoreBox(MemoryDisk(), mapped_file_size_commit_log=3_000_000).open()
        for body in bodies:
            self.box.append(message(body=body))
        return self.box.store

    def test_crosses_files_and_large_records(self) -> None:
        """Every record is found, larger ones than a read among them."""
        bodies = [bytes([n]) * (400_000 * n) for n in range(1, 6)] * 2
        store = self.make_log(bodies)
        found = [m.body for m in scan_log(store._log, 0, store.max_offset, True)]
        self.assertEqual(found, bodies)

    def test_from_any_record(self) -> None:
        """It needs a record's beginning, not a file's."""
        store = self.make_log([b"a", b"b", b"c"])
        second = store.commit_log_offset("TopicTest", 0, 1)
        found = [m.body for m in scan_log(store._log, second, store.max_offset, True)]
        self.assertEqual(found, [b"b", b"c"])
        self.assertEqual(list(scan_log(store._log, second + 1, store.max_offset, True)), [])

    def test_record_of(self) -> None:
        """What is dispatched again is what was sent."""
        box = StoreBox().open()
        sent = message(tag="t", keys="a b", unique_key="U", queue_id=2, flag=9, reconsume_times=3)
        box.append(message(), sent)
        (_, found) = scan_log(box.store._log, 0, box.store.max_offset, True)
        again = record_of(found, None, None)
        for name in (
            "topic", "queue_id", "body", "properties", "keys", "tags_code", "flag", "sys_flag",
            "reconsume_times", "queue_offset", "physical_offset", "next_offset", "size",
            "store_timestamp", "enters_queue", "born_host", "store_host", "born_timestamp",
        ):
            self.assertEqual(getattr(again, name), getattr(sent, name), msg=name)
        self.assertFalse(record_of(found, lambda record: False, None).enters_queue)
        code = record_of(found, None, lambda topic, properties, ms: 77).tags_code
        self.assertEqual(code, 77)

    def test_half_messages_enter_no_queue(self) -> None:
        """Not when they are dispatched again, either."""
        box = StoreBox().open()
        box.append(
            message(sys_flag=SYS_TRANSACTION_PREPARED), message(sys_flag=SYS_TRANSACTION_ROLLBACK)
        )
        for found in scan_log(box.store._log, 0, box.store.max_offset, True):
            self.assertFalse(record_of(found, None, None).enters_queue)

    def test_start_after_crash(self) -> None:
        """The newest file whose first message checkpoint and index surely cover."""
        disk = MemoryDisk()
        log = CommitLog(disk, "/log", 1000)
        log.load()
        for number in range(6):
            record = message()
            record.physical_offset = number * 1000
            record.store_timestamp = (number + 1) * 10_000
            log.write([(number * 1000, encode_record(record).ljust(1000, b"\0"))])
        cases = [
            (0, 0, None, 0),
            (43_000, 60_000, None, 3000),
            (60_000, 42_999, None, 2000),
            (99_999, 99_999, None, 5000),
            (99_999, 99_999, 5100, 5000),
            (99_999, 99_999, 4100, 4000),
            (99_999, 99_999, 0, 3000),
        ]
        for physic, logics, index_end, expected in cases:
            start = start_after_crash(log, Checkpoint(physic, logics, 20_000), index_end, False)
            self.assertEqual(start, expected, msg=(physic, logics, index_end))
        self.assertEqual(start_after_crash(log, Checkpoint(99, 99, 20_000), None, True), 0)
        safe = start_after_crash(log, Checkpoint(99_999, 99_999, 20_000), None, True)
        self.assertEqual(safe, 1000)
