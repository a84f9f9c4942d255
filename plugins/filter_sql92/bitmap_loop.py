"""The loop that asks the filters of a topic whether they want a message that is stored.

Leaf module of the hot path: typed, so that mypyc compiles it.

Source: CommitLogDispatcherCalcBitMap @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from twistmq.broker.wire.lazy_properties import LazyProperties
from twistmq.broker.wire.record import MessageRecord
from twistmq.plugins.filter_sql92.known_answers import KnownAnswers

__all__ = ["AskedFilter", "bitmap_of"]


class AskedFilter:
    """What is asked of each message of a topic for one group.

    :param matches: says whether properties match.
    :param mask: the filter's bits in a bitmap, read as a little-endian number.
    """

    def __init__(self, matches: Callable[[Mapping[str, str]], bool], mask: int) -> None:
        self.matches: Callable[[Mapping[str, str]], bool] = matches
        self.mask: int = mask
        #: Of the messages a bitmap was made for.
        self.known: KnownAnswers = KnownAnswers()


def bitmap_of(
    filters: list[AskedFilter], record: MessageRecord, size_bytes: int,
    raised: Callable[[str], None],
) -> bytes:
    """The bits of all filters that want a record.

    :param size_bytes: of the bitmap.
    :param raised: told the topic, while the exception is handled, when a filter raises. That is a
        language's bug: the message is stored, and its pull tells the consumer.
    """
    properties = cast("Mapping[str, str]", LazyProperties(record.properties))
    bits = 0
    for each in filters:
        try:
            wants = bool(each.matches(properties))
        except Exception:
            raised(record.topic)
            bits |= each.mask
            continue
        if wants:
            bits |= each.mask
        each.known.note(record.queue_id, record.queue_offset, record.physical_offset, wants)
    return bits.to_bytes(size_bytes, "little")
