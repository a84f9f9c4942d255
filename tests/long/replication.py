"""A master and a slave in their own processes, killed, restarted and strained repeatedly.

    python -m tests.long.replication kill-slave [--pair A] [--times 50]
    python -m tests.long.replication kill-master [--pair A] [--times 50]
    python -m tests.long.replication restart [--times 20]
    python -m tests.long.replication cuts [--times 200]
    python -m tests.long.replication stall|slow|probe [--times 60]
    python -m tests.long.replication soak [--times 3600]
    python -m tests.long.replication slaves [--times 20000]

Pairs: A is ours and ours; B a master of 5.3.3 and C a slave of it; D and E the same of 4.9.4. Each
prints its counts; it ends with status 1 when a message was lost or stored twice, or the logs are
not the same in the end. ``--seconds`` bounds kills, restarts and cuts: then there are fewer.
``stall`` and the next three take so many seconds, ``slaves`` sends so many messages. The rows of
``tests/plugins/ha/ACCEPTANCE.md`` say what each shows.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.interop.replica_cuts import cut_and_promote
from tests.interop.replica_kills import PAIRS, kill_master, kill_slave, restart
from tests.interop.replica_strain import (
    GROWTH_MAX_KIB,
    Strain,
    four_slaves,
    probe,
    slow_peer,
    soak,
    stall,
)

#: How soon sends are answered with 0 again when a slave is back, seconds, by pair.
BACK_SECONDS = {"A": 6.0, "B": 11.0, "D": 11.0}
#: By name: the function, and its seconds or messages.
STRAINS: dict[str, tuple[Callable[[Path, int], Strain], int]] = {
    "stall": (stall, 60), "slow": (slow_peer, 60), "probe": (probe, 60),
    "soak": (soak, 3600), "slaves": (four_slaves, 20_000)}

#: Of ``stall``; the link is closed at 20 s, and a look each second at what is silent.
STALL_MOST = {"closed after s": 22, "KiB more": GROWTH_MAX_KIB}
#: Where other work changes the rate, the processor time of a message tells whether it has a cost.
RATE_LEAST, COST_MOST = 0.98, 1.02


def run(args: argparse.Namespace, folder: Path) -> tuple[str, list[str]]:
    """Run the command line; :returns: a line of figures, and problems."""
    if args.what in STRAINS:
        function, times = STRAINS[args.what]
        strain = function(folder, args.times or times)
        if args.what == "stall":
            for name, most in STALL_MOST.items():
                strain.demand(name, strain.figures[name], most)
            if strain.figures["processor time a message, of that before"] > COST_MOST and (
                    strain.figures["rate, of the one before"] < RATE_LEAST):
                strain.problems.append("the master is slower than before")
        return str(strain), strain.problems
    if args.what == "cuts":
        cut = cut_and_promote(folder, args.times or 200, args.seconds)
        return str(cut), cut.problems
    if args.what == "restart":
        outcome = restart(folder, args.times or 20, args.seconds)
    else:
        kill = kill_slave if args.what == "kill-slave" else kill_master
        outcome = kill(folder, args.pair, args.times or 50, args.seconds)
    problems = list(outcome.problems)
    if args.what == "kill-slave":
        late = [each for each in outcome.back_seconds
                if each > BACK_SECONDS.get(args.pair, BACK_SECONDS["B"])]
        problems += [f"{len(late)} times 0 came later than it should: {late}"] if late else []
    return str(outcome), problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("kill-slave", "kill-master", "restart", "cuts", *STRAINS))
    parser.add_argument("--pair", choices=sorted(PAIRS), default="A")
    parser.add_argument("--times", type=int)
    parser.add_argument("--seconds", type=float, default=3600)
    args = parser.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="twistmq-") as folder:
        line, problems = run(args, Path(folder))
    print(f"{args.what} {args.pair}, {time.monotonic() - begin:.0f} s: {line}")
    for problem in problems[:20]:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
