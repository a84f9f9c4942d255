"""Whole frames with wrong contents: each is answered, and the connection remains."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping

from tests.hostile.case import HostileCase
from tests.hostile.wire import RawConnection, json_frame, raw_frame
from twistmq.broker.testing.raw_client import RawClient, pull_header, send_header
from twistmq.protocol.binary_header import encode_binary_header
from twistmq.protocol.bodies import DataVersion
from twistmq.protocol.bodies.registration import REGISTRATION_SIZE_MAX
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.headers.offset import QueryConsumerOffsetRequestHeader
from twistmq.protocol.headers.pull import PullMessageResponseHeader
from twistmq.protocol.headers.topic import CreateTopicRequestHeader

_SEND = int(RequestCode.SEND_MESSAGE_V2)
_PULL = int(RequestCode.PULL_MESSAGE)
_SEND_FIELDS: Mapping[str, object] = {
    "a": "group", "b": "hostile_topic", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1",
    "h": "0"}
_PULL_FIELDS: Mapping[str, object] = {
    "consumerGroup": "group", "topic": "good_topic", "queueId": "0", "queueOffset": "0",
    "maxMsgNums": "1", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
    "subVersion": "0", "subscription": "*"}
#: Fields a pull may leave out.
_MAY_MISS = ("subscription", "commitOffset", "suspendTimeoutMillis", "subVersion")
_HEARTBEAT = int(RequestCode.HEART_BEAT)
_CREATE_TOPICS = int(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST)
_BODY_SIZE_MAX = 4 * 1024 * 1024


class RequestCase(HostileCase):
    """A test with one connection, which must survive every answer."""

    def setUp(self) -> None:
        super().setUp()
        self.attacker = self.connect()

    def asks(self, frame: bytes, connection: RawConnection | None = None) -> RemotingCommand:
        """Send a frame; :returns: the reply."""
        connection = connection or self.attacker
        connection.says(frame)
        return connection.hears()

    def assertRefused(
        self, what: str, reply: RemotingCommand, code: int = ResponseCode.SYSTEM_ERROR
    ) -> None:
        """Check that a request is refused with this code and a short reason."""
        self.assertEqual(reply.code, code, msg=f"{what}: {reply.remark}")
        self.assertTrue(reply.is_response, msg=what)
        self.assertTrue(reply.remark, msg=what)
        assert reply.remark is not None
        self.assertLess(len(reply.remark), 1000, msg=what)


class HeaderTests(RequestCase):
    """Headers that cannot be decoded."""

    def test_broken_json(self) -> None:
        """A body that is not a JSON object with a code is answered with code 1."""
        headers = {
            "empty": b"", "blank": b"  ", "cut": b'{"code":1', "no object": b"[1]",
            "number": b"1", "null": b"null", "no code": b'{"opaque":7}', "NUL": bytes(40),
            "not UTF-8": b'{"code":11,"remark":"\xff\xfe"}', "two": b'{"code":1}{"code":1}',
            "trailing comma": b'{"code":1,}', "single quotes": b"{'code':1}",
            "deep": b'{"code":11,"extFields":' + b"[" * 50_000,
            "deep member": b'{"code":11,"x":' + b'{"a":' * 10_000,
            "long number": b'{"code":' + b"9" * 5000 + b"}",
            "half a surrogate": b'{"code":11,"remark":"\\ud800"}',
        }
        for address in (self.broker, self.namesrv):
            connection = self.connect(address)
            for what, header in headers.items():
                reply = self.asks(raw_frame(header), connection)
                self.assertRefused(what, reply)

    def test_opaque_is_found(self) -> None:
        """The response has the opaque if that is found, however broken the rest is."""
        self.assertEqual(self.asks(raw_frame(b'{"opaque":4711,"code":')).opaque, 4711)
        self.assertEqual(self.asks(json_frame('"x"', opaque=12)).opaque, 12)
        # An opaque that is not an int32 is not returned, because no client could read the reply.
        self.assertEqual(self.asks(json_frame(11, opaque=2**31)).opaque, 0)

    def test_wrong_types(self) -> None:
        """A member has another type than in the protocol."""
        for member in ('"code":"eleven"', '"code":11.5', '"code":null', '"code":[]',
                       '"code":2147483648', '"code":11,"opaque":"x"',
                       '"code":11,"opaque":99999999999', '"code":11,"flag":{}',
                       '"code":11,"version":[]', '"code":11,"remark":5',
                       '"code":11,"extFields":[]', '"code":11,"extFields":"x"',
                       '"code":11,"extFields":{"topic":{}}',
                       '"code":11,"extFields":{"topic":["a"]}'):
            self.assertRefused(member, self.asks(raw_frame(b"{%s}" % member.encode())))

    def test_broken_binary(self) -> None:
        """A binary header is cut anywhere, or has wrong lengths."""
        whole = encode_binary_header(_SEND, "JAVA", 479, 7, 0, None,
                                     {name: str(value) for name, value in _SEND_FIELDS.items()})
        for size in range(len(whole)):
            self.attacker.says(raw_frame(whole[:size], serialize_type=1))
        for size in range(len(whole)):
            self.assertNotEqual(self.attacker.hears().code, ResponseCode.SUCCESS, msg=str(size))
        for position in range(len(whole)):
            broken = whole[:position] + b"\xff" * 4 + whole[position + 4:]
            self.attacker.says(raw_frame(broken, serialize_type=1))
        # Flags may say that no answer is wanted; one that must come ends the row.
        self.attacker.says(json_frame(9999, opaque=4242))
        while self.attacker.hears().opaque != 4242:
            continue


class FieldTests(RequestCase):
    """Valid headers with missing or wrong fields."""

    def fields_of(self, fields: Mapping[str, object], **changed: object) -> str:
        return json.dumps({**fields, **changed})

    def test_missing_fields(self) -> None:
        """The response names a missing field, also if all are missing."""
        for code, fields in ((_SEND, _SEND_FIELDS), (_PULL, _PULL_FIELDS)):
            for name in fields:
                if name in _MAY_MISS:
                    continue
                left = {other: value for other, value in fields.items() if other != name}
                reply = self.asks(json_frame(code, json.dumps(left)))
                self.assertRefused(f"{code} without {name}", reply)
                self.assertIn(name, reply.remark or "", msg=f"{code}")
            for nothing in ("{}", "null"):
                self.assertRefused(nothing, self.asks(json_frame(code, nothing)))

    def test_wrong_values(self) -> None:
        """The number is invalid or too large."""
        for name in ("d", "e", "f", "g", "h"):
            for value in ("", "x", "1.5", "0x1", "99999999999999999999", " 1", "٣"):
                reply = self.asks(json_frame(_SEND, self.fields_of(_SEND_FIELDS, **{name: value})))
                self.assertRefused(f"{name}={value!r}", reply)
        for value in ("2147483648", "-2147483649"):
            reply = self.asks(json_frame(_SEND, self.fields_of(_SEND_FIELDS, e=value)))
            self.assertRefused(f"e={value}", reply)

    def test_every_code_without_fields(self) -> None:
        """With no fields and a random body, each code has a response."""
        for address in (self.broker, self.namesrv):
            connection = self.connect(address)
            for code in RequestCode:
                for body in (b"", b"{", b"\xff" * 20, b"null"):
                    reply = self.asks(json_frame(int(code), body=body), connection)
                    self.assertTrue(reply.is_response, msg=code.name)

    def test_unknown_codes(self) -> None:
        """Unknown codes are answered with code 3 on both ports."""
        for address in (self.broker, self.namesrv):
            connection = self.connect(address)
            for code in (-1, 0, 9999, 2**31 - 1, -2**31):
                reply = self.asks(json_frame(code), connection)
                self.assertRefused(str(code), reply, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)

    def test_a_heartbeat_whose_body_is_no_heartbeat(self) -> None:
        """The body is not a heartbeat."""
        for body in (b"", b"{", b"[]", b"null", b'{"clientID":5}', bytes(50), b"\xff\xfe",
                     b'{"clientID":"x","consumerDataSet":[{}]}', b"[" * 100_000):
            self.assertRefused(repr(body[:20]), self.asks(json_frame(_HEARTBEAT, body=body)))

    def test_large_bodies(self) -> None:
        """The largest body that is nearly JSON is refused before it delays others."""
        count = 4_000_000
        for what, body in (
            ("bare keys", b'{"x":{%s1:2}}' % (b"1:2," * count)),
            ("no end", b'{"x":[%s' % (b"1," * count)),
            ("wrong type", b'{"x":5,"topicConfigList":[%s5]}' % (b"{}," * count)),
        ):
            for code in (_CREATE_TOPICS, _HEARTBEAT):
                self.assertRefused(what, self.asks(json_frame(code, body=body)),
                                   ResponseCode.INVALID_PARAMETER)

    def test_replies_nobody_asked_for(self) -> None:
        """Such replies are dropped; one-way requests get no response."""
        for opaque in range(200):
            self.attacker.says(json_frame(0, opaque=opaque, flag=1))
            self.attacker.says(json_frame(_SEND, opaque=opaque, flag=2))
            self.attacker.says(json_frame(9999, opaque=opaque, flag=2))
        self.assertEqual(self.asks(json_frame(9999, opaque=777)).opaque, 777)


class TopicTests(RequestCase):
    """Invalid names, and missing queues."""

    def test_illegal_names(self) -> None:
        """Neither a send nor a creation accepts an invalid name."""
        for name in ("", " ", "a b", "a/b", "../../etc/passwd", "a.b", "a\x00b", "a\nb", "täöpic",
                     "t" * 128, "t" * 100_000, "$topic", "\U0001f600"):
            fields = {**_SEND_FIELDS, "b": name}
            reply = self.asks(json_frame(_SEND, json.dumps(fields)))
            self.assertRefused(f"send to {name[:20]!r}", reply, ResponseCode.INVALID_PARAMETER)
        folder = self.servers.data / "store" / "consumequeue"
        for found in folder.glob("*"):
            self.assertRegex(found.name, r"^[%|a-zA-Z0-9_-]{1,127}$")

    def test_create_illegal(self) -> None:
        """An administrator is refused as well."""
        with RawClient(self.broker) as client:
            for name in ("", "a/b", "../x", "t" * 128, "a\nb"):
                reply = client.request(
                    RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader(
                        topic=name, default_topic="TBW102", read_queue_nums=1, write_queue_nums=1,
                        perm=6, topic_filter_type="SINGLE_TAG"))
                self.assertNotEqual(reply.code, ResponseCode.SUCCESS, msg=repr(name))

    def test_reserved_topics(self) -> None:
        """Clients cannot send to topics of the broker."""
        fields = {**_SEND_FIELDS, "b": "SCHEDULE_TOPIC_XXXX"}
        self.assertRefused("reserved", self.asks(json_frame(_SEND, json.dumps(fields))),
                           ResponseCode.NO_PERMISSION)

    def test_queues_that_are_not_there(self) -> None:
        """A queue id beyond the topic's is refused, to writers and readers."""
        for queue in ("4000", "2147483647"):
            send = {**_SEND_FIELDS, "b": "good_topic", "e": queue}
            self.assertRefused(f"send to queue {queue}",
                               self.asks(json_frame(_SEND, json.dumps(send))),
                               ResponseCode.INVALID_PARAMETER)
        for queue in ("4000", "-1", "-2147483648"):
            pull = {**_PULL_FIELDS, "queueId": queue}
            self.assertRefused(f"pull of queue {queue}",
                               self.asks(json_frame(_PULL, json.dumps(pull))),
                               ResponseCode.INVALID_PARAMETER)

    def test_topic_that_is_not_there(self) -> None:
        """Reading a topic that is not there does not make it."""
        pull = {**_PULL_FIELDS, "topic": "nowhere"}
        for _ in range(2):
            self.assertRefused("no topic", self.asks(json_frame(_PULL, json.dumps(pull))),
                               ResponseCode.TOPIC_NOT_EXIST)


