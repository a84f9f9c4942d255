"""``format("rocketmq_store")`` in a Spark session."""

from __future__ import annotations

import datetime
import os
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.integrations.tables.logs import LogWriter
from tests.integrations.tables.records import row
from tests.spark_bridge import records  # noqa: F401  (skips where the extra is not installed)
from tests.spark_bridge.object_store import object_store
from tests.spark_bridge.session import spark_session
from twistmq.broker.testing import running_broker
from twistmq.client import Message, Producer
from twistmq.integrations.tables.columns import COLUMNS
from twistmq.protocol import record
from twistmq.protocol.batch import encode_batch

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


class StoreSourceTests(SynchronousTestCase):
    """Reads of stores."""

    def setUp(self) -> None:
        self.spark = spark_session()

    def store(self) -> LogWriter:
        """A store of some files with records of several topics."""
        root = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        log = LogWriter(root / "commitlog", 40_000)
        rng = random.Random(3)
        for index in range(200):
            topic = rng.choice(["orders", "refunds", "SCHEDULE_TOPIC_XXXX"])
            log.add(topic, rng.randbytes(rng.randrange(1500)),
                    f"UNIQ_KEY\x01id{index}\x02TAGS\x01t{index % 3}\x02KEYS\x01a{index} b\x02",
                    queue_id=index % 4, stored_ms=1_700_000_000_000 + index * 1000,
                    sys_flag=[0, 0, 0, 4, 8, 12][index % 6])
        return log

    def wanted(self, log: LogWriter, *topics: str) -> list[bytes]:
        """Return the records of these topics that are rows."""
        return [made for _, made in log.written if record.decode_record(made).topic in topics
                and record.has_queue_entry(record.decode_record(made).sys_flag)]

    def read(self, path: Path | str, **options: str) -> Any:
        return self.spark.read.format("rocketmq_store").options(**options).load(str(path))

    def rows(self, frame: Any) -> list[dict[str, Any]]:
        """A data frame's rows in the order of the log; times as the tests' rows have them."""
        ordered = frame.orderBy("commitLogOffset", "queueOffset")
        found = [each.asDict() for each in ordered.collect()]
        for each in found:
            for name, value in each.items():
                if isinstance(value, bytearray):
                    each[name] = bytes(value)
                elif isinstance(value, datetime.datetime):
                    each[name] = value.astimezone(datetime.UTC)
        return found

    def default_rows(self, stored: Iterable[bytes], broker: str | None = None
                     ) -> list[dict[str, Any]]:
        """Return records as rows with the default columns."""
        found = [row(each, broker) for each in stored]
        for each in found:
            for name in ("shardingKey", "delayLevel", "deliverTime", "damage"):
                del each[name]
        return found

    def assert_fails(self, text: str, frame: Any) -> None:
        """Check that a read fails with a text that a user sees."""
        from pyspark.errors import PySparkException

        error = self.assertRaises(PySparkException, frame.collect)
        self.assertIn(text, str(error))

    def test_every_column(self) -> None:
        """All messages of user topics are read, in every column, file by file."""
        log = self.store()
        frame = self.read(log.directory.parent, brokerName="broker-a")
        self.assertEqual(frame.rdd.getNumPartitions(), len(list(log.directory.iterdir())))
        self.assertEqual(self.rows(frame),
                         self.default_rows(self.wanted(log, "orders", "refunds"), "broker-a"))

    def test_named_topics_the_brokers_own_too(self) -> None:
        """Named topics, the broker's own too; the log's directory itself."""
        log = self.store()
        for name in ("orders", "SCHEDULE_TOPIC_XXXX"):
            frame = self.read(log.directory, topics=name, columns="commitLogOffset,queueOffset")
            self.assertEqual([each["commitLogOffset"] for each in self.rows(frame)],
                             [record.decode_record(made).physical_offset
                              for made in self.wanted(log, name)])

    def test_a_uri(self) -> None:
        """Tasks open the files of an object store by themselves."""
        log = self.store()
        with object_store(log.directory.parents[1]) as server:
            frame = self.read(server.uri(f"{log.directory.parent.name}"))
            found = sorted(each.commitLogOffset
                           for each in frame.select("commitLogOffset").collect())
        self.assertEqual(found, [record.decode_record(made).physical_offset
                                 for made in self.wanted(log, "orders", "refunds")])

    def test_a_file_in_pieces(self) -> None:
        """Several tasks read a large file."""
        log = LogWriter(Path(self.mktemp()).absolute(), 6 << 20)  # type: ignore[no-untyped-call]
        for index in range(40):
            log.add(body=bytes([index]) * 100_000)
        frame = self.read(log.directory, minPartitions="9")
        self.assertEqual(frame.rdd.getNumPartitions(), 4)
        self.assertEqual(self.rows(frame), self.default_rows(self.wanted(log, "T")))

    def test_store_times_choose_messages(self) -> None:
        """Store times choose messages, and files."""
        log = self.store()
        first, last = 1_700_000_050_000, 1_700_000_120_000
        frame = self.read(log.directory, startingTimestamp=str(first), endingTimestamp=str(last))
        wanted = [each for each in self.default_rows(self.wanted(log, "orders", "refunds"))
                  if first <= each["storeTimestamp"].timestamp() * 1000 < last]
        self.assertEqual(self.rows(frame), wanted)
        self.assertGreater(len(wanted), 20)

    def test_columns_chosen(self) -> None:
        """They are chosen by options and by a schema; names in any case; the body as text."""
        log = self.store()
        log.add("text", "süß".encode(), "")
        frame = self.read(log.directory, topics="text", columns="BODY,queueId", bodyFormat="string")
        self.assertEqual(frame.schema.simpleString(), "struct<body:string,queueId:int>")
        self.assertEqual([tuple(each) for each in frame.collect()], [("süß", 0)])
        frame = self.spark.read.format("rocketmq_store").schema("tags STRING, body STRING").option(
            "topics", "text").load(str(log.directory))
        self.assertEqual([tuple(each) for each in frame.collect()], [(None, "süß")])
        self.assert_fails("column body: its type is binary, not bigint", self.Lazy(
            lambda: self.spark.read.format("rocketmq_store").schema("body BIGINT").load(
                str(log.directory)).collect()))

    class Lazy:
        """A frame that is created when it is collected."""

        def __init__(self, collect: Any) -> None:
            self.collect = collect

    def test_a_damaged_record_fails_with_file_and_place(self) -> None:
        """A damaged record fails with file and place, or is skipped."""
        log = self.store()
        place, made = log.written[20]
        log.put(place + 4, b"\0\0\0\0")
        self.assert_fails(f"{log.path(place)} is damaged at byte {place}: magic 0x00000000",
                          self.read(log.directory))
        frame = self.read(log.directory, failOnDataLoss="false")
        self.assertEqual(
            self.rows(frame),
            self.default_rows(each for each in self.wanted(log, "orders", "refunds")
                              if each != made))

    def test_unreadable_body(self) -> None:
        """A body that does not decompress fails with file, topic, queue and offset."""
        log = self.store()
        log.add("packed", b"no zlib", sys_flag=1, queue_id=2, queue_offset=77)
        log.add("packed", b"", queue_id=2, queue_offset=78)
        frame = self.read(log.directory, topics="packed")
        self.assert_fails(f"{log.path(log.place)}: topic packed queue 2 offset 77", frame)
        frame = self.read(log.directory, topics="packed", failOnDataLoss="false")
        self.assertEqual([each["queueOffset"] for each in self.rows(frame)], [78])

    def test_missing_and_removed_files(self) -> None:
        """A file missing between others, and one removed after the plan was made."""
        log = self.store()
        names = sorted(log.directory.iterdir())
        frame = self.read(log.directory, failOnDataLoss="false")
        strict = self.read(log.directory)
        self.assertGreater(strict.rdd.getNumPartitions(), 3)
        names[1].unlink()
        left = [each for (place, each) in log.written if log.path(place) != names[1]
                and each in self.wanted(log, "orders", "refunds")]
        self.assert_fails(f"{names[1]} is missing between the others", self.read(log.directory))
        again = self.read(log.directory, failOnDataLoss="false")
        self.assertEqual(self.rows(again), self.default_rows(left))
        self.assert_fails(f"{names[1]} was removed before it was read", strict)
        self.assertEqual(self.rows(frame), self.default_rows(left))

    def test_files_that_are_none(self) -> None:
        """A pipe, a folder or a device in place of a file counts as lost; the others are read."""
        makes: tuple[tuple[str, Callable[[Path], object]], ...] = (
            ("a named pipe", os.mkfifo), ("a folder", Path.mkdir),
            ("a device", lambda path: path.symlink_to("/dev/zero")))
        for kind, make in makes:
            log = self.store()
            name = sorted(log.directory.iterdir())[1]
            name.unlink()
            make(name)
            left = [each for (place, each) in log.written if log.path(place) != name
                    and each in self.wanted(log, "orders", "refunds")]
            self.assert_fails(f"{name} is {kind}", self.read(log.directory))
            found = self.read(log.directory, failOnDataLoss="false")
            self.assertEqual(self.rows(found), self.default_rows(left))
        alone = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        alone.mkdir()
        os.mkfifo(alone / f"{0:020d}")
        self.assert_fails("is a named pipe", self.Lazy(lambda: self.read(alone).collect()))

    def test_files_far_apart(self) -> None:
        """The gap is one loss, however many files would be in it."""
        log = self.store()
        last = (2**63 - 1) // 40_000 * 40_000
        (log.directory / f"{last:020d}").touch()
        self.assert_fails(f"the files up to {last - 40_000:020d} are missing",
                          self.read(log.directory))
        found = self.read(log.directory, failOnDataLoss="false")
        self.assertEqual(len(self.rows(found)), len(self.wanted(log, "orders", "refunds")))

    def test_bad_paths(self) -> None:
        """The error names the path."""
        empty = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        empty.mkdir()
        for path in (empty, empty / "none"):
            self.assert_fails(f"option path: {path} has neither", self.Lazy(
                lambda path=path: self.read(path).collect()))
        self.assert_fails("option minPartitions: 'many'", self.Lazy(
            lambda: self.read(empty, minPartitions="many").collect()))

    def test_nothing_to_read(self) -> None:
        """A log without records, or a time without messages, has no rows."""
        root = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        root.mkdir()
        (root / f"{0:020d}").write_bytes(bytes(1000))
        self.assertEqual(self.read(root).collect(), [])
        late = self.read(self.store().directory, startingTimestamp="2100-01-01")
        self.assertEqual(late.collect(), [])

    def test_inner_batches(self) -> None:
        """A record that holds several messages is as many rows."""
        log = self.store()
        log.add("batch", encode_batch([(0, b"m%d" % index, "") for index in range(3)]),
                sys_flag=record.SYS_INNER_BATCH | record.SYS_NEED_UNWRAP, queue_offset=50)
        found = self.rows(self.read(log.directory, topics="batch"))
        self.assertEqual([(each["queueOffset"], each["body"]) for each in found],
                         [(50, b"m0"), (51, b"m1"), (52, b"m2")])

    def test_rows_are_those_of_the_broker(self) -> None:
        """A running broker's files give the rows that the broker gives, in every column."""
        names = ",".join(column.name for column in COLUMNS)
        with running_broker() as broker, Producer([broker.namesrv_address]) as producer:
            for number in range(40):
                producer.send(Message(
                    "orders", b"%d" % number, tags="t", keys=[f"k{number}", "all"],
                    sharding_key=str(number % 3), properties={"DELAY": "0"}, flag=number))
            producer.send_batch([Message("orders", b"b%d" % number) for number in range(5)])
            pulled = self.spark.read.format("rocketmq").options(
                nameServer=broker.namesrv_address, subscribe="orders", columns=names).load()
            read = self.read(broker.data / "store", topics="orders", columns=names,
                             brokerName=next(iter(producer.client.broker_addresses())))
            found = self.rows(read)
            self.assertEqual(found, self.rows(pulled))
            self.assertEqual(len(found), 45)

    def test_stores_of_apaches_broker(self) -> None:
        """Every record of the topics is read, with the values of the decoder."""
        for name, topic in (("store/5.3.3", "Golden"), ("store-batch/store", "GoldenBatch")):
            directory = GOLDEN / name / "commitlog"
            stored = []
            for path in sorted(directory.iterdir()):
                data, at = path.read_bytes(), 0
                while (size := record.check_record(data, at)) > 0:
                    stored.append(data[at : at + size])
                    at += size
            found = self.rows(self.read(directory.parent, topics=topic))
            decoded = [record.decode_record(each) for each in stored]
            of_topic = [each for each, one in zip(stored, decoded, strict=True)
                        if one.topic == topic and record.has_queue_entry(one.sys_flag)]
            self.assertTrue(of_topic, msg=name)
            plain = [each for each in of_topic
                     if not record.decode_record(each).sys_flag & record.SYS_INNER_BATCH]
            by_place = {(each["commitLogOffset"], each["queueOffset"]): each for each in found}
            for each in self.default_rows(plain):
                self.assertEqual(by_place[each["commitLogOffset"], each["queueOffset"]], each,
                                 msg=name)
            inner = sum(int(record.decode_record(each).properties_map()["INNER_NUM"])
                        for each in of_topic if each not in plain)
            self.assertEqual(len(found), len(plain) + inner, msg=name)
