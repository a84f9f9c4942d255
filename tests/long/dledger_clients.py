"""Run the simulation of clients of a group of brokers over many seeds.

    python -m tests.long.dledger_clients [--seeds 100] [--from 0] [--processes 1]
    python -m tests.long.dledger_clients --seed N

See tests/plugins/dledger/client_simulation.py. A line is printed for each part of the seeds. A seed
that finds something is printed with the rule; the second form replays it with its steps. Ends with
status 1 when a seed found something; after five seeds at once.
"""

from __future__ import annotations

import contextlib

from tests.long.seeds import broken_by, print_replay, run_seeds, seeds_parser
from tests.long.simulation import discard_logs
from tests.plugins.dledger.client_simulation import ClientGroupSimulation

__all__ = ["main", "run_seed"]

#: Seeds between two lines.
PART = 25


def run_seed(seed: int) -> tuple[str | None, dict[str, int]]:
    """Run a seed; :returns: the text of what it found, and what happened in it."""
    simulation = ClientGroupSimulation(seed)
    broken = broken_by(simulation)
    text = None if broken is None else f"seed {seed}: {broken}"
    counts = simulation.counts
    return text, {
        "masters": counts.elections, "acknowledged sends": counts.acknowledged,
        "handled messages": counts.handled, "repetitions": counts.repeats,
        "kills": counts.kills, "kills of the leader": counts.leader_kills,
        "losses of power": counts.power_losses, "cuts of links": counts.cuts,
        "transfers of the lead": counts.transfers}


def replay(seed: int) -> int:
    """Run one seed and print its steps; :returns: 1 if it found something."""
    discard_logs()
    simulation = ClientGroupSimulation(seed)
    broken = broken_by(simulation)
    return print_replay(seed, simulation.steps, broken)


def main() -> int:
    args = seeds_parser(__doc__, 100).parse_args()
    if args.seed is not None:
        return replay(args.seed)
    seeds = range(args.first, args.first + args.seeds)
    return int(run_seeds(seeds, run_seed, args.processes, PART) > 0)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        raise SystemExit(main())