class BodyTests(RequestCase):
    """Messages that are too long."""

    def test_over_the_limit(self) -> None:
        """A message at the limit is stored; one more byte gives code 13."""
        with RawClient(self.broker) as client:
            header = send_header("long_topic", 1)
            reply = client.request(RequestCode.SEND_MESSAGE_V2, header, bytes(_BODY_SIZE_MAX + 1))
            self.assertRefused("one byte more", reply, ResponseCode.MESSAGE_ILLEGAL)
            self.assertEqual(client.max_offset("long_topic"), 0)
            reply = client.request(RequestCode.SEND_MESSAGE_V2, header, bytes(_BODY_SIZE_MAX))
            self.assertEqual(reply.code, ResponseCode.SUCCESS, msg=reply.remark)
            self.assertEqual([len(message.body) for message in client.pull("long_topic")],
                             [_BODY_SIZE_MAX])

    def test_properties_over_the_limit(self) -> None:
        """Properties that do not fit their 16-bit length are code 13 as well."""
        fields = {**_SEND_FIELDS, "i": "name\x01" + "v" * 40_000 + "\x02"}
        self.assertRefused("properties", self.asks(json_frame(_SEND, json.dumps(fields))),
                           ResponseCode.MESSAGE_ILLEGAL)

    def test_broken_batches(self) -> None:
        """An invalid batch is refused as a whole."""
        code = int(RequestCode.SEND_BATCH_MESSAGE)
        fields = json.dumps({**_SEND_FIELDS, "b": "batch_topic", "m": "true"})
        for body in (b"", b"\x00", b"\xff" * 40, bytes(40), (2**31 - 1).to_bytes(4, "big") * 10):
            reply = self.asks(json_frame(code, fields, body))
            self.assertRefused(repr(body[:8]), reply, reply.code)
            self.assertNotEqual(reply.code, ResponseCode.SUCCESS)
        with RawClient(self.broker) as client:
            self.assertEqual(client.max_offset("batch_topic"), 0)


