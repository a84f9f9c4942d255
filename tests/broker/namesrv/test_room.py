"""The limits of a name server's tables, and their distribution among hosts."""

from __future__ import annotations

from itertools import count
from typing import Any

from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.constants import BROKERS_OF_NAME_MAX, PLACE_KEPT_MS_MAX, SINGLE_TOPIC_SIZE_MAX
from twistmq.broker.namesrv import room
from twistmq.broker.namesrv.room import host_of
from twistmq.broker.remoting.messages import Reply
from twistmq.broker.testing.name_server import PortlessNameServer, StillChannel
from twistmq.protocol.bodies import (
    DataVersion,
    QueueData,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicQueueMappingInfo,
    TopicRouteData,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.namesrv import (
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterTopicRequestHeader,
    UnRegisterBrokerRequestHeader,
)
from twistmq.protocol.limits import DATA_VERSION_SIZE_MAX, FILTER_SERVERS_MAX, ROUTE_TEXT_SIZE_MAX

MIB = 1024 * 1024


class HostTests(SynchronousTestCase):
    """The host to which a connection counts."""

    def test_a_host_has_many_ports(self) -> None:
        """A host has many ports, and many addresses of IPv6."""
        for address, host in (
            ("10.0.0.1:5000", "10.0.0.1"), ("127.0.0.1:1", "loopback"), ("127.9.9.9:1", "loopback"),
            ("[::1]:1", "loopback"), ("[::ffff:127.0.0.1]:1", "loopback"),
            ("[::ffff:10.0.0.1]:1", "10.0.0.1"),
            ("[2001:db8:1:2:3:4:5:6]:1", "2001:db8:1:2::/64"),
            ("[2001:db8:1:2::9]:77", "2001:db8:1:2::/64"),
            ("[2001:db8:1:3::9]:77", "2001:db8:1:3::/64"), ("pipe", ""),
        ):
            self.assertEqual(host_of(address), host, msg=address)


class RoomCase(SynchronousTestCase):
    """A name server with 100 places and 1 MiB of routes, and connections from any host."""

    def setUp(self) -> None:
        self.patch(room, "NAMESRV_BROKERS_MAX", 100)
        self.server = PortlessNameServer({"routes.size_max": str(MIB)})
        self.tables = self.server.routes.tables
        self.numbers = count()
        self.now_ms = 0

    def connect(self, host: str = "10.9.9.9") -> StillChannel:
        channel = StillChannel()
        channel.remote_address = f"{host}:{next(self.numbers) + 1024}"
        return channel

    def lose(self, channel: StillChannel) -> None:
        channel.active = False
        self.server.connection_lost(channel)

    def wait(self, ms: int) -> None:
        """Let time pass, with the periodic scan and signs of life of brokers."""
        self.now_ms += ms
        for key in self.tables.live:
            self.server.routes.heartbeat(*key, self.now_ms)
        self.server.routes.scan_not_active_broker(self.now_ms)

    def register(
        self, channel: StillChannel, name: str = "", *, topics: int = 0, prefix: str = "T",
        counter: int = 1, version: int = 461,
        mappings: dict[str, TopicQueueMappingInfo] | None = None,
        servers: tuple[str, ...] = (), **header: Any,
    ) -> Reply:
        """Register a broker, under a new name unless one is given."""
        name = name or f"b{next(self.numbers)}"
        table = {f"{prefix}{number}": TopicConfig(f"{prefix}{number}") for number in range(topics)}
        wrapper = TopicConfigSerializeWrapper(table, DataVersion(0, 0, counter), None, mappings)
        fields = {"brokerName": name, "brokerAddr": f"{name}:1", "clusterName": "C",
                  "haServerAddr": "h", "brokerId": "0", "compressed": "false",
                  "heartbeatTimeoutMillis": "3600000", **header}
        body = RegisterBrokerBody(wrapper, list(servers)).encode()
        return self.server.ask(
            RequestCode.REGISTER_BROKER, fields, body, channel=channel, now_ms=self.now_ms,
            version=version)

    def fill(self, host: str, connections: int, each: int) -> int:
        """Register as many brokers as a host gets in; :returns: how many."""
        taken = 0
        for _ in range(connections):
            channel = self.connect(host)
            for _ in range(each):
                taken += self.register(channel).code == ResponseCode.SUCCESS
        return taken


class PlacesTests(RoomCase):
    """No host can use all places."""

    def test_one_connection(self) -> None:
        """It may use half of its host's quarter; another connection and another host get more."""
        self.assertEqual(self.fill("10.9.9.9", 1, 200), 12)
        self.assertEqual(self.register(self.connect()).code, ResponseCode.SUCCESS)
        self.assertEqual(self.register(self.connect("10.0.0.1")).code, ResponseCode.SUCCESS)

    def test_one_host_with_many_connections(self) -> None:
        """It may use a quarter, or half on the loopback address; the refusal gives the reason."""
        self.assertEqual(self.fill("10.9.9.9", 200, 1), 25)
        reply = self.register(self.connect())
        self.assertEqual(reply.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("10.9.9.9 has 25 of 25 brokers, its share", reply.remark or "")
        self.assertEqual(self.fill("127.0.0.1", 200, 1), 37)
        self.assertEqual(len(self.tables.live), 62)

    def test_many_hosts(self) -> None:
        """Each gets a part of what the others left, so even the thirteenth gets a place."""
        taken = [self.fill(f"10.9.9.{host}", 100, 1) for host in range(13)]
        self.assertEqual(taken[:4], [25, 18, 14, 10])
        self.assertGreater(min(taken), 0)
        self.assertLess(sum(taken), 100)

    def test_a_known_broker_comes_back(self) -> None:
        """Its place is kept as long as it was registered, even beside an attacker on its host."""
        broker = self.connect()
        self.assertEqual(self.register(broker, "a").code, ResponseCode.SUCCESS)
        self.wait(60_000)
        self.lose(broker)
        self.assertEqual(self.fill("10.9.9.9", 200, 1), 24)
        self.wait(59_999)
        self.assertEqual(self.register(self.connect(), "a").code, ResponseCode.SUCCESS)
        self.assertEqual(self.register(self.connect(), "z").code, ResponseCode.SYSTEM_ERROR)

    def test_a_place_is_kept_only_so_long(self) -> None:
        """After at most an hour others may use it."""
        for stood_ms, kept_ms in ((60_000, 60_000), (9 * PLACE_KEPT_MS_MAX, PLACE_KEPT_MS_MAX)):
            broker = self.connect()
            self.register(broker, "a")
            for _ in range(stood_ms // 60_000):
                self.wait(60_000)
            self.lose(broker)
            attackers = [self.connect() for _ in range(200)]
            for each in attackers:
                self.register(each)
            self.wait(kept_ms - 1)
            self.assertEqual(self.register(attackers[-1], "z").code, ResponseCode.SYSTEM_ERROR)
            self.wait(1)
            self.assertEqual(self.register(attackers[-1], "z").code, ResponseCode.SUCCESS)
            for each in attackers:
                self.lose(each)
            self.wait(10 * PLACE_KEPT_MS_MAX)

    def test_a_place_is_kept_for_its_own_host(self) -> None:
        """The same names from another host are strangers."""
        broker = self.connect("10.0.0.1")
        self.register(broker, "a")
        self.wait(60_000)
        self.lose(broker)
        self.fill("10.9.9.9", 200, 1)
        self.assertEqual(self.register(self.connect(), "a").code, ResponseCode.SYSTEM_ERROR)
        self.assertEqual(self.register(self.connect("10.0.0.1"), "a").code, ResponseCode.SUCCESS)

    def test_leaving_gives_places_back(self) -> None:
        """A broker that was registered for no time has no kept place."""
        channel = self.connect()
        for number in range(50):
            name = f"a{number}"
            self.assertEqual(self.register(channel, name).code, ResponseCode.SUCCESS)
            self.server.ask(RequestCode.UNREGISTER_BROKER, UnRegisterBrokerRequestHeader(
                broker_name=name, broker_addr=f"{name}:1", cluster_name="C", broker_id=0))
        self.assertEqual(self.fill("10.9.9.9", 1, 200), 12)


class BytesTests(RoomCase):
    """No host can use all memory."""

    def test_topics_beyond_the_share(self) -> None:
        """They are refused with one line; earlier topics remain, and other hosts have room."""
        channel = self.connect()
        with capturedLogs() as events:
            reply = self.register(channel, "a", topics=3000)
        self.assertEqual(reply.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("no room for", reply.remark or "")
        lines = [formatEvent(event) or "" for event in events]
        self.assertEqual(len([line for line in lines if channel.remote_address in line]), 1)
        taken = len(self.tables.queues_of("a"))
        self.assertTrue(1200 < taken < 1310, taken)
        self.assertLessEqual(self.tables.room.size_bytes, MIB // 2)
        self.register(self.connect("10.0.0.1"), "b", topics=3000, prefix="U")
        self.assertTrue(600 < len(self.tables.queues_of("b")) < taken)
        # The same again, by the same version or another, keeps what there is.
        for counter in (1, 2):
            self.register(channel, "a", topics=3000, counter=counter)
            self.assertEqual(len(self.tables.queues_of("a")), taken)

    def test_what_was_missing_comes_when_there_is_room(self) -> None:
        """The broker is told to register again, and then all topics are registered."""
        channel = self.connect()
        self.register(self.connect(), "z", topics=1000, prefix="U")
        self.register(channel, "a", topics=1000)
        self.assertLess(len(self.tables.queues_of("a")), 1000)
        asked = self.server.ask(
            RequestCode.QUERY_DATA_VERSION, QueryDataVersionRequestHeader(
                broker_name="a", broker_addr="a:1", cluster_name="C", broker_id=0),
            DataVersion(0, 0, 1).encode()).header
        assert isinstance(asked, QueryDataVersionResponseHeader)
        self.assertTrue(asked.changed)
        self.server.routes.unregister("C", "z:1", "z")
        self.assertEqual(self.register(channel, "a", topics=1000).code, ResponseCode.SUCCESS)
        self.assertEqual(len(self.tables.queues_of("a")), 1000)

    def test_a_known_broker_finds_its_topics_room(self) -> None:
        """The room is kept while it is away, whatever others of its host register."""
        broker = self.connect()
        self.register(broker, "a", topics=1000)
        self.wait(60_000)
        self.lose(broker)
        self.assertEqual(self.tables.topics, {})
        self.register(self.connect(), "z", topics=3000, prefix="U")
        self.assertEqual(self.register(self.connect(), "a", topics=1000).code,
                         ResponseCode.SUCCESS)
        self.assertEqual(len(self.tables.queues_of("a")), 1000)

    def test_kept_room_is_given_back(self) -> None:
        """It is given back after its time, and when the broker returns with fewer topics."""
        broker = self.connect()
        self.register(broker, "a", topics=1000)
        self.wait(60_000)
        self.lose(broker)
        self.assertGreater(self.tables.room.size_bytes, 400_000)
        self.register(self.connect(), "a", topics=10)
        self.assertLess(self.tables.room.size_bytes, 10_000)
        self.server.routes.unregister("C", "a:1", "a")
        self.wait(60_001)
        self.assertEqual(self.tables.room.size_bytes, 0)

    def test_mappings_count(self) -> None:
        """Mappings of static topics count by their queues, and are removed with the topic."""
        mappings = {f"T{number}": TopicQueueMappingInfo(
            f"T{number}", bname="a", curr_id_map=dict.fromkeys(range(1000), 0))
            for number in range(10)}
        reply = self.register(self.connect(), "a", topics=10, mappings=mappings)
        self.assertEqual(reply.code, ResponseCode.SYSTEM_ERROR)
        self.assertEqual(len(self.tables.mappings), 4)
        self.server.routes.unregister("C", "a:1", "a")
        self.assertEqual((self.tables.mappings, self.tables.room.size_bytes), ({}, 0))

    def test_a_mapping_needs_its_topic(self) -> None:
        """It must belong to the broker itself; otherwise nothing would remove it."""
        for topic, name in (("X", "a"), ("T0", "b")):
            reply = self.register(self.connect(), "a", topics=2, mappings={
                topic: TopicQueueMappingInfo(topic, bname=name)})
            self.assertEqual(reply.code, ResponseCode.SYSTEM_ERROR, msg=topic)
            self.assertEqual(self.tables.mappings, {})


class SingleTopicTests(RoomCase):
    """The request 217."""

    def ask(self, topic: str, body: bytes, host: str = "10.9.9.9") -> Reply:
        return self.server.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV,
                               RegisterTopicRequestHeader(topic=topic), body,
                               channel=self.connect(host))

    def test_a_topic_is_added_from_the_brokers_host(self) -> None:
        """Others could use up the room of the host."""
        self.register(self.connect(), "a", topics=2)
        body = TopicRouteData(queue_datas=[QueueData("a", 1, 1, 6)]).encode()
        reply = self.ask("X", body, "10.0.0.1")
        self.assertEqual(reply.code, ResponseCode.NO_PERMISSION)
        self.assertNotIn("X", self.tables.topics)
        self.assertEqual(self.ask("X", body).code, ResponseCode.SUCCESS)
        self.assertIn("X", self.tables.topics)

    def test_a_long_name_and_a_topic_without_room_are_refused(self) -> None:
        """A long name and a topic without room are refused."""
        self.register(self.connect(), "a", topics=3000)
        body = TopicRouteData(queue_datas=[QueueData("a", 1, 1, 6)]).encode()
        for topic in ("x" * (ROUTE_TEXT_SIZE_MAX + 1), "X"):
            reply = self.ask(topic, body)
            self.assertEqual(reply.code, ResponseCode.SYSTEM_ERROR, msg=topic[:9])
            self.assertNotIn("X", self.tables.topics)

    def test_bodies_are_short(self) -> None:
        """Reading a long one would hold everybody up: it is not handled."""
        rows = {row.code: row for row in self.server.handlers()}
        self.assertEqual(rows[RequestCode.QUERY_DATA_VERSION].body_size_max, DATA_VERSION_SIZE_MAX)
        self.assertEqual(rows[RequestCode.REGISTER_TOPIC_IN_NAMESRV].body_size_max,
                         SINGLE_TOPIC_SIZE_MAX)
        self.assertLess(len(DataVersion(2**62, 2**62, 2**62).encode()), DATA_VERSION_SIZE_MAX // 4)


class TextTests(RoomCase):
    """Texts that are kept and repeated in routes are short."""

    def test_long_texts_are_refused(self) -> None:
        """The limit is in bytes; nothing of the broker is kept."""
        for text, code in (("x" * (ROUTE_TEXT_SIZE_MAX + 1), ResponseCode.SYSTEM_ERROR),
                           ("é" * (ROUTE_TEXT_SIZE_MAX // 2 + 1), ResponseCode.SYSTEM_ERROR),
                           ("x" * ROUTE_TEXT_SIZE_MAX, ResponseCode.SUCCESS)):
            for field in ("brokerName", "brokerAddr", "clusterName", "haServerAddr",
                          "__ZONE_NAME"):
                before = dict(self.tables.live)
                header: dict[str, Any] = {field: text}
                reply = self.register(self.connect(), f"n{next(self.numbers)}", **header)
                self.assertEqual(reply.code, code, msg=f"{field} {len(text)}")
                if code != ResponseCode.SUCCESS:
                    self.assertIn(f"over {ROUTE_TEXT_SIZE_MAX} bytes", reply.remark or "")
                    self.assertEqual(self.tables.live, before)

    def test_filter_servers(self) -> None:
        """Their number and length are limited."""
        good = ("f" * ROUTE_TEXT_SIZE_MAX,) * FILTER_SERVERS_MAX
        self.assertEqual(self.register(self.connect(), servers=good).code, ResponseCode.SUCCESS)
        for servers in ((*good, "f"), ("f" * (ROUTE_TEXT_SIZE_MAX + 1),)):
            self.assertEqual(self.register(self.connect(), servers=servers).code,
                             ResponseCode.SYSTEM_ERROR)

    def test_a_long_topic_is_left_out(self) -> None:
        """The other topics are accepted, so one topic does not cost a broker its routes."""
        reply = self.register(self.connect(), "a", topics=11,
                              prefix="t" * (ROUTE_TEXT_SIZE_MAX - 1))
        self.assertEqual(reply.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("1 topics have a name or a mapping that is too long", reply.remark or "")
        self.assertEqual(len(self.tables.queues_of("a")), 10)

    def test_brokers_of_one_name(self) -> None:
        """Their number is limited; existing ones continue."""
        self.patch(room, "NAMESRV_BROKERS_MAX", 10_000)
        for number in range(BROKERS_OF_NAME_MAX + 1):
            reply = self.register(self.connect(), "a", brokerAddr=f"h{number}:1",
                                  brokerId=str(number))
        self.assertEqual(reply.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn(f"a has {BROKERS_OF_NAME_MAX} brokers", reply.remark or "")
        self.assertEqual(self.register(self.connect(), "a", brokerAddr="h1:1",
                                       brokerId="1").code, ResponseCode.SUCCESS)
