"""Run the simulation of the message store over many seeds.

    python -m tests.long.simulation [--seeds 20000] [--first 0] [--processes 1]
    python -m tests.long.simulation --seed N

Each seed sends messages, lets time pass and stops, kills or cuts the power of a store on a disk
that forgets and fails, and compares all there is with a model; see broker/testing/simulation.py. A
seed that finds something is printed with its steps; the second form replays it, with what the
store logs. Ends with status 1 when any seed found something; after five of them at once.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import sys
import time
from collections.abc import Iterator

from twisted.logger import globalLogBeginner, textFileLogObserver

from twistmq.broker.testing.simulation import Simulation, SimulationFailed

#: Failing seeds that are printed.
FAILURES_MAX = 5
#: Seeds a process is given at a time.
CHUNK = 50
PROGRESS_SECONDS = 1.0


def run_seed(seed: int) -> str | None:
    """Run a seed; :returns: the text of its fault."""
    try:
        Simulation(seed).run()
    except SimulationFailed as failure:
        return str(failure)
    return None


def discard_logs() -> None:
    """Discard the log, because a failing disk makes stores log much."""
    globalLogBeginner.beginLoggingTo([], discardBuffer=True, redirectStandardIO=False)


def results(seeds: range, processes: int) -> Iterator[str | None]:
    """Run seeds, in order, in this process or in several."""
    if processes == 1:
        discard_logs()
        yield from map(run_seed, seeds)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, discard_logs) as pool:
        yield from pool.imap(run_seed, seeds, CHUNK)


def run(seeds: range, processes: int) -> int:
    """Run seeds and say how it goes; :returns: how many found something."""
    begin = shown = time.monotonic()
    done = failures = 0
    for text in results(seeds, processes):
        done += 1
        if text is not None:
            failures += 1
            print(f"\r{text}\n", flush=True)
            if failures >= FAILURES_MAX:
                break
        now = time.monotonic()
        if now - shown >= PROGRESS_SECONDS and sys.stderr.isatty():
            shown = now
            print(f"\r{done:,} of {len(seeds):,} seeds, {done / (now - begin):.0f} a second, "
                  f"{failures} failures", end="", file=sys.stderr, flush=True)
    elapsed = time.monotonic() - begin
    print(f"\r{done:,} seeds from {seeds.start} on in {elapsed:.0f} s, {done / elapsed:.0f} a "
          f"second: {failures} found something")
    return failures


def replay(seed: int) -> int:
    """Run one seed and print all of it."""
    globalLogBeginner.beginLoggingTo(
        [textFileLogObserver(sys.stdout)], discardBuffer=True, redirectStandardIO=False)
    simulation = Simulation(seed)
    simulation.on_step = lambda step: print(f"{len(simulation.steps):4}  {step}")
    print(simulation.settings)
    try:
        simulation.run()
    except SimulationFailed as failure:
        print(failure)
        return 1
    print(f"seed {seed} found nothing")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--processes", type=int, default=1)
    args = parser.parse_args()
    if args.seed is not None:
        return replay(args.seed)
    return int(run(range(args.first, args.first + args.seeds), max(args.processes, 1)) > 0)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        raise SystemExit(main())


__all__ = ["main", "replay", "run", "run_seed"]
