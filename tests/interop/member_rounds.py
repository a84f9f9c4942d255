"""Members of one client in a group, which restart and join under load.

    group = MixedGroup(*both_brokers(folder, stack), rate=500, work_ms=20)
    restart_often(group, OURS, rounds=30)
    group.finish()
    assert ended_copies(group) == []

``tests/long/client_members.py`` does the same for longer.
"""

from __future__ import annotations

import random
from collections import defaultdict
from itertools import pairwise
from typing import Final, NamedTuple

from tests.interop.mixed_group import (
    COMMIT_MS,
    CONCURRENT,
    TOLD_MS,
    MixedGroup,
    Queue,
    Work,
)
from tests.interop.servers import wait_until

__all__ = ["Copy", "copies_of", "ended_copies", "handover_faults", "join_often", "kill_bound",
           "kill_faults", "kill_often", "missing", "restart_often"]


#: On a busy machine a member commits so late at most, ms.
LATE_COMMIT_MS: Final = 2 * COMMIT_MS
#: A busy machine handles a second's messages in several.
_HANDLED_SECONDS: Final = 300.0


class Copy(NamedTuple):
    """Two deliveries of one message, one after the other."""

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
    """Let each member leave and return a number of times, one at a time."""
    _start(group, kind, [f"m{number}" for number in range(members)])
    for number in range(rounds):
        for name in list(group.living):
            group.leave(name)
            group.start(f"{name.partition('-')[0]}-{number}", kind)
            group.wait_for_shares([CONCURRENT], 60)


def join_often(group: MixedGroup, kind: str, count: int, members: int = 2) -> None:
    """Let a member join the others and leave again, a number of times."""
    _start(group, kind, [f"m{number}" for number in range(members)])
    for number in range(count):
        group.start(f"j{number}", kind)
        group.wait_for_shares([CONCURRENT], 60)
        group.leave(f"j{number}")
        group.wait_for_shares([CONCURRENT], 60)


def kill_often(group: MixedGroup, kind: str, count: int, chosen: random.Random,
               members: int = 4) -> None:
    """Kill a member a number of times, and replace it.

    It has handled messages for more than ``LATE_COMMIT_MS`` by then.
    """
    _start(group, kind, [f"m{number}" for number in range(members)])
    for number in range(count):
        name = chosen.choice(group.living)
        process = group.processes[name]
        handled = len(process.told("end"))
        share = group.rate * COMMIT_MS // 1000 // members
        more = chosen.randrange(2 * share, 4 * share)
        wait_until(f"{name} handled {more} more",
                   lambda process=process, most=handled + more: len(process.told("end")) >= most,
                   _HANDLED_SECONDS)
        group.kill(name)
        group.wait_for_shares([CONCURRENT], 60)
        group.start(f"{name.partition('-')[0]}-{number}", kind)
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
    """Return the copies of messages whose handler had ended."""
    return [each for each in copies_of(group) if each.before.end_ms is not None]


def missing(group: MixedGroup) -> set[str]:
    """Return the acknowledged bodies that were not handled completely."""
    ended = {work.body for works in group.works(CONCURRENT).values() for work in works
             if work.end_ms is not None}
    return set(group.sent[CONCURRENT]) - ended


def handover_faults(group: MixedGroup) -> list[Copy]:
    """Return the copies of messages whose handler did not run when their queue changed members.

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


# --- what a kill may repeat

def _uncommitted(
    group: MixedGroup, member: str, works: list[Work], since_ms: int
) -> set[int]:
    """The offsets of a queue that a killed member's last commit need not cover.

    These are what it finished so long before its end, or did not finish, and all above the lowest
    of those: an offset says only up to where all are finished.
    """
    begin_ms = group.killed_ms[member] - since_ms
    own = [work for work in works if work.member == member]
    late = [work.offset for work in own if work.end_ms is None or work.end_ms >= begin_ms]
    return {work.offset for work in own if late and work.offset >= min(late)}


def kill_bound(group: MixedGroup, since_ms: int = LATE_COMMIT_MS) -> int:
    """Return how many messages the kills may repeat at most."""
    queues = group.works(CONCURRENT).values()
    return sum(len(_uncommitted(group, member, works, since_ms)) for works in queues
               for member in group.killed_ms)


def kill_faults(group: MixedGroup, since_ms: int = LATE_COMMIT_MS) -> list[Copy]:
    """Return the copies that neither a kill nor a change of members explains.

    :param since_ms: how long before a kill the last commit was at most.
    """
    works, changes = group.works(CONCURRENT), group.changes(CONCURRENT)
    late = set(handover_faults(group))
    faults = []
    for each in copies_of(group):
        member = each.before.member
        killed_ms = group.killed_ms.get(member)
        lost = [ms for ms, got in changes[member, each.queue]
                if not got and ms >= each.before.begin_ms - TOLD_MS]
        if killed_ms is not None and lost and min(lost) == killed_ms:
            if each.before.offset not in _uncommitted(
                    group, member, works[each.queue], since_ms):
                faults.append(each)
        elif each in late:
            faults.append(each)
    return faults
