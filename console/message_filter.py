"""Which messages a search shows: by tag, by an SQL92 expression over properties, and by a text.

Brokers select by tag. The console evaluates the other two itself, because brokers refuse SQL92
unless enablePropertyFilter is set, and none of them looks into bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from twistmq.console.body_decoder import DecodedBody
from twistmq.console.query import BadQuery, Query
from twistmq.protocol.record import StoredMessage

__all__ = ["FIELDS", "MessageFilter"]

#: The parameters of a filter.
FIELDS = ("tag", "sql", "text")


class MessageFilter:
    """The filter that a query contains.

    ``tag`` is an expression such as "a || b", ``sql`` one such as "price > 5 AND region IS NOT
    NULL", and ``text`` a part of the body in any case.

    :raises BadQuery: when the SQL92 expression is not valid.
    """

    def __init__(self, query: Query) -> None:
        #: The tags by which the broker selects messages.
        self.tags = query.text("tag", "*")
        self._text = query.text("text").lower()
        sql = query.text("sql")
        self._matches = _compiled(sql) if sql else None

    def accepts(self, message: StoredMessage, body: DecodedBody) -> bool:
        """Return whether a message that a broker has selected is shown."""
        if self._matches is not None and not self._matches(message.properties_map()):
            return False
        return not self._text or self._text in body.text.lower()


def _compiled(sql: str) -> Callable[[Mapping[str, str]], bool]:
    """Return what decides about the properties of a message, by the rules of brokers.

    :raises BadQuery: when the expression is not valid.
    """
    # The language is loaded by the first query that uses it.
    from twistmq.plugins.filter_sql92.grammar import parse
    from twistmq.plugins.filter_sql92.values import EvaluationError

    try:
        operand = parse(sql)
    except ValueError as error:
        raise BadQuery(f"sql is not an SQL92 expression: {error}") from None

    def matches(properties: Mapping[str, str]) -> bool:
        try:
            return operand.evaluate(properties) is True
        except EvaluationError:
            # As on a broker, a message does not match if a property has no value of this kind.
            return False

    return matches
