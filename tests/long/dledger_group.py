"""A group of brokers, each in its own process, under load, whose history is judged.

The commands ``dledger_*`` that need real processes share this module: it starts the group, keeps
writers and readers at work, and compares the history that they recorded with the three final logs.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from tests.history.check import check_history, first_offsets
from tests.history.records import Entry, FinalLog, History, Outcome
from tests.interop.ledger_group import (
    IDS,
    ApacheMember,
    LedgerGroup,
    LedgerMember,
    OurMember,
)
from tests.interop.servers import MAIN, take_default_signals, wait_until
from tests.long.dledger_load import TOPIC, Address, Reader, Writer, body_id, now_ms, queue_name
from twistmq.broker.store.entry_heads import ENTRY_FILLER, ENTRY_HEAD, ENTRY_HEAD_SIZE
from twistmq.broker.testing import RawClient
from twistmq.protocol.bodies import KVTable
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.errors import BrokerError
from twistmq.protocol.record import decode_record

__all__ = ["PATIENCE_SECONDS", "Ledger", "LoadedGroup", "ProcessGroup", "ProgramMember", "describe",
           "judge", "make_parser", "read_ledger", "report", "run_folder", "silences"]

#: How long a broker may take to start and to end, and a group to agree, on a busy machine, s.
PATIENCE_SECONDS: Final = 120.0
#: What is printed of the reasons why a run failed.
_SHOWN_MAX: Final = 20


class ProgramMember(OurMember):
    """Our broker, run by a program that may belong to another installation.

    :param program: the words of its command, without the arguments of ``twistmq``.
    """

    def __init__(
        self, data: Path, namesrv: str, settings: dict[str, str], program: Sequence[str]
    ) -> None:
        super().__init__(data, namesrv, settings)
        self.program = program
        self._running: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._running is not None
        return self._running.pid

    def start(self) -> None:
        assert self._running is None
        out = self.data / "out"
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("ab") as file:
            begin = file.tell()
            process = self._running = subprocess.Popen(
                [*self.program, *self._words()], stdout=file, stderr=subprocess.STDOUT,
                preexec_fn=take_default_signals)

        def is_ready() -> bool:
            text = out.read_bytes()[begin:]
            assert process.poll() is None, text.decode(errors="replace")
            return self._ready.encode() in text

        wait_until(f"the start of {self.data.name}", is_ready, PATIENCE_SECONDS)

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        process, self._running = self._running, None
        if process is not None:
            process.send_signal(how)
            process.wait(PATIENCE_SECONDS)


class ProcessGroup(LedgerGroup):
    """The brokers of one group, ours or Apache's.

    :param program: of our brokers.
    :param settings: of our brokers, beside the settings of the group.
    :param ours: the ids of the members that are ours; None: all.
    :param common: settings of all brokers.
    :param kills_apaches: whether Apache's brokers are killed, and not stopped by SIGTERM.
    """

    def __init__(
        self, folder: Path, program: Sequence[str], settings: Mapping[str, str], *,
        version: str = "5.5.0", ours: Collection[str] | None = None, ids: Sequence[str] = IDS,
        common: Mapping[str, str] | None = None, kills_apaches: bool = True,
    ) -> None:
        super().__init__(folder, version, ids if ours is None else ours, ids)
        self._program, self._own_settings, self._common = program, settings, common or {}
        self._kills_apaches = kills_apaches
        #: How often each member was started.
        self.lives = Counter[str]()

    def make_ours(self, folder: Path, settings: dict[str, str]) -> LedgerMember:
        # The readers also see what followers show.
        return ProgramMember(folder, self.namesrv.address, {
            **settings, "slaveReadEnable": "true", **self._common, **self._own_settings},
            self._program)

    def make_apaches(self, folder: Path, settings: dict[str, str]) -> LedgerMember:
        member = super().make_apaches(folder, {**settings, **self._common})
        assert isinstance(member, ApacheMember)
        # Its warnings say which of its faults it has.
        member.peer.with_log = True
        return member

    @property
    def apaches(self) -> list[str]:
        """The members that are Apache's."""
        return [member for member in self.ids if member not in self.ours_ids]

    @property
    def composition(self) -> str:
        """A letter for each member: O for ours, J for Apache's."""
        return "+".join("O" if member in self.ours_ids else "J" for member in self.ids)

    def store_folder(self, member: str) -> Path:
        """Return the folder of the store of a member."""
        return self.members[member].log_folder.parents[1]

    def start(self, *members: str) -> None:
        for member in members or self.ids:
            self.lives[member] += 1
        super().start(*members)

    def kill(self, member: str) -> None:
        self.end(member, self._killing(member))

    def _killing(self, member: str) -> signal.Signals:
        """Return the signal that kills a member."""
        is_killed = member in self.ours_ids or self._kills_apaches
        return signal.SIGKILL if is_killed else signal.SIGTERM

    def kill_at_once(self, members: Collection[str]) -> None:
        """End the processes of several members at the same moment."""
        for member in members:
            os.kill(self.members[member].pid, self._killing(member))
        for member in members:
            self.kill(member)

    def addresses(self) -> list[Address]:
        """Return the addresses of the members, which may change when a member is exchanged."""
        return [lambda member=member: self.members[member].address for member in self.ids]

    def rows(self, member: str) -> dict[str, str]:
        """Return the runtime information of a member; empty if it does not answer."""
        try:
            with RawClient(self.members[member].address, 5, connect_timeout_s=1) as client:
                return KVTable.decode(
                    client.request(RequestCode.GET_BROKER_RUNTIME_INFO, None).body).table
        except (BrokerError, OSError, ValueError):
            return {}

    def term(self) -> int:
        """Return the highest term in the files of the members."""
        terms: list[int] = []

        def is_read() -> bool:
            try:
                terms[:] = [int(self.term_of(member)) for member in self.ids]
            except (OSError, KeyError):
                # Apache's broker removes its file before it writes it again.
                return False
            return True

        wait_until("the terms are read", is_read, PATIENCE_SECONDS)
        return max(terms)

    def wait_until_equal(self, seconds: float = PATIENCE_SECONDS) -> str:
        """Wait until all follow one leader and have its present log; :returns: the leader.

        :param seconds: how long a member may take to catch up.
        """
        leader = self.wait_for_leader()
        end = self.log_end(leader)
        wait_until("all members have the log of the leader", lambda: all(
            self.log_end(member) >= end for member in self.ids), seconds)
        return leader

    def log_end(self, member: str) -> int:
        """Return the end of the log that a member shows to readers; -1 if it does not answer."""
        return int(self.rows(member).get("commitLogMaxOffset", -1))

    def compare_committed(self) -> int:
        """Compare the data files of all members up to the lowest end that one of them shows.

        Messages may be sent meanwhile.

        :returns: this end.
        :raises AssertionError: when the files are not the same.
        """
        wait_until("all members tell their ends", lambda: all(
            self.log_end(member) >= 0 for member in self.ids), PATIENCE_SECONDS)
        end = min(self.log_end(member) for member in self.ids)
        first, *others = [_digests(self.members[member].log_folder, end) for member in self.ids]
        for member, other in zip(self.ids[1:], others, strict=True):
            assert other == first, f"the files of {member} and {self.ids[0]} differ before {end}"
        return end


