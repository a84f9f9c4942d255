"""Servers that are lost for good, or down for a while: readers during restarts.

The sources are asked what Spark asks them, in Spark's order, without Spark.
"""

from __future__ import annotations

import logging
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from twisted.trial.unittest import SynchronousTestCase

from tests.interop.servers import wait_until
from tests.spark_bridge.cluster import Cluster, cluster
from tests.spark_bridge.test_stream_source import Driver, as_json
from tests.spark_bridge.topics import pa, schema_of
from twistmq.client import Client, Message, Producer
from twistmq.integrations.tables import availability, queue_reader
from twistmq.integrations.tables.availability import Patience, StillAway
from twistmq.integrations.tables.data_loss import DataLoss
from twistmq.integrations.tables.options import OptionError
from twistmq.integrations.tables.queue_reader import ReadFailed
from twistmq.plugins.static_topic.admin_commands import update_static_topic
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.headers.topic import CreateTopicRequestHeader
from twistmq.spark_bridge.sink import WriteFailed
from twistmq.spark_bridge.source import RocketMQDataSource
from twistmq.spark_bridge.stream_ends import StreamEnds
from twistmq.tools.admin.session import Session

A, B = "broker-a", "broker-b"


def bodies(name: str, count: int, begin: int = 0) -> list[bytes]:
    return [f"{name}-{number}".encode() for number in range(begin, begin + count)]


