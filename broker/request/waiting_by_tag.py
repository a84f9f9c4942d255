"""The waiting requests of one queue, indexed by the tags of new messages.

A few waiting requests are all examined for each message. When there are many, the requests with a
tag filter are put into buckets by the hashes of their tags. If none of them wants the tag of a
message, the message costs as much as if no request waited. The buckets depend on a random
number that differs in each process, so that no client can choose tags that share a bucket.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Generic, Protocol, TypeVar

from twistmq.broker.request.filters import TagFilter
from twistmq.broker.store.get_message import MessageFilter
from twistmq.protocol.record import MessageRecord

__all__ = ["WaitingByTag", "index_size"]

#: Up to this number all requests are examined, and again when fewer than half of it remain.
_FEW_MAX: Final = 64
#: The number of buckets, as a power of two. A list of 5,000 tags is in all of them.
_BUCKET_BITS: Final = 10
#: The size of an entry of a bucket in bytes, including the reserve of a growing list.
_BUCKET_ENTRY_BYTES: Final = 16
_WORD_BITS: Final = 64
_WORD: Final = 2**_WORD_BITS - 1
_SALT: Final = int.from_bytes(os.urandom(_WORD_BITS // 8), "big") | 1


class Waits(Protocol):
    """A waiting request."""

    #: The filter; None if the request wants every message.
    wants: MessageFilter | None
    is_over: bool


W = TypeVar("W", bound=Waits)


def _bucket_numbers(tags_codes: Iterable[int]) -> set[int]:
    return {(code * _SALT & _WORD) >> _WORD_BITS - _BUCKET_BITS for code in tags_codes}


def index_size(wants: MessageFilter | None) -> int:
    """The bytes that a waiting request takes in the buckets, in addition to its own size."""
    if not isinstance(wants, TagFilter):
        return 0
    return _BUCKET_ENTRY_BYTES * min(wants.tag_count, 1 << _BUCKET_BITS)


class WaitingByTag(Generic[W]):
    """The requests that wait for one queue, indexed by tag."""

    __slots__ = ("_buckets", "_count", "_everything", "_listed", "_waiting")

    def __init__(self) -> None:
        #: All requests in order of arrival; when there are many, this includes ended ones.
        self._waiting: list[W] = []
        self._count = 0
        #: The waiting requests by bucket; None if there are few. Ended requests are removed when
        #: there are too many of them.
        self._buckets: dict[int, list[W]] | None = None
        #: The requests that examine more than tags.
        self._everything: list[W] = []
        #: The number of requests that were put into buckets, including ended ones.
        self._listed = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[W]:
        """Iterate over all of them, in order of arrival."""
        return iter(self._waiting) if self._buckets is None else (
            each for each in self._waiting if not each.is_over)

    def __reversed__(self) -> Iterator[W]:
        return (each for each in reversed(self._waiting) if not each.is_over)

    def add(self, waiting: W) -> None:
        """Add a waiting request."""
        self._count += 1
        self._waiting.append(waiting)
        if self._buckets is not None:
            self._stand(self._buckets, waiting)
        elif self._count > _FEW_MAX:
            self._list()

    def remove(self, waiting: W) -> None:
        """Remove a request that has ended and is marked as such."""
        assert waiting.is_over
        self._count -= 1
        if self._buckets is None:
            self._waiting.remove(waiting)
        elif self._count <= _FEW_MAX // 2:
            self._waiting = list(self)
            self._buckets = None
            self._everything = []
        elif self._listed > 2 * self._count:
            self._list()

    def candidates(self, records: Sequence[MessageRecord]) -> list[W]:
        """Return the requests that may match one of these records.

        Requests that examine more than tags come first. The requests of each group are in order of
        arrival, and a request may occur twice.
        """
        buckets = self._buckets
        if buckets is None:
            return list(self._waiting)
        candidates = [each for each in self._everything if not each.is_over]
        for number in _bucket_numbers({record.tags_code for record in records}):
            candidates += [each for each in buckets.get(number, ()) if not each.is_over]
        return candidates

    def _list(self) -> None:
        """Put each request into its buckets again, and drop requests that ended."""
        self._waiting = [each for each in self._waiting if not each.is_over]
        self._everything = []
        self._listed = 0
        buckets: dict[int, list[W]] = {}
        self._buckets = buckets
        for each in self._waiting:
            self._stand(buckets, each)

    def _stand(self, buckets: dict[int, list[W]], waiting: W) -> None:
        self._listed += 1
        wants = waiting.wants
        if not isinstance(wants, TagFilter):
            self._everything.append(waiting)
            return
        for number in _bucket_numbers(wants.tags_codes()):
            buckets.setdefault(number, []).append(waiting)
