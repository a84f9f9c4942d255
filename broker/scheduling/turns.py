"""Items that wait for their turn: owners take turns, and so do the parts of an owner."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

__all__ = ["Turns"]

T = TypeVar("T")


class Turns(Generic[T]):
    """Items by a path of keys, such as a host and a connection; round robin at each key.

    All paths of one object have the same length, at least 1. Items of one path keep their order.
    """

    def __init__(self) -> None:
        #: Maps the first key of a path to a map of its second keys, and so on; the last level
        #: contains the items, oldest first. The key whose turn it is comes first in its map.
        self._root: OrderedDict[Hashable, Any] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        """The number of waiting items."""
        return self._count

    @property
    def owners(self) -> int:
        """The number of first keys that have items."""
        return len(self._root)

    def count(self, path: tuple[Hashable, ...]) -> int:
        """Return the number of waiting items of a path."""
        node: Any = self._root
        for key in path:
            node = node.get(key)
            if node is None:
                return 0
        return len(node)

    def add(self, path: tuple[Hashable, ...], item: T) -> None:
        """Add an item at the end of its path."""
        self._queue(path).append(item)
        self._count += 1

    def put_back(self, path: tuple[Hashable, ...], item: T) -> None:
        """Return a taken item to the front of its path."""
        self._queue(path).appendleft(item)
        self._count += 1

    def take(self) -> tuple[tuple[Hashable, ...], T]:
        """Remove the item whose turn it is; its keys get their next turn after all other keys.

        :returns: the path of the item, and the item.
        :raises StopIteration: when no item waits.
        """
        path: list[Hashable] = []
        node: Any = self._root
        while not isinstance(node, deque):
            key = next(iter(node))
            path.append(key)
            node.move_to_end(key)
            node = node[key]
        item: T = node.popleft()
        self._count -= 1
        self._forget_empty(tuple(path))
        return tuple(path), item

    def drop(self, path: tuple[Hashable, ...], is_dropped: Callable[[T], bool]) -> list[T]:
        """Remove items of a path; :returns: the removed ones, oldest first."""
        if not self.count(path):
            return []
        queue = self._queue(path)
        dropped = [item for item in queue if is_dropped(item)]
        kept = [item for item in queue if not is_dropped(item)]
        queue.clear()
        queue.extend(kept)
        self._count -= len(dropped)
        self._forget_empty(path)
        return dropped

    def _queue(self, path: tuple[Hashable, ...]) -> deque[T]:
        node: Any = self._root
        for key in path[:-1]:
            node = node.setdefault(key, OrderedDict())
        queue: deque[T] = node.setdefault(path[-1], deque())
        return queue

    def _forget_empty(self, path: tuple[Hashable, ...]) -> None:
        """Remove the maps of a path that no longer have items."""
        nodes: list[Any] = [self._root]
        for key in path:
            nodes.append(nodes[-1][key])
        for node, key in zip(nodes[-2::-1], path[::-1], strict=True):
            if node[key]:
                return
            del node[key]