def _digests(folder: Path, end: int) -> dict[str, str]:
    """Return a digest of each data file up to the end of the log."""
    return {path.name: hashlib.md5(path.read_bytes()[: end - int(path.name)]).hexdigest()
            for path in sorted(folder.glob("0*")) if int(path.name) < end}


class Ledger(NamedTuple):
    """The messages of writers in the data files of a ledger.

    :param terms: of the entries, by the places of the messages.
    """

    log: FinalLog
    terms: dict[int, int]


def read_ledger(folder: Path, end: int, begin: int = 0) -> Ledger:
    """Read the messages of writers from the data files of a ledger.

    :param end: the end of the entries on which the group agreed.
    :param begin: entries before this one are left out.
    :raises StoreDamaged: when a record is not whole.
    :raises AssertionError: when an entry does not begin where it should.
    """
    entries, terms = [], {}
    paths = sorted(folder.glob("0*"))
    # Retention may remove earlier files at any time.
    later = bisect_right(paths, begin, key=lambda path: int(path.name))
    for path in paths[max(0, later - 1) :]:
        data, first = path.read_bytes(), int(path.name)
        at = 0
        while first + at < end and data[at : at + 4] != ENTRY_FILLER:
            _, size, _, term, position, *_ = ENTRY_HEAD.unpack_from(data, at)
            assert position == first + at, f"an entry of {path} at {at} tells {position}"
            record = decode_record(data, at + ENTRY_HEAD_SIZE)
            name = body_id(record.body)
            if name and position >= begin:
                terms[record.physical_offset] = term
                entries.append(Entry(record.physical_offset, queue_name(
                    record.topic, record.queue_id), record.queue_offset, name,
                    record.store_timestamp))
            at += size
    return Ledger(FinalLog(entries, begin), terms)


