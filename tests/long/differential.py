"""Feed the same requests to a broker of compiled modules and to one of plain Python.

    python -m tests.long.differential [--requests 1000000] [--seed 1] [--first 0]

Requests are made from a seed: sends of every kind, in both encodings, with good and odd properties,
batches, pulls, pops, offsets, transactions, and captures of Apache's clients with bytes changed.
They come in reads of one to sixty-four, cut anywhere, on several connections, sends of some of them
as one batch, while a clock that only the run moves goes on. Two processes of one installation run
them, one of them without the compiled modules; each tells the digest of all replies after every
thousand requests, and the digests of the store's files after every round. The first that differs
ends the run with status 1; ``--first`` begins with its round. The installation must be compiled,
otherwise the status is 2.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from pathlib import Path
from typing import Any

#: Requests from one store to the next, and from one digest to the next.
ROUND, PART = 20_000, 1000
#: Frames of one read at most.
READ_MAX = 64
CONNECTIONS = 4
PATIENCE_SECONDS = 600.0


def use_plain_python() -> None:
    """Import twistmq's modules from their sources from now on, also where they are compiled."""
    source = FileFinder.path_hook((SourceFileLoader, SOURCE_SUFFIXES))

    def find(path: str) -> Any:
        if "twistmq" not in Path(path).parts:
            raise ImportError
        return source(path)

    sys.path_hooks.insert(0, find)
    sys.path_importer_cache.clear()


def half(seed: int, first: int, requests: int) -> Iterator[str]:
    """Run the requests; :returns: the digests, a line each."""
    from tests.long.differential_requests import requests_of
    from tests.long.differential_round import Round

    for number in range(first, first + max(requests // ROUND, 1)):
        chance = random.Random(f"{seed}/{number}")
        this = Round(chance, CONNECTIONS)
        total = min(ROUND, requests)
        made = requests_of(chance, this.box)
        done = said = 0
        while done < total:
            count = min(chance.randint(1, READ_MAX), total - done)
            this.read([next(made) for _ in range(count)])
            done += count
            if done - said >= PART or done == total:
                yield f"round {number}, {done} requests: {this.digest()}"
                said = done
        yield f"round {number}, store: {this.end()}"


def start_half(plain: bool, arguments: argparse.Namespace) -> subprocess.Popen[str]:
    """Return a process for one half."""
    command = [sys.executable, "-m", "tests.long.differential",
               "--half", "plain" if plain else "compiled", "--seed", str(arguments.seed),
               "--first", str(arguments.first), "--requests", str(arguments.requests)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                            env={**os.environ, "PYTHONHASHSEED": "0", "TZ": "UTC"})


def run_half(kind: str, arguments: argparse.Namespace) -> int:
    """Print the digests of this process."""
    if kind == "plain":
        use_plain_python()
    from twisted.logger import globalLogBeginner

    from twistmq.broker.compiled import COMPILED_MODULES

    globalLogBeginner.beginLoggingTo([], discardBuffer=True, redirectStandardIO=False)
    for name in COMPILED_MODULES:
        file = import_module(name).__file__ or ""
        assert file.endswith(".py") == (kind == "plain"), file
    for line in half(arguments.seed, arguments.first, arguments.requests):
        print(line, flush=True)
    return 0


def compare(halves: Sequence[subprocess.Popen[str]]) -> tuple[int, str]:
    """Read the digests of both; :returns: how many were equal, and the first difference or ""."""
    count = 0
    one, other = [half.stdout or () for half in halves]
    for ours, theirs in zip(one, other, strict=False):
        if ours != theirs:
            return count, f"compiled: {ours}plain:    {theirs}"
        count += 1
        if "store" in ours and sys.stdout.isatty():
            print(ours.partition(":")[0], end="\r", flush=True)
    statuses = [half.wait(PATIENCE_SECONDS) for half in halves]
    return count, "" if statuses == [0, 0] else f"the processes ended with {statuses}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the first round")
    parser.add_argument("--half", choices=("compiled", "plain"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.half:
        return run_half(arguments.half, arguments)
    from twistmq.broker.compiled import describe_build

    if "compiled" not in describe_build():
        print(f"there is only one kind of modules to run: this installation is {describe_build()}")
        return 2
    begin = time.monotonic()
    halves = [start_half(plain, arguments) for plain in (False, True)]
    try:
        equal, difference = compare(halves)
    finally:
        for each in halves:
            each.kill()
            each.wait()
            if each.stdout:
                each.stdout.close()
    print(f"{arguments.requests:,} requests in {time.monotonic() - begin:.0f} s, {equal:,} digests "
          f"of replies and stores are equal")
    if difference:
        print(difference)
    return int(bool(difference) or not equal)


if __name__ == "__main__":
    raise SystemExit(main())
