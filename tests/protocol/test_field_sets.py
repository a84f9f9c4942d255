"""Signed extFields that are decoded at once give the same header and texts as one by one."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twistmq.protocol.binary_header import encode_binary_header
from twistmq.protocol.command import decode_command
from twistmq.protocol.errors import HeaderError
from twistmq.protocol.field_sets import HeaderTexts
from twistmq.protocol.frame import JSON, ROCKETMQ, Frame
from twistmq.protocol.header import CommandHeader
from twistmq.protocol.headers.pull import PullMessageRequestHeader
from twistmq.protocol.headers.send import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from twistmq.protocol.headers.transaction import EndTransactionRequestHeader
from twistmq.protocol.request_reader import SignedRequestReader
from twistmq.protocol.signature import Signer, request_content

CODE = 310
VERSION = 479
SIGNED = {"AccessKey": "access-key", "Signature": "c2lnbmF0dXJl"}
SEND = {"a": "group", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000",
        "h": "0", "i": "KEYS\x01k\x02", "j": "0", "k": "false", "m": "false", **SIGNED}
PULL = {"consumerGroup": "g", "topic": "T", "queueId": "1", "queueOffset": "7", "maxMsgNums": "32",
        "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0",
        "subscription": "*", "expressionType": "TAG", **SIGNED}


class Short(CommandHeader):
    """A header that may have no fields."""

    is_hot = True

    a: str | None = None


def frame_of(kind: int, fields: dict[str, Any], code: int = CODE) -> Frame:
    """Return a request as a client sends it."""
    if kind == JSON:
        return kind, header_of(code, json.dumps(fields).encode()), b"body"
    return kind, encode_binary_header(code, "JAVA", VERSION, 1, 0, None, fields), b"body"


def header_of(code: int, ext: bytes) -> bytes:
    """Return a JSON header with these extFields."""
    return (b'{"code":%d,"extFields":%s,"flag":0,"language":"JAVA","opaque":1,"version":479}'
            % (code, ext))


class ReadTests(SynchronousTestCase):
    """Fields that are decoded at once."""

    def setUp(self) -> None:
        self.headers: dict[int, type[CommandHeader]] = {
            CODE: SendMessageRequestHeaderV2, 11: PullMessageRequestHeader,
            10: SendMessageRequestHeader, 12: SendMessageResponseHeader,
            37: EndTransactionRequestHeader, 4001: Short}
        self.reader = SignedRequestReader(self.headers)

    def read(
        self, fields: dict[str, Any], code: int = CODE, kind: int = JSON
    ) -> tuple[CommandHeader, HeaderTexts] | None:
        """Read a request after a similar one."""
        frame = frame_of(kind, fields, code)
        self.reader.passed(decode_command(frame))
        return self.read_frame(frame)

    def read_frame(self, frame: Frame) -> tuple[CommandHeader, HeaderTexts] | None:
        """Read a frame at once; :returns: None if it cannot be read so."""
        command, header, texts = self.reader.read(frame)
        plain = decode_command(frame)
        for each in (command, plain):
            each.release_header()
        self.assertEqual(msgspec.structs.asdict(command), msgspec.structs.asdict(plain))
        if texts is None:
            self.assertIsNone(header)
            return None
        return header, texts

    def check(self, fields: dict[str, Any], code: int = CODE, kind: int = JSON) -> None:
        """Compare with the fields that are decoded one by one."""
        found = self.read(fields, code, kind)
        assert found is not None, fields
        header, texts = found
        command = decode_command(frame_of(kind, fields, code))
        expected = command.header(self.headers[code])
        self.assertIsInstance(header, self.headers[code])
        self.assertEqual({name: getattr(header, name) for name in header.__struct_fields__},
                         msgspec.structs.asdict(expected))
        given = command.fields()
        self.assertEqual({name: texts.get(name) for name in given}, given)
        self.assertIsNone(texts.get("another"))
        signer = Signer("secret")
        content = request_content(given, b"body", VERSION)
        for signature, is_right in ((signer.signature(content).decode(), True), ("c2ln", False)):
            found = self.read({**fields, "Signature": signature}, code, kind)
            assert found is not None
            self.assertIs(found[1].are_signed_by(signer, b"body"), is_right)
            self.assertFalse(found[1].are_signed_by(signer, b"another"))

    def test_whatever_names_come(self) -> None:
        """The names may be in any order, in both encodings."""
        more = {"n": "broker-a", "l": "16", "SecurityToken": "token", "OnsChannel": "ALIYUN"}
        for kind in (JSON, ROCKETMQ):
            for fields in (SEND, {**SEND, **more}, dict(reversed(SEND.items())), SEND):
                self.check(fields, kind=kind)
            for fields in (PULL, {**PULL, "bname": "broker-a", "ns": "x"}):
                self.check(fields, 11, kind)

    @given(st.dictionaries(st.sampled_from([*SEND, "n", "l", "zz"]), st.text(max_size=9)
                           | st.sampled_from(["7", "-1", "true", "null", "1e3", "2147483648"])),
           st.sampled_from((JSON, ROCKETMQ)))
    def test_reading_at_once_equals_reading_one_by_one_or_gives_nothing(
        self, changed: dict[str, str], kind: int
    ) -> None:
        """The result is the same as one by one, or nothing."""
        fields = {**SEND, **changed}
        if kind != JSON:
            fields = {name: value.encode("utf-8", "ignore").decode()
                      for name, value in fields.items()}
        if self.read(fields, kind=kind) is not None:
            self.check(fields, kind=kind)

    def test_unusual_requests_are_read_one_by_one(self) -> None:
        """Requests that clients do not write are decoded one by one."""
        unsigned = {name: value for name, value in SEND.items() if name not in SIGNED}
        for name, fields in (
            ("unsigned", unsigned), ("no signature", {**unsigned, "AccessKey": "k"}),
            ("a number", {**SEND, "e": 0}), ("nothing", {**SEND, "i": None}),
            ("no integer", {**SEND, "e": "first"}), ("too large", {**SEND, "e": str(1 << 31)}),
            ("no topic", {name: value for name, value in SEND.items() if name != "b"}),
            ("many names", {**SEND, **{f"n{number}": "" for number in range(20)}}),
            ("long name", {**SEND, "n" * 500: ""}), ("none", {}),
            *[(repr(name), {**SEND, name: ""}) for name in ("\u00e9", '"', "\\", "\n", "")],
            ("signed or not by version", {**SEND, "_UNIQUE_KEY_QUERY": "true"}),
        ):
            self.assertIsNone(self.read(fields), msg=name)
            self.check(SEND)
        for value in ("1e3", "4.0", "null", "+4"):
            self.assertIsNone(self.read({**SEND, "e": value}, kind=ROCKETMQ), msg=value)
        spoilt = frame_of(ROCKETMQ, {**SEND, "b": "!"})[1].replace(b"!", b"\xff")
        self.assertIsNone(self.read_frame((ROCKETMQ, spoilt, b"")))
        for data in (b"[]", b'""', b"null"):
            self.assertIsNone(self.read_frame((JSON, header_of(CODE, data), b"")), msg=data)
        for data in (b"", b"{", b'{"a":' * 2000):
            with self.assertRaises(HeaderError, msg=data[:9]):
                self.reader.read((JSON, header_of(CODE, data), b""))
        self.assertIsNone(self.read_frame((JSON, header_of(CODE, b'{"a":"\xff"}'), b"")))
        frame = frame_of(ROCKETMQ, {})
        cut = frame[1][:-4] + b"\0\0\0\3\0\x09a"
        self.assertIsNone(self.read_frame((ROCKETMQ, cut, b"")))

    def test_a_header_that_is_not_read_often_is_read_one_by_one(self) -> None:
        """A header that is not read often is read one by one, or one without a short way."""
        self.assertIsNone(self.read({**SIGNED, "msgId": "1"}, 12))
        ended = {"producerGroup": "g", "tranStateTableOffset": "0", "commitLogOffset": "0",
                 "commitOrRollback": "8", "fromTransactionCheck": "false", "msgId": "1", **SIGNED}
        self.assertIsNone(self.read(ended, 37))
        self.assertIsNone(self.read(SEND, 4000))
        for fields in ({**SIGNED, "a": "1"}, SIGNED):
            self.assertIsNone(self.read(fields, 4001))

    def test_only_learned_field_sets_are_read_at_once(self) -> None:
        """Only a field set that was learned is decoded at once from then on."""
        frame, other = (frame_of(JSON, fields) for fields in (SEND, {**SEND, "n": "broker-a"}))
        self.assertIsNone(self.read_frame(frame))
        self.reader.passed(decode_command(frame))
        for each, is_known in ((frame, True), (other, False), (frame, True)):
            self.assertEqual(self.read_frame(each) is not None, is_known)
        self.reader.passed(decode_command(other))
        for _ in range(2):
            self.check({**SEND, "n": "broker-a"})
            self.check(SEND, kind=ROCKETMQ)
        # Of another code nothing is known.
        self.assertIsNone(self.read_frame(frame_of(JSON, SEND, 10)))

    def test_unreadable_beside_header(self) -> None:
        """Parts that a header does not need may be invalid; such a set is not learned."""
        for value in (b"1e9999", b'"\xff"'):
            ext = json.dumps(SEND).encode()[:-1] + b',"more":' + value + b"}"
            command = decode_command((JSON, header_of(CODE, ext), b"body"))
            command.header(SendMessageRequestHeaderV2)
            self.reader.passed(command)
            self.assertIsNone(self.read_frame((JSON, header_of(CODE, ext), b"body")))
        self.check(SEND)

    def test_fields_with_a_default_may_be_missing(self) -> None:
        """A field with a default may be missing."""
        for name in ("commitOffset", "suspendTimeoutMillis", "subVersion", "subscription"):
            fields = {each: value for each, value in PULL.items() if each != name}
            self.check(fields, 11)

    def test_learned_field_sets_are_bounded(self) -> None:
        """Their number is limited; learned ones remain."""
        names = list(SEND)
        for _ in names:
            names.append(names.pop(0))
            self.check({name: SEND[name] for name in names})
        for number in range(40):
            fields = {**SEND, f"name{number}": ""}
            if number < 31:
                self.check(fields)
        self.check(SEND)
        self.assertIsNone(self.read({**SEND, "one": "more"}))
        self.check({**SEND, "name0": "x"})

    def test_longer_form(self) -> None:
        """Each code has its own field sets."""
        self.check({
            "producerGroup": "g", "topic": "T", "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "0", "bornTimestamp": "1",
            "flag": "0", **SIGNED}, 10)
        self.assertIsNone(self.read(SEND, 10))
        with self.assertRaises(HeaderError):
            decode_command(frame_of(JSON, SEND, 10)).header(SendMessageRequestHeader)
