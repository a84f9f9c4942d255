"""Members of our group that restart, join and are killed under load.

    python -m tests.long.client_members restarts [--count 30] [--client ours]
    python -m tests.long.client_members joins [--count 20] [--client ours]
    python -m tests.long.client_members kills [--count 30] [--client ours] [--seed 1]

``restarts``: three members that leave and come back so often each, at 500 messages a second with
handlers of 20 ms; ``--client 5.3.3`` shows Apache's members in the same. ``joins``: a member joins
two, and leaves. ``kills``: one of four is killed so often.

Prints how many messages came again; ends with status 1 when one is missing, or came again though
it may not. See ``tests/interop/member_rounds.py``.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.interop.member_rounds import (
    copies_of,
    ended_copies,
    handover_faults,
    join_often,
    kill_bound,
    kill_faults,
    kill_often,
    missing,
    restart_often,
)
from tests.interop.mixed_group import COMMIT_MS, CONCURRENT, OURS, MixedGroup, both_brokers

#: Messages a second, and how long a handler takes, ms.
RATE, WORK_MS = 500, 20


def restarts(group: MixedGroup, count: int, client: str) -> int:
    """Restart members; :returns: the number of faults, which Apache's members may have."""
    restart_often(group, client, count)
    group.finish(300)
    faults = ended_copies(group)
    print(f"{len(faults)} messages whose handler had ended came again in {count} restarts of each "
          f"of three members ({client}), {len(copies_of(group))} in all")
    for fault in faults[:20]:
        print(fault)
    return len(faults) if client == OURS else 0


def kills(group: MixedGroup, count: int, client: str, seed: int) -> int:
    """Kill members; :returns: the number of faults, which Apache's members may have."""
    kill_often(group, client, count, random.Random(seed))
    group.finish(300)
    faults, copies = kill_faults(group), copies_of(group)
    print(f"{len(copies)} messages came again at {count} kills ({client}), "
          f"{kill_bound(group, COMMIT_MS)} may; {len(ended_copies(group))} of them after their "
          f"handler had ended, {len(kill_faults(group, COMMIT_MS))} of them too long before")
    for fault in faults[:20]:
        print(fault)
    return len(faults) if client == OURS else 0


def joins(group: MixedGroup, count: int, client: str) -> int:
    """Have members join; :returns: the number of faults, which Apache's members may have."""
    join_often(group, client, count)
    group.finish(300)
    faults, copies = handover_faults(group), copies_of(group)
    print(f"{len(copies)} messages came again at {count} joins ({client}), "
          f"{len(ended_copies(group))} of them after their handler had ended, {len(faults)} of "
          "them before the change")
    for fault in faults[:20]:
        print(fault)
    return len(faults) if client == OURS else 0


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("restarts", "joins", "kills"))
    parser.add_argument("--count", type=int)
    parser.add_argument("--client", default=OURS, help="ours, or a release of Apache's")
    parser.add_argument("--seed", type=int, default=1, help="of the kills")
    args = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="twistmq-members-")))
        group = MixedGroup(*both_brokers(folder, stack), rate=RATE, work_ms=WORK_MS)
        stack.callback(group.close)
        if args.what == "restarts":
            faults = restarts(group, args.count or 30, args.client)
        elif args.what == "kills":
            faults = kills(group, args.count or 30, args.client, args.seed)
        else:
            faults = joins(group, args.count or 20, args.client)
        lost = missing(group)
    print(f"{len(group.sent[CONCURRENT])} messages sent, {len(lost)} missing; seconds until the "
          f"queues were shared: {max(group.shares_seconds[1:])} at most")
    raise SystemExit(bool(faults or lost))


if __name__ == "__main__":
    main()
