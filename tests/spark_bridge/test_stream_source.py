"""``spark.readStream.format("rocketmq")``: micro-batches, their bounds, and restarts."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.integrations.tables.topics import BROKER, Topics
from tests.interop.servers import wait_until
from tests.spark_bridge import records  # noqa: F401  (skips where the extra is not installed)
from tests.spark_bridge.session import WAIT_SECONDS, begun, run_to_end, spark_session
from tests.spark_bridge.test_source import SourceCase
from twistmq.integrations.tables.data_loss import DataLoss
from twistmq.integrations.tables.options import OptionError
from twistmq.spark_bridge.lag import query_lag
from twistmq.spark_bridge.source import RocketMQDataSource
from twistmq.spark_bridge.trace_source import TraceSource


class Driver:
    """Calls a stream reader in the order of Spark, without Spark.

    :param offset: where a checkpoint says that the query goes on.
    """

    def __init__(self, box: Topics | None, offset: dict[str, Any] | None = None,
                 source: RocketMQDataSource | None = None, **options: Any) -> None:
        if source is None:
            assert box is not None
            source = RocketMQDataSource({name.lower(): str(value) for name, value in {
                **box.options, "deletionCheckMs": 100, **options}.items()})
        self._reader: Any = source.streamReader(source.schema())
        #: What tasks are given: another copy, made before anything is asked.
        self._tasks: Any = pickle.loads(pickle.dumps(self._reader))
        self.offset = offset
        #: The rows of each micro-batch: topic, queue, offset and body.
        self.batches: list[list[tuple[str, int, int, bytes]]] = []

    def begin(self) -> None:
        """Make the first calls of a new query; the second answer counts."""
        if self.offset is None:
            with self._stopped():
                self._reader.initialOffset()
                self.offset = as_json(self._reader.initialOffset())

    def run(self) -> Driver:
        """Run micro-batches until none is left, as Trigger.AvailableNow does."""
        self.begin()
        with self._stopped():
            self._reader.prepareForTriggerAvailableNow()
            limit = self._reader.getDefaultReadLimit()
            while self._batch(limit):
                pass
        return self

    def trigger(self) -> int:
        """Make one trigger of a continuing query; :returns: the rows of its micro-batch."""
        if self.offset is None:
            self.offset = as_json(self._reader.initialOffset())
        before = sum(map(len, self.batches))
        self._batch(self._reader.getDefaultReadLimit())
        return sum(map(len, self.batches)) - before

    def batch(self) -> bool:
        """Make one micro-batch within the options; :returns: whether there was one."""
        return self._batch(self._reader.getDefaultReadLimit())

    def stop(self) -> None:
        """Give back the connections."""
        self._reader.stop()

    def _batch(self, limit: Any) -> bool:
        """Make one micro-batch; :returns: whether there was one."""
        assert self.offset is not None
        end = as_json(self._reader.latestOffset(self.offset, limit))
        if end == self.offset:
            return False
        parts = pickle.loads(pickle.dumps(self._reader.partitions(self.offset, end)))
        self.batches.append(sorted(
            (row["topic"], row["queueId"], row["queueOffset"], row["body"])
            for part in parts for batch in self._tasks.read(part) for row in batch.to_pylist()))
        self._reader.commit(end)
        self.offset = end
        return True

    @contextmanager
    def _stopped(self) -> Iterator[None]:
        """Give back the connections, as the end of Spark's process does."""
        try:
            yield
        finally:
            self._reader.stop()

    def rows(self) -> list[tuple[int, int, bytes]]:
        """Return the queue, the offset and the body of all rows."""
        return sorted(row[1:] for rows in self.batches for row in rows)


def as_json(offset: dict[str, Any]) -> dict[str, Any]:
    """Return an offset as a checkpoint restores it."""
    found: dict[str, Any] = json.loads(json.dumps(offset))
    return found


