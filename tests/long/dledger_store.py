"""Run the simulation of a group whose members work on brokers' stores over many seeds.

    python -m tests.long.dledger_store [--seeds 1000] [--from 0] [--processes 1]
    python -m tests.long.dledger_store --seed N

See tests/plugins/dledger/store_simulation.py. A line is printed for each part of the seeds. A seed
that finds something is printed with the rule; the second form replays it with all its steps. Ends
with status 1 when a seed found something; after five seeds at once.
"""

from __future__ import annotations

import argparse
import contextlib

from tests.long.seeds import run_seeds
from tests.plugins.dledger.store_simulation import StoreSimulation
from tests.raft.simulation.world import InvariantBroken

__all__ = ["main", "run_seed"]

#: Seeds between two lines.
PART = 200


def run_seed(seed: int) -> tuple[str | None, dict[str, int]]:
    """Run a seed; :returns: the text of what it found, and what happened in it."""
    simulation = StoreSimulation(seed)
    text = None
    try:
        simulation.run()
    except InvariantBroken as broken:
        text = f"seed {seed}: {broken}"
    counts = simulation.ghosts.counts
    return text, {
        "elections": counts["elections"], "acknowledged sends": counts["acknowledged"],
        "faults": sum(simulation.faults.counts.values()), "cuts of logs": counts["cuts"],
        "ends in the middle of a change": simulation.cut_count}


def replay(seed: int) -> int:
    """Run one seed and print all of its steps; :returns: 1 if it found something."""
    simulation = StoreSimulation(seed)
    simulation.world.steps = []
    failure = None
    try:
        simulation.run()
    except InvariantBroken as broken:
        failure = broken
    print("\n".join(simulation.world.steps))
    print(f"seed {seed}: {failure or 'nothing is wrong'}")
    return int(failure is not None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1000)
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
