"""A message's properties as a mapping that searches for a property when it is requested.

A message has a dozen properties, of which a filter reads one or two, and most messages are rejected
after the first. Splitting all properties would take longer than all other steps of a filtered read.
This is a leaf module of the hot path. It is typed so that mypyc can compile it.

Source: MessageDecoder.decodeProperties @5.3.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from twistmq.protocol.properties import parse_properties

__all__ = ["LazyProperties"]

#: The number of single look-ups before all properties are split, which makes look-ups cheap.
FIND_MAX: Final = 4
#: The text that precedes a value, by name; ``_MARKS_MAX`` limits the entries of this cache.
_marks: dict[str, str] = {}
_MARKS_MAX: Final = 1024


class LazyProperties:
    """A mapping of names to values.

    :param text: the properties as stored, see ``parse_properties``.
    """

    __slots__ = ("_all", "_remaining_finds", "_text")

    def __init__(self, text: str) -> None:
        self._text: str = text
        self._remaining_finds: int = FIND_MAX
        self._all: dict[str, str] | None = None

    def __reduce__(self) -> tuple[type[LazyProperties], tuple[str]]:
        return LazyProperties, (self._text,)

    def get(self, name: str, default: str | None = None) -> str | None:
        """A property's value; the value of the last pair when the name occurs several times."""
        if self._all is not None or not self._remaining_finds:
            return self._split().get(name, default)
        self._remaining_finds -= 1
        mark = _marks.get(name)
        if mark is None:
            mark = _new_mark(name)
        if not mark:
            return default
        text = self._text
        at = text.rfind(mark)
        if at >= 0:
            at += len(mark)
        elif text.startswith(mark[1:]):
            at = len(mark) - 1
        else:
            return default
        end = text.find("\x02", at)
        if end == at or at == len(text):
            # An earlier pair with the same name may have a value.
            return self._split().get(name, default)
        return text[at:] if end < 0 else text[at:end]

    def _split(self) -> dict[str, str]:
        properties = self._all
        if properties is None:
            properties = self._all = parse_properties(self._text)
        return properties

    def __getitem__(self, name: str) -> str:
        value = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._split())

    def __len__(self) -> int:
        return len(self._split())

    def keys(self) -> object:
        """All names."""
        return self._split().keys()

    def values(self) -> object:
        """All values."""
        return self._split().values()

    def items(self) -> object:
        """All pairs."""
        return self._split().items()


def _new_mark(name: str) -> str:
    """:returns: an empty text for a name that is empty or contains a separator."""
    if len(_marks) >= _MARKS_MAX:
        _marks.clear()
    is_name = name and "\x01" not in name and "\x02" not in name
    mark = _marks[name] = f"\x02{name}\x01" if is_name else ""
    return mark


Mapping.register(LazyProperties)
