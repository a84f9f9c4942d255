"""Sends that are scanned without a full decode have the same values."""

from __future__ import annotations

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.remoting.request_runs import (
    UnreadSend,
    read_run,
    send_outlines,
    unread_json_send,
    unread_send,
)
from twistmq.protocol.binary_header import encode_binary_header
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.command import decode_command
from twistmq.protocol.errors import HeaderError
from twistmq.protocol.frame import JSON, ROCKETMQ, Frame
from twistmq.protocol.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from twistmq.protocol.request_reader import RequestReader, SignedRequestReader
from twistmq.protocol.signature import (
    ACCESS_KEY,
    SIGNATURE,
    Credentials,
    Signer,
    request_content,
    signed_fields,
)

SEND = RequestCode.SEND_MESSAGE_V2
HEADERS = {SEND: SendMessageRequestHeaderV2, 10: SendMessageRequestHeader}
READER = RequestReader(HEADERS)
SIGNED_READER = SignedRequestReader(HEADERS)
KEYS = Credentials("access", "secret")
SIGNER = Signer(KEYS.secret_key)
PLAIN = {"a": "group", "b": "T", "c": "TBW102", "d": "4", "e": "3", "f": "0", "g": "1700000000000",
         "h": "5", "i": "KEYS\x01k\x02", "j": "2", "k": "false", "l": "16", "m": "false",
         "n": "broker-a"}
#: Values that a field may hold, and values that none may.
TEXTS = ("", "T", "name", "caf\u00e9", "\u4e2d", "x" * 300, "a b", "\0", "x" * 70_000)
NUMBERS = (
    "0", "7", "-1", "2147483647", "2147483648", "-2147483648", "-2147483649", "", "-", "+1", " 1",
    "1.0", "9" * 18, "9" * 19, "0x1", "\u0661", "9223372036854775807", "9223372036854775808")
FLAGS = ("true", "false", "", "True", "1")
FIELDS = {**dict.fromkeys("abcin", TEXTS), **dict.fromkeys("defghjl", NUMBERS),
          **dict.fromkeys("km", FLAGS), "zz": TEXTS, "": TEXTS, "q": TEXTS, "e" * 256: TEXTS}
CHANNEL: Any = object()


def frame_of(fields: dict[str, str], code: int = SEND, opaque: int = 7, flag: int = 0) -> Frame:
    """Return a frame with a binary header."""
    return ROCKETMQ, encode_binary_header(code, "JAVA", 479, opaque, flag, None, fields), b"body"


