"""Apache's JSON: the reader's input and errors, and the writer's bytes.

The captured cases are what Apache's own classes write: tests/golden/json/Dialect.java.
"""

import base64
import contextlib
import itertools
import json
import sys
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.draw import examples
from twistmq.protocol.json_dialect import (
    DEPTH_MAX,
    JsonDialectError,
    ObjectKey,
    decode,
    decode_key,
    encode,
    encode_pretty,
    quote_keys,
)

GOLDEN = Path(__file__).resolve().parents[1] / "golden/json/dialect-5.3.3.txt"

#: Captured cases that are not JSON, and those whose Java sets the reader cannot tell from lists.
NOT_JSON = ("TopicConfig.text", "RegisterBrokerBody.compressed")
#: Captured keys of kinds that no body of Apache's has.
ODD_KEYS = ("boolean.keys", "null.key")
WITH_SETS = (
    "ClusterInfo", "TopicList", "HeartbeatData", "ConsumerConnection", "ProducerConnection",
    "GroupRetryPolicy", "LockBatchRequestBody", "LockBatchResponseBody", "GroupList",
    "CheckClientRequestBody",
)

KEY = ObjectKey((("queueId", 0), ("topic", "T")))

#: (name, text, value).
READ: list[tuple[str, str, Any]] = [
    ("plain", '{"a":[1,-2.5,"x",true,false,null]}', {"a": [1, -2.5, "x", True, False, None]}),
    ("bare integer keys", '{0:"a",-1:{2:[3]}}', {0: "a", -1: {2: [3]}}),
    ("bare other keys", "{true:1,null:2,1.5:3}", {True: 1, None: 2, "1.5": 3}),
    ("bare large keys", "{9223372036854775808:1,-9223372036854775809:2,9223372036854775807:3}",
     {"9223372036854775808": 1, "-9223372036854775809": 2, 2**63 - 1: 3}),
    ("bare names", "{a:1,b_2:{$c:null}}", {"a": 1, "b_2": {"$c": None}}),
    ("single quotes", "{'a':'b\"c'}", {"a": 'b"c'}),
    ("object keys", '{{"topic":"T","queueId":0}:5}', {KEY: 5}),
    ("object keys in any order", "{{queueId:0,'topic':'T'}:{}}", {KEY: {}}),
    ("white space", ' {\r\n\t0 : [ 1 , 2 ] , "a" : { } } \n', {0: [1, 2], "a": {}}),
    ("config file", '{\n\t"offsetTable":{\n\t\t"T@G":{0:505\n\t\t}\n\t}\n}',
     {"offsetTable": {"T@G": {0: 505}}}),
    ("commas before brackets", '{0:1,"a":[1,2,],}', {0: 1, "a": [1, 2]}),
    ("numbers", "[0,-0,10,1.5e3,1E-2,9223372036854775807,{0:1}]",
     [0, 0, 10, 1500.0, 0.01, 2**63 - 1, {0: 1}]),
    ("escapes", "{0:'\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\x41\\v\\''}",
     {0: "\"\\/\b\f\n\r\té" "A\v'"}),
    ("a character of two halves", "{0:'\\ud83d\\ude00'}", {0: "\U0001f600"}),
    ("half a character", "{0:'a\\ud83d'}", {0: "a\ufffd"}),
    ("control characters", "{0:'a\nb\x01'}", {0: "a\nb\x01"}),
    ("last of equal keys", "{0:1,0:2}", {0: 2}),
    ("no members", "{}", {}),
    ("text alone", "'a'", "a"),
]

