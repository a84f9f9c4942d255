"""Let a follower of a group of three lag far behind under load, and measure its leader.

    python -m tests.long.dledger_laggards [PART]... [--mib 1024] [--seconds 600] [--rate 200]
        [--program twistmq] [--apache]

    behind      a follower is killed, --mib MiB are sent, and it is started again
    empty       then the same follower is killed, its store is removed, and it is started again
    expired     then it is killed, --mib MiB are sent, the other brokers remove the files up to the
                end of its log, and it is started again
    stopped     a follower is stopped by SIGSTOP for --seconds and goes on by SIGCONT

For the first three, the command measures the 99th percentile of the response time of sends
and the memory of the leader (RssAnon): first while only two brokers run, and then while the
follower catches up. The response time may double, and times below 50 ms are not judged. The memory
may grow by 100 MB. For ``stopped``, the memory of the leader may grow by 64 MiB, and the follower
catches up without a new start. Ends with status 1 when a bound is broken, or when the history of
the load (see ``dledger_kills``) has a fault.

With --apache, all brokers are Apache's 5.5.0. Their times show what the machine allows, and the
bounds do not apply to them.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.history.records import Outcome, Send
from tests.interop.ledger_group import IDS, ApacheMember, LedgerMember
from tests.interop.servers import rss_anon_kib, wait_until
from tests.long.dledger_group import (
    LoadedGroup,
    ProcessGroup,
    describe,
    make_parser,
    report,
    run_folder,
    silences,
)
from tests.long.dledger_load import Writer, now_ms
from twistmq.broker.testing import RawClient
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.errors import BrokerError

__all__ = ["PARTS", "CatchUp", "MemoryWatch", "catch_up_faults", "main", "percentile"]

#: By how much the 99th percentile may be longer while a follower catches up, and up to which it
#: does not matter, ms.
SLOWER_MAX: Final = 2.0
UNIMPORTANT_MS: Final = 50.0
#: By how much the memory of the leader may grow, KiB.
GROWTH_MAX_KIB: Final = 100_000_000 // 1024
STOPPED_GROWTH_MAX_KIB: Final = 64 * 1024
#: How long the sends before a fault are measured, s.
_BEFORE_SECONDS: Final = 15.0
_PATIENCE_SECONDS: Final = 600.0
_WATCH_SECONDS: Final = 0.05
_MIB: Final = 1 << 20
_FILES: Final = {"mappedFileSizeCommitLog": str(64 * _MIB)}
#: The largest body by which a follower falls behind.
_BULK_BYTES: Final = 64 * 1024


class CatchUp(NamedTuple):
    """What was measured of a leader before and while a follower catches up.

    :param p99_ms: the 99th percentile of the time of a send.
    :param memory_kib: the memory before, and the largest memory meanwhile.
    """

    before_p99_ms: float
    p99_ms: float
    before_memory_kib: int
    memory_kib: int


def percentile(sends: Iterable[Send], begin: float, end: float, part: float = 0.99) -> float:
    """Return a percentile of the time of the acknowledged sends that ended between two moments, ms.

    :raises ValueError: when there is no such send.
    """
    times = sorted(send.end - send.begin for send in sends
                   if send.outcome is Outcome.OK and begin <= send.end <= end)
    if not times:
        raise ValueError("no send was acknowledged")
    return times[min(len(times) - 1, int(part * len(times)))]


def catch_up_faults(name: str, seen: CatchUp) -> list[str]:
    """Return which bounds a leader has broken while a follower caught up."""
    faults = []
    if seen.p99_ms > max(UNIMPORTANT_MS, SLOWER_MAX * seen.before_p99_ms):
        faults.append(f"{name}: the 99th percentile of a send rose from {seen.before_p99_ms:.1f} "
                      f"to {seen.p99_ms:.1f} ms")
    if seen.memory_kib - seen.before_memory_kib > GROWTH_MAX_KIB:
        faults.append(f"{name}: the memory of the leader rose from {seen.before_memory_kib} to "
                      f"{seen.memory_kib} KiB")
    return faults


class MemoryWatch(threading.Thread):
    """Measures the largest memory of a process until ``end`` is called.

    :param read: returns the memory, KiB.
    """

    def __init__(self, read: Callable[[], int]) -> None:
        super().__init__(daemon=True)
        self._read = read
        self._over = threading.Event()
        self.largest_kib = 0
        self.start()

    def run(self) -> None:
        while not self._over.wait(_WATCH_SECONDS):
            self.largest_kib = max(self.largest_kib, self._read())

    def end(self) -> int:
        """Return the largest memory, KiB."""
        self._over.set()
        self.join()
        return max(self.largest_kib, self._read())


class Laggards:
    """The parts with one group.

    :param mib: by how much a follower falls behind.
    :param seconds: how long it is stopped.
    """

    def __init__(
        self, loaded: LoadedGroup, group: ProcessGroup, mib: int, seconds: float
    ) -> None:
        self._loaded, self._group = loaded, group
        self._mib, self._seconds = mib, seconds
        self.faults: list[str] = []

    def behind(self) -> str:
        """Let a follower that has lacked messages for a while catch up."""
        group, leader, follower = self._group, *self._roles()
        group.kill(follower)
        self._send_bulk(leader)
        return self._measure("behind", leader, lambda: group.start(follower))

    def empty(self) -> str:
        """Let a follower without a store catch up."""
        group, leader, follower = self._group, *self._roles()
        group.kill(follower)
        shutil.rmtree(group.members[follower].log_folder.parents[1])
        return self._measure("empty", leader, lambda: group.start(follower))

    def expired(self) -> str:
        """Let a follower catch up whose log ends before the leader's begins."""
        group, leader, follower = self._group, *self._roles()
        group.kill(follower)
        end = _file_end(group.members[follower].log_folder)
        self._send_bulk(leader)
        others = sorted(set(IDS) - {follower})
        begin = self._remove_files(others, end)
        assert begin > end, f"the log of {leader} begins at {begin}"
        result = self._measure("expired", leader, lambda: group.start(follower))
        if self._begin(follower) != begin:
            self.faults.append(f"expired: the log of {follower} begins at {self._begin(follower)}")
        return (f"{result}; its log ended before {end / _MIB:.1f} MiB, and begins at "
                f"{begin / _MIB:.0f} MiB")

    def stopped(self) -> str:
        """Let a follower stand still for a while."""
        group, leader, follower = self._group, *self._roles()
        pids = [group.members[member].pid for member in (leader, follower)]
        before_kib, begin = rss_anon_kib(pids[0]), now_ms()
        watch = MemoryWatch(lambda: rss_anon_kib(pids[0]))
        os.kill(pids[1], signal.SIGSTOP)
        try:
            # The stop has a given length.
            time.sleep(self._seconds)
            stopped_kib = watch.end()
            lag = self._end(leader) - _file_end(group.members[follower].log_folder)
        finally:
            os.kill(pids[1], signal.SIGCONT)
        silence = silences(self._loaded.history, begin, now_ms())[0]
        begin = now_ms()
        self._loaded.recover()
        if stopped_kib - before_kib > STOPPED_GROWTH_MAX_KIB:
            self.faults.append(f"stopped: the memory of the leader rose from {before_kib} to "
                               f"{stopped_kib} KiB")
        if [group.members[member].pid for member in (leader, follower)] != pids:
            self.faults.append("stopped: a process was started again")
        return (f"{follower} stood still for {self._seconds:.0f} s and lacked up to "
                f"{lag / _MIB:.0f} MiB, the memory of the leader rose from {before_kib} to "
                f"{stopped_kib} KiB, the longest time without an acknowledgement "
                f"{silence / 1000:.1f} s; caught up after {(now_ms() - begin) / 1000:.1f} s")

    def _roles(self) -> tuple[str, str]:
        """Return the leader and a follower."""
        leader = self._group.wait_for_leader()
        return leader, max(set(IDS) - {leader})

    def _end(self, member: str) -> int:
        return int(self._group.rows(member).get("commitLogMaxOffset", 0))

    def _begin(self, member: str) -> int:
        return int(self._group.rows(member).get("commitLogMinOffset", 0))

    def _remove_files(self, members: Iterable[str], end: int) -> int:
        """Let members remove the files up to an offset; :returns: where their logs begin."""
        begins = set()
        for member in members:
            for path in self._group.members[member].log_folder.glob("0*"):
                if int(path.name) <= end:
                    os.utime(path, times=(0, 0))
            with RawClient(self._group.members[member].address, _PATIENCE_SECONDS) as client:
                client.request(RequestCode.DELETE_EXPIRED_COMMITLOG, None)
            wait_until(f"{member} has removed its files",
                       lambda member=member: self._begin(member) > end, _PATIENCE_SECONDS)
            begins.add(self._begin(member))
        (begin,) = begins
        return begin

    def _send_bulk(self, leader: str) -> None:
        """Send large messages until the leader has that much more."""
        end = self._end(leader) + self._mib * _MIB
        address = self._group.members[leader].address
        # The readers have another topic.
        writer = Writer(900, [lambda: address], self._loaded.history, topics=["Bulk"], rate=1e6,
                        body_max=_BULK_BYTES)
        try:
            with RawClient(address, _PATIENCE_SECONDS) as client:
                while self._end(leader) < end:
                    writer.send_burst(client, address)
        except (BrokerError, OSError) as error:
            raise AssertionError(f"the messages were not taken: {error}") from error

    def _measure(self, name: str, leader: str, act: Callable[[], None]) -> str:
        group, history = self._group, self._loaded.history
        pid = group.members[leader].pid
        # The sends before have a given time.
        time.sleep(_BEFORE_SECONDS)
        before_kib, begin = rss_anon_kib(pid), now_ms()
        watch = MemoryWatch(lambda: rss_anon_kib(pid))
        act()
        group.wait_until_equal(_PATIENCE_SECONDS)
        end = now_ms()
        seen = CatchUp(percentile(history.sends, begin - 1000 * _BEFORE_SECONDS, begin),
                       percentile(history.sends, begin, end), before_kib, watch.end())
        self.faults += catch_up_faults(name, seen)
        if group.leader() != leader:
            self.faults.append(f"{name}: {leader} does not lead any more")
        return (f"caught up after {(end - begin) / 1000:.1f} s with a log of "
                f"{self._end(leader) / _MIB:.0f} MiB; the 99th percentile of a send "
                f"{seen.before_p99_ms:.1f} ms before and {seen.p99_ms:.1f} ms meanwhile, the "
                f"memory of the leader {seen.before_memory_kib} KiB before and at most "
                f"{seen.memory_kib} KiB meanwhile")


