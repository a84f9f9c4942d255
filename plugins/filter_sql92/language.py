"""SQL92 as a filter language.

Source: SqlFilter @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twisted.logger import Logger
from zope.interface import implementer

from twistmq.broker.api import IFilterLanguage
from twistmq.broker.api.observe import LimitedLog
from twistmq.plugins.filter_sql92.evaluators import Expression
from twistmq.plugins.filter_sql92.grammar import parse
from twistmq.plugins.filter_sql92.values import EvaluationError

__all__ = ["Sql92"]

#: This many operations take about as long as parsing a message's properties.
_CHEAP_COUNT: Final = 8
#: Bytes of a compiled expression for each of its characters, as measured, with a margin.
_SIZE_FACTOR: Final = 32


@implementer(IFilterLanguage)
class Sql92:
    """Expressions over properties; see ``grammar`` and ``expression``.

    :param now_ms: the clock.
    """

    log = Logger()

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._lines = LimitedLog(self.log)

    def compile(self, expression: str) -> Expression:
        """Compile an expression into a function that decides whether properties match.

        An unknown result does not match, and neither does an expression that cannot be evaluated.
        The first failed evaluation of an expression is logged.

        :raises ExpressionError: a ValueError, when the expression is invalid or too large.
        """
        operand = parse(expression)

        def failed(error: EvaluationError) -> None:
            self._lines.warn(
                self._now_ms(), "a message for which {expression} cannot be evaluated does not "
                "match: {error}", expression=expression[:200], error=str(error))

        return Expression(operand.evaluate, failed, 1 + operand.count // _CHEAP_COUNT,
                          _SIZE_FACTOR * len(expression))
