"""Run the simulation of a Raft group over many seeds, or look for the planted bugs.

    python -m tests.long.dledger_core [--seeds 20000] [--from 0] [--members 3|5] [--processes 1]
    python -m tests.long.dledger_core --seed N [--members 3|5]
    python -m tests.long.dledger_core --planted [NAME]...

See tests/raft/simulation/simulation.py. Every fifth seed has five members, unless ``--members``
says otherwise. A line is printed for each part of the seeds. A seed that finds something is printed
with the invariant; the second form replays it with all its steps. The third form prints after how
many seeds each planted bug was found. Ends with status 1 when a seed found something, or a planted
bug was not found; after five seeds at once.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator

from tests.raft.simulation.planted import PLANTED, find_bug
from tests.raft.simulation.simulation import Simulation
from tests.raft.simulation.world import InvariantBroken

__all__ = ["main", "replay", "run", "run_seed"]

#: Failing seeds that are printed.
FAILURES_MAX = 5
#: Seeds a process is given at a time, and seeds between two lines.
CHUNK = 50
PART = 5000
#: One seed in so many has five members.
FIVE = 5


def members_of(seed: int, members: int) -> int:
    """The size of the group of a seed; ``members`` is 0 for the usual mixture."""
    return members or (5 if seed % FIVE == FIVE - 1 else 3)


def run_seed(work: tuple[int, int]) -> tuple[str | None, dict[str, int], float]:
    """Run a seed.

    :param work: the seed, and the size of the group or 0.
    :returns: the text of what it found, what happened in it, and its processor time in seconds.
    """
    seed, members = work
    begin = time.process_time()
    simulation = Simulation(seed, members_of(seed, members))
    text = None
    try:
        simulation.run()
    except InvariantBroken as broken:
        text = f"seed {seed}, {members_of(seed, members)} members: {broken}"
    counts = {**simulation.ghosts.counts, "events": simulation.world.count,
              "faults": sum(simulation.faults.counts.values())}
    return text, counts, time.process_time() - begin


def results(seeds: range, members: int, processes: int
            ) -> Iterator[tuple[str | None, dict[str, int], float]]:
    """Run seeds, in order, in this process or in several."""
    work = ((seed, members) for seed in seeds)
    if processes == 1:
        yield from map(run_seed, work)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap(run_seed, work, CHUNK)


def run(seeds: range, members: int, processes: int) -> int:
    """Run seeds and say how it goes; :returns: how many found something."""
    begin = time.monotonic()
    totals: Counter[str] = Counter()
    failures = 0
    busy = 0.0
    for done, (text, counts, seconds) in enumerate(results(seeds, members, processes), 1):
        totals.update(counts)
        busy += seconds
        if text is not None:
            failures += 1
            print(text, flush=True)
        if done % PART == 0 or done == len(seeds) or failures >= FAILURES_MAX:
            print(f"seeds {seeds.start:,} to {seeds.start + done - 1:,}: {failures} found "
                  f"something; {time.monotonic() - begin:.0f} s, {done / busy:.0f} seeds a second "
                  f"of a core; {totals['elections']:,} elections, {totals['acknowledged']:,} "
                  f"acknowledged sends, {totals['faults']:,} faults, {totals['cuts']:,} cuts of "
                  f"logs, {totals['events']:,} events", flush=True)
        if failures >= FAILURES_MAX:
            break
    return failures


def replay(seed: int, members: int) -> int:
    """Run one seed and print all of its steps; :returns: 1 if it found something."""
    simulation = Simulation(seed, members_of(seed, members))
    simulation.world.steps = []
    failure = None
    try:
        simulation.run()
    except InvariantBroken as broken:
        failure = broken
    print("\n".join(simulation.world.steps))
    print(f"seed {seed}: {failure or 'nothing is wrong'}")
    return int(failure is not None)


def find_planted(names: list[str], first: int) -> int:
    """Look for the planted bugs and print a table; :returns: how many were not found."""
    missing = 0
    for bug in PLANTED:
        if (names and bug.name not in names) or bug.noticed_by:
            continue
        begin = time.process_time()
        found = find_bug(bug, first)
        missing += found is None
        seconds = time.process_time() - begin
        what = (f"{found[0]} seeds, {seconds:.1f} s: {found[1][:80]}" if found
                else f"not found in {bug.seeds_max} seeds, {seconds:.0f} s")
        print(f"{bug.name:5} {bug.text}: {what}", flush=True)
    return missing


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20_000)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--members", type=int, default=0, choices=(0, 3, 5))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--planted", nargs="*")
    args = parser.parse_args()
    if args.planted is not None:
        return int(find_planted(args.planted, args.first) > 0)
    if args.seed is not None:
        return replay(args.seed, args.members)
    seeds = range(args.first, args.first + args.seeds)
    return int(run(seeds, args.members, max(args.processes, 1)) > 0)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        raise SystemExit(main())