#: (name, bytes, part of the error).
REFUSED = [
    ("empty", b"", "no value at character 0"),
    ("space", b" \n", "no value at character 2"),
    ("word", b"nil", "no value 'nil'"),
    ("two values", b"{0:1}{0:1}", "more after the value at character 5"),
    ("cut object", b"{0:1", "neither a comma nor } at character 4"),
    ("cut list", b"[1", "neither a comma nor ] at character 2"),
    ("cut text", b'{0:"abc', "no end of a text"),
    ("cut escape", b'"\\', "no escape ''"),
    ("unknown escape", b"'\\q'", "no escape 'q'"),
    ("escape without digits", b"'\\u12x4'", "an escape without its digits"),
    ("no colon", b"{0 1}", "no colon after a key at character 3"),
    ("no key", b"{:1}", "no value"),
    ("no value", b"{0:}", "no value"),
    ("comma alone", b"[,]", "no value"),
    ("two commas", b"[1,,2]", "no value"),
    ("wrong bracket", b"[1}", "neither a comma nor ]"),
    ("list as a key", b"{[1]:2}", "a list stands for a key"),
    ("nested object key", b"{{0:1}:2}", "more than plain values"),
    ("list in an object key", b'{{"a":[1]}:2}', "more than plain values"),
    ("minus alone", b"{0:-}", "no number"),
    ("digits without end", b"9" * 5000, "no number"),
    ("digits of another script", "٣".encode(), "no number"),
    ("deep lists", b"[" * 100_000, f"more than {DEPTH_MAX}"),
    ("deep objects", b"{0:" * 100_000, f"more than {DEPTH_MAX}"),
    ("deep keys", b"{" * 100_000, f"more than {DEPTH_MAX}"),
    ("deep but closed", b"[" * 5000 + b"]" * 5000, f"more than {DEPTH_MAX}"),
    ("not UTF-8", b'{0:"\xff"}', "not UTF-8 at byte 4"),
]

scalars = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
)
keys = (
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.integers(-(2**63), 2**63 - 1)
    | st.builds(lambda topic, queue: ObjectKey((("queueId", queue), ("topic", topic))),
                st.text("ab\"'{}:,", max_size=4), st.integers(0, 9))
)
any_value = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


#: Python's integers have a hash modulo this.
HASH_PERIOD = sys.hash_info.modulus


def seconds_of(read: Callable[[bytes], object], data: bytes) -> float:
    """Processor time of a reading, the best of three."""
    best = 99.0
    for _ in range(3):
        begin = time.process_time()
        with contextlib.suppress(ValueError):
            read(data)
        best = min(best, time.process_time() - begin)
    return max(best, 1e-4)


def golden() -> dict[str, bytes]:
    """Return the captured texts of Apache's, by name."""
    rows = [line.split("\t") for line in GOLDEN.read_text().splitlines()]
    return {name: base64.b64decode(value) for name, value in rows}


