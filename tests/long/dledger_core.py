"""Run the simulation of a Raft group over many seeds, or look for the planted bugs.

    python -m tests.long.dledger_core [--seeds 20000] [--from 0] [--members 3|5] [--java 0|1|2]
                                      [--processes 1] [--compiled]
    python -m tests.long.dledger_core --seed N [--members 3|5] [--java 0|1|2]
    python -m tests.long.dledger_core --planted [NAME]...
    python -m tests.long.dledger_core --digest [--seeds 20000] [--from 0]

See tests/raft/simulation/simulation.py. Every fifth seed has five members, unless ``--members``
says otherwise; ``--java`` is the number of members of Apache's in groups of three (see
java_machine.py there). A line is printed for each part of the seeds. A seed that finds something
is printed with the invariant; the second form replays it with all its steps. The third form prints
after how many seeds each planted bug was found. The fourth form prints a digest of all the steps of
the seeds. ``--compiled`` compiles the core and the simulation first, which takes a minute and more
than doubles the speed; a few seeds have to take the same steps with and without it. Ends with
status 1 when a seed found something, or a planted bug was not found; after five seeds at once. Ends
with status 2 when the compilation fails, or changes the steps of a seed.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.long.compilation import CompilationFailed, compile_core, run_compiled
from tests.long.seeds import broken_by, find_bugs, print_replay, run_seeds, seeds_parser
from tests.raft.simulation.java_machine import MixedSimulation
from tests.raft.simulation.planted import PLANTED
from tests.raft.simulation.simulation import Simulation

__all__ = ["digest", "main", "replay", "run", "run_seed"]

#: Seeds between two lines.
PART = 5000
#: One seed in so many has five members.
FIVE = 5
#: Seeds that take the same steps with and without compilation: three with five members.
SAME = 15


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


def digest(seeds: Sequence[int], members: int, java: int) -> str:
    """Run seeds; :returns: a digest of all their steps and results, in hexadecimal."""
    total = hashlib.sha256()
    for seed in seeds:
        simulation = make_simulation(seed, members, java)
        simulation.world.steps = []
        broken = broken_by(simulation)
        total.update("\n".join([*simulation.world.steps, f"seed {seed}: {broken}\n"]).encode())
    return total.hexdigest()


def run_in_compiled(args: argparse.Namespace) -> int:
    """Compile the core, and let another process run the seeds; :returns: its status."""
    members, java = args.members, args.java
    group = ["--members", str(members), "--java", str(java)]
    with TemporaryDirectory(prefix="twistmq-core-") as name:
        folder = Path(name)
        try:
            compile_core(folder)
        except CompilationFailed as failure:
            print(f"the core cannot be compiled: {failure}", file=sys.stderr)
            return 2
        first = ["--from", str(args.first)]
        compiled = run_compiled(folder, __spec__.name, [
            "--digest", "--seeds", str(SAME), *first, *group], quiet=True)
        if compiled.stdout.split() != [digest(range(args.first, args.first + SAME), members, java)]:
            print(f"the compiled core takes other steps: {compiled.stdout}", file=sys.stderr)
            return 2
        print("the core is compiled, and takes the same steps", flush=True)
        return run_compiled(folder, __spec__.name, [
            "--seeds", str(args.seeds), "--processes", str(args.processes), *first, *group]
        ).returncode


def find_planted(names: list[str], first: int) -> int:
    """Look for the planted bugs and print a table; :returns: how many were not found."""
    return find_bugs(PLANTED, names, first)


def main() -> int:
    parser = seeds_parser(__doc__, 20_000)
    parser.add_argument("--members", type=int, default=0, choices=(0, 3, 5))
    parser.add_argument("--java", type=int, default=0, choices=(0, 1, 2))
    parser.add_argument("--planted", nargs="*")
    parser.add_argument("--digest", action="store_true")
    parser.add_argument("--compiled", action="store_true")
    args = parser.parse_args()
    if args.planted is not None:
        return int(find_planted(args.planted, args.first) > 0)
    if args.seed is not None:
        return replay(args.seed, args.members, args.java)
    seeds = range(args.first, args.first + args.seeds)
    if args.digest:
        print(digest(seeds, args.members, args.java))
        return 0
    if args.compiled:
        return run_in_compiled(args)
    return int(run(seeds, args.members, args.java, args.processes) > 0)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        raise SystemExit(main())
