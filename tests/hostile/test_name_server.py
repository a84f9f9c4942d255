"""Attacks on the port of a name server do not delay or exclude clients, and use little memory."""

from __future__ import annotations

import json
import struct
import zlib
from functools import partial
from typing import Any

from tests.hostile.case import HostileCase
from tests.hostile.wire import RawConnection, json_frame
from tests.interop.servers import Servers, wait_until
from twistmq.protocol.codes import RequestCode, ResponseCode

_REGISTER = int(RequestCode.REGISTER_BROKER)


def registration(name: str, body: bytes = b"{}", **fields: str) -> bytes:
    """Return the frame of a registration."""
    return json_frame(_REGISTER, json.dumps({
        "brokerName": name, "brokerAddr": f"{name[-30:]}:1", "clusterName": "fake",
        "haServerAddr": "h", "brokerId": "0", "compressed": "false",
        "heartbeatTimeoutMillis": "3600000", **fields}), body)


def topics(prefix: str, count: int) -> bytes:
    """The body of a registration with so many topics."""
    rows = b",".join([b'"%b%d":{"topicName":"%b%d","readQueueNums":4}' % (
        prefix.encode(), number, prefix.encode(), number) for number in range(count)])
    return b'{"topicConfigSerializeWrapper":{"topicConfigTable":{%b}}}' % rows