class CollisionTests(SynchronousTestCase):
    """Keys that hash alike, as numbers, cost no more than others."""

    def test_multiples_of_the_period_of_pythons_hash(self) -> None:
        """Return multiples of the period of Python's hash."""
        def table(step: int) -> bytes:
            return b"{%b}" % b",".join(b"%d:1" % (10**19 + key * step) for key in range(12_000))
        self.assertLess(seconds_of(decode, table(HASH_PERIOD)), 8 * seconds_of(decode, table(1)))

    def test_objects_of_several_numbers(self) -> None:
        """Objects of several numbers, each of which has others with its hash."""
        def table(step: int) -> bytes:
            return b"{%b}" % b",".join(
                b'{"a":%d,"b":%d,"c":%d,"d":%d}:1' % tuple(key * step for key in keys)
                for keys in itertools.product(range(-4, 5), repeat=4))
        self.assertEqual(len(decode(table(HASH_PERIOD))), 9**4)
        self.assertLess(seconds_of(decode, table(HASH_PERIOD)),
                        8 * seconds_of(decode, table(HASH_PERIOD // 5)))


class QuoteKeysTests(SynchronousTestCase):
    """The functions quote_keys and decode_key."""

    def restored(self, value: Any) -> Any:
        """Return the value with the keys that plain JSON can have, and with objects."""
        if isinstance(value, dict):
            return {self.key(key): self.restored(member) for key, member in value.items()}
        return [self.restored(member) for member in value] if isinstance(value, list) else value

    def key(self, key: Any) -> Any:
        if isinstance(key, str):
            return decode_key(key)
        return key if isinstance(key, ObjectKey) else str(key)

    def test_as_the_reader(self) -> None:
        """Apache's texts in both layouts are read as by the slow path."""
        for name, data in golden().items():
            if name not in NOT_JSON and not name.startswith(ODD_KEYS):
                self.assertEqual(self.restored(msgspec.json.decode(quote_keys(data))),
                                 self.restored(decode(data)), msg=name)

    @settings(max_examples=examples(100))
    @given(any_value)
    def test_any_value(self, value: Any) -> None:
        """The text of the writer becomes plain JSON with the same value."""
        texts = quote_keys(encode(value, quote_int_keys=False))
        pretty = quote_keys(encode_pretty(value))
        for data in (texts, pretty):
            self.assertEqual(self.restored(msgspec.json.decode(data)), self.restored(value))

    def test_a_key_that_is_no_flat_object_is_an_error(self) -> None:
        """A key that is not a flat object is an error."""
        for key in ('\0{"a":[1]}', "\0{", '\0{"a":1}1', "\0{a:{}}"):
            self.assertRaises(JsonDialectError, decode_key, key)

    def test_ten_times_the_input_takes_no_hundred_times_as_long(self) -> None:
        """This is so whatever the input is."""
        for head, unit in ((b"", b"{"), (b"", b",{"), (b'"', b'\\"'), (b',{"', b'\\"'),
                           (b"", b'{"'), (b"", b",{a"), (b",{", b"1,"), (b"{", b" "),
                           (b",{", b'"{"'), (b"{1", b"1"), (b"{1", b" "), (b"", b"{1:")):
            small, large = (seconds_of(quote_keys, head + unit * size + b"\\")
                            for size in (5_000, 50_000))
            self.assertLess(large, 40 * small + 0.02, msg=f"{head!r} {unit!r}")


class DecodeTests(SynchronousTestCase):
    """The function decode."""

    def test_each_liberty_of_the_dialect_reads_as_in_fastjson(self) -> None:
        """Each liberty of the dialect is read as fastjson does it."""
        for name, text, value in READ:
            got = decode(text.encode())
            self.assertEqual(got, value, msg=name)
            self.assertEqual(repr(got), repr(value), msg=name)

    def test_other_input_is_refused_with_reason_and_place(self) -> None:
        """Other texts are refused with the reason and the position."""
        for name, data, part in REFUSED:
            error = self.assertRaises(JsonDialectError, decode, data)
            self.assertIn(part, str(error), msg=name)

    def test_error_is_short(self) -> None:
        """The error of a long wrong word does not repeat it."""
        error = self.assertRaises(JsonDialectError, decode, b"x" * 100_000)
        self.assertLess(len(str(error)), 100)

    def test_ten_times_the_input_takes_no_hundred_times_as_long(self) -> None:
        """This is so whatever the input is."""
        for unit in (b"{0:[]},", b"'a\\n\\u00e9',", b"{{a:1}:2},", b"12,", b" ", b"'"):
            small, large = (seconds_of(decode, b"[" + unit * size) for size in (1_000, 10_000))
            self.assertLess(large, 40 * small, msg=str(unit))

    @given(st.text("{}[]:,'\"\\ux0123e-. abtrufalsn\n", max_size=40) | st.text(max_size=20))
    def test_any_text(self, text: str) -> None:
        """Any text is read or raises JsonDialectError; a value that is read can be written."""
        try:
            value = decode(text.encode("utf-8", "replace"))
        except JsonDialectError:
            return
        for data in (encode(value, quote_int_keys=False), encode_pretty(value)):
            decode(data)

    @given(st.binary(max_size=40))
    def test_any_bytes(self, data: bytes) -> None:
        """Any bytes are read or refused as well."""
        try:
            decode(data)
        except JsonDialectError:
            return


class EncodeTests(SynchronousTestCase):
    """The functions encode and encode_pretty."""

    def test_as_apache(self) -> None:
        """Every captured value, read and written again in its form, is the same bytes."""
        for name, data in golden().items():
            if name in NOT_JSON:
                continue
            value = decode(data)
            if name.endswith(".standard"):
                written = encode(value, quote_int_keys=True)
            elif not name.endswith(".pretty"):
                written = encode(value, quote_int_keys=False)
            elif name.removesuffix(".pretty") not in WITH_SETS:
                written = encode_pretty(value)
            else:
                continue
            self.assertEqual(written, data, msg=name)

    def test_three_forms(self) -> None:
        """The forms have bare keys, quoted keys, and lines."""
        value = {"T@G": {0: 505, 1: [2]}, "e": {}, "o": {KEY: 2**53}}
        self.assertEqual(
            encode(value, quote_int_keys=False),
            b'{"T@G":{0:505,1:[2]},"e":{},"o":{{"queueId":0,"topic":"T"}:9007199254740992}}',
        )
        self.assertEqual(
            encode(value, quote_int_keys=True),
            b'{"T@G":{"0":505,"1":[2]},"e":{},'
            b'"o":{"{\\"queueId\\":0,\\"topic\\":\\"T\\"}":"9007199254740992"}}',
        )
        self.assertEqual(
            encode_pretty({"T@G": {0: 505, 1: 2}, "list": [1, 2], "set": (1, 2), "e": []}),
            b'{\n\t"T@G":{0:505,1:2\n\t},\n\t"list":[\n\t\t1,\n\t\t2\n\t],\n\t"set":[1,2],\n'
            b'\t"e":[]\n}',
        )

    def test_a_struct_is_written_by_wire_name(self) -> None:
        """Fields are in order, without None; a struct may also be a key."""
        class Place(msgspec.Struct, rename="camel", frozen=True):
            topic: str
            broker_name: str | None = None
            code: int = msgspec.field(default=0, name="aCode")

        self.assertEqual(
            encode({Place("T"): Place("U", "b", 5)}, quote_int_keys=False),
            b'{{"aCode":0,"topic":"T"}:{"aCode":5,"brokerName":"b","topic":"U"}}',
        )

    def test_sets_and_enums(self) -> None:
        """Sets are written in order and enums by value."""
        class Kind(StrEnum):
            A = "a value"

        self.assertEqual(encode([{3, 1, 2}, frozenset("ba"), Kind.A], quote_int_keys=True),
                         b'[[1,2,3],["a","b"],"a value"]')

    def test_sets_of_names(self) -> None:
        """The encoded names are the same as one by one; long ones may be in any order."""
        for names in ({"b", "a"}, {"a", 'q"', "\n"}, {"\u4f60", "/"}, {"", "a"}, {""}, set()):
            expected = b"[" + b",".join([encode(each, quote_int_keys=False)
                                         for each in sorted(names)]) + b"]"
            self.assertEqual(encode(names, quote_int_keys=False), expected)
            standard = b"[" + b",".join([encode(each, quote_int_keys=True)
                                         for each in sorted(names)]) + b"]"
            self.assertEqual(encode(names, quote_int_keys=True), standard)
        many = {f"T{number}" for number in range(20_000)}
        self.assertEqual(set(decode(encode(many, quote_int_keys=False))), many)

    def test_no_json_form(self) -> None:
        """The error has the type of the value."""
        for value in (b"bytes", object(), [1, {"a": b""}], {b"a": 1}):
            error = self.assertRaises(TypeError, encode, value, quote_int_keys=False)
            self.assertIn("has no JSON form", str(error))

    def test_no_number(self) -> None:
        """NaN and infinity become null, as in Java."""
        self.assertEqual(encode([float("nan"), float("inf")], quote_int_keys=False),
                         b"[null,null]")

    def test_half_a_character(self) -> None:
        """Half a character becomes a question mark, as in Java."""
        self.assertEqual(encode("a\ud83d", quote_int_keys=False), b'"a?"')

    @settings(max_examples=examples(100))
    @given(any_value)
    def test_round_trip(self, value: Any) -> None:
        """A text with bare keys is read again with the same value, in both layouts."""
        for data in (encode(value, quote_int_keys=False), encode_pretty(value)):
            self.assertEqual(repr(decode(data)), repr(value))

    @settings(max_examples=examples(100))
    @given(any_value)
    def test_standard_is_json(self, value: Any) -> None:
        """A text with quoted keys is plain JSON in ASCII."""
        data = encode(value, quote_int_keys=True)
        json.loads(data)
        self.assertTrue(data.isascii())
