"""Run the simulation of a Raft group over many seeds, or look for the planted bugs.

    python -m tests.long.dledger_core [--seeds 20000] [--from 0] [--members 3|5] [--java 0|1|2]
                                      [--processes 1]
    python -m tests.long.dledger_core --seed N [--members 3|5] [--java 0|1|2]
    python -m tests.long.dledger_core --planted [NAME]...

See tests/raft/simulation/simulation.py. Every fifth seed has five members, unless ``--members``
says otherwise; ``--java`` is the number of members of Apache's in groups of three (see
java_machine.py there). A line is printed for each part of the seeds. A seed that finds something
is printed with the invariant; the second form replays it with all its steps. The third form prints
after how many seeds each planted bug was found. Ends with status 1 when a seed found something, or
a planted bug was not found; after five seeds at once.
"""

from __future__ import annotations

import contextlib
import time
from functools import partial

from tests.long.seeds import broken_by, print_replay, run_seeds, seeds_parser
from tests.raft.simulation.java_machine import MixedSimulation
from tests.raft.simulation.planted import PLANTED, find_bug
from tests.raft.simulation.simulation import Simulation

__all__ = ["main", "replay", "run", "run_seed"]

#: Seeds between two lines.
PART = 5000
#: One seed in so many has five members.
FIVE = 5


def members_of(seed: int, members: int) -> int:
    """The size of the group of a seed; ``members`` is 0 for the usual mixture."""
    return members or (5 if seed % FIVE == FIVE - 1 else 3)


def make_simulation(seed: int, members: int, java: int) -> Simulation:
    """The simulation of a seed."""
    if java:
        return MixedSimulation(seed, java)
    return Simulation(seed, members_of(seed, members))


def run_seed(members: int, java: int, seed: int) -> tuple[str | None, dict[str, int]]:
    """Run a seed; :returns: the text of what it found, and what happened in it.

    :param members: the size of the group, or 0.
    :param java: how many of three members are Apache's.
    """
    simulation = make_simulation(seed, members, java)
    broken = broken_by(simulation)
    text = None if broken is None else f"seed {seed}, {len(simulation.machines)} members: {broken}"
    counts = simulation.ghosts.counts
    happened = {
        "elections": counts["elections"], "acknowledged sends": counts["acknowledged"],
        "faults": sum(simulation.faults.counts.values()), "cuts of logs": counts["cuts"],
        "events": simulation.world.count}
    if isinstance(simulation, MixedSimulation):
        happened["faults of Apache's (J2)"] = int(bool(simulation.apaches_fault))
        happened["leaders of Apache's that left a member behind"] = simulation.kills
    return text, happened


def run(seeds: range, members: int, java: int, processes: int) -> int:
    """Run seeds and say how it goes; :returns: how many found something."""
    return run_seeds(seeds, partial(run_seed, members, java), processes, PART)


def replay(seed: int, members: int, java: int) -> int:
    """Run one seed and print all of its steps; :returns: 1 if it found something."""
    simulation = make_simulation(seed, members, java)
    simulation.world.steps = []
    broken = broken_by(simulation)
    return print_replay(seed, simulation.world.steps, broken)


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
    parser = seeds_parser(__doc__, 20_000)
    parser.add_argument("--members", type=int, default=0, choices=(0, 3, 5))
    parser.add_argument("--java", type=int, default=0, choices=(0, 1, 2))
    parser.add_argument("--planted", nargs="*")
    args = parser.parse_args()
    if args.planted is not None:
        return int(find_planted(args.planted, args.first) > 0)
    if args.seed is not None:
        return replay(args.seed, args.members, args.java)
    seeds = range(args.first, args.first + args.seeds)
    return int(run(seeds, args.members, args.java, args.processes) > 0)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        raise SystemExit(main())
