"""A group of Apache's members and ours, which join, leave and are killed all the time.

    python -m tests.long.client_groups [--changes 100] [--messages 100000] [--seed 1]

Prints how many messages were sent, how many came again, and how long the shares took after each
change; ends with status 1 when a message is missing, out of order, handled by two members of the
orderly group at once, or needlessly repeated. See ``tests/interop/mixed_group.py``.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.interop.mixed_group import (
    CONCURRENT,
    ORDERLY,
    MixedGroup,
    both_brokers,
    change_often,
    copies,
    faults_of,
)
from tests.interop.servers import wait_until


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", type=int, default=100)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--rate", type=int, default=500, help="messages a second, of each topic")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="twistmq-groups-")))
        group = MixedGroup(*both_brokers(folder, stack), rate=args.rate)
        stack.callback(group.close)
        change_often(group, random.Random(args.seed), args.changes)
        wait_until("enough is sent", lambda: len(group.sent[ORDERLY]) >= args.messages,
                   2 * args.messages / args.rate)
        group.finish(600)
    faults = faults_of(group)
    print(f"{len(group.sent[ORDERLY])} messages of each topic, "
          f"{copies(group, CONCURRENT)[0]} of the concurrent one came again, "
          f"{len(group.killed_ms)} kills")
    print(f"seconds until the queues were shared: {group.shares_seconds}")
    for fault in faults:
        print(fault)
    raise SystemExit(bool(faults))


if __name__ == "__main__":
    main()
