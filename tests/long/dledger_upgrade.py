"""Exchange the brokers of a group for brokers of another kind, one after the other, under load.

    python -m tests.long.dledger_upgrade [PART]... [--rounds 1] [--program twistmq]

    rolling     three brokers of Apache's 5.5.0 become ours, each over the store of its
                predecessor, and then Apache's again: the followers first, the leader last. The
                old broker is stopped, and the next one follows when the new one has everything.
                There may be one election in a step
    older       three brokers of Apache's 5.3.3 become ours in the same way, and stay
    twice       a broker of Apache's 5.3.3 loses entries of its queues when it is killed, and then
                gives offsets a second time. One of ours follows it: its queues keep their
                messages, and a line of its log names each queue with offsets that were given twice

In the first two, writers and readers work all the time, and the history is judged as in
``dledger_kills``. Ends with status 1 when there is a fault.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tests.interop.ledger_group import IDS, OurMember
from tests.interop.servers import wait_until
from tests.long.dledger_group import (
    LoadedGroup,
    ProcessGroup,
    describe,
    make_parser,
    report,
    run_folder,
    silences,
)
from tests.long.dledger_load import QUEUES, TOPIC, now_ms
from twistmq.broker.testing import RawClient
from twistmq.protocol.errors import BrokerError

__all__ = ["election_faults", "lost_entries", "main"]

PARTS: Final = ("rolling", "older", "twice")
#: Its brokers lose entries of their queues when they are killed.
_OLDER: Final = "5.3.3"
_SETTINGS: Final = {"dledger.quick_failover": "true"}
#: The elections in a step: an old leader gives the lead away, or dies.
ELECTIONS_MAX: Final = 1
#: The messages before and after the kill of a broker of 5.3.3.
_COUNT: Final = 200
_PATIENCE_SECONDS: Final = 90.0

#: The messages of the queues of a topic: the body at each (queue, offset).
Queues = dict[tuple[int, int], bytes]


def election_faults(step: str, elections: int) -> list[str]:
    """Return whether a step took too many elections."""
    return [f"{step}: {elections} elections"] if elections > ELECTIONS_MAX else []


def lost_entries(before: Queues, after: Queues) -> list[str]:
    """Return the messages that a queue has had and no longer shows at their offsets."""
    return [f"queue {place[0]} had {body!r} at {place[1]} and now has {after.get(place)!r}"
            for place, body in before.items() if after.get(place) != body]


def run_rolling(name: str, group: ProcessGroup, times: int) -> int:
    """Exchange all brokers a number of times; :returns: the exit status."""
    faults = []
    with LoadedGroup(group) as loaded:
        begin = now_ms()
        for _ in range(times):
            exchanged: set[str] = set()
            while len(exchanged) < len(IDS):
                leader = group.wait_for_leader()
                member = min(set(IDS) - exchanged, key=lambda each: (each == leader, each))
                faults += _exchange(loaded, group, member)
                exchanged.add(member)
        ended = now_ms()
        faults += loaded.finish()
    return report(
        name, f"{len(IDS) * times} exchanges in {(ended - begin) / 1000:.0f} s, the longest time "
        f"without an acknowledgement {silences(loaded.history, begin, ended)[0] / 1000:.1f} s; "
        f"{describe(loaded.history)}", faults)


def _exchange(loaded: LoadedGroup, group: ProcessGroup, member: str) -> list[str]:
    """Exchange one broker, and wait until it has everything; :returns: the faults."""
    role = "leader" if group.leader() == member else "follower"
    term = group.term()
    group.end(member)
    group.exchange(member)
    group.start(member)
    loaded.recover()
    kind = "ours" if member in group.ours_ids else "Apache's"
    elections = group.term() - term
    step = f"the {role} {member} is {kind} now"
    print(f"{step}: {elections} elections", flush=True)
    return election_faults(step, elections)


def run_twice(folder: Path, program: list[str]) -> int:
    """Kill a leader of 5.3.3, and let it lead again; :returns: the exit status."""
    ours = "n2"
    with ProcessGroup(folder, program, {}, version=_OLDER, ours={ours}) as group:
        group.start()
        group.give_lead("n0")
        _send_some(group, "n0", 0)
        group.wait_until_equal()
        before = _queues(group, ours)
        group.kill("n0")
        group.start("n0")
        group.wait_for_leader()
        group.give_lead("n0")
        given = _send_some(group, "n0", _COUNT)
        group.wait_until_equal()
        after = _queues(group, ours)
        follower = group.members[ours]
        assert isinstance(follower, OurMember)
        lines = [line for line in follower.log().splitlines() if "was given again" in line]
    twice = sum(1 for place in given if place in before)
    faults = lost_entries(before, after)
    if not twice:
        faults.append("no offset was given twice, so the run shows nothing: repeat it")
    elif not lines:
        faults.append("the follower does not say that offsets were given twice")
    for line in lines[:3]:
        print(line)
    return report(
        "twice", f"{len(before)} messages before the kill, {len(given)} after it, {twice} offsets "
        f"given twice; our follower shows {len(after)} messages, {len(lines)} lines", faults)


def _send_some(group: ProcessGroup, leader: str, first: int) -> Queues:
    """Send messages to the leader; :returns: those that were acknowledged."""
    sent: Queues = {}
    number = first

    def send() -> bool:
        nonlocal number
        try:
            with RawClient(group.members[leader].address, 5) as client:
                while number < first + _COUNT:
                    body = b"<0/0/%d>" % number
                    header = client.send(TOPIC, body, queue_id=number % QUEUES)
                    sent[header.queue_id, header.queue_offset] = body
                    number += 1
        except BrokerError:
            return False
        return True

    wait_until("messages are acknowledged", send, _PATIENCE_SECONDS)
    return sent


def _queues(group: ProcessGroup, member: str) -> Queues:
    """Return the messages that a member shows."""
    shown: Queues = {}
    with RawClient(group.members[member].address, 30) as client:
        for queue_id in range(QUEUES):
            offset = 0
            while messages := client.pull(TOPIC, offset, queue_id=queue_id):
                for message in messages:
                    shown[queue_id, message.queue_offset] = message.body
                offset = messages[-1].queue_offset + 1
    return shown


def main() -> int:
    """The command line."""
    parser = make_parser(__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", choices=[*PARTS, []])
    parser.add_argument("--rounds", type=int, default=1, help="there and back (1)")
    args = parser.parse_args()
    status = 0
    for name in args.parts or PARTS:
        with run_folder(args.keep, name) as folder:
            if name == "twice":
                status |= run_twice(folder, args.program)
            elif name == "older":
                status |= run_rolling(name, ProcessGroup(
                    folder, args.program, _SETTINGS, version=_OLDER, ours=()), 1)
            else:
                status |= run_rolling(name, ProcessGroup(
                    folder, args.program, _SETTINGS, ours=()), 2 * args.rounds)
    return status


if __name__ == "__main__":
    sys.exit(main())
