"""One table of what a field of a request's header may hold, run through every reader of headers.

A row is a value as JSON, the type of its field, and the value that is read, or ``REFUSED``. The
fast readers may change the speed and never the answer. Where they do differ, the row says so in
``hot``, and ``broker/wire/DESIGN.md`` says why.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.errors import HeaderError
from twistmq.broker.wire.binary_header import encode_binary_header
from twistmq.broker.wire.command import decode_command
from twistmq.broker.wire.frame import JSON, ROCKETMQ, Frame
from twistmq.broker.wire.header import CommandHeader, Int32, Int64
from twistmq.broker.wire.request_reader import RequestReader, SignedRequestReader

CODE: Final = 310
REFUSED: Final = "refused"
#: A field that is left out, of the table's rows.
ABSENT: Final = ""


class Cold(CommandHeader):
    """A header that is read in two steps."""

    text: str
    other: str
    number: Int32 = -5
    long: Int64 = -6
    flag: bool = False
    maybe: str | None = None
    some: Int32 | None = None


class Hot(Cold):
    """The same header, read in one pass."""

    is_hot = True


class Row(NamedTuple):
    """A value of one field, and what every reader makes of it."""

    field: str
    value: str
    read: object
    #: What readers in one pass make of it, where that differs.
    hot: object = None


ROWS: Final = (
    # Integers: a sign and ASCII digits, as text or as a number.
    Row("number", '"4"', 4), Row("number", "4", 4), Row("number", '"-4"', -4),
    Row("number", "-4", -4), Row("number", '"+4"', 4), Row("number", '"007"', 7),
    Row("number", '"2147483647"', 2147483647), Row("number", '"-2147483648"', -2147483648),
    Row("number", '"2147483648"', REFUSED), Row("number", "2147483648", REFUSED),
    Row("number", '"-2147483649"', REFUSED), Row("number", '""', REFUSED),
    Row("number", '" 4"', REFUSED), Row("number", '"4 "', REFUSED), Row("number", '"4L"', REFUSED),
    Row("number", '"0x4"', REFUSED), Row("number", '"1_0"', REFUSED),
    Row("number", '"\\u0664"', REFUSED), Row("number", '"four"', REFUSED),
    Row("number", "true", REFUSED), Row("number", '"--4"', REFUSED), Row("number", '"+"', REFUSED),
    Row("number", "[]", REFUSED), Row("number", "{}", REFUSED), Row("number", '"1.5"', REFUSED),
    Row("number", "1.5", REFUSED), Row("number", '"1e3"', REFUSED, 1000),
    Row("number", "1e3", REFUSED, 1000), Row("number", '"1.0"', REFUSED, 1),
    Row("number", "1.0", REFUSED, 1), Row("number", "null", -5), Row("number", ABSENT, -5),
    Row("long", '"9223372036854775807"', 9223372036854775807),
    Row("long", "9223372036854775807", 9223372036854775807),
    Row("long", '"-9223372036854775808"', -9223372036854775808),
    Row("long", '"9223372036854775808"', REFUSED), Row("long", "9223372036854775808", REFUSED),
    Row("long", '"1' + "0" * 40 + '"', REFUSED), Row("long", ABSENT, -6),
    # An integer that may be left out.
    Row("some", '"4"', 4), Row("some", "null", None), Row("some", ABSENT, None),
    Row("some", '"x"', REFUSED), Row("some", '"null"', REFUSED, None),
    # Booleans: as text or as themselves.
    Row("flag", '"true"', True), Row("flag", "true", True), Row("flag", '"false"', False),
    Row("flag", "false", False), Row("flag", ABSENT, False),
    # Texts: whatever comes, as its text.
    Row("text", '"a b"', "a b"), Row("text", '""', ""), Row("text", '"\\u00e9\\n"', "\u00e9\n"),
    Row("text", '"null"', "null"), Row("text", "4", "4"), Row("text", "true", "true"),
    Row("text", ABSENT, REFUSED), Row("text", "null", REFUSED),
    Row("maybe", '"1e3"', "1e3"), Row("maybe", ABSENT, None), Row("maybe", "null", None),
    Row("maybe", "[" * 2000 + "]" * 2000, REFUSED),
)


def json_frame(row: Row, *, code_first: bool) -> Frame:
    """A signed request with the row's field, and those that have to be there."""
    pairs = {"AccessKey": '"k"', "text": '"t"', "other": '"o"', row.field: row.value,
             "Signature": '"s"'}
    fields = ",".join(f'"{name}":{value}' for name, value in pairs.items() if value != ABSENT)
    rest = '"flag":0,"language":"JAVA","opaque":7,"serializeTypeCurrentRPC":"JSON","version":479'
    code, ext = f'"code":{CODE}', f'"extFields":{{{fields}}}'
    text = f"{{{code},{ext},{rest}}}" if code_first else f"{{{rest},{ext},{code}}}"
    return JSON, text.encode(), b""


