"""Evaluates the filters of a topic for a message that is being stored.

This is a leaf module of the hot path. It is fully typed, so that mypyc can compile it.

Source: CommitLogDispatcherCalcBitMap @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from twistmq.broker.api import MessageRecord
from twistmq.broker.api.wire import LazyProperties
from twistmq.plugins.filter_sql92.evaluators import Expression
from twistmq.plugins.filter_sql92.match_cache import KnownAnswers

__all__ = ["AskedFilter", "BitmapMaker"]


class AskedFilter:
    """The filter of one group, evaluated for each message of a topic.

    :param matches: decides whether the properties of a message match.
    :param mask: the filter's bits in a bitmap, read as a little-endian number.
    """

    def __init__(self, matches: Callable[[Mapping[str, str]], bool], mask: int) -> None:
        self.matches: Callable[[Mapping[str, str]], bool] = matches
        #: The same object if it is an Expression, which compiled code can call directly.
        self.expression: Expression | None = matches if isinstance(matches, Expression) else None
        self.mask: int = mask
        #: The results for the messages for which a bitmap was made.
        self.known: KnownAnswers = KnownAnswers()


class BitmapMaker:
    """Makes the bitmaps of messages.

    :param size_bytes: the size of a bitmap.
    :param raised: called with the topic, while the exception is being handled, when a filter
        raises. This is a bug of the language: the message is stored, and a pull that reads it
        reports the error to the consumer.
    :param answers_max: how many results of all filters are remembered.
    :param forget_answers: called when there are more results; returns how many remain.
    """

    def __init__(
        self, size_bytes: int, raised: Callable[[str], None], answers_max: int,
        forget_answers: Callable[[], int],
    ) -> None:
        self._size_bytes: int = size_bytes
        self._raised: Callable[[str], None] = raised
        self.answers_max: int = answers_max
        self._forget_answers: Callable[[], int] = forget_answers
        #: The number of remembered results; results of filters that were removed may be included.
        self._answer_count: int = 0
        #: The filters of each topic that has at least one.
        self.filters: dict[str, list[AskedFilter]] = {}

    def bitmap(self, record: MessageRecord) -> bytes | None:
        """Return the bits of all filters that match a record; None if its topic has no filter."""
        filters = self.filters.get(record.topic)
        if filters is None:
            return None
        properties = cast("Mapping[str, str]", LazyProperties(record.properties))
        bits = 0
        for each in filters:
            expression = each.expression
            try:
                wants = (bool(each.matches(properties)) if expression is None
                         else expression.matches(properties))
            except Exception:
                self._raised(record.topic)
                bits |= each.mask
                continue
            if wants:
                bits |= each.mask
            each.known.note(record.queue_id, record.queue_offset, record.physical_offset, wants)
        self._answer_count += len(filters)
        if self._answer_count > self.answers_max:
            self._answer_count = self._forget_answers()
        return bits.to_bytes(self._size_bytes, "little")
