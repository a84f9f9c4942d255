"""Reads the extFields of a signed request once, both as the signed texts and as its header.

The broker needs the extFields of a signed request in two forms. The check of the signature needs
every value exactly as it was sent, in the order of the names, and the handler needs a header with
typed values. Reading the same bytes once for each form takes half as long again. However, a client
sends the same set of names in each request of a kind. This module calls such a set a *shape*. After
the first request with a shape has passed the access checks, the shape is learned: its names are
sorted once, and a decoder is built that expects exactly these names. Later requests with the shape
are read in one pass, without a dict and without sorting. Only requests that passed can teach a
shape, so that a stranger cannot fill the table. Shapes are used only for the headers that are read
most often. A request that is unusual in any way is read like any other header.

Source: RemotingCommand, AclClientRPCHook @5.3.3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final

import msgspec
from msgspec import convert
from msgspec.structs import astuple

from twistmq.protocol.binary_header import FieldPlan, plain_values
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import HeaderError
from twistmq.protocol.header import UNREADABLE, CommandHeader, field_plan, reading_class
from twistmq.protocol.one_pass import command_decoder, decode_at_once
from twistmq.protocol.signature import ACCESS_KEY, SIGNATURE, UNIQUE_KEY_QUERY, Signer

__all__ = ["FieldSetDecoders", "HeaderTexts", "ReadRequest", "Shape", "ShapeTexts", "shapes_of"]

#: The maximum number of shapes that are learned for one code; a client has one or two.
_SHAPES_MAX: Final = 32
#: Limits on a shape: the number of names, their total length, and the characters in them.
_NAMES_MAX: Final = 32
_NAMES_LENGTH_MAX: Final = 512
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]+")
#: The field names of SEND_MESSAGE_V2.
_LETTERS: Final = "abcdefghijklmn"

_Names = tuple[str, ...]
_Values = tuple[str, ...]


class Shape:
    """Reads extFields that have a certain set of names.

    :param code: the code of the requests.
    :param names: in the order in which their values are signed, followed by the signature.
    :param header_type: the header class that is made from the values.
    :param pairs: the ``field_plan`` of the header class.
    """

    def __init__(
        self, code: int, names: _Names, header_type: type[CommandHeader], pairs: FieldPlan
    ) -> None:
        self.positions: dict[str, int] = {name: at for at, name in enumerate(names)}
        #: The positions of the names a, b, c and so on, and -1 for a name that is missing.
        self.letters: list[int] = [self.positions.get(letter, -1) for letter in _LETTERS]
        self._pairs: FieldPlan = pairs.as_texts(names)
        #: Reads a JSON header whose extFields are texts with these names.
        self._decoder: Any = command_decoder(code, msgspec.defstruct(
            "Texts", [(f"field_{at}", str, msgspec.field(name=name))
                      for at, name in enumerate(names)], forbid_unknown_fields=True, gc=False))
        sent = [field.encode_name for field in msgspec.structs.fields(header_type)
                if field.encode_name in self.positions]
        #: Picks the values that belong to the header.
        self._own: Callable[[_Values], _Values] = itemgetter(
            *[self.positions[name] for name in sent])
        self._header_type: Any = header_type
        self._reading_class: Any = _array_like(reading_class(header_type), sent)

    def read_json_texts(self, data: bytes) -> tuple[Any, ShapeTexts] | None:
        """Read a JSON header but leave its fields as texts; None as for ``read_json``."""
        try:
            command = self._decoder.decode(data)
        except UNREADABLE:
            return None
        return command, ShapeTexts(astuple(command.ext_fields), self)

    def read_json(self, data: bytes, body: bytes) -> ReadRequest | None:
        """Read a frame's JSON header; None if it has another shape or a value does not fit."""
        try:
            command, texts = decode_at_once(self._decoder, data, body)
            values: _Values = astuple(texts)
            header = convert(self._own(values), self._reading_class, strict=False)
            header.__class__ = self._header_type
        except UNREADABLE:
            return None
        return command, header, ShapeTexts(values, self)

    def read_binary(self, ext: bytes) -> tuple[Any, HeaderTexts] | None:
        """Read binary extFields; None as for ``read_json``."""
        try:
            pairs = plain_values(ext, self._pairs)
            if pairs is None:
                return None
            values: _Values = tuple(pairs)  # type: ignore[arg-type]
            header = convert(self._own(values), self._reading_class, strict=False)
            header.__class__ = self._header_type
        except UNREADABLE:
            return None
        return header, ShapeTexts(values, self)


