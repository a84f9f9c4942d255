"""Whole frames that would take long to decode, in every possible place: each gets a short response,
and a good client beside it hardly waits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import count
from threading import Thread

from tests.hostile.case import HostileCase, MemoryPeak
from tests.hostile.wire import json_frame, raw_frame
from tests.interop.servers import Servers
from twistmq.broker.constants import HEADER_SIZE_MAX, LONG_HEADER_SIZE_MAX
from twistmq.protocol.binary_header import encode_binary_header
from twistmq.protocol.codes import RequestCode as Code
from twistmq.protocol.codes import ResponseCode

_MIB = 1024 * 1024
#: Python's integers have a hash modulo this.
_HASH_PERIOD = 2**61 - 1
_SEND_FIELDS: Mapping[str, object] = {
    "a": "group", "b": "good_topic", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1",
    "h": "0"}
_PULL_FIELDS: Mapping[str, object] = {
    "consumerGroup": "group", "topic": "good_topic", "queueId": "0", "queueOffset": "0",
    "maxMsgNums": "1", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
    "subVersion": "0", "expressionType": "SQL92"}


def names(size_bytes: int) -> str:
    """Return the maximum number of unknown extFields."""
    return ",".join(f'"{number:x}":""' for number in range(size_bytes // 11))


class DecodingCase(HostileCase):
    """Attacks beside whom the good client hardly waits."""

    def assertAnsweredAtOnce(
        self, what: str, frame: bytes | Callable[[int], bytes], code: int | None = None,
        address: str | None = None,
    ) -> None:
        """A frame is answered in a few words, and others do not wait for that.

        :param frame: one for each time, where the answer to the first would be remembered.
        :param code: None: any, for what is not too long.
        """
        attacker = self.connect(address)
        numbers = count()

        def attack() -> None:
            attacker.says(frame if isinstance(frame, bytes) else frame(next(numbers)))
            reply = attacker.hears()
            if code is not None:
                self.assertEqual(reply.code, code, msg=f"{what}: {reply.remark}")
            self.assertLess(len(reply.remark or ""), 1000, msg=what)

        self.assertOthersGoOn(what, attack)


class KeyTests(DecodingCase):
    """Keys that hash alike, in bodies of every code that reads one."""

    def body(self, size_bytes: int, quote: str = "") -> bytes:
        keys = (f"{quote}{number * _HASH_PERIOD}{quote}:1"
                for number in range(1, size_bytes // 24))
        return b'{"x":{%b},"brokerAddrs":{},"currIdMap":{}}' % ",".join(keys).encode()

    def test_522_kb_of_them_took_ten_seconds(self) -> None:
        """522 KB of them once took ten seconds."""
        for code in (Code.HEART_BEAT, Code.LOCK_BATCH_MQ, Code.QUERY_ASSIGNMENT,
                     Code.UPDATE_AND_CREATE_TOPIC_LIST, Code.UPDATE_AND_CREATE_STATIC_TOPIC):
            for size in (522_000, 250_000, 60_000):
                self.assertAnsweredAtOnce(f"{code} {size}",
                                         json_frame(int(code), body=self.body(size)))

    def test_name_server(self) -> None:
        """The same in versions and routes, plain JSON too."""
        fields = json.dumps({"topic": "T", "brokerName": "b", "brokerAddr": "a",
                             "clusterName": "c", "brokerId": "0"})
        for code in (Code.QUERY_DATA_VERSION, Code.REGISTER_TOPIC_IN_NAMESRV):
            for quote in ("", '"'):
                body = self.body(522_000, quote).replace(b'"x"', b'"stateVersion":{},"x"')
                self.assertAnsweredAtOnce(f"{code}{quote}", json_frame(int(code), fields, body),
                                         address=self.namesrv)
        table = self.body(250_000, '"').replace(b'"x"', b'"brokerDatas":[{"brokerAddrs"', 1)
        table = table.replace(b'},"brokerAddrs":{}', b'}}],"y":{}', 1)
        self.assertAnsweredAtOnce("route", json_frame(
            int(Code.REGISTER_TOPIC_IN_NAMESRV), fields, table), address=self.namesrv)


class HeaderTests(DecodingCase):
    """Headers of megabytes, and as long as they may be."""

    def test_a_million_unknown_ext_fields_are_bounded(self) -> None:
        """A million unknown extFields are sent to every kind of code, in both encodings."""
        fields = names(14 * _MIB)
        for code in (Code.PULL_MESSAGE, Code.QUERY_CONSUMER_OFFSET, Code.HEART_BEAT, 9999):
            self.assertAnsweredAtOnce(f"{code}", json_frame(int(code), "{" + fields + "}"),
                                     ResponseCode.INVALID_PARAMETER)
        self.assertAnsweredAtOnce("send", json_frame(
            int(Code.SEND_MESSAGE_V2), "{" + fields + "}"), ResponseCode.MESSAGE_ILLEGAL)
        header = encode_binary_header(int(Code.SEND_MESSAGE_V2), "JAVA", 479, 7, 0, None,
                                      {f"{number:x}": "" for number in range(800_000)})
        self.assertAnsweredAtOnce("binary", raw_frame(header, serialize_type=1),
                                 ResponseCode.MESSAGE_ILLEGAL)

    def test_as_many_as_may_be(self) -> None:
        """A request at the limit is decoded, and delays no other client much either."""
        few, many = (names(size - 600) for size in (HEADER_SIZE_MAX, LONG_HEADER_SIZE_MAX))
        self.assertAnsweredAtOnce("lite pull", json_frame(
            int(Code.LITE_PULL_MESSAGE), "{" + many + "}"), ResponseCode.SYSTEM_ERROR)
        self.assertAnsweredAtOnce("commit", json_frame(
            int(Code.UPDATE_CONSUMER_OFFSET), "{" + few + "}"), ResponseCode.SYSTEM_ERROR)

    def test_long_texts(self) -> None:
        """Properties and keys of 16 MB, lists of names: of topics and of groups."""
        for text in ("k\x01" + "v" * 8, "\x01\x02" * 5, "KEYS\x01" + "a " * 30):
            fields = json.dumps({**_SEND_FIELDS, "i": text * (10 * _MIB // len(text) // 6)})
            for code in (Code.SEND_MESSAGE_V2, Code.SEND_REPLY_MESSAGE_V2):
                self.assertAnsweredAtOnce(f"{code} {text[:5]!r}", json_frame(int(code), fields),
                                         ResponseCode.MESSAGE_ILLEGAL)
        fields = json.dumps({"group": "g", "topic": "good_topic", "compareGroup": "g",
                             "consumerGroup": "g", "filterGroups": "g," * (7 * _MIB),
                             "topicList": ""})
        for code in (Code.QUERY_CORRECTION_OFFSET, Code.GET_CONSUME_STATS):
            self.assertAnsweredAtOnce(f"{code}", json_frame(int(code), fields),
                                     ResponseCode.INVALID_PARAMETER)

    def test_no_opaque(self) -> None:
        """Without an opaque no response is possible: the connection is closed with a line."""
        attacker = self.connect()
        attacker.says(raw_frame(b"x" * (15 * _MIB)))
        self.assertTrue(attacker.is_closed())
        self.assertIn("over the limit of", self.assertLoggedOnce(attacker))


class MemoryTests(DecodingCase):
    """Long requests of many connections at a time."""

    #: What may come over what is on the wire, KiB: a few copies of one frame.
    more_max_kib = 160 * 1024
    #: The allocator keeps pages between frames: so much of their 120 MB is left at most.
    growth_max_kib = 96 * 1024

    def make_servers(self) -> Servers:
        """Start servers that refuse no send for its wait, because a machine may be slow."""
        return self.own_servers("log.level=debug", f"flow_control.queue_bytes_max={256 * _MIB}")

    def test_lists_of_names_in_eight_headers(self) -> None:
        """Lists of names in eight headers, 120 MB together, were 945 MB of objects."""
        names_of = ";".join(f"{number:x}" for number in range(2_200_000))
        frame = json_frame(int(Code.GET_CONSUME_STATS), json.dumps(
            {"consumerGroup": "g", "topicList": names_of}))
        attackers = [self.connect() for _ in range(8)]
        with MemoryPeak(self.servers.pid) as peak:
            threads = [Thread(target=attacker.says, args=(frame,)) for attacker in attackers]
            for thread in threads:
                thread.start()
            for thread, attacker in zip(threads, attackers, strict=True):
                thread.join()
                self.assertEqual(attacker.hears().code, ResponseCode.INVALID_PARAMETER)
        self.assertLess(peak.kib - self.memory_before_kib,
                        8 * len(frame) // 1024 + self.more_max_kib)


class BodyTests(DecodingCase):
    """Bodies of megabytes."""

    def test_tags_groups_topics_and_queues_without_end(self) -> None:
        """There are endless tags, groups, topics and queues, in plain JSON and nearly so."""
        tags = b",".join(b'"%x"' % number for number in range(900_000))
        bodies = {
            Code.CHECK_CLIENT_CONFIG:
                b'{"subscriptionData":{"topic":"T","tagsSet":[%b]},"group":"g"}' % tags,
            Code.HEART_BEAT: b'{"clientID":"c","consumerDataSet":[{"groupName":"g",'
                             b'"subscriptionDataSet":[{"topic":"T","tagsSet":[%b]}]}]}' % tags,
            Code.LOCK_BATCH_MQ: b'{"mqSet":[%b{}]}' % (b"{}," * 3_000_000),
            Code.UPDATE_AND_CREATE_TOPIC_LIST:
                b'{"topicConfigList":[%b{}]}' % (b'{"topicName":"a"},' * 700_000),
            Code.QUERY_ASSIGNMENT: b'{"topic":"%b"}' % (b"t" * 8 * _MIB),
            Code.SET_MESSAGE_REQUEST_MODE: b'{"topic":"%b"}' % (b"t" * 8 * _MIB),
            Code.UPDATE_BROKER_CONFIG: b"a=b\n" * 3_000_000,
        }
        for code, body in bodies.items():
            self.assertAnsweredAtOnce(code.name, json_frame(int(code), body=body),
                                     ResponseCode.INVALID_PARAMETER)

    def test_as_long_as_may_be(self) -> None:
        """The body has the maximum length and the slowest content."""
        tags = b",".join(b'"%x"' % number for number in range(60_000))
        bodies = {
            Code.CHECK_CLIENT_CONFIG:
                b'{"subscriptionData":{"topic":5,"tagsSet":[%b]},"group":"g"}' % tags[:500_000],
            Code.HEART_BEAT: b'{"clientID":"c","consumerDataSet":[%b{}]}'
                             % (b'{"groupName":"a"},' * 110_000),
            Code.LOCK_BATCH_MQ: b'{"mqSet":[%b{}]}' % (b'{"topic":"","brokerName":""},' * 72_000),
            Code.UPDATE_AND_CREATE_TOPIC_LIST:
                b'{"topicConfigList":[%b{}]}' % (b'{"topicName":"a"},' * 110_000),
        }
        for code, body in bodies.items():
            self.assertAnsweredAtOnce(code.name, json_frame(int(code), body=body))


class ExpressionTests(DecodingCase):
    """SQL92 expressions, on a broker that supports them."""

    def make_servers(self) -> Servers:
        return self.own_servers("enablePropertyFilter=true")

    def test_sixty_thousand_of_them_took_eight_seconds(self) -> None:
        """Sixty thousand of them once took eight seconds."""
        for text in ("-" * 60_000, "a > --1 AND " * 5_000, "a = '" + "-" * 60_000):
            def pull(number: int, text: str = text) -> bytes:
                fields = {**_PULL_FIELDS, "subscription": text[number:]}
                return json_frame(int(Code.PULL_MESSAGE), json.dumps(fields))

            def check(number: int, text: str = text) -> bytes:
                body = {"clientId": "c", "group": "g", "subscriptionData": {
                    "topic": "T", "subString": f"{text}{number}", "expressionType": "SQL92"}}
                return json_frame(int(Code.CHECK_CLIENT_CONFIG), body=json.dumps(body).encode())

            for ask in (pull, check):
                self.assertAnsweredAtOnce(f"{ask.__name__} {text[:10]}", ask,
                                          ResponseCode.SUBSCRIPTION_PARSE_FAILED)
