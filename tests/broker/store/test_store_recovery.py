"""The recovery of a whole store after a stop, a kill, or damage."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.logger import LogEvent, Logger, LogLevel, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests.draw import examples
from twistmq.broker.store import store_recovery
from twistmq.broker.store.segment_files import segment_path
from twistmq.broker.store.store_recovery import StoreRecovery
from twistmq.broker.testing.disk import MemoryFile
from twistmq.broker.testing.store import StoreBox, inner_batch, message
from twistmq.protocol.errors import StoreDamaged
from twistmq.protocol.record import SYS_TRANSACTION_PREPARED, decode_record, encode_record

LOG_PATH = segment_path("/store/commitlog", 0)


def overwrite(box: StoreBox, path: str, position: int, data: bytes) -> None:
    """Damage a file."""
    file = box.disk.open_file(path)
    file.write_at(position, data)
    file.close()


class CleanStartTests(SynchronousTestCase):
    """After a clean stop everything is present."""

    def setUp(self) -> None:
        """Messages of several topics, in several files of every kind."""
        self.box = StoreBox(mapped_file_size_commit_log=4000).open()
        for number in range(60):
            self.box.append(
                message(f"T{number % 3}", b"%d" % number, number % 2, keys=f"k{number} all"),
                message("T0", b"half", sys_flag=SYS_TRANSACTION_PREPARED, keys="half"),
            )

    def check(self, box: StoreBox) -> None:
        """Check that everything is read by queue, key and position."""
        for topic in range(3):
            for queue_id in range(2):
                expected = [
                    b"%d" % n for n in range(60) if n % 3 == topic and n % 2 == queue_id
                ]
                self.assertEqual(box.bodies(f"T{topic}", queue_id), expected)
        for number in range(60):
            records, _, _ = box.store.reader.query(f"T{number % 3}", f"k{number}", 9, 0, 2**62)
            self.assertEqual([decode_record(r).body for r in records], [b"%d" % number])
        self.assertEqual(len(box.store.reader.query("T0", "half", 99, 0, 2**62)[0]), 60)

    def test_after_a_stop(self) -> None:
        """New messages follow the old ones."""
        end = self.box.store.commit_log.max_offset
        box = self.box.after_stop()
        self.assertEqual(box.store.commit_log.max_offset, end)
        self.check(box)
        (record,) = box.append(message("T0"))
        self.assertEqual((record.queue_offset, record.physical_offset), (10, end))
        self.check_count(box.after_stop())

    def check_count(self, box: StoreBox) -> None:
        """Check that there is one more message than before."""
        self.assertEqual(len(box.bodies("T0", 0)), 11)

    def test_after_a_stop_without_messages(self) -> None:
        """An empty store is empty again."""
        box = StoreBox().open().after_stop()
        self.assertEqual(
            (box.store.commit_log.max_offset, box.store.queues.ids_by_topic()), (0, {}))

    def test_after_a_kill(self) -> None:
        """No acknowledged message is lost, whatever was written of queues and index."""
        for steps in range(0, 40, 3):
            self.setUp()
            self.box.step(4000, steps)
            self.box.append(message("T5", b"last", keys="last"))
            box = self.box.after_kill()
            self.check(box)
            self.assertEqual(box.bodies("T5"), [b"last"])
            self.assertEqual(len(box.store.reader.query("T5", "last", 9, 0, 2**62)[0]), 1)
            box = box.after_kill()
            self.check(box)
            self.check(box.after_stop())

    def test_an_index_that_is_behind_the_checkpoint(self) -> None:
        """The log is read from the end of the index, although the checkpoint names a later file."""
        box = StoreBox(mapped_file_size_commit_log=4000).open()

        def put(numbers: range) -> None:
            box.append(*[message(body=b"%d" % number, keys=f"k{number}") for number in numbers])
            box.step(11_000, 40)

        put(range(20))
        [name] = box.disk.list_directory("/store/index")
        path = f"/store/index/{name}"
        written = box.disk.read_file(path)
        put(range(20, 50))
        put(range(50, 70))
        box.store.close()
        self.assertNotEqual(box.disk.read_file(path), written)
        # The system did not write its later pages.
        box.disk.write_file(path, written)
        again = box.after_kill()
        for number in range(70):
            records, _, _ = again.store.reader.query("TopicTest", f"k{number}", 9, 0, 2**62)
            self.assertEqual({decode_record(r).body for r in records}, {b"%d" % number})

    def test_what_the_start_is_chosen_by(self) -> None:
        """It is the checkpoint, the end of the index if there is one, and messageIndexSafe."""
        chosen: list[tuple[object, ...]] = []

        def start(*arguments: Any) -> int:
            chosen.append(arguments[1:])
            return 0

        self.patch(store_recovery, "start_after_crash", start)
        for has_index, is_safe in ((True, False), (True, True), (False, False)):
            box = StoreBox(message_index_enable=has_index, message_index_safe=is_safe).open()
            box.append(message(keys="k"))
            box.step(60_000, 9)
            values = box.store.checkpoint.values
            box.append(message())
            box.after_kill()
            self.assertGreater(values.logics_msg_timestamp, 0)
            self.assertEqual(chosen.pop(), (values, 0 if has_index else None, is_safe))
            self.assertEqual(chosen, [])

    def test_nothing_is_mapped(self) -> None:
        """Holes are not read by a map, which may need room that a full disk lacks."""
        end = self.box.store.commit_log.max_offset
        with_map = MemoryFile.read_map
        self.patch(MemoryFile, "read_map", lambda file: self.fail(f"{file.path} is mapped"))
        box = self.box.after_kill().after_stop()
        self.assertEqual(box.store.commit_log.max_offset, end)
        for place in range(3000, 5000):
            box.store.look_message(place)
        self.patch(MemoryFile, "read_map", with_map)
        self.check(box)

    def test_queues_are_made_again(self) -> None:
        """All entries are made from the commit log."""
        self.successResultOf(self.box.store.stop())
        self.box.disk.remove("/store/consumequeue")
        self.check(self.box.after_kill())

    def test_everything_is_made_again(self) -> None:
        """This needs only the commit log and the mark of a crash."""
        self.box.store.close()
        for name in ("consumequeue", "index", "checkpoint"):
            self.box.disk.remove(f"/store/{name}")
        self.check(self.box.after_kill())

    def test_commit_log_is_gone(self) -> None:
        """The start is refused and changes nothing; with the folder everything is present again."""
        self.successResultOf(self.box.store.stop())
        self.refuses_without_log(self.box)

    def test_commit_log_is_gone_after_a_kill(self) -> None:
        """The checkpoint shows that it was on disk."""
        self.box.step(1000, 2)
        self.box.store.close()
        self.assertTrue(self.box.disk.exists("/store/abort"))
        self.refuses_without_log(self.box)

    def refuses_without_log(self, box: StoreBox) -> None:
        """The folder is missing, or its only file was cut to nothing."""
        disk = box.disk
        kept = {name: disk.read_file(f"/store/commitlog/{name}")
                for name in disk.list_directory("/store/commitlog")}
        queues = disk.list_directory("/store/consumequeue")
        for remains in (None, (), (segment_path("/store/commitlog", 0),)):
            disk.remove("/store/commitlog")
            if remains is not None:
                disk.make_directory("/store/commitlog")
                for path in remains:
                    disk.write_file(path, b"")
            error = self.assertRaises(StoreDamaged, box.after_kill)
            self.assertIn("/store/commitlog has no file", str(error))
            self.assertIn("checkpoint", str(error))
            self.assertEqual(disk.list_directory("/store/consumequeue"), queues)
        disk.make_directory("/store/commitlog")
        for name, data in kept.items():
            disk.write_file(f"/store/commitlog/{name}", data)
        self.check(box.after_kill())

    def test_commit_log_is_gone_and_only_batch_queues_tell_of_it(self) -> None:
        """The batch queues count as proof of messages, as other queues do."""
        box = StoreBox()
        box.batch_topics.add("Batches")
        box.open()
        box.append(inner_batch("Batches", [b"1", b"2"]))
        self.successResultOf(box.store.stop())
        for name in ("commitlog", "index", "checkpoint", "consumequeue"):
            box.disk.remove(f"/store/{name}")
        error = self.assertRaises(StoreDamaged, box.after_kill)
        self.assertIn("refer to its messages under /store: batchconsumequeue. ", str(error))
        self.assertEqual(box.disk.list_directory("/store/batchconsumequeue"), ["Batches"])

    def test_messages_are_given_up(self) -> None:
        """As the error explains, the store begins again without the files that refer to them."""
        self.successResultOf(self.box.store.stop())
        disk = self.box.disk
        disk.remove("/store/commitlog")
        for _ in range(4):
            try:
                box = self.box.after_kill()
            except StoreDamaged as error:
                names = str(error).partition("/store: ")[2].partition(". ")[0].split(", ")
                disk.remove(f"/store/{names[0]}")
        (record,) = box.append(message("T0"))
        self.assertEqual((record.queue_offset, record.physical_offset), (0, 0))

    def test_nothing_was_durable(self) -> None:
        """A loss of power in a store's first seconds may leave queues and no log."""
        self.box.store.queues.write_all()
        self.box.store.close()
        self.box.disk.remove("/store/commitlog")
        box = self.box.after_kill()
        self.assertEqual(
            (box.store.commit_log.max_offset, box.store.queues.ids_by_topic()), (0, {}))

    def test_last_files_are_gone(self) -> None:
        """One line says that messages are missing."""
        self.successResultOf(self.box.store.stop())
        names = self.box.disk.list_directory("/store/commitlog")
        self.box.disk.remove(f"/store/commitlog/{names[-1]}")
        errors: list[LogEvent] = []
        self.patch(StoreRecovery, "log", Logger(observer=errors.append))
        box = self.box.after_kill()
        said = [formatEvent(event) for event in errors if event["log_level"] is LogLevel.error]
        self.assertEqual(len(said), 1)
        self.assertIn(f"ends at {box.store.commit_log.max_offset}, but consume queues", said[0])

    def test_first_files_are_gone(self) -> None:
        """Queues begin with their first remaining message."""
        self.successResultOf(self.box.store.stop())
        self.box.disk.remove(LOG_PATH)
        box = self.box.after_kill()
        self.assertEqual(box.store.commit_log.min_offset, 4000)
        minimum = box.store.queues.min_offset("T0", 0)
        self.assertGreater(minimum, 0)
        place = box.store.queues.commit_log_offset("T0", 0, minimum)
        self.assertGreaterEqual(place, 4000)
        self.assertEqual(box.bodies("T0", 0)[-1], b"54")


