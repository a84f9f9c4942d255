"""Accounts of a broker with access control: their permissions, and the texts of errors."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.spark_bridge import records  # noqa: F401  (skips where the extra is not installed)
from tests.spark_bridge.session import spark_session
from tests.spark_bridge.test_availability import A, ClusterCase, bodies
from tests.spark_bridge.topics import pa, schema_of
from twistmq.client import Client, Credentials, Message, MessageQueue, Producer
from twistmq.integrations.tables.options import OptionError
from twistmq.integrations.tables.queue_reader import ReadFailed
from twistmq.protocol.bodies import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.headers.auth import AclRequestHeader, UserRequestHeader
from twistmq.protocol.headers.topic import CreateTopicRequestHeader
from twistmq.protocol.trace_records import Pub, encode_records
from twistmq.spark_bridge.sink import WriteFailed
from twistmq.spark_bridge.source import RocketMQDataSource
from twistmq.spark_bridge.trace_source import TraceSource

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
ACCOUNTS = """\
accounts:
- {accessKey: admin-key, secretKey: secret-of-admin, admin: true}
- accessKey: reader-key
  secretKey: secret-of-reader
  topicPerms: [orders=SUB]
  groupPerms: [analytics=SUB]
- accessKey: tracer-key
  secretKey: secret-of-tracer
  topicPerms: [RMQ_SYS_TRACE_TOPIC=SUB]
  groupPerms: [spark-rocketmq-source=SUB]
- accessKey: writer-key
  secretKey: secret-of-writer
  topicPerms: [orders=PUB]
