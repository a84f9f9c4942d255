"""Message filters for reads, which use the stored bitmaps and results of a group's filter.

Source: ExpressionMessageFilter, ExpressionForRetryMessageFilter @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from twistmq.broker.api.requests import Matches, PropertyFilter
from twistmq.broker.api.wire import RETRY_TOPIC
from twistmq.plugins.filter_sql92.bitmap_fast_path import AskedFilter

__all__ = ["BitmapFilter", "RetryFilter"]


class BitmapFilter(PropertyFilter):
    """Skips messages that, according to the bitmap of their queue entry, do not match.

    :param asked: the filter that was evaluated when messages were stored.
    :param born_ms: bitmaps of messages stored after this time include the expression.
    :param bit_num: the number of bits in a bitmap.
    """

    __slots__ = ("_bitmap_size", "_born_ms", "_mask", "known_answers")
    asks_entries = True

    def __init__(self, asked: AskedFilter, born_ms: int, bit_num: int) -> None:
        super().__init__(asked.matches)
        #: See MessageFilter.
        self.known_answers = asked.known.find
        self._born_ms = born_ms
        self._bitmap_size = bit_num // 8
        self._mask = asked.mask

    def match_queue_entry(
        self, tags_code: int, store_time: int | None = None, bitmap: bytes | None = None
    ) -> bool:
        if (bitmap is None or store_time is None or store_time <= self._born_ms
                or len(bitmap) != self._bitmap_size):
            return True
        return int.from_bytes(bitmap, "little") & self._mask == self._mask


class RetryFilter(PropertyFilter):
    """Matches messages of a retry topic by the group's filters for their original topics.

    :param find: returns the filter for a topic; None matches every message.
    :param cost: the cost of the most expensive of these filters.
    """

    __slots__ = ()

    def __init__(self, find: Callable[[str], Matches | None], cost: int = 1) -> None:
        def matches(properties: Mapping[str, str]) -> bool:
            matcher = find(properties.get(RETRY_TOPIC, ""))
            return matcher is None or matcher(properties)

        super().__init__(matches)
        self.cost = cost
