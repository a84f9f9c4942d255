"""Run the simulation of three whole brokers of a group over many seeds.

    python -m tests.long.dledger_kernels [--seeds 200] [--from 0] [--processes 1]
    python -m tests.long.dledger_kernels --seed N
    python -m tests.long.dledger_kernels --planted [NAME]... [--from 0]

See tests/plugins/dledger/kernel_simulation.py. A line is printed for each part of the seeds. A seed
that finds something is printed with the rule; the second form replays it with its faults. The third
form prints after how many seeds each planted bug was found. Ends with status 1 when a seed found
something, or a planted bug was not found; after five seeds at once.
"""

from __future__ import annotations

import contextlib

from tests.long.seeds import broken_by, find_bugs, print_replay, run_seeds, seeds_parser
from tests.long.simulation import discard_logs
from tests.plugins.dledger.kernel_simulation import KernelSimulation
from tests.plugins.dledger.planted import KERNEL_PLANTED

__all__ = ["find_planted", "main", "run_seed"]

#: Seeds between two lines.
PART = 50


def run_seed(seed: int) -> tuple[str | None, dict[str, int]]:
    """Run a seed; :returns: the text of what it found, and what happened in it."""
    simulation = KernelSimulation(seed)
    broken = broken_by(simulation)
    text = None if broken is None else f"seed {seed}: {broken}"
    counts, derived = simulation.counts, simulation.derived.counts
    return text, {
        "masters": counts.elections, "acknowledged sends": counts.acknowledged,
        "delayed messages": counts.delayed, "timed messages": counts.timed,
        "messages sent back": derived["sent back"], "popped messages": derived["popped"],
        "transactions": derived["transactions"], "kills": counts.kills,
        "kills of the leader": counts.leader_kills, "cuts of links": counts.cuts}


def replay(seed: int) -> int:
    """Run one seed and print its faults; :returns: 1 if it found something."""
    discard_logs()
    simulation = KernelSimulation(seed)
    broken = broken_by(simulation)
    return print_replay(seed, simulation.steps, broken)


def find_planted(names: list[str], first: int) -> int:
    """Look for the planted bugs and print a table; :returns: how many were not found."""
    return find_bugs(KERNEL_PLANTED, names, first)


def main() -> int:
    parser = seeds_parser(__doc__, 200)
    parser.add_argument("--planted", nargs="*")
    args = parser.parse_args()
    if args.planted is not None:
        return int(find_planted(args.planted, args.first) > 0)
    if args.seed is not None:
        return replay(args.seed)
    seeds = range(args.first, args.first + args.seeds)
    return int(run_seeds(seeds, run_seed, args.processes, PART) > 0)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        raise SystemExit(main())
