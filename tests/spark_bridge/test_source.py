"""``spark.read.format("rocketmq")``: its rows, their bounds, and its errors."""

from __future__ import annotations

import json
import pickle
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.integrations.tables.topics import BROKER, Topics, topics
from tests.spark_bridge import records  # noqa: F401  (skips where the extra is not installed)
from tests.spark_bridge.session import spark_session
from tests.spark_bridge.topics import schema_of
from twistmq.client import Message
from twistmq.integrations.tables.options import time_text
from twistmq.protocol.message_id import offset_message_id
from twistmq.protocol.record import host_text
from twistmq.spark_bridge.source import RocketMQDataSource


def read(box: Topics, **options: Any) -> Any:
    """Return a DataFrame."""
    return spark_session().read.format("rocketmq").options(
        **box.options, **{name: str(value) for name, value in options.items()}).load()


def planned(
    box: Topics, schema: Any = None, **options: Any
) -> tuple[list[Any], list[Any]]:
    """Plan a source here and read it from a copy, as Spark does, without Spark.

    :returns: the partitions, and the rows of each.
    """
    given = {name.lower(): str(value) for name, value in {**box.options, **options}.items()}
    source = RocketMQDataSource(given)
    reader: Any = source.reader(source.schema() if schema is None else schema)
    # Tasks are sent the reader as it is before the partitions are asked for.
    copy = pickle.loads(pickle.dumps(reader))
    parts = reader.partitions()
    assert isinstance(parts, list)
    return parts, [[row for batch in copy.read(part) for row in batch.to_pylist()]
                   for part in pickle.loads(pickle.dumps(parts))]


def found(box: Topics, **options: Any) -> list[tuple[int, int, bytes]]:
    """Return the queue, the offset and the body of each row, in order."""
    return sorted((row["queueId"], row["queueOffset"], row["body"])
                  for rows in planned(box, **options)[1] for row in rows)


def places(frame: Any) -> list[tuple[int, int, bytes]]:
    """Return the queue, the offset and the body of each row, in order."""
    return sorted((row.queueId, row.queueOffset, bytes(row.body))
                  for row in frame.select("queueId", "queueOffset", "body").collect())


def counted(box: Topics) -> int:
    """Return the number of messages that the broker has delivered."""
    return box.broker.call(lambda: box.broker.kernel.stats.get_total)


class SourceCase(SynchronousTestCase):
    """A broker with a topic of 3 queues, and a session."""

    settings: dict[str, str] = {}  # noqa: RUF012
    counts = (70, 50, 0, 30)

    def setUp(self) -> None:
        context = topics(**self.settings)
        self.box = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        self.sent = self.box.fill("orders", list(self.counts))

    def error(self, schema: Any = None, **options: Any) -> str:
        """Return the error of a read that fails."""
        try:
            planned(self.box, schema=schema, **options)
        except Exception as error:
            return str(error)
        return self.fail("the read did not fail")  # type: ignore[no-any-return]


