"""Run the simulation of a consumer group over many seeds.

    python -m tests.long.client_simulation [SEEDS] [--first 0] [--processes 1]
    python -m tests.long.client_simulation --seed N

See tests/client/simulation.py. A seed that finds something is printed with its steps; the second
form replays it. Ends with status 1 when any seed found something; after five of them at once.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import time
from collections.abc import Iterator

from tests.client.simulation import ClientSimulation, SimulationFailed
from tests.long.simulation import discard_logs

__all__ = ["main", "run", "run_seed"]

#: Failing seeds that are printed.
FAILURES_MAX = 5
#: Seeds a process is given at a time, and seeds between two lines.
CHUNK = 10
LINE_SEEDS = 500


def run_seed(seed: int) -> tuple[str | None, int, int]:
    """Run a seed; :returns: the text of its fault, the messages handled, and the repetitions."""
    simulation = ClientSimulation(seed)
    try:
        simulation.run()
    except SimulationFailed as failure:
        return str(failure), 0, 0
    return None, len(simulation.promises.handled), simulation.promises.repeats


def results(seeds: range, processes: int) -> Iterator[tuple[str | None, int, int]]:
    """Run seeds, in order, in this process or in several."""
    if processes == 1:
        discard_logs()
        yield from map(run_seed, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(processes, discard_logs) as pool:
        yield from pool.imap(run_seed, seeds, CHUNK)


def run(seeds: range, processes: int) -> int:
    """Run seeds and say how it goes; :returns: how many found something."""
    begin = time.monotonic()
    failures = handled = repeats = 0
    for done, (text, handled_now, repeats_now) in enumerate(results(seeds, processes), 1):
        handled += handled_now
        repeats += repeats_now
        if text is not None:
            failures += 1
            print(f"{text}\n", flush=True)
            if failures >= FAILURES_MAX:
                break
        if done % LINE_SEEDS == 0 or done == len(seeds):
            print(f"{done:,} seeds in {time.monotonic() - begin:.0f} s: {failures} found "
                  f"something; {handled:,} messages handled, {repeats:,} of them again", flush=True)
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seeds", type=int, nargs="?", default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--processes", type=int, default=1)
    args = parser.parse_args()
    seeds = (range(args.first, args.first + args.seeds) if args.seed is None
             else range(args.seed, args.seed + 1))
    return int(run(seeds, max(args.processes, 1)) > 0)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        raise SystemExit(main())