class StreamCase(SourceCase):
    """Queries that write to Parquet with a checkpoint."""

    counts = (70, 50, 0, 30)

    def setUp(self) -> None:
        super().setUp()
        folder = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        self.output, self.checkpoint = folder / "output", folder / "checkpoint"

    def start(self, available_now: bool = True, topics: Topics | None = None,
              **options: Any) -> Any:
        """Start the query; :returns: it."""
        stream = spark_session().readStream.format("rocketmq").options(
            **(topics or self.box).options,
            **{name: str(value) for name, value in options.items()}).load()
        writer = stream.select("topic", "queueId", "queueOffset", "body").writeStream.format(
            "parquet").option("checkpointLocation", str(self.checkpoint))
        trigger = {"availableNow": True} if available_now else {"processingTime": "20 milliseconds"}
        query = writer.trigger(**trigger).start(str(self.output))
        self.addCleanup(query.stop)
        return query

    def run_query(self, **options: Any) -> list[int]:
        """Run it to its end; :returns: how many rows each micro-batch had."""
        query = run_to_end(lambda: self.start(**options))
        self.progress = query.recentProgress
        return [progress["numInputRows"] for progress in query.recentProgress]

    def written(self) -> list[tuple[int, int, bytes]]:
        """Return the queue, the offset and the body of all rows in the files."""
        rows = spark_session().read.parquet(str(self.output)).collect()
        return sorted((row.queueId, row.queueOffset, bytes(row.body)) for row in rows)