class OffsetTests(RequestCase):
    """Reads outside a queue."""

    def pull(self, topic: str, offset: int, queue_id: int = 0) -> tuple[int, int, int, int]:
        """Send a pull without a wait; :returns: code, next, minimum and maximum offset."""
        with RawClient(self.broker) as client:
            reply = client.request(RequestCode.PULL_MESSAGE,
                                   pull_header(topic, offset, queue_id=queue_id))
            header = reply.header(PullMessageResponseHeader)
            self.assertFalse(reply.body)
            return reply.code, header.next_begin_offset, header.min_offset, header.max_offset

    def test_beyond_the_queue(self) -> None:
        """The code is 21, with the offset at which to continue."""
        moved, nothing = int(ResponseCode.PULL_OFFSET_MOVED), int(ResponseCode.PULL_NOT_FOUND)
        with RawClient(self.broker) as client:
            for number in range(3):
                client.send("offset_topic", b"message %d" % number)
            end = client.max_offset("offset_topic")
        self.assertEqual(self.pull("offset_topic", end), (nothing, end, 0, end))
        for offset in (end + 1, end + 1000, 2**63 - 1):
            self.assertEqual(self.pull("offset_topic", offset), (moved, end, 0, end),
                             msg=str(offset))
        for offset in (-1, -1000, -2**63):
            self.assertEqual(self.pull("offset_topic", offset), (moved, 0, 0, end),
                             msg=str(offset))

    def test_empty_queue(self) -> None:
        """In a queue that never had a message, only offset 0 may wait."""
        moved, nothing = int(ResponseCode.PULL_OFFSET_MOVED), int(ResponseCode.PULL_NOT_FOUND)
        with RawClient(self.broker) as client:
            client.send("offset_topic", b"in queue 0")
        self.assertEqual(self.pull("offset_topic", 0, 3), (nothing, 0, 0, 0))
        for offset in (1, -1, 2**63 - 1):
            self.assertEqual(self.pull("offset_topic", offset, 3), (moved, 0, 0, 0),
                             msg=str(offset))

    def test_absurd_counts(self) -> None:
        """Impossible counts and unknown flags are answered."""
        for changed in ({"maxMsgNums": "0"}, {"maxMsgNums": "-1"}, {"maxMsgNums": "2147483647"},
                        {"sysFlag": "-1"}, {"suspendTimeoutMillis": "-1"},
                        {"subVersion": "-9223372036854775808"}):
            reply = self.asks(json_frame(_PULL, json.dumps({**_PULL_FIELDS, **changed})))
            self.assertTrue(reply.is_response, msg=str(changed))

    def test_offsets_that_cannot_be(self) -> None:
        """A commit far outside the queue is refused, and reads continue."""
        for offset in ("-1", "9223372036854775807"):
            fields = {"consumerGroup": "odd_group", "topic": "good_topic", "queueId": "0",
                      "commitOffset": offset}
            reply = self.asks(json_frame(int(RequestCode.UPDATE_CONSUMER_OFFSET),
                                         json.dumps(fields)))
            self.assertIn(reply.code, (ResponseCode.INVALID_PARAMETER,
                                       ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST))
            pulled = self.asks(json_frame(_PULL, json.dumps({
                **_PULL_FIELDS, "consumerGroup": "odd_group", "sysFlag": "5",
                "commitOffset": offset})))
            self.assertTrue(pulled.is_response)
        with RawClient(self.broker) as client:
            reply = client.request(RequestCode.QUERY_CONSUMER_OFFSET,
                                   QueryConsumerOffsetRequestHeader(
                                       consumer_group="odd_group", topic="good_topic",
                                       queue_id=0, set_zero_if_not_found=False))
            self.assertEqual(reply.code, ResponseCode.QUERY_NOT_FOUND)
        self.assertEqual(self.pull("good_topic", 2**62)[0], ResponseCode.PULL_OFFSET_MOVED)


