"""A topic is copied by the calls of Spark, with and without Spark."""

from __future__ import annotations

import json
import pickle
import traceback
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.integrations.tables.logs import LogWriter
from tests.integrations.tables.topics import BROKER, Topics, topics
from tests.interop.servers import wait_until
from tests.spark_bridge import records  # noqa: F401  (skips where the extra is not installed)
from tests.spark_bridge.topics import pa, schema_of
from twistmq import spark_bridge
from twistmq.integrations import tables
from twistmq.integrations.tables.errors import ShortError
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.headers.namesrv import DeleteTopicFromNamesrvRequestHeader
from twistmq.protocol.headers.topic import DeleteTopicRequestHeader
from twistmq.spark_bridge.source import RocketMQDataSource
from twistmq.spark_bridge.store_source import StoreSource
from twistmq.spark_bridge.unsuitable import UnsuitableEnvironment

#: The columns that README's example copies.
COPIED = {"body": "binary", "properties": "map<string,string>", "flag": "int"}


def source_of(box: Topics, **options: str) -> RocketMQDataSource:
    return RocketMQDataSource({name.lower(): value
                               for name, value in {**box.options, **options}.items()})


def read(box: Topics, **options: str) -> Iterator[Any]:
    """Return the record batches of a batch read."""
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
    """The section "Copy a topic" of the README."""

    def test_a_topic_of_every_kind_of_message(self) -> None:
        """Ordinary, delayed and timed messages are copied immediately and unchanged."""
        with topics(messageDelayLevel="1s 1h") as box:
            box.fill("first", [1])
            box.producer.send("first", b"level", delay_level=1, tags="t", keys=["a", "b"],
                              properties={"mine": "1"})
            box.producer.send("first", b"timed", delay_s=1.2, tags="t")
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
    """The errors of a wrong query, as a user sees them."""

    def test_each_error_has_one_traceback(self) -> None:
        """No error shows its cause, because its own text has the cause."""
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
            for row in ({"body": None}, {"body": ""}, {"body": "x", "queueId": 99},
                        {"body": "x", "queueId": -1}):
                text = self.shown(lambda row=row: writer.write(
                    iter([pa.RecordBatch.from_pylist([row])])))
                self.assertEqual(text.count("Traceback (most recent call last)"), 1, msg=text)

    def test_errors_within_the_handling_of_another(self) -> None:
        """An error during the handling of another one is shown alone as well."""
        with topics() as box:
            box.fill("t", [3])
            source = source_of(box, subscribe="t", deletionCheckMs="0", serverWaitMs="1")
            reader: Any = source.reader(source.schema())
            [part] = [part for part in reader.partitions() if part.value.size]
            box.client.ask(box.broker.broker_address, RequestCode.DELETE_TOPIC_IN_BROKER,
                           DeleteTopicRequestHeader(topic="t"))
            box.client.ask_name_server(RequestCode.DELETE_TOPIC_IN_NAMESRV,
                                       DeleteTopicFromNamesrvRequestHeader(topic="t"))
            text = self.shown(lambda: list(reader.read(part)))
            self.assertIn("DataLoss: topic t", text)
            self.assertEqual(text.count("Traceback (most recent call last)"), 1, msg=text)
        root = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        log = LogWriter(root / "commitlog")
        for number in range(50):
            log.add(body=b"%d" % number * 300)
        log.put(log.written[2][0] + 4, b"\0\0\0\0")
        # The size of this one leads into the next record, which is seen only by its content.
        log.put(log.written[30][0] + 90, b"\xff" * 40)
        store = StoreSource({"path": str(root)})
        reader = store.reader(store.schema())
        parts = reader.partitions()
        log.path(log.place).unlink()
        for part, error in zip((parts[0], parts[-1]), ("StoreDamaged", "LostFile"), strict=True):
            text = self.shown(lambda part=part: list(reader.read(part)))
            self.assertIn(error, text)
            self.assertEqual(text.count("Traceback (most recent call last)"), 1, msg=text)

    def test_each_error_of_the_bridge_is_short(self) -> None:
        """This is so for each class of errors."""
        found = []
        for info in (*iter_modules(spark_bridge.__path__, "twistmq.spark_bridge."),
                     *iter_modules(tables.__path__, "twistmq.integrations.tables.")):
            module = import_module(info.name)
            found += [one for one in vars(module).values() if isinstance(one, type)
                      and issubclass(one, Exception) and one.__module__ == module.__name__
                      and not one.__name__.startswith("_")]
        self.assertGreater(len(found), 10)
        for one in found:
            if one is not UnsuitableEnvironment:
                self.assertTrue(issubclass(one, ShortError), msg=one.__name__)
                self.assertTrue(one("text").__suppress_context__, msg=one.__name__)

    def shown(self, query: Callable[[], object]) -> str:
        """Return the output of Python for a query that fails."""
        try:
            query()
        except Exception:
            return traceback.format_exc()
        return self.fail("the query did not fail")  # type: ignore[no-any-return]