class Later:
    """A function that runs on a thread."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._result: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._function()
        except BaseException as error:
            self._error = error

    @property
    def is_over(self) -> bool:
        """Whether it has ended, with or without an error."""
        return not self._thread.is_alive()

    def result(self) -> Any:
        """Return its value; :raises BaseException: its error."""
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error
        return self._result


class ClusterCase(SynchronousTestCase):
    """A name server and brokers of the test."""

    brokers: tuple[str, ...] = (A,)
    #: Settings of all brokers.
    settings: dict[str, str] = {}  # noqa: RUF012

    def setUp(self) -> None:
        self.folder = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        context = cluster(self.folder / "cluster", *self.brokers, **self.settings)
        self.cluster: Cluster = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        self.lines: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: self.lines.append(  # type: ignore[method-assign]
            record.getMessage())
        logger = logging.getLogger("twistmq")
        logger.addHandler(handler)
        self.addCleanup(logger.removeHandler, handler)

    def source(self, **options: Any) -> RocketMQDataSource:
        given = {**self.cluster.options, "deletionCheckMs": 300, "serverWaitMs": 30_000,
                 "fetchOffset.retryIntervalMs": 50, "startingOffsets": "earliest", **options}
        return RocketMQDataSource({name.lower(): str(value) for name, value in given.items()})

    def driver(self, offset: dict[str, Any] | None = None, **options: Any) -> Driver:
        return Driver(None, offset, source=self.source(**options))

    def bodies(self, driver: Driver) -> list[bytes]:
        return sorted(row[2] for row in driver.rows())

    def batch(self, **options: Any) -> tuple[Any, list[Any]]:
        """Plan a batch; :returns: the reader of its tasks, and its partitions."""
        source = self.source(**options)
        reader: Any = source.reader(source.schema())
        tasks = pickle.loads(pickle.dumps(reader))
        return tasks, pickle.loads(pickle.dumps(reader.partitions()))

    def read(self, planned: tuple[Any, list[Any]]) -> list[bytes]:
        """Return the rows of a batch."""
        tasks, parts = planned
        return sorted(row["body"] for part in parts for batch in tasks.read(part)
                      for row in batch.to_pylist())

    def said(self, text: str) -> list[str]:
        """Return the lines of the log with a text."""
        return [line for line in self.lines if text in line]

    def while_away(self, work: Callable[[], Any], name: str = A) -> Any:
        """Stop a server, do something until it waits, and start the server; :returns: the outcome.
        """
        self.cluster.stop(name)
        later = Later(work)
        wait_until("a warning", lambda: self.said("waiting for up to") or later.is_over)
        if name == "namesrv":
            self.cluster.start_name_server()
            self.cluster.register()
        else:
            self.cluster.start(name)
        return later.result()


class PatienceTests(SynchronousTestCase):
    """The number of attempts during an outage, with a clock that only pauses move."""

    def tries(self, wait_s: float, pause_s: float) -> list[float]:
        """Return the pauses until the time is over, in seconds."""
        pauses: list[float] = []
        self.patch(availability.time, "sleep", pauses.append)
        self.patch(availability.time, "monotonic", lambda: sum(pauses))
        patience = Patience(wait_s, pause_s)
        while patience.pause("broker-a"):
            pass
        self.assertAlmostEqual(sum(pauses), wait_s, places=1)
        return pauses

    def test_a_wait_of_two_minutes_is_seventy_tries_at_most(self) -> None:
        """It uses almost no CPU, whatever pause the options ask for."""
        for pause_s in (0.0, 0.2, 1.0):
            pauses = self.tries(120, pause_s)
            self.assertLessEqual(len(pauses), 70, msg=str(pauses))
            self.assertGreaterEqual(min(pauses), 0.05)
            self.assertEqual(sorted(pauses[:-1]), pauses[:-1])


class TaskTests(ClusterCase):
    """Tasks while a broker is away, or has less than they are to read."""

    def setUp(self) -> None:
        super().setUp()
        self.cluster.send("rs", bodies("rs", 5))
        self.cluster.send("rs", bodies("rs", 5, 5), 1)

    def test_a_batch_planned_before_a_stop_loses_nothing(self) -> None:
        """A task that starts while the broker is away waits, with failOnDataLoss=false too."""
        batch = self.batch(subscribe="rs", failOnDataLoss="false")
        self.assertEqual(self.while_away(lambda: self.read(batch)), bodies("rs", 10))
        [line] = self.said("waiting for up to")
        self.assertIn("topic rs, broker broker-a, queue 0, offset 0", line)
        self.assertEqual(self.said("skipped"), [])

    def test_a_stop_between_the_tasks_of_a_micro_batch_loses_nothing(self) -> None:
        """The next task waits, and later messages are read by the next micro-batch."""
        driver = self.driver(subscribe="rs", failOnDataLoss="false")
        driver.begin()
        reader, start = driver._reader, driver.offset
        end = as_json(reader.latestOffset(start, reader.getDefaultReadLimit()))
        parts = reader.partitions(start, end)
        reader.stop()
        found = self.read((driver._tasks, parts[:1]))
        found += self.while_away(lambda: self.read((driver._tasks, parts[1:])))
        self.assertEqual(sorted(found), bodies("rs", 10))
        self.cluster.send("rs", [b"later"])
        self.assertEqual(self.bodies(self.driver(end, subscribe="rs").run()), [b"later"])

    def test_a_task_fails_when_the_broker_stays_away(self) -> None:
        """The error names the queue, the broker and how long it was waited for."""
        batch = self.batch(subscribe="rs", failOnDataLoss="false", serverWaitMs=400)
        self.cluster.stop()
        error = str(self.assertRaises(ReadFailed, self.read, batch))
        self.assertIn("topic rs, broker broker-a, queue 0, offset 0: broker broker-a has no "
                      "master that is registered", error)
        self.assertIn("serverWaitMs", error)
        self.assertNotIn("failOnDataLoss", error)

    def test_a_deleted_topic_is_lost_after_a_second_look(self) -> None:
        """Its broker answers that the topic does not exist."""
        lossless = self.batch(subscribe="rs")
        batch = self.batch(subscribe="rs", failOnDataLoss="false")
        self.cluster.delete("rs")
        error = str(self.assertRaises(DataLoss, self.read, lossless))
        self.assertIn("the topic is gone, broker broker-a has no such topic", error)
        self.assertEqual(self.read(batch), [])
        [first, second] = self.said("skipped")
        self.assertIn("queue 0, offset 0 is not there", first)
        self.assertIn("5 offsets are skipped, 0 to 4", second)

    def test_the_name_server_restarts(self) -> None:
        """A task waits until the broker has registered again."""
        batch = self.batch(subscribe="rs", failOnDataLoss="false")
        self.assertEqual(self.while_away(lambda: self.read(batch), "namesrv"), bodies("rs", 10))

    def test_waiting_costs_no_cpu(self) -> None:
        """Two seconds of waiting cost a small part of a second, including the client's thread."""
        batch = self.batch(subscribe="rs", serverWaitMs=2000)
        self.cluster.stop()
        begin = time.process_time()
        self.assertRaises(ReadFailed, self.read, batch)
        self.assertLess(time.process_time() - begin, 0.7)