class UnreadTests(SynchronousTestCase):
    """A single frame."""

    def check(self, frame: Frame) -> UnreadSend | None:
        """Look a frame through, and compare with the reader."""
        send = unread_send(READER, frame, CHANNEL, 9)
        if send is None:
            return None
        command, header, _ = READER.read(frame)
        assert isinstance(header, SendMessageRequestHeaderV2)
        self.assertFalse(header.batch)
        self.assertEqual(
            (send.topic, send.queue_id, send.sys_flag, send.born_timestamp, send.message_flag,
             send.reconsume_times, send.properties, send.code, send.opaque, send.flag, send.body),
            (header.topic, header.queue_id, header.sys_flag, header.born_timestamp, header.flag,
             header.reconsume_times or 0, (header.properties or "").encode(), command.code,
             command.opaque, command.flag, command.body))
        self.assertEqual((send.header, send.command.sent, send.command.language),
                         (header, command.sent, command.language))
        self.assertEqual((send.code, send.body), (command.code, command.body))
        return send

    def test_a_plain_send_is_looked_through(self) -> None:
        """A send with all fields, or with only the required ones, can be scanned."""
        for names in ("abcdefghijklmn", "abcdefgh"):
            send = self.check(frame_of({name: PLAIN[name] for name in names}, opaque=-5, flag=2))
            assert send is not None
            self.assertEqual((send.opaque, send.flag, send.channel, send.now_ms),
                             (-5, 2, CHANNEL, 9))

    def test_without_a_field_that_it_must_have_it_is_read(self) -> None:
        """The decoder reports the missing field."""
        for name in "abcdefgh":
            fields = {**PLAIN}
            del fields[name]
            self.assertIsNone(self.check(frame_of(fields)), name)

    def test_what_is_unusual_is_read(self) -> None:
        """The general reader reads other codes, responses, batches, remarks and non-ASCII texts."""
        remark = encode_binary_header(SEND, "JAVA", 479, 7, 0, "remark", PLAIN)
        for frame in (
            frame_of(PLAIN, code=320), frame_of(PLAIN, code=566), frame_of(PLAIN, flag=1),
            frame_of({**PLAIN, "m": "true"}), frame_of({**PLAIN, "k": "true"}),
            frame_of({**PLAIN, "b": "caf\u00e9"}), frame_of({**PLAIN, "i": "K\x01\u4e2d\x02"}),
            (ROCKETMQ, remark, b""),
        ):
            self.assertIsNone(self.check(frame))

    def test_any_value_of_any_field(self) -> None:
        """Each field may have each value."""
        for name, values in FIELDS.items():
            for value in values:
                self.check(frame_of({**PLAIN, name: value}))

    def test_any_opaque_and_flag(self) -> None:
        """They may be any int32."""
        for number in (-2**31, -2, -1, 0, 1, 2, 3, 2**31 - 1):
            self.check(frame_of(PLAIN, opaque=number))
            self.check(frame_of(PLAIN, flag=number))

    def test_any_byte(self) -> None:
        """A header may end anywhere, and a byte may have any value."""
        header = frame_of(PLAIN)[1]
        for at in range(len(header)):
            for other in (b"", b"\0", b"\1", b"\x03", b"8", b"e", b"\x7f", b"\x80", b"\xff"):
                changed = header[:at] + other + (header[at + 1:] if other else b"")
                send = unread_send(READER, (ROCKETMQ, changed, b"body"), CHANNEL, 9)
                if send is not None:
                    self.check((ROCKETMQ, changed, b"body"))

    def test_a_name_that_comes_twice_has_its_last_value(self) -> None:
        """The last value counts, as in the decoder."""
        first = frame_of(PLAIN)[1]
        pair = b"\0\1e\0\0\0\0019"
        size = len(first) - 21 + len(pair)
        twice = first[:17] + size.to_bytes(4, "big") + first[21:] + pair
        send = self.check((ROCKETMQ, twice, b"body"))
        assert send is not None
        self.assertEqual(send.queue_id, 9)


