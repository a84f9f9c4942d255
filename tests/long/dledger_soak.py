"""Kill brokers of a group at random for hours: the history has no fault, and nothing grows.

This is the part ``soak`` of tests/long/dledger_kills.py. The run is cut into periods, so that the
memory of the judgement is bounded. At the end of a period the writers pause until all members are
equal and all readers have everything. The messages of the period are compared with its part of the
three logs, and forgotten. Then the files of the logs that are judged get an old time of their last
change, so that the brokers' own retention removes them. What is kept for the whole run is the
place of each message, with which the queues of our brokers are compared in the end.

A run whose folder is kept can be interrupted at any time, and the same command continues it: its
totals are saved after each period. What the group stored in the period that was interrupted is only
compared among the members, because its history is lost.

The figures of our processes are their anonymous memory, their file descriptors, and the files in
their folders. They are read every ten seconds, and the largest ones of a period count. The bounds
follow from the largest figures of the first quarter of the periods, of any of our brokers, because
each of them leads at times. Memory may grow by a tenth and 8 MiB: the same broker differs by a few
MiB with its role and its age. Descriptors and files may double and grow by 8: most of them belong
to files of the log and its queues, and a period ends with up to two periods of these. What grows
with the number of messages exceeds this bound within three periods.
"""

from __future__ import annotations

import json
import math
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from tests.history.records import History, Outcome, Send
from tests.interop.servers import rss_anon_kib, wait_until
from tests.long.dledger_group import (
    PATIENCE_SECONDS,
    Ledger,
    LoadedGroup,
    ProcessGroup,
    read_ledger,
    report,
)
from tests.long.dledger_load import TOPIC, now_ms
from tests.long.dledger_mixed import Places, end_and_compare, expected_queues, judge_mixed

__all__ = ["COMMON", "FigureWatch", "Figures", "Soak", "Totals", "growth_faults",
           "period_lengths", "read_figures", "run_soak"]

#: Settings of all members: files are removed at any hour, and are small, so that many are.
COMMON: Final = {"deleteWhen": ";".join(map(str, range(24))), "mappedFileSizeConsumeQueue": "20000"}
#: The age that files of judged messages get. Apache's members keep files an hour longer than set.
_OLD_SECONDS: Final = 100 * 3600
_SAMPLE_SECONDS: Final = 10.0
#: How often the readers ask for news, s. There are twelve queues.
_READ_SECONDS: Final = 1.0
#: Each part of a run has new writers, so that no two messages of the run have the same body.
WRITERS: Final = 4


class Figures(NamedTuple):
    """What a process of ours uses.

    :param memory_kib: its anonymous memory.
    :param files: those in its folder.
    """

    memory_kib: int = 0
    descriptors: int = 0
    files: int = 0

    def most(self, other: Figures) -> Figures:
        """Return the larger value of each figure."""
        return Figures(*map(max, self, other))


#: By how much each figure may be multiplied, and how much may be added.
GROWTH_MAX: Final = {"memory_kib": (1.1, 8 << 10), "descriptors": (2.0, 8), "files": (2.0, 8)}