def silences(history: History, begin: float, end: float) -> list[float]:
    """Return the times without an acknowledgement between two moments, ms, the longest first."""
    times = [begin, *sorted(send.end for send in history.sends
                            if send.outcome is Outcome.OK and begin <= send.end <= end), end]
    return sorted((after - before for before, after in pairwise(times)),
                  reverse=True)


def judge(
    history: History, unnumbered: Collection[str] = (), begins: Mapping[str, int] | None = None
) -> list[str]:
    """Return the faults of a history, a text each; empty if it has none.

    :param unnumbered: the queues whose offsets are not 0, 1, 2... for a reason that is known.
    :param begins: the first offsets of the queues that do not begin at 0.
    """
    faults = [f"{anomaly.rule}: {anomaly.text}" for anomaly in check_history(history)]
    for node, log in history.logs.items():
        offsets: dict[str, list[int]] = {}
        for entry in log.entries:
            offsets.setdefault(entry.queue, []).append(entry.offset)
        for queue, given in offsets.items():
            first = (begins or {}).get(queue, 0)
            if queue not in unnumbered and given != list(range(first, first + len(given))):
                faults.append(f"the offsets of {queue} in the log of {node} are not {first}, "
                              f"{first + 1}, {first + 2}...")
    if not any(send.outcome is Outcome.OK for send in history.sends):
        faults.append("no message was acknowledged")
    return faults


def describe(history: History) -> str:
    """Return the counts of a history."""
    counts = Counter(send.outcome for send in history.sends)
    stored = max((len(log.entries) for log in history.logs.values()), default=0)
    shown = sum(len(read.bodies) for read in history.reads)
    return (f"{counts[Outcome.OK]:,} sends acknowledged, {counts[Outcome.REFUSED]:,} refused, "
            f"{counts[Outcome.UNKNOWN]:,} unknown; {stored:,} messages in each of "
            f"{len(history.logs)} equal logs; {shown:,} messages in {len(history.reads):,} reads")