class SignedTests(SynchronousTestCase):
    """Sends whose signature is checked."""

    def check(self, fields: dict[str, str], body: bytes = b"body") -> bool:
        """Scan a send; :returns: whether that was possible, after a comparison of all values."""
        frame = ROCKETMQ, frame_of(fields)[1], body
        send = unread_send(SIGNED_READER, frame, CHANNEL, 9)
        if send is None:
            return False
        texts = send.texts
        assert texts is not None
        for name in (*PLAIN, ACCESS_KEY, SIGNATURE, "o", "aa", "", "A", "`"):
            self.assertEqual(texts.get(name), fields.get(name), name)
        content = request_content(fields, body, 479)
        self.assertEqual(texts.are_signed_by(SIGNER, body),
                         SIGNER.has_signed_content(fields.get(SIGNATURE, ""), content))
        self.assertEqual(send.header, READER.read(frame)[1])
        return True

    def test_a_signed_send_is_looked_through(self) -> None:
        """A send with all fields, or with only the required ones, in any order, can be scanned."""
        for names in ("abcdefghijklmn", "nmlkjihgfedcba", "abcdefgh"):
            signed = signed_fields({name: PLAIN[name] for name in names}, b"body", 479, KEYS)
            self.assertTrue(self.check(signed))
            self.assertTrue(self.check(dict(reversed(signed.items()))))

    def test_what_was_changed_is_not_signed(self) -> None:
        """A value, the body, the signature, or a field more or less."""
        signed = signed_fields(PLAIN, b"body", 479, KEYS)
        for changed in ({"e": "2"}, {"n": "broker-b"}, {SIGNATURE: "x"}, {ACCESS_KEY: "other"}):
            send = unread_send(SIGNED_READER, frame_of({**signed, **changed}), CHANNEL, 9)
            assert send is not None and send.texts is not None
            self.assertFalse(send.texts.are_signed_by(SIGNER, b"body"))
        send = unread_send(SIGNED_READER, frame_of(signed), CHANNEL, 9)
        assert send is not None and send.texts is not None
        self.assertTrue(send.texts.are_signed_by(SIGNER, b"body"))
        self.assertFalse(send.texts.are_signed_by(SIGNER, b"Body"))

    def test_each_without_one_field(self) -> None:
        """A missing field is None, and an empty one is an empty text."""
        signed = signed_fields(PLAIN, b"body", 479, KEYS)
        for name in signed:
            self.check({key: value for key, value in signed.items() if key != name})
            self.check({**signed, name: ""})

    def test_any_value_of_any_field(self) -> None:
        """Each field may have each value, including the keys."""
        for name, values in {**FIELDS, ACCESS_KEY: TEXTS, SIGNATURE: TEXTS}.items():
            for value in values:
                known = (len(name) == 1 and "a" <= name <= "n") or name in (ACCESS_KEY, SIGNATURE)
                looked = self.check({**signed_fields(PLAIN, b"", 479, KEYS), name: value})
                self.assertFalse(looked and not (known and value.isascii()), (name, value[:9]))

    def test_a_field_that_is_not_known_is_read(self) -> None:
        """It is part of the signed data."""
        for name in ("SecurityToken", "o", "zz", "", "AccessKeys", "_UNIQUE_KEY_QUERY"):
            self.assertFalse(self.check({**signed_fields(PLAIN, b"", 479, KEYS), name: "x"}))

    def test_each_in_json(self) -> None:
        """Whatever a field contains, the scan has the values of the decoder."""
        reader = SignedRequestReader(HEADERS)
        count = 0
        for left_out in ("", "abcdefghijklmn", "ijklmn"):
            plain = {name: text for name, text in PLAIN.items() if name not in left_out}
            for name, values in {"": ("",), **FIELDS, ACCESS_KEY: TEXTS}.items():
                for value in values:
                    fields = signed_fields({**plain, **({name: value} if name else {})}, b"body",
                                           479, KEYS)
                    for flag in (0, 1, 2):
                        count += self.check_json(reader, fields, flag)
        self.assertGreater(count, 100)

    def check_json(self, reader: SignedRequestReader, fields: dict[str, str], flag: int) -> bool:
        """Scan a send after one of its shape; :returns: whether that was possible."""
        text = json.dumps({"code": 310, "extFields": fields, "flag": flag, "language": "JAVA",
                           "opaque": -7, "version": 479}, separators=(",", ":"))
        frame: Frame = (JSON, text.encode(), b"body")
        read = READER.read(frame)
        reader.passed(read[0])
        send = unread_json_send(reader, frame, CHANNEL, 9)
        if send is None:
            return False
        self.assertEqual(flag & 1, 0)
        texts, header = send.texts, read[1]
        assert texts is not None and isinstance(header, SendMessageRequestHeaderV2)
        self.assertEqual({name: texts.get(name) for name in fields}, fields)
        self.assertTrue(texts.are_signed_by(SIGNER, b"body"))
        self.assertEqual(
            (send.topic, send.producer_group, send.queue_id, send.sys_flag, send.born_timestamp,
             send.message_flag, send.reconsume_times, send.properties, send.code, send.opaque,
             send.flag, send.body, False),
            (header.topic, header.producer_group, header.queue_id, header.sys_flag,
             header.born_timestamp, header.flag, header.reconsume_times or 0,
             (header.properties or "").encode(), 310, -7, flag, b"body", bool(header.batch)))
        self.assertEqual((send.header, send.command.opaque), (header, -7))
        return True

    def test_a_name_that_comes_twice_in_json(self) -> None:
        """The last value counts, even if the field cannot have the first one."""
        reader = SignedRequestReader(HEADERS)
        fields = signed_fields(PLAIN, b"body", 479, KEYS)
        self.assertTrue(self.check_json(reader, fields, 0))
        text = json.dumps({"code": 310, "extFields": fields, "flag": 0, "language": "JAVA",
                           "opaque": -7, "version": 479}, separators=(",", ":"))
        twice = text.replace('"e":"', '"e":"x","e":"')
        self.assertNotEqual(twice, text)
        send = unread_json_send(reader, (JSON, twice.encode(), b"body"), CHANNEL, 9)
        assert send is not None
        self.assertEqual((send.header.queue_id, send.header.topic),
                         (int(PLAIN["e"]), PLAIN["b"]))

    def test_a_run_has_the_texts_of_each(self) -> None:
        """The texts of JSON sends follow from their headers, after one of the same shape."""
        signed = signed_fields(PLAIN, b"", 479, KEYS)
        pairs = b",".join(f'"{name}":"{value}"'.encode().replace(b"\x01", b"\\u0001").replace(
            b"\x02", b"\\u0002") for name, value in signed.items())
        in_json: Frame = (JSON, b'{"code":310,"extFields":{%s},"version":479}' % pairs, b"")
        binary: Frame = (ROCKETMQ, frame_of(signed)[1], b"")
        reader = SignedRequestReader(HEADERS)
        run, ahead = read_run(reader, [binary, in_json], {SEND}, 10_000, CHANNEL, 9)
        assert ahead is not None
        self.assertEqual((len(run), ahead[1]), (1, None))
        reader.passed(ahead[0])
        run, ahead = read_run(reader, [in_json, binary], {SEND}, 10_000, CHANNEL, 9)
        self.assertEqual((len(run), ahead), (2, None))
        for request in run:
            assert request.texts is not None
            self.assertTrue(request.texts.are_signed_by(SIGNER, b""))
        outline = ("T", "group", b"KEYS\x01k\x02")
        self.assertEqual(send_outlines(run), [outline, outline])
        self.assertEqual([request.header.topic for request in run], ["T", "T"])
        self.assertEqual(send_outlines(run), [outline, outline])