def binary_frame(row: Row) -> Frame:
    """The same in binary, where every value is a text."""
    fields = {"AccessKey": "k", "text": "t", "other": "o", "Signature": "s"}
    fields.pop(row.field, None)
    if row.value != ABSENT:
        fields[row.field] = json.loads(row.value)
    return ROCKETMQ, encode_binary_header(CODE, "JAVA", 479, 7, 0, None, fields), b""


def read_two_steps(frame: Frame, header_type: type[CommandHeader]) -> CommandHeader:
    return decode_command(frame).header(header_type)


def read_at_once(frame: Frame, header_type: type[CommandHeader]) -> CommandHeader:
    command, header, _ = RequestReader({CODE: header_type}).read(frame)
    return command.header(header_type) if header is None else header


#: A plain value of each field, of the request that passed first.
PLAIN: Final = {"text": '"x"', "number": '"1"', "long": '"1"', "flag": '"true"', "maybe": '"x"',
                "some": '"1"', "unknown": '"x"'}


def read_signed(
    frame: Frame, header_type: type[CommandHeader], plain: Frame | None = None,
    counts: Counter[bool] | None = None,
) -> CommandHeader:
    """Read with the texts that were signed, after a plain request with the same names passed.

    :param counts: gets whether a decoder of that set of names has read the request.
    """
    reader = SignedRequestReader({CODE: header_type})
    with contextlib.suppress(HeaderError):
        reader.passed(decode_command(plain or frame))
    command, header, texts = reader.read(frame)
    if counts is not None:
        counts[texts is not None] += 1
    return command.header(header_type) if header is None else header


def plain_row(row: Row) -> Row:
    """The row with a value that any reader reads."""
    return row if row.value == ABSENT else row._replace(value=PLAIN[row.field])


class ConformanceTests(SynchronousTestCase):
    """broker/wire: header.py, one_pass.py, request_reader.py, field_sets.py, binary_header.py."""

    def answer(self, row: Row, read: Callable[[], CommandHeader]) -> object:
        try:
            return getattr(read(), row.field)
        except HeaderError:
            return REFUSED

    def test_readers_of_json_agree(self) -> None:
        """Each reader of JSON makes the same of each row, wherever the code stands."""
        wrong: list[Any] = []
        counts: Counter[bool] = Counter()
        for row in ROWS:
            hot = row.read if row.hot is None and row.value != '"null"' else row.hot
            if row.field == "text" and row.value == '"null"':
                hot = row.read
            for code_first in (True, False):
                frame = json_frame(row, code_first=code_first)
                plain = json_frame(plain_row(row), code_first=code_first)
                signed = partial(read_signed, plain=plain, counts=counts)
                for name, read, header_type, expected in (
                    ("two steps, cold", read_two_steps, Cold, row.read),
                    ("at once, cold", read_at_once, Cold, row.read),
                    ("two steps, hot", read_two_steps, Hot, hot),
                    ("at once, hot", read_at_once, Hot, hot),
                    ("signed, cold", signed, Cold, row.read),
                    ("signed, hot", signed, Hot, hot),
                ):
                    found = self.answer(row, lambda: read(frame, header_type))  # noqa: B023
                    if (type(found), found) != (type(expected), expected):
                        wrong.append((name, code_first, row[:2], found, expected))
        self.assertEqual(wrong, [])
        self.assertGreater(counts[True], 20)

    def test_readers_of_binary_agree_with_those_of_json(self) -> None:
        """A binary header has texts only; each is read as the same text in JSON of a cold class."""
        wrong: list[Any] = []
        counts: Counter[bool] = Counter()
        for row in ROWS:
            if row.value != ABSENT and not row.value.startswith('"'):
                continue
            frame, plain = binary_frame(row), binary_frame(plain_row(row))
            for name, read in (("two steps", read_two_steps), ("at once", read_at_once),
                               ("signed", partial(read_signed, plain=plain, counts=counts))):
                for header_type in (Cold, Hot):
                    found = self.answer(row, lambda: read(frame, header_type))  # noqa: B023
                    if (type(found), found) != (type(row.read), row.read):
                        wrong.append((name, header_type.__name__, row[:2], found, row.read))
        self.assertEqual(wrong, [])
        self.assertGreater(counts[True], 15)

    def test_of_a_name_that_comes_twice_the_last_counts(self) -> None:
        """Readers take the last of two fields with one name, as a map does."""
        rest = '"flag":0,"language":"JAVA","opaque":7,"version":479'
        fields = '"text":"a","other":"o","number":"1","text":"b"'
        frame = JSON, f'{{"code":{CODE},"extFields":{{{fields}}},{rest}}}'.encode(), b""
        for read in (read_two_steps, read_at_once, read_signed):
            for header_type in (Cold, Hot):
                header: Any = read(frame, header_type)
                self.assertEqual((header.text, header.number), ("b", 1))

    def test_a_name_that_the_class_does_not_have_is_passed_over(self) -> None:
        """A newer client sends fields that this version does not know."""
        row = Row("unknown", '"x"', None)
        for read in (read_two_steps, read_at_once, read_signed):
            for header_type in (Cold, Hot):
                header: Any = read(json_frame(row, code_first=True), header_type)
                self.assertEqual((header.text, header.number), ("t", -5))
