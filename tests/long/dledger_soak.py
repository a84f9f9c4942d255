"""Kill brokers of a group at random for hours: the history has no fault, and nothing grows.

This is the part ``soak`` of tests/long/dledger_kills.py. The run is cut into periods, so that the
memory of the judgement is bounded. At the end of a period the writers pause until all members are
equal and all readers have everything. The messages of the period are compared with its part of the
three logs, and forgotten. Then the files of the logs that are judged get an old time of their last
change, so that the brokers' own retention removes them. What is kept for the whole run is the
place of each message, with which the queues of our brokers are compared in the end.

The figures of our processes are their anonymous memory, their file descriptors, and the files in
their folders. They are read every ten seconds, and the largest ones of a period count. The bounds
follow from the largest figures of the first quarter of the periods, of any of our brokers, because
each of them leads at times. Memory may grow by a tenth and 8 MiB: the same broker differs by a few
MiB with its role and its age. Descriptors and files may double and grow by 8: most of them belong
to files of the log and its queues, and a period ends with up to two periods of these. What grows
with the number of messages exceeds this bound within three periods.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from tests.history.records import History, Outcome, Send
from tests.interop.servers import rss_anon_kib, wait_until
from tests.long.dledger_group import (
    PATIENCE_SECONDS,
    LoadedGroup,
    ProcessGroup,
    read_ledger,
    report,
)
from tests.long.dledger_load import TOPIC, now_ms
from tests.long.dledger_mixed import Places, end_and_compare, expected_queues, judge_mixed

__all__ = ["COMMON", "FigureWatch", "Figures", "Soak", "growth_faults", "read_figures",
           "run_soak"]

#: Settings of all members: files are removed at any hour, and are small, so that many are.
COMMON: Final = {"deleteWhen": ";".join(map(str, range(24))), "mappedFileSizeConsumeQueue": "20000"}
#: The age that files of judged messages get. Apache's members keep files an hour longer than set.
_OLD_SECONDS: Final = 100 * 3600
_SAMPLE_SECONDS: Final = 10.0
#: How often the readers ask for news, s. There are twelve queues.
_READ_SECONDS: Final = 1.0


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


class Soak:
    """The periods of a run.

    :param pause_seconds: the least and the longest time between two kills.
    """

    def __init__(
        self, loaded: LoadedGroup, watch: FigureWatch, chance: random.Random,
        pause_seconds: tuple[float, float],
    ) -> None:
        self._loaded, self._group, self._watch = loaded, loaded.group, watch
        self._chance, self._pause_seconds = chance, pause_seconds
        self._next_kill = time.monotonic() + chance.uniform(*pause_seconds)
        #: The offset up to which the log and its queues are judged.
        self.log_end = 0
        self._begins: dict[str, int] = {}
        #: Messages of the last period whose outcome is unknown. They were sent again later.
        self._unknown: list[Send] = []
        #: The places of all messages by queue, for the comparison at the end.
        self.places: Places = {}
        self.periods: list[dict[str, Figures]] = []
        self.killed: Counter[str] = Counter()
        self.outcomes: Counter[Outcome] = Counter()
        self.faults: list[str] = []

    def run_period(self, end: float) -> None:
        """Kill members until a moment, and judge what was sent.

        :raises AssertionError: when the group does not recover.
        """
        before = self.killed.copy()
        while self._next_kill < end:
            time.sleep(max(0.0, self._next_kill - time.monotonic()))
            member = self._chance.choice(self._group.ids)
            self._group.kill(member)
            self._group.start(member)
            self._loaded.recover()
            self.killed[member] += 1
            # The next pause begins when all is well.
            self._next_kill = time.monotonic() + self._chance.uniform(*self._pause_seconds)
        time.sleep(max(0.0, end - time.monotonic()))
        kills = self.killed - before
        figures = self._watch.take()
        self.periods.append(figures)
        begin = self.log_end
        with self._loaded.held():
            faults, notes, count = self.judge_period()
            self._make_old()
        self.faults += faults
        killed = ", ".join(f"{member} {kills[member]}" for member in self._group.ids)
        print(f"period {len(self.periods)}, {time.strftime('%H:%M:%S')}: killed {killed}; "
              f"{count:,} sends and the log from {begin:,} to {self.log_end:,} judged, "
              f"{len(faults)} faults; " + "; ".join(
                  f"{member} {each.memory_kib / 1024:.1f} MiB, {each.descriptors} descriptors, "
                  f"{each.files} files" for member, each in sorted(figures.items())), flush=True)
        for line in (*faults, *notes):
            print(f"  {line}", flush=True)

    def judge_period(self) -> tuple[list[str], list[str], int]:
        """Judge the newest messages; :returns: faults, notes, and the number of sends."""
        end, ready = self._compare_logs(), now_ms()
        readers = [each for each in self._loaded.readers if each.node in self._group.ours_ids]
        wait_until("the readers have all messages", lambda: all(
            reader.has_all_since(ready) or reader.failure for reader in readers), PATIENCE_SECONDS)
        history = self._loaded.history
        # The readers go on.
        sends, reads = history.sends[:], history.reads[:]
        del history.sends[: len(sends)], history.reads[: len(reads)]
        ledgers = {member: read_ledger(self._group.members[member].log_folder, end, self.log_end)
                   for member in self._group.ids}
        part = History([*self._unknown, *sends], reads, logs={
            member: ledger.log for member, ledger in ledgers.items()})
        first = ledgers[self._group.ids[0]]
        faults, notes = judge_mixed(part, first.terms, {
            member: self._group.members[member].address for member in self._group.apaches},
            self._begins)
        self.log_end = end
        self._unknown = [send for send in sends if send.outcome is Outcome.UNKNOWN]
        self.outcomes.update(send.outcome for send in sends)
        expected_queues(first.log.entries, self.places)
        self._begins = {queue: len(places) for queue, places in self.places.items()}
        return faults, notes, len(sends)

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
                    if int(path.name) + path.stat().st_size <= self.log_end:
                        os.utime(path, (then, then))


def run_soak(
    group: ProcessGroup, hours: float, minutes: float, rate: float, seed: int,
    pause_seconds: tuple[float, float],
) -> int:
    """Run periods for some hours; :returns: the exit status.

    :param minutes: of a period.
    :param rate: the messages in a second.
    """
    begin = time.monotonic()
    count = max(2, round(hours * 60 / minutes))
    with LoadedGroup(group, rate=rate, read_seconds=_READ_SECONDS) as loaded:
        watch = FigureWatch(group)
        watch.start()
        soak = Soak(loaded, watch, random.Random(seed), pause_seconds)
        try:
            for number in range(1, count + 1):
                soak.run_period(begin + hours * 3600 * number / count)
        except AssertionError as error:
            soak.faults.append(f"the run ended early: {error}")
        watch.end()
        loaded.stop()
        found, notes = end_and_compare(group, [TOPIC], soak.places)
        faults = soak.faults + loaded.client_faults() + found
        if soak.periods:
            faults += growth_faults(soak.periods)
    for note in notes:
        print(f"  {note}", flush=True)
    killed = ", ".join(f"{member} {soak.killed[member]}" for member in group.ids)
    return report(
        f"soak {group.composition}", f"{(time.monotonic() - begin) / 3600:.2f} h, "
        f"{soak.killed.total()} kills ({killed}), {len(soak.periods)} periods; "
        f"{soak.outcomes[Outcome.OK]:,} sends acknowledged, "
        f"{soak.outcomes[Outcome.REFUSED]:,} refused, {soak.outcomes[Outcome.UNKNOWN]:,} unknown; "
        f"{sum(map(len, soak.places.values())):,} messages in the queues, a log of "
        f"{soak.log_end / (1 << 20):,.0f} MiB", faults)
