"""Disturb the connections between the brokers of a group under load.

    python -m tests.long.dledger_links [PART]... [--seconds 60] [--links n0-n1,...]
        [--version 5.5.0] [--program twistmq]

The brokers reach each other through relays (dledger_relay.py). The groups have three members:

    cuts        each of the six directions between two members is cut alone for 60 s: messages must
                be taken again within 15 s, and there may be two elections in a cut and one
                after it
    weather     for 120 s, or twice --seconds, a tenth of all frames is lost, a twentieth arrives
                twice, and each takes 20 to 80 ms, so that they overtake each other: there must be
                an acknowledgement in each 10 s
    deposed     a leader of ours is cut off among two brokers of Apache's, of --version, takes
                messages on which nobody agrees, is killed, starts while it is still cut off, and
                comes back: its queues must be those of the log, and so must the messages that it
                shows as the leader. The same with a leader of Apache's, whose queues are only
                printed

and these five members, for --seconds each; every 10 s other connections are cut at random:

    halves      between two members and the other three
    ring        each member reaches two neighbours alone, so that each has another majority
    bridge      two members and two others do not reach each other, and the fifth one reaches all

Writers and readers work all the time, except in ``deposed``, and the history is judged as in
``dledger_kills``. Ends with status 1 when there is a fault.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from tests.history.records import History, Outcome
from tests.interop.ledger_group import IDS
from tests.interop.servers import wait_until
from tests.long.dledger_group import (
    PATIENCE_SECONDS,
    LoadedGroup,
    ProcessGroup,
    describe,
    make_parser,
    read_ledger,
    report,
    run_folder,
    silences,
)
from tests.long.dledger_load import TOPIC, Queues, now_ms, pull_queues, send_some
from tests.long.dledger_mixed import (
    apache_log,
    expected_queues,
    log_notes,
    queue_faults,
    read_queues,
)
from tests.long.dledger_relay import CALM, Direction, Relays, Weather
from twistmq.broker.testing import RawClient
from twistmq.protocol.errors import BrokerError, StoreDamaged

__all__ = ["LAYOUTS", "Cut", "cut_faults", "cuts_between", "lost_messages", "main",
           "quiet_windows", "shown_faults"]

PARTS: Final = ("cuts", "weather", "deposed", "halves", "ring", "bridge")
#: The members of the parts that change the layout of the connections.
FIVE: Final = ("n0", "n1", "n2", "n3", "n4")
#: How long a layout stays, s.
_LAYOUT_SECONDS: Final = 10.0
#: The messages of ``deposed`` before the cut, of the new leader, and after the return; those that
#: the leader takes while it is cut off, and how long it may take to answer them, s.
_COUNT: Final = 40
_LOST_COUNT: Final = 8
_LOST_SECONDS: Final = 8.0
#: How long the broker that was killed runs before it reaches the others again, s.
_ALONE_SECONDS: Final = 4.0
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

    def __init__(
        self, folder: Path, program: Sequence[str], seed: int, *, ids: Sequence[str] = IDS,
        ours: Collection[str] | None = None, version: str = "5.5.0",
    ) -> None:
        super().__init__(folder, program, {}, ids=ids, ours=ours, version=version)
        self.relays = Relays(self.ports, seed)

    def __enter__(self) -> RelayedGroup:
        self._stack.enter_context(self.relays)
        super().__enter__()
        return self

    def ports_for(self, member: str) -> Mapping[str, int]:
        return self.relays.ports_for(member)

    def cut(self, directions: Collection[Direction]) -> None:
        """Cut these directions, and no others."""
        for direction in self.relays.weather:
            self.relays.weather[direction] = Weather(is_cut=direction in directions)


def cuts_between(links: Collection[frozenset[str]], ids: Sequence[str]) -> set[Direction]:
    """Return the directions that are not among these links."""
    return {(source, target) for source in ids for target in ids
            if source != target and frozenset((source, target)) not in links}


def halves(members: Sequence[str]) -> set[frozenset[str]]:
    """Return the links within the first two members, and within the others."""
    return {frozenset((one, other)) for part in (members[:2], members[2:])
            for one in part for other in part if one != other}


def ring(members: Sequence[str]) -> set[frozenset[str]]:
    """Return the links of each member with the next one, and of the last with the first one."""
    return {frozenset(pair) for pair in zip(members, [*members[1:], members[0]], strict=True)}


def bridge(members: Sequence[str]) -> set[frozenset[str]]:
    """Return the links of a bridge: two pairs are linked by the first member only."""
    first, *others = members
    return {frozenset((first, other)) for other in others} | {
        frozenset(others[:2]), frozenset(others[2:])}


#: The links that are left, by the order of the members, which is drawn.
LAYOUTS: Final[dict[str, Callable[[Sequence[str]], set[frozenset[str]]]]] = {
    "halves": halves, "ring": ring, "bridge": bridge}


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


def run_layout(name: str, group: RelayedGroup, seconds: float, seed: int) -> int:
    """Change the layout of the connections again and again; :returns: the exit status."""
    chance, count = random.Random(seed), 0
    with LoadedGroup(group) as loaded:
        term, begin = group.term(), now_ms()
        while now_ms() < begin + 1000 * seconds:
            order = chance.sample(group.ids, len(group.ids))
            group.cut(cuts_between(LAYOUTS[name](order), group.ids))
            count += 1
            # A layout has a given length.
            time.sleep(_LAYOUT_SECONDS)
        end, elections = now_ms(), group.term() - term
        group.cut(())
        loaded.recover()
        faults = loaded.finish()
    return report(
        name, f"{count} layouts of five members in {(end - begin) / 1000:.0f} s, {elections} "
        f"elections, {group.relays.lost:,} frames lost, the longest time without an "
        f"acknowledgement {silences(loaded.history, begin, end)[0] / 1000:.1f} s; "
        f"{describe(loaded.history)}", faults)


def lost_messages(sent: Queues, log: Queues) -> list[str]:
    """Return the acknowledged messages that the log does not have at their offsets."""
    return [f"{body!r} was acknowledged at {offset} of queue {queue_id}, and the log has "
            f"{log.get((queue_id, offset))!r} there" for (queue_id, offset), body in sent.items()
            if log.get((queue_id, offset)) != body]


def shown_faults(shown: Queues, log: Queues) -> list[str]:
    """Return what a leader shows that is not what the log has, or does not show."""
    return [f"the message at {offset} of queue {queue_id} is {shown.get((queue_id, offset))!r}, "
            f"and {log.get((queue_id, offset))!r} in the log"
            for queue_id, offset in sorted({*shown, *log})
            if shown.get((queue_id, offset)) != log.get((queue_id, offset))]


def run_deposed(group: RelayedGroup, victim: str) -> list[str]:
    """Depose and kill a leader that has messages nobody else has; :returns: its faults.

    What the log of a victim of Apache's says is printed.
    """
    with group:
        group.start()
        # A member of ours takes no lead before it has an entry of its group.
        sent = send_some(group.members[group.wait_for_leader()].address, 0, _COUNT)
        group.give_lead(victim)
        sent |= send_some(group.members[victim].address, _COUNT, _COUNT)
        group.wait_until_equal()
        group.cut({direction for direction in group.relays.weather if victim in direction})
        _send_in_vain(group.members[victim].address)
        group.kill(victim)
        leader = group.wait_for_leader()
        sent |= send_some(group.members[leader].address, 2 * _COUNT, _COUNT)
        group.start(victim)
        # In this time it enters into its queues what it takes for the log.
        time.sleep(_ALONE_SECONDS)
        group.cut(())
        leader = group.wait_for_leader()
        sent |= send_some(group.members[leader].address, 3 * _COUNT, _COUNT)
        group.wait_until_equal()
        group.wait_for_equal_logs()
        group.give_lead(victim)
        wait_until(f"{victim} serves the queues", lambda: _is_served(
            group.members[victim].address), PATIENCE_SECONDS)
        entries = read_ledger(
            group.members[victim].log_folder, group.wait_for_equal_logs()).log.entries
        stored = {(int(entry.queue.rpartition("-")[2]), entry.offset): entry.body.encode()
                  for entry in entries}
        faults = lost_messages(sent, stored)
        try:
            faults += shown_faults(pull_queues(group.members[victim].address), stored)
        except BrokerError as error:
            faults.append(f"the queues of {victim} cannot be pulled: {error}")
        group.end(victim)
        if victim in group.apaches:
            print("\n".join(log_notes(victim, apache_log(group, victim))), flush=True)
        return faults + queue_faults(
            victim, read_queues(group.store_folder(victim), TOPIC), expected_queues(entries))


def _send_in_vain(address: str) -> None:
    """Send messages to a leader that is cut off, all at the same time."""
    def send(number: int) -> None:
        with suppress(BrokerError), RawClient(address, _LOST_SECONDS) as client:
            client.send(TOPIC, b"<1/0/%d>" % number + b"x" * 250)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(_LOST_COUNT)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _is_served(address: str) -> bool:
    """Return whether a broker serves reads, as a leader does, whatever it answers."""
    try:
        with RawClient(address, PATIENCE_SECONDS) as client:
            client.pull(TOPIC)
    except StoreDamaged:
        return True
    except BrokerError:
        return False
    return True


def run_both_deposed(folder: Path, program: Sequence[str], seed: int, version: str) -> int:
    """Depose a leader of ours, and one of Apache's; :returns: the exit status."""
    ours = "n2"
    results = {}
    for victim in (ours, "n0"):
        group = RelayedGroup(folder / victim, program, seed, ours={ours}, version=version)
        results[victim] = run_deposed(group, victim)
    for fault in results["n0"]:
        print(f"  Apache's: {fault}")
    return report(
        "deposed", f"a leader with {_LOST_COUNT} messages that nobody else had was killed and came "
        f"back among J+J+O: {len(results[ours])} faults of ours, {len(results['n0'])} of Apache's "
        f"{version}", results[ours])


def main() -> int:
    """The command line."""
    parser = make_parser(__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", choices=[*PARTS, []])
    parser.add_argument("--seconds", type=float, default=60,
                        help="of a cut, and of a part with five members (60)")
    every = [(source, target) for source in IDS for target in IDS if source != target]
    parser.add_argument("--links", default=",".join(map("-".join, every)),
                        help="the directions that are cut (all)")
    parser.add_argument("--version", default="5.5.0", help="of Apache's brokers (5.5.0)")
    args = parser.parse_args()
    links = [tuple(text.split("-")) for text in args.links.split(",")]
    status = 0
    for name in args.parts or PARTS:
        with run_folder(args.keep, name) as folder:
            if name == "deposed":
                status |= run_both_deposed(folder, args.program, args.seed, args.version)
                continue
            group = RelayedGroup(folder, args.program, args.seed,
                                 ids=FIVE if name in LAYOUTS else IDS)
            if name in LAYOUTS:
                status |= run_layout(name, group, args.seconds, args.seed)
            elif name == "cuts":
                status |= run_cuts(group, args.seconds, links)
            else:
                status |= run_weather(group, 2 * args.seconds)
    return status


if __name__ == "__main__":
    sys.exit(main())
