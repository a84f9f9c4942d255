"""Every header class: its code, and its form in both encodings."""

import json
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.draw import examples
from twistmq.protocol.binary_header import encode_binary_header
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.command import decode_command, encode_reply, encode_request
from twistmq.protocol.errors import HeaderError
from twistmq.protocol.frame import JSON, ROCKETMQ, FrameDecoder
from twistmq.protocol.header import CommandHeader, EmptyHeader, decode_fields, ext_fields_of
from twistmq.protocol.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from twistmq.protocol.headers.table import HEADERS

#: Request codes that Java clients (4.9 to 5.x, with every feature) and the Go client use.
JAVA_AND_GO = {
    10, 11, 12, 14, 15, 17, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 46, 101, 105,
    106, 201, 206, 215, 216, 220, 221, 307, 309, 310, 320, 324, 325, 326, 361, 370, 400, 200050,
    200051, 200053, 200054, 200151,
}
#: Those that brokers, name servers and tools use besides.
SERVERS_AND_TOOLS = {
    18, 21, 25, 26, 27, 28, 43, 100, 102, 103, 104, 200, 202, 203, 204, 205, 207, 208, 217, 219,
    224, 300, 304, 311, 312, 313, 318, 319, 321, 322, 323, 327, 351, 352, 401, 402, 901, 904,
    513, 200052, 200055, 3001, 3002, 3003, 3004, 3005, 3006, 3007, 3008, 3009, 3010,
}

#: Every class of the table, once.
CLASSES = sorted({each for pair in HEADERS.values() for each in pair}, key=lambda c: c.__name__)

#: Names the C++ client 0.4.4 sends as numbers, with a send as it writes it.
CPP_SEND = {
    "a": "P", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": "1700000000000", "h": 0,
    "i": "k\x01v\x02", "j": 0, "k": False, "m": False,
}


def strategy_of(kind: msgspec.inspect.Type) -> st.SearchStrategy[Any]:
    """Return a strategy for the values of a field's type."""
    match kind:
        case msgspec.inspect.IntType():
            return st.integers(kind.ge, kind.le)
        case msgspec.inspect.StrType():
            return st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
        case msgspec.inspect.BoolType():
            return st.booleans()
        case msgspec.inspect.NoneType():
            return st.none()
        case msgspec.inspect.LiteralType():
            return st.sampled_from(kind.values)
        case msgspec.inspect.UnionType():
            return st.one_of([strategy_of(each) for each in kind.types])
    raise AssertionError(f"no strategy for {kind}")


def headers_of(header_type: type[CommandHeader]) -> st.SearchStrategy[CommandHeader]:
    """Return a strategy for the headers of a class."""
    info = msgspec.inspect.type_info(header_type)
    assert isinstance(info, msgspec.inspect.StructType)
    return st.builds(
        header_type, **{field.name: strategy_of(field.type) for field in info.fields}
    )


any_header = st.sampled_from(CLASSES).flatmap(headers_of)


