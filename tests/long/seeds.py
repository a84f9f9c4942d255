"""Runs many seeds of a simulation and prints how it goes: the part that such commands share."""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, Protocol

from tests.long.simulation import discard_logs
from tests.raft.simulation.world import InvariantBroken

__all__ = ["Result", "Simulated", "broken_by", "print_replay", "run_seeds", "seeds_parser", "timed"]

#: Failing seeds that are printed.
FAILURES_MAX: Final = 5
#: Seeds a process is given at a time.
CHUNK: Final = 50

#: The text of what a seed found or None, what happened in it, and its processor time in seconds.
Result = tuple[str | None, Mapping[str, int], float]
RunSeed = Callable[[int], tuple[str | None, Mapping[str, int]]]


class Simulated(Protocol):
    """The simulation of one seed."""

    def run(self) -> None:
        """Run to the end; :raises InvariantBroken: when a rule is broken."""


def seeds_parser(description: str | None, count: int) -> argparse.ArgumentParser:
    """Return a parser with the options that choose seeds; ``count`` seeds run by default."""
    parser = argparse.ArgumentParser(description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=count)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--processes", type=int, default=1)
    return parser


def broken_by(simulation: Simulated) -> InvariantBroken | None:
    """Run a simulation, and return what broke a rule; None if nothing did."""
    try:
        simulation.run()
    except InvariantBroken as broken:
        return broken
    return None


def print_replay(seed: int, steps: list[str], broken: InvariantBroken | None) -> int:
    """Print the steps of one seed and its result; :returns: 1 if a rule was broken."""
    print("\n".join(steps))
    print(f"seed {seed}: {broken or 'nothing is wrong'}")
    return int(broken is not None)


def timed(run_seed: RunSeed, seed: int) -> Result:
    """Run a seed."""
    begin = time.process_time()
    text, counts = run_seed(seed)
    return text, counts, time.process_time() - begin


def _results(seeds: range, run_seed: RunSeed, processes: int) -> Iterator[Result]:
    """Run seeds, in order, in this process or in several."""
    if processes <= 1:
        discard_logs()
        yield from map(partial(timed, run_seed), seeds)
        return
    with multiprocessing.get_context("spawn").Pool(processes, discard_logs) as pool:
        yield from pool.imap(partial(timed, run_seed), seeds,
                             max(1, min(CHUNK, len(seeds) // (4 * processes))))


def run_seeds(seeds: range, run_seed: RunSeed, processes: int, part: int) -> int:
    """Run seeds, print a line for each part of them; :returns: how many found something.

    :param run_seed: a function of a module: returns the text of what it found or None, and counts
        of what happened.
    :param part: the number of seeds between two lines.
    """
    begin = time.monotonic()
    totals: Counter[str] = Counter()
    failures = 0
    busy = 0.0
    for done, (text, counts, seconds) in enumerate(_results(seeds, run_seed, processes), 1):
        totals.update(counts)
        busy += seconds
        if text is not None:
            failures += 1
            print(text, flush=True)
        if done % part == 0 or done == len(seeds) or failures >= FAILURES_MAX:
            rate = done / max(busy, 1e-9)
            print(f"seeds {seeds.start:,} to {seeds.start + done - 1:,}: {failures} found "
                  f"something; {time.monotonic() - begin:.0f} s, {rate:.3g} seeds a second of a "
                  f"core; " + ", ".join(f"{count:,} {name}" for name, count in totals.items()),
                  flush=True)
        if failures >= FAILURES_MAX:
            break
    return failures
