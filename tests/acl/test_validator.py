"""The requests that pass and the answers to refused ones; a refused request is never served."""

from __future__ import annotations

from collections.abc import Mapping

from tests.acl.box import ADMIN, ALICE, BOB, PREFIX, AclTestCase
from twistmq.acl import named, validator
from twistmq.acl.resources import needed_resources
from twistmq.acl.validator import host_of
from twistmq.broker.testing.raw_client import pull_header, send_header
from twistmq.protocol.batch import decode_batch, encode_batch
from twistmq.protocol.bodies import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import VERSION, decode_command, encode_request
from twistmq.protocol.frame import JSON, ROCKETMQ, FrameDecoder, encode_frame
from twistmq.protocol.header import ext_fields_of
from twistmq.protocol.headers.client import UnregisterClientRequestHeader
from twistmq.protocol.headers.offset import GetMaxOffsetRequestHeader
from twistmq.protocol.signature import request_content, signature_of

NO_KEY = (ResponseCode.SYSTEM_ERROR, f"{PREFIX}No accessKey is configured")
UNKNOWN_CODE = 29_999


class ValidatorTests(AclTestCase):
    """Requests that are checked against the accounts of ``box``."""

    def heartbeat(self, group: str, *topics: str) -> bytes:
        return HeartbeatData("client", (ProducerData("p"),), (ConsumerData(
            group, subscription_data_set=tuple(map(SubscriptionData, topics))),)).encode()

    def refusal(self, *args: object, **kwargs: object) -> str:
        """Return the text of the validator's refusal; empty if the request passes."""
        reply = self.ask(*args, **kwargs)  # type: ignore[arg-type]
        if reply.code != ResponseCode.SYSTEM_ERROR or not (reply.remark or "").startswith(PREFIX):
            return ""
        assert reply.remark is not None
        return reply.remark.removeprefix(PREFIX)

    def test_every_code_needs_an_account(self) -> None:
        """All codes get the same answer, whether they are served or not, and have no effect."""
        bodies = {RequestCode.HEART_BEAT: self.heartbeat("g", "hers")}
        codes = {*self.box.kernel.dispatcher.handlers, *RequestCode, UNKNOWN_CODE}
        for code in sorted(codes):
            reply = self.ask(None, code, None, bodies.get(RequestCode(code), b"")
                             if code != UNKNOWN_CODE else b"")
            self.assertEqual((reply.code, reply.remark), NO_KEY, msg=str(code))
            self.assertEqual(reply.body, b"", msg=str(code))
        self.assertEqual(self.box.kernel.clients.consumer_group("g"), None)

    def test_unreadable_header(self) -> None:
        """A client without an account does not learn whether its header can be read."""
        header = GetMaxOffsetRequestHeader(topic="hers", queue_id=0)
        frame = encode_request(RequestCode.GET_MAX_OFFSET, 1, header)
        frame = frame.replace(b'"queueId":"0"', b'"queueId":"x"')
        [reply] = self.box.kernel.dispatcher.execute(self.peer(), FrameDecoder().feed(frame), 0)
        self.assertEqual(decode_command(FrameDecoder().feed(reply)[0]).remark, NO_KEY[1])

    def test_fields_that_are_none(self) -> None:
        """A value of extFields that is not a map counts as no account."""
        header = b'{"code":26,"opaque":1,"extFields":["AccessKey"]}'
        frames = FrameDecoder().feed(encode_frame(JSON, header, b""))
        [reply] = self.box.kernel.dispatcher.execute(self.peer(), frames, 0)
        command = decode_command(FrameDecoder().feed(reply)[0])
        self.assertTrue((command.remark or "").startswith(PREFIX), msg=command.remark)

    def test_fields_that_come_twice(self) -> None:
        """If a header has two topics, the topic that is served is also the one that is checked, in
        either encoding.
        """
        for topic, other, code in (("hers", "read", 0), ("read", "hers", 1)):
            fields = {**ext_fields_of(send_header(topic, 0)), "AccessKey": ALICE[0]}
            content = request_content(fields, b"x", VERSION)
            fields["Signature"] = signature_of(content, ALICE[1])
            for encoding in (JSON, ROCKETMQ):
                # The first of the two fields has another name until the frame is made.
                frame = encode_request(RequestCode.SEND_MESSAGE_V2, 1, None, b"x",
                                       serialize_type=encoding,
                                       extra_fields={"~": other, **fields})
                doubled = frame.replace(b'"~"', b'"b"').replace(b"\x00\x01~", b"\x00\x01b")
                self.assertNotEqual(doubled, frame)
                frames = FrameDecoder().feed(doubled)
                [reply] = self.box.kernel.dispatcher.execute(self.peer(), frames, 0)
                [answer] = FrameDecoder().feed(reply)
                self.assertEqual(decode_command(answer).code, code, msg=f"{topic} {encoding}")
        self.assertIsNotNone(self.box.kernel.topic_config.get("hers"))
        self.assertIsNone(self.box.kernel.topic_config.get("read"))

    def test_a_refused_one_way_request_is_neither_answered_nor_served(self) -> None:
        """The broker does not answer the request and does not serve it."""
        header = send_header("hers", 0)
        self.assertIsNone(self.box.send(self.peer(), RequestCode.SEND_MESSAGE_V2, header, b"x",
                                        oneway=True))
        self.assertEqual(self.box.kernel.store.commit_log.max_offset, 0)

    def test_replayed_with_another_body(self) -> None:
        """A frame whose body was changed is refused; the unchanged frame passes again."""
        header = send_header("hers", 0)
        self.assertEqual(self.ask(ALICE, RequestCode.SEND_MESSAGE_V2, header, b"paid").code, 0)
        self.assertEqual(self.ask(ALICE, RequestCode.SEND_MESSAGE_V2, header, b"paid").code, 0)
        stored = self.box.kernel.store.commit_log.max_offset
        self.assertEqual(
            self.refusal(ALICE, RequestCode.SEND_MESSAGE_V2, header, b"PAID", signed_body=b"paid"),
            "Check signature failed for accessKey=alice-key")
        self.assertEqual(self.box.kernel.store.commit_log.max_offset, stored)

    def test_an_unknown_key_or_a_wrong_signature_is_refused(self) -> None:
        """The cases are an unknown key, another account's secret, and no signature."""
        code = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER
        self.assertEqual(self.refusal(("nobody-key", ALICE[1]), code),
                         "No acl config for nobody-key")
        self.assertEqual(self.refusal((ALICE[0], BOB[1]), code),
                         "Check signature failed for accessKey=alice-key")
        reply = self.box.send(self.peer(), code, extra_fields={"AccessKey": "alice-key"})
        assert reply is not None
        self.assertEqual(reply.remark, f"{PREFIX}Check signature failed for accessKey=alice-key")
        for keys in (ADMIN, ALICE, BOB):
            self.assertEqual(self.ask(keys, code).code, ResponseCode.SUCCESS, msg=keys[0])

    def test_unknown_code(self) -> None:
        """With an account, the answer is the same as without access control."""
        self.assertEqual(self.ask(ALICE, UNKNOWN_CODE).code,
                         ResponseCode.REQUEST_CODE_NOT_SUPPORTED)

    def test_sends_need_pub_on_the_topic(self) -> None:
        """A send needs PUB on the topic, and a read needs SUB on the topic and the group."""
        send, pull = RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE
        self.assertEqual(self.refusal(ALICE, send, send_header("hers", 0), b"x"), "")
        self.assertEqual(self.refusal(ALICE, send, send_header("read", 0), b"x"),
                         "No default permission for topic:read")
        self.assertEqual(self.refusal(ALICE, send, send_header("any", 0), b"x"),
                         "No default permission for topic:any")
        self.assertEqual(self.refusal(ADMIN, send, send_header("any", 0), b"x"), "")
        for code in (pull, RequestCode.LITE_PULL_MESSAGE):
            self.assertEqual(self.refusal(ALICE, code, pull_header("hers", group="g")), "")
            self.assertEqual(self.refusal(ALICE, code, pull_header("write", group="g")),
                             "No default permission for topic:write")
            self.assertEqual(self.refusal(ALICE, code, pull_header("hers", group="not-hers")),
                             "No default permission for group:not-hers")

    def test_a_batch_is_read_last(self) -> None:
        """The body is not read if the account may not send it, or if it is too long."""
        calls: list[bytes] = []

        def count(body: bytes) -> list[tuple[int, bytes, str]]:
            calls.append(body)
            return decode_batch(body)

        self.patch(named, "decode_batch", count)
        body_max = self.box.kernel.settings.int("maxMessageSize")
        batch = encode_batch([(0, b"x", "INNER_MULTI_DISPATCH\x01%LMQ%a\x02")])
        for code, topic, is_batch in (
            (RequestCode.SEND_MESSAGE, "topic", "batch"), (RequestCode.SEND_MESSAGE_V2, "b", "m"),
            (RequestCode.SEND_BATCH_MESSAGE, "b", "m"),
        ):
            for name in ("read", "other"):
                reply = self.ask_fields(ALICE, code, {topic: name, is_batch: "true"}, batch)
                self.assertEqual(reply.remark, f"{PREFIX}No default permission for topic:{name}")
            reply = self.ask_fields(ALICE, code, {topic: "hers", is_batch: "true"},
                                    batch.ljust(body_max + 1))
            self.assertEqual(reply.code, ResponseCode.MESSAGE_ILLEGAL, msg=reply.remark)
            self.assertEqual(calls, [])
            reply = self.ask_fields(ALICE, code, {topic: "hers", is_batch: "true"}, batch)
            self.assertEqual(reply.remark, f"{PREFIX}No default permission for topic:%LMQ%a")
            self.assertEqual(calls, [batch])
            calls.clear()

    def test_what_passed_before(self) -> None:
        """A permitted request lets equal requests pass, no others, and only while the permission
        lasts.
        """
        code, file = RequestCode.SEND_MESSAGE_V2, self.plain.read_text()
        for _ in range(2):
            self.assertEqual(self.refusal(ALICE, code, send_header("hers", 0), b"x"), "")
            self.assertEqual(self.refusal(ALICE, code, send_header("read", 0), b"x"),
                             "No default permission for topic:read")
            self.assertEqual(self.refusal(BOB, code, send_header("hers", 0), b"x"),
                             "No default permission for topic:hers")
            self.assertEqual(
                self.refusal(ALICE, code, send_header("hers", 0), b"y", signed_body=b"x"),
                "Check signature failed for accessKey=alice-key")
        self.plain.write_text(file.replace("hers=PUB|SUB", "hers=SUB"))
        self.look_at_files()
        self.assertEqual(self.refusal(ALICE, code, send_header("hers", 0), b"x"),
                         "No default permission for topic:hers")

    def test_what_is_remembered(self) -> None:
        """The needs of a request are computed once, and again for another code."""
        asked = []

        def needed(code: int, fields: Mapping[str, str], body: bytes) -> object:
            asked.append(code)
            return needed_resources(code, fields, body)

        self.patch(validator, "needed_resources", needed)
        for _ in range(3):
            self.assertEqual(
                self.refusal(ALICE, RequestCode.SEND_MESSAGE_V2, send_header("write", 0), b"x"), "")
            self.assertEqual(
                self.refusal(ALICE, RequestCode.PULL_MESSAGE, pull_header("write", group="g")),
                "No default permission for topic:write")
        self.assertEqual(asked, [310, 11, 11, 11])

    def test_who_is_gone(self) -> None:
        """A removed account is unknown, even if its requests passed before."""
        header = send_header("RMQ_SYS_TRACE_TOPIC", 0)
        self.assertEqual(self.refusal(BOB, RequestCode.SEND_MESSAGE_V2, header, b"x"), "")
        self.bobs.unlink()
        self.look_at_files()
        self.assertEqual(self.refusal(BOB, RequestCode.SEND_MESSAGE_V2, header, b"x"),
                         "No acl config for bob-key")

    def test_trace_topic(self) -> None:
        """Every account may send traces, and may read them only with a permission."""
        topic = "RMQ_SYS_TRACE_TOPIC"
        self.assertEqual(
            self.refusal(BOB, RequestCode.SEND_MESSAGE_V2, send_header(topic, 0), b"x"), "")
        self.assertEqual(
            self.refusal(BOB, RequestCode.PULL_MESSAGE, pull_header(topic, group="g")),
            f"No default permission for topic:{topic}")

    def test_a_refused_heartbeat_registers_nothing(self) -> None:
        """Each group and each topic of a consumer counts; a refused client is not registered."""
        code = RequestCode.HEART_BEAT
        self.assertEqual(self.refusal(ALICE, code, None, self.heartbeat("not-hers", "hers")),
                         "No default permission for group:not-hers")
        self.assertEqual(self.refusal(ALICE, code, None, self.heartbeat("g", "hers", "write")),
                         "No default permission for topic:write")
        self.assertIsNone(self.box.kernel.clients.consumer_group("g"))
        self.assertEqual(self.refusal(ALICE, code, None, self.heartbeat("g", "hers", "read")), "")
        self.assertIsNotNone(self.box.kernel.clients.consumer_group("g"))
        self.assertNotEqual(self.refusal(ALICE, code, None, b"{junk"), "")

    def test_only_an_account_that_may_consume_unregisters_a_group(self) -> None:
        """Only an account with the permission to consume in a group can unregister it."""
        peer = self.peer()
        self.ask(ALICE, RequestCode.HEART_BEAT, None, self.heartbeat("g", "hers"), peer=peer)
        leave = UnregisterClientRequestHeader(client_id="client", consumer_group="g")
        self.assertEqual(self.refusal(None, RequestCode.UNREGISTER_CLIENT, leave, peer=peer),
                         "No accessKey is configured")
        self.assertEqual(self.refusal(BOB, RequestCode.UNREGISTER_CLIENT, leave, peer=peer),
                         "No default permission for group:g")
        self.assertIsNotNone(self.box.kernel.clients.consumer_group("g"))
        self.assertEqual(self.refusal(ALICE, RequestCode.UNREGISTER_CLIENT, leave, peer=peer), "")

    def test_codes_of_administrators(self) -> None:
        """The codes of administrators are refused to other accounts."""
        self.assertEqual(
            self.refusal(ALICE, RequestCode.UPDATE_BROKER_CONFIG, None, b"slaveReadEnable=true"),
            "Need admin permission for request code=25, but accessKey=alice-key is not")
        self.assertFalse(self.box.kernel.settings.flag("slaveReadEnable"))

    def test_white_addresses(self) -> None:
        """One address is white for all accounts, and one for a single account, which still has to
        be named.
        """
        code = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER
        for address in ("10.2.2.7:1234", "[::ffff:10.2.2.7]:1234"):
            self.assertEqual(self.refusal(None, code, peer=self.peer(address)), "", msg=address)
        hers = "10.1.1.1:1234"
        self.assertEqual(self.refusal((ALICE[0], "wrong"), code, peer=self.peer(hers)), "")
        self.assertEqual(self.refusal(None, code, peer=self.peer(hers)),
                         "No accessKey is configured")
        self.assertEqual(self.refusal((BOB[0], "wrong"), code, peer=self.peer(hers)),
                         "Check signature failed for accessKey=bob-key")

    def test_both_ways_to_write_an_address_with_its_port(self) -> None:
        """The host of both forms of an address with a port is found."""
        self.assertEqual([host_of("10.0.0.1:80"), host_of("[::1]:80")], ["10.0.0.1", "::1"])
