"""The values that a header class accepts: texts for numbers, and the reverse; and refusals."""

import json
from json.encoder import encode_basestring
from typing import Any, Literal

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twistmq.protocol.binary_header import (
    FieldPlan,
    encode_binary_header,
    parse_pairs,
    plain_values,
)
from twistmq.protocol.errors import HeaderError
from twistmq.protocol.frame import JSON, ROCKETMQ
from twistmq.protocol.header import (
    CommandHeader,
    EmptyHeader,
    Int32,
    Int64,
    decode_fields,
    ext_fields_of,
    field_plan,
    header_values,
    read_ext_fields,
    request_template,
)
from twistmq.protocol.headers.send import SendMessageRequestHeaderV2
from twistmq.protocol.json_text import request_frame


class Sample(CommandHeader):
    """A header with a field of every kind."""

    topic_name: str
    queue_id: Int32
    offset: Int64
    is_order: bool
    client_id: str | None = msgspec.field(default=None, name="clientID")
    count: Int32 | None = None
    batch: bool | None = None
    perm: Int32 = 6


class HotSample(Sample):
    """The same header as a class that is decoded often."""

    is_hot = True


class Odd(CommandHeader):
    """A header with a field of another kind."""

    literal: Literal["A", "B"]


GOOD = {"topicName": "T", "queueId": "4", "offset": "-1", "isOrder": "true"}
SAMPLE = Sample("T", 4, -1, True)

#: (what is special, fields beside GOOD, what they change).
TAKEN: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("numbers as numbers", {"queueId": 5, "offset": 2**63 - 1}, {"queue_id": 5,
                                                                 "offset": 2**63 - 1}),
    ("booleans as booleans", {"isOrder": False, "batch": True}, {"is_order": False,
                                                                 "batch": True}),
    ("booleans as Python writes them", {"isOrder": "False"}, {"is_order": False}),
    ("bounds", {"queueId": "-2147483648", "count": 2**31 - 1}, {"queue_id": -(2**31),
                                                                "count": 2**31 - 1}),
    ("text that is a number", {"topicName": 12, "clientID": 3}, {"topic_name": "12",
                                                                 "client_id": "3"}),
    ("text that is a boolean", {"topicName": True}, {"topic_name": "true"}),
    ("nulls", {"clientID": None, "count": None, "batch": None, "perm": None}, {}),
    ("text that says null", {"topicName": "null", "clientID": "null"}, {"topic_name": "null",
                                                                        "client_id": "null"}),
    ("fields nobody knows", {"x": "1", "y": [1, {"z": None}]}, {}),
    ("empty text", {"topicName": ""}, {"topic_name": ""}),
    ("sign", {"queueId": "+5", "offset": "-0"}, {"queue_id": 5, "offset": 0}),
    ("zeros in front", {"queueId": "007", "offset": "-007"}, {"queue_id": 7, "offset": -7}),
    ("text that looks odd", {"clientID": "1.5"}, {"client_id": "1.5"}),
    ("an escape in text", {"clientID": "\x01x"}, {"client_id": "\x01x"}),
]

#: (what is wrong, fields instead of GOOD's, None for left out).
REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("int too large", {"queueId": "2147483648"}),
    ("int too small", {"queueId": -2147483649}),
    ("long too large", {"offset": str(2**63)}),
    ("long of 5000 digits", {"offset": "9" * 5000}),
    ("text for int", {"queueId": "four"}),
    ("nothing for int", {"queueId": ""}),
    ("fraction for int", {"queueId": 4.5}),
    ("list for int", {"queueId": [4]}),
    ("object for int", {"queueId": {"a": 4}}),
    ("boolean for int", {"queueId": True}),
    ("text for boolean", {"isOrder": "maybe"}),
    ("null for a required text", {"topicName": None}),
    ("null for a required int", {"queueId": None}),
    ("text for an optional int", {"count": "x"}),
    *((f"{text!r} for {name}", {name: text}) for name in ("queueId", "offset", "count", "perm")
      for text in ("1e3", "1E3", "-1e3", "1e0", "4.0", "-4.0", "4.", ".4", "0x4", "1_0", " 4",
                   "4 ", "4\n", "--4", "+-4", "+", "-", "4L", "Infinity", "null", "NULL", "true",
                   "\u0663", "\uff14",
                   "9" * 4001)),
    ("exponent for int", {"queueId": 1e3}),
    ("whole fraction for int", {"queueId": 4.0}),
]

