"""Offsets of queues in addresses and forms: "BROKER:QUEUE=OFFSET,..."."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, TypeAlias

from twistmq.console.query import BadQuery

__all__ = ["QueueOffsets", "offsets_text", "read_offsets"]

#: An offset for each queue, by the name of its broker and its id.
QueueOffsets: TypeAlias = Mapping[tuple[str, int], int]
_OFFSET: Final = re.compile(r"([^,\s]+):([0-9]{1,9})=([0-9]{1,18})", re.ASCII)
_OFFSETS_MAX: Final = 2_000


def read_offsets(text: str, name: str) -> dict[tuple[str, int], int]:
    """Read offsets that are separated by commas or blanks.

    :param name: the parameter, for the error.
    :raises BadQuery: when the text has another form, or too many queues.
    """
    offsets: dict[tuple[str, int], int] = {}
    for part in text.replace(",", " ").split():
        match = _OFFSET.fullmatch(part)
        if match is None:
            raise BadQuery(f"{name}: {part[:80]} is not BROKER:QUEUE=OFFSET")
        offsets[match[1], int(match[2])] = int(match[3])
    if not 0 < len(offsets) <= _OFFSETS_MAX:
        raise BadQuery(f"{name} names no queue, or more than {_OFFSETS_MAX}")
    return offsets


def offsets_text(offsets: QueueOffsets) -> str:
    """Return the form in addresses."""
    return ",".join(f"{broker}:{queue_id}={offset}"
                    for (broker, queue_id), offset in sorted(offsets.items()))
