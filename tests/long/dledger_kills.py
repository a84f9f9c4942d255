"""Kill and stop the brokers of a group of three under load, and look for each acknowledged message.

    python -m tests.long.dledger_kills [PART]... [--rounds 20] [--seconds 20] [--ours n0,n1,n2]
        [--version 5.5.0] [--count 10000] [--program twistmq]
    python -m tests.long.dledger_kills soak --hours 24 --ours n1,n2 [--minutes 10] [--rate 10]
        [--pause 120,300]

Four writers with up to 16 sends in flight each, and a reader at each broker, work all the time.

    leader      the leader is killed in each round
    two         two of the three are killed at the same moment in each round
    all         all three are killed at the same moment in each round
    stop        the leader is stopped by SIGSTOP for 20 s in each round, and goes on by SIGCONT
    unwaited    as leader, with messages that do not wait (WAIT=false); in each round, messages
                that are not answered are sent to the leader until it is killed
    turns       each of the three leads until it has acknowledged 10,000 messages, twice: leaders
                are killed until all have led, and then DLedger's own tool transfers the lead to
                each of them. After each turn the data files of all members are compared, up to the
                lowest end that one of them shows
    soak        for --hours, a member at random is killed every 2 to 5 min (--pause), among --rate
                messages a second. Every --minutes their history is judged, and their files expire.
                The memory, descriptors and files of our brokers are printed, and may grow only
                within the bounds that tests/long/dledger_soak.py names. With --keep, the same
                command continues a run that was interrupted until it has taken --hours

A killed broker is started again over its store. Each part has a new group; brokers that are not in
``--ours`` are Apache's, of --version; those of 5.3.3 are stopped by SIGTERM in place of a kill,
which would cost them entries of queues. In the end the logs of the three must be equal within 30 s,
and the check of histories (tests/history/check.py) compares them with all sends and reads: nothing
that was acknowledged or shown may be lost, no offset may be given twice, and a message may be
stored as often as it was sent. With Apache's brokers in the group, the lead is given to a member at
random before a leader is killed, because ours notice the death of a leader first; and
tests/long/dledger_mixed.py says what is a fault of ours, and what is only counted. Without a part,
all parts but ``soak`` run. Ends with status 1 when there is a fault.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from tests.history.records import History, Outcome
from tests.interop.ledger_group import IDS, OurMember
from tests.interop.servers import wait_until
from tests.long.dledger_group import (
    PATIENCE_SECONDS,
    LoadedGroup,
    ProcessGroup,
    describe,
    make_parser,
    report,
    run_folder,
    silences,
)
from tests.long.dledger_load import TOPIC, Writer, now_ms, send_oneway
from tests.long.dledger_mixed import finish_mixed
from tests.long.dledger_soak import COMMON, run_soak
from twistmq.broker.testing import RawClient
from twistmq.protocol.errors import BrokerError

__all__ = ["PARTS", "Tally", "main"]

#: A death of the leader is noticed at once, as with ``twistmq up --group``.
_SETTINGS: Final = {"dledger.quick_failover": "true"}
#: The versions of Apache's brokers that lose entries of their queues in most kills.
_FORGETFUL_VERSIONS: Final = frozenset({"5.3.3"})
#: The messages without an answer in a round of ``unwaited``.
_ONEWAY_COUNT: Final = 1000
#: How long after the last message the logs may differ, s.
_EQUAL_SECONDS: Final = 30.0
#: The messages in a second of the part in which each member leads in turn.
_TURN_RATE: Final = 1000
#: The part in which each member leads in turn, and how many kills it may take until all have led.
TURNS: Final = "turns"
_TURN_KILLS_MAX: Final = 20
#: The part that runs for hours.
SOAK: Final = "soak"
#: How long the messages of a turn may take, s.
_TURN_SECONDS: Final = 300.0
#: How long a client that is patient waits for the answer of a broker that was stopped, s.
_PATIENT_SECONDS: Final = 60.0


class Rounds:
    """The faults of one part.

    :param chance: chooses the members.
    :param seconds: how long a leader is stopped.
    """

    def __init__(self, loaded: LoadedGroup, chance: random.Random, seconds: float) -> None:
        self._loaded, self._group = loaded, loaded.group
        self._chance, self._seconds = chance, seconds
        self._round = 0
        #: How often each member was killed as the leader.
        self.killed = Counter[str]()

    def leader(self) -> None:
        """Kill the leader."""
        self._kill([self._choose_leader()])

    def _choose_leader(self) -> str:
        """Return the leader that is killed next."""
        if not self._group.apaches:
            return self._group.wait_for_leader()
        member = self._chance.choice(IDS)
        self._group.give_lead(member)
        self._loaded.wait_for_sends()
        # The moment is random.
        time.sleep(self._chance.uniform(0, 0.5))
        self.killed[member] += 1
        return member

    def two(self) -> None:
        """Kill two members, which may be the leader and a follower or both followers."""
        self._kill(self._chance.sample(IDS, 2))

    def all(self) -> None:
        """Kill all members."""
        self._kill(list(IDS))

    def _kill(self, members: list[str]) -> None:
        self._group.kill_at_once(members)
        self._chance.shuffle(members)
        self._group.start(*members)

    def unwaited(self) -> None:
        """Kill the leader while it gets messages that it does not answer."""
        leader = self._choose_leader()
        self._round += 1
        send_oneway(self._group.members[leader].address, 100 + self._round, _ONEWAY_COUNT,
                    self._loaded.history)
        self._kill([leader])

    def stop(self) -> None:
        """Stop the leader for a while. It answers the requests of that time afterwards."""
        leader = self._group.wait_for_leader()
        address, pid = self._group.members[leader].address, self._group.members[leader].pid
        self._round += 1
        patient = Writer(200 + self._round, [lambda: address], self._loaded.history,
                         answer_seconds=_PATIENT_SECONDS)
        with RawClient(address, _PATIENT_SECONDS) as client:
            thread = threading.Thread(target=_send_patiently, args=(patient, client, address))
            os.kill(pid, signal.SIGSTOP)
            begin = time.monotonic()
            thread.start()
            try:
                self._loaded.wait_for_sends()
                # The stop has a given length.
                time.sleep(max(0.0, self._seconds - (time.monotonic() - begin)))
            finally:
                os.kill(pid, signal.SIGCONT)
                thread.join()


def _send_patiently(writer: Writer, client: RawClient, address: str) -> None:
    with suppress(BrokerError, OSError):
        writer.send_burst(client, address)


#: The parts, with the properties of their messages.
PARTS: Final[dict[str, tuple[Callable[[Rounds], None], dict[str, str]]]] = {
    "leader": (Rounds.leader, {}),
    "two": (Rounds.two, {}),
    "all": (Rounds.all, {}),
    "stop": (Rounds.stop, {}),
    "unwaited": (Rounds.unwaited, {"WAIT": "false"}),
}


def run_part(name: str, group: ProcessGroup, rounds: int, seconds: float, seed: int) -> int:
    """Run one part; :returns: its exit status."""
    act, properties = PARTS[name]
    chance = random.Random(seed)
    with LoadedGroup(group, properties=properties) as loaded:
        begin = now_ms()
        faults = Rounds(loaded, chance, seconds)
        for number in range(rounds):
            # The moment is random; nothing waits for it.
            time.sleep(chance.uniform(0.1, 1.0))
            started = now_ms()
            act(faults)
            try:
                loaded.recover()
            except AssertionError:
                print("\n".join(refusals(group)))
                raise
            print(f"{name} {number + 1}: after {(now_ms() - started) / 1000:.1f} s all members "
                  f"have all again, term {group.term()}", flush=True)
        ended = now_ms()
        found = _finish(loaded)
    killed = ", ".join(f"{member} {count}" for member, count in sorted(faults.killed.items()))
    return report(
        f"{name} {group.composition}",
        f"{rounds} rounds{killed and f' (killed as the leader: {killed})'} in "
        f"{(ended - begin) / 1000:.0f} s, the longest time without an "
        f"acknowledgement {silences(loaded.history, begin, ended)[0] / 1000:.1f} s, equal after "
        f"{loaded.equal_after_s:.1f} s; {describe(loaded.history)}", found)


def refusals(group: ProcessGroup) -> list[str]:
    """Return what members of ours refuse last of the entries that their leader sends.

    A broker of Apache's that was killed while it wrote a message keeps the part that it has, and
    may lead with it.
    """
    lines = []
    for member in sorted(group.ours_ids):
        replica = group.members[member]
        assert isinstance(replica, OurMember)
        lines += [f"{member} refuses an entry: {line}" for line in replica.log().splitlines()
                  if "cannot be stored" in line][-1:]
    return lines


def _finish(loaded: LoadedGroup) -> list[str]:
    """End the load, and judge it; what is only counted is printed."""
    if loaded.group.apaches:
        faults, notes = finish_mixed(loaded, [TOPIC])
        for note in notes:
            print(f"  {note}", flush=True)
    else:
        faults = loaded.finish()
    if loaded.equal_after_s > _EQUAL_SECONDS:
        faults.append(f"the logs were equal only after {loaded.equal_after_s:.1f} s")
    return faults


class Tally:
    """Counts the acknowledgements of each broker, by its address."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._next = len(history.sends)
        self._counts = Counter[str]()

    def read(self, address: str) -> int:
        """Return how many messages a broker has acknowledged since the count began."""
        # Writers append meanwhile.
        sends = self._history.sends[self._next :]
        self._next += len(sends)
        self._counts.update(send.node for send in sends if send.outcome is Outcome.OK)
        return self._counts[address]


