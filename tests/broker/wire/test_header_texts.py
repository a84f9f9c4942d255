"""Signed extFields that are read once: the same header and texts as when each is read by itself."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.errors import HeaderError
from twistmq.broker.wire import header_texts
from twistmq.broker.wire.binary_header import encode_binary_header
from twistmq.broker.wire.command import decode_command
from twistmq.broker.wire.frame import JSON, ROCKETMQ
from twistmq.broker.wire.header import CommandHeader, decode_fields, read_ext_fields
from twistmq.broker.wire.header_texts import HeaderTexts, learn_shape, read_header_texts
from twistmq.broker.wire.headers.pull import PullMessageRequestHeader
from twistmq.broker.wire.headers.send import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from twistmq.broker.wire.headers.transaction import EndTransactionRequestHeader
from twistmq.broker.wire.signature import request_content

VERSION = 479
SIGNED = {"AccessKey": "access-key", "Signature": "c2lnbmF0dXJl"}
SEND = {"a": "group", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000",
        "h": "0", "i": "KEYS\x01k\x02", "j": "0", "k": "false", "m": "false", **SIGNED}
PULL = {"consumerGroup": "g", "topic": "T", "queueId": "1", "queueOffset": "7", "maxMsgNums": "32",
        "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0",
        "subscription": "*", "expressionType": "TAG", **SIGNED}


def ext_of(kind: int, fields: dict[str, Any]) -> msgspec.Raw:
    """extFields as a client sends them."""
    if kind == JSON:
        return msgspec.Raw(json.dumps(fields).encode())
    frame = kind, encode_binary_header(310, "JAVA", VERSION, 1, 0, None, fields), b""
    return decode_command(frame).ext_fields


class ReadTests(SynchronousTestCase):
    """What is read at once."""

    def setUp(self) -> None:
        self.patch(header_texts, "_shapes", {})

    def read(
        self, fields: dict[str, Any], header_type: type[CommandHeader] = SendMessageRequestHeaderV2,
        kind: int = JSON,
    ) -> tuple[CommandHeader, HeaderTexts] | None:
        """As it is read when one like it passed before."""
        with contextlib.suppress(HeaderError):
            learn_shape(kind, ext_of(kind, fields), header_type)
        return read_header_texts(kind, ext_of(kind, fields), header_type)

    def check(
        self, fields: dict[str, Any], header_type: type[CommandHeader], kind: int = JSON
    ) -> None:
        """Compare with what is read one by one."""
        found = self.read(fields, header_type, kind)
        assert found is not None, fields
        header, texts = found
        ext = ext_of(kind, fields)
        expected = decode_fields(kind, ext, header_type)
        self.assertIsInstance(header, header_type)
        self.assertEqual(msgspec.structs.asdict(header), msgspec.structs.asdict(expected))
        given = read_ext_fields(kind, ext)
        self.assertEqual({name: texts.get(name) for name in given}, given)
        self.assertIsNone(texts.get("another"))
        self.assertEqual(texts.signer(), (given["AccessKey"], given["Signature"]))
        self.assertEqual(texts.signed_text().encode("utf-8", "replace"),
                         request_content(given, b"", VERSION))

    def test_same(self) -> None:
        """Whatever names come, in whatever order, in both encodings."""
        more = {"n": "broker-a", "l": "16", "SecurityToken": "token", "OnsChannel": "ALIYUN"}
        for kind in (JSON, ROCKETMQ):
            for fields in (SEND, {**SEND, **more}, dict(reversed(SEND.items())), SEND):
                self.check(fields, SendMessageRequestHeaderV2, kind)
            for fields in (PULL, {**PULL, "bname": "broker-a", "ns": "x"}):
                self.check(fields, PullMessageRequestHeader, kind)

    @given(st.dictionaries(st.sampled_from([*SEND, "n", "l", "zz"]), st.text(max_size=9)
                           | st.sampled_from(["7", "-1", "true", "null", "1e3", "2147483648"])),
           st.sampled_from((JSON, ROCKETMQ)))
    def test_any(self, changed: dict[str, str], kind: int) -> None:
        """Either the same as one by one, or nothing."""
        fields = {**SEND, **changed}
        if kind != JSON:
            fields = {name: value.encode("utf-8", "ignore").decode()
                      for name, value in fields.items()}
        if self.read(fields, kind=kind) is not None:
            self.check(fields, SendMessageRequestHeaderV2, kind)

    def test_unusual(self) -> None:
        """What is not as clients write it is left to who reads one by one."""
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
            self.check(SEND, SendMessageRequestHeaderV2)
        for value in ("1e3", "4.0", "null", "+4"):
            self.assertIsNone(self.read({**SEND, "e": value}, kind=ROCKETMQ), msg=value)
        for data in (b"", b"{", b"[]", b'{"a":"\xff"}', b'{"a":' * 2000):
            self.assertIsNone(read_header_texts(
                JSON, msgspec.Raw(data), SendMessageRequestHeaderV2), msg=data[:9])
        self.assertIsNone(read_header_texts(
            ROCKETMQ, msgspec.Raw(b"\x00\x09a"), SendMessageRequestHeaderV2))

    def test_seldom(self) -> None:
        """A header that is not read often is read one by one, or one without a short way."""
        self.assertIsNone(self.read({**SIGNED, "msgId": "1"}, SendMessageResponseHeader))
        ended = {"producerGroup": "g", "tranStateTableOffset": "0", "commitLogOffset": "0",
                 "commitOrRollback": "8", "fromTransactionCheck": "false", "msgId": "1", **SIGNED}
        self.assertIsNone(self.read(ended, EndTransactionRequestHeader))

    def test_learned(self) -> None:
        """Only what was learned is read at once, from then on, whoever comes between."""
        ext, other = ext_of(JSON, SEND), ext_of(JSON, {**SEND, "n": "broker-a"})
        self.assertIsNone(read_header_texts(JSON, ext, SendMessageRequestHeaderV2))
        learn_shape(JSON, ext, SendMessageRequestHeaderV2)
        for each, is_known in ((ext, True), (other, False), (ext, True)):
            found = read_header_texts(JSON, each, SendMessageRequestHeaderV2)
            self.assertEqual(found is not None, is_known)
        learn_shape(JSON, other, SendMessageRequestHeaderV2)
        for _ in range(2):
            self.check({**SEND, "n": "broker-a"}, SendMessageRequestHeaderV2)
            self.check(SEND, SendMessageRequestHeaderV2, ROCKETMQ)

    def test_unreadable_beside_header(self) -> None:
        """What a header does not need may be unreadable; nothing is learned of it."""
        for value in (b"1e9999", b'"\xff"'):
            ext = msgspec.Raw(json.dumps(SEND).encode()[:-1] + b',"more":' + value + b"}")
            decode_fields(JSON, ext, SendMessageRequestHeaderV2)
            learn_shape(JSON, ext, SendMessageRequestHeaderV2)
            self.assertIsNone(read_header_texts(JSON, ext, SendMessageRequestHeaderV2))
        self.check(SEND, SendMessageRequestHeaderV2)

    def test_defaults(self) -> None:
        """What a header has a default for need not come."""
        for name in ("commitOffset", "suspendTimeoutMillis", "subVersion", "subscription"):
            fields = {each: value for each, value in PULL.items() if each != name}
            self.check(fields, PullMessageRequestHeader)

    def test_shapes(self) -> None:
        """They are bounded; those that were learned go on."""
        for number in range(40):
            fields = {**SEND, f"name{number}": ""}
            if number < 31:
                self.check(fields, SendMessageRequestHeaderV2)
        self.check(SEND, SendMessageRequestHeaderV2)
        self.assertIsNone(self.read({**SEND, "one": "more"}))
        self.check({**SEND, "name0": "x"}, SendMessageRequestHeaderV2)

    def test_longer_form(self) -> None:
        """Each header class has shapes of its own."""
        self.check({
            "producerGroup": "g", "topic": "T", "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "0", "bornTimestamp": "1",
            "flag": "0", **SIGNED}, SendMessageRequestHeader)
        self.assertIsNone(self.read(SEND, SendMessageRequestHeader))
        self.assertRaises(HeaderError, decode_fields, JSON, ext_of(JSON, SEND),
                          SendMessageRequestHeader)
