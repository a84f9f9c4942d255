"""Waiting requests of one queue, found by the tags of new messages.

As long as they are few they are all looked at. When they are many, those with a filter of tags
stand where the hashes of their tags put them, so that a message of a tag which none of them wants
costs as much as without any. The places depend on a number that is another in each process: no
client can choose tags that share a place.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Generic, Protocol, TypeVar

from twistmq.broker.request.filters import TagFilter
from twistmq.broker.store.get_message import MessageFilter
from twistmq.protocol.record import MessageRecord

__all__ = ["WaitingByTag", "index_size"]

#: So many are all looked at; below half of it they are again.
_FEW_MAX: Final = 64
#: Places of tags; a list of 5,000 tags stands in all of them.
_PLACE_BITS: Final = 10
#: Bytes of one place in a list, as lists grow.
_PLACE_BYTES: Final = 16
_WORD_BITS: Final = 64
_WORD: Final = 2**_WORD_BITS - 1
_SALT: Final = int.from_bytes(os.urandom(_WORD_BITS // 8), "big") | 1


class Waits(Protocol):
    """One who waits."""

    #: The filter; None: every message.
    wants: MessageFilter | None
    is_over: bool


W = TypeVar("W", bound=Waits)


def _places(tags_codes: Iterable[int]) -> set[int]:
    return {(code * _SALT & _WORD) >> _WORD_BITS - _PLACE_BITS for code in tags_codes}


def index_size(wants: MessageFilter | None) -> int:
    """Bytes that one who waits takes where many do, beside itself."""
    if not isinstance(wants, TagFilter):
        return 0
    return _PLACE_BYTES * min(wants.tag_count, 1 << _PLACE_BITS)


class WaitingByTag(Generic[W]):
    """The requests that wait for one queue, indexed by tag."""

    __slots__ = ("_count", "_everything", "_listed", "_places", "_waiting")

    def __init__(self) -> None:
        #: In the order they came; some are over where they are many.
        self._waiting: list[W] = []
        self._count = 0
        #: The waiting requests by place; None: they are few. Ended requests stay until they are too
        #: many.
        self._places: dict[int, list[W]] | None = None
        #: Those that look at more than tags.
        self._everything: list[W] = []
        #: How many there were when the places were made, and came since.
        self._listed = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[W]:
        """All of them, in the order they came."""
        return iter(self._waiting) if self._places is None else (
            each for each in self._waiting if not each.is_over)

    def __reversed__(self) -> Iterator[W]:
        return (each for each in reversed(self._waiting) if not each.is_over)

    def add(self, waiting: W) -> None:
        """One more waits."""
        self._count += 1
        self._waiting.append(waiting)
        if self._places is not None:
            self._stand(self._places, waiting)
        elif self._count > _FEW_MAX:
            self._list()

    def remove(self, waiting: W) -> None:
        """One of them is over, and says so."""
        assert waiting.is_over
        self._count -= 1
        if self._places is None:
            self._waiting.remove(waiting)
        elif self._count <= _FEW_MAX // 2:
            self._waiting = list(self)
            self._places = None
            self._everything = []
        elif self._listed > 2 * self._count:
            self._list()

    def candidates(self, records: Sequence[MessageRecord]) -> list[W]:
        """The requests that may match one of these records: first those that look at more than
        tags.

        Of each the first that came is the first; some may be named twice.
        """
        places = self._places
        if places is None:
            return list(self._waiting)
        found = [each for each in self._everything if not each.is_over]
        for place in _places({record.tags_code for record in records}):
            found += [each for each in places.get(place, ()) if not each.is_over]
        return found

    def _list(self) -> None:
        """Give each request its place again, and drop requests that ended."""
        self._waiting = [each for each in self._waiting if not each.is_over]
        self._everything = []
        self._listed = 0
        places: dict[int, list[W]] = {}
        self._places = places
        for each in self._waiting:
            self._stand(places, each)

    def _stand(self, places: dict[int, list[W]], waiting: W) -> None:
        self._listed += 1
        wants = waiting.wants
        if not isinstance(wants, TagFilter):
            self._everything.append(waiting)
            return
        for place in _places(wants.tags_codes()):
            places.setdefault(place, []).append(waiting)
