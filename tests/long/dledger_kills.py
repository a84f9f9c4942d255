"""Kill and stop the brokers of a group of three under load, and look for each acknowledged message.

    python -m tests.long.dledger_kills [PART]... [--rounds 20] [--seconds 20] [--ours n0,n1,n2]
        [--program twistmq]

Four writers with up to 16 sends in flight each, and a reader at each broker, work all the time.

    leader      the leader is killed in each round
    two         two of the three are killed at the same moment in each round
    all         all three are killed at the same moment in each round
    stop        the leader is stopped by SIGSTOP for 20 s in each round, and goes on by SIGCONT
    unwaited    as leader, with messages that do not wait (WAIT=false); in each round, messages
                that are not answered are sent to the leader until it is killed

A killed broker is started again over its store. Each part has a new group; brokers that are not in
``--ours`` are Apache's 5.5.0. In the end the logs of the three must be equal, and the
check of histories (tests/history/check.py) compares them with all sends and reads: nothing that was
acknowledged or shown may be lost, no offset may be given twice, and a message may be stored as
often as it was sent. Without a part, all of them run. Ends with status 1 when there is a fault.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

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
from tests.long.dledger_load import Writer, now_ms, send_oneway
from twistmq.broker.testing import RawClient
from twistmq.protocol.errors import BrokerError

__all__ = ["PARTS", "main"]

#: A death of the leader is noticed at once, as with ``twistmq up --group``.
_SETTINGS: Final = {"dledger.quick_failover": "true"}
#: The messages without an answer in a round of ``unwaited``.
_ONEWAY_COUNT: Final = 1000
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

    def leader(self) -> None:
        """Kill the leader."""
        self._kill([self._group.wait_for_leader()])

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
        leader = self._group.wait_for_leader()
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
            loaded.recover()
            print(f"{name} {number + 1}: after {(now_ms() - started) / 1000:.1f} s all members "
                  f"have all again, term {group.term()}", flush=True)
        ended = now_ms()
        found = loaded.finish()
    return report(
        name, f"{rounds} rounds in {(ended - begin) / 1000:.0f} s, the longest time without an "
        f"acknowledgement {silences(loaded.history, begin, ended)[0] / 1000:.1f} s; "
        f"{describe(loaded.history)}", found)


def main() -> int:
    """The command line."""
    parser = make_parser(__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", choices=[*PARTS, []])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=20, help="of a stop (20)")
    parser.add_argument("--ours", default=",".join(IDS), help="the brokers that are ours (all)")
    args = parser.parse_args()
    status = 0
    for name in args.parts or PARTS:
        with run_folder(args.keep, name) as folder:
            group = ProcessGroup(folder, args.program, _SETTINGS, ours=args.ours.split(","))
            status |= run_part(name, group, args.rounds, args.seconds, args.seed)
    return status


if __name__ == "__main__":
    sys.exit(main())
