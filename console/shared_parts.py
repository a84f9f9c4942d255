"""Shares the live part of a page among browsers that refresh it at about the same time.

Browsers refresh at the same moments of the clock. The first of them makes the part; the others wait
for it, or get it if it is new enough. A page that is opened or searched for the first time, and the
JSON form, are never shared.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

__all__ = ["SharedParts"]

#: The age up to which a part is shared, seconds; well below the time between two refreshes.
SHARED_S: Final = 2.0
#: The parts that are kept; beyond this number, a new part is not shared.
_PARTS_MAX: Final = 64

#: The status and the content of an answer.
Part: TypeAlias = tuple[int, bytes]


@dataclass(slots=True)
class _Entry:
    """A part that is being made, or was made a moment ago."""

    begin_s: float
    part: Part | None = None
    waiting: list[Deferred[Part]] = field(default_factory=list)


class SharedParts:
    """The parts of a console; used by the reactor alone.

    :param seconds: the clock of the reactor.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._entries: dict[Hashable, _Entry] = {}

    def get(self, key: Hashable, make: Callable[[], Deferred[Part]]) -> Deferred[Part]:
        """Return a part.

        :param key: names the page and the rights of its visitor.
        :param make: makes the part.
        :returns: fires with the part, or fails as ``make`` does for all that wait.
        """
        now_s = self._seconds()
        for old_key in [old_key for old_key, entry in self._entries.items()
                        if now_s - entry.begin_s > SHARED_S and entry.part is not None]:
            del self._entries[old_key]
        entry = self._entries.get(key)
        if entry is not None and now_s - entry.begin_s <= SHARED_S:
            answer: Deferred[Part] = Deferred()
            if entry.part is None:
                entry.waiting.append(answer)
            else:
                answer.callback(entry.part)
            return answer
        if len(self._entries) >= _PARTS_MAX:
            return make()
        return self._make(key, make, _Entry(now_s))

    def _make(
        self, key: Hashable, make: Callable[[], Deferred[Part]], entry: _Entry
    ) -> Deferred[Part]:
        self._entries[key] = entry

        def done(part: Part) -> Part:
            entry.part = part
            waiting, entry.waiting = entry.waiting, []
            for each in waiting:
                each.callback(part)
            return part

        def fail(failure: Failure) -> Failure:
            if self._entries.get(key) is entry:
                del self._entries[key]
            for each in entry.waiting:
                each.errback(failure)
            return failure

        return make().addCallbacks(done, fail)

    def forget(self) -> None:
        """Share nothing that was begun before, because a visitor has changed something."""
        self._entries.clear()
