"""Reads from a slave while its master is stopped."""

from __future__ import annotations

from typing import Any

from tests.interop.servers import wait_until
from tests.spark_bridge import records  # noqa: F401  (skips where the extra is not installed)
from tests.spark_bridge.test_availability import A, ClusterCase, Later, bodies
from twistmq.client import Client, RequestRefused
from twistmq.integrations.tables.availability import StillAway
from twistmq.integrations.tables.queue_reader import ReadFailed
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.headers.topic import GetTopicConfigRequestHeader

SLAVE = "slave"
OF_SLAVE = {"brokerName": A, "brokerRole": "SLAVE", "brokerId": "1"}


class SlaveTests(ClusterCase):
    """A pair whose slave has all messages when its master is stopped."""

    settings = {"slaveReadEnable": "true"}  # noqa: RUF012

    def setUp(self) -> None:
        super().setUp()
        self.cluster.start(SLAVE, **OF_SLAVE)
        self.cluster.send("t", bodies("t", 5))
        self.cluster.send("t", bodies("t", 5, 5), 1)
        wait_until("the slave has all", lambda: self.end(SLAVE) == self.end(A))
        with Client(self.cluster.namesrv, timeout_s=30) as client:
            wait_until("the name server knows both", lambda: self.is_routed(client))

    def end(self, name: str) -> Any:
        """Return the ends of the queues with messages on a broker."""
        store = self.cluster.service(name).kernel.store
        return self.cluster.call(lambda: sorted(
            (queue.topic, queue.queue_id, queue.max_offset) for queue in store.queues
            if queue.max_offset), name)

    def is_routed(self, client: Client) -> bool:
        """Whether the slave has the topic's settings, and the route has both brokers."""
        topic = GetTopicConfigRequestHeader(topic="t")
        try:
            client.ask(self.cluster.address(SLAVE), RequestCode.GET_TOPIC_CONFIG, topic)
        except RequestRefused:
            return False
        self.cluster.register()
        return all(set(one.broker_addrs) == {0, 1}
                   for one in client.route("t", again=True).broker_datas)

    def test_batches(self) -> None:
        """A batch that was planned before the stop, and new ones, read all messages."""
        batch = self.batch(subscribe="t")
        self.cluster.stop()
        self.assertEqual(self.read(batch), bodies("t", 10))
        for options in ({"subscribe": "t", "brokers": A}, {"subscribePattern": "t"},
                        {"assign": '{"t":{"broker-a":[0,1]}}'},
                        {"subscribe": "t", "startingTimestamp": "1",
                         "startingOffsetsByTimestampStrategy": "latest"}):
            self.assertEqual(self.read(self.batch(**options)), bodies("t", 10), msg=str(options))
        self.assertEqual(self.lines, [])

    def test_a_stream(self) -> None:
        """It continues between two micro-batches, reads each message once, and so does its next
        run.
        """
        driver = self.driver(subscribe="t", maxOffsetsPerTrigger=4)
        driver.begin()
        driver.batch()
        self.cluster.stop()
        while driver.batch():
            pass
        driver.stop()
        self.assertEqual(self.bodies(driver), bodies("t", 10))
        self.assertEqual(self.driver(driver.offset, subscribe="t").run().rows(), [])
        self.assertEqual(self.said("skipped"), [])

    def test_a_stream_that_is_ahead_of_the_slave(self) -> None:
        """It waits for the master, because only that knows whether its messages are lost."""
        self.cluster.stop(SLAVE)
        # The slave has not got what comes now.
        self.cluster.send("t", bodies("new", 2))
        offset = self.driver(subscribe="t").run().offset
        self.cluster.stop()
        self.cluster.start(SLAVE, **OF_SLAVE)
        driver = self.driver(offset, subscribe="t", failOnDataLoss="false", serverWaitMs=300)
        error = str(self.assertRaises(StillAway, driver.run))
        self.assertIn("topic t, broker broker-a, queue 0: a slave does not have offset 7 yet, and "
                      "its master is away", error)
        later = Later(self.driver(offset, subscribe="t", failOnDataLoss="false").run)
        wait_until("a warning",
                   lambda: len(self.said("a slave does not have")) > 1 or later.is_over)
        self.cluster.start()
        self.assertEqual(later.result().rows(), [])
        self.assertEqual(self.said("skipped"), [])


class UnreadableSlaveTests(SlaveTests):
    """A slave that gives no messages, as is the default of brokers."""

    settings = {}  # noqa: RUF012

    def test_batches(self) -> None:
        """The error says that the slave refuses reads."""
        batch = self.batch(subscribe="t", serverWaitMs=300, failOnDataLoss="false")
        self.cluster.stop()
        for planned in (lambda: batch, lambda: self.batch(subscribe="t", serverWaitMs=300)):
            error = str(self.assertRaises(ReadFailed, lambda planned=planned: self.read(planned())))
            self.assertIn("topic t, broker broker-a, queue 0, offset 0: ", error)
            self.assertIn("a slave, which gives messages only with slaveReadEnable=true", error)

    def test_a_stream(self) -> None:
        """It waits for the master, and reads each message once, also with an expression."""
        driver = self.driver(subscribe="t", maxOffsetsPerTrigger=4, failOnDataLoss="false",
                             subExpression="*")
        driver.begin()
        driver.batch()
        self.cluster.stop()
        later = Later(driver.run)
        wait_until("a warning", lambda: self.said("waiting for up to") or later.is_over)
        self.cluster.start()
        self.assertEqual(self.bodies(later.result()), bodies("t", 10))
