"""The filter language PREFIX: ``name=beginning`` matches a property that begins so."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from zope.interface import implementer

from twistmq.broker.interfaces import IFilterLanguage

__all__ = ["Prefix"]


@implementer(IFilterLanguage)
class Prefix:
    """Compiles expressions."""

    def compile(self, expression: str) -> Callable[[Mapping[str, str]], bool]:
        name, separator, beginning = expression.partition("=")
        if not separator or not name:
            raise ValueError("name=beginning is expected")
        return lambda properties: properties.get(name, "").startswith(beginning)