class LoadedGroup:
    """A group with writers and readers that work until ``finish``.

    :param group: it is started here.
    :param writers: their number; each has up to 16 requests in flight.
    :param rate: the messages in a second of all writers.
    :param read_seconds: how often the readers ask for news.
    :param first_writer: the number of the first writer, which is in its bodies.
    :param prepare: called before the load begins, when the group has a leader.
    """

    def __init__(
        self, group: ProcessGroup, *, writers: int = 4, rate: float = 400, body_max: int = 4096,
        topics: Sequence[str] = (TOPIC,), properties: dict[str, str] | None = None,
        read_seconds: float = 0.1, first_writer: int = 0,
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        self.group = group
        self._prepare = prepare
        self.history = History()
        self.writers = [Writer(number, group.addresses(), self.history, topics=topics,
                               rate=rate / writers, body_max=body_max, properties=properties)
                        for number in range(first_writer, first_writer + writers)]
        #: How long after the last message all logs were equal, s.
        self.equal_after_s = 0.0
        #: The terms of the entries in the final logs, by place.
        self.terms: dict[int, int] = {}
        self.readers = [Reader(member, address, lambda member=member: group.lives[member],
                               self.history, topics, read_seconds)
                        for member, address in zip(group.ids, group.addresses(), strict=True)]

    def __enter__(self) -> Self:
        self.group.__enter__()
        self.group.start()
        self.group.wait_for_leader()
        self._prepare()
        for thread in (*self.writers, *self.readers):
            thread.start()
        self.wait_for_sends()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        self.group.__exit__(kind, error, traceback)

    def wait_for_sends(self) -> None:
        """Wait until each writer has an acknowledgement again."""
        begin = now_ms()
        wait_until("each writer has an acknowledgement", lambda: all(
            writer.acknowledged_ms > begin or writer.failure for writer in self.writers),
            PATIENCE_SECONDS)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Send nothing in this block, which begins when all members have everything."""
        try:
            self.hold()
            yield
        finally:
            self.release()

    def hold(self) -> None:
        """Send nothing until :meth:`release`; returns when all members have everything."""
        for writer in self.writers:
            writer.resting.clear()
            writer.held.set()
        wait_until("the writers have the answers of their last messages", lambda: all(
            writer.resting.is_set() or writer.failure for writer in self.writers),
            PATIENCE_SECONDS)
        self.group.wait_until_equal()

    def release(self) -> None:
        """Send again."""
        for writer in self.writers:
            writer.held.clear()

    def recover(self) -> None:
        """Wait until messages are taken and all members have them."""
        self.wait_for_sends()
        self.group.wait_until_equal()

    def finish(self) -> list[str]:
        """End the load, and read the logs; :returns: the faults of the history.

        :raises AssertionError: when the logs are not equal.
        """
        faults = self.read_logs()
        return faults + judge(self.history, begins=self._first_offsets())

    def _first_offsets(self) -> dict[str, int]:
        """Return the first offsets of the queues of a log whose first files were removed."""
        return {queue: offset for log in self.history.logs.values() if log.begin
                for queue, offset in first_offsets(log).items()}

    def read_logs(self) -> list[str]:
        """End the load, and read the logs; :returns: the faults of writers and readers.

        :raises AssertionError: when the logs are not equal.
        """
        self.stop()
        begin = now_ms()
        end = self.group.wait_for_equal_logs()
        self.equal_after_s = (now_ms() - begin) / 1000
        folders = {member: self.group.members[member].log_folder for member in self.group.ids}
        # Retention may have removed more files of one member than of another.
        first = max(int(min(path.name for path in folder.glob("0*")))
                    for folder in folders.values())
        for member, folder in folders.items():
            ledger = read_ledger(folder, end, first)
            self.history.logs = {**self.history.logs, member: ledger.log}
            self.terms = ledger.terms
        return self.client_faults()

    def client_faults(self) -> list[str]:
        """Return the faults of writers and readers."""
        faults = [f"{thread.name} failed: {thread.failure}"
                  for thread in (*self.writers, *self.readers) if thread.failure]
        return faults + [
            f"{reader.node} answered {reader.damaged} pulls with damaged records"
            for reader in self.readers if reader.damaged and reader.node in self.group.ours_ids]

    def stop(self) -> None:
        """End the load, and wait for the answers."""
        for thread in (*self.writers, *self.readers):
            if thread.is_alive():
                thread.end()


def make_parser(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that all of these commands have."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=shlex.split, default=[sys.executable, "-c", MAIN],
                        metavar="WORDS", help="the command twistmq of another installation")
    parser.add_argument("--seed", type=int, default=1, help="of the choices (1)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the stores in this folder")
    return parser


@contextmanager
def run_folder(keep: Path | None, name: str) -> Iterator[Path]:
    """Return the folder of one part, which is removed at the end unless it is kept."""
    with ExitStack() as stack:
        root = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="twistmq-")))
        yield root / name


def report(name: str, text: str, faults: Sequence[str]) -> int:
    """Print the result of a part; :returns: its exit status."""
    print(f"{name}: {text}; {len(faults)} faults", flush=True)
    for fault in faults[:_SHOWN_MAX]:
        print(f"  {fault}")
    return 1 if faults else 0
