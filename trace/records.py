"""The records of message traces, as clients write them into the trace topic and read them back.

The body of a message of the trace topic is UTF-8 text: records, each closed by 0x02, their fields
apart by 0x01, the first field the kind. Java writes an absent text as ``null``; here that is None.
The forms that are read and written, by the number of fields, the kind among them:

=============== ===== ==========================================================================
kind            count clients
=============== ===== ==========================================================================
Pub             13    before 4.4: no offset message id
Pub             14    Java 4.4 to 4.7 and from 4.9.0 on
Pub             15    Java 4.8, Go: the client's host at the end
SubBefore       8     Java 4.4 to 4.7 and from 4.9.0 on
SubBefore       9     Java 4.8, Go: the client's host at the end
SubAfter        6     before 4.4: no context code
SubAfter        7, 8  Java 4.4 to 4.7, 4.9.1 and, from 4.9.5 on, those of the access channel CLOUD
SubAfter        9     the others: when, and the group
EndTransaction  13    Java from 4.9.0 on
Recall          7     Java from 5.3.2 on
=============== ===== ==========================================================================

From 4.9.5 to 5.3.0 the access channel CLOUD leaves out the 0x02 after SubAfter, so that the next
record follows as if it were more fields; that is read as well. Records with more fields than these
are read as the longest form. Records are written in the form of 5.3.3.

This module is for other programs too, a pipeline for example: names and meanings stay.
It does no input or output.

Source: TraceDataEncoder @4.4.0 to @5.3.3, TraceBean, TraceContext @5.3.3; trace.go @v2.1.2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

__all__ = [
    "ContextCode",
    "DecodedRecords",
    "EndTransaction",
    "MessageType",
    "Pub",
    "Recall",
    "SubAfter",
    "SubBefore",
    "TraceRecord",
    "decode_records",
    "encode_records",
    "record_keys",
]

#: Between fields, after each record, between keys.
FIELD_SEPARATOR: Final = "\x01"
RECORD_SEPARATOR: Final = "\x02"
KEY_SEPARATOR: Final = " "
#: How Java writes a text that is not there.
_NULL: Final = "null"
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}")
#: A client's text with a separator in it would read as more fields; Java's encoder lets it.
_SEPARATORS: Final = str.maketrans({FIELD_SEPARATOR: " ", RECORD_SEPARATOR: " "})


class MessageType(IntEnum):
    """The kind of the message; the ordinals of Java's enumeration."""

    NORMAL = 0
    TRANSACTION_HALF = 1
    TRANSACTION_COMMIT = 2
    DELAY = 3
    ORDER = 4


class ContextCode(IntEnum):
    """How a consumption ended; the ordinals of Java's ConsumeReturnType."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURN_NULL = 3
    FAILED = 4


class Pub(NamedTuple):
    """A message was sent, or a batch, whose ids are then joined by commas."""

    #: When the send began, Unix ms.
    time_ms: int
    region: str | None
    #: The producer's group.
    group: str
    topic: str
    #: The client's id of the message (UNIQ_KEY).
    message_id: str
    tags: str | None
    #: Keys, apart by spaces.
    keys: str | None
    #: "ip:port" of the broker that stored it.
    store_host: str | None
    #: Length of the body as sent, bytes.
    body_length: int
    #: How long the send took, ms.
    cost_ms: int
    #: A MessageType, or an ordinal newer than that.
    message_type: int
    #: The id that says where it is stored; None in the oldest form.
    offset_message_id: str | None
    success: bool
    #: The client's ip, in the forms that have it; else the trace message's born host says it.
    client_host: str | None = None


class SubBefore(NamedTuple):
    """A consumer is about to be given a message."""

    #: When, Unix ms.
    time_ms: int
    region: str | None
    #: The consumer's group.
    group: str
    #: Joins it with its SubAfter; one for all messages of a call of the listener.
    request_id: str
    message_id: str
    #: How often the message was tried before.
    retry_times: int
    keys: str | None
    client_host: str | None = None


class SubAfter(NamedTuple):
    """A consumer is done with a message."""

    request_id: str
    message_id: str
    #: How long it took, ms: of a call of the listener, its time through the number of messages.
    cost_ms: int
    success: bool
    keys: str | None
    #: A ContextCode, or an ordinal newer than that; None in the oldest form.
    context_code: int | None
    #: When it ended, Unix ms, and the consumer's group; None in the short forms.
    time_ms: int | None = None
    group: str | None = None


class EndTransaction(NamedTuple):
    """A producer ended a transaction."""

    #: When, Unix ms.
    time_ms: int
    region: str | None
    group: str
    topic: str
    message_id: str
    tags: str | None
    keys: str | None
    store_host: str | None
    #: A MessageType, or an ordinal newer than that.
    message_type: int
    transaction_id: str | None
    #: COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW, as Java spells them.
    state: str
    #: Whether a check by the broker led to it.
    from_check: bool


class Recall(NamedTuple):
    """A producer took a timed message back."""

    #: When, Unix ms.
    time_ms: int
    region: str | None
    group: str
    topic: str
    message_id: str
    success: bool


TraceRecord: TypeAlias = Pub | SubBefore | SubAfter | EndTransaction | Recall


@dataclass(frozen=True, slots=True)
class DecodedRecords:
    """The content of a body."""

    records: list[TraceRecord]
    #: Records that were passed over: of an unknown kind, too short, or with a number that is not
    #: one.
    bad_count: int


def decode_records(body: bytes) -> DecodedRecords:
    """Read the body of a message of the trace topic; never fails, whatever the bytes are."""
    records: list[TraceRecord] = []
    bad_count = 0
    for text in body.decode("utf-8", "replace").split(RECORD_SEPARATOR):
        if not text:
            continue
        for fields in _apart(text.split(FIELD_SEPARATOR)):
            try:
                records.append(_DECODERS[fields[0]](fields))
            except (KeyError, IndexError, ValueError):
                bad_count += 1
    return DecodedRecords(records, bad_count)


def encode_records(records: Iterable[TraceRecord]) -> bytes:
    """Write records as a client 5.3.3 does, one after the other.

    A SubAfter without time is written in the form of the access channel CLOUD. Separators in texts
    become spaces.
    """
    return "".join([_encode(record) for record in records]).encode("utf-8", "replace")


def record_keys(record: TraceRecord) -> list[str]:
    """The keys of a trace message with this record: the message's id, then its keys."""
    found = [record.message_id]
    if not isinstance(record, Recall) and record.keys:
        found += [key for key in record.keys.split(KEY_SEPARATOR) if key]
    return found


