"""The filter language PREFIX: ``name=beginning`` matches a property that begins so.

And a keeper of filters that gives every group the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from zope.interface import implementer

from twistmq.broker.api import Broker, IConsumerFilters, IFilterLanguage

if TYPE_CHECKING:
    from twistmq.broker.api.store import MessageFilter

__all__ = ["OneForAll", "Prefix"]


@implementer(IFilterLanguage)
class Prefix:
    """Compiles expressions."""

    def compile(self, expression: str) -> Callable[[Mapping[str, str]], bool]:
        name, separator, beginning = expression.partition("=")
        if not separator or not name:
            raise ValueError("name=beginning is expected")
        return lambda properties: properties.get(name, "").startswith(beginning)


@implementer(IConsumerFilters)
class OneForAll:
    """Lets every pull that filters by an expression filter by this one."""

    def __init__(self, broker: Broker, expression: str) -> None:
        self._broker = broker
        self._expression = expression

    def own_filter(
        self, group: str, topic: str, expression_type: str, expression: str
    ) -> MessageFilter:
        return self.group_filter(group, topic, 0)

    def group_filter(self, group: str, topic: str, sub_version: int) -> MessageFilter:
        made = self._broker.filters.make_filter("PREFIX", self._expression)
        assert made is not None
        return made

    def describe(self, group: str, topic: str) -> str:
        return self._expression
