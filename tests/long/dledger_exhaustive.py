"""Explore a small Raft group exhaustively, or look for planted bugs in that way.

    python -m tests.long.dledger_exhaustive [CASE]... [--states N]
    python -m tests.long.dledger_exhaustive --planted [NAME]... [--states N]

See tests/raft/exploration/explorer.py for the cases; without a name, all of them are explored. Each
prints how many states it has, and a broken rule with the events that lead to it. The second form
prints for each planted bug in which case and after how many states it was found; some bugs need
faults that no case has. ``--states`` bounds the states of each case. Ends with status 1 when a rule
was broken without a planted bug.
"""

from __future__ import annotations

import argparse
import contextlib
import time

from tests.raft.exploration.explorer import CASES, Explorer
from tests.raft.simulation.planted import PLANTED, planted
from tests.raft.simulation.world import InvariantBroken

__all__ = ["main"]

#: The bound of the states in a search for a bug.
BUG_STATES_MAX = 200_000


def explore(name: str, states_max: int | None) -> int:
    """Explore a case and say how it went; :returns: 1 if a rule was broken."""
    begin = time.process_time()
    explorer = Explorer(CASES[name], states_max)
    broken: InvariantBroken | None = None
    try:
        explorer.run()
    except InvariantBroken as error:
        broken = error
        print("\n".join(explorer.steps))
    print(f"{name} ({CASES[name].text}): {explorer.count:,} states"
          f"{', all of them' if explorer.is_whole else ''}; {explorer.events:,} events, "
          f"{explorer.depth} at most to a state; {explorer.node_count:,} states of one member; "
          f"terms up to {explorer.highest_term}, {explorer.most_committed} entries committed; "
          f"{time.process_time() - begin:.0f} s: {broken or 'no rule is broken'}", flush=True)
    return int(broken is not None)


def find_planted(names: list[str], states_max: int) -> None:
    """Look for planted bugs in all cases, and print a table."""
    for bug in PLANTED:
        if names and bug.name not in names:
            continue
        found = "not found"
        for name, case in CASES.items():
            explorer = Explorer(case, states_max)
            try:
                with planted(bug):
                    explorer.run()
            except InvariantBroken as error:
                found = f"{name}, {explorer.count:,} states, {len(explorer.steps)} events: " \
                        f"{str(error)[:80]}"
                break
        print(f"{bug.name:5} {bug.text}: {found}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", choices=[*CASES, []])
    parser.add_argument("--states", type=int)
    parser.add_argument("--planted", nargs="*")
    args = parser.parse_args()
    if args.planted is not None:
        find_planted(args.planted, args.states or BUG_STATES_MAX)
        return 0
    return int(sum(explore(name, args.states) for name in args.cases or CASES) > 0)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        raise SystemExit(main())
