"""Offsets of queues in addresses and forms: "BROKER:QUEUE=OFFSET,QUEUE=OFFSET,...".

A queue without the name of its broker belongs to the broker that was named last. In the name of a
broker, blanks, commas and "=" are written as "%20" and so on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, TypeAlias
from urllib.parse import quote, unquote

from twistmq.console.query import BadQuery

__all__ = ["OFFSET_MAX", "QueueOffsets", "offsets_text", "read_offsets"]

#: An offset for each queue, by the name of its broker and its id.
QueueOffsets: TypeAlias = Mapping[tuple[str, int], int]
#: The largest offset; a larger number counts as this one.
OFFSET_MAX: Final = 2**63 - 1
_OFFSET: Final = re.compile(r"(?:([^,\s=]+):)?([0-9]{1,9})=([0-9]{1,19})", re.ASCII)
#: A longer text does not fit into the first line of a request, once "=" and "," are escaped, bytes.
_TEXT_MAX: Final = 14_000


def read_offsets(text: str, name: str) -> dict[tuple[str, int], int]:
    """Read offsets that are separated by commas or blanks.

    :param name: the parameter, for the error.
    :raises BadQuery: when the text has another form.
    """
    offsets: dict[tuple[str, int], int] = {}
    broker = ""
    for part in re.split(r"[,\s]+", text.strip()) if text.strip() else ():
        match = _OFFSET.fullmatch(part)
        broker = unquote(match[1] or "") or broker if match else ""
        if match is None or not broker:
            raise BadQuery(f"{name}: {part[:80]} is not BROKER:QUEUE=OFFSET")
        offsets[broker, int(match[2])] = min(int(match[3]), OFFSET_MAX)
    return offsets


def offsets_text(offsets: QueueOffsets) -> str:
    """Return the form in addresses.

    :raises BadQuery: when there are too many queues for an address.
    """
    parts = []
    last = None
    for (broker, queue_id), offset in sorted(offsets.items()):
        head = "" if broker == last else f"{quote(broker, safe=':')}:"
        parts.append(f"{head}{queue_id}={offset}")
        last = broker
    text = ",".join(parts)
    if len(text) + 2 * (text.count("=") + text.count(",") + text.count("%")) > _TEXT_MAX:
        raise BadQuery(f"the topic has too many queues to go on in all of them ({len(offsets)}): "
                       "read one queue by offset")
    return text