def growth_faults(periods: Sequence[Mapping[str, Figures]]) -> list[str]:
    """Return a fault for each figure that has grown beyond its bound.

    :param periods: the largest figures of each member, by period.
    """
    quarter = max(1, len(periods) // 4)
    faults = []
    for name, (times, more) in GROWTH_MAX.items():
        first = max(getattr(figures, name) for period in periods[:quarter]
                    for figures in period.values())
        for number, period in enumerate(periods[quarter:], quarter + 1):
            faults += [f"{name} of {member} grew to {getattr(figures, name):,} in the period "
                       f"{number}, and was at most {first:,} at first"
                       for member, figures in sorted(period.items())
                       if getattr(figures, name) > times * first + more]
    return faults


class FigureWatch(threading.Thread):
    """Reads the figures of our processes until ``end`` is called."""

    def __init__(self, group: ProcessGroup) -> None:
        super().__init__(name="figures", daemon=True)
        self._group = group
        self._over = threading.Event()
        self._most: dict[str, Figures] = {}

    def run(self) -> None:
        while not self._over.wait(_SAMPLE_SECONDS):
            self.read()

    def read(self) -> None:
        """Read the figures of the processes that run."""
        for member in sorted(self._group.ours_ids):
            # A process that was killed has none.
            with suppress(AssertionError, OSError):
                found = read_figures(self._group.members[member].pid, self._group.folder / member)
                self._most[member] = found.most(self._most.get(member, Figures()))

    def take(self) -> dict[str, Figures]:
        """Return the largest figures since the last call."""
        self.read()
        most, self._most = self._most, {}
        return most

    def end(self) -> None:
        """Stop reading."""
        self._over.set()
        if self.is_alive():
            self.join()


def read_figures(pid: int, folder: Path) -> Figures:
    """Return the figures of a process and its folder.

    :raises OSError: when the process has ended.
    """
    return Figures(rss_anon_kib(pid), len(os.listdir(f"/proc/{pid}/fd")),
                   sum(len(names) for _, _, names in os.walk(folder)))


@dataclass
class Totals:
    """What the periods of a run have found so far."""

    #: Of the group.
    composition: str = ""
    #: How long they took, s.
    seconds: float = 0.0
    #: How often the run was begun or continued.
    parts: int = 0
    #: The offset up to which the log and its queues are judged.
    log_end: int = 0
    #: The places of all messages by queue, for the comparison at the end.
    places: Places = field(default_factory=dict)
    #: The largest figures of each member, by period.
    periods: list[dict[str, Figures]] = field(default_factory=list)
    killed: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def save(self, path: Path) -> None:
        """Write the file from which :meth:`load` continues, at once."""
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        new.write_text(json.dumps(vars(self)))
        new.replace(path)

    @classmethod
    def load(cls, path: Path) -> Totals:
        """Read the totals of a run; they are empty if there is no file."""
        if not path.exists():
            return cls()
        totals = cls(**json.loads(path.read_text()))
        totals.killed, totals.outcomes = Counter(totals.killed), Counter(totals.outcomes)
        totals.periods = [{member: Figures(*each) for member, each in period.items()}
                          for period in totals.periods]
        return totals


class Soak:
    """The periods of a run.

    :param pause_seconds: the least and the longest time between two kills.
    :param totals: those of the parts of the run before this one.
    """

    def __init__(
        self, loaded: LoadedGroup, watch: FigureWatch, chance: random.Random,
        pause_seconds: tuple[float, float], totals: Totals | None = None,
    ) -> None:
        self._loaded, self._group, self._watch = loaded, loaded.group, watch
        self._chance, self._pause_seconds = chance, pause_seconds
        self._next_kill = time.monotonic() + chance.uniform(*pause_seconds)
        self.totals = Totals() if totals is None else totals
        #: Messages of the last period whose outcome is unknown. They were sent again later.
        self._unknown: list[Send] = []

    @property
    def _begins(self) -> dict[str, int]:
        """The first offsets of the queues that are not judged yet."""
        return {queue: len(places) for queue, places in self.totals.places.items()}

    def take_up(self) -> None:
        """Continue a run, before the load begins: skip what an interrupted period has stored."""
        totals = self.totals
        totals.parts += 1
        if totals.parts == 1:
            return
        end = self._compare_logs()
        skipped = self._read_log(self._group.ids[0], end).log.entries
        expected_queues(skipped, totals.places)
        print(f"part {totals.parts} continues after {totals.seconds / 3600:.2f} h: the logs are "
              f"equal, and {len(skipped):,} messages of an interrupted period are not judged",
              flush=True)
        totals.log_end = end
        for reader in self._loaded.readers:
            reader.begin_at(self._begins)

    def run_period(self, seconds: float) -> None:
        """Kill members for some time, and judge what was sent. Nothing is sent afterwards.

        :raises AssertionError: when the group does not recover.
        """
        totals, begin = self.totals, time.monotonic()
        self._loaded.release()
        first, kills = totals.log_end, self._kill_until(begin + seconds)
        figures = self._watch.take()
        totals.periods.append(figures)
        # The last messages of the run are judged as well, so the writers rest until the next one.
        self._loaded.hold()
        faults, notes, count = self.judge_period()
        self._make_old()
        totals.faults += faults
        totals.killed.update(kills)
        totals.seconds += time.monotonic() - begin
        killed = ", ".join(f"{member} {kills[member]}" for member in self._group.ids)
        print(f"period {len(totals.periods)}, {time.strftime('%H:%M:%S')}: killed {killed}; "
              f"{count:,} sends and the log from {first:,} to {totals.log_end:,} judged, "
              f"{len(faults)} faults; " + "; ".join(
                  f"{member} {each.memory_kib / 1024:.1f} MiB, {each.descriptors} descriptors, "
                  f"{each.files} files" for member, each in sorted(figures.items())), flush=True)
        for line in (*faults, *notes):
            print(f"  {line}", flush=True)

    def _kill_until(self, end: float) -> Counter[str]:
        """Kill members at random until a moment; :returns: how often each one was killed."""
        kills: Counter[str] = Counter()
        while self._next_kill < end:
            time.sleep(max(0.0, self._next_kill - time.monotonic()))
            member = self._chance.choice(self._group.ids)
            self._group.kill(member)
            self._group.start(member)
            self._loaded.recover()
            kills[member] += 1
            # The next pause begins when all is well.
            self._next_kill = time.monotonic() + self._chance.uniform(*self._pause_seconds)
        time.sleep(max(0.0, end - time.monotonic()))
        return kills

    def judge_period(self) -> tuple[list[str], list[str], int]:
        """Judge the newest messages; :returns: faults, notes, and the number of sends."""
        totals = self.totals
        end, ready = self._compare_logs(), now_ms()
        readers = [each for each in self._loaded.readers if each.node in self._group.ours_ids]
        wait_until("the readers have all messages", lambda: all(
            reader.has_all_since(ready) or reader.failure for reader in readers), PATIENCE_SECONDS)
        history = self._loaded.history
        # The readers go on.
        sends, reads = history.sends[:], history.reads[:]
        del history.sends[: len(sends)], history.reads[: len(reads)]
        ledgers = {member: self._read_log(member, end) for member in self._group.ids}
        part = History([*self._unknown, *sends], reads, logs={
            member: ledger.log for member, ledger in ledgers.items()})
        first = ledgers[self._group.ids[0]]
        faults, notes = judge_mixed(part, first.terms, {
            member: self._group.members[member].address for member in self._group.apaches},
            self._begins)
        totals.log_end = end
        self._unknown = [send for send in sends if send.outcome is Outcome.UNKNOWN]
        totals.outcomes.update(send.outcome.name for send in sends)
        expected_queues(first.log.entries, totals.places)
        return faults, notes, len(sends)

    def _read_log(self, member: str, end: int) -> Ledger:
        """Read what a member has stored since the last judgement."""
        return read_ledger(self._group.members[member].log_folder, end, self.totals.log_end)

    def _compare_logs(self) -> int:
        """Wait until the logs are equal; :returns: where they end."""
        while True:
            # Retention may remove a file while it is compared.
            with suppress(FileNotFoundError):
                return self._group.wait_for_equal_logs()

    def _make_old(self) -> None:
        """Let the files of judged messages be as if they were written long ago."""
        then = time.time() - _OLD_SECONDS
        for member in self._group.ids:
            for path in self._group.members[member].log_folder.glob("0*"):
                # Retention removes files meanwhile.
                with suppress(FileNotFoundError):
                    if int(path.name) + path.stat().st_size <= self.totals.log_end:
                        os.utime(path, (then, then))


def run_soak(
    group: ProcessGroup, hours: float, minutes: float, rate: float, seed: int,
    pause_seconds: tuple[float, float],
) -> int:
    """Run periods until they have taken some hours; :returns: the exit status.

    :param hours: those of earlier runs in the same folder are included.
    :param minutes: of a period.
    :param rate: the messages in a second.
    :raises AssertionError: when the earlier runs were of another group.
    """
    path = group.folder / "soak.json"
    totals = Totals.load(path)
    totals.composition = totals.composition or group.composition
    assert totals.composition == group.composition, f"{path} is of {totals.composition}"
    loaded = LoadedGroup(
        group, writers=WRITERS, first_writer=totals.parts * WRITERS, rate=rate,
        read_seconds=_READ_SECONDS, prepare=lambda: soak.take_up())
    watch = FigureWatch(group)
    soak = Soak(loaded, watch, random.Random(seed + totals.parts), pause_seconds, totals)
    with loaded:
        watch.start()
        try:
            for seconds in period_lengths(totals, hours * 3600, minutes * 60):
                soak.run_period(seconds)
                totals.save(path)
        except AssertionError as error:
            totals.faults.append(f"the run ended early: {error}")
        watch.end()
        loaded.stop()
        found, notes = end_and_compare(group, [TOPIC], totals.places)
        faults = totals.faults + loaded.client_faults() + found
        if totals.periods:
            faults += growth_faults(totals.periods)
    for note in notes:
        print(f"  {note}", flush=True)
    killed = ", ".join(f"{member} {totals.killed[member]}" for member in group.ids)
    outcomes = totals.outcomes
    return report(
        f"soak {group.composition}", f"{totals.seconds / 3600:.2f} h in {totals.parts} parts, "
        f"{totals.killed.total()} kills ({killed}), {len(totals.periods)} periods; "
        f"{outcomes['OK']:,} sends acknowledged, {outcomes['REFUSED']:,} refused, "
        f"{outcomes['UNKNOWN']:,} unknown; {sum(map(len, totals.places.values())):,} messages in "
        f"the queues, a log of {totals.log_end / (1 << 20):,.0f} MiB", faults)


def period_lengths(totals: Totals, whole: float, longest: float) -> Iterator[float]:
    """Return the length of each period until the totals have a time, s.

    :param whole: this time, which has two periods at least.
    :param longest: the longest period.
    """
    longest = min(longest, whole / 2)
    # The judgement of a period takes time as well, so each length follows from what is left.
    while (left := whole - totals.seconds) > 0:
        yield left / math.ceil(left / longest)
