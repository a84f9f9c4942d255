"""Header classes, and how a header is read from and written to extFields.

A header is a ``msgspec.Struct``. A field without a default is required. The wire name is the
camelCase of the attribute unless ``field(name=...)`` gives another. Reading is lenient in only one
way: a number or a boolean may be sent as text or as itself, because Java sends ``"4"`` and the C++
client sends ``4``. A number has the form that Java's parseInt and parseLong accept, an optional
sign and digits. Writing always sends texts, as Apache does.

Source: CommandCustomHeader, RemotingCommand.decodeCommandCustomHeader @5.3.3.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Final, TypeVar, cast

import msgspec

from twistmq.protocol.binary_header import (
    BOOLEAN,
    INT32,
    INT64,
    OTHER,
    TEXT,
    BinaryHeaderError,
    FieldPlan,
    parse_pairs,
    plain_values,
)
from twistmq.protocol.errors import HeaderError
from twistmq.protocol.frame import JSON
from twistmq.protocol.json_text import RequestTemplate, field_prefixes

__all__ = ["UNREADABLE", "CommandHeader", "EmptyHeader", "Int32", "Int64", "decode_fields",
           "ext_fields_of", "field_plan", "header_values", "read_ext_fields", "reading_class",
           "request_template"]

#: The ranges of a Java ``int`` and a Java ``long``.
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

#: The kind of each type for ``plain_values``.
_KINDS: dict[Any, int] = {
    kind_of: kind
    for plain, kind in ((str, TEXT), (Int32, INT32), (Int64, INT64), (bool, BOOLEAN))
    for kind_of in (plain, plain | None)
}


class CommandHeader(msgspec.Struct, rename="camel", gc=False):
    """Base of every request and response header."""

    #: Whether it is read so often that reading it in the same pass as its command pays off.
    is_hot: ClassVar[bool] = False


class EmptyHeader(CommandHeader):
    """The header of a request without fields."""


H = TypeVar("H", bound=CommandHeader)

#: The Go client writes null when there are no extFields.
_untyped: msgspec.json.Decoder[dict[str, Any] | None] = msgspec.json.Decoder(dict[str, Any] | None)
#: The form that nearly all clients send, in which every value is a text.
_texts: msgspec.json.Decoder[dict[str, str]] = msgspec.json.Decoder(dict[str, str])


#: The errors that invalid bytes raise; RecursionError for brackets nested a thousand deep.
UNREADABLE = (msgspec.DecodeError, BinaryHeaderError, UnicodeDecodeError, RecursionError)

#: A type to which no value belongs. In a union with it, msgspec takes ``1e3`` and ``1.0`` for
#: floats and refuses them; without it, msgspec accepts them as integers.
_NO_FLOAT: Final = Annotated[float, msgspec.Meta(ge=1, le=0)]
#: The type that one step reads for each declared type. Without None, ``"null"`` is not a null.
_READ_AS: Final[dict[Any, Any]] = {
    declared: plain | _NO_FLOAT for plain in (Int32, Int64) for declared in (plain, plain | None)}
#: An integer as Java reads it.
#: Differs from Apache: digits of other scripts do not count, as everywhere in this project.
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,4000}")

#: The decoder, plan and reading class of each header class, made when it is first read.
_decoders: dict[type[CommandHeader], msgspec.json.Decoder[Any]] = {}
_plans: dict[type[CommandHeader], FieldPlan | None] = {}
_reading_classes: dict[type[CommandHeader], type[CommandHeader]] = {}


def decode_fields(serialize_type: int, ext: bytes | msgspec.Raw, header_type: type[H]) -> H:
    """Read extFields as a header of ``header_type``.

    :param ext: the JSON object or the binary pairs as received; empty means no fields.
    :raises HeaderError: when a required field is missing or a value has the wrong type.
    """
    try:
        if serialize_type == JSON:
            decoder = _decoders.get(header_type)
            if decoder is None:
                decoder = _decoders[header_type] = msgspec.json.Decoder(
                    reading_class(header_type), strict=False)
            header: H = decoder.decode(ext or b"{}")
            header.__class__ = header_type
            return header
        plan = field_plan(header_type)
        values = None if plan is None else plain_values(bytes(ext), plan)
        if values is not None:
            return header_type(*values)
    except msgspec.ValidationError:
        pass
    except UNREADABLE as error:
        raise HeaderError(f"header of {header_type.__name__}: {error}") from None
    # Apache first reads every value as text, so it accepts null, and a number in a text field.
    fields: dict[str, Any] = dict(read_ext_fields(serialize_type, ext))
    for name in _integers(header_type):
        if name in fields:
            fields[name] = _integer(name, fields[name], header_type)
    try:
        return msgspec.convert(fields, header_type, strict=False)
    except msgspec.ValidationError as error:
        raise HeaderError(f"header of {header_type.__name__}: {error}") from None


def _integer(name: str, text: str, header_type: type[CommandHeader]) -> int:
    if _INTEGER.fullmatch(text) is None:
        raise HeaderError(
            f"header of {header_type.__name__}: `{name}` is {text[:40]!r}, not an integer")
    return int(text)


def reading_class(header_type: type[H]) -> type[H]:
    """Make the subclass of a header class that can be read in one step.

    Its integers accept the forms that Java accepts, and do not accept null. A header that it
    refuses is read a second time as text, and that result counts. A header that it reads gets the
    original class as its ``__class__``, because both classes have the same fields in the same
    places.
    """
    reading_class = _reading_classes.get(header_type)
    if reading_class is None:
        reading_class = _reading_classes[header_type] = _new_reading_class(header_type)
    return cast(type[H], reading_class)


def _new_reading_class(header_type: type[CommandHeader]) -> type[CommandHeader]:
    fields: list[tuple[str, Any, Any]] = []
    # All fields are named again, because only that keeps their order.
    for field in msgspec.structs.fields(header_type):
        given: dict[str, Any] = {
            "default": field.default, "default_factory": field.default_factory}
        fields.append((field.name, _READ_AS.get(field.type, field.type),
                       msgspec.field(name=field.encode_name, **given)))
    new_class: Any = msgspec.defstruct(
             header_type.__name__, fields, bases=(header_type,), module=header_type.__module__,
             kw_only=field_plan(header_type) is None, gc=False)
    return cast(type[CommandHeader], new_class)


@cache
def _integers(header_type: type[CommandHeader]) -> tuple[str, ...]:
    """The wire names of all integers of a header class."""
    return tuple(field.encode_name for field in msgspec.structs.fields(header_type)
                 if _KINDS.get(field.type) in (INT32, INT64))


def field_plan(header_type: type[CommandHeader]) -> FieldPlan | None:
    """The facts about a header class that the fast way of reading binary pairs needs.

    :returns: None for a class that has keyword-only fields, or more than fields and their defaults.
    """
    if header_type not in _plans:
        _plans[header_type] = _new_plan(header_type)
    return _plans[header_type]


def _new_plan(header_type: type[CommandHeader]) -> FieldPlan | None:
    parameters = inspect.signature(header_type).parameters.values()
    if any(parameter.kind is parameter.KEYWORD_ONLY for parameter in parameters):
        return None
    fields = msgspec.structs.fields(header_type)
    if hasattr(header_type, "__post_init__") or any(
            field.default_factory is not msgspec.NODEFAULT for field in fields):
        return None
    return FieldPlan(
        [field.encode_name for field in fields],
        [_KINDS.get(field.type, OTHER) for field in fields],
        [None if field.required else field.default for field in fields],
        [at for at, field in enumerate(fields) if field.required],
    )


def read_ext_fields(serialize_type: int, ext: bytes | msgspec.Raw) -> dict[str, str]:
    """Read extFields without a header class; every value is the text that was signed.

    :raises HeaderError: when they are not name-value pairs.
    """
    if serialize_type != JSON:
        try:
            return parse_pairs(bytes(ext))
        except BinaryHeaderError as error:
            raise HeaderError(str(error)) from None
    try:
        return _texts.decode(ext or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # They are read again, to accept numbers and the like, or to report the error.
        pass
    try:
        fields = _untyped.decode(ext) or {}
        return {name: _as_text(value) for name, value in fields.items() if value is not None}
    except UNREADABLE as error:
        raise HeaderError(f"extFields: {error}") from None


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    return msgspec.json.encode(value).decode()


def ext_fields_of(header: CommandHeader) -> dict[str, str]:
    """Write a header as extFields: wire names to texts, without the fields that are None."""
    fields: dict[str, str] = {}
    for attribute, name in _names(type(header)):
        value = getattr(header, attribute)
        if value is not None:
            fields[name] = _as_text(value)
    return fields


@cache
def _names(header_type: type[CommandHeader]) -> tuple[tuple[str, str], ...]:
    return tuple((f.name, f.encode_name) for f in msgspec.structs.fields(header_type))


@cache
def _value_getter(
    header_type: type[CommandHeader],
) -> tuple[list[str], Callable[[CommandHeader], tuple[object, ...]]]:
    names = _names(header_type)
    attributes = [attribute for attribute, _ in names]
    # attrgetter needs at least one name, and returns a bare value for a single one.
    getter = attrgetter(*attributes) if len(attributes) > 1 else lambda header: tuple(
        [getattr(header, attribute) for attribute in attributes])
    return field_prefixes([name for _, name in names]), getter


def header_values(header: CommandHeader) -> tuple[list[str], tuple[object, ...]]:
    """A header's fields in the form of ``json_text``: prefixes and values, in the same order."""
    prefixes, getter = _value_getter(type(header))
    return prefixes, getter(header)


def request_template(code: int, header: CommandHeader, varying: Sequence[str]) -> RequestTemplate:
    """A template of requests whose headers differ only in some fields.

    :param header: a header with the values of the constant fields.
    :param varying: the attributes that vary, in the order of the header's fields.
    """
    prefixes, values = header_values(header)
    names = [attribute for attribute, _ in _names(type(header))]
    places = [names.index(name) for name in varying]
    assert places == sorted(places), varying
    return RequestTemplate(code, prefixes, values, places)