class ReadTests(SourceCase):
    """Batches."""

    def test_all_columns(self) -> None:
        """Every column has the value of the record."""
        self.box.producer.send(Message("one", "größe".encode(), properties={
            "TAGS": "t", "KEYS": "k1 k2", "UNIQ_KEY": "0A", "mine": "yes"}, flag=7),
            queue=self.box.queue("one", 1))
        [record] = self.box.stored("one")
        [row] = read(self.box, subscribe="one").collect()
        found = row.asDict()
        self.assertEqual(found.pop("bornTimestamp").timestamp() * 1000, record.born_timestamp)
        self.assertEqual(found.pop("storeTimestamp").timestamp() * 1000, record.store_timestamp)
        self.assertEqual(found, {
            "topic": "one", "brokerName": BROKER, "queueId": 1, "queueOffset": 0,
            "commitLogOffset": record.physical_offset, "msgId": "0A",
            "offsetMsgId": offset_message_id(record.store_host, record.physical_offset),
            "keys": ["k1", "k2"], "tags": "t", "body": bytearray("größe".encode()),
            "properties": record.properties_map(), "flag": 7, "sysFlag": 0,
            "bornHost": host_text(record.born_host),
            "storeHost": self.box.broker.broker_address, "reconsumeTimes": 0,
            "preparedTransactionOffset": 0, "storeSize": record.size,
            "bodyCRC": record.body_crc})

    def test_properties_as_text(self) -> None:
        """The column has all properties as a JSON object, as in another connector."""
        with self.box.broker.client() as sender:
            sender.send("one", b"", queue_id=1, properties={"UNIQ_KEY": "0A", "mine": 'größe"'})
        [record] = self.box.stored("one")
        frame = read(self.box, subscribe="one", propertiesAs="string")
        self.assertEqual(frame.schema["properties"].dataType.simpleString(), "string")
        [row] = frame.collect()
        self.assertEqual(json.loads(row.properties), record.properties_map())
        [only] = read(self.box, subscribe="one", propertiesAs="string",
                      columns="properties").collect()
        self.assertEqual(only.properties, row.properties)

    def test_topics_of_a_namespace(self) -> None:
        """Topics of a namespace, called as inside of it, wherever options name them."""
        queue = self.box.queue("N%orders", 1)
        for body in (b"0", b"1", b"2"):
            self.box.producer.send("N%orders", body, queue=queue)
        wanted = [(1, offset, b"%d" % offset) for offset in range(3)]
        for options in ({"subscribe": "orders"}, {"subscribePattern": "ord.*"},
                        {"assign": json.dumps({"orders": {BROKER: [1]}})}):
            _, rows = planned(self.box, namespace="N", columns="topic,queueOffset,body",
                                  **options)
            self.assertEqual([(row["topic"], row["queueOffset"], row["body"])
                              for each in rows for row in each],
                             [("orders", offset, body) for _, offset, body in wanted])
        start = json.dumps({"orders": {BROKER: {"1": 2}}})
        self.assertEqual(found(self.box, subscribe="orders", namespace="N",
                               startingOffsets=start), wanted[2:])

    def test_topics_and_partitions(self) -> None:
        """Topics are given by name and by pattern; queues are divided; each row occurs once."""
        more = self.box.fill("orders_eu", [5])
        for options, count in (({"minPartitions": 9}, 9),
                               ({"maxRecordsPerPartition": 20}, 4 + 3 + 2)):
            parts = planned(self.box, subscribe="orders", **options)[0]
            self.assertEqual(len(parts), count)
            self.assertEqual(found(self.box, subscribe="orders", **options), sorted(self.sent))
        for options in ({"subscribe": "orders, orders_eu"}, {"subscribePattern": "orders.*"}):
            self.assertEqual(found(self.box, **options), sorted(self.sent + more))
        self.assertEqual(found(self.box, subscribePattern="nothing.*"), [])

    def test_some_queues_of_a_topic(self) -> None:
        """Only some queues of a topic are read."""
        frame = found(self.box, assign=json.dumps({"orders": {BROKER: [1, 3]}}))
        self.assertEqual(frame, [one for one in self.sent if one[0] in (1, 3)])

    def test_a_read_is_bounded_by_offsets(self) -> None:
        """A queue that is not named is read from its beginning to its end."""
        start = json.dumps({"orders": {BROKER: {"0": 60, "1": -2}}})
        end = json.dumps({"orders": {BROKER: {"1": 10, "3": -1}}})
        frame = found(self.box, subscribe="orders", startingOffsets=start, endingOffsets=end)
        self.assertEqual(frame, [
            one for one in self.sent
            if (one[0] == 0 and one[1] >= 60) or (one[0] == 1 and one[1] < 10) or one[0] == 3])

    def test_a_read_is_bounded_by_times(self) -> None:
        """From and to a time, for all queues and for one."""
        stored = sorted({one.store_timestamp for one in self.box.stored("orders")})
        middle = stored[len(stored) // 2]
        expected = [(one.queue_id, one.queue_offset, one.body)
                    for one in self.box.stored("orders") if one.store_timestamp >= middle]
        latest = {"subscribe": "orders", "startingOffsetsByTimestampStrategy": "latest"}
        frame = found(self.box, **latest, startingTimestamp=middle)
        self.assertEqual(frame, sorted(expected))
        frame = found(self.box, subscribe="orders", endingTimestamp=middle)
        self.assertEqual(frame, sorted(set(self.sent) - set(expected)))
        by_queue = json.dumps({"orders": {BROKER: {"1": stored[-1] + 60_000}}})
        frame = found(self.box, **latest, startingOffsetsByTimestamp=by_queue)
        self.assertEqual(frame, [one for one in self.sent if one[0] != 1])

    def test_a_queue_without_a_message_since_the_start(self) -> None:
        """The query fails, unless the strategy is to start at the end."""
        last = max(one.store_timestamp for one in self.box.stored("orders"))
        for begin, queue_id in ((0, 2), (last + 1, 0)):
            self.assertIn(f"option startingTimestamp: topic orders, broker {BROKER}, queue "
                          f"{queue_id}: no message is stored at {time_text(begin)} or later",
                          self.error(subscribe="orders", startingTimestamp=begin))
        by_queue = json.dumps({"orders": {BROKER: {"1": last + 1}}})
        self.assertIn("option startingOffsetsByTimestamp: topic orders, broker broker-a, queue 1: ",
                      self.error(subscribe="orders", startingOffsetsByTimestamp=by_queue,
                                 startingOffsetsByTimestampStrategy="error"))
        latest = {"subscribe": "orders", "startingOffsetsByTimestampStrategy": "LATEST"}
        self.assertEqual(found(self.box, **latest, startingTimestamp=0), sorted(self.sent))
        self.assertEqual(found(self.box, **latest, startingTimestamp=last + 1), [])
        # The end of a batch is where the queue ends then, with every strategy.
        self.assertEqual(found(self.box, subscribe="orders", endingTimestamp=last + 1),
                         sorted(self.sent))

    def test_which_option_of_the_start_and_the_end_wins(self) -> None:
        """The time of all queues wins over times of queues, and these over offsets."""
        last = max(one.store_timestamp for one in self.box.stored("orders"))
        late = json.dumps({"orders": {BROKER: {
            str(queue_id): last + 1 for queue_id in range(4)}}})
        none = json.dumps({"orders": {BROKER: {str(queue_id): 0 for queue_id in range(4)}}})
        all_of_it = {"subscribe": "orders", "startingOffsetsByTimestampStrategy": "latest"}
        for options, wanted in (
            ({"startingTimestamp": 0, "startingOffsetsByTimestamp": late}, self.sent),
            ({"startingOffsetsByTimestamp": late, "startingOffsets": "earliest"}, []),
            ({"endingTimestamp": last + 1, "endingOffsetsByTimestamp": none}, self.sent),
            ({"endingOffsetsByTimestamp": none, "endingOffsets": "latest"}, []),
            ({"endingTimestamp": 0, "endingOffsets": "latest"}, []),
        ):
            self.assertEqual(found(self.box, **all_of_it, **options), sorted(wanted),
                             msg=str(options))

    def test_a_read_starts_at_the_groups_offsets(self) -> None:
        """Queues without an offset of the group are read from the beginning."""
        client, queue = self.box.client, self.box.queue("orders", 0)
        client.pull(queue, 0, group="readers")
        client.commit_group_offset("readers", queue, 65)
        frame = found(self.box, subscribe="orders", startingOffsets="committed", group="readers")
        self.assertEqual(frame, [one for one in self.sent
                                         if one[0] != 0 or one[1] >= 65])
        self.assertEqual(client.group_offset("readers", queue), 65)

    def test_columns_by_option(self) -> None:
        """Columns are chosen by options, by flags and by a schema."""
        frame = read(self.box, subscribe="orders", columns="body,queueId", bodyFormat="string")
        self.assertEqual(frame.dtypes, [("body", "string"), ("queueId", "int")])
        self.assertEqual(sorted(row.body for row in frame.collect()),
                         sorted(body.decode() for _, _, body in self.sent))
        frame = read(self.box, subscribe="orders", includeBody="false", includeProperties="false")
        self.assertNotIn("body", frame.columns)
        self.assertNotIn("properties", frame.columns)
        self.assertEqual(frame.count(), len(self.sent))
        frame = spark_session().read.format("rocketmq").options(
            **self.box.options, subscribe="orders").schema("queueOffset bigint, tags string").load()
        self.assertEqual(sorted(row.queueOffset for row in frame.collect()),
                         sorted(offset for _, offset, _ in self.sent))

    def test_tags_and_sql92(self) -> None:
        """Expressions of tags and of SQL92 are supported."""
        self.box.send("orders", 2, [b"red"], TAGS="red", price="7")
        self.box.send("orders", 2, [b"blue"], TAGS="blue", price="2")
        frame = found(self.box, subscribe="orders", tags="red || green")
        self.assertEqual(frame, [(2, 0, b"red")])

    def test_sql_finds_the_format_too(self) -> None:
        """SQL finds the format too."""
        session = spark_session()
        session.sql("CREATE OR REPLACE TEMPORARY VIEW orders_view USING rocketmq OPTIONS "
                    f"(nameServer '{self.box.options['nameServer']}', subscribe 'orders')")
        [row] = session.sql("SELECT count(*) AS n FROM orders_view WHERE queueId = 1").collect()
        self.assertEqual(row.n, 50)

    def test_a_frame_that_is_used_again_after_a_filter_has_all_rows(self) -> None:
        """Spark gives the filters of one query to later queries as well, so none is applied."""
        session = spark_session()
        session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
        self.addCleanup(session.conf.unset, "spark.sql.python.filterPushdown.enabled")
        frame = read(self.box, subscribe="orders")
        self.assertEqual(frame.where("queueId = 1").count(), 50)
        self.assertEqual(frame.count(), 150)


class BadInputTests(SourceCase):
    """The errors: the option, and topic, queue and offset if they are known."""

    def test_wrong_unknown_and_missing_options(self) -> None:
        """Wrong, unknown and missing options."""
        for options, expected in (
            ({}, "option subscribe: missing"),
            ({"subscribe": "a", "assign": "{}"}, "option assign: only one of subscribe and assign"),
            ({"subscribe": "a b"}, "option subscribe: topic a b: The specified topic contains"),
            ({"subscribePattern": "("}, "option subscribePattern: '(' is not a regular expression"),
            ({"subscribe": "orders", "maxOffsetsPerTrigger": 5}, "option maxOffsetsPerTrigger"),
            ({"subscribe": "orders", "startingOffsets": "latest"}, "option startingOffsets"),
            ({"subscribe": "orders", "startingOffsets": "first"}, "startingOffsets: 'first'"),
            ({"subscribe": "orders", "startingOffsets": "committed"}, "option group: missing"),
            ({"subscribe": "orders", "startingOffset": "x"}, "startingOffsets is one"),
            ({"subscribe": "orders", "columns": "boddy"}, "option columns"),
        ):
            self.assertIn(expected, self.error(**options), msg=str(options))

    def test_topics_and_queues(self) -> None:
        """A topic, a queue, an offset that is not there."""
        self.assertIn("option subscribe: topic nowhere: there is no such topic",
                      self.error(subscribe="nowhere"))
        place = f"topic orders, broker {BROKER}, queue "
        self.assertIn(f"option assign: {place}9: there is no such queue",
                      self.error(assign=json.dumps({"orders": {BROKER: [9]}})))
        text = json.dumps({"orders": {BROKER: {"9": 1}}})
        self.assertIn(f"option startingOffsets: {place}9: there is no such queue",
                      self.error(subscribe="orders", startingOffsets=text))
        text = json.dumps({"orders": {BROKER: {"0": 71}}})
        self.assertIn(f"option startingOffsets: {place}0: offset 71 is not there, only 0 to 70",
                      self.error(subscribe="orders", startingOffsets=text))
        rows = found(self.box, subscribe="orders", startingOffsets=text, failOnDataLoss="false")
        self.assertEqual(len(rows), 80)
        self.assertIn(f"option endingOffsets: {place}1: it ends at 5, before it starts at 7",
                      self.error(subscribe="orders",
                                 startingOffsets=json.dumps({"orders": {BROKER: {"1": 7}}}),
                                 endingOffsets=json.dumps({"orders": {BROKER: {"1": 5}}})))
        self.assertIn(f"option endingTimestamp: {place}1: it ends at 0, before it starts at 7",
                      self.error(subscribe="orders", endingTimestamp="1",
                                 startingOffsets=json.dumps({"orders": {BROKER: {"1": 7}}})))

    def test_no_name_server(self) -> None:
        """No server listens."""
        self.box.options = {"nameServer": "127.0.0.1:9"}
        self.assertIn("option nameServer: no name server answers: connect to 127.0.0.1:9 failed: ",
                      self.error(subscribe="orders"))

    def test_an_unknown_column_or_type_is_an_error(self) -> None:
        """The column is unknown, or the type does not fit."""
        for name, kind, expected in (("size", "int", "there is no such column"),
                                     ("queueId", "string", "its type is int, not string")):
            self.assertIn(f"column {name}: {expected}",
                          self.error(schema_of(**{name: kind}), subscribe="orders"))

    def test_spark_shows_the_text_of_an_error(self) -> None:
        """Spark shows the text of the error."""
        for options, expected in (({"subscribe": "nowhere"}, "topic nowhere"),
                                  ({"subscribe": "orders", "columns": "boddy"}, "'boddy'")):
            try:
                read(self.box, **options).collect()
            except Exception as error:
                self.assertIn(expected, str(error))
            else:
                self.fail("the read did not fail")

    def test_a_body_that_does_not_decompress(self) -> None:
        """A body that does not decompress."""
        self.box.producer.send(Message("orders", b"no zlib", sys_flag=1),
                               queue=self.box.queue("orders", 2))
        self.assertIn("topic orders, broker broker-a, queue 2, offset 0 (commit",
                      self.error(subscribe="orders"))
