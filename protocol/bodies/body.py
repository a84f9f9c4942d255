"""The base of body classes: a Struct that reads and writes itself in Apache's JSON dialect.

The defaults are the same as in the Java classes, so a client that omits a field means the same
value. A null means that the value was not given. Unknown fields are ignored. Python tuples and sets
stand for Java sets, and lists stand for Java lists; config files format them differently.

Source: RemotingSerializable @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import cache
from typing import Any, Final, Self, get_args, get_origin, get_type_hints

import msgspec

from twistmq.protocol import json_dialect
from twistmq.protocol.errors import WireError
from twistmq.protocol.header import Int32

__all__ = ["DIALECT_SIZE_MAX", "ODD_SIZE_MAX", "Body", "ConsumeFromWhere", "ConsumeType",
           "MessageModel", "MessageQueue", "TopicFilterType"]

#: The maximum size of a body from a peer that is not plain JSON, as it should be, bytes: one with
#: bare keys, or with null or numbers in the wrong places. One MiB blocks the reactor for
#: up to 0.2 s.
DIALECT_SIZE_MAX: Final = 256 * 1024
#: The maximum size of a body in a form that Apache reads but no client writes, for example with
#: single quotes, bytes. Each MiB takes 1 s.
ODD_SIZE_MAX: Final = 32 * 1024
#: The number of characters of a key that an error displays.
_SHOWN_MAX: Final = 100
#: What reading a body that does not fit its class raises. The oldest release of msgspec that can be
#: used raises SystemError for an integer beyond the range of a float.
_FAULTS: Final = (
    json_dialect.JsonDialectError, msgspec.MsgspecError, RecursionError, SystemError)


class ConsumeType(StrEnum):
    """How a consumer receives messages."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"


class MessageModel(StrEnum):
    """Whether every member of a group receives all messages, or the members share them."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(StrEnum):
    """Where a group without offsets starts; the three values in the middle are no longer used."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = (
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    )
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class TopicFilterType(StrEnum):
    """How many tags the messages of a topic have."""

    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"


#: The C++ client sends these as numbers, which fastjson interprets as ordinals of the Java enum.
_ENUMS: Final[dict[str, list[StrEnum]]] = {
    "consumeType": list(ConsumeType),
    "messageModel": list(MessageModel),
    "consumeFromWhere": list(ConsumeFromWhere),
    "topicFilterType": list(TopicFilterType),
}


class MessageQueue(msgspec.Struct, rename="camel", frozen=True, order=True, gc=False):
    """One queue of one topic on one broker.

    :param topic: the name of the topic.
    :param broker_name: the name of the broker, which its master and its slaves share.
    :param queue_id: the number of the queue at this broker, from 0.
    """

    topic: str
    broker_name: str
    queue_id: Int32 = 0


