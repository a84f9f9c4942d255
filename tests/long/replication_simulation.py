"""Run the simulation of a master and its slave that lose their power over many seeds.

    python -m tests.long.replication_simulation [SEEDS] [--first 0]
    python -m tests.long.replication_simulation --seed N

See tests/plugins/ha/simulation.py. A seed that finds something is printed with its steps; the
second form replays it. Ends with status 1 when any seed found something; after five of them at
once.
"""

from __future__ import annotations

import argparse
import contextlib
import time

from tests.long.simulation import discard_logs
from tests.plugins.ha.simulation import PairFailed, PairSimulation

__all__ = ["main", "run"]

#: Failing seeds that are printed.
FAILURES_MAX = 5


def run(seeds: range) -> int:
    """Run seeds and say how it goes; :returns: how many found something."""
    begin = time.monotonic()
    done = failures = acknowledged = losses = 0
    for seed in seeds:
        simulation = PairSimulation(seed)
        done += 1
        try:
            simulation.run()
        except PairFailed as failure:
            failures += 1
            print(f"{failure}\n", flush=True)
            if failures >= FAILURES_MAX:
                break
        acknowledged += len(simulation.acknowledged)
        losses += sum("loses its power" in step for step in simulation.steps)
    print(f"{done:,} seeds from {seeds.start} on in {time.monotonic() - begin:.0f} s: "
          f"{acknowledged:,} messages acknowledged, {losses:,} losses of power, "
          f"{failures} found something")
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seeds", type=int, nargs="?", default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int)
    args = parser.parse_args()
    discard_logs()
    first = args.first if args.seed is None else args.seed
    count = args.seeds if args.seed is None else 1
    return int(run(range(first, first + count)) > 0)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        raise SystemExit(main())