class Turns:
    """The turns of a group in which each member leads.

    :param count: the messages of a turn.
    """

    def __init__(self, loaded: LoadedGroup, count: int) -> None:
        self._loaded, self._group, self._count = loaded, loaded.group, count

    def by_kills(self) -> None:
        """Kill the leader until each member has led."""
        waiting = set(IDS)
        for _ in range(_TURN_KILLS_MAX):
            leader = self._group.wait_for_leader()
            if leader in waiting:
                self._lead(leader, "after a kill")
                waiting.discard(leader)
            if not waiting:
                return
            self._group.kill(leader)
            self._loaded.wait_for_sends()
            self._group.start(leader)
            self._loaded.recover()
        raise AssertionError(f"{sorted(waiting)} did not lead in {_TURN_KILLS_MAX} kills")

    def by_transfers(self) -> None:
        """Let DLedger's tool give the lead to each member. A member that lags is refused."""
        leader = self._group.wait_for_leader()
        for member in sorted(IDS, key=lambda each: (each == leader, each)):
            with self._loaded.held():
                wait_until(f"the tool gives the lead to {member}", lambda to=member: (
                    self._group.transfer_by_tool(to) == to), PATIENCE_SECONDS)
            self._lead(member, "after a transfer")

    def _lead(self, member: str, why: str) -> None:
        """Wait until a member has acknowledged the messages of its turn."""
        address = self._group.members[member].address
        tally, begin = Tally(self._loaded.history), now_ms()
        wait_until(f"{member} acknowledges {self._count} messages",
                   lambda: tally.read(address) >= self._count, _TURN_SECONDS)
        seconds, end = (now_ms() - begin) / 1000, self._group.compare_committed()
        kind = "ours" if member in self._group.ours_ids else "Apache's"
        print(f"{member}, which is {kind}, has led {why}: {tally.read(address):,} messages in "
              f"{seconds:.0f} s, the files of all are equal up to {end:,}", flush=True)


