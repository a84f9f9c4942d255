"""Serialisers for models of pydantic. This module does not import pydantic, but calls the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, Self, TypeVar

from twistmq.client.base.codecs import Serialiser
from twistmq.client.base.errors import OptionError

__all__ = ["Model", "model_of"]


class Model(Protocol):
    """The methods of a pydantic model, version 2 or later, that are called here."""

    def model_dump_json(self, *, by_alias: bool) -> str:
        """Return the JSON of the model."""

    @classmethod
    def model_validate_json(cls, data: bytes, /) -> Self:
        """Return the model of a JSON text; raises ``ValueError`` when it is not valid."""


M = TypeVar("M", bound=Model)


def model_of(kind: type[M]) -> Serialiser[M]:
    """JSON of a pydantic model, by its aliases.

    Bodies are checked by the model, and only models of this class are sent. A model that is
    changed without validation may be sent although it is not valid, as pydantic documents.

    :raises OptionError: when the class is not a model of pydantic 2.
    """
    if not isinstance(kind, type) or not all(
            callable(getattr(kind, name, None)) for name in ("model_dump_json",
                                                             "model_validate_json")):
        raise OptionError(f"{kind!r} is not a model of pydantic 2: for other types, use json_of")
    return _ModelSerialiser(kind)


class _ModelSerialiser(Serialiser[M]):
    """JSON of one model."""

    __slots__ = ("_kind",)

    def __init__(self, kind: type[M]) -> None:
        self._kind = kind
        super().__init__(f"JSON of {kind.__name__}", self._body_of, kind.model_validate_json)

    def _body_of(self, value: M) -> bytes:
        """Return the body for a model; :raises TypeError: when it is another value."""
        if not isinstance(value, self._kind):
            raise TypeError(f"it is not a {self._kind.__name__}")
        return value.model_dump_json(by_alias=True).encode()

    def __reduce__(self) -> tuple[Callable[..., object], tuple[type[M]]]:
        return model_of, (self._kind,)