class RunTests(SynchronousTestCase):
    """Several frames."""

    def test_sends_of_both_encodings_are_one_run(self) -> None:
        """Up to a request with another code, which is read already."""
        json_send = (JSON, b'{"code":310,"extFields":{%s}}' % b",".join(
            b'"%b":"%b"' % (name.encode(), PLAIN[name].encode()) for name in "abcdefgh"), b"")
        other = frame_of(PLAIN, code=10)
        frames = [frame_of(PLAIN), json_send, frame_of({**PLAIN, "m": "true"}), other]
        run, ahead = read_run(READER, frames, {SEND}, 10_000, CHANNEL, 9)
        self.assertEqual([type(each) is UnreadSend for each in run], [True, False, False])
        self.assertEqual([each.header.topic for each in run], ["T"] * 3)
        assert ahead is not None
        self.assertEqual(ahead[0].code, 10)

    def test_a_run_ends_before_what_cannot_be_read(self) -> None:
        """It ends before a frame that is too large as well."""
        plain, bad = frame_of(PLAIN), (ROCKETMQ, b"x", b"")
        self.assertRaises(HeaderError, decode_command, bad)
        for last in (bad, (ROCKETMQ, plain[1], b"x" * 10_000)):
            run, ahead = read_run(READER, [plain, last, plain], {SEND}, 10_000, CHANNEL, 9)
            self.assertEqual((len(run), ahead), (1, None))

    def test_codes_that_are_not_handled_together_are_read(self) -> None:
        """They are decoded one by one."""
        run, ahead = read_run(READER, [frame_of(PLAIN)], set(), 10_000, CHANNEL, 9)
        self.assertEqual(run, [])
        self.assertIsNotNone(ahead)
