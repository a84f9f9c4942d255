"""A topic copied by Spark's own calls, in Spark's order and without Spark."""

from __future__ import annotations

import json
import pickle
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.interop.servers import wait_until
from tests.spark_bridge import records  # noqa: F401  (skips where the extra is not installed)
from tests.spark_bridge.topics import BROKER, Topics, pa, schema_of, topics
from twistmq.spark_bridge.source import RocketMQDataSource

#: The columns that README's example copies.
COPIED = {"body": "binary", "properties": "map<string,string>", "flag": "int"}


def source_of(box: Topics, **options: str) -> RocketMQDataSource:
    return RocketMQDataSource({name.lower(): value
                               for name, value in {**box.options, **options}.items()})


def read(box: Topics, **options: str) -> Iterator[Any]:
    """The record batches of a batch read."""
    source = source_of(box, **options)
    reader: Any = source.reader(source.schema())
    for part in reader.partitions():
        yield from reader.read(part)


def copy(box: Topics, topic: str, target: str) -> None:
    """Read a topic and write its rows to another."""
    writer: Any = source_of(box, topic=target).writer(schema_of(**COPIED), False)
    pickle.loads(pickle.dumps(writer)).write(
        read(box, subscribe=topic, columns=",".join(COPIED)))


class CopyTests(SynchronousTestCase):
    """README's section "Copy a topic"."""

    def test_a_topic_of_every_kind_of_message(self) -> None:
        """Plain, delayed and timed messages are there at once, as they were sent."""
        with topics(messageDelayLevel="1s 1h") as box:
            box.fill("first", [1])
            box.producer.send("first", b"level", delay_level=1, tags="t", keys=["a", "b"],
                              properties={"mine": "1"})
            box.producer.send("first", b"timed", delay_ms=1200, tags="t")
            wait_until("all are delivered", lambda: len(box.stored("first")) == 3, 30)
            sent = {one.body: one.properties_map() for one in box.stored("first")}
            self.assertIn("REAL_TOPIC", sent[b"level"])
            self.assertIn("TIMER_OUT_MS", sent[b"timed"])
            box.fill("second", [0])
            copy(box, "first", "second")
            found = {one.body: one.properties_map() for one in box.stored("second")}
        self.assertEqual(set(found), set(sent))
        for body, properties in found.items():
            self.assertEqual(properties["UNIQ_KEY"], sent[body]["UNIQ_KEY"])
            self.assertEqual([name for name in properties if name.startswith(
                ("REAL_", "TIMER_", "DELAY", "RETRY"))], [])
        self.assertEqual([found[b"level"][name] for name in ("TAGS", "KEYS", "mine")],
                         ["t", "a b", "1"])


class ErrorTests(SynchronousTestCase):
    """What a user sees of a wrong query."""

    def test_each_error_has_one_traceback(self) -> None:
        """No error shows the one that it was made of: it names what that one said."""
        far = json.dumps({"t": {BROKER: {"0": 77}}})
        wrong: list[dict[str, str]] = [
            {"subscribe": "nope"}, {"subscribe": "t", "startingOffsets": far},
            {"subscribe": "t", "startingOffsets": "{"}, {"subscribePattern": "["},
            {"subscribe": "t", "startingTimestamp": "now"},
            {"assign": json.dumps({"t": {BROKER: [99]}})}, {"subscribe": "t", "columns": "x"},
            {"subscribe": "t", "subExpression": "a >", "subExpressionType": "SQL92"},
            {"subscribe": "t", "nameServer": "127.0.0.1:9"}]
        with topics() as box:
            box.fill("t", [3])
            for options in wrong:
                text = self.shown(lambda options=options: list(read(box, **options)))
                self.assertEqual(text.count("Traceback (most recent call last)"), 1, msg=text)
            writer: Any = source_of(box, topic="t").writer(schema_of(body="string"), False)
            for row in ({"body": None}, {"body": "x", "queueId": 99}, {"body": "x", "queueId": -1}):
                text = self.shown(lambda row=row: writer.write(
                    iter([pa.RecordBatch.from_pylist([row])])))
                self.assertEqual(text.count("Traceback (most recent call last)"), 1, msg=text)

    def shown(self, query: Callable[[], object]) -> str:
        """What Python shows of a query that fails."""
        try:
            query()
        except Exception:
            return traceback.format_exc()
        return self.fail("the query did not fail")  # type: ignore[no-any-return]
