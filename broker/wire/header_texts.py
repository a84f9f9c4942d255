"""The extFields of a signed request, read once: as the texts that were signed, and as its header.

Whoever checks a signature needs every value as it was sent, the handler needs a header: to read
the same bytes for each takes half as long again. Clients send the same names with each request of
a kind; a *shape* is such names, learned when a request with them passed, and the next ones are read
without looking names up. It is done for the headers that are read most; whatever is unusual is
read as any other header is.

Source: RemotingCommand, AclClientRPCHook @5.3.3.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from operator import itemgetter
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import astuple

from twistmq.broker.errors import HeaderError
from twistmq.broker.wire.binary_header import FieldPlan, plain_values
from twistmq.broker.wire.frame import JSON
from twistmq.broker.wire.header import UNREADABLE, CommandHeader, field_plan, read_ext_fields
from twistmq.broker.wire.signature import ACCESS_KEY, SIGNATURE, UNIQUE_KEY_QUERY, java_order

__all__ = ["HeaderTexts", "learn_shape", "read_header_texts"]

#: Shapes that are learned of one header class; a client has one or two.
_SHAPES_MAX: Final = 32
#: Names of a shape, their characters, and what they are made of.
_NAMES_MAX: Final = 32
_NAMES_LENGTH_MAX: Final = 512
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]+")

H = TypeVar("H", bound=CommandHeader)
_Names = tuple[str, ...]
_Values = tuple[str, ...]


class _Shape:
    """How extFields of some names are read.

    :param names: in the order in which their values are signed, the signature behind them.
    :param own: those of the header class, in its order.
    :param pairs: of ``field_plan``.
    """

    def __init__(self, names: _Names, own: _Names, pairs: FieldPlan) -> None:
        self.positions: dict[str, int] = {name: at for at, name in enumerate(names)}
        self.access_key: int = self.positions[ACCESS_KEY]
        self.pairs = pairs.as_texts(names)
        self.decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(msgspec.defstruct(
            "Texts", [(f"field_{at}", str, msgspec.field(name=name))
                      for at, name in enumerate(names)], forbid_unknown_fields=True, gc=False))
        missing = [name for name in own if name not in self.positions]
        #: What the header's fields are that are not sent; None also where one has to be.
        self.defaults = tuple([pairs.defaults[pairs.positions[name]] for name in missing])
        #: Picks the header's values, of those of all names and the defaults behind them.
        self.own: Callable[[tuple[object, ...]], tuple[object, ...]] = itemgetter(*[
            self.positions[name] if name in self.positions
            else len(names) + missing.index(name) for name in own])


class HeaderTexts(msgspec.Struct, gc=False):
    """The extFields of a signed request as they were sent."""

    values: _Values
    shape: _Shape

    def get(self, name: str) -> str | None:
        """A field's value; None when it was not sent."""
        at = self.shape.positions.get(name)
        return None if at is None else self.values[at]

    def signer(self) -> tuple[str, str]:
        """Access key and signature."""
        return self.values[self.shape.access_key], self.values[-1]

    def signed_text(self) -> str:
        """What is signed of them: the values but the signature, by name, in one text."""
        return "".join(self.values[:-1])


class _Shapes:
    """The shapes in which a header class comes."""

    def __init__(self, header_type: type[CommandHeader], pairs: FieldPlan) -> None:
        self._pairs = pairs
        self._own = tuple([field.encode_name for field in msgspec.structs.fields(header_type)])
        #: By names in the order in which they came.
        self.known: dict[_Names, _Shape] = {}
        #: The last one that came: most likely the next one is the same.
        self.last: _Shape | None = None
        #: Made of its fields' values in order. It is a header of the class for whoever asks it
        #: for fields; it is not equal to one that was made otherwise.
        self.header: Any = msgspec.defstruct(
            header_type.__name__, [], bases=(header_type,), array_like=True, gc=False,
            module=header_type.__module__)

    def learn(self, given: _Names) -> None:
        """Take a shape for a usual one, if its names can be such."""
        if given in self.known or len(self.known) >= _SHAPES_MAX or (
            ACCESS_KEY not in given or SIGNATURE not in given or len(given) > _NAMES_MAX
            # Whether it is signed depends on the client's version.
            or UNIQUE_KEY_QUERY in given
            or sum(map(len, given)) > _NAMES_LENGTH_MAX or not all(map(_NAME.fullmatch, given))
        ):
            return
        names = (*sorted([name for name in given if name != SIGNATURE], key=java_order), SIGNATURE)
        self.known[given] = _Shape(names, self._own, self._pairs)


#: By header class, made when the first shape of one is learned.
_shapes: dict[type[CommandHeader], _Shapes] = {}


def read_header_texts(
    serialize_type: int, ext: msgspec.Raw, header_type: type[H]
) -> tuple[H, HeaderTexts] | None:
    """Read extFields as a header and as texts.

    :returns: None for whatever is unusual: :func:`decode_fields` takes it, or says what is wrong.
    """
    shapes = _shapes.get(header_type)
    if shapes is None:
        return None
    shape = shapes.last
    values = None if shape is None else _values(serialize_type, ext, shape)
    if values is None:
        try:
            shape = shapes.known.get(tuple(read_ext_fields(serialize_type, ext)))
        except HeaderError:
            return None
        values = None if shape is None else _values(serialize_type, ext, shape)
        if values is None:
            return None
        shapes.last = shape
    assert shape is not None
    try:
        header: H = msgspec.convert(
            shape.own((*values, *shape.defaults)), shapes.header, strict=False)
    except msgspec.ValidationError:
        return None
    return header, HeaderTexts(values, shape)


def learn_shape(
    serialize_type: int, ext: msgspec.Raw, header_type: type[CommandHeader]
) -> None:
    """Read extFields of these names at once from now on.

    To be called for requests that access checks let pass: what others send is not remembered.
    """
    if not header_type.is_hot or SIGNATURE.encode() not in bytes(ext):
        return
    shapes = _shapes.get(header_type)
    if shapes is None:
        pairs = field_plan(header_type)
        if pairs is None:
            return
        shapes = _shapes[header_type] = _Shapes(header_type, pairs)
    try:
        shapes.learn(tuple(read_ext_fields(serialize_type, ext)))
    except HeaderError:
        # A header may be read over what cannot be: who passed by address has not been asked.
        return


def _values(serialize_type: int, ext: msgspec.Raw, shape: _Shape) -> _Values | None:
    """The values of a shape; None when the fields have another one, or a value is no text."""
    try:
        if serialize_type == JSON:
            values: _Values = astuple(shape.decoder.decode(ext))
            return values
        pairs = plain_values(bytes(ext), shape.pairs)
    except UNREADABLE:
        return None
    return None if pairs is None else tuple(pairs)  # type: ignore[arg-type]
