"""Set the wall clock of each broker of a group of three forward and back under load.

    python -m tests.long.dledger_clocks [--seconds 20] [--hours 1] [--python PYTHON]

The brokers run with the Python of an installation, and tests/long/shifted_clock.py moves the wall
clock of one of them while it runs: --hours ahead for --seconds, as far behind for as long, and to
the right time again. This is done with each broker in turn, the leader included, under the load of
``dledger_kills``. A line for each jump has the elections and the longest time without an
acknowledgement. Ends with status 1 when there was an election, when no message was taken for five
seconds, or when the history of the load has a fault.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

from tests.interop.ledger_group import IDS, LedgerMember
from tests.long import shifted_clock
from tests.long.dledger_group import (
    LoadedGroup,
    ProcessGroup,
    ProgramMember,
    describe,
    make_parser,
    report,
    run_folder,
    silences,
)
from tests.long.dledger_load import now_ms

__all__ = ["Jump", "jump_faults", "main"]

#: The longest time without an acknowledgement, ms.
SILENCE_MAX_MS: Final = 5_000
_HOUR_MS: Final = 3_600_000
#: The part of a jump that has to be seen in the store times; the run itself takes time.
_SEEN: Final = 0.5


class Jump(NamedTuple):
    """What was seen after a jump of the clock of a member.

    :param hours: by which the clock was ahead after it.
    :param elections: how much the term rose.
    """

    member: str
    hours: float
    elections: int
    silence_ms: float


def jump_faults(jump: Jump) -> list[str]:
    """Return which bounds a jump has broken."""
    name = f"the clock of {jump.member} {jump.hours:+g} h"
    faults = [] if not jump.elections else [f"{name}: {jump.elections} elections"]
    if jump.silence_ms > SILENCE_MAX_MS:
        faults.append(f"{name}: no message was taken for {jump.silence_ms / 1000:.1f} s")
    return faults


class ClockGroup(ProcessGroup):
    """A group whose clocks can be shifted."""

    def __init__(self, folder: Path, python: str) -> None:
        super().__init__(folder, [python], {"dledger.quick_failover": "true"})
        self._python = python

    def make_ours(self, folder: Path, settings: dict[str, str]) -> LedgerMember:
        replica = super().make_ours(folder, settings)
        assert isinstance(replica, ProgramMember)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "shift").write_text("0")
        replica.program = [self._python, shifted_clock.__file__, str(folder / "shift")]
        return replica

    def shift(self, member: str, hours: float) -> None:
        """Set the clock of a member this far ahead of the right time."""
        (self.folder / member / "shift").write_text(str(3600 * hours))
        os.kill(self.members[member].pid, signal.SIGRTMIN)


def run(group: ClockGroup, seconds: float, hours: float) -> int:
    """Shift the clock of each member; :returns: the exit status."""
    faults = []
    with LoadedGroup(group) as loaded:
        for member in IDS:
            for ahead in (hours, -hours, 0.0):
                leader, term, begin = group.wait_for_leader(), group.term(), now_ms()
                group.shift(member, ahead)
                # The jump is watched for a given time.
                time.sleep(seconds)
                jump = Jump(member, ahead, group.term() - term,
                            silences(loaded.history, begin, now_ms())[0])
                faults += jump_faults(jump)
                print(f"{member} {ahead:+g} h while {leader} leads: {jump.elections} elections, "
                      f"the longest time without an acknowledgement "
                      f"{jump.silence_ms / 1000:.1f} s", flush=True)
                loaded.recover()
        faults += loaded.finish()
    ahead_ms = max(entry.stored for log in loaded.history.logs.values()
                   for entry in log.entries) - 1000 * time.time()
    if ahead_ms < _SEEN * hours * _HOUR_MS:
        faults.append("no message was stored by a leader whose clock was ahead")
    return report("clocks", f"the latest store time is {ahead_ms / _HOUR_MS:+.2f} h from the end; "
                  f"{describe(loaded.history)}", faults)


def main() -> int:
    """The command line."""
    parser = make_parser(__doc__)
    parser.add_argument("--python", default=sys.executable, help="of the installation")
    parser.add_argument("--seconds", type=float, default=20, help="after each jump (20)")
    parser.add_argument("--hours", type=float, default=1, help="of each jump (1)")
    args = parser.parse_args()
    with run_folder(args.keep, "clocks") as folder:
        return run(ClockGroup(folder, args.python), args.seconds, args.hours)


if __name__ == "__main__":
    sys.exit(main())
