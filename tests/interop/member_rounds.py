"""Members of one client in a group, which restart and join under load.

    group = MixedGroup(*both_brokers(folder, stack), rate=500, work_ms=20)
    restart_often(group, OURS, rounds=30)
    group.finish()
    assert ended_copies(group) == []

``tests/long/client_members.py`` does the same for longer.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import NamedTuple

from tests.interop.mixed_group import CONCURRENT, OURS, TOLD_MS, MixedGroup, Queue, Work

__all__ = ["Copy", "copies_of", "ended_copies", "handover_faults", "join_often", "missing",
           "restart_often"]


class Copy(NamedTuple):
    """Two turns with one message, one after the other."""

    queue: Queue
    before: Work
    after: Work


# --- changes

def _start(group: MixedGroup, kind: str, names: list[str]) -> None:
    for name in names:
        group.start(name, kind)
    # The first programs load their modules and classes, beside other tests.
    group.wait_for_shares([CONCURRENT], 90)


def restart_often(group: MixedGroup, kind: str, rounds: int, members: int = 3) -> None:
    """Each member leaves and comes back so often, one at a time."""
    _start(group, kind, [f"m{number}" for number in range(members)])
    for number in range(rounds):
        for name in list(group.living):
            group.leave(name)
            group.start(f"{name.partition('-')[0]}-{number}", kind)
            group.wait_for_shares([CONCURRENT], 60)


def join_often(group: MixedGroup, count: int, members: int = 2) -> None:
    """A member joins those that are there, and leaves again, so often."""
    _start(group, OURS, [f"m{number}" for number in range(members)])
    for number in range(count):
        group.start(f"j{number}", OURS)
        group.wait_for_shares([CONCURRENT], 60)
        group.leave(f"j{number}")
        group.wait_for_shares([CONCURRENT], 60)


# --- what came again

def copies_of(group: MixedGroup) -> list[Copy]:
    """Messages that were handled more than once, with the turns that followed each other."""
    found = []
    for queue, works in group.works(CONCURRENT).items():
        by_offset: defaultdict[int, list[Work]] = defaultdict(list)
        for work in works:
            by_offset[work.offset].append(work)
        found += [Copy(queue, before, after) for turns in by_offset.values()
                  for before, after in pairwise(turns)]
    return found


def ended_copies(group: MixedGroup) -> list[Copy]:
    """The copies of messages whose handler had ended."""
    return [each for each in copies_of(group) if each.before.end_ms is not None]


def missing(group: MixedGroup) -> set[str]:
    """Bodies that were acknowledged to the producer, and not handled to the end."""
    ended = {work.body for works in group.works(CONCURRENT).values() for work in works
             if work.end_ms is not None}
    return set(group.sent[CONCURRENT]) - ended


def handover_faults(group: MixedGroup) -> list[Copy]:
    """Copies of messages whose handler did not run when their queue changed hands.

    Members tell of a change a little later than it happens.
    """
    changes = group.changes(CONCURRENT)
    faults = []
    for each in copies_of(group):
        lost = [ms for ms, got in changes[each.before.member, each.queue]
                if not got and ms >= each.before.begin_ms - TOLD_MS]
        if each.before.end_ms is not None and (
                not lost or each.before.end_ms < min(lost) - TOLD_MS):
            faults.append(each)
    return faults