- {accessKey: nobody-key, secretKey: secret-of-nobody}
"""
DENIED = "answered 1: org.apache.rocketmq.acl.common.AclException: "
#: The longest error that is "a few lines".
LINES_MAX = 25


def keys(name: str) -> dict[str, str]:
    """Return the options of an account."""
    return {"accessKey": f"{name}-key", "secretKey": f"secret-of-{name}"}


class WriterCase(ClusterCase):
    """Tests that also write."""

    def write(self, **options: str) -> int:
        """Write four rows; :returns: the number of rows that are acknowledged."""
        source = RocketMQDataSource({name.lower(): value for name, value in {
            **self.cluster.options, "topic": "orders", **options}.items()})
        writer = pickle.loads(pickle.dumps(source.writer(schema_of(body="binary"), False)))
        rows: int = writer.write(iter([pa.RecordBatch.from_pylist(
            [{"body": body} for body in bodies("w", 4)])])).rows
        return rows


class AccountCase(WriterCase):
    """A broker with accounts, and a topic with messages."""

    def setUp(self) -> None:
        home = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        (home / "conf").mkdir(parents=True)
        (home / "conf/plain_acl.yml").write_text(ACCOUNTS)
        self.settings = {"aclEnable": "true", "rocketmqHome": str(home),
                         "traceTopicEnable": "true"}
        super().setUp()
        self.admin = Client(self.cluster.namesrv, timeout_s=30,
                            credentials=Credentials("admin-key", "secret-of-admin"))
        self.addCleanup(self.admin.close)
        self.admin.ask(self.cluster.address(), RequestCode.UPDATE_AND_CREATE_TOPIC,
                       CreateTopicRequestHeader("orders", "TBW102", 4, 4, 6, "SINGLE_TAG"))
        self.cluster.register()
        self.producer = Producer(client=self.admin, timeout_s=30)
        self.queue = MessageQueue("orders", A, 0)
        self.producer.send_batch([Message("orders", body) for body in bodies("o", 8)], self.queue)

    def denied(self, kind: type[Exception], call: Callable[[], Any], *texts: str) -> None:
        """Check that something is refused by a short error with the reason and without a secret."""
        error = self.assertRaises(kind, call)
        lines = "".join(traceback.format_exception_only(error))
        self.assertLessEqual(len(lines.splitlines()), 2, msg=lines)
        for text in ("option accessKey: ", DENIED, *texts):
            self.assertIn(text, lines)
        self.assertNotIn("secret-of", lines)


class UserTests(WriterCase):
    """A broker with the users and policies of ACL 2.0."""

    def setUp(self) -> None:
        self.settings = {
            "authenticationEnabled": "true", "authorizationEnabled": "true",
            "initAuthenticationUser": '{"username":"root","password":"secret-of-root"}'}
        super().setUp()
        self.admin = Client(self.cluster.namesrv, timeout_s=30,
                            credentials=Credentials("root", "secret-of-root"))
        self.addCleanup(self.admin.close)
        Producer(client=self.admin, timeout_s=30).send_batch(
            [Message("orders", body) for body in bodies("o", 8)])
        self.cluster.register()
        self.reader = self.user("reader", "Topic:orders=Sub,Get", "Group:analytics=Sub,Get")
        self.writer = self.user("writer", "Topic:orders=Pub")

    def user(self, name: str, *policies: str) -> dict[str, str]:
        """Create a user; :returns: the options with its keys."""
        address = self.cluster.address()
        self.admin.ask(address, RequestCode.AUTH_CREATE_USER, UserRequestHeader(username=name),
                       UserInfo(password=f"secret-of-{name}").encode())
        for resource, _, actions in (each.partition("=") for each in policies):
            self.admin.ask(address, RequestCode.AUTH_CREATE_ACL,
                           AclRequestHeader(subject=f"User:{name}"),
                           AclInfo(None, [PolicyInfo(None, [PolicyEntryInfo(
                               resource, actions.split(","), None, "Allow")])]).encode())
        return {"accessKey": name, "secretKey": f"secret-of-{name}"}

    def refused(self, kind: type[Exception], call: Callable[[], Any], text: str) -> None:
        """Check that something is refused by an error with the reason and without a secret."""
        error = "".join(traceback.format_exception_only(self.assertRaises(kind, call)))
        for each in ("option accessKey: ", text):
            self.assertIn(each, error)
        self.assertNotIn("secret-of", error)

    def test_a_reader(self) -> None:
        """A reader uses its own group; another group is refused with the reason."""
        reader = {**self.reader, "subscribe": "orders"}
        self.assertEqual(self.read(self.batch(group="analytics", **reader)), bodies("o", 8))
        batch = self.batch(group="other", **reader)
        self.refused(ReadFailed, lambda: self.read(batch),
                     "has no permission to access Group:other")

    def test_a_sink(self) -> None:
        """A sink needs PUB on its topic; a reader cannot write, and the writer cannot read."""
        self.assertEqual(self.write(**self.writer), 4)
        self.assertEqual(self.read(self.batch(group="analytics", subscribe="orders",
                                              **self.reader)), bodies("o", 8) + bodies("w", 4))
        denial = "has no permission to access Topic:orders"
        self.refused(WriteFailed, lambda: self.write(**self.reader), denial)
        self.refused(OptionError, lambda: self.batch(subscribe="orders", **self.writer), denial)

    def test_group_offsets(self) -> None:
        """A reader commits to its group and begins there; another group's offsets are refused."""
        reader = {**self.reader, "subscribe": "orders", "group": "analytics"}
        driver = self.driver(commitGroupOffsets="true", maxOffsetsPerTrigger=5, **reader).run()
        self.assertEqual(self.bodies(driver), bodies("o", 8))
        self.assertEqual(sum(self.admin.group_offset("analytics", queue) or 0
                             for queue in self.admin.read_queues("orders")), 8)
        self.assertEqual(self.driver(startingOffsets="committed", **reader).run().rows(), [])
        self.write(**self.writer)
        self.assertEqual(self.bodies(self.driver(startingOffsets="committed", **reader).run()),
                         bodies("w", 4))
        self.refused(OptionError, lambda: self.batch(**{
            **reader, "group": "other", "startingOffsets": "committed"}),
            "has no permission to access Group:other")


