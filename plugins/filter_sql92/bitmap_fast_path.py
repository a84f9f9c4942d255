"""Asks the filters of a topic whether they want a message that is stored.

Leaf module of the hot path: typed, so that mypyc compiles it.

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

    :param matches: says whether properties match.
    :param mask: the filter's bits in a bitmap, read as a little-endian number.
    """

    def __init__(self, matches: Callable[[Mapping[str, str]], bool], mask: int) -> None:
        self.matches: Callable[[Mapping[str, str]], bool] = matches
        #: The same where it is ours: it is asked without Python in between.
        self.expression: Expression | None = matches if isinstance(matches, Expression) else None
        self.mask: int = mask
        #: Of the messages a bitmap was made for.
        self.known: KnownAnswers = KnownAnswers()


class BitmapMaker:
    """Makes the bitmaps of messages.

    :param size_bytes: of a bitmap.
    :param raised: told the topic, while the exception is handled, when a filter raises. That is a
        language's bug: the message is stored, and its pull tells the consumer.
    :param answers_max: how many answers are remembered of all filters.
    :param forget_answers: called when they are more; returns how many are left.
    """

    def __init__(
        self, size_bytes: int, raised: Callable[[str], None], answers_max: int,
        forget_answers: Callable[[], int],
    ) -> None:
        self._size_bytes: int = size_bytes
        self._raised: Callable[[str], None] = raised
        self.answers_max: int = answers_max
        self._forget_answers: Callable[[], int] = forget_answers
        #: Answers that are remembered, or were until a filter was given up.
        self._answer_count: int = 0
        #: The filters of each topic that has any.
        self.filters: dict[str, list[AskedFilter]] = {}

    def bitmap(self, record: MessageRecord) -> bytes | None:
        """The bits of all filters that want a record; None when its topic has no filter."""
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
