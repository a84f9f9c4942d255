"""The extFields of a signed request, read once: as the texts that were signed, and as its header.

Whoever checks a signature needs every value as it was sent, the handler needs a header: to read
the same bytes for each takes half as long again. Clients send the same names with each request of
a kind; a *shape* is such a set of names, learned when it is first met, and requests of it are read
without looking names up. It is done for the headers that are read most; whatever is unusual is
read as any other header is.

Source: RemotingCommand, AclClientRPCHook @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from operator import itemgetter
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import astuple

from twistmq.broker.errors import HeaderError
from twistmq.broker.wire.binary_header import FieldPlan, plain_values
from twistmq.broker.wire.frame import JSON
from twistmq.broker.wire.header import UNREADABLE, CommandHeader, field_plan, read_ext_fields
from twistmq.broker.wire.signature import ACCESS_KEY, SIGNATURE, UNIQUE_KEY_QUERY, java_order

__all__ = ["HeaderTexts", "read_header_texts"]

#: Shapes that are learned of one header class; a client has one or two.
_SHAPES_MAX: Final = 32
#: Names of a shape, and their characters: clients add a few to those of the header.
_NAMES_MAX: Final = 32
_NAMES_LENGTH_MAX: Final = 512

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
        #: Picks the header's values, of those of all names and a None behind them.
        self.own: Callable[[tuple[str | None, ...]], tuple[str | None, ...]] = itemgetter(
            *[self.positions.get(name, len(names)) for name in own])


class HeaderTexts(msgspec.Struct, gc=False):
    """The extFields of a signed request as they were sent."""

    values: _Values
    shape: _Shape

    def get(self, name: str) -> str | None:
        """A field's value; None when it was not sent."""
        at = self.shape.positions.get(name)
        return None if at is None else self.values[at]

    def signer(self) -> tuple[str, str, str]:
        """Access key, signature, and what is signed: the other values, by name, in one text."""
        values = self.values
        return values[self.shape.access_key], values[-1], "".join(values[:-1])


class _Shapes:
    """The shapes in which a header class comes."""

    def __init__(self, header_type: type[CommandHeader]) -> None:
        pairs = field_plan(header_type)
        assert pairs is not None, f"{header_type.__name__} is read often and has no short way"
        self._pairs = pairs
        self._own = tuple([field.encode_name for field in msgspec.structs.fields(header_type)])
        self._known: dict[_Names, _Shape] = {}
        #: The last one that came: most likely the next one is the same.
        self.last: _Shape | None = None
        #: Made of its fields' values in order.
        self.header: Any = msgspec.defstruct(
            header_type.__name__, [], bases=(header_type,), array_like=True, gc=False,
            module=header_type.__module__)

    def find(self, given: Collection[str]) -> _Shape | None:
        """The shape of some names, learned when it is new; None when they are no usual ones."""
        if (ACCESS_KEY not in given or SIGNATURE not in given
                # Whether it is signed depends on the client's version.
                or UNIQUE_KEY_QUERY in given
                or len(given) > _NAMES_MAX or sum(map(len, given)) > _NAMES_LENGTH_MAX):
            return None
        names = (*sorted([name for name in given if name != SIGNATURE], key=java_order), SIGNATURE)
        shape = self._known.get(names)
        if shape is None and len(self._known) < _SHAPES_MAX:
            shape = self._known[names] = _Shape(names, self._own, self._pairs)
        return shape


#: By header class, made when the class is first read.
_shapes: dict[type[CommandHeader], _Shapes] = {}


def read_header_texts(
    serialize_type: int, ext: msgspec.Raw, header_type: type[H]
) -> tuple[H, HeaderTexts] | None:
    """Read extFields as a header and as texts.

    :returns: None for whatever is unusual: :func:`decode_fields` takes it, or says what is wrong.
    """
    if not header_type.is_hot:
        return None
    shapes = _shapes.get(header_type)
    if shapes is None:
        shapes = _shapes[header_type] = _Shapes(header_type)
    shape = shapes.last
    values = None if shape is None else _values(serialize_type, ext, shape)
    if values is None:
        try:
            shape = shapes.find(read_ext_fields(serialize_type, ext))
        except HeaderError:
            return None
        values = None if shape is None else _values(serialize_type, ext, shape)
        if values is None:
            return None
        shapes.last = shape
    assert shape is not None
    try:
        header: H = msgspec.convert(shape.own((*values, None)), shapes.header, strict=False)
    except msgspec.ValidationError:
        return None
    return header, HeaderTexts(values, shape)


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
