"""Requests that change the tables, as they arrive over the wire."""

from __future__ import annotations

import zlib
from typing import Any

from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.constants import BROKER_TIMEOUT_MS_MAX, KV_REPLY_SIZE_MAX
from twistmq.broker.namesrv.broker_requests import FILTER_SERVERS_VERSION_MIN
from twistmq.broker.namesrv.kv_config import ORDER_TOPIC_NAMESPACE
from twistmq.broker.namesrv.route_tables import BrokerKey
from twistmq.broker.remoting.messages import Reply
from twistmq.broker.testing.disk import MemoryDisk
from twistmq.broker.testing.name_server import PortlessNameServer, StillChannel
from twistmq.protocol.bodies import (
    DataVersion,
    KVTable,
    QueueData,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicRouteData,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.namesrv import (
    AddWritePermOfBrokerResponseHeader,
    BrokerHeartbeatRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    RegisterTopicRequestHeader,
    UnRegisterBrokerRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)

ADDRESS = "10.0.0.1:10911"
TOPICS = TopicConfigSerializeWrapper({"T": TopicConfig("T"), "U": TopicConfig("U")},
                                     DataVersion(0, 0, 1))
BODY = RegisterBrokerBody(TOPICS, ["f:1"])
KEY = BrokerKey("C", ADDRESS, "a")


class BrokerRequestsCase(SynchronousTestCase):
    """A name server, and the requests of a broker."""

    def setUp(self) -> None:
        self.server = PortlessNameServer()
        self.tables = self.server.routes.tables

    def register(
        self, body: bytes = BODY.encode(), *, now_ms: int = 0, version: int = 479,
        channel: StillChannel | None = None, **fields: Any,
    ) -> Reply:
        """Register the master of group a; ``fields`` are other fields of the header."""
        header = RegisterBrokerRequestHeader(**{
            "broker_name": "a", "broker_addr": ADDRESS, "cluster_name": "C",
            "ha_server_addr": "10.0.0.1:10912", "broker_id": 0, **fields})
        return self.server.ask(RequestCode.REGISTER_BROKER, header, body, now_ms=now_ms,
                               version=version, channel=channel)


class RegisterBrokerTests(BrokerRequestsCase):
    """The request 103."""

    def test_a_registration_in_either_form_is_taken(self) -> None:
        """The plain and the compressed form are equivalent."""
        for compressed in (False, True):
            self.setUp()
            body = BODY.encode(compressed)
            crc = zlib.crc32(body) & 0x7FFFFFFF
            reply = self.register(body, compressed=compressed, body_crc32=crc)
            self.assertEqual(reply.code, ResponseCode.SUCCESS, msg=str(compressed))
            self.assertEqual(set(self.tables.topics), {"T", "U"}, msg=str(compressed))
            self.assertEqual(self.tables.filter_servers, {KEY: ["f:1"]}, msg=str(compressed))

    def test_a_wrong_crc_changes_nothing(self) -> None:
        """The remark is Apache's, for either form."""
        for compressed in (False, True):
            reply = self.register(BODY.encode(compressed), compressed=compressed, body_crc32=7)
            self.assertEqual((reply.code, reply.remark),
                             (ResponseCode.SYSTEM_ERROR, "crc32 not match"), msg=str(compressed))
            self.assertEqual(self.tables.brokers, {}, msg=str(compressed))

    def test_no_crc(self) -> None:
        """A CRC of 0 means that there is none."""
        self.assertEqual(self.register(body_crc32=0).code, ResponseCode.SUCCESS)
        self.assertEqual(set(self.tables.brokers), {"a"})

    def test_a_body_that_cannot_be_read_changes_nothing(self) -> None:
        """Either form of damage is refused."""
        for body, compressed in [(b"{", False), (b"x", True)]:
            reply = self.register(body, compressed=compressed)
            self.assertEqual(reply.code, ResponseCode.SYSTEM_ERROR, msg=str(body))
            self.assertTrue(reply.remark, msg=str(body))
        self.assertEqual(self.tables.brokers, {})

    def test_no_body_is_a_broker_without_topics(self) -> None:
        """It has the version of an empty table, and no filter servers."""
        self.register()
        self.register(b"")
        self.assertEqual(self.tables.live[KEY].data_version, DataVersion())
        self.assertEqual(self.tables.filter_servers, {})

    def test_brokers_before_3_0_11_send_topics_alone(self) -> None:
        """Their filter servers remain as they were."""
        self.assertEqual(FILTER_SERVERS_VERSION_MIN, 37)  # MQVersion.V3_0_11
        self.register()
        wrapper = TopicConfigSerializeWrapper({"V": TopicConfig("V")}, DataVersion(0, 0, 2))
        self.register(wrapper.encode(), version=FILTER_SERVERS_VERSION_MIN - 1)
        self.assertEqual(set(self.tables.topics), {"T", "U", "V"})
        self.assertEqual(self.tables.filter_servers, {KEY: ["f:1"]})
        self.register(b"", version=FILTER_SERVERS_VERSION_MIN - 1)
        self.assertEqual(self.tables.live[KEY].data_version, DataVersion())

    def test_from_3_0_11_on_topics_alone_are_not_understood(self) -> None:
        """The fields have other names than the fields of the body."""
        self.register(TOPICS.encode(), version=FILTER_SERVERS_VERSION_MIN)
        self.assertEqual(self.tables.topics, {})

    def test_a_refused_registration_says_so(self) -> None:
        """The refused request has one topic of an unknown broker."""
        body = RegisterBrokerBody(TopicConfigSerializeWrapper({"T": TopicConfig("T")}))
        reply = self.register(body.encode())
        self.assertEqual((reply.code, reply.remark),
                         (ResponseCode.SYSTEM_ERROR, "register broker failed"))

    def test_a_slave_is_told_its_master(self) -> None:
        """The header of a slave's response has the master; that of a master's has nothing."""
        self.assertEqual(self.register().header, RegisterBrokerResponseHeader())
        reply = self.register(broker_id=1, broker_addr="10.0.0.2:10911")
        self.assertEqual(reply.header, RegisterBrokerResponseHeader(
            ha_server_addr="10.0.0.1:10912", master_addr=ADDRESS))

    def test_ordered_topics_are_told_to_brokers(self) -> None:
        """The body has the ordered topics, if there are any and the setting permits it."""
        self.assertEqual(self.register().body, b"")
        self.server.kv_config.put(ORDER_TOPIC_NAMESPACE, "T", "a:4")
        self.assertEqual(KVTable.decode(self.register().body).table, {"T": "a:4"})
        self.server.settings.update({"returnOrderTopicConfigToBroker": "false"})
        self.assertEqual(self.register().body, b"")

    def test_a_frame_of_ordered_topics_is_left_out(self) -> None:
        """A broker would close the connection on such a frame; one line is logged."""
        disk = MemoryDisk()
        disk.make_directory("/ns")
        disk.write_file("/ns/kvConfig.json", b'{"configTable":{"ORDER_TOPIC_CONFIG":{"k":"%s"}}}'
                        % (b"x" * KV_REPLY_SIZE_MAX))
        self.server = PortlessNameServer(disk=disk)
        with capturedLogs() as events:
            replies = [self.register(), self.register()]
        self.assertEqual([(reply.code, reply.body) for reply in replies],
                         [(ResponseCode.SUCCESS, b"")] * 2)
        self.assertEqual(len([event for event in events if "size" in event]), 1)
        self.server.kv_config.put(ORDER_TOPIC_NAMESPACE, "k", "a:4")
        self.assertEqual(KVTable.decode(self.register().body).table, {"k": "a:4"})

    def test_no_silence_is_endless(self) -> None:
        """A broker that asks for an endless time-out is removed within an hour."""
        self.server.ask(RequestCode.REGISTER_BROKER, {
            "brokerName": "a", "brokerAddr": ADDRESS, "clusterName": "C", "haServerAddr": "h",
            "brokerId": "0", "heartbeatTimeoutMillis": str(2**62)}, BODY.encode())
        self.assertEqual(self.tables.live[KEY].timeout_ms, BROKER_TIMEOUT_MS_MAX)
        self.server.routes.scan_not_active_broker(BROKER_TIMEOUT_MS_MAX + 1)
        self.assertEqual(self.tables.live, {})

    def test_zone_timeout_and_acting_master_are_kept(self) -> None:
        """The zone is a separate field, which a hook adds."""
        self.server.ask(RequestCode.REGISTER_BROKER, {
            "brokerName": "a", "brokerAddr": ADDRESS, "clusterName": "C", "haServerAddr": "h",
            "brokerId": "0", "__ZONE_NAME": "z", "heartbeatTimeoutMillis": "7",
            "enableActingMaster": "true"}, BODY.encode(), now_ms=5)
        group = self.tables.brokers["a"]
        self.assertEqual((group.zone_name, group.enable_acting_master), ("z", True))
        live = self.tables.live[KEY]
        self.assertEqual((live.timeout_ms, live.last_update_ms), (7, 5))

    def test_a_missing_field_is_named(self) -> None:
        """Nothing is changed."""
        reply = self.server.ask(RequestCode.REGISTER_BROKER, {"brokerName": "a"}, BODY.encode())
        self.assertEqual(reply.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("brokerAddr", reply.remark or "")


class LifeTests(BrokerRequestsCase):
    """The requests 104, 322 and 904, and time-outs."""

    def test_a_broker_leaves(self) -> None:
        """An unknown broker may unregister, too."""
        self.register()
        header = UnRegisterBrokerRequestHeader(
            broker_name="a", broker_addr=ADDRESS, cluster_name="C", broker_id=0)
        for _ in range(2):
            reply = self.server.ask(RequestCode.UNREGISTER_BROKER, header)
            self.assertEqual(reply.code, ResponseCode.SUCCESS)
            self.assertEqual(self.tables.brokers, {})

    def query(self, version: DataVersion | None, now_ms: int = 0) -> Reply:
        """Ask whether the broker must register again."""
        header = QueryDataVersionRequestHeader(
            broker_name="a", broker_addr=ADDRESS, cluster_name="C", broker_id=0)
        return self.server.ask(RequestCode.QUERY_DATA_VERSION, header,
                               version.encode() if version else b"", now_ms=now_ms)

    def test_a_version_is_compared_whole(self) -> None:
        """The answer has the version that is known; no version is another one."""
        self.register()
        for version, changed in [(DataVersion(0, 0, 1), False), (DataVersion(0, 1, 1), True),
                                 (DataVersion(0, 0, 2), True), (DataVersion(1, 0, 1), True),
                                 (None, True)]:
            reply = self.query(version)
            self.assertEqual(reply.header, QueryDataVersionResponseHeader(changed=changed),
                             msg=str(version))
            self.assertEqual(DataVersion.decode(reply.body), DataVersion(0, 0, 1))

    def test_a_broker_that_is_not_known_must_register(self) -> None:
        """No version can be returned."""
        reply = self.query(DataVersion(0, 0, 1))
        self.assertEqual((reply.header, reply.body),
                         (QueryDataVersionResponseHeader(changed=True), b""))

    def test_asking_and_heartbeats_are_signs_of_life(self) -> None:
        """Both extend the time-out."""
        self.register()
        self.query(None, now_ms=100)
        self.assertEqual(self.tables.live[KEY].last_update_ms, 100)
        header = BrokerHeartbeatRequestHeader(
            cluster_name="C", broker_addr=ADDRESS, broker_name="a")
        reply = self.server.ask(RequestCode.BROKER_HEARTBEAT, header, now_ms=200)
        self.assertEqual(reply.code, ResponseCode.SUCCESS)
        self.assertEqual(self.tables.live[KEY].last_update_ms, 200)

    def test_the_scan_closes_the_connection_of_a_silent_broker(self) -> None:
        """The scan has the period of the setting, also after a change."""
        channel = StillChannel()
        self.register(channel=channel)
        task = self.server.periodic_tasks()[0]
        assert callable(task.period_ms)
        self.assertEqual((task.first_ms, task.period_ms()), (5, 5000))
        self.server.settings.update({"scanNotActiveBrokerInterval": "70"})
        self.assertEqual(task.period_ms(), 70)
        # A change of the wall clock does not count as silence.
        self.server.time_ms = 120_000
        task.run(10**12)
        self.assertTrue(channel.active)
        self.server.time_ms = 120_001
        task.run(0)
        self.assertFalse(channel.active)
        self.assertEqual(self.tables.brokers, {})

    def test_a_lost_connection_is_the_end_until_the_server_stops(self) -> None:
        """A server that stops closes connections itself."""
        channel = StillChannel()
        self.register(channel=channel)
        self.server.stop()
        self.server.connection_lost(channel)
        self.assertEqual(set(self.tables.brokers), {"a"})
        self.server.start()
        self.server.connection_lost(channel)
        self.assertEqual(self.tables.brokers, {})


class TopicRequestTests(BrokerRequestsCase):
    """The requests 205, 216, 217 and 327."""

    def test_a_topic_is_registered_on_known_brokers(self) -> None:
        """The response is always a success; without a body nothing is registered."""
        self.register()
        for topic, name in [("V", "a"), ("W", "z")]:
            body = TopicRouteData(queue_datas=[QueueData(name, 1, 1, 6)]).encode()
            reply = self.server.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV,
                                    RegisterTopicRequestHeader(topic=topic), body)
            self.assertEqual(reply.code, ResponseCode.SUCCESS, msg=topic)
        self.server.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV,
                        RegisterTopicRequestHeader(topic="X"))
        self.assertEqual(set(self.tables.topics), {"T", "U", "V"})

    def test_a_topic_is_deleted(self) -> None:
        """An empty cluster name means no cluster."""
        self.register()
        for topic, cluster, left in [("T", "D", {"T", "U"}), ("T", "C", {"U"}), ("U", "", set())]:
            header = DeleteTopicFromNamesrvRequestHeader(topic=topic, cluster_name=cluster)
            self.server.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, header)
            self.assertEqual(set(self.tables.topics), left, msg=cluster)

    def test_write_permission_is_wiped_and_added(self) -> None:
        """The responses have the number of topics of the broker."""
        self.register()
        header = WipeWritePermOfBrokerRequestHeader(broker_name="a")
        reply = self.server.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, header)
        self.assertEqual(reply.header, WipeWritePermOfBrokerResponseHeader(wipe_topic_count=2))
        self.assertEqual(self.tables.topics["T"]["a"].perm, 4)
        reply = self.server.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, header)
        self.assertEqual(reply.header, AddWritePermOfBrokerResponseHeader(add_topic_count=2))
        self.assertEqual(self.tables.topics["T"]["a"].perm, 6)