#: (what is wrong, extFields as they came).
NO_FIELDS = [
    ("list", b"[]"), ("number", b"5"), ("text", b'"a"'), ("cut", b'{"topicName":"T"'),
    ("not UTF-8", b'{"topicName":"\xff"}'), ("half a character", b'{"topicName":"\\ud800"}'),
    ("deep", b'{"x":' + b"[" * 100_000), ("deep objects", b'{"x":' * 100_000), ("noise", b"\0"),
]

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner,
                                                                max_size=3),
    max_leaves=5,
)
names = st.sampled_from([field.encode_name for field in msgspec.structs.fields(Sample)])


def pairs(fields: dict[str, str]) -> bytes:
    """The pairs of a binary header that holds these."""
    return encode_binary_header(0, "JAVA", 0, 0, 0, None, fields)[21:]


def plan_of(header_type: type[CommandHeader]) -> FieldPlan:
    """Return the plan of a class that has one."""
    plan = field_plan(header_type)
    assert plan is not None
    return plan


class DecodeFieldsTests(SynchronousTestCase):
    """The function decode_fields."""

    def test_both_encodings(self) -> None:
        """The same fields give the same header in JSON and in binary."""
        self.assertEqual(decode_fields(JSON, json.dumps(GOOD).encode(), Sample), SAMPLE)
        self.assertEqual(decode_fields(ROCKETMQ, pairs(GOOD), Sample), SAMPLE)

    def test_types_that_other_languages_send_are_accepted(self) -> None:
        """Clients of other languages send such types in place of texts."""
        for name, fields, changes in TAKEN:
            got = decode_fields(JSON, json.dumps({**GOOD, **fields}).encode(), Sample)
            self.assertEqual(got, msgspec.structs.replace(SAMPLE, **changes), msg=name)

    def test_a_required_field_that_is_missing_is_refused_by_its_wire_name(self) -> None:
        """A required field that is missing is refused by its wire name, in both encodings."""
        for name in GOOD:
            rest = {key: value for key, value in GOOD.items() if key != name}
            for kind, data in ((JSON, json.dumps(rest).encode()), (ROCKETMQ, pairs(rest))):
                error = self.assertRaises(HeaderError, decode_fields, kind, data, Sample)
                self.assertIn(f"`{name}`", str(error))

    def test_a_value_of_the_wrong_type_is_refused_with_the_headers_name(self) -> None:
        """The error has the name of the header."""
        for name, fields in REFUSED:
            data = json.dumps({**GOOD, **fields}).encode()
            with self.assertRaises(HeaderError, msg=name) as caught:
                decode_fields(JSON, data, Sample)
            self.assertIn("Sample", str(caught.exception), msg=name)

    def test_integers_in_binary(self) -> None:
        """The accepted integers are the same in both encodings."""
        for text in ("+5", "005", "5"):
            header = decode_fields(ROCKETMQ, pairs({**GOOD, "queueId": text}), Sample)
            self.assertEqual(header.queue_id, 5, msg=text)
        for text in ("1e3", "4.0", " 4", "4_0", "", "2147483648"):
            with self.assertRaises(HeaderError, msg=text):
                decode_fields(ROCKETMQ, pairs({**GOOD, "queueId": text}), Sample)

    def test_written_otherwise(self) -> None:
        """JSON may have blanks around a value and escapes in it."""
        for text in ('"1e3"', '"\\u0031e3"', '"1\\u00653"', '"\\u002d1e3"', '"4\\u002e0"',
                     "1e3", "-4.0"):
            for blank in ("", " ", "\n\t "):
                data = json.dumps(GOOD)[:-1] + f',"perm"{blank}:{blank}{text}{blank}}}'
                with self.assertRaises(HeaderError, msg=data):
                    decode_fields(JSON, data.encode(), Sample)

    def test_a_header_is_of_the_class_that_was_asked_for(self) -> None:
        """The class that reads JSON in one step shows nowhere, so headers can be compared."""
        for header_type in (Sample, HotSample):
            header = decode_fields(JSON, json.dumps(GOOD).encode(), header_type)
            self.assertIs(type(header), header_type)
            self.assertEqual(header, header_type("T", 4, -1, True))

    def test_no_fields(self) -> None:
        """Every reader refuses a value that is not an object, even if no field is needed."""
        for name, data in NO_FIELDS:
            with self.assertRaises(HeaderError, msg=name):
                decode_fields(JSON, data, Sample)
            if name not in ("not UTF-8", "half a character"):
                with self.assertRaises(HeaderError, msg=name):
                    decode_fields(JSON, data, EmptyHeader)
            with self.assertRaises(HeaderError, msg=name):
                read_ext_fields(JSON, data)

    def test_no_extfields_and_null_for_them(self) -> None:
        """If extFields is missing or null, the header has no fields."""
        for data in (b"", b"null", b"{}"):
            self.assertEqual(decode_fields(JSON, data, EmptyHeader), EmptyHeader())
            self.assertEqual(read_ext_fields(JSON, data), {})

    def test_text_of_fields(self) -> None:
        """read_ext_fields returns each value as the text that is signed."""
        data = b'{"a":"x","b":4,"c":true,"d":null,"e":false,"f":{"g":1}}'
        self.assertEqual(read_ext_fields(JSON, data),
                         {"a": "x", "b": "4", "c": "true", "e": "false", "f": '{"g":1}'})
        self.assertEqual(read_ext_fields(ROCKETMQ, pairs({"a": "x"})), {"a": "x"})
        self.assertRaises(HeaderError, read_ext_fields, ROCKETMQ, b"\0")

    def test_a_header_is_written_as_text(self) -> None:
        """Fields with None are left out."""
        self.assertEqual(ext_fields_of(SAMPLE), {**GOOD, "perm": "6"})

    @given(st.dictionaries(names, values, max_size=8))
    def test_any_values(self, fields: dict[str, Any]) -> None:
        """Any JSON with the right names is read or raises HeaderError."""
        try:
            header = decode_fields(JSON, json.dumps({**GOOD, **fields}).encode(), Sample)
        except HeaderError:
            return
        self.assertIsInstance(header, Sample)

    @given(st.dictionaries(names, st.one_of(
        st.integers(-(2**65), 2**65).map(str), st.sampled_from(("true", "false", "True", "", "-")),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8)), max_size=8))
    def test_short_way(self, fields: dict[str, str]) -> None:
        """Binary fields that are read the short way give the header the long way gives."""
        data = pairs({**GOOD, **fields})
        values = plain_values(data, plan_of(Sample))
        if values is not None:
            long_way = msgspec.convert(parse_pairs(data), Sample, strict=False)
            self.assertEqual(Sample(*values), long_way)

    def test_short_way_of_odd_numbers(self) -> None:
        """The short way leaves to the long way the numbers that it refuses."""
        for text in ("0", "00", "-0", "-00", "01", "-01", "+1", "1", "-", "9" * 18, "0" * 19):
            data = pairs({**GOOD, "queueId": text})
            values = plain_values(data, plan_of(Sample))
            if values is not None:
                self.assertEqual(Sample(*values),
                                 msgspec.convert(parse_pairs(data), Sample, strict=False), text)

    def test_short_way_taken(self) -> None:
        """The headers of clients are decoded by the fast path, in any script."""
        for fields in ({}, {"clientID": "Grün", "count": "-7", "batch": "false", "x": "ü"}):
            data = pairs({**GOOD, **fields})
            values = plain_values(data, plan_of(Sample))
            assert values is not None
            self.assertEqual(Sample(*values), decode_fields(ROCKETMQ, data, Sample))
        self.assertIsNone(plain_values(pairs({"literal": "A"}), plan_of(Odd)))

    @given(st.binary(max_size=60))
    def test_any_bytes(self, data: bytes) -> None:
        """Any bytes are read or raise HeaderError in both encodings."""
        for kind in (JSON, ROCKETMQ):
            for header_type in (Sample, EmptyHeader):
                try:
                    decode_fields(kind, data, header_type)
                except HeaderError:
                    continue


class TemplateTests(SynchronousTestCase):
    """Requests that differ in a few fields."""

    @given(st.text(max_size=8), st.text(max_size=8), st.integers(0, 9), st.sampled_from((None, 3)),
           st.binary(max_size=9))
    def test_a_template_writes_the_bytes_of_the_header(
        self, topic: str, properties: str, number: int, most: int | None, body: bytes
    ) -> None:
        """Any texts are possible, even with format characters or missing fields."""
        def header(queue_id: int, born: int, text: str) -> SendMessageRequestHeaderV2:
            return SendMessageRequestHeaderV2(
                "100%s" + topic, topic, "%(b)s", 4, queue_id, 1, born, 0, text, batch=True,
                max_reconsume_times=most)

        varying = ("queue_id", "born_timestamp", "properties")
        template = request_template(310, header(0, 0, ""), varying)
        prefixes, values = header_values(header(number, 10**12, properties))
        self.assertEqual(
            template.frame(number, (number, 10**12, encode_basestring(properties)[1:-1]), body),
            request_frame(310, number, 0, prefixes, values, body))
