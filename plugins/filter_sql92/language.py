"""SQL92 as a filter language.

Source: SqlFilter @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from twisted.logger import Logger
from zope.interface import implementer

from twistmq.broker.interfaces import IFilterLanguage
from twistmq.plugins.filter_sql92.grammar import parse
from twistmq.plugins.filter_sql92.values import EvaluationError

__all__ = ["Sql92"]

#: Operations that take as long as reading a message's properties does.
_CHEAP_COUNT: Final = 8
#: Bytes a compiled expression takes for each of its characters, as measured, generously.
_SIZE_FACTOR: Final = 32


@implementer(IFilterLanguage)
class Sql92:
    """Expressions over properties; see ``grammar`` and ``expression``."""

    log = Logger()

    def compile(self, expression: str) -> Callable[[Mapping[str, str]], bool]:
        """Make a function that says whether properties match.

        What is unknown does not match, nor what cannot be evaluated: the first time that happens
        to an expression it is logged.

        :raises ExpressionError: a ValueError, when the expression is wrong or too large.
        """
        operand = parse(expression)
        evaluate = operand.evaluate
        is_told = False

        def matches(properties: Mapping[str, str]) -> bool:
            nonlocal is_told
            try:
                return evaluate(properties) is True
            except EvaluationError as error:
                if not is_told:
                    is_told = True
                    self.log.warn("{expression} does not match a message it cannot be evaluated "
                                  "for: {error}", expression=expression[:200], error=str(error))
                return False

        matches.cost = 1 + operand.count // _CHEAP_COUNT  # type: ignore[attr-defined]
        matches.size_bytes = _SIZE_FACTOR * len(expression)  # type: ignore[attr-defined]
        return matches