class AvailableNowTests(StreamCase):
    """The trigger Trigger.AvailableNow."""

    def test_in_pieces(self) -> None:
        """Each piece has the permitted number of offsets; a restart continues after them."""
        counts = self.run_query(subscribe="orders", startingOffsets="earliest",
                                maxOffsetsPerTrigger=40)
        self.assertEqual([count for count in counts if count], [40, 40, 40, 30])
        self.check_lag([110, 70, 30, 0])
        self.assertEqual(self.written(), sorted(self.sent))
        self.box.send("orders", 2, [b"later"])
        self.assertEqual(sum(self.run_query(subscribe="orders", startingOffsets="earliest",
                                            maxOffsetsPerTrigger=40)), 1)
        self.assertEqual(self.written(), sorted([*self.sent, (2, 0, b"later")]))

    def check_lag(self, totals: list[int]) -> None:
        """Compare the lag after each micro-batch, from all forms of its progress."""
        done = [each for each in self.progress if each["numInputRows"]]
        for forms in (done, [each.json for each in done], [dict(each) for each in done]):
            lags = [query_lag(each) for each in forms]
            self.assertEqual([lag and lag.total for lag in lags], totals)
        for lag, total in zip(lags, totals, strict=True):
            assert lag is not None
            self.assertEqual((len(lag.by_queue), lag.avg), (4, total / 4))
        asked = query_lag(done[0], self.box.client)
        assert asked is not None
        self.assertEqual(asked.total, totals[0])

    def test_about_as_many_bytes_at_a_time_as_are_allowed(self) -> None:
        """About as many bytes at a time as are allowed."""
        size = len(self.box.client.pull(self.box.queue("orders"), 0, max_count=1).body)
        driver = Driver(self.box, subscribe="orders", startingOffsets="earliest",
                        maxBytesPerTrigger=50 * size).run()
        counts = [len(rows) for rows in driver.batches]
        self.assertEqual(driver.rows(), sorted(self.sent))
        self.assertTrue(all(40 <= count <= 60 for count in counts[:2]), msg=str(counts))

    def test_new_queues_and_topics(self) -> None:
        """Queues and topics that are added between two runs are read from their first message."""
        first = Driver(self.box, subscribePattern="orders.*").run()
        self.assertEqual(first.rows(), [])
        more = self.box.fill("orders_eu", [5, 4])
        self.box.send("orders", 1, [b"later"])
        second = Driver(self.box, first.offset, subscribePattern="orders.*").run()
        self.assertEqual(second.rows(), sorted([*more, (1, 50, b"later")]))

    def test_between_initial_offset_and_first_batch(self) -> None:
        """A message between the two is in the first micro-batch."""
        driver = Driver(self.box, subscribe="orders")
        driver.begin()
        self.box.send("orders", 0, [b"between"])
        self.assertEqual(driver.run().rows(), [(0, 70, b"between")])

    def test_too_few_offsets_wait(self) -> None:
        """The first micro-batch does not wait; the next ones do until there are enough."""
        driver = Driver(self.box, subscribe="orders", startingOffsets="earliest",
                        minOffsetsPerTrigger=160, maxTriggerDelay="1h")
        self.assertEqual(driver.trigger(), 150)
        self.assertEqual(driver.trigger(), 0)
        self.box.send("orders", 2, [b"%d" % number for number in range(159)])
        self.assertEqual(driver.trigger(), 0)
        self.box.send("orders", 1, [b"enough"])
        self.assertEqual(driver.trigger(), 160)
        self.box.send("orders", 1, [b"few"])
        self.assertEqual(driver.trigger(), 0)
        # A restart is the beginning of a run.
        again = Driver(self.box, driver.offset, subscribe="orders", minOffsetsPerTrigger=160)
        self.assertEqual(again.trigger(), 1)
        driver.stop()
        again.stop()

    def test_too_few_offsets_do_not_wait_for_ever(self) -> None:
        """After the longest delay a micro-batch has all available messages."""
        driver = Driver(self.box, subscribe="orders", startingOffsets="earliest",
                        minOffsetsPerTrigger=1000, maxTriggerDelay="300ms")
        self.assertEqual(driver.trigger(), 150)
        begun_s = time.monotonic()
        self.box.send("orders", 2, [b"few"])
        wait_until("the few", lambda: driver.trigger() == 1, 30)
        self.assertGreaterEqual(time.monotonic() - begun_s, 0.25)
        driver.stop()

    def test_a_new_queue_does_not_end_a_delay(self) -> None:
        """It is added to the checkpoint at once, and its messages count; nothing else changes."""
        driver = Driver(self.box, subscribePattern="orders.*", startingOffsets="earliest",
                        minOffsetsPerTrigger=10, maxTriggerDelay="1h")
        self.assertEqual(driver.trigger(), 150)
        self.box.send("orders", 1, [b"few"])
        self.box.fill("orders_eu", [9])
        self.assertEqual(driver.trigger(), 0)
        assert driver.offset is not None
        self.assertEqual(driver.offset["orders_eu"][BROKER]["0"], 0)
        self.assertEqual(driver.offset["orders"][BROKER]["1"], 50)
        self.assertEqual(driver.trigger(), 10)
        driver.stop()

    def test_all_there_is_now_does_not_wait(self) -> None:
        """Trigger.AvailableNow reads the last few offsets as well."""
        driver = Driver(self.box, subscribe="orders", startingOffsets="earliest",
                        minOffsetsPerTrigger=40, maxOffsetsPerTrigger=40).run()
        self.assertEqual([len(rows) for rows in driver.batches], [40, 40, 40, 30])

    def test_nothing_behind_the_target(self) -> None:
        """Messages after the begin of Trigger.AvailableNow are for the next run."""
        driver = Driver(self.box, subscribe="orders", startingOffsets="earliest",
                        maxOffsetsPerTrigger=30)
        partitions = driver._reader.partitions

        def and_send(start: Any, end: Any) -> Any:
            self.box.send("orders", 0, [b"late"])
            return partitions(start, end)

        driver._reader.partitions = and_send
        self.assertEqual(driver.run().rows(), sorted(self.sent))
        self.assertEqual(len(driver.batches), 5)

    def test_group_offsets(self) -> None:
        """The committed offsets follow the query, one micro-batch late."""
        options = {"subscribe": "orders", "startingOffsets": "earliest", "group": "shown",
                   "commitGroupOffsets": "true"}
        self.run_query(**options)
        self.box.send("orders", 2, [b"later"])
        self.run_query(**options)
        client = self.box.client
        self.assertEqual([client.group_offset("shown", self.box.queue("orders", queue_id))
                          for queue_id in (0, 1, 3)], [70, 50, 30])

    def test_data_loss(self) -> None:
        """Offsets of the checkpoint are lost: the query fails, or reads the rest."""
        offset = Driver(self.box, subscribe="orders", startingOffsets="earliest").run().offset
        assert offset is not None
        self.assertEqual(offset["orders"][BROKER], {"0": 70, "1": 50, "2": 0, "3": 30})
        self.box.send("orders", 0, [b"later"])
        offset["orders"][BROKER].update({"1": 60, "9": 3})
        for queue_id, why in (("1", "the queue ends at 50, offset 60 was next"),
                              ("9", "the queue is gone, broker broker-a has only")):
            one = {"orders": {BROKER: {queue_id: offset["orders"][BROKER][queue_id]}}}
            error = str(self.assertRaises(DataLoss, Driver(self.box, one, subscribe="orders").run))
            self.assertIn(f"topic orders, broker {BROKER}, queue {queue_id}: {why}", error)
            self.assertIn("failOnDataLoss=false", error)
        driver = Driver(self.box, offset, subscribe="orders", failOnDataLoss="false").run()
        # The queue that ends before its offset goes on at its end: nothing is read twice.
        self.assertEqual(driver.rows(), [(0, 70, b"later")])
        assert driver.offset is not None
        self.assertEqual(driver.offset["orders"][BROKER], {"0": 71, "1": 50, "2": 0, "3": 30,
                                                           "9": 3})

    def test_topic_gone(self) -> None:
        """A deleted topic is an error, or has no rows."""
        offset = {"gone": {BROKER: {"0": 3}}}
        error = str(self.assertRaises(DataLoss, Driver(self.box, offset, subscribe="gone").run))
        self.assertIn("topic gone, broker broker-a, queue 0: the topic is gone", error)
        driver = Driver(self.box, offset, subscribe="gone", failOnDataLoss="false").run()
        self.assertEqual((driver.rows(), driver.offset), ([], offset))

    def test_wrong_options(self) -> None:
        """They are reported when the query starts."""
        for options, expected in (
            ({"subscribe": "nowhere"}, "option subscribe: topic nowhere"),
            ({"subscribe": "orders", "endingOffsets": "latest"}, "option endingOffsets"),
            ({"subscribe": "orders", "commitGroupOffsets": "true"}, "option group: missing"),
            ({"subscribe": "orders", "minOffsetsPerTrigger": 3, "maxOffsetsPerTrigger": 2},
             "option minOffsetsPerTrigger: 3 is more than maxOffsetsPerTrigger allows, 2"),
            ({"subscribe": "orders", "maxTriggerDelay": "1s"},
             "option maxTriggerDelay: it has no meaning without minOffsetsPerTrigger"),
            ({"subscribe": "orders", "startingTimestamp": 0},
             "option startingTimestamp: topic orders, broker broker-a, queue 2: no message"),
        ):
            error = self.assertRaises(ValueError, lambda options=options: Driver(
                self.box, **options).begin())
            self.assertIn(expected, str(error))


    def test_the_error_of_a_query_names_the_wrong_option_alone(self) -> None:
        """The error is not hidden by one of Spark, and each method of the reader raises it."""
        source = RocketMQDataSource({**self.box.options, "subscribe": "orders", "starting": "x"})
        refused: Any = source.streamReader(source.schema())
        for call in (refused.initialOffset, refused.getDefaultReadLimit, refused.latestOffset,
                     refused.prepareForTriggerAvailableNow, lambda: refused.partitions({}, {}),
                     lambda: refused.commit({}), lambda: refused.read(None)):
            self.assertIn("option starting: ", str(self.assertRaises(OptionError, call)))
        traced: Any = TraceSource({**self.box.options, "starting": "x"})
        self.assertIn("option starting: ", str(self.assertRaises(
            OptionError, traced.streamReader(traced.schema()).initialOffset)))
        for available_now in (True, False):
            query = begun(lambda now=available_now: self.start(
                available_now=now, subscribe="orders", maxOffsetsPerTrigger="x"), lambda _: False)
            error = str(query.exception())
            self.assertIn("option maxOffsetsPerTrigger: 'x' is not a whole number", error)
            self.assertNotIn("UnboundLocalError", error)


class ProcessingTimeTests(StreamCase):
    """A query that continues."""

    def test_new_messages(self) -> None:
        """"latest" is the start of the query; later messages are read, each once."""
        query = begun(lambda: self.start(available_now=False, subscribePattern="orders.*"),
                      lambda query: query.lastProgress is not None)
        self.box.send("orders", 1, [b"later"])
        more = self.box.fill("orders_eu", [5, 4])
        expected = sorted([*more, (1, 50, b"later")])
        wait_until("all rows", lambda: self.output.exists() and len(self.written()) == len(
            expected), WAIT_SECONDS)
        self.box.producer.send("orders", b"last", queue=self.box.queue("orders", 3))
        wait_until("one more", lambda: len(self.written()) == len(expected) + 1,
                   WAIT_SECONDS)
        query.stop()
        self.assertEqual(self.written(), sorted([*expected, (3, 30, b"last")]))