class BombTests(RequestCase):
    """Bodies that are small on the wire and large when they are unpacked."""

    fields: Mapping[str, object] = {
        "brokerName": "bomb", "brokerAddr": "127.0.0.1:1", "clusterName": "hostile",
        "haServerAddr": "127.0.0.1:2", "brokerId": "0", "compressed": "true"}

    def setUp(self) -> None:
        super().setUp()
        self.attacker = self.connect(self.namesrv)

    def registers(self, inflated: bytes) -> RemotingCommand:
        """:returns: the reply to a compressed registration."""
        return self.asks(json_frame(int(RequestCode.REGISTER_BROKER), json.dumps(self.fields),
                                    zlib.compress(inflated)))

    def test_zeros_without_end(self) -> None:
        """The body has endless zeros, invalid topics or brackets."""
        version = DataVersion().encode()
        head = struct.pack(">i", len(version)) + version
        count = (REGISTRATION_SIZE_MAX - len(head) - 4) // 4
        deep = b"[" * (REGISTRATION_SIZE_MAX // 2)
        for what, inflated in (
            ("zeros", bytes(2 * REGISTRATION_SIZE_MAX)),
            ("nothing", head + struct.pack(">i", count) + bytes(4 * count)),
            ("negative", head + struct.pack(">i", -1)),
            ("deep", head + bytes(4) + struct.pack(">i", len(deep)) + deep),
        ):
            self.assertRefused(what, self.registers(inflated))
        self.assertRefused("no zlib", self.asks(json_frame(
            int(RequestCode.REGISTER_BROKER), json.dumps(self.fields), b"\xff" * 100)))
