"""Disturb the connections between the brokers of a group of three under load.

    python -m tests.long.dledger_links [PART]... [--seconds 60] [--links n0-n1,...]
        [--program twistmq]

The brokers reach each other through relays (dledger_relay.py).

    cuts        each of the six directions between two members is cut alone for 60 s: messages must
                be taken again within 15 s, and there may be two elections in a cut and one
                after it
    weather     for 120 s, or twice --seconds, a tenth of all frames is lost, a twentieth arrives
                twice, and each takes 20 to 80 ms, so that they overtake each other: there must be
                an acknowledgement in each 10 s

Writers and readers work all the time, and the history is judged as in ``dledger_kills``. Ends with
status 1 when there is a fault.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.history.records import History, Outcome
from tests.interop.ledger_group import IDS
from tests.long.dledger_group import (
    LoadedGroup,
    ProcessGroup,
    describe,
    make_parser,
    report,
    run_folder,
    silences,
)
from tests.long.dledger_load import now_ms
from tests.long.dledger_relay import CALM, Direction, Relays, Weather

__all__ = ["Cut", "cut_faults", "main", "quiet_windows"]

PARTS: Final = ("cuts", "weather")
#: The time within which messages are taken again, ms, and the elections that a cut may cause.
SILENCE_MAX_MS: Final = 15_000
ELECTIONS_MAX: Final = 2
#: The elections in the time after it: the member that was cut off returns.
LATE_ELECTIONS_MAX: Final = 1
#: In each of these windows of the other part there is an acknowledgement, ms.
WINDOW_MS: Final = 10_000
BAD_WEATHER: Final = Weather(lost=0.1, copied=0.05, delay_ms=50, spread_ms=30)
#: How long the group is watched after a cut, s.
_AFTER_SECONDS: Final = 10.0


class RelayedGroup(ProcessGroup):
    """A group whose members reach each other through relays."""

    def __init__(self, folder: Path, program: Sequence[str], seed: int) -> None:
        super().__init__(folder, program, {})
        self.relays = Relays(self.ports, seed)

    def __enter__(self) -> RelayedGroup:
        self._stack.enter_context(self.relays)
        super().__enter__()
        return self

    def ports_for(self, member: str) -> Mapping[str, int]:
        return self.relays.ports_for(member)


class Cut(NamedTuple):
    """What was seen in the cut of one direction, and after it.

    :param silence_ms: the longest time without an acknowledgement.
    :param elections: how much the term rose in the cut.
    :param late_elections: how much it rose after the cut.
    """

    direction: Direction
    silence_ms: float
    elections: int
    late_elections: int


def cut_faults(cut: Cut) -> list[str]:
    """Return which bounds a cut has broken."""
    name, faults = "-".join(cut.direction), []
    if cut.silence_ms > SILENCE_MAX_MS:
        faults.append(f"the cut of {name}: no message was taken for {cut.silence_ms / 1000:.1f} s")
    if cut.elections > ELECTIONS_MAX:
        faults.append(f"the cut of {name}: {cut.elections} elections")
    if cut.late_elections > LATE_ELECTIONS_MAX:
        faults.append(f"after the cut of {name}: {cut.late_elections} elections")
    return faults


def quiet_windows(history: History, begin: float, end: float) -> list[float]:
    """Return the begins of the windows of 10 s without an acknowledgement, ms after the begin."""
    count = int((end - begin) / WINDOW_MS)
    counts = [0] * count
    for send in history.sends:
        index = int((send.end - begin) // WINDOW_MS)
        if send.outcome is Outcome.OK and 0 <= index < count:
            counts[index] += 1
    return [index * WINDOW_MS for index in range(count) if not counts[index]]


def run_cuts(group: RelayedGroup, seconds: float, links: Sequence[Direction]) -> int:
    """Cut each direction alone; :returns: the exit status."""
    faults = []
    with LoadedGroup(group) as loaded:
        for direction in links:
            loaded.recover()
            cut = _cut(loaded, group, direction, seconds)
            faults += cut_faults(cut)
            print(f"cut of {'-'.join(direction)}, {seconds:.0f} s: the longest time without an "
                  f"acknowledgement {cut.silence_ms / 1000:.1f} s, {cut.elections} elections, "
                  f"{cut.late_elections} after it", flush=True)
        faults += loaded.finish()
    return report("cuts", f"{len(links)} of them; {describe(loaded.history)}", faults)


def _cut(
    loaded: LoadedGroup, group: RelayedGroup, direction: Direction, seconds: float
) -> Cut:
    terms, begin = [group.term()], now_ms()
    leader = group.wait_for_leader()
    print(f"{leader} leads in term {terms[0]}", flush=True)
    group.relays.weather[direction] = Weather(is_cut=True)
    # The cut has a given length.
    time.sleep(seconds)
    terms.append(group.term())
    group.relays.weather[direction] = CALM
    time.sleep(_AFTER_SECONDS)
    terms.append(group.term())
    loaded.wait_for_sends()
    return Cut(direction, silences(loaded.history, begin, now_ms())[0], terms[1] - terms[0],
               terms[2] - terms[1])


def run_weather(group: RelayedGroup, seconds: float) -> int:
    """Disturb all directions; :returns: the exit status."""
    with LoadedGroup(group) as loaded:
        term, begin = group.term(), now_ms()
        for direction in group.relays.weather:
            group.relays.weather[direction] = BAD_WEATHER
        time.sleep(seconds)
        end, elections = now_ms(), group.term() - term
        for direction in group.relays.weather:
            group.relays.weather[direction] = CALM
        faults = loaded.finish()
    faults += [f"no acknowledgement in the 10 s from {window / 1000:.0f} s on"
               for window in quiet_windows(loaded.history, begin, end)]
    sends = [send for send in loaded.history.sends
             if send.outcome is Outcome.OK and begin <= send.end <= end]
    return report(
        "weather", f"{seconds:.0f} s, {group.relays.lost:,} frames lost, "
        f"{group.relays.passed:,} passed, {elections} elections, "
        f"{len(sends) / seconds:.0f} messages a second, the longest time without an "
        f"acknowledgement {silences(loaded.history, begin, end)[0] / 1000:.1f} s; "
        f"{describe(loaded.history)}", faults)


def main() -> int:
    """The command line."""
    parser = make_parser(__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", choices=[*PARTS, []])
    parser.add_argument("--seconds", type=float, default=60, help="of a cut (60)")
    every = [(source, target) for source in IDS for target in IDS if source != target]
    parser.add_argument("--links", default=",".join(map("-".join, every)),
                        help="the directions that are cut (all)")
    args = parser.parse_args()
    links = [tuple(text.split("-")) for text in args.links.split(",")]
    status = 0
    for name in args.parts or PARTS:
        with run_folder(args.keep, name) as folder:
            group = RelayedGroup(folder, args.program, args.seed)
            status |= (run_cuts(group, args.seconds, links) if name == "cuts"
                       else run_weather(group, 2 * args.seconds))
    return status


if __name__ == "__main__":
    sys.exit(main())