class DamageTests(SynchronousTestCase):
    """The log ends before a record that is not whole, and such a record is never served."""

    def setUp(self) -> None:
        """Store ten messages, then kill the process."""
        self.box = StoreBox().open()
        self.records = self.box.append(*[message(body=b"%d" % n, keys="k") for n in range(10)])

    def check(self, box: StoreBox, count: int) -> StoreBox:
        """Check the number of remaining messages, and that the log continues after them."""
        self.assertEqual(box.bodies(), [b"%d" % n for n in range(count)])
        self.assertEqual(box.store.commit_log.max_offset, self.records[count - 1].next_offset)
        self.assertEqual(len(box.store.reader.query("TopicTest", "k", 64, 0, 2**62)[0]), count)
        (record,) = box.append(message(body=b"new"))
        self.assertEqual(record.queue_offset, count)
        box = box.after_kill()
        self.assertEqual(box.bodies()[count:], [b"new"])
        return box

    def test_torn_at_any_byte(self) -> None:
        """A record that was written in part is dropped; earlier ones remain."""
        start, end = self.records[7].physical_offset, self.records[7].next_offset
        for position in range(start, end):
            self.setUp()
            self.box.store.close()
            self.box.disk.clear_from(LOG_PATH, position)
            self.check(self.box.after_kill(), 7)

    def test_wrong_body(self) -> None:
        """Its CRC reveals it; later data does not reappear."""
        body = self.records[4].physical_offset + 88
        overwrite(self.box, LOG_PATH, body, b"X")
        box = self.box.after_kill()
        self.assertEqual(len(self.check(box, 4).after_kill().bodies()), 5)

    def test_record_of_another_place(self) -> None:
        """The log ends before a whole record that was written for another position."""
        stray = message(body=b"stray")
        stray.physical_offset = 1
        overwrite(self.box, LOG_PATH, self.records[9].next_offset, encode_record(stray))
        self.check(self.box.after_kill(), 10)

    def test_garbage_behind_the_end_of_a_clean_log(self) -> None:
        """It is cleared, so that it cannot follow later records."""
        self.successResultOf(self.box.store.stop())
        overwrite(self.box, LOG_PATH, self.records[9].next_offset, b"garbage")
        self.check(self.box.after_kill(), 10)

    def test_wrong_body_at_the_end_of_a_clean_log(self) -> None:
        """The log is read from the end of the queues with its CRCs; it ends at a bad record."""
        half = message("T0", b"half", sys_flag=SYS_TRANSACTION_PREPARED)
        self.box.append(half)
        self.successResultOf(self.box.store.stop())
        overwrite(self.box, LOG_PATH, half.physical_offset + 88, b"X")
        self.check(self.box._again().open(), 10)

    def test_torn_first_record(self) -> None:
        """The store is empty, and offsets begin at 0."""
        overwrite(self.box, LOG_PATH, 4, b"\0")
        box = self.box.after_kill()
        self.assertEqual((box.bodies(), box.store.commit_log.max_offset), ([], 0))

    def test_queue_points_behind_the_log(self) -> None:
        """The log decides, also after a clean stop."""
        self.successResultOf(self.box.store.stop())
        self.box.disk.clear_from(LOG_PATH, self.records[6].physical_offset)
        box = self.box._again().open()
        self.assertEqual(box.store.commit_log.max_offset, self.records[6].physical_offset)
        self.assertEqual(box.store.queues.max_offset("TopicTest", 0), 6)
        (record,) = box.append(message(body=b"longer than the one before"))
        self.assertEqual(record.queue_offset, 6)
        self.assertEqual(box.bodies()[5:], [b"5", b"longer than the one before"])

    @settings(max_examples=examples(60), deadline=None)
    @given(
        st.integers(0, 9),
        st.sampled_from([(0, 12), (28, 8), (84, 5)]),
        st.binary(min_size=12, max_size=12),
        st.integers(0, 40),
    )
    def test_any_damage(
        self, number: int, field: tuple[int, int], data: bytes, steps: int
    ) -> None:
        """Whatever is damaged, the served messages are the first of those that were sent.

        The format has no check of a record's other fields.
        """
        self.setUp()
        self.box.step(4000, steps)
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
        """The messages of the new topic are present, and the messages of the old topic are not."""
        box = StoreBox().open()
        box.append(*[message(body=b"old%d" % n) for n in range(30)])
        box.step(60_000)
        self.assertEqual(box.store.delete_topic("TopicTest"), 1)
        box.append(*[message(body=b"new%d" % n) for n in range(3)])
        self.assertEqual(len(box.bodies()), 3)
        box = box.after_kill()
        self.assertEqual(box.bodies(), [b"new0", b"new1", b"new2"])
        self.assertEqual(box.after_stop().bodies(), [b"new0", b"new1", b"new2"])