class Body(msgspec.Struct, rename="camel", gc=False):
    """The base class of all bodies."""

    def encode(self) -> bytes:
        """Write the body as Apache does: one line, bare keys."""
        return json_dialect.encode(self, quote_int_keys=False)

    def encode_standard(self) -> bytes:
        """Write the body as plain JSON, for clients that cannot read the dialect."""
        return json_dialect.encode(self, quote_int_keys=True)

    def encode_pretty(self) -> bytes:
        """Write the body in the form of a config file."""
        return json_dialect.encode_pretty(self)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read a body that a peer sent.

        :raises WireError: when the bytes are not JSON, a value has the wrong type, or a body that
            is not plain JSON is larger than DIALECT_SIZE_MAX or ODD_SIZE_MAX.
        """
        return cls._decode(data, DIALECT_SIZE_MAX, ODD_SIZE_MAX)

    @classmethod
    def decode_reply(cls, data: bytes) -> Self:
        """Read a body of any size; only tools that may block use it.

        :raises WireError: when the bytes are not JSON, or a value has the wrong type.
        """
        return cls._decode(data, len(data), len(data))

    @classmethod
    def decode_saved(cls, data: bytes) -> Self:
        """Read a saved body, however large it is.

        :raises WireError: when the bytes are not JSON, a value has the wrong type, or a table or
            one of its rows is null: the content is lost, and saving would make that permanent.
        """
        return cls._decode(data, len(data), len(data), _require_rows)

    @classmethod
    def decode_rows(cls, data: bytes) -> tuple[Self, list[str]]:
        """Read the readable parts of a saved body that :meth:`decode_saved` refuses.

        A row of a table is left out if it contains a wrong value. If the row itself contains a
        table, only the wrong rows of that table are left out.

        :returns: the body, and for each row that was left out its position and the reason.
        :raises WireError: when the bytes are not JSON, a table or a row is null, or a value outside
            the rows is wrong.
        """
        faults: list[str] = []
        try:
            value = _read(data, len(data))
            _require_rows(value)
            value = _given(value)
            types = get_type_hints(cls, include_extras=True)
            for field in msgspec.structs.fields(cls):
                row_types = _row_types(types[field.name])
                if row_types is not None and isinstance(value, dict):
                    rows = value.get(field.encode_name)
                    if isinstance(rows, dict):
                        value[field.encode_name] = _whole_rows(
                            rows, row_types, field.encode_name, faults)
            return msgspec.convert(value, cls, strict=False), faults
        except _FAULTS as error:
            raise WireError(f"body of {cls.__name__}: {error}") from None

    @classmethod
    def prepare(cls) -> None:
        """Make the decoder of this type now.

        The first body would make it otherwise, which takes some milliseconds.
        """
        _decoder(cls)

    @classmethod
    def _decode(
        cls, data: bytes, dialect_size_max: int, odd_size_max: int,
        check: Callable[[Any], None] = lambda _: None,
    ) -> Self:
        reason = "too long for a body that is not plain JSON"
        try:
            decoder = _decoder(cls)
            if decoder is not None:
                body: Self = decoder.decode(data)
                return body
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            reason = str(error)
        if len(data) > dialect_size_max:
            raise WireError(f"body of {cls.__name__}, {len(data)} bytes: {reason}")
        try:
            value = _read(data, odd_size_max)
            check(value)
            return msgspec.convert(_given(value), cls, strict=False)
        except _FAULTS as error:
            raise WireError(f"body of {cls.__name__}: {error}") from None


def _read(data: bytes, odd_size_max: int) -> Any:
    """Read JSON or the dialect of it.

    :raises json_dialect.JsonDialectError: when the bytes are neither, or are larger than
        ``odd_size_max`` and use liberties that Apache does not write.
    """
    error: Exception | None = None
    for form in (bytes, json_dialect.quote_keys):
        try:
            return msgspec.json.decode(form(data))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as reason:
            error = reason
    if len(data) > odd_size_max:
        raise json_dialect.JsonDialectError(f"{len(data)} bytes of what is not JSON: {error}")
    return json_dialect.decode(data)


def _require_rows(value: Any) -> None:
    """:raises WireError: when a member of a saved body, or of such a member, is null."""
    members = value.items() if isinstance(value, dict) else ()
    for name, member in members:
        rows = member.items() if isinstance(member, dict) else ()
        lost = [name] if member is None else [key for key, row in rows if row is None]
        if lost:
            raise WireError(f"{lost[0]} is null")


def _row_types(field_type: Any) -> tuple[Any, Any] | None:
    """The key and value types of a table, even if the table may be None; None without a table."""
    for each in (field_type, *get_args(field_type)):
        if get_origin(each) is dict:
            key_type, row_type = get_args(each)
            return key_type, row_type
    return None


def _whole_rows(
    rows: dict[Any, Any], types: tuple[Any, Any], path: str, faults: list[str]
) -> dict[Any, Any]:
    """The rows of a table that can be read; the faults of all other rows go to ``faults``."""
    key_type, row_type = types
    inner = _row_types(row_type) if get_origin(row_type) is dict else None
    kept = {}
    for key, row in rows.items():
        here = f"{path}[{str(key)[:_SHOWN_MAX]!r}]"
        try:
            msgspec.convert(key, key_type, strict=False)
            if inner is not None and isinstance(row, dict):
                row = _whole_rows(row, inner, here, faults)
            msgspec.convert(row, row_type, strict=False)
        except msgspec.MsgspecError as error:
            faults.append(f"{here}: {error}")
        else:
            kept[key] = row
    return kept


@cache
def _decoder(body_type: type[Body]) -> msgspec.json.Decoder[Any] | None:
    """Find the fast decoder; None for a body with maps that plain JSON cannot represent."""
    try:
        return msgspec.json.Decoder(body_type, strict=False)
    except TypeError:
        return None


def _given(value: Any, name: Any = None) -> Any:
    """Drop nulls, and convert queues as keys and numbered enums to the forms their types need.

    :param name: the key of ``value``.
    """
    if isinstance(value, dict):
        members = {_key(key): _given(member, key) for key, member in value.items()}
        return {key: member for key, member in members.items() if member is not None}
    if isinstance(value, list):
        return [_given(member) for member in value if member is not None]
    if name in _ENUMS:
        members_of = _ENUMS[name]
        if value == "":
            return None
        if isinstance(value, int) and 0 <= value < len(members_of):
            return members_of[value].value
    return value


def _key(key: Any) -> Any:
    if isinstance(key, str):
        key = json_dialect.decode_key(key)
    if isinstance(key, json_dialect.ObjectKey):
        return msgspec.convert(dict(key.fields), MessageQueue, strict=False)
    return key
