"""Consumer offsets: commits, resets, pulls, deletion, and the file in both of Apache's forms."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.logger import LogEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from tests.draw import examples
from twistmq.broker.constants import OFFSETS_BYTES_MAX
from twistmq.broker.errors import StoreFull
from twistmq.broker.request.consumer_offset import ConsumerOffsetTable
from twistmq.broker.store.config_file import ConfigFile
from twistmq.broker.testing.disk import FaultyDisk
from twistmq.protocol.bodies import ConsumerOffsetSerializeWrapper, DataVersion
from twistmq.protocol.errors import StoreDamaged
from twistmq.protocol.log_rate import LINES_A_MINUTE

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "config"
PATH = "/store/config/consumerOffset.json"
NOW_MS = 1_700_000_000_000
HOST = "10.0.0.1:4000"


class OffsetCase(SynchronousTestCase):
    """A table over a disk that can fail."""

    def setUp(self) -> None:
        self.disk = FaultyDisk()
        self.table = self.make()

    def make(self) -> ConsumerOffsetTable:
        return ConsumerOffsetTable(ConfigFile(self.disk, PATH), lambda: NOW_MS)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        self.table.commit(HOST, group, topic, queue_id, offset)

    def write(self, text: str) -> None:
        self.disk.make_directory("/store/config")
        self.disk.write_file_atomically(PATH, text.encode(), keep_backup=False)


class CommitTests(OffsetCase):
    """The progress of a group."""

    def test_commit_and_query(self) -> None:
        """Each queue of a topic and group has its offset; a missing one is -1."""
        self.commit("G", "T", 0, 5)
        self.commit("G", "T", 1, 7)
        self.commit("H", "T", 0, 9)
        self.assertEqual(self.table.query("G", "T", 0), 5)
        self.assertEqual(self.table.query("G", "T", 1), 7)
        self.assertEqual(self.table.query("H", "T", 0), 9)
        for group, topic, queue_id in (("G", "T", 2), ("G", "U", 0), ("I", "T", 0)):
            self.assertEqual(self.table.query(group, topic, queue_id), -1)

    def test_the_count_of_offsets_is_exact_and_bounded(self) -> None:
        """The count is exact after any change; at the limit no offset is added."""
        self.assertEqual(self.table.size_bytes, 0)
        self.commit("G", "T", 0, 5)
        one = self.table.size_bytes
        self.commit("G", "T", 0, 6)
        self.assertEqual(self.table.size_bytes, one)
        self.commit("G", "T", 1, 7)
        self.table.reset("H", "T", 0, 3)
        self.table.reset("H", "T", 0, 4)
        self.table.clone("G", "H", "T")
        self.table.clone("G", "I", "T")
        size = self.table.size_bytes
        self.table.persist()
        again = self.make()
        again.load()
        self.assertEqual(again.size_bytes, size)
        self.table.size_bytes += OFFSETS_BYTES_MAX
        self.assertTrue(self.table.has_room("G", "T", 1))
        self.assertFalse(self.table.has_room("G", "T", 2))
        self.assertFalse(self.table.has_room("J", "T", 1))
        self.table.size_bytes -= OFFSETS_BYTES_MAX
        self.table.clean_group("G")
        self.assertTrue(one < self.table.size_bytes < size)
        self.table.clean_topics(["T"])
        self.assertEqual(self.table.size_bytes, 0)

    def test_offset_goes_back(self) -> None:
        """A lower offset is accepted."""
        self.commit("G", "T", 0, 5)
        self.commit("G", "T", 0, 3)
        self.assertEqual(self.table.query("G", "T", 0), 3)

    def test_lines_of_the_log(self) -> None:
        """A client that goes back and forth causes at most ten lines a minute."""
        events: list[LogEvent] = []
        globalLogPublisher.addObserver(events.append)
        self.addCleanup(globalLogPublisher.removeObserver, events.append)
        for offset in range(1000, 0, -1):
            self.commit("G", "T", 0, offset)
        lines = [event for event in events if "moved its offset" in str(event.get("log_format"))]
        self.assertEqual(len(lines), LINES_A_MINUTE)
        self.assertEqual(self.table.query("G", "T", 0), 1)

    def test_topics_and_groups(self) -> None:
        """Names are separated, even if one name ends as another does."""
        for group, topic in (("G", "T"), ("G", "U"), ("xG", "T"), ("H", "xT")):
            self.commit(group, topic, 0, 1)
        self.assertEqual(self.table.topics_of_group("G"), {"T", "U"})
        self.assertEqual(self.table.groups_of_topic("T"), {"G", "xG"})
        self.assertEqual(self.table.groups_of_topic("none"), set())

    def test_the_version_counts_one_change_in_500_commits(self) -> None:
        """The version increases once in 500 commits."""
        self.assertEqual(self.table.data_version, DataVersion(timestamp=NOW_MS))
        for offset in range(1001):
            self.commit("G", "T", 0, offset)
        self.assertEqual(self.table.data_version.counter, 2)


class PullTests(OffsetCase):
    """The offset of the next pull."""

    def test_pulled_is_ahead_of_consumed(self) -> None:
        """It is the end of the last pull, or the consumer offset without one."""
        self.commit("G", "T", 0, 5)
        self.assertEqual(self.table.query_pulled("G", "T", 0), 5)
        self.table.pulled("G", "T", 0, 37)
        self.assertEqual(self.table.query_pulled("G", "T", 0), 37)
        self.assertEqual(self.table.query("G", "T", 0), 5)
        self.assertEqual(self.table.query_pulled("G", "T", 1), -1)

    def test_pulls_are_not_saved(self) -> None:
        """A pull does not change the file."""
        self.table.pulled("G", "T", 0, 37)
        self.table.persist()
        self.assertRaises(FileNotFoundError, self.disk.read_file, PATH)


class WrittenTests(OffsetCase):
    """The text of the file, which is joined from rows."""

    def test_as_the_whole_would_be(self) -> None:
        """The text equals the text of the whole table, also after changes and deletions."""
        def check() -> None:
            self.table.persist()
            self.assertEqual(self.disk.read_file(PATH), self.table.wrapper().encode_pretty())
        self.commit("G", "T", 0, 5)
        self.commit("G", "T", 1, 7)
        self.commit("H", "T", 0, 9)
        check()
        self.commit("G", "T", 1, 8)
        self.commit("G", "U", 1, 8)
        check()
        self.table.reset("I", "V", 3, 4)
        self.table.clean_group("H")
        check()
        self.table.clean_topics(["U"])
        check()

    def test_keys_that_come_while_it_is_written(self) -> None:
        """They are in the file, with their groups."""
        for number in range(100):
            self.commit(f"G{number}", "T", 0, number)
        saving = self.table.saving()
        steps = 0
        while True:
            try:
                next(saving)
            except StopIteration as done:
                done.value()
                break
            steps += 1
            if steps in (2, 20, 60):
                self.commit(f"late{steps}", "T", 0, 1)
        self.assertGreater(steps, 60)
        self.assertEqual(self.disk.read_file(PATH), self.table.wrapper().encode_pretty())

    def test_43_is_made_of_rows_as_well(self) -> None:
        """The response 43 is joined from rows as well."""
        for number in range(3):
            self.commit(f"G{number}", "T", number, number)
        encoding = self.table.encoding()
        steps = 0
        while True:
            try:
                next(encoding)
                steps += 1
            except StopIteration as done:
                self.assertEqual(done.value, self.table.wrapper().encode())
                break
        self.assertEqual(steps, 3)

    def test_numbers_that_are_no_offsets(self) -> None:
        """They are left out, because they could not be sent, and the others count."""
        for row in ("0:9223372036854775808", "2147483648:1", '0:"x"'):
            text = f'{{"offsetTable":{{"T@G":{{{row},1:5}}}}}}'
            self.write(text)
            table = self.make()
            table.load()
            self.assertEqual(table.table, {"T@G": {1: 5}})
            self.assertEqual(self.disk.read_file(PATH + ".refused"), text.encode())
            # What is saved next can be read whole.
            table.commit("me", "G", "T", 2, 6)
            table.persist()
            ConsumerOffsetSerializeWrapper.decode_saved(self.disk.read_file(PATH))

    def test_a_row_that_is_lost(self) -> None:
        """A file with a missing row is damaged."""
        self.write('{"offsetTable":{"T@G":null}}')
        self.assertRaises(StoreDamaged, self.make().load)


class ResetTests(OffsetCase):
    """Offsets that an administrator sets."""

    def test_reset_waits_for_a_pull(self) -> None:
        """The reset applies until a pull has used it, once; then the group continues from there."""
        self.commit("G", "T", 0, 50)
        self.table.reset("G", "T", 0, 10)
        self.assertTrue(self.table.is_reset("G", "T", 0))
        self.commit("G", "T", 0, 51)
        self.assertEqual(self.table.query("G", "T", 0), 10)
        self.assertEqual(self.table.take_reset_offset("T", "G", 0), 10)
        self.assertIsNone(self.table.take_reset_offset("T", "G", 0))
        self.assertFalse(self.table.is_reset("G", "T", 0))

    def test_queues_apart(self) -> None:
        """A pull uses the reset of its own queue only."""
        self.table.reset("G", "T", 0, 1)
        self.table.reset("G", "T", 1, 2)
        self.assertIsNone(self.table.take_reset_offset("U", "G", 0))
        self.assertIsNone(self.table.take_reset_offset("T", "G", 2))
        self.assertEqual(self.table.take_reset_offset("T", "G", 0), 1)
        self.assertTrue(self.table.is_reset("G", "T", 1))
        self.assertEqual(self.table.query("G", "T", 0), 1)

    def test_group_that_never_came(self) -> None:
        """The group begins at the offset of the reset."""
        self.table.reset("G", "T", 0, 10)
        self.table.persist()
        self.table = self.make()
        self.table.load()
        self.assertEqual(self.table.query("G", "T", 0), 10)


class DeletionTests(OffsetCase):
    """Topics and groups that are deleted."""

    def setUp(self) -> None:
        super().setUp()
        for group, topic in (("G", "T"), ("G", "U"), ("xG", "T"), ("H", "xT")):
            self.table.reset(group, topic, 0, 1)
            self.table.pulled(group, topic, 0, 2)

    def left(self) -> set[str]:
        return set(self.table.table)

    def test_its_offsets_go(self) -> None:
        """Its offsets of every kind and group are deleted."""
        self.table.clean_topics(["T"])
        self.assertEqual(self.left(), {"U@G", "xT@H"})
        self.assertIsNone(self.table.take_reset_offset("T", "G", 0))
        self.assertEqual(self.table.query_pulled("G", "T", 0), -1)
        self.assertEqual(self.table.query_pulled("G", "U", 0), 2)

    def test_a_deleted_group_loses_its_offsets_in_every_topic(self) -> None:
        """Its offsets are deleted in every topic."""
        self.table.clean_group("G")
        self.assertEqual(self.left(), {"T@xG", "xT@H"})
        self.assertIsNone(self.table.take_reset_offset("U", "G", 0))

    def test_deletion_is_saved(self) -> None:
        """A restart does not restore them."""
        self.table.persist()
        self.table.clean_group("G")
        self.table.persist()
        self.table = self.make()
        self.table.load()
        self.assertEqual(self.left(), {"T@xG", "xT@H"})


class FileTests(OffsetCase):
    """The file consumerOffset.json."""

    def test_both_of_apaches_forms(self) -> None:
        """4.9 has the offsets alone, 5.3 more; queue ids are unquoted in both."""
        expected = {"4.9.4": {"%RETRY%G@G": {0: 0}, "T@G": {0: 2, 1: 2, 2: 3, 3: 3}},
                    "5.3.3": {"T@G": {0: 3, 1: 3, 2: 2, 3: 2}}}
        for version, offsets in expected.items():
            self.write((GOLDEN / version / "consumerOffset.json").read_text())
            self.table = self.make()
            self.table.load()
            self.assertEqual(self.table.table, offsets)
        self.assertEqual(self.table.data_version.timestamp, 1795246732865)

    def test_written_as_apache_reads(self) -> None:
        """With unquoted queue ids, the topics of each group and the version."""
        self.commit("G", "T", 0, 5)
        self.commit("G", "T", 10, 6)
        self.table.persist()
        text = "".join(self.disk.read_file(PATH).decode().split())
        self.assertIn('"T@G":{0:5,10:6}', text)
        self.assertIn('"groupTopicMap":{"G":["T"]}', text)
        self.assertIn(f'"timestamp":{NOW_MS}', text)

    def test_written_when_something_changed(self) -> None:
        """A save without changes writes nothing."""
        self.commit("G", "T", 0, 5)
        self.table.persist()
        self.disk.remove(PATH)
        self.table.persist()
        self.assertRaises(FileNotFoundError, self.disk.read_file, PATH)
        self.commit("G", "T", 0, 6)
        self.table.persist()
        self.assertTrue(self.disk.read_file(PATH))

    def test_full_disk(self) -> None:
        """Changes that could not be saved are saved by the next attempt."""
        self.commit("G", "T", 0, 5)
        self.disk.room_bytes = 10
        self.assertRaises(StoreFull, self.table.persist)
        self.disk.room_bytes = None
        self.table.persist()
        again = self.make()
        again.load()
        self.assertEqual(again.query("G", "T", 0), 5)

    def test_a_file_that_is_no_table_stops_the_start_and_is_named(self) -> None:
        """A file that is not a table stops the start, and the error names it."""
        self.write('{"offsetTable":["T@G"]}')
        self.assertIn(PATH, str(self.assertRaises(StoreDamaged, self.table.load)))

    @settings(max_examples=examples(50), deadline=None)
    @given(st.dictionaries(
        st.tuples(st.from_regex(r"[%|a-zA-Z0-9_-]{1,9}", fullmatch=True),
                  st.from_regex(r"[%|a-zA-Z0-9_-]{1,9}", fullmatch=True)),
        st.dictionaries(st.integers(0, 2**31 - 1), st.integers(-1, 2**63 - 1), min_size=1,
                        max_size=4), max_size=8))
    def test_round_trip(self, offsets: dict[tuple[str, str], dict[int, int]]) -> None:
        """Any offsets are read back as they were."""
        self.disk = FaultyDisk()
        self.table = self.make()
        for (topic, group), queues in offsets.items():
            for queue_id, offset in queues.items():
                self.commit(group, topic, queue_id, offset)
        self.table.persist()
        again = self.make()
        again.load()
        self.assertEqual(again.table, self.table.table)
