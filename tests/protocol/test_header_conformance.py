"""One table of values for a field of a request's header is used with every reader of headers.

The table is in ``header_rows.py``. The fast readers may change the speed and never the answer.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from twisted.trial.unittest import SynchronousTestCase

from tests.protocol.header_rows import (
    ABSENT,
    CODE,
    OWN_ROWS,
    REFUSED,
    ROWS,
    Row,
    own_frame,
)
from twistmq.protocol.binary_header import encode_binary_header
from twistmq.protocol.command import RemotingCommand, decode_command
from twistmq.protocol.errors import HeaderError
from twistmq.protocol.frame import JSON, ROCKETMQ, Frame
from twistmq.protocol.header import CommandHeader, Int32, Int64
from twistmq.protocol.request_reader import RequestReader, SignedRequestReader


class Cold(CommandHeader):
    """A header that is decoded in two steps."""

    text: str
    other: str
    number: Int32 = -5
    long: Int64 = -6
    flag: bool = False
    maybe: str | None = None
    some: Int32 | None = None


class Hot(Cold):
    """The same header, decoded in one pass."""

    is_hot = True


def json_frame(row: Row, *, code_first: bool) -> Frame:
    """Return a signed request with the field of the row and the required fields."""
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
    """Return the row with a value that every reader accepts."""
    return row if row.value == ABSENT else row._replace(value=PLAIN[row.field])


class ConformanceTests(SynchronousTestCase):
    """protocol: header.py, one_pass.py, request_reader.py, field_sets.py, binary_header.py."""

    def answer(self, row: Row, read: Callable[[], CommandHeader]) -> object:
        try:
            return getattr(read(), row.field)
        except HeaderError:
            return REFUSED

    def test_readers_of_json_agree(self) -> None:
        """Each reader of JSON gives the same result for each row, wherever the code is."""
        wrong: list[Any] = []
        counts: Counter[bool] = Counter()
        for row in ROWS:
            for code_first in (True, False):
                frame = json_frame(row, code_first=code_first)
                plain = json_frame(plain_row(row), code_first=code_first)
                signed = partial(read_signed, plain=plain, counts=counts)
                for name, read in (("two steps", read_two_steps), ("at once", read_at_once),
                                   ("signed", signed)):
                    for header_type in (Cold, Hot):
                        found = self.answer(row, lambda: read(frame, header_type))  # noqa: B023
                        if (type(found), found) != (type(row.read), row.read):
                            wrong.append((name, header_type.__name__, code_first, row, found))
        self.assertEqual(wrong, [])
        self.assertGreater(counts[True], 20)

    def test_readers_of_binary_agree_with_those_of_json(self) -> None:
        """A text in a binary header is read as the same text in JSON is by a cold class."""
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

    def test_readers_of_a_commands_own_fields_agree(self) -> None:
        """This includes the other members of the command."""
        wrong: list[Any] = []
        plain = own_frame(Row("unknown", ABSENT, None), code_first=True)
        signed = SignedRequestReader({CODE: Hot})
        signed.passed(decode_command(plain))
        at_once = [RequestReader({CODE: header_type}) for header_type in (Cold, Hot)]
        readers: Final[tuple[Callable[[Frame], RemotingCommand], ...]] = (
            decode_command, *(lambda frame, reader=reader: reader.read(frame)[0]
                              for reader in (*at_once, signed)))
        for row in OWN_ROWS:
            for code_first in (True, False):
                frame = own_frame(row, code_first=code_first)
                for at, read in enumerate(readers):
                    found = self.own_answer(row, frame, read)
                    if (type(found), found) != (type(row.read), row.read):
                        wrong.append((at, code_first, row, found))
        self.assertEqual(wrong, [])

    def own_answer(
        self, row: Row, frame: Frame, read: Callable[[Frame], RemotingCommand]
    ) -> object:
        """The value that a reader makes of a command's own field."""
        try:
            command = read(frame)
        except HeaderError:
            return REFUSED
        own = {name: getattr(command, name)
               for name in ("code", "opaque", "flag", "version", "language", "remark")}
        found = own.pop(row.field, None)
        plain = {"code": CODE, "opaque": 7, "flag": 0, "version": 479, "language": "JAVA",
                 "remark": None}
        plain.pop(row.field, None)
        self.assertEqual(own, plain, msg=row)
        self.assertEqual((command.serialize_type, command.body), (JSON, b"the body"), msg=row)
        if command.code == CODE:
            self.assertEqual(command.header(Hot), Hot("t", "o", 4), msg=row)
        return found

    def test_of_a_name_that_comes_twice_the_last_counts(self) -> None:
        """Readers use the last of two fields with one name, as a map does."""
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
