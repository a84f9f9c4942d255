"""Messages whose files a broker deleted because of their age before they were read."""

from __future__ import annotations

import json
import re

from tests.interop.servers import wait_until
from tests.spark_bridge import records  # noqa: F401  (skips where the extra is not installed)
from tests.spark_bridge.test_availability import A, ClusterCase
from twistmq.client import Client, MessageQueue
from twistmq.integrations.tables.data_loss import DataLoss

#: Ten of them fill a file of the commit log.
SIZE = 100_000
COUNT = 25
#: So many were read before.
READ = 3


def large(begin: int, end: int) -> list[bytes]:
    """Return bodies that begin with their numbers."""
    return [b"%03d" % number + b"." * SIZE for number in range(begin, end)]


class ExpiryTests(ClusterCase):
    """A queue of 25 large messages, in three files, of which a broker removes the first two."""

    #: Files go when what points into them is on disk.
    settings = {"fileReservedTime": "0", "flushIntervalConsumeQueue": "20",  # noqa: RUF012
                "flushConsumeQueueThoroughInterval": "20"}
    #: Whether the queue begins with the first message that is left, as it does some seconds later.
    trims = False
    why = "the next message there is {}"

    def setUp(self) -> None:
        super().setUp()
        for begin in range(0, COUNT, 5):
            self.cluster.send("t", large(begin, begin + 5))

    def expire(self, count: int = COUNT) -> int:
        """Remove all files but the last.

        :param count: how many messages the queue had.
        :returns: the offset of the first message that is left.
        """
        store = self.cluster.service().kernel.store
        queue = store.queues.find("t", 0)
        assert queue is not None
        now_ms = 1 << 42

        def is_removed() -> bool:
            self.cluster.call(store.log_retention.remove_expired)
            self.cluster.call(lambda: store.log_retention.step(now_ms))
            return len(store.commit_log.starts) == 1

        def is_trimmed() -> bool:
            self.cluster.call(lambda: store.queue_retention.step(now_ms))
            return queue.min_offset > 0

        wait_until("the files are removed", is_removed)
        if self.trims:
            wait_until("the queue is trimmed", is_trimmed)
        with Client(self.cluster.namesrv, timeout_s=30) as client:
            found = next(client.read(MessageQueue("t", A, 0), 0)).offset
        assert READ < found < count
        return found

    def numbers(self, bodies: list[bytes]) -> list[int]:
        return sorted(int(body[:3]) for body in bodies)

    def check_lost(self, text: str, offset: int, first: int) -> None:
        """Check the text about messages that are missing."""
        self.assertIn(f"topic t, broker {A}, queue 0, offset {offset} is not there: "
                      + self.why.format(first), text)

    def check_said(self, offset: int, first: int) -> None:
        """Check the only line that was logged."""
        [line] = self.lines
        self.check_lost(line, offset, first)
        self.assertIn(f"{first - offset} offsets are skipped, {offset} to {first - 1}", line)
        self.lines.clear()

    def test_a_batch(self) -> None:
        """A batch that was planned before fails, or reads the rest and reports the number."""
        strict, lenient = self.batch(subscribe="t"), self.batch(subscribe="t",
                                                                failOnDataLoss="false")
        first = self.expire()
        error = str(self.assertRaises(DataLoss, self.read, strict))
        self.check_lost(error, 0, first)
        self.assertIn("failOnDataLoss=false the remaining ones are read", error)
        self.assertEqual(self.numbers(self.read(lenient)), list(range(first, COUNT)))
        self.check_said(0, first)

    def test_a_stream(self) -> None:
        """Its checkpoint is before the first remaining message, and its next one is not."""
        driver = self.driver(subscribe="t", startingOffsets=json.dumps({"t": {A: {"0": 0}}}),
                             maxOffsetsPerTrigger=READ)
        driver.begin()
        driver.batch()
        driver.stop()
        first = self.expire()
        self.check_lost(str(self.assertRaises(DataLoss, self.driver(
            driver.offset, subscribe="t").run)), READ, first)
        lenient = self.driver(driver.offset, subscribe="t", failOnDataLoss="false").run()
        self.assertEqual(self.numbers([row[2] for row in lenient.rows()]),
                         list(range(first, COUNT)))
        self.check_said(READ, first)
        self.cluster.send("t", large(COUNT, COUNT + 1))
        self.assertEqual(len(self.driver(lenient.offset, subscribe="t").run().rows()), 1)

    def test_an_expression(self) -> None:
        """A lost message may have had one of the tags, although brokers skip the others."""
        batches = [self.batch(subscribe="t", subExpression="red || green", failOnDataLoss=fails)
                   for fails in ("true", "false")]
        first = self.expire()
        error = str(self.assertRaises(DataLoss, self.read, batches[0]))
        self.assertIn(f"topic t, broker {A}, queue 0, offset 0 is not there: ", error)
        self.assertEqual(self.read(batches[1]), [])
        counts = [int(found) for line in self.lines
                  for found in re.findall(r"; (\d+) offsets are skipped", line)]
        self.assertEqual(sum(counts), first, msg=str(self.lines))

    def test_a_starting_offset(self) -> None:
        """A given start reports how many messages are skipped."""
        first = self.expire()
        options = {"subscribe": "t", "startingOffsets": json.dumps({"t": {A: {"0": 2}}})}
        found = self.read(self.batch(failOnDataLoss="false", **options))
        self.assertEqual(self.numbers(found), list(range(first, COUNT)))
        [line] = self.lines
        self.assertIn(f"{first - 2} offsets are skipped, 2 to {first - 1}", line)
        error = str(self.assertRaises(DataLoss, lambda: self.read(self.batch(**options))))
        self.assertIn("offset 2 is not there", error)