def run_turns(group: ProcessGroup, count: int) -> int:
    """Let each member lead in turn; :returns: the exit status."""
    with LoadedGroup(group, rate=_TURN_RATE) as loaded:
        begin = now_ms()
        turns = Turns(loaded, count)
        turns.by_kills()
        turns.by_transfers()
        ended = now_ms()
        found = _finish(loaded)
    return report(f"{TURNS} {group.composition}", f"{2 * len(IDS)} turns of {count:,} messages in "
                  f"{(ended - begin) / 1000:.0f} s, equal after {loaded.equal_after_s:.1f} s; "
                  f"{describe(loaded.history)}", found)


def main() -> int:
    """The command line."""
    parser = make_parser(__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", choices=[*PARTS, TURNS, SOAK, []])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--count", type=int, default=10_000, help="messages of a turn (10,000)")
    parser.add_argument("--seconds", type=float, default=20, help="of a stop (20)")
    parser.add_argument("--ours", default=",".join(IDS), help="the brokers that are ours (all)")
    parser.add_argument("--version", default="5.5.0", help="of Apache's brokers (5.5.0)")
    parser.add_argument("--hours", type=float, default=24, help="of soak (24)")
    parser.add_argument("--minutes", type=float, default=10, help="of a period of soak (10)")
    parser.add_argument("--rate", type=float, default=10, help="messages a second of soak (10)")
    parser.add_argument("--pause", default="120,300", metavar="LEAST,MOST",
                        help="seconds between two kills of soak (120,300)")
    args = parser.parse_args()
    # The brokers end with this process, however it is told to end.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    status = 0
    for name in args.parts or [*PARTS, TURNS]:
        with run_folder(args.keep, name) as folder:
            # Without the quick fail-over, Apache's members stand as early as ours.
            group = ProcessGroup(
                folder, args.program, {} if name == TURNS else _SETTINGS, version=args.version,
                ours=args.ours.split(","), common=COMMON if name == SOAK else None,
                kills_apaches=args.version not in _FORGETFUL_VERSIONS)
            if name == TURNS:
                status |= run_turns(group, args.count)
            elif name == SOAK:
                least, most = map(float, args.pause.split(","))
                status |= run_soak(group, args.hours, args.minutes, args.rate, args.seed,
                                   (least, most))
            else:
                status |= run_part(name, group, args.rounds, args.seconds, args.seed)
    return status


if __name__ == "__main__":
    sys.exit(main())