class DriverTests(ClusterCase):
    """The driver of a stream during restarts."""

    def test_a_stream_rides_out_restarts(self) -> None:
        """It waits for the broker and for the name server, and reads each row once."""
        self.cluster.send("rs", bodies("rs", 5))
        for way in ({"subscribe": "rs"}, {"subscribePattern": "r."},
                    {"assign": '{"rs":{"broker-a":[0]}}'}):
            offset = self.driver(**way).run().offset
            for name in (A, "namesrv"):
                self.lines.clear()
                driver = self.while_away(self.driver(offset, **way).run, name)
                self.assertEqual((driver.rows(), driver.offset), ([], offset))
                self.assertEqual(len(self.said("waiting for up to")), 1, msg=str(self.lines))
            self.assertEqual(self.said("skipped"), [])

    def test_a_stream_fails_when_a_broker_stays_away(self) -> None:
        """The error names the broker, and does not advise to skip messages."""
        self.cluster.send("rs", bodies("rs", 5))
        offset = self.driver(subscribe="rs").run().offset
        self.cluster.stop()
        for fails in ("true", "false"):
            driver = self.driver(offset, subscribe="rs", failOnDataLoss=fails, serverWaitMs=300)
            error = str(self.assertRaises(StillAway, driver.run))
            self.assertIn("no broker is registered at a name server", error)
            self.assertIn("serverWaitMs", error)
            self.assertNotIn("failOnDataLoss", error)
        self.cluster.stop("namesrv")
        driver = self.driver(offset, subscribe="rs", serverWaitMs=300)
        self.assertIn("no name server answers", str(self.assertRaises(StillAway, driver.run)))

    def test_a_deleted_topic_does_not_stop_the_others(self) -> None:
        """The remaining topic is read, and a topic that is made again from its first message."""
        self.cluster.send("a", bodies("a", 3))
        self.cluster.send("b", bodies("b", 3))
        for way, count in (({"subscribe": "a,b"}, 3), ({"subscribePattern": "[ab]"}, 2)):
            offset = self.driver(**way).run().offset
            self.cluster.delete("b")
            error = str(self.assertRaises(DataLoss, self.driver(offset, **way).run))
            self.assertIn("topic b, broker broker-a, queue 0: the topic is gone", error)
            self.cluster.send("a", [b"more"])
            driver = self.driver(offset, failOnDataLoss="false", **way)
            self.assertEqual(self.bodies(driver.run()), [b"more"])
            lost = [line for line in self.said("skipped") if "topic b" in line]
            self.assertEqual(len(lost), 4)
            self.assertIn("queue 0: the topic is gone, broker broker-a has no such topic, "
                          f"offset {count} was next", lost[0])
            self.cluster.send("b", bodies("new", 2))
            self.assertEqual(self.bodies(driver.run()), [b"more", *bodies("new", 2)])
            self.lines.clear()

    def test_a_queue_that_lost_its_tail_goes_on_at_its_new_end(self) -> None:
        """No row is read twice."""
        self.cluster.send("t", bodies("t", 6))
        self.cluster.stop()
        self.cluster.copy_store(self.folder / "older")
        self.cluster.start()
        self.cluster.send("t", bodies("t", 3, 6))
        offset = self.driver(subscribe="t").run().offset
        self.cluster.stop()
        self.cluster.replace_store(self.folder / "older")
        self.cluster.start()
        error = str(self.assertRaises(DataLoss, self.driver(offset, subscribe="t").run))
        self.assertIn("the queue ends at 6, offset 9 was next", error)
        driver = self.driver(offset, subscribe="t", failOnDataLoss="false").run()
        self.assertEqual(driver.rows(), [])
        [line] = self.said("the queue ends at 6")
        self.assertIn("3 offsets that were read are gone, 6 to 8, and it continues at 6", line)
        self.cluster.send("t", [b"later"])
        self.assertEqual(self.bodies(driver.run()), [b"later"])


    def test_a_topic_that_was_made_again_is_seen(self) -> None:
        """It has more messages than before, and all of them are read."""
        self.cluster.send("t", bodies("t", 3))
        old = {"t": {A: {"0": 3, "1": 0, "2": 0, "3": 0}}}
        for broker_restarts, count in ((False, 7), (True, 12)):
            offset = self.driver(subscribe="t").run().offset
            self.cluster.delete("t")
            self.cluster.send("t", bodies("new", count))
            if broker_restarts:
                self.cluster.stop()
                self.cluster.start()
            error = str(self.assertRaises(DataLoss, self.driver(offset, subscribe="t").run))
            self.assertIn("topic t, broker broker-a, queue 0: the message before offset", error)
            driver = self.driver(offset, subscribe="t", failOnDataLoss="false").run()
            self.assertEqual(self.bodies(driver), sorted(bodies("new", count)))
            self.cluster.send("t", [b"later"])
            self.assertEqual(self.bodies(driver.run()),
                             sorted([*bodies("new", count), b"later"]))
        # A checkpoint of an earlier version has no marks.
        driver = self.driver(old, subscribe="t").run()
        self.assertEqual(self.bodies(driver), sorted([*bodies("new", 9, 3), b"later"]))

    def test_a_topic_that_changes_between_its_end_and_its_mark_is_seen(self) -> None:
        """Without the mark, messages of the new topic would count as the planned ones."""
        real = StreamEnds.marks
        for there in (0, 2):
            for fails in ("true", "false"):
                self.cluster.send("t", bodies("t", 6))
                offset = self.driver(subscribe="t").run().offset
                self.cluster.send("t", bodies("t", 4, 6))
                changes = iter([True])

                def marks(finder: StreamEnds, offsets: Any, there: int = there,
                          changes: Iterator[bool] = changes) -> Any:
                    # The end of the next micro-batch, which was found just now, is 10.
                    if 10 not in offsets.values() or not next(changes, False):
                        return real(finder, offsets)
                    self.cluster.delete("t")
                    if there:
                        self.cluster.send("t", bodies("new", there))
                    try:
                        return real(finder, offsets)
                    finally:
                        self.cluster.send("t", bodies("new", 12 - there, there))

                with mock.patch.object(StreamEnds, "marks", marks):
                    driver = self.driver(offset, subscribe="t", failOnDataLoss=fails)
                    if fails == "true":
                        self.assertRaises(DataLoss, driver.run)
                    else:
                        # The first run ends where the topic ended when it began.
                        driver.run()
                        self.assertEqual(self.bodies(driver.run()), sorted(bodies("new", 12)))
                self.assertFalse(next(changes, False))
                self.cluster.delete("t")

    def test_a_tail_that_was_replaced_is_read_from_its_first_new_message(self) -> None:
        """The broker lost its tail, and has got more messages than before since then."""
        self.cluster.send("t", bodies("t", 6))
        self.cluster.stop()
        self.cluster.copy_store(self.folder / "older")
        self.cluster.start()
        self.cluster.send("t", bodies("lost", 3))
        offset = self.driver(subscribe="t").run().offset
        self.cluster.stop()
        self.cluster.replace_store(self.folder / "older")
        self.cluster.start()
        self.cluster.send("t", bodies("new", 5))
        driver = self.driver(offset, subscribe="t", failOnDataLoss="false").run()
        self.assertEqual(self.bodies(driver), bodies("new", 5))
        [line] = self.said("the message before offset 9")
        self.assertIn("it continues at 6", line)


    def planned(self, offset: Any, **options: Any) -> tuple[Any, list[Any], Any]:
        """Plan a micro-batch; :returns: the reader of its tasks, its partitions, and its end."""
        driver = self.driver(offset, **options)
        driver.begin()
        reader = driver._reader
        end = as_json(reader.latestOffset(driver.offset, reader.getDefaultReadLimit()))
        parts = pickle.loads(pickle.dumps(reader.partitions(driver.offset, end)))
        reader.stop()
        return driver._tasks, parts, end

    def test_a_topic_that_is_made_again_after_a_micro_batch_was_planned(self) -> None:
        """The driver may die in between: new messages do not belong to it, and are read once."""
        for old, new in ((6, 9), (6, 4), (6, 6)):
            topic = f"t{new}"
            self.cluster.send(topic, bodies("old", 2))
            offset = self.driver(subscribe=topic).run().offset
            self.cluster.send(topic, bodies("old", old - 2, 2))
            lossless = self.planned(offset, subscribe=topic)
            tasks, parts, end = self.planned(offset, subscribe=topic, failOnDataLoss="false")
            self.cluster.delete(topic)
            self.cluster.send(topic, bodies("new", new))
            self.assertRaises(DataLoss, self.read, lossless[:2])
            self.assertEqual(self.read((tasks, parts)), [])
            [line] = self.said("4 offsets are skipped")
            self.assertIn(f"topic {topic}, broker broker-a, queue 0, offset 2 is not there", line)
            self.assertIn("4 offsets are skipped, 2 to 5", line)
            driver = self.driver(end, subscribe=topic, failOnDataLoss="false").run()
            self.cluster.send(topic, [b"later"])
            self.assertEqual(self.bodies(driver.run()), sorted([*bodies("new", new), b"later"]))
            self.lines.clear()

    def test_a_tail_that_is_replaced_after_a_micro_batch_was_planned(self) -> None:
        """The rest of the range and the messages that replaced its end are read once, also in
        pieces.
        """
        self.cluster.send("t", bodies("t", 6))
        self.cluster.stop()
        self.cluster.copy_store(self.folder / "older")
        self.cluster.start()
        self.cluster.send("t", bodies("lost", 3))
        planned = [self.planned(None, subscribe="t", failOnDataLoss="false", **more)
                   for more in ({}, {"maxRecordsPerPartition": 2})]
        self.cluster.stop()
        self.cluster.replace_store(self.folder / "older")
        self.cluster.start()
        self.cluster.send("t", bodies("new", 5))
        for tasks, parts, end in planned:
            self.assertEqual(self.read((tasks, parts)), bodies("t", 6))
            driver = self.driver(end, subscribe="t", failOnDataLoss="false").run()
            self.assertEqual(self.bodies(driver), bodies("new", 5))

    def test_a_topic_that_is_made_again_while_a_task_reads(self) -> None:
        """The task gives no new message under an old offset, and needs no second try."""
        original = queue_reader.BATCH_ROWS
        self.addCleanup(setattr, queue_reader, "BATCH_ROWS", original)
        queue_reader.BATCH_ROWS = 1  # type: ignore[misc]
        for topic, count in (("t", 8), ("u", 3)):
            # A topic that has fewer messages than were read, and one that has more.
            self.cluster.send(topic, bodies("old", 6))
            tasks, parts, _ = self.planned(None, subscribe=topic, failOnDataLoss="false",
                                           columns="body", pullBatchSize="1")
            [part] = parts
            rows = tasks.read(part)
            found = [row["body"] for row in next(rows).to_pylist()]
            self.cluster.delete(topic)
            self.cluster.send(topic, bodies("new", count))
            found += [row["body"] for batch in rows for row in batch.to_pylist()]
            self.assertEqual(found, bodies("old", 6)[:len(found)])
            self.assertEqual(len(self.said(f"topic {topic}, ")), 1, msg=str(self.lines))
            self.assertEqual(self.read((tasks, parts)), [])

    def test_a_query_fails_for_a_topic_that_is_made_again_while_a_task_reads(self) -> None:
        """With failOnDataLoss the error names the lost messages."""
        self.cluster.send("t", bodies("old", 6))
        tasks, parts, _ = self.planned(None, subscribe="t", columns="body", pullBatchSize="1")
        original = queue_reader.BATCH_ROWS
        self.addCleanup(setattr, queue_reader, "BATCH_ROWS", original)
        queue_reader.BATCH_ROWS = 1  # type: ignore[misc]
        rows = tasks.read(parts[0])
        next(rows)
        self.cluster.delete("t")
        self.cluster.send("t", bodies("new", 8))
        self.assertIn("the topic was created again or lost its end",
                      str(self.assertRaises(DataLoss, list, rows)))


