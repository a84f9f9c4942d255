"""The index of the last entry that a majority has."""

from collections.abc import Iterable

__all__ = ["find_quorum_index"]


def find_quorum_index(match_indexes: Iterable[int], quorum: int) -> int:
    """Return the highest index that at least ``quorum`` members have reached.

    ``match_indexes`` has one index for each member: the last entry that it certainly has, or -1.
    """
    return sorted(match_indexes, reverse=True)[quorum - 1]