def piece(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


class NameServerCase(HostileCase):
    """Attacks beside whom the good client hardly waits."""

    def setUp(self) -> None:
        super().setUp()
        self.attacker = self.connect(self.namesrv)

    def ask(self, frame: bytes, connection: RawConnection | None = None) -> tuple[int, str]:
        """Send a frame; :returns: code and remark of the answer."""
        connection = connection or self.attacker
        connection.says(frame)
        reply = connection.hears()
        self.assertLess(len(reply.remark or ""), 1000)
        return reply.code, reply.remark or ""

    def assertRefused(self, frame: bytes, what: str) -> None:
        self.assertIn(self.ask(frame)[0], (
            ResponseCode.SYSTEM_ERROR, ResponseCode.INVALID_PARAMETER), msg=what)


class BodyTests(NameServerCase):
    """Bodies that are long to read are refused, or read in parts."""

    #: The allocator keeps about 50 MiB of the largest bodies in a process that has just started.
    growth_max_kib = 80 * 1024

    def test_mappings_filter_servers_and_topics_by_the_megabyte(self) -> None:
        """A registration sends megabytes of mappings, filter servers and topics."""
        mappings = [b'{topic:"T%d",currIdMap:{0:1}}' % number for number in range(300_000)]
        compressed = zlib.compress(
            piece(b"{}") + struct.pack(">i", 0) + piece(b"[]")
            + struct.pack(">i", len(mappings)) + b"".join(map(piece, mappings)), 1)
        collisions = ",".join(f"{key * (2**61 - 1)}:1" for key in range(1, 20_001)).encode()
        detail = b",".join([b'"T%d":{"a":[1,2,[],{}]}' % number for number in range(400_000)])
        for what, body, is_compressed in (
            ("mappings", compressed, "true"),
            ("details", b'{"topicConfigSerializeWrapper":{"topicQueueMappingDetailMap":{%b}}}'
             % detail, "false"),
            ("servers", b'{"filterServerList":[%b""]}' % (b'"",' * 5_000_000), "false"),
            ("collisions", b'{"x":{%b}}' % collisions, "false"),
        ):
            frame = registration("fake", body, compressed=is_compressed)
            self.assertOthersGoOn(what, partial(self.assertRefused, frame, what))

    def test_data_version(self) -> None:
        """The body of 322 is three numbers, that of 217 has the queues of a topic on one broker."""
        collisions = ",".join(f"{key * (2**61 - 1)}:1" for key in range(1, 20_001)).encode()
        for code in (RequestCode.QUERY_DATA_VERSION, RequestCode.REGISTER_TOPIC_IN_NAMESRV):
            frame = json_frame(int(code), json.dumps({
                "brokerName": "a", "brokerAddr": "a:1", "clusterName": "C", "brokerId": "0",
                "topic": "t"}), b'{"x":{%b}}' % collisions)
            self.assertOthersGoOn(code.name, partial(self.assertRefused, frame, code.name))

    def test_long_names_and_addresses_are_refused_and_not_kept(self) -> None:
        """Long names and addresses are refused and not kept."""
        for size in (600, 60_000, 4_000_000):
            for field in ("brokerName", "brokerAddr", "clusterName", "haServerAddr"):
                names: dict[str, Any] = {field: "n" * size}
                self.assertRefused(registration("fake", **names), f"{field} {size}")
        self.attacker.says(json_frame(int(RequestCode.GET_BROKER_CLUSTER_INFO)))
        self.assertNotIn(b"nnn", self.attacker.hears().body)


class TopicsTests(NameServerCase):
    """Hundreds of thousands of topics."""

    growth_max_kib = 200 * 1024

    def test_they_come_and_go(self) -> None:
        """Brokers with many topics register, all topics are listed, and the
        connection is closed.
        """
        frames = [registration(f"many{number}", topics(f"many-{number}-", 60_000))
                  for number in range(3)]
        listed = json_frame(int(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
        wiped = json_frame(int(RequestCode.WIPE_WRITE_PERM_OF_BROKER), '{"brokerName":"many1"}')

        def attack() -> None:
            attacker = self.connect(self.namesrv)
            for frame in frames:
                self.assertEqual(self.ask(frame, attacker)[0], ResponseCode.SUCCESS)
            for _ in range(2):
                attacker.says(listed)
                reply = attacker.hears()
                self.assertEqual(reply.code, ResponseCode.SUCCESS)
                self.assertGreater(len(reply.body), 180_000 * 10)
            self.assertEqual(self.ask(wiped, attacker)[0], ResponseCode.SUCCESS)
            attacker.close()
            self.wait_for_topics(1000)

        self.assertOthersGoOn("topics", attack)

    def wait_for_topics(self, count: int) -> None:
        """Wait until fewer topics are left."""
        def is_so() -> bool:
            self.attacker.says(json_frame(int(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)))
            return self.attacker.hears().body.count(b",") < count

        wait_until("the topics are gone", is_so)


class PlacesTests(NameServerCase):
    """Thousands of invented brokers."""

    def make_servers(self) -> Servers:
        return self.own_servers()

    def test_others_come_in(self) -> None:
        """A restarted broker and a new one register beside a connection that takes all places."""
        known = self.connect(self.namesrv)
        self.assertEqual(self.ask(registration("known"), known)[0], ResponseCode.SUCCESS)
        known.close()
        taken = 0
        for begin in range(0, 10_100, 100):
            self.attacker.says(b"".join([registration(f"f{begin + number}")
                                         for number in range(100)]))
            taken += [self.attacker.hears().code for _ in range(100)].count(ResponseCode.SUCCESS)
        # Half of the loopback address's half.
        self.assertTrue(2490 < taken <= 2500, taken)
        for name in ("known", "new"):
            other = self.connect(self.namesrv)
            self.assertEqual(self.ask(registration(name), other), (ResponseCode.SUCCESS, ""))
        code, remark = self.ask(registration("f"))
        self.assertEqual(code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("its share", remark)


class OthersTests(NameServerCase):
    """Existing brokers."""

    def test_a_broker_is_not_dropped_by_its_address(self) -> None:
        """Neither its address nor a change of settings removes it."""
        for name in ("thief", "thief2"):
            self.assertEqual(self.ask(registration(
                name, brokerAddr=self.broker, clusterName="DefaultCluster"))[0],
                ResponseCode.SUCCESS)
        self.good.wait_for_rounds(40)
        for change in (b"bindAddress=256.1.1.1", b"plugins.enabled=nosuch", b"log.dir=/proc/x",
                       b"needWaitForService=true"):
            frame = json_frame(int(RequestCode.UPDATE_NAMESRV_CONFIG), body=change)
            self.assertEqual(self.ask(frame)[0], ResponseCode.NO_PERMISSION, msg=str(change))
