"""Fill, hang, fail and cut off the disks of a group of three brokers under load.

    python -m tests.long.dledger_disks [PART]... [--rounds 3] [--seconds 60] [--flush SYNC_FLUSH]
        [--program twistmq]

Each broker has its store on a file system of its own (tests/long/block_disks.py), so this command
needs root and loop devices. The load and its judgement are those of ``dledger_kills``. The parts:

    full        the disk of the leader is full: within 2 s it does not lead any more; then there is
                room again
    follower    the disk of a follower is full for a while, and the group goes on
    fail        the disk of the leader fails with EIO; the leader acknowledges nothing from the
                moment at which it does not lead any more, and is started again over what was synced
    hang        the disk of the leader hangs for --seconds, and the same holds
    power       all brokers lose their power at the same moment, and with it all that was not synced
    power-one   one broker loses its power; this part has ASYNC_FLUSH unless --flush is given

A line for each round has the time until the leader did not lead any more, and the longest time
without an acknowledgement. Ends with status 1 when a bound is broken, or when the history of the
load has a fault. ``power --flush ASYNC_FLUSH`` has to find faults.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from tests.history.records import History, Outcome, Send
from tests.interop.ledger_group import IDS
from tests.interop.servers import wait_until
from tests.long.block_disks import BlockDisk
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

__all__ = ["PARTS", "StepDown", "main", "step_down_faults"]

#: How long a leader whose disk is full may lead, ms.
STEP_DOWN_MAX_MS: Final = 2_000
#: How long after the loss of its lead a broker may acknowledge a message, ms.
LATE_MAX_MS: Final = 100
#: The longest time without an acknowledgement: beside a follower whose disk is full, and after a
#: leader that may not be able to give the lead away, so that the others miss it after 6 s, ms.
FOLLOWER_SILENCE_MAX_MS: Final = 5_000
SILENCE_MAX_MS: Final = 20_000
#: How long the group is watched after a fault, s.
_WATCH_SECONDS: Final = 3.0
_PATIENCE_SECONDS: Final = 90.0
_SETTINGS: Final = {
    "dledger.quick_failover": "true",
    # All messages are compared in the end.
    "cleanFileForciblyEnable": "false"}


class StepDown(NamedTuple):
    """What was seen of a leader whose disk has a fault; the times are of the steady clock, ms.

    :param node: its address.
    :param begin: when the fault began.
    :param known: when another member led, or the leader knew of none.
    :param end: when the watch ended; the node was not started again before that.
    """

    node: str
    begin: float
    known: float
    end: float


def step_down_faults(step: StepDown, history: History, step_max_ms: float) -> list[str]:
    """Return which bounds a leader with a faulty disk has broken."""
    faults = []
    if step.known - step.begin > step_max_ms:
        faults.append(f"{step.node} led for {step.known - step.begin:.0f} ms after the fault")
    late = [send for send in history.sends
            if send.node == step.node and send.outcome is Outcome.OK
            and step.known + LATE_MAX_MS < send.begin and send.end < step.end]
    if late:
        faults.append(f"{step.node} acknowledged {len(late)} messages that were sent "
                      f"{late[0].begin - step.known:.0f} ms or more after it did not lead any more")
    silence = silences(history, step.begin, step.end)[0]
    if silence > SILENCE_MAX_MS:
        faults.append(f"no message was taken for {silence:.0f} ms after a fault of {step.node}")
    return faults


def longest_wait(sends: Iterable[Send], node: str, begin: float, end: float) -> float:
    """Return how long a send to a node that was begun between two moments has waited, ms."""
    return max((send.end - send.begin for send in sends
                if send.node == node and begin <= send.begin <= end), default=0.0)


class DiskGroup(ProcessGroup):
    """A group whose brokers have disks of their own."""

    def __init__(self, folder: Path, program: Sequence[str], flush: str) -> None:
        super().__init__(folder, program, {**_SETTINGS, "flushDiskType": flush})
        self.disks = {member: BlockDisk(folder / f"{member}-disk", folder / member / "store")
                      for member in IDS}
        self._disk_stack = ExitStack()

    def __enter__(self) -> DiskGroup:
        try:
            for disk in self.disks.values():
                self._disk_stack.enter_context(disk)
            super().__enter__()
        except BaseException:
            self._disk_stack.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for disk in self.disks.values():
            disk.thaw()
        super().__exit__(None, None, None)
        self._disk_stack.close()

    def start_again(self, members: Sequence[str]) -> None:
        """Start members that were killed over what their disks have."""
        for member in members:
            self.disks[member].restore()
        self.start(*members)


class Rounds:
    """The faults of one part.

    :param seconds: how long a disk hangs.
    """

    def __init__(self, loaded: LoadedGroup, group: DiskGroup, seed: int, seconds: float) -> None:
        self._loaded, self._group, self._seconds = loaded, group, seconds
        self._chance = random.Random(seed)
        self.faults: list[str] = []

    def full(self) -> str:
        """Fill the disk of the leader, and make room again."""
        leader = self._group.wait_for_leader()
        step = self._watch(leader, self._group.disks[leader].fill)
        self._group.disks[leader].empty()
        return self._judge(step, STEP_DOWN_MAX_MS)

    def follower(self) -> str:
        """Fill the disk of a follower, and make room again."""
        group = self._group
        member = self._chance.choice([each for each in IDS if each != group.wait_for_leader()])
        begin = now_ms()
        group.disks[member].fill()
        lag = self._end(group.wait_for_leader()) - self._end(member)
        # The fault has a given length.
        time.sleep(2 * _WATCH_SECONDS)
        more = self._end(group.wait_for_leader()) - self._end(member)
        if more <= lag:
            self.faults.append(f"{member} lacked {lag} bytes at first, then {more}: it had room")
        silence = silences(self._loaded.history, begin, now_ms())[0]
        if silence > FOLLOWER_SILENCE_MAX_MS:
            self.faults.append(f"no message was taken for {silence:.0f} ms")
        group.disks[member].empty()
        return (f"{member} lacked {more} bytes when there was room again, the longest time without "
                f"an acknowledgement {silence / 1000:.1f} s")

    def fail(self) -> str:
        """Let the disk of the leader fail, and start the broker again over what was synced."""
        leader = self._group.wait_for_leader()
        step = self._watch(leader, self._group.disks[leader].fail)
        self._group.kill(leader)
        self._group.start_again([leader])
        return self._judge(step, SILENCE_MAX_MS)

    def hang(self) -> str:
        """Let the disk of the leader hang for a while."""
        leader = self._group.wait_for_leader()
        begin = time.monotonic()
        step = self._watch(leader, self._group.disks[leader].freeze)
        # The hang has a given length.
        time.sleep(max(0.0, self._seconds - (time.monotonic() - begin)))
        step = step._replace(end=now_ms())
        self._group.disks[leader].thaw()
        return self._judge(step, SILENCE_MAX_MS)

    def power(self) -> str:
        """Cut the power of all members."""
        return self._cut_power(list(IDS))

    def power_one(self) -> str:
        """Cut the power of one member."""
        return self._cut_power([self._chance.choice(IDS)])

    def _cut_power(self, members: list[str]) -> str:
        begin = now_ms()
        for member in members:
            self._group.disks[member].cut_power()
        self._group.kill_at_once(members)
        self._chance.shuffle(members)
        self._group.start_again(members)
        self._loaded.wait_for_sends()
        silence = silences(self._loaded.history, begin, now_ms())[0]
        return (f"{' '.join(sorted(members))} lost the power, the longest time without an "
                f"acknowledgement {silence / 1000:.1f} s")

    def _end(self, member: str) -> int:
        """Return the end of the log of a member."""
        return int(self._group.rows(member).get("commitLogMaxOffset", 0))

    def _watch(self, leader: str, harm: Callable[[], None]) -> StepDown:
        """Harm the disk of a leader, and wait until another member takes messages."""
        group, others = self._group, [member for member in IDS if member != leader]
        node = group.members[leader].address
        harm()
        begin = now_ms()
        # A leader whose disk hangs may not answer.
        wait_until("the leader leads no more", lambda: any(
            group.leader_of(member) != leader for member in (*others, leader)), _PATIENCE_SECONDS)
        known = now_ms()
        wait_until("another one leads", lambda: any(
            group.leader_of(member) in others for member in others), _PATIENCE_SECONDS)
        self._loaded.wait_for_sends()
        # The watch has a given length.
        time.sleep(_WATCH_SECONDS)
        return StepDown(node, begin, known, now_ms())

    def _judge(self, step: StepDown, step_max_ms: float) -> str:
        history = self._loaded.history
        self.faults += step_down_faults(step, history, step_max_ms)
        silence = silences(history, step.begin, step.end)[0]
        waited = longest_wait(history.sends, step.node, step.begin - 1000, step.known)
        return (f"the leader did not lead any more after {(step.known - step.begin) / 1000:.1f} s, "
                f"the longest time without an acknowledgement {silence / 1000:.1f} s, the longest "
                f"wait of a send to it {waited / 1000:.1f} s")


PARTS: Final[dict[str, Callable[[Rounds], str]]] = {
    "full": Rounds.full, "follower": Rounds.follower, "fail": Rounds.fail, "hang": Rounds.hang,
    "power": Rounds.power, "power-one": Rounds.power_one}


def run_part(name: str, group: DiskGroup, rounds: int, seed: int, seconds: float) -> int:
    """Run one part; :returns: its exit status."""
    chance = random.Random(seed)
    with LoadedGroup(group) as loaded:
        begin = now_ms()
        faults = Rounds(loaded, group, seed, seconds)
        for number in range(rounds):
            # The moment is random; nothing waits for it.
            time.sleep(chance.uniform(0.5, 2.0))
            text = PARTS[name](faults)
            loaded.recover()
            print(f"{name} {number + 1}: {text}, term {group.term()}", flush=True)
        ended = now_ms()
        found = loaded.finish()
    return report(name, f"{rounds} rounds in {(ended - begin) / 1000:.0f} s; "
                  f"{describe(loaded.history)}", faults.faults + found)


def main() -> int:
    """The command line."""
    parser = make_parser(__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", choices=[*PARTS, []])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60, help="of a disk that hangs (60)")
    parser.add_argument("--flush", choices=["SYNC_FLUSH", "ASYNC_FLUSH"],
                        help="the setting flushDiskType (SYNC_FLUSH)")
    args = parser.parse_args()
    status = 0
    for name in args.parts or PARTS:
        flush = args.flush or ("ASYNC_FLUSH" if name == "power-one" else "SYNC_FLUSH")
        with run_folder(args.keep, name) as folder:
            status |= run_part(name, DiskGroup(folder, args.program, flush), args.rounds,
                               args.seed, args.seconds)
    return status


if __name__ == "__main__":
    sys.exit(main())
