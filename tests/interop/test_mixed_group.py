"""The judge of mixed groups: the messages that may be delivered again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.interop.mixed_group import CONCURRENT, MixedGroup, copies


class _Told:
    """The output of one program."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines

    def told(self, word: str) -> list[str]:
        return [line for line in self.lines if line.partition(" ")[0] == word]


def held(ms: int, queues: str) -> str:
    """Return the line of a member whose queues changed."""
    return f"held {CONCURRENT} {ms} {queues}"


def worked(ms: int, offset: int) -> list[str]:
    """Return the lines of a member that handled a message."""
    return [f"{word} {CONCURRENT} {when} b 4 {offset} 0 body{offset}"
            for word, when in (("begin", ms), ("end", ms + 5))]


def faults(told: Mapping[str, Sequence[str]]) -> int:
    """Return the number of messages that were delivered again without need."""
    group: Any = MixedGroup.__new__(MixedGroup)
    group._work_ms = 5
    group.processes = {name: _Told(lines) for name, lines in told.items()}
    group.killed_ms, group.left_ms = {}, {}
    return len(copies(group, CONCURRENT)[1])


class CopiesTests(SynchronousTestCase):
    """A member handles two messages two seconds and one before it loses their queue."""

    first = (held(0, "b:4"), *worked(2400, 10), *worked(3400, 11), held(4450, ""))
    last = (held(5400, "b:4"), *worked(5900, 10), *worked(5910, 11))

    def test_the_next_member_has_the_queue_later(self) -> None:
        """It reads the offset that the first has committed, so nothing is repeated."""
        self.assertEqual(faults({"ours1": self.first, "ours2": self.last}), 2)

    def test_another_member_had_the_queue_at_the_same_time(self) -> None:
        """It may have set the group back to the offset at its start."""
        java = (held(3300, "b:4"), held(5300, ""))
        self.assertEqual(faults({"ours1": self.first, "java": java, "ours2": self.last}), 0)
        later = (held(5600, "b:4"), held(5700, ""))
        self.assertEqual(faults({"ours1": self.first, "java": later, "ours2": self.last}), 2)

    def test_the_first_member_has_it_again(self) -> None:
        """It knows its own position, whichever member had the queue in between."""
        java = (held(3300, "b:4"), held(5300, ""))
        self.assertEqual(faults({"ours1": (*self.first, *self.last), "java": java}), 2)