class AccountTests(AccountCase):
    """The sources and sinks, as Spark calls them."""

    def test_a_reader(self) -> None:
        """A reader uses its own group; it may neither use another one nor write."""
        reader = {**keys("reader"), "subscribe": "orders"}
        self.assertEqual(self.read(self.batch(group="analytics", **reader)), bodies("o", 8))
        for expression in ("*", "red"):
            batch = self.batch(subExpression=expression, **reader)
            self.denied(ReadFailed, lambda batch=batch: self.read(batch),
                        "topic orders, broker broker-a, queue ", "group:spark-rocketmq-source")
        self.denied(WriteFailed, lambda: self.write(**keys("reader")),
                    "partition 0, 4 rows from row 0 on, topic orders: ", "topic:orders")

    def test_a_group(self) -> None:
        """A reader commits to its group, and begins at the committed offsets."""
        reader = {**keys("reader"), "subscribe": "orders", "group": "analytics"}
        driver = self.driver(commitGroupOffsets="true", maxOffsetsPerTrigger=5, **reader).run()
        self.assertEqual(self.bodies(driver), bodies("o", 8))
        self.assertEqual(self.admin.group_offset("analytics", self.queue), 8)
        self.assertEqual(self.driver(startingOffsets="committed", **reader).run().rows(), [])
        self.denied(OptionError, lambda: self.batch(**{
            **reader, "group": "other", "startingOffsets": "committed"}), "group:other")

    def test_a_writer(self) -> None:
        """A writer can write, and its read is refused."""
        self.assertEqual(self.write(**keys("writer")), 4)
        batch = self.batch(subscribe="orders", **keys("writer"))
        self.denied(ReadFailed, lambda: self.read(batch), "topic:orders")

    def test_without_rights(self) -> None:
        """An account without permissions, no account, and a wrong secret are refused early."""
        for account, text in ((keys("nobody"), "topic:orders"), ({}, "No accessKey"),
                              ({**keys("reader"), "secretKey": "secret-of-evil"}, "signature")):
            for way in ({"subscribe": "orders"}, {"subscribePattern": "orders"},
                        {"assign": '{"orders":{"broker-a":[0]}}'}):
                options = {**account, **way}
                self.denied(OptionError, lambda options=options: self.batch(**options), text)
                self.denied(OptionError, lambda options=options: self.driver(**options).run(), text)
            self.denied(WriteFailed, lambda account=account: self.write(**account), text)
        self.assertEqual(self.said("waiting"), [])

    def test_traces(self) -> None:
        """Traces need a row for their topic; a reader of messages may not have them."""
        self.producer.send(TRACE_TOPIC, encode_records([Pub(
            1_700_000_000_000, "R", "P", "orders", "A", "paid", "k", "10.0.0.1:10911", 5, 2, 0,
            "OFF", True)]))

        def traces(name: str, **more: str) -> list[Any]:
            source = TraceSource({key.lower(): value for key, value in {
                **self.cluster.options, **keys(name), **more}.items()})
            reader: Any = source.reader(source.schema())
            return [row["msgId"] for part in reader.partitions()
                    for batch in reader.read(part) for row in batch.to_pylist()]

        self.assertEqual(traces("tracer"), ["A"])
        self.denied(OptionError, lambda: traces("reader", group="analytics"),
                    f"topic:{TRACE_TOPIC}")


class SparkAccountTests(AccountCase):
    """The texts that Spark shows about accounts."""

    def test_errors_and_plans(self) -> None:
        """Errors have a few lines; errors, plans and checkpoints have no secret."""
        from pyspark.errors import PySparkException

        spark = spark_session()
        options = {**self.cluster.options, "subscribe": "orders"}
        shown = []
        frame = spark.read.format("rocketmq").options(
            **options, group="analytics", **keys("reader")).load()
        self.assertEqual(frame.count(), 8)
        shown.append(frame._jdf.queryExecution().toString())
        rows = spark.range(3).selectExpr("cast(id AS string) AS body")
        for call in (
            lambda: spark.read.format("rocketmq").options(
                **options, **keys("nobody")).load().collect(),
            lambda: spark.read.format("rocketmq").options(
                **options, **keys("reader")).load().collect(),
            lambda: rows.write.format("rocketmq").options(
                **self.cluster.options, topic="orders", **keys("nobody")).mode("append").save(),
        ):
            error = str(self.assertRaises(PySparkException, call))
            self.assertLessEqual(len(error.splitlines()), LINES_MAX, msg=error)
            self.assertIn("option accessKey: ", error)
            shown.append(error)
        checkpoint = self.folder / "checkpoint"
        query = spark.readStream.format("rocketmq").options(
            **options, startingOffsets="earliest", group="analytics", **keys("reader")
        ).load().writeStream.format("noop").option("checkpointLocation", str(checkpoint)).trigger(
            availableNow=True).start()
        query.awaitTermination()
        shown += [str(query.recentProgress),
                  *(path.read_text() for path in checkpoint.rglob("*")
                    if path.is_file() and not path.name.endswith(".crc"))]
        self.assertNotIn("secret-of", "\n".join(shown))