class TwoBrokersTests(ClusterCase):
    """A topic on two brokers, of which one is down."""

    brokers = (A, B)

    def setUp(self) -> None:
        super().setUp()
        self.cluster.send("t", bodies("t", 4), broker=A)
        self.cluster.send("t", bodies("t", 4, 4), broker=B)

    def test_a_stream_waits_for_the_broker(self) -> None:
        """Its queues are down, although the topic exists on the other broker."""
        offset = self.driver(subscribe="t").run().offset
        for fails in ("true", "false"):
            self.lines.clear()
            driver = self.driver(offset, subscribe="t", failOnDataLoss=fails)
            self.while_away(driver.run, B)
            [line] = self.said("waiting for up to")
            self.assertIn("topic t, broker broker-b, queue 0: broker broker-b has no master", line)
            self.cluster.send("t", [fails.encode()], broker=B)
            self.assertEqual(self.bodies(driver.run()), [fails.encode()])
            offset = driver.offset

    def test_a_broker_that_was_removed_for_good(self) -> None:
        """It counts as lost if an operator says so and it is not registered."""
        removed = {"subscribe": "t", "removedBrokers": "broker-b", "serverWaitMs": 300}
        half = {"t": {A: {"0": 4}, B: {"0": 2}}}
        planned = {"t": {A: {"0": 4}, B: {"0": 4}}}
        self.assertEqual(self.bodies(self.driver(half, **removed).run()), bodies("t", 2, 6))
        self.cluster.stop(B)
        error = str(self.assertRaises(
            StillAway, self.driver(half, subscribe="t", serverWaitMs=300).run))
        self.assertIn("the option removedBrokers=broker-b says so", error)
        error = str(self.assertRaises(DataLoss, self.driver(half, **removed).run))
        self.assertIn("topic t, broker broker-b, queue 0: broker broker-b was removed (option "
                      "removedBrokers), offset 2 was next", error)
        self.lines.clear()
        self.cluster.send("t", [b"more"], broker=A)
        driver = self.driver(half, failOnDataLoss="false", **removed).run()
        self.assertEqual(self.bodies(driver), [b"more"])
        [line] = self.said("skipped")
        self.assertIn("its messages from offset 2 on are skipped", line)
        # A micro-batch that was planned before the removal is read again after a restart.
        reader = driver._reader
        tasks = [part for part in reader.partitions(half, planned) if part.value.broker_name == B]
        self.assertEqual(self.read((driver._tasks, tasks)), [])
        self.assertIn("2 offsets are skipped, 2 to 3", self.said("skipped")[-1])
        # It was not removed after all.
        self.cluster.start(B)
        self.assertEqual(self.bodies(self.driver(
            driver.offset, failOnDataLoss="false", **removed).run()), bodies("t", 2, 6))

    def test_a_static_topic_that_is_deleted(self) -> None:
        """It is lost if the broker of its queue says so, and down while that broker is down."""
        with Session(self.cluster.namesrv) as session:
            list(update_static_topic(session, topic="s", brokers=f"{A},{B}", clusters=None,
                                     total=2, file=None, force=False))
        with Client(self.cluster.namesrv, timeout_s=30) as client:
            wait_until("the route has both", lambda: len(client.read_queues("s", again=True)) == 2)
            queues = client.read_queues("s")
            producer = Producer(client=client, timeout_s=30)
            for number in range(4):
                producer.send(Message("s", b"s-%d" % number), queue=queues[number % 2])
        logical = queues[0].broker_name
        self.assertTrue(logical.startswith("__syslo__"))
        for fails in ("true", "false"):
            self.lines.clear()
            driver = self.driver(subscribe="s", failOnDataLoss=fails)
            driver.begin()
            driver.batch()
            self.assertEqual(self.bodies(driver), bodies("s", 4))
            for name in (A, B):
                self.cluster.stop(name)
                later = Later(driver.batch)
                wait_until("a warning", lambda: self.said("waiting for up to") or later.is_over)  # noqa: B023
                self.cluster.start(name)
                self.assertFalse(later.result())
                self.assertEqual(self.said("skipped"), [])
                self.lines.clear()
            driver.stop()
        driver = self.driver(driver.offset, subscribe="s", failOnDataLoss="false")
        driver.batch()
        self.cluster.delete("s", A, B)
        self.assertFalse(driver.batch())
        self.assertEqual(len(self.said("on are skipped")), 2, msg=str(self.lines))
        driver.stop()
        # A query that did not see the route cannot know who had the queues.
        away = self.driver(driver.offset, subscribe="s", failOnDataLoss="false", serverWaitMs=300)
        error = str(self.assertRaises(StillAway, away.run))
        self.assertIn(f"the option removedBrokers={logical} says so", error)
        said = self.driver(driver.offset, subscribe="s", failOnDataLoss="false",
                           removedBrokers=logical).run()
        self.assertEqual(said.rows(), [])

    def test_a_batch_waits_for_a_broker_that_it_names(self) -> None:
        """The broker is named by assign, by offsets, or by the option brokers."""
        for options in ({"assign": '{"t":{"broker-a":[0],"broker-b":[0]}}'},
                        {"subscribe": "t", "startingOffsets": '{"t":{"broker-b":{"0":0}}}'},
                        {"subscribe": "t", "brokers": "broker-a, broker-b"}):
            self.lines.clear()
            found = self.while_away(lambda options=options: self.read(self.batch(**options)), B)
            self.assertEqual(found, bodies("t", 8), msg=str(options))
            self.assertIn("broker-b", self.said("waiting for up to")[0])
        self.cluster.stop(B)
        error = str(self.assertRaises(StillAway, self.batch, subscribe="t", serverWaitMs=200,
                                      brokers="broker-b"))
        self.assertIn("option brokers: broker-b: not registered", error)

    def test_a_broker_that_registers_between_two_questions_is_waited_for(self) -> None:
        """A broker that the first route lacks and the next one has is not missing."""
        read_queues = Client.read_queues
        for options in ({"assign": '{"t":{"broker-a":[0],"broker-b":[0]}}'},
                        {"subscribe": "t", "startingOffsets": '{"t":{"broker-b":{"0":0}}}'},
                        {"subscribe": "t", "endingOffsets": '{"t":{"broker-b":{"0":4}}}'}):
            routes = iter([1])

            def without_b(client: Client, topic: str, *, again: bool = False,
                          routes: Iterator[int] = routes) -> list[MessageQueue]:
                queues = read_queues(client, topic, again=again)
                is_first = next(routes, None) is not None
                return [one for one in queues if one.broker_name != B] if is_first else queues

            with mock.patch.object(Client, "read_queues", without_b):
                self.assertEqual(self.read(self.batch(**options)), bodies("t", 8), msg=str(options))
        error = str(self.assertRaises(OptionError, self.batch, subscribe="t",
                                      startingOffsets='{"u":{"broker-b":{"0":0}}}'))
        self.assertEqual(error, "option startingOffsets: topic u, broker broker-b, queue 0: the "
                         "query does not read this queue")

    def test_a_batch_waits_for_the_only_broker_of_a_topic_that_it_names(self) -> None:
        """No name server knows the topic then, though another broker is registered."""
        self.cluster.send("only", bodies("o", 4), broker=B)
        for options in ({"assign": '{"t":{"broker-a":[0]},"only":{"broker-b":[0,1]}}'},
                        {"subscribe": "only", "startingOffsets": '{"only":{"broker-b":{"0":0}}}'},
                        {"subscribe": "only", "endingOffsets": '{"only":{"broker-b":{"0":4}}}'}):
            self.lines.clear()
            found = self.while_away(lambda options=options: self.read(self.batch(**options)), B)
            self.assertEqual([body for body in found if body[:1] == b"o"], bodies("o", 4),
                             msg=str(options))
            self.assertIn("broker broker-b has no master", self.said("waiting for up to")[0])
        self.cluster.delete("only", B)
        error = str(self.assertRaises(ValueError, self.batch, serverWaitMs=9000,
                                      assign='{"only":{"broker-b":[0]}}'))
        self.assertIn("topic only: there is no such topic", error)
        self.assertEqual(len(self.said("waiting for up to")), 1, msg=str(self.lines))

    def test_a_batch_fails_when_a_broker_returns_that_it_missed(self) -> None:
        """Its tasks check this after their last row; a broker that is new to the
        topic is not a fault.
        """
        self.cluster.send("other", bodies("o", 2), broker=A)
        self.cluster.stop(B)
        batch = self.batch(subscribe="t,other")
        self.cluster.start(B)
        error = str(self.assertRaises(ReadFailed, self.read, batch))
        self.assertIn("topic t, broker broker-b, queue 0: the broker was away when", error)
        batch = self.batch(subscribe="other")
        time.sleep(0.005)
        self.cluster.send("other", bodies("new", 2), broker=B)
        self.assertEqual(self.read(batch), bodies("o", 2))

    def test_a_new_query_waits_for_the_only_broker(self) -> None:
        """An unknown topic is an error at once only while brokers are registered."""
        error = str(self.assertRaises(ValueError, self.batch, subscribe="nowhere"))
        self.assertIn("option subscribe: topic nowhere: there is no such topic", error)
        self.cluster.stop(B)
        for way in ({"subscribe": "t"}, {"subscribePattern": "t+"}):
            self.lines.clear()
            found = self.while_away(lambda way=way: self.read(self.batch(**way)), A)
            self.assertEqual(found, bodies("t", 4))