def _array_like(header_type: type[CommandHeader], sent: Sequence[str]) -> Any:
    """A header class that can be made from an array of the fields that are sent."""
    # Keyword-only fields come last.
    others: list[Any] = [
        (field.name, field.type, field.default) for field in msgspec.structs.fields(header_type)
        if field.encode_name not in sent]
    return msgspec.defstruct(
        header_type.__name__, others, bases=(header_type,), module=header_type.__module__,
        array_like=True, kw_only=True, gc=False)


class HeaderTexts:
    """The extFields of a signed request as they were sent."""

    __slots__ = ()

    def get(self, name: str) -> str | None:
        """A field's value; None when it was not sent."""
        raise NotImplementedError

    def are_signed_by(self, signer: Signer, body: bytes) -> bool:
        """Whether the signer has signed these fields together with a body."""
        raise NotImplementedError


class ShapeTexts(HeaderTexts):
    """The extFields of a request with the names of a shape."""

    __slots__ = ("shape", "values")

    def __init__(self, values: _Values, shape: Shape) -> None:
        self.values: _Values = values
        self.shape: Shape = shape

    def get(self, name: str) -> str | None:
        at = self.shape.positions.get(name)
        return None if at is None else self.values[at]

    def are_signed_by(self, signer: Signer, body: bytes) -> bool:
        content = "".join(self.values[:-1]).encode("utf-8", "replace") + body
        return signer.has_signed_content(self.values[-1], content)


#: A command, its header if it was read in the same pass, and the signed texts if they were kept.
ReadRequest = tuple[RemotingCommand, Any, HeaderTexts | None]


class FieldSetDecoders:
    """The shapes in which requests of a code arrive."""

    def __init__(self, code: int, header_type: type[CommandHeader], pairs: FieldPlan) -> None:
        self._code = code
        self._pairs = pairs
        self._header_type = header_type
        #: Names that every request of this code must have to pass.
        self._required = frozenset({ACCESS_KEY, SIGNATURE, *[
            field.encode_name for field in msgspec.structs.fields(header_type) if field.required]})
        #: The shapes by their names. Shapes are never dropped: otherwise a client that passes the
        #: checks could make the broker build new ones forever.
        self._shapes: dict[frozenset[str], Shape] = {}
        #: The shape of the last request; most likely the next request has the same one.
        self.last: Shape | None = None

    def other_shape(self, command: RemotingCommand) -> Shape | None:
        """The shape of a command that the last shape could not read; None if it is not known."""
        try:
            shape = self._shapes.get(frozenset(command.fields()))
        except HeaderError:
            return None
        if shape is None or shape is self.last:
            return None
        self.last = shape
        return shape

    def learn(self, command: RemotingCommand) -> None:
        """Learn the shape of a command, if its names qualify."""
        try:
            if SIGNATURE.encode() not in bytes(command.raw_fields()):
                return
            given = frozenset(command.fields())
        except HeaderError:
            # A header may be accepted although it is unreadable: clients that pass by their address
            # have not been asked for a signature.
            return
        if given in self._shapes or len(self._shapes) >= _SHAPES_MAX or (
            not self._required.issubset(given) or len(given) > _NAMES_MAX
            # The client's version determines whether this field is signed.
            or UNIQUE_KEY_QUERY in given
            or sum(map(len, given)) > _NAMES_LENGTH_MAX or not all(map(_NAME.fullmatch, given))
        ):
            return
        names = (*sorted(given - {SIGNATURE}), SIGNATURE)
        self.last = self._shapes[given] = Shape(
            self._code, names, self._header_type, self._pairs)


def shapes_of(code: int, header_type: type[CommandHeader]) -> FieldSetDecoders | None:
    """The object that learns the shapes of requests with a code; None if they are not learned."""
    pairs = field_plan(header_type) if header_type.is_hot else None
    # With fewer fields, itemgetter might get one name or none and would not return a tuple.
    if pairs is None or len(pairs.required) < 2:
        return None
    return FieldSetDecoders(code, header_type, pairs)
