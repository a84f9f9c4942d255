"""Run the simulation of three whole brokers of a group over many seeds.

    python -m tests.long.dledger_kernels [--seeds 200] [--from 0] [--processes 1]
    python -m tests.long.dledger_kernels --seed N

See tests/plugins/dledger/kernel_simulation.py. A line is printed for each part of the seeds. A seed
that finds something is printed with the rule; the second form replays it with its faults. Ends with
status 1 when a seed found something; after five seeds at once.
"""

from __future__ import annotations

import argparse
import contextlib

from tests.long.seeds import run_seeds
from tests.long.simulation import discard_logs
from tests.plugins.dledger.kernel_simulation import KernelSimulation
from tests.raft.simulation.world import InvariantBroken

__all__ = ["main", "run_seed"]

#: Seeds between two lines.
PART = 50


def run_seed(seed: int) -> tuple[str | None, dict[str, int]]:
    """Run a seed; :returns: the text of what it found, and what happened in it."""
    simulation = KernelSimulation(seed)
    text = None
    try:
        simulation.run()
    except InvariantBroken as broken:
        text = f"seed {seed}: {broken}"
    counts = simulation.counts
    return text, {
        "masters": counts.elections, "acknowledged sends": counts.acknowledged,
        "delayed messages": counts.delayed, "kills": counts.kills, "cuts of links": counts.cuts}


def replay(seed: int) -> int:
    """Run one seed and print its faults; :returns: 1 if it found something."""
    discard_logs()
    simulation = KernelSimulation(seed)
    failure = None
    try:
        simulation.run()
    except InvariantBroken as broken:
        failure = broken
    print("\n".join(simulation.steps))
    print(f"seed {seed}: {failure or 'nothing is wrong'}")
    return int(failure is not None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--processes", type=int, default=1)
    args = parser.parse_args()
    if args.seed is not None:
        return replay(args.seed)
    seeds = range(args.first, args.first + args.seeds)
    return int(run_seeds(seeds, run_seed, args.processes, PART) > 0)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        raise SystemExit(main())