class SinkTests(ClusterCase):
    """The sink while a broker is down."""

    def writer(self, schema: Any = None, **options: Any) -> Any:
        """Return a writer as tasks get it; by default its rows have only a body."""
        given = {**self.cluster.options, "topic": "out", "serverWaitMs": 30_000,
                 "fetchOffset.retryIntervalMs": 50, **options}
        source = RocketMQDataSource({name.lower(): str(value) for name, value in given.items()})
        return pickle.loads(pickle.dumps(
            source.writer(schema or schema_of(body="binary"), False)))

    def batches(self, rows: list[bytes], between: Callable[[], Any] | None = None) -> Iterator[Any]:
        """Write two batches of rows, with an action between them."""
        half = len(rows) // 2
        yield pa.RecordBatch.from_pylist([{"body": row} for row in rows[:half]])
        if between is not None:
            between()
        yield pa.RecordBatch.from_pylist([{"body": row} for row in rows[half:]])

    def test_a_task_rides_out_a_restart(self) -> None:
        """Every row arrives, whether the broker is down at the begin of a task or later."""
        rows = bodies("r", 1000)
        writer = self.writer()
        self.while_away(lambda: writer.write(self.batches(rows)))
        self.assertEqual(len(self.said("waiting for up to")), 1)
        self.lines.clear()
        later = Later(lambda: writer.write(self.batches(rows, self.cluster.stop)))
        wait_until("a warning", lambda: self.said("waiting for up to") or later.is_over)
        self.cluster.start()
        self.assertEqual(later.result().rows, 1000)
        self.assertEqual(len(self.said("waiting for up to")), 1, msg=str(self.lines))
        found = self.read(self.batch(subscribe="out"))
        self.assertEqual(set(found), set(rows))
        self.assertGreaterEqual(len(found), 2000)

    def test_a_task_fails_when_the_broker_stays_away(self) -> None:
        """After the wait the error names the rows, the topic and the reason."""
        writer = self.writer(serverWaitMs=300)
        self.cluster.stop()
        error = str(self.assertRaises(WriteFailed, writer.write, self.batches(bodies("r", 10))))
        self.assertIn("partition 0, row 0, topic out: ", error)
        self.cluster.stop("namesrv")
        error = str(self.assertRaises(OptionError, self.writer))
        self.assertIn("option nameServer: no name server answers", error)


