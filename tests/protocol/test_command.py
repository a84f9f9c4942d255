"""Commands from frames and back, in both encodings."""

import json

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import (
    VERSION,
    RemotingCommand,
    decode_command,
    encode_reply,
    encode_request,
)
from twistmq.protocol.errors import HeaderError
from twistmq.protocol.frame import JSON, ROCKETMQ, FrameDecoder
from twistmq.protocol.headers.offset import GetMaxOffsetRequestHeader, GetMaxOffsetResponseHeader

HEADER = GetMaxOffsetRequestHeader(topic="T", queue_id=3)

#: (what is wrong, JSON header).
MALFORMED = [
    ("empty", b""), ("not JSON", b"x"), ("list", b"[]"), ("no code", b"{}"),
    ("code as text", b'{"code":"ten"}'), ("code too large", b'{"code":2147483648}'),
    ("code null", b'{"code":null}'), ("cut", b'{"code":10'), ("not UTF-8", b'{"remark":"\xff"}'),
    ("remark a number", b'{"code":10,"remark":5}'), ("more after it", b'{"code":10}{}'),
    ("deep", b'{"code":10,"x":' + b"[" * 100_000),
    ("deep fields", b'{"code":10,"extFields":' + b'{"a":' * 100_000),
]


def decode_one(data: bytes) -> RemotingCommand:
    """Decode bytes that are one frame."""
    decoder = FrameDecoder()
    (frame,) = decoder.feed(data)
    assert not decoder.failure and not decoder.pending_bytes
    return decode_command(frame)


class CommandTests(SynchronousTestCase):
    """decode_command, encode_request and encode_reply."""

    def test_a_request_of_ours_reads_the_same_in_both_encodings(self) -> None:
        """It may be one-way or not."""
        for kind in (JSON, ROCKETMQ):
            for oneway in (False, True):
                command = decode_one(encode_request(
                    RequestCode.GET_MAX_OFFSET, 7, HEADER, b"body", oneway=oneway,
                    serialize_type=kind, extra_fields={"Signature": "s"},
                ))
                self.assertEqual(
                    (command.code, command.opaque, command.body, command.version,
                     command.language, command.serialize_type),
                    (RequestCode.GET_MAX_OFFSET, 7, b"body", VERSION, "PYTHON", kind),
                )
                self.assertEqual((command.is_oneway, command.is_response), (oneway, False))
                self.assertEqual(command.header(GetMaxOffsetRequestHeader), HEADER)
                self.assertEqual(command.fields(), {"topic": "T", "queueId": "3",
                                                    "committed": "true", "Signature": "s"})

    def test_a_reply_carries_code(self) -> None:
        """A reply carries code, opaque, header, remark and body, and the response flag."""
        header = GetMaxOffsetResponseHeader(offset=9)
        command = decode_one(encode_reply(ResponseCode.SUCCESS, 7, header, b"body", 'a "b" é'))
        self.assertTrue(command.is_response)
        self.assertEqual((command.code, command.opaque, command.remark, command.body),
                         (ResponseCode.SUCCESS, 7, 'a "b" é', b"body"))
        self.assertEqual(command.header(GetMaxOffsetResponseHeader), header)

    def test_reply_form(self) -> None:
        """Its JSON has Apache's keys in their order, and no null."""
        data = encode_reply(ResponseCode.SUCCESS, 12, GetMaxOffsetResponseHeader(offset=0), b"",
                            None)
        self.assertEqual(
            data[8:],
            b'{"code":0,"extFields":{"offset":"0"},"flag":1,"language":"PYTHON","opaque":12,'
            b'"serializeTypeCurrentRPC":"JSON","version":479}',
        )
        bare = json.loads(encode_reply(ResponseCode.SYSTEM_ERROR, 1, None, b"", "no")[8:])
        self.assertNotIn("extFields", bare)
        self.assertEqual(bare["remark"], "no")

    def test_old_clients(self) -> None:
        """Headers of the C++ and Java clients are read, even with missing members."""
        command = decode_command((JSON, b'{"code":34,"language":"CPP","version":306,"opaque":1,'
                                        b'"flag":0,"remark":"","extFields":null,'
                                        b'"serializeTypeCurrentRPC":"JSON"}', b""))
        self.assertEqual((command.code, command.version, command.fields()), (34, 306, {}))
        self.assertEqual(decode_command((JSON, b'{"code":34}', b"")).opaque, 0)

    def test_numbers_as_text(self) -> None:
        """Numbers may be texts, or have an exponent, as with Apache's broker."""
        command = decode_command((JSON, b'{"code":"28","opaque":1e9,"version":"479"}', b""))
        self.assertEqual((command.code, command.opaque, command.version), (28, 10**9, 479))

    def test_a_malformed_header_is_a_header_error(self) -> None:
        """An invalid header raises HeaderError."""
        for name, header in MALFORMED:
            with self.assertRaises(HeaderError, msg=name):
                decode_command((JSON, header, b""))
        with self.assertRaises(HeaderError):
            decode_command((ROCKETMQ, b"\0" * 20, b""))

    def test_body_is_not_in_the_header(self) -> None:
        """A header cannot set values that come from the frame."""
        header = b'{"code":10," body":"YWJj"," serialize_type":1," sent":"YWJj"}'
        command = decode_command((JSON, header, b"x"))
        self.assertEqual(command.fields(), {})
        self.assertEqual((command.body, command.serialize_type), (b"x", JSON))

    @given(st.sampled_from([JSON, ROCKETMQ]), st.binary(max_size=60))
    def test_any_bytes(self, kind: int, data: bytes) -> None:
        """Any header bytes give a command or a HeaderError."""
        try:
            decode_command((kind, data, b"")).fields()
        except HeaderError:
            return
