"""Requests that are decoded in one pass give the same command and header as in two steps."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twistmq.protocol.binary_header import encode_binary_header
from twistmq.protocol.command import RemotingCommand, decode_command
from twistmq.protocol.errors import HeaderError
from twistmq.protocol.frame import JSON, ROCKETMQ, Frame
from twistmq.protocol.header import CommandHeader
from twistmq.protocol.headers.offset import GetMaxOffsetRequestHeader
from twistmq.protocol.headers.pull import PullMessageRequestHeader
from twistmq.protocol.headers.send import SendMessageRequestHeaderV2
from twistmq.protocol.headers.transaction import EndTransactionRequestHeader
from twistmq.protocol.request_reader import RequestReader

SEND = {"a": "group", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000",
        "h": "0", "i": "KEYS\x01k\x02", "j": "0", "k": "false", "m": "false"}
PULL = {"consumerGroup": "g", "topic": "T", "queueId": "1", "queueOffset": "7", "maxMsgNums": "32",
        "sysFlag": "4"}
END = {"producerGroup": "g", "tranStateTableOffset": "0", "commitLogOffset": "0",
       "commitOrRollback": "8", "fromTransactionCheck": "false", "msgId": "1"}
HEADERS: dict[int, Any] = {310: SendMessageRequestHeaderV2, 11: PullMessageRequestHeader,
                           30: GetMaxOffsetRequestHeader, 37: EndTransactionRequestHeader,
                           12345: SendMessageRequestHeaderV2}

def frame_of(**members: Any) -> Frame:
    """A request as a client sends it, its code first."""
    data = {"code": 310, "extFields": SEND, "flag": 0, "language": "JAVA", "opaque": 7,
            "serializeTypeCurrentRPC": "JSON", "version": 479, **members}
    return JSON, json.dumps(data, separators=(",", ":")).encode(), b"body"


def binary_of(code: int, fields: dict[str, str]) -> Frame:
    """Return the same request in binary."""
    return ROCKETMQ, encode_binary_header(code, "JAVA", 479, 7, 0, None, fields), b"body"


def answer_of(command: RemotingCommand, header_type: type[CommandHeader]) -> object:
    """Return the header of a command, or the text of its error."""
    try:
        return command.header(header_type)
    except HeaderError as error:
        return str(error)


def deeper(call: Callable[[], Any], frames: int = 20) -> Callable[[], Any]:
    """Make the same call below a number of frames."""
    return call if frames == 0 else lambda: deeper(call, frames - 1)()


class Listed(CommandHeader):
    """A header with a default that is created for each."""

    is_hot = True

    a: str
    more: list[str] = msgspec.field(default_factory=list)


class Checked(CommandHeader):
    """A header that checks its fields."""

    is_hot = True

    a: str

    def __post_init__(self) -> None:
        if self.a == "bad":
            raise ValueError(self.a)


HEADERS |= {311: Listed, 312: Checked}
READER = RequestReader(HEADERS)


class RequestReaderTests(SynchronousTestCase):
    """The class RequestReader."""

    def check(self, frame: Frame, at_once: bool) -> None:
        """Compare with a decode in two steps.

        :param at_once: whether the header is to be read with the command.
        """
        command, header, texts = READER.read(frame)
        plain = decode_command(frame)
        self.assertIsNone(texts)
        self.assertIs(header is not None, at_once, msg=frame)
        header_type = HEADERS.get(plain.code, SendMessageRequestHeaderV2)
        if at_once:
            self.assertIs(type(header), header_type)
            self.assertEqual(header, plain.header(header_type))
        else:
            self.assertEqual(answer_of(command, header_type), answer_of(plain, header_type))
        for name in ("code", "opaque", "flag", "version", "language", "remark", "body",
                     "serialize_type"):
            self.assertEqual(getattr(command, name), getattr(plain, name), msg=name)
        for _ in range(2):
            self.assertEqual(command.fields(), plain.fields())
            if at_once:
                self.assertEqual(command.header(header_type), header)
            self.assertEqual(command.release_header(), plain.release_header())
        self.assertEqual(msgspec.structs.asdict(command), msgspec.structs.asdict(plain))

    def test_common_headers_are_read_in_one_pass(self) -> None:
        """Other members may be present, in any order."""
        for members in (
            {}, {"flag": 2}, {"remark": "why", "more": [1, {"a": 2}]}, {"code": 12345},
            {"extFields": {**SEND, "e": 0, "AccessKey": "k", "i": None}}, {"version": "479"},
        ):
            self.check(frame_of(**members), at_once=True)
        self.check(frame_of(code=11, extFields=PULL), at_once=True)
        self.check(frame_of(code=37, extFields=END), at_once=True)
        for code, fields in ((310, SEND), (11, PULL), (12345, {**SEND, "zz": "", "i": "\u00e9"})):
            self.check(binary_of(code, fields), at_once=True)

    def test_in_two_steps(self) -> None:
        """The code has another form, or fields are unusual or missing."""
        _, data, body = frame_of()
        for other in (data.replace(b":", b": "), b" " + data, data.replace(b'"code":310,', b"")
                      .replace(b'"opaque"', b'"code":310,"opaque"')):
            self.check((JSON, other, body), at_once=False)
        for fields in (None, {}, {**SEND, "e": "first"}, {**SEND, "e": str(1 << 31)},
                       {**SEND, "b": 5}):
            self.check(frame_of(extFields=fields), at_once=False)
        self.check(frame_of(code=30, extFields=PULL), at_once=False)
        self.check(frame_of(code=12340), at_once=False)
        self.check((JSON, b'{"code":310}', b""), at_once=False)
        for value in ("1e3", "4.0", "first", "+4", "2147483648", ""):
            self.check(binary_of(310, {**SEND, "e": value}), at_once=False)
        self.check(binary_of(310, {}), at_once=False)
        self.check(binary_of(30, PULL), at_once=False)
        self.check(binary_of(37, END), at_once=False)

    def test_another_code_behind(self) -> None:
        """Of two codes the last one counts, and its handler gets its own header."""
        serialize_type, data, body = frame_of()
        self.check((serialize_type, data[:-1] + b',"code":11}', body), at_once=False)
        self.check((serialize_type, data[:-1] + b',"code":310}', body), at_once=True)

    def test_what_comes_from_the_frame(self) -> None:
        """No header can set it."""
        for code in (310, 30):
            frame = frame_of(**{"code": code, " sent": "YWJj", " body": "YWJj",
                                " serialize_type": 1})
            self.check(frame, at_once=code == 310)

    def test_an_unreadable_header_is_the_same_error_as_without(self) -> None:
        """The error is the same as in two steps."""
        for data in (b"", b'{"code":310,', b'{"code":310,"flag":"no","extFields":{}}',
                     b'{"code":310,"extFields":' + b'{"a":' * 9000):
            for kind in (JSON, ROCKETMQ):
                with self.assertRaises(HeaderError, msg=data[:40]):
                    READER.read((kind, data, b""))
        data = b'{"code":310,"extFields":{"a":"\xff"}}'
        packed = binary_of(310, {**SEND, "b": "!"})[1].replace(b"!", b"\xff")
        for frame in ((JSON, data, b""), (ROCKETMQ, packed, b"")):
            command, header, _ = READER.read(frame)
            self.assertIsNone(header)
            with self.assertRaises(HeaderError):
                command.header(SendMessageRequestHeaderV2)

    def test_deep_nesting_is_a_header_error(self) -> None:
        """A text that fits into the stack once may not fit again; this is a HeaderError."""
        met = 0
        for depth in range(800, 1100):
            data = b'{"code":310,"more":%s,"extFields":%s}' % (
                b"[" * depth + b"]" * depth, json.dumps(SEND).encode())
            frame = JSON, data, b"body"
            try:
                command, _, _ = READER.read(frame)
            except HeaderError:
                continue
            for again in (command.raw_fields, deeper(command.raw_fields)):
                try:
                    again()
                except HeaderError:
                    met += 1
            kept = deeper(command.release_header)()
            self.assertIn(kept - len(command.ext_fields) - len("body"), (0, len(data)))
        self.assertTrue(met)

    def test_seldom_made(self) -> None:
        """A class that is more than its fields is read in two steps in binary."""
        self.check(binary_of(311, {"a": "x"}), at_once=False)
        self.check(binary_of(312, {"a": "x"}), at_once=False)
        for kind in (frame_of(code=312, extFields={"a": "bad"}), binary_of(312, {"a": "bad"})):
            command, header, _ = READER.read(kind)
            self.assertIsNone(header)
            with self.assertRaises(HeaderError):
                command.header(Checked)

    @given(st.dictionaries(st.sampled_from([*SEND, "l", "n", "zz"]), st.none() | st.integers()
                           | st.booleans() | st.floats() | st.text(max_size=9)
                           | st.sampled_from(["7", "-1", "true", "null", "1e3", "2147483648"])))
    def test_any_fields(self, changed: dict[str, Any]) -> None:
        """The result is the same as in two steps, or is left to them."""
        frame = frame_of(extFields={**SEND, **changed})
        try:
            header = READER.read(frame)[1]
        except HeaderError:
            with self.assertRaises(HeaderError):
                decode_command(frame)
            return
        self.check(frame, at_once=header is not None)

    @given(st.dictionaries(st.sampled_from([*SEND, "l", "n", "zz"]), st.text(max_size=9).map(
        lambda text: text.encode("utf-8", "ignore").decode()) | st.sampled_from(
            ["7", "-1", "true", "null", "1e3", "2147483648"])))
    def test_any_binary_fields(self, changed: dict[str, str]) -> None:
        """The same is true for binary fields."""
        frame = binary_of(310, {**SEND, **changed})
        self.check(frame, at_once=READER.read(frame)[1] is not None)