class TrimmedTests(ExpiryTests):
    """The queue begins with the first remaining message."""

    trims = True
    why = "the queue begins at {}"

    def test_a_queue_that_is_new_to_a_stream(self) -> None:
        """It was added to a topic of the stream, so its first messages count as lost."""
        first = self.expire()
        known = {"t": {A: {"1": 0, "2": 0, "3": 0}}}
        error = str(self.assertRaises(DataLoss, self.driver(known, subscribe="t").run))
        self.assertIn(f"topic t, broker {A}, queue 0: the queue is new to the query and begins at "
                      f"{first}", error)
        driver = self.driver(known, subscribe="t", failOnDataLoss="false")
        driver.trigger()
        driver.trigger()
        self.assertEqual(self.numbers([row[2] for row in driver.rows()]),
                         list(range(first, COUNT)))
        [line] = self.lines
        self.assertIn(f"{first} offsets are skipped, 0 to {first - 1}", line)
        driver.stop()

    def test_a_topic_that_was_made_again(self) -> None:
        """Its new messages expire before the stream looks: the new end is lower, or higher."""
        for more, count in ((0, 20), (8, 30)):
            if more:
                self.cluster.send("t", large(0, more))
            offset = self.driver(subscribe="t", failOnDataLoss="false").run().offset
            self.cluster.delete("t")
            for begin in range(0, count, 5):
                self.cluster.send("t", large(begin, begin + 5))
            first = self.expire(count)
            driver = self.driver(offset, subscribe="t", failOnDataLoss="false").run()
            self.assertEqual(self.numbers([row[2] for row in driver.rows()]),
                             list(range(first, count)))
            [line] = [line for line in self.lines if "has other messages now" in line]
            self.assertIn(f"{first} offsets are skipped, 0 to {first - 1}", line)
            self.lines.clear()

    def test_a_topic_or_broker_that_is_new_to_a_stream(self) -> None:
        """Earlier messages do not count as lost for it."""
        first = self.expire()
        self.cluster.send("u", [b"u"])
        for known in ({"u": {A: {"0": 1}}}, {"t": {"broker-z": {"0": 0}}, "u": {A: {"0": 1}}}):
            driver = self.driver(known, subscribe="t,u", removedBrokers="broker-z",
                                 failOnDataLoss="false")
            driver.trigger()
            driver.trigger()
            self.assertEqual(self.numbers([row[2] for row in driver.rows()]),
                             list(range(first, COUNT)))
            self.assertEqual([line for line in self.lines if "is new" in line], [])
            driver.stop()
