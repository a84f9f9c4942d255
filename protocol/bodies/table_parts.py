"""Reads the topics of a long registration in parts.

One call of the JSON decoder reads a whole body, which takes a tenth of a second for sixteen
megabytes, and the server can do nothing else during that time. Therefore the rows of the topic
table are cut where a row seems to end. Each part is decoded as a separate object, and the body
without its rows is decoded with one placeholder row in the position of the table. If all of these
are valid JSON, the whole body is valid and has the same meaning. A cut at a wrong place leaves a
part that is not JSON, and then the body is read in one call.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Final

import msgspec

from twistmq.protocol.bodies.topic import TopicConfig

__all__ = ["PART_BYTES", "LongTable", "read_table"]

#: The size of one part, bytes: two hundred topics, about a fifth of a millisecond.
PART_BYTES: Final = 32 * 1024
#: The maximum size of a part whose last row is long, bytes; longer ones are not read in parts.
_PART_BYTES_MAX: Final = 4 * PART_BYTES
#: How many candidates for the end of the table are tried; the table ends where two objects end.
_ENDS_MAX: Final = 4

_TABLE: Final = re.compile(rb'"topicConfigTable"\s*:\s*\{')
#: The end of a row, followed by the name and the beginning of the next row.
_ROW_END: Final = re.compile(rb'\}\s*,\s*(?="[^"\\]{1,300}"\s*:\s*\{)')
_TABLE_END: Final = re.compile(rb'\}\s*(?=\})')
#: The placeholder that replaces the rows in the body.
_PROBE: Final = b'"":{"topicName":""}'
_rows: Final = msgspec.json.Decoder(dict[str, TopicConfig], strict=False)


class LongTable(msgspec.Struct, frozen=True):
    """The topics of a body, and the body with a nameless placeholder topic in their place."""

    topics: dict[str, TopicConfig]
    rest: bytes

    @staticmethod
    def is_probe(topics: dict[str, TopicConfig]) -> bool:
        """Whether a decoded table is the placeholder, which shows that the rows were cut out at
        the right place.
        """
        return list(topics) == [""] and topics[""].topic_name == ""


def read_table(data: bytes) -> Generator[None, None, LongTable | None]:
    """Read the table of a body; yields after each part.

    :returns: None when the table cannot be read in parts.
    """
    match = _TABLE.search(data)
    if match is None:
        return None
    begin = position = match.end()
    topics: dict[str, TopicConfig] = {}
    while True:
        cut = _ROW_END.search(data, position + PART_BYTES)
        part = None if cut is None else _decode(data, position, cut.start() + 1)
        if cut is None or part is None:
            break
        topics.update(part)
        position = cut.end()
        yield
    for number, end in enumerate(_TABLE_END.finditer(data, position)):
        part = _decode(data, position, end.start() + 1)
        if part is not None:
            topics.update(part)
            return LongTable(topics, b"".join((data[:begin], _PROBE, data[end.end():])))
        if number + 1 == _ENDS_MAX:
            break
    return None


def _decode(data: bytes, begin: int, end: int) -> dict[str, TopicConfig] | None:
    """Read some rows; None when they are not rows, or too long to be read without a pause."""
    if end - begin > _PART_BYTES_MAX:
        return None
    try:
        return _rows.decode(b"{%b}" % data[begin:end])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
