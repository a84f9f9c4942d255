"""Runs many seeds of a simulation and prints how it goes: the part that such commands share."""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from tests.long.simulation import discard_logs
from tests.raft.simulation.planted import PlantedBug, find_bug
from tests.raft.simulation.world import InvariantBroken

__all__ = ["Result", "Simulated", "broken_by", "find_bugs", "print_replay", "run_seeds",
           "seeds_parser", "timed"]

#: Failing seeds that are printed.
FAILURES_MAX: Final = 5
#: Seeds that a process runs at a time, at most.
CHUNK: Final = 20
#: New objects between two searches for garbage: a seed leaves a part of them behind, at its end.
GARBAGE: Final = 200_000

#: The text of what a seed found or None, and what happened in it.
Result = tuple[str | None, Mapping[str, int]]
RunSeed = Callable[[int], Result]


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


def find_bugs(bugs: Iterable[PlantedBug], names: Sequence[str], first: int) -> int:
    """Look for planted bugs and print a table; :returns: how many were not found.

    :param names: the names of the bugs; empty: all that seeds can find.
    """
    _prepare()
    missing = 0
    for bug in bugs:
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


def timed(run_seed: RunSeed, seeds: range) -> tuple[list[Result], float]:
    """Run seeds; :returns: their results, and the processor time of all together in seconds."""
    begin = time.process_time()
    results = [run_seed(seed) for seed in seeds]
    return results, time.process_time() - begin


def _prepare() -> None:
    """Discard the log, and let garbage collections be rare and skip the objects of the modules."""
    discard_logs()
    gc.freeze()
    gc.set_threshold(GARBAGE)


def _results(seeds: range, run_seed: RunSeed, processes: int
             ) -> Iterator[tuple[list[Result], float]]:
    """Run seeds, in order, in this process or in several."""
    size = max(1, min(CHUNK, len(seeds) // (4 * processes)))
    chunks = [seeds[first : first + size] for first in range(0, len(seeds), size)]
    if processes <= 1:
        _prepare()
        yield from map(partial(timed, run_seed), chunks)
        return
    with multiprocessing.get_context("spawn").Pool(processes, _prepare) as pool:
        yield from pool.imap(partial(timed, run_seed), chunks)


def run_seeds(seeds: range, run_seed: RunSeed, processes: int, part: int) -> int:
    """Run seeds, print a line for each part of them; :returns: how many found something.

    :param run_seed: a function of a module: returns the text of what it found or None, and counts
        of what happened.
    :param part: the number of seeds between two lines.
    """
    begin = time.monotonic()
    totals: Counter[str] = Counter()
    done = failures = 0
    busy = 0.0
    for results, seconds in _results(seeds, run_seed, processes):
        before, done = done, done + len(results)
        busy += seconds
        for text, counts in results:
            totals.update(counts)
            if text is not None:
                failures += 1
                print(text, flush=True)
        if done // part > before // part or done == len(seeds) or failures >= FAILURES_MAX:
            rate = done / max(busy, 1e-9)
            print(f"seeds {seeds.start:,} to {seeds.start + done - 1:,}: {failures} found "
                  f"something; {time.monotonic() - begin:.0f} s, {rate:.3g} seeds a second of a "
                  f"core; " + ", ".join(f"{count:,} {name}" for name, count in totals.items()),
                  flush=True)
        if failures >= FAILURES_MAX:
            break
    return failures
