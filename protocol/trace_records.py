"""The records of message traces, as clients write them into the trace topic and read them back.

The body of a message of the trace topic is UTF-8 text that consists of records. Each record ends
with 0x02, its fields are separated by 0x01, and the first field is the kind. Java writes an absent
text as ``null``, which is None in this module. These forms are read and written; the number of
fields includes the kind:

=============== ===== ==========================================================================
kind            count clients
=============== ===== ==========================================================================
Pub             13    before 4.4: no offset message id
Pub             14    Java 4.4 to 4.7 and from 4.9.0 on
Pub             15    Java 4.8, Go: the client's host at the end
SubBefore       8     Java 4.4 to 4.7 and from 4.9.0 on
SubBefore       9     Java 4.8, Go: the client's host at the end
SubAfter        6     before 4.4: no context code
SubAfter        7, 8  Java 4.4 to 4.7, 4.9.1 and, from 4.9.5 on, with the access channel CLOUD
SubAfter        9     other clients: with the time and the group
EndTransaction  13    Java from 4.9.0 on
Recall          7     Java from 5.3.2 on
=============== ===== ==========================================================================

From 4.9.5 to 5.3.0 the access channel CLOUD omits the 0x02 after SubAfter, so that the next record
looks like further fields; that form is read as well. A record with more fields than the table lists
is read as the longest form. Records are written in the form of 5.3.3.

This module is also for other programs, for example a pipeline: names and meanings stay stable. It
does no input or output.

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

#: The separators between fields and after each record.
FIELD_SEPARATOR: Final = "\x01"
RECORD_SEPARATOR: Final = "\x02"
KEY_SEPARATOR: Final = " "
#: The text that Java writes for an absent text.
_NULL: Final = "null"
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}")
#: A separator in a client's text would read as more fields; Java's encoder does not prevent that.
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
    """A message or a batch was sent; the ids of a batch are joined by commas."""

    #: When the send began, Unix ms.
    time_ms: int
    region: str | None
    #: The producer group.
    group: str
    topic: str
    #: The client's id of the message (UNIQ_KEY).
    message_id: str
    tags: str | None
    #: The keys, separated by spaces.
    keys: str | None
    #: The address "ip:port" of the broker that stored the message.
    store_host: str | None
    #: The length of the body as sent, bytes.
    body_length: int
    #: How long the send took, ms.
    cost_ms: int
    #: A MessageType, or the ordinal of a newer type.
    message_type: int
    #: The id that contains where the message is stored; None in the oldest form.
    offset_message_id: str | None
    success: bool
    #: The client's ip in the forms that have it; otherwise see the born host of the trace message.
    client_host: str | None = None


class SubBefore(NamedTuple):
    """A message is about to be passed to a consumer's listener."""

    #: The time, Unix ms.
    time_ms: int
    region: str | None
    #: The consumer group.
    group: str
    #: Connects it with its SubAfter; the same for all messages of one call of the listener.
    request_id: str
    message_id: str
    #: How often the message was tried before.
    retry_times: int
    keys: str | None
    client_host: str | None = None


class SubAfter(NamedTuple):
    """A consumer has finished a message."""

    request_id: str
    message_id: str
    #: The duration, ms: the time of a listener call divided by the number of its messages.
    cost_ms: int
    success: bool
    keys: str | None
    #: A ContextCode, or the ordinal of a newer code; None in the oldest form.
    context_code: int | None
    #: When it ended, Unix ms, and the consumer group; None in the short forms.
    time_ms: int | None = None
    group: str | None = None


class EndTransaction(NamedTuple):
    """A producer ended a transaction."""

    #: The time, Unix ms.
    time_ms: int
    region: str | None
    group: str
    topic: str
    message_id: str
    tags: str | None
    keys: str | None
    store_host: str | None
    #: A MessageType, or the ordinal of a newer type.
    message_type: int
    transaction_id: str | None
    #: COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW, in Java's spelling.
    state: str
    #: Whether it is the result of a check by the broker.
    from_check: bool


class Recall(NamedTuple):
    """A producer recalled a timed message."""

    #: The time, Unix ms.
    time_ms: int
    region: str | None
    group: str
    topic: str
    message_id: str
    success: bool


TraceRecord: TypeAlias = Pub | SubBefore | SubAfter | EndTransaction | Recall


@dataclass(frozen=True, slots=True)
class DecodedRecords:
    """The content of a trace message's body."""

    records: list[TraceRecord]
    #: The number of records that were skipped: records that have an unknown kind, are too short, or
    #: contain a number that is not valid.
    bad_count: int


def decode_records(body: bytes) -> DecodedRecords:
    """Read the body of a message of the trace topic; no bytes cause an error."""
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
    """Write records one after the other, as a client 5.3.3 does.

    A SubAfter without a time is written in the form of the access channel CLOUD. Separators in
    texts are replaced by spaces.
    """
    return "".join([_encode(record) for record in records]).encode("utf-8", "replace")


def record_keys(record: TraceRecord) -> list[str]:
    """The keys of a trace message with this record: the id of the message, then its keys."""
    keys = [record.message_id]
    if not isinstance(record, Recall) and record.keys:
        keys += [key for key in record.keys.split(KEY_SEPARATOR) if key]
    return keys


# --- reading


def _apart(fields: list[str]) -> list[list[str]]:
    """Split a SubAfter that was not closed from the records that follow it."""
    parts: list[list[str]] = []
    begin, count = 0, len(fields)
    # An index is used, because copying the remaining fields for each part takes quadratic time.
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
    """The fields after the kind, in the order of 5.3.3."""
    match record:
        case Pub() | SubBefore():
            # All fields except the client's host.
            return record[:-1]
        case SubAfter():
            code = record.context_code or ContextCode.SUCCESS
            ending = ("",) if record.time_ms is None else record[-2:]
            return (*record[:5], code, *ending)
        case _:
            return record


def _written(value: object) -> str:
    """The text of a value as Java writes it; a missing one is null."""
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return "true" if value else "false"
    assert isinstance(value, int)
    return str(int(value))
