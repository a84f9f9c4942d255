"""The two forms of a route."""

from twisted.trial.unittest import SynchronousTestCase

from twistmq.protocol.bodies import BrokerData, QueueData, TopicRouteData, wants_standard_json
from twistmq.protocol.headers.namesrv import GetRouteInfoRequestHeader

ROUTE = TopicRouteData(
    queue_datas=[QueueData("broker-a", 4, 8, 6)],
    broker_datas=[BrokerData("C", "broker-a", {0: "127.0.0.1:10911"})],
)
QUEUES = (b'"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,'
          b'"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":8}]}')


class RouteTests(SynchronousTestCase):
    """The class TopicRouteData and the function wants_standard_json."""

    def test_who_wants_standard_json(self) -> None:
        """Java clients from 4.9.4 on, and clients that ask for it, get standard JSON."""
        for version, asked, expected in (
            (317, None, False), (317, False, False), (317, True, True), (399, None, False),
            (400, None, False), (401, None, True), (479, False, True), (0, None, False),
        ):
            header = GetRouteInfoRequestHeader(topic="T", accept_standard_json_only=asked)
            self.assertIs(wants_standard_json(version, header), expected, msg=f"{version} {asked}")

    def test_bare_keys(self) -> None:
        """Broker ids have no quotes."""
        self.assertEqual(
            ROUTE.encode(),
            b'{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:10911"},"brokerName":"broker-a",'
            b'"cluster":"C","enableActingMaster":false}],' + QUEUES,
        )

    def test_quoted_keys(self) -> None:
        """Broker ids have quotes."""
        self.assertEqual(
            ROUTE.encode_standard(),
            b'{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:10911"},"brokerName":"broker-a",'
            b'"cluster":"C","enableActingMaster":false}],' + QUEUES,
        )

    def test_reads_both(self) -> None:
        """Both forms are read."""
        for data in (ROUTE.encode(), ROUTE.encode_standard(), ROUTE.encode_pretty()):
            self.assertEqual(TopicRouteData.decode(data), ROUTE)
