"""Whole records that no queue can have: a replica refuses them, and a start skips them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from twisted.logger import LogLevel, capturedLogs, formatEvent
from twisted.trial.unittest import SkipTest, SynchronousTestCase

from twistmq.broker.store import raw_walk
from twistmq.broker.store.consume_queue import OFFSET_MAX
from twistmq.broker.store.inspect.check import StoreCheck
from twistmq.broker.store.inspect.layout import StoreFiles
from twistmq.broker.store.inspect.report import Report
from twistmq.broker.store.segment_files import segment_path
from twistmq.broker.testing.store import StoreBox, message
from twistmq.protocol.errors import StoreError
from twistmq.protocol.record import decode_record, encode_record
from twistmq.protocol.topic_names import can_be_directory

#: Bytes of a commit-log file of these stores.
FILE_SIZE: Final = 64 * 1024
IPV6: Final = b"\x20\x01" + bytes(13) + b"\x05" + b"\0\0\0\x09"
#: Fields of a record that no queue can have, and the words that say so.
STRANGE: Final[tuple[tuple[dict[str, object], str], ...]] = (
    ({"topic": ".."}, "its topic '..' cannot name a directory"),
    ({"topic": "."}, "cannot name a directory"),
    ({"topic": "../../x"}, "cannot name a directory"),
    ({"topic": "a/b"}, "cannot name a directory"),
    ({"topic": "/x"}, "cannot name a directory"),
    ({"topic": "a\0b"}, "its topic 'a\\x00b' cannot name a directory"),
    ({"topic": ""}, "its topic '' cannot name a directory"),
    ({"topic": "n" * 300}, "cannot name a directory"),
    ({"topic": "%RETRY%../x"}, "cannot name a directory"),
    ({"topic": "a/b", "born_host": IPV6}, "cannot name a directory"),
    ({"queue_id": -1}, "its queue id -1 is negative"),
    ({"queue_id": -(2**31)}, "is negative"),
    ({"queue_id": -1, "topic": "n" * 200}, "its queue id -1 is negative"),
    ({"queue_offset": -1}, "no queue has an offset -1"),
    ({"queue_offset": -(2**63)}, "no queue has an offset"),
    ({"queue_offset": OFFSET_MAX + 1}, f"no queue has an offset {OFFSET_MAX + 1}"),
    ({"queue_offset": 2**63 - 1}, "no queue has an offset"),
    ({"store_timestamp": -1}, "its store time -1 is negative"),
    ({"store_timestamp": -1, "born_host": IPV6, "store_host": IPV6}, "its store time -1"),
)
#: The same of records that are strange and that queues can have.
POSSIBLE: Final[tuple[dict[str, object], ...]] = (
    {"topic": "n" * 255}, {"topic": "n" * 127}, {"topic": "n" * 128}, {"topic": "\x1b[31m"},
    {"topic": "\u00e9"}, {"queue_id": 2**31 - 1}, {"store_timestamp": 2**63 - 1},
    {"store_timestamp": 0}, {"born_host": IPV6}, {"store_host": IPV6},
    {"born_host": IPV6, "store_host": IPV6}, {"sys_flag": 0x7F00}, {"topic": "Far",
                                                                    "queue_offset": OFFSET_MAX})


def record(place: int, fields: dict[str, object], body: bytes = b"strange") -> bytes:
    """Return a record as it is in a log."""
    made = message("Strange", body, keys="k")
    made.physical_offset, made.store_timestamp = place, 1_700_000_000_000
    for name, value in fields.items():
        setattr(made, name, value)
    return encode_record(made)


def write_log(box: StoreBox, log: bytes) -> None:
    """Give a store that was never open its commit log."""
    box.disk.make_directory("/store/commitlog")
    box.disk.allocate(segment_path("/store/commitlog", 0), FILE_SIZE).write_at(0, log)


class RefusedTests(SynchronousTestCase):
    """A store that is given the bytes of another broker's log."""

    def setUp(self) -> None:
        self.box = StoreBox(mapped_file_size_commit_log=FILE_SIZE).open()
        self.raw = self.box.store.raw

    def refused(self, offset: int, data: bytes, words: str, where: int) -> None:
        """Append bytes, of which those from a position on are refused."""
        error = self.assertRaises(StoreError, self.raw.append, offset, data)
        self.assertIn(f"the record at {where} of the other log cannot be stored", str(error))
        self.assertIn(words, str(error))
        self.assertEqual(self.box.store.commit_log.max_offset, max(offset, where))

    def test_a_record_that_comes_whole(self) -> None:
        """Earlier whole records are accepted, and nothing from it on."""
        good = record(0, {})
        for fields, words in STRANGE:
            bad = record(len(good), fields)
            data = bad + record(len(good + bad), {})
            for parts in ([good + data], [good, data], [good[:50], good[50:] + data]):
                self.setUp()
                end = 0
                for part in parts[:-1]:
                    self.raw.append(end, part)
                    end += len(part)
                self.refused(end, parts[-1], words, len(good))
                self.assertEqual(self.raw.whole_offset, len(good))
                while self.box.store.dispatch.step():
                    continue
                self.assertEqual(self.box.bodies("Strange"), [b"strange"])

    def test_a_record_that_comes_in_parts(self) -> None:
        """The part that completes it is refused, wherever it is cut."""
        good = record(0, {})
        for fields, words in STRANGE:
            bad = record(len(good), fields)
            for cut in (1, 7, 8, 20, 40, 90, len(bad) // 2, len(bad) - 1):
                self.setUp()
                self.raw.append(0, good + bad[:cut])
                at = len(good) + cut
                self.refused(at, bad[cut:] + record(len(good + bad), {}), words, len(good))
                # What came of it is cut, and the log goes on.
                self.successResultOf(self.box.store.log_cut.cut_tail())
                self.raw.append(len(good), record(len(good), {"queue_offset": 1}))
                while self.box.store.dispatch.step():
                    continue
                self.assertEqual(self.box.bodies("Strange"), [b"strange"] * 2)

    def test_a_record_that_comes_byte_by_byte(self) -> None:
        """All bytes but the last one are accepted."""
        bad = record(0, {"topic": ".."})
        for at in range(len(bad) - 1):
            self.raw.append(at, bad[at : at + 1])
        self.refused(len(bad) - 1, bad[-1:], "'..'", 0)

    def test_lengths_that_do_not_add_up(self) -> None:
        """Otherwise later readers would rely on its sizes."""
        good = record(0, {})
        topic = good.index(b"Strange")
        properties = good.index(b"KEYS") - 2
        for at, data, words in (
                (84, b"\0\0\0\x08", "its topic of 83 bytes does not fit"),
                (84, b"\0\xff\0\0", "its body of 16711680 bytes does not fit"),
                (84, b"\xff\xff\xff\xff", "its body of -1 bytes does not fit"),
                (topic - 1, b"\x08", "do not end with it"), (topic - 1, b"\xff", "does not fit"),
                (properties, b"\0\0", "its properties of 0 bytes do not end with it"),
                (properties, b"\xff\xff", "its properties of -1 bytes"),
                (39, b"\x30", "of"),
                (28, (5).to_bytes(8, "big"), "its physical offset is 5")):
            for cut in (0, 30, len(good) - 1):
                bad = good[:at] + data + good[at + len(data):]
                self.setUp()
                self.raw.append(0, bad[:cut])
                self.refused(cut, bad[cut:], words, 0)

    def test_bytes_behind_the_body(self) -> None:
        """A limited number of bytes is read at once."""
        self.box = StoreBox(mapped_file_size_commit_log=4 * FILE_SIZE).open()
        self.raw = self.box.store.raw
        bad = bytearray(record(0, {}, b"x" * (2 * FILE_SIZE)))
        bad[84:88] = bytes(4)
        self.refused(0, bytes(bad), "bytes follow its body", 0)

    def test_what_queues_can_have_is_taken(self) -> None:
        """They may arrive in two parts; long topics and IPv6 addresses are valid."""
        for cut in (0, 50):
            self.setUp()
            end = 0
            for fields in POSSIBLE:
                data = record(end, fields)
                self.raw.append(end, data[:cut])
                self.raw.append(end + cut, data[cut:])
                end += len(data)
            with capturedLogs() as lines:
                while self.box.store.dispatch.step():
                    continue
            self.assertEqual((self.raw.whole_offset, self.box.store.dispatch.offset), (end, end))
            self.assertEqual([formatEvent(each) for each in lines], [])
            self.successResultOf(self.box.store.stop())

    def test_a_name_is_looked_at_once(self) -> None:
        """This is so whatever the number of its records."""
        asked: list[str] = []

        def ask(topic: str) -> bool:
            asked.append(topic)
            return can_be_directory(topic)

        if not raw_walk.__file__.endswith(".py"):
            raise SkipTest("compiled names cannot be replaced")
        self.patch(raw_walk, "can_be_directory", ask)
        end = 0
        for number in range(40):
            data = record(end, {"topic": f"T{number % 2}"})
            self.raw.append(end, data)
            end += len(data)
        self.assertEqual(asked, ["T0", "T1"])


class StartTests(SynchronousTestCase):
    """A log with such records, from another broker or a damaged disk."""

    def box_of(self, *strange: dict[str, object]) -> StoreBox:
        """Return a store with these records between good ones, without queues and index."""
        box = StoreBox(mapped_file_size_commit_log=FILE_SIZE)
        log = record(0, {}, b"0")
        for fields in strange:
            log += record(len(log), {"topic": "Other", **fields})
        log += record(len(log), {"queue_offset": 1}, b"1")
        write_log(box, log)
        self.end = len(log)
        return box

    def check(self, box: StoreBox) -> tuple[StoreBox, list[str]]:
        """Open the store and use it; :returns: it, and the lines of errors."""
        with capturedLogs() as events:
            box.open()
        self.assertEqual(box.store.commit_log.max_offset, self.end)
        self.assertEqual(box.bodies("Strange"), [b"0", b"1"])
        for number in (2, 3):
            [added] = box.append(message("Strange", b"%d" % number))
            self.assertEqual(added.queue_offset, number)
            box.step(10_000, 3)
            with capturedLogs() as again:
                box = box.after_kill() if number == 2 else box.after_stop()
            self.assertEqual(len(box.bodies("Strange")), number + 1)
            self.assertEqual([each for each in again if each["log_level"] is LogLevel.critical], [])
        return box, [
            formatEvent(each) or "" for each in events if each["log_level"] is LogLevel.error]

    def test_each_is_stepped_over(self) -> None:
        """After a stop and after a crash the next start finds the same messages."""
        for fields, _ in STRANGE:
            if "store_timestamp" in fields or fields.get("topic") == "a\0b":
                continue
            for crashed in (False, True):
                box = self.box_of(fields)
                if crashed:
                    box.disk.write_file("/store/abort", b"")
                _, lines = self.check(box)
                self.assertEqual(len(lines), 1, (fields, crashed, lines))
                self.assertIn("enters no queue, so that only its commit-log offset or its keys "
                              "find it", lines[0])

    def test_many_at_once(self) -> None:
        """Each has its own line."""
        _, lines = self.check(self.box_of(*(fields for fields, _ in STRANGE)))
        self.assertGreater(len(lines), len(STRANGE) - 3)

    def test_it_is_found_by_its_keys(self) -> None:
        """It is found by its position as well."""
        box, _ = self.check(self.box_of({"queue_id": -1}))
        [found], _, _ = box.store.reader.query("Other", "k", 9, 0, 2**62)
        self.assertEqual(decode_record(found).queue_id, -1)
        self.assertEqual(box.store.look_message(decode_record(found).physical_offset), found)

    def test_a_store_time_that_cannot_be(self) -> None:
        """The checkpoint can be read by the next start, though it is the newest message's."""
        for store_ms in (-1, -(2**63), 2**63 - 1):
            box = StoreBox(mapped_file_size_commit_log=FILE_SIZE)
            log = record(0, {"store_timestamp": store_ms})
            write_log(box, log)
            box.open().step(10_000, 3)
            box = box.after_kill()
            box.step(10_000, 3)
            self.assertEqual(box.after_stop().bodies("Strange"), [b"strange"])

    def test_a_check_of_the_store_names_each(self) -> None:
        """They are named by position; the check does not change the store."""
        log, names = b"", []
        for fields, _ in STRANGE:
            if "store_timestamp" not in fields:
                names.append(f"record at byte {len(log)}")
                log += record(len(log), {"topic": "Other", **fields})
        root = Path(self.mktemp())
        (root / "commitlog").mkdir(parents=True)
        (root / "commitlog" / f"{0:020}").write_bytes(log.ljust(FILE_SIZE, b"\0"))
        lines: list[str] = []
        files = StoreFiles(root)
        StoreCheck(files, Report(root, lines.append, 1000)).run()
        files.close()
        for name in names:
            self.assertTrue(any(name in line for line in lines), (name, lines))
        text = "".join(lines)
        self.assertIn("expected a topic that can name a folder, found '../../x'", text)
        self.assertIn(f"found 0 and {OFFSET_MAX + 1}", text)

    def test_a_raw_log_with_one(self) -> None:
        """A replica may have appended it with an older version."""
        box = StoreBox(mapped_file_size_commit_log=FILE_SIZE).open()
        self.patch(box.store.raw, "_require_sound", lambda *_: None)
        log = record(0, {}, b"0")
        log += record(len(log), {"topic": ".."})
        log += record(len(log), {"queue_offset": 1}, b"1")
        box.store.raw.append(0, log)
        with capturedLogs() as events:
            while box.store.dispatch.step():
                continue
        self.assertEqual(box.bodies("Strange"), [b"0", b"1"])
        self.assertEqual([each["log_level"] for each in events], [LogLevel.error])
