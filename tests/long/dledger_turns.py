"""Measure how long the reactors of a group of three brokers are held under load.

    python -m tests.long.dledger_turns [--seconds 30] [--behind 256] [--rate 2000]
        [--python PYTHON]

The brokers run with the Python of an installation, and tests/long/reactor_turns.py writes down the
turns of their reactors that last longer than 10 ms. The phases:

    push        the load alone, for --seconds
    catch-up    a follower is killed, --behind MiB are sent, and it is started again
    take-over   the leader is killed, and started again
    lead        the lead is given to each of the members in turn

A line for each phase and member has the longest turn, the longest processor time in a turn, and
the number of the turns whose processor time is above 10 ms; the starts of brokers do not count. On
a machine that does other work, a turn also lasts as long as another process has its core, so the
processor time decides: ends with status 1 when it is above 10 ms, or when the history of the load
has a fault (see ``dledger_kills``).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from tests.interop.ledger_group import IDS, LedgerMember
from tests.interop.servers import wait_until
from tests.long import reactor_turns
from tests.long.dledger_group import (
    LoadedGroup,
    ProcessGroup,
    ProgramMember,
    describe,
    make_parser,
    report,
    run_folder,
)

__all__ = ["Turn", "main", "phase_faults", "read_turns"]

#: The longest work of a turn, ms.
TURN_MAX_MS: Final = 10.0
_PATIENCE_SECONDS: Final = 400.0
_MIB: Final = 1 << 20


class Turn(NamedTuple):
    """A turn of a reactor that was longer than 10 ms.

    :param ended: Unix s.
    :param waits: how often its thread waited for something.
    :param losses: how often it lost its core.
    """

    ended: float
    length_ms: float
    cpu_ms: float
    waits: int
    losses: int


def read_turns(text: str, begin: float = 0.0) -> list[Turn]:
    """Return the turns of a file that ended after a moment."""
    turns = []
    for line in text.splitlines():
        ended, length, cpu, waits, losses = line.split(" ")
        if float(ended) >= begin:
            turns.append(Turn(float(ended), float(length), float(cpu), int(waits), int(losses)))
    return turns


def phase_faults(phase: str, member: str, turns: Iterable[Turn]) -> list[str]:
    """Return the turns in which a reactor worked for too long."""
    return [f"{phase}: the reactor of {member} worked for {turn.cpu_ms} ms in a turn of "
            f"{turn.length_ms} ms" for turn in turns if turn.cpu_ms > TURN_MAX_MS]


class TimedGroup(ProcessGroup):
    """A group whose reactors are watched."""

    def __init__(self, folder: Path, python: str) -> None:
        super().__init__(folder, [python], {
            "dledger.quick_failover": "true", "mappedFileSizeCommitLog": str(64 * _MIB)})
        self.python = python

    def make_ours(self, folder: Path, settings: dict[str, str]) -> LedgerMember:
        replica = super().make_ours(folder, settings)
        assert isinstance(replica, ProgramMember)
        replica.program = [self.python, reactor_turns.__file__, str(folder / "turns"),
                           str(TURN_MAX_MS)]
        folder.mkdir(parents=True, exist_ok=True)
        return replica

    def turns(self, member: str, begin: float) -> list[Turn]:
        """Return the long turns of a member after a moment."""
        return read_turns((self.folder / member / "turns").read_text(), begin)


class Phases:
    """The phases of a run, and their results.

    :param started: when each member was started last, Unix s; its turns before are of its start.
    """

    def __init__(self, group: TimedGroup) -> None:
        self._group = group
        self.started = dict.fromkeys(IDS, time.time())
        self._begin = time.time()
        self.faults: list[str] = []

    def begin(self) -> None:
        """Begin the next phase."""
        self._begin = time.time()

    def end(self, phase: str) -> None:
        """Print the long turns of the phase."""
        for member in IDS:
            turns = self._group.turns(member, max(self._begin, self.started[member]))
            self.faults += phase_faults(phase, member, turns)
            above = sum(turn.cpu_ms > TURN_MAX_MS for turn in turns)
            print(f"{phase}, {member}: {len(turns)} turns above 10 ms, {above} by work; the "
                  f"longest {max((turn.length_ms for turn in turns), default=0.0):.1f} ms, the "
                  f"most work {max((turn.cpu_ms for turn in turns), default=0.0):.1f} ms",
                  flush=True)


def run(group: TimedGroup, seconds: float, behind: int, rate: float) -> int:
    """Run all phases; :returns: the exit status."""
    with LoadedGroup(group, rate=rate) as loaded:
        phases = Phases(group)
        # This phase has a given length.
        time.sleep(seconds)
        phases.end("push")
        leader = group.wait_for_leader()
        follower = min(set(IDS) - {leader})
        group.kill(follower)
        end = _log_end(group, leader) + behind * _MIB
        wait_until(f"{behind} MiB more", lambda: _log_end(group, leader) >= end,
                   _PATIENCE_SECONDS)
        phases.begin()
        _start(group, phases, follower)
        loaded.recover()
        phases.end("catch-up")
        leader = group.wait_for_leader()
        phases.begin()
        group.kill(leader)
        loaded.wait_for_sends()
        phases.end("take-over")
        _start(group, phases, leader)
        loaded.recover()
        phases.begin()
        for member in IDS:
            group.give_lead(member)
            loaded.wait_for_sends()
        phases.end("lead")
        faults = loaded.finish()
    return report("turns", describe(loaded.history), faults + phases.faults)


def _start(group: TimedGroup, phases: Phases, member: str) -> None:
    group.start(member)
    phases.started[member] = time.time()


def _log_end(group: ProcessGroup, member: str) -> int:
    return int(group.rows(member).get("commitLogMaxOffset", 0))


def main() -> int:
    """The command line."""
    parser = make_parser(__doc__)
    parser.add_argument("--python", default=sys.executable, help="of the installation")
    parser.add_argument("--seconds", type=float, default=30, help="of the load alone (30)")
    parser.add_argument("--behind", type=int, default=256, metavar="MIB",
                        help="what a follower lacks (256)")
    parser.add_argument("--rate", type=float, default=2000, help="messages a second (2000)")
    args = parser.parse_args()
    with run_folder(args.keep, "turns") as folder:
        return run(TimedGroup(folder, args.python), args.seconds, args.behind, args.rate)


if __name__ == "__main__":
    sys.exit(main())