class HeaderTableTests(SynchronousTestCase):
    """The table HEADERS."""

    def test_every_code_has_its_row(self) -> None:
        """Each code that clients, servers and tools use has a row, and no other code has one."""
        self.assertEqual(JAVA_AND_GO & SERVERS_AND_TOOLS, set())
        self.assertEqual({int(code) for code in HEADERS}, JAVA_AND_GO | SERVERS_AND_TOOLS)

    def test_wire_names_are_unique(self) -> None:
        """No class has two fields with one name."""
        for each in CLASSES:
            names = [field.encode_name for field in msgspec.structs.fields(each)]
            self.assertEqual(len(names), len(set(names)), msg=each.__name__)

    def test_class_names(self) -> None:
        """A class is named as Apache's, for requests and responses apart."""
        for code, pair in HEADERS.items():
            for each, part in zip(pair, ("Request", "Response"), strict=True):
                if each is not EmptyHeader:
                    self.assertTrue(each.__name__.endswith((part + "Header", part + "HeaderV2")),
                                    msg=f"{code}: {each.__name__}")

    def test_missing_fields(self) -> None:
        """The error has the wire name of the missing field."""
        for each in CLASSES:
            fields = msgspec.structs.fields(each)
            required = [field.encode_name for field in fields if field.required]
            sample = dict.fromkeys(required, "1")
            if "topicFilterType" in sample:
                sample["topicFilterType"] = "SINGLE_TAG"
            decode_fields(JSON, json.dumps(sample).encode(), each)
            for name in required:
                rest = {key: value for key, value in sample.items() if key != name}
                error = self.assertRaises(
                    HeaderError, decode_fields, JSON, json.dumps(rest).encode(), each
                )
                self.assertIn(f"`{name}`", str(error))

    @settings(max_examples=examples(500))
    @given(any_header, st.sampled_from([JSON, ROCKETMQ]))
    def test_request_round_trip(self, header: CommandHeader, kind: int) -> None:
        """Every header in a request is equal after encoding and decoding, in both encodings."""
        data = encode_request(RequestCode.SEND_MESSAGE, 1, header, serialize_type=kind)
        (frame,) = FrameDecoder().feed(data)
        self.assertEqual(decode_command(frame).header(type(header)), header)

    @settings(max_examples=examples(300))
    @given(any_header)
    def test_reply_round_trip(self, header: CommandHeader) -> None:
        """This is so for replies as well."""
        (frame,) = FrameDecoder().feed(encode_reply(0, 1, header, b"", None))
        self.assertEqual(decode_command(frame).header(type(header)), header)

    @settings(max_examples=examples(300))
    @given(any_header)
    def test_numbers_for_text(self, header: CommandHeader) -> None:
        """A client that writes JSON numbers and booleans, and nulls, is understood alike."""
        data = msgspec.json.encode(header)
        self.assertEqual(decode_fields(JSON, data, type(header)), header)

    @settings(max_examples=examples(500))
    @given(any_header, st.data())
    def test_wrong_values(self, header: CommandHeader, data: st.DataObject) -> None:
        """Any text in any field of any class is read or is a HeaderError, in both encodings."""
        fields = ext_fields_of(header)
        name = data.draw(st.sampled_from(sorted(fields) or ["x"]))
        fields[name] = data.draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=25))
        pairs = encode_binary_header(0, "JAVA", 0, 0, 0, None, fields)[21:]
        outcomes = []
        for kind, ext in ((JSON, json.dumps(fields).encode()), (ROCKETMQ, pairs)):
            try:
                outcomes.append(decode_fields(kind, ext, type(header)))
            except HeaderError as error:
                self.assertIn(type(header).__name__, str(error))
                outcomes.append(None)
        self.assertEqual(outcomes[0], outcomes[1])


class SendHeaderTests(SynchronousTestCase):
    """The two forms of the header of a send."""

    def test_same_attributes(self) -> None:
        """A handler that reads one form reads the other."""
        one, two = ([field.name for field in msgspec.structs.fields(each)]
                    for each in (SendMessageRequestHeader, SendMessageRequestHeaderV2))
        self.assertEqual(sorted(one), sorted(two))

    def test_each_letter_stands_for_its_field(self) -> None:
        """Each letter has the meaning of the notes."""
        names = {field.encode_name: field.name
                 for field in msgspec.structs.fields(SendMessageRequestHeaderV2)}
        self.assertEqual(names, {
            "a": "producer_group", "b": "topic", "c": "default_topic",
            "d": "default_topic_queue_nums", "e": "queue_id", "f": "sys_flag",
            "g": "born_timestamp", "h": "flag", "i": "properties", "j": "reconsume_times",
            "k": "unit_mode", "l": "max_reconsume_times", "m": "batch", "n": "broker_name",
        })

    def test_integers_of_the_cpp_client(self) -> None:
        """Integers are read; fields that the client leaves out are None."""
        header = decode_fields(JSON, json.dumps(CPP_SEND).encode(), SendMessageRequestHeaderV2)
        self.assertEqual(
            header,
            SendMessageRequestHeaderV2(
                producer_group="P", topic="T", default_topic="TBW102", default_topic_queue_nums=4,
                queue_id=0, sys_flag=0, born_timestamp=1_700_000_000_000, flag=0,
                properties="k\x01v\x02", reconsume_times=0, unit_mode=False, batch=False,
            ),
        )
