"""Rows of values for a field of a header, used in tests of all readers of headers.

A row is a value as JSON, the field it stands in, and the value that is read, or ``REFUSED``.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from twistmq.protocol.frame import JSON, Frame

CODE: Final = 310
REFUSED: Final = "refused"
#: A field that is left out, of the table's rows.
ABSENT: Final = ""


class Row(NamedTuple):
    """A value of one field, and the result of every reader."""

    field: str
    value: str
    read: object


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
    Row("number", "1.5", REFUSED), Row("number", '"1e3"', REFUSED),
    Row("number", "1e3", REFUSED), Row("number", '"1.0"', REFUSED), Row("number", "1.0", REFUSED),
    Row("number", "-0", 0), Row("number", '"-0"', 0), Row("number", '"\\u0031"', 1),
    Row("number", '"1\\u00653"', REFUSED), Row("number", '"4.0e0"', REFUSED),
    Row("number", '"nan"', REFUSED), Row("number", '"Infinity"', REFUSED),
    Row("number", "1e400", REFUSED), Row("number", '"null"', REFUSED),
    Row("number", "null", -5), Row("number", ABSENT, -5),
    Row("long", '"9223372036854775807"', 9223372036854775807),
    Row("long", "9223372036854775807", 9223372036854775807),
    Row("long", '"-9223372036854775808"', -9223372036854775808),
    Row("long", '"9223372036854775808"', REFUSED), Row("long", "9223372036854775808", REFUSED),
    Row("long", '"1' + "0" * 40 + '"', REFUSED), Row("long", "1e18", REFUSED),
    Row("long", "9223372036854775807.0", REFUSED), Row("long", ABSENT, -6),
    # An integer that may be left out.
    Row("some", '"4"', 4), Row("some", "null", None), Row("some", ABSENT, None),
    Row("some", '"x"', REFUSED), Row("some", '"null"', REFUSED),
    Row("some", '"NULL"', REFUSED), Row("some", '"\\u006eull"', REFUSED),
    Row("some", "4.0", REFUSED), Row("some", '"4e0"', REFUSED), Row("some", '"+4"', 4),
    # Booleans: as text or as themselves.
    Row("flag", '"true"', True), Row("flag", "true", True), Row("flag", '"false"', False),
    Row("flag", "false", False), Row("flag", ABSENT, False), Row("flag", "null", False),
    Row("flag", '"TRUE"', True), Row("flag", '"1"', True), Row("flag", '"0"', False),
    Row("flag", '"yes"', REFUSED), Row("flag", '""', REFUSED), Row("flag", '"null"', REFUSED),
    Row("flag", "2", REFUSED), Row("flag", "[]", REFUSED),
    # Texts: whatever comes, as its text.
    Row("text", '"a b"', "a b"), Row("text", '""', ""), Row("text", '"\\u00e9\\n"', "\u00e9\n"),
    Row("text", '"null"', "null"), Row("text", "4", "4"), Row("text", "true", "true"),
    Row("text", ABSENT, REFUSED), Row("text", "null", REFUSED),
    Row("maybe", '"1e3"', "1e3"), Row("maybe", ABSENT, None), Row("maybe", "null", None),
    Row("maybe", "[" * 2000 + "]" * 2000, REFUSED),
)

#: The same of a command's own fields. Integers are taken as text too, and with a point or an
#: exponent when they are whole.
#: Differs from Apache: it takes null and "" as 0 and cuts fractions off, because its JSON parser
#: does; no client writes such, and a wrong opaque would answer another request.
OWN_ROWS: Final = (
    *(Row(name, value, number) for name in ("opaque", "flag", "version") for value, number in (
        ("4", 4), ('"4"', 4), ("-4", -4), ("4.0", 4), ('"4.0"', 4), ("4e1", 40), ("-0", 0),
        ("2147483647", 2147483647), ("-2147483648", -2147483648), ('"\\u0034"', 4),
        (ABSENT, 0))),
    *(Row(name, value, REFUSED) for name in ("code", "opaque", "flag", "version") for value in (
        "null", '"null"', '""', "true", '"true"', "[]", "{}", "1.5", '"x"', '" 4"', '"0x4"',
        "2147483648", "-2147483649", '"2147483648"', "9" * 400, "1e400", '"1_0"')),
    Row("code", f'"{CODE}"', CODE), Row("code", f"{CODE}.0", CODE), Row("code", "31e1", CODE),
    Row("code", "-1", -1), Row("code", "0", 0), Row("code", ABSENT, REFUSED),
    # A language is kept as it came: a name, or the number that stands for it.
    Row("language", '"GO"', "GO"), Row("language", '"KLINGON"', "KLINGON"),
    Row("language", '"null"', "null"), Row("language", '""', ""), Row("language", "3", 3),
    Row("language", "-1", -1), Row("language", "null", None), Row("language", ABSENT, None),
    Row("language", "true", REFUSED), Row("language", "1.5", REFUSED),
    Row("language", "[]", REFUSED), Row("language", "{}", REFUSED),
    Row("language", f'"{"x" * 70_000}"', "x" * 70_000),
    Row("remark", '"r"', "r"), Row("remark", '""', ""), Row("remark", '"null"', "null"),
    Row("remark", '"\\u00e9\\n"', "\u00e9\n"), Row("remark", f'"{"x" * 70_000}"', "x" * 70_000),
    Row("remark", "null", None), Row("remark", ABSENT, None), Row("remark", "5", REFUSED),
    Row("remark", "true", REFUSED), Row("remark", "[]", REFUSED),
    Row("remark", '"\\ud800"', REFUSED),
    # The frame says how its header is written, and where the body is; the header has no say.
    *(Row(name, value, None) for name in ("serializeTypeCurrentRPC", "body", "unknown")
      for value in ('"JSON"', '"ROCKETMQ"', '"x"', "0", "9", "null", "true", "[]", "{}",
                    "1e400", ABSENT)),
    Row("unknown", "[" * 2000 + "]" * 2000, REFUSED), Row("unknown", "nul", REFUSED),
)


def own_frame(row: Row, *, code_first: bool) -> Frame:
    """A signed request with one of the command's own fields as the row has it."""
    own = {"flag": "0", "language": '"JAVA"', "opaque": "7", "version": "479", row.field: row.value}
    code = own.pop("code", str(CODE))
    rest = [f'"{name}":{value}' for name, value in own.items() if value != ABSENT]
    first = [] if code == ABSENT else [f'"code":{code}']
    fields = ['"extFields":{"AccessKey":"k","text":"t","other":"o","number":"4","Signature":"s"}']
    parts = [*first, *fields, *rest] if code_first else [*rest, *fields, *first]
    return JSON, f"{{{','.join(parts)}}}".encode(), b"the body"
