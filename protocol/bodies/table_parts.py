"""Reading the topics of a long registration a part at a time.

One call of the JSON decoder reads all of a body, which for sixteen megabytes takes a tenth of a
second. So the rows of its table are cut where one seems to end, and each part is decoded as an
object of its own, the rest with one row in the table's place. Where all of these are JSON, the
whole is, and means the same; a cut at a wrong place leaves a part that is not JSON, and then the
body is read in one call.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Final

import msgspec

from twistmq.protocol.bodies.topic import TopicConfig

__all__ = ["PART_BYTES", "LongTable", "read_table"]

#: Bytes of one part: two hundred topics, about a fifth of a millisecond.
PART_BYTES: Final = 32 * 1024
#: Bytes of a part with a last row that is long; a longer one is not read so.
_PART_BYTES_MAX: Final = 4 * PART_BYTES
#: Candidates for the end of the table that are tried; it ends where two objects do.
_ENDS_MAX: Final = 4

_TABLE: Final = re.compile(rb'"topicConfigTable"\s*:\s*\{')
#: The end of a row, before the name and the beginning of the next one.
_ROW_END: Final = re.compile(rb'\}\s*,\s*(?="[^"\\]{1,300}"\s*:\s*\{)')
_TABLE_END: Final = re.compile(rb'\}\s*(?=\})')
#: The placeholder of the rows in the rest of the body.
_PROBE: Final = b'"":{"topicName":""}'
_rows: Final = msgspec.json.Decoder(dict[str, TopicConfig], strict=False)


class LongTable(msgspec.Struct, frozen=True):
    """A body's topics, and the body with one that has no name in their place."""

    topics: dict[str, TopicConfig]
    rest: bytes

    @staticmethod
    def is_probe(topics: dict[str, TopicConfig]) -> bool:
        """Whether a decoded table is the placeholder's, which shows that the rows stood in the
        right place.
        """
        return list(topics) == [""] and topics[""].topic_name == ""


def read_table(data: bytes) -> Generator[None, None, LongTable | None]:
    """Read the table of a body; yields after each part.

    :returns: None when it cannot be read so.
    """
    found = _TABLE.search(data)
    if found is None:
        return None
    begin = position = found.end()
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
    """Read some rows; None when they are not rows, or too many to be read without a pause."""
    if end - begin > _PART_BYTES_MAX:
        return None
    try:
        return _rows.decode(b"{%b}" % data[begin:end])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