# --- reading


def _apart(fields: list[str]) -> list[list[str]]:
    """Part a SubAfter that was not closed from the records that follow it."""
    parts: list[list[str]] = []
    begin, count = 0, len(fields)
    # By index: to copy the rest for each part would take quadratic time.
    while fields[begin] == "SubAfter" and count - begin > 8 and fields[begin + 7] in _DECODERS:
        parts.append(fields[begin:begin + 7])
        begin += 7
    return [*parts, fields[begin:] if begin else fields]


def _number(text: str) -> int:
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(text)
    return int(text)


def _flag(text: str) -> bool:
    return text.lower() == "true"


def _text(text: str) -> str | None:
    return None if text == _NULL else text


def _pub(fields: Sequence[str]) -> Pub:
    has_offset_id = len(fields) > 13
    return Pub(
        _number(fields[1]), _text(fields[2]), fields[3], fields[4], fields[5], _text(fields[6]),
        _text(fields[7]), _text(fields[8]), _number(fields[9]), _number(fields[10]),
        _number(fields[11]), _text(fields[12]) if has_offset_id else None,
        _flag(fields[13 if has_offset_id else 12]), _text(fields[14]) if len(fields) > 14 else None)


def _sub_before(fields: Sequence[str]) -> SubBefore:
    return SubBefore(
        _number(fields[1]), _text(fields[2]), fields[3], fields[4], fields[5], _number(fields[6]),
        _text(fields[7]), _text(fields[8]) if len(fields) > 8 else None)


def _sub_after(fields: Sequence[str]) -> SubAfter:
    is_long = len(fields) > 8
    return SubAfter(
        fields[1], fields[2], _number(fields[3]), _flag(fields[4]), _text(fields[5]),
        _number(fields[6]) if len(fields) > 6 else None, _number(fields[7]) if is_long else None,
        fields[8] if is_long else None)


def _end_transaction(fields: Sequence[str]) -> EndTransaction:
    return EndTransaction(
        _number(fields[1]), _text(fields[2]), fields[3], fields[4], fields[5], _text(fields[6]),
        _text(fields[7]), _text(fields[8]), _number(fields[9]), _text(fields[10]), fields[11],
        _flag(fields[12]))


def _recall(fields: Sequence[str]) -> Recall:
    return Recall(_number(fields[1]), _text(fields[2]), fields[3], fields[4], fields[5],
                  _flag(fields[6]))


_DECODERS: Final[dict[str, Callable[[Sequence[str]], TraceRecord]]] = {
    "Pub": _pub, "SubBefore": _sub_before, "SubAfter": _sub_after,
    "EndTransaction": _end_transaction, "Recall": _recall,
}


# --- writing


def _encode(record: TraceRecord) -> str:
    fields = [type(record).__name__, *[
        value if isinstance(value, str) else _written(value) for value in _values(record)]]
    text = FIELD_SEPARATOR.join(fields)
    if RECORD_SEPARATOR in text or text.count(FIELD_SEPARATOR) >= len(fields):
        text = FIELD_SEPARATOR.join([each.translate(_SEPARATORS) for each in fields])
    return text + RECORD_SEPARATOR


def _values(record: TraceRecord) -> tuple[object, ...]:
    """The fields behind the kind, in the order of 5.3.3."""
    match record:
        case Pub() | SubBefore():
            # All but the client's host.
            return record[:-1]
        case SubAfter():
            code = record.context_code or ContextCode.SUCCESS
            ending = ("",) if record.time_ms is None else record[-2:]
            return (*record[:5], code, *ending)
        case _:
            return record


def _written(value: object) -> str:
    """The text that Java writes for null."""
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return "true" if value else "false"
    assert isinstance(value, int)
    return str(int(value))
