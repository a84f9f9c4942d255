"""Measure how long the reactors of a group of three brokers are held under load.

    python -m tests.long.dledger_turns [--seconds 30] [--behind 256] [--cut 1024] [--rate 2000]
        [--python PYTHON]

The brokers run with the Python of an installation, and tests/long/reactor_turns.py writes down the
turns of their reactors that last longer than 10 ms. The phases:

    push        the load alone, for --seconds
    catch-up    a follower is killed, --behind MiB are sent, and it is started again
    take-over   the leader is killed, and started again
    lead        the lead is given to each of the members in turn
    cut         a leader whose followers stand still gets --cut MiB and is killed, and the next one
                cuts its log
    store       a ledger alone cuts --cut MiB in 10,000 messages, the most that wait in a group

A line for each phase and member has the longest turn, the longest processor time in a turn, and
the number of the turns whose processor time is above 10 ms; the starts of brokers do not count. On
a machine that does other work, a turn also lasts as long as another process has its core, so the
processor time decides: ends with status 1 when it is above 10 ms, or when the history of the load
has a fault (see ``dledger_kills``).
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from twisted.internet.defer import Deferred

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
from tests.long.dledger_load import send_oneway
from twistmq.broker.store.disk import RealDisk
from twistmq.broker.store.ledger.entry_index import INDEX_FILE_SIZE
from twistmq.broker.testing.ledger_store import LedgerBox
from twistmq.broker.testing.store import message, small_settings

__all__ = ["Turn", "main", "phase_faults", "read_turns"]

#: The longest work of a turn, ms.
TURN_MAX_MS: Final = 10.0
_PATIENCE_SECONDS: Final = 400.0
_MIB: Final = 1 << 20
#: The size of the messages that are cut, bytes; there may be 10,000 of them.
_CUT_BODY_BYTES: Final = 380_000
#: The number of messages that are cut from a ledger without a group. In a group, the cut is
#: smaller, because a leader without a majority accepts few messages.
_CUT_COUNT: Final = 10_000
_CUT: Final = re.compile(r"the commit log is cut from (\d+) to (\d+)")


class Turn(NamedTuple):
    """A turn of a reactor that was longer than 10 ms.

    :param ended: Unix s.
    :param waits: how often its thread waited for something.
    :param losses: how often it lost its core.
    :param gc_ms: the time of garbage collections in it.
    :param seen: the functions that it ran at some moments, the innermost first.
    """

    ended: float
    length_ms: float
    cpu_ms: float
    waits: int
    losses: int
    gc_ms: float
    seen: str


def read_turns(text: str, begin: float = 0.0) -> list[Turn]:
    """Return the turns of a file that began after a moment."""
    turns = []
    for line in text.splitlines():
        ended, length, cpu, waits, losses, gc_ms, seen = line.split(" ", 6)
        if float(ended) - float(length) / 1000 >= begin:
            turns.append(Turn(float(ended), float(length), float(cpu), int(waits), int(losses),
                              float(gc_ms), seen))
    return turns


def phase_faults(phase: str, member: str, turns: Iterable[Turn]) -> list[str]:
    """Return the turns in which a reactor worked for too long."""
    return [f"{phase}: the reactor of {member} worked for {turn.cpu_ms} ms in a turn of "
            f"{turn.length_ms} ms, {turn.gc_ms} ms of it for garbage; it ran {turn.seen}"
            for turn in turns if turn.cpu_ms > TURN_MAX_MS]


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

    @contextmanager
    def stopped(self, *members: str) -> Iterator[None]:
        """Let members stand still in the block."""
        pids = [self.members[member].pid for member in members]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def turns(self, member: str, begin: float) -> list[Turn]:
        """Return the long turns of a member that began after a moment."""
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


def run(group: TimedGroup, seconds: float, behind: int, cut: int, rate: float) -> int:
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
        cut_size = _cut(group, loaded, phases, cut)
        phases.end("cut")
        faults = loaded.finish()
        print(f"cut: {cut_size / _MIB:.0f} MiB at once")
        times = time_cut(group.folder / "alone", cut)
        print(f"store: in a cut of {cut} MiB the reactor worked for {times.work:.1f} ms and waited "
              f"for {times.wait:.1f} ms, and a thread took {times.thread:.1f} ms")
        if times.work > TURN_MAX_MS:
            faults.append(f"store: the reactor worked for {times.work:.1f} ms in a cut")
    return report("turns", describe(loaded.history), faults + phases.faults)


def _cut(group: TimedGroup, loaded: LoadedGroup, phases: Phases, cut: int) -> int:
    """Let a member have entries that it has to cut; :returns: the largest cut, bytes.

    The other members stand still while it gets the entries, and again while it starts.
    """
    leader = group.wait_for_leader()
    with group.stopped(*(set(IDS) - {leader})):
        send_oneway(group.members[leader].address, 800, cut * _MIB // _CUT_BODY_BYTES,
                    loaded.history, bytes(_CUT_BODY_BYTES))
        group.kill(leader)
    loaded.wait_for_sends()
    with group.stopped(*(set(IDS) - {leader})):
        _start(group, phases, leader)
    # A turn in which a member was stopped lasted as long as the stop, so it does not count.
    phases.begin()
    loaded.recover()
    member = group.members[leader]
    assert isinstance(member, ProgramMember)
    sizes = [int(begin) - int(end) for begin, end in _CUT.findall(member.log())]
    return max(sizes, default=0)


class CutTimes(NamedTuple):
    """How long a cut took, ms.

    :param work: the processor time of the reactor's thread.
    :param wait: how long this thread waited, also for its core.
    :param thread: how long the other thread took.
    """

    work: float
    wait: float
    thread: float


def time_cut(folder: Path, mib: int) -> CutTimes:
    """Cut so much of a ledger on the disk."""
    box = _DiskBox(folder / "store", mib).open()
    times: list[float] = []
    threads: list[threading.Thread] = []
    done: Deferred[None] = Deferred()

    def in_thread(job: Callable[[], None]) -> Deferred[None]:
        threads.append(threading.Thread(target=lambda: times.append(_time(job))))
        threads[0].start()
        return done

    try:
        box.lead_term(1)
        while box.entry_log.max_offset < mib * _MIB:
            box.store.append([message("T", bytes(mib * _MIB // _CUT_COUNT))])
        box.in_thread = in_thread
        begin = time.thread_time()
        whole = _time(lambda: box.ledger.truncate(0))
        work = 1000 * (time.thread_time() - begin)
        threads[0].join()
        done.callback(None)
    finally:
        box.store.close()
    return CutTimes(work, whole - work, times[0])


def _time(run: Callable[[], None]) -> float:
    """Return how long a function takes, ms."""
    begin = time.perf_counter()
    run()
    return 1000 * (time.perf_counter() - begin)


class _DiskBox(LedgerBox):
    """A ledger on the disk."""

    index_file_size = INDEX_FILE_SIZE

    def __init__(self, root: Path, mib: int) -> None:
        root.mkdir(parents=True)
        self.folder = f"{root}/dledger-n0"
        super().__init__(RealDisk(), small_settings(
            str(root), mapped_file_size_commit_log=2 * mib * _MIB, max_message_size=1 << 20))


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
    parser.add_argument("--cut", type=int, default=1024, metavar="MIB",
                        help="what a member has to cut (1024)")
    parser.add_argument("--rate", type=float, default=2000, help="messages a second (2000)")
    args = parser.parse_args()
    with run_folder(args.keep, "turns") as folder:
        return run(TimedGroup(folder, args.python), args.seconds, args.behind, args.cut,
                   args.rate)


if __name__ == "__main__":
    sys.exit(main())