class LaggardGroup(ProcessGroup):
    """A group with log files of 64 MiB.

    :param ours: the ids of the members that are ours; None: all.
    """

    def __init__(
        self, folder: Path, program: Sequence[str], ours: Collection[str] | None = None
    ) -> None:
        super().__init__(folder, program, {**_FILES, "dledger.quick_failover": "true"}, ours=ours)

    def make_apaches(self, folder: Path, settings: dict[str, str]) -> LedgerMember:
        member = super().make_apaches(folder, {**settings, **_FILES})
        assert isinstance(member, ApacheMember)
        member.peer.short_lived = False
        return member


def _file_end(folder: Path) -> int:
    """Return about where the log of a process ends that does not answer."""
    return max(int(path.name) + path.stat().st_blocks * 512 for path in folder.glob("0*"))


PARTS: Final[dict[str, Callable[[Laggards], str]]] = {
    "behind": Laggards.behind, "empty": Laggards.empty, "expired": Laggards.expired,
    "stopped": Laggards.stopped}


def run(group: ProcessGroup, parts: Iterable[str], mib: int, seconds: float, rate: float) -> int:
    """Run the parts with one group; :returns: the exit status."""
    with LoadedGroup(group, rate=rate) as loaded:
        laggards = Laggards(loaded, group, mib, seconds)
        for part in parts:
            print(f"{part}: {PARTS[part](laggards)}", flush=True)
            loaded.recover()
        found = loaded.finish()
    # The bounds apply to leaders of ours only.
    faults = found if group.apaches else laggards.faults + found
    return report("laggards", describe(loaded.history), faults)


def main() -> int:
    """The command line."""
    parser = make_parser(__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", choices=[*PARTS, []])
    parser.add_argument("--mib", type=int, default=1024, help="what a follower lacks (1024)")
    parser.add_argument("--seconds", type=float, default=600, help="of a stop (600)")
    parser.add_argument("--rate", type=float, default=200, help="messages a second (200)")
    parser.add_argument("--apache", action="store_true", help="measure Apache's group")
    args = parser.parse_args()
    with run_folder(args.keep, "laggards") as folder:
        group = LaggardGroup(folder, args.program, () if args.apache else None)
        return run(group, args.parts or PARTS, args.mib, args.seconds, args.rate)


if __name__ == "__main__":
    sys.exit(main())