class SinkOfTwoTests(SinkTests):
    """The sink while one of two brokers is away, which alone has the topic."""

    brokers = (A, B)
    settings = {"autoCreateTopicEnable": "false"}  # noqa: RUF012

    def setUp(self) -> None:
        super().setUp()
        self.cluster.send("out", [b"first"], broker=B)

    def test_a_task_rides_out_a_restart(self) -> None:
        """A task that never saw the topic waits for its broker to register."""
        rows = bodies("r", 10)
        writer = self.writer()
        self.assertEqual(self.while_away(lambda: writer.write(self.batches(rows)), B).rows, 10)
        self.assertEqual(set(self.read(self.batch(subscribe="out"))), {b"first", *rows})

    def test_a_task_fails_when_the_broker_stays_away(self) -> None:
        """The wait ends with the error for a topic that does not exist."""
        writer = self.writer(serverWaitMs=300)
        self.cluster.stop(B)
        error = str(self.assertRaises(WriteFailed, writer.write, self.batches(bodies("r", 10))))
        self.assertIn("partition 0, row 0, topic out: ", error)
        self.assertIn("No topic route info in name server for the topic: out", error)

    def test_a_queue_of_a_broker_that_is_away(self) -> None:
        """A row that names a queue waits for the broker that has a queue of that number."""
        with Client(self.cluster.namesrv) as client:
            client.ask(self.cluster.address(A), RequestCode.UPDATE_AND_CREATE_TOPIC,
                       CreateTopicRequestHeader("out", "TBW102", 2, 2, 6, "SINGLE_TAG"))
        self.cluster.register()
        writer = self.writer(schema_of(body="binary", queueId="int"))
        row = pa.RecordBatch.from_pylist([{"body": b"row", "queueId": 3}], pa.schema(
            [("body", pa.binary()), ("queueId", pa.int32())]))
        self.assertEqual(self.while_away(lambda: writer.write(iter([row])), B).rows, 1)
        self.assertIn(b"row", self.read(self.batch(subscribe="out")))
