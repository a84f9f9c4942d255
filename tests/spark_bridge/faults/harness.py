"""The fault harness: servers, producers, queries and faults together, and the verdict.

:func:`run` is what the long program and the short test share.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.spark_bridge.faults.check import Checker
from tests.spark_bridge.faults.faults import KINDS, Faults
from tests.spark_bridge.faults.ledger import Ledger, Outcome, Place
from tests.spark_bridge.faults.queries import Batch, Generation, Queries, Told, committed_rows
from tests.spark_bridge.faults.world import COPY, PAIR, TOPICS, World

__all__ = ["RECORD", "Plan", "Record", "Verdict", "judge", "run"]

#: The file of a run's record, in its folder.
RECORD: Final = "record.pickle"

#: Problems that are shown.
_SHOWN: Final = 40


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a run.

    :param seconds: how long there are faults; None: each kind once.
    :param python: the interpreter of an environment with PySpark.
    :param rate: messages a second to each broker.
    :param trigger_s: from one micro-batch to the next.
    :param pause_s: the least and the most time between two faults of one broker.
    :param away_s: the same of the time for which a server is away.
    :param check_s: the option deletionCheckMs.
    :param batch_s: from one batch to the next.
    :param has_spark: whether Spark runs the queries.
    :param end_s: how long the streams may take to begin, and in the end to read what is there.
    """

    folder: Path
    python: str
    seconds: float | None
    seed: int = 1
    kinds: tuple[str, ...] = tuple(KINDS)
    rate: float = 5.0
    trigger_s: float = 5.0
    pause_s: tuple[float, float] = (2.0, 12.0)
    away_s: tuple[float, float] = (1.0, 15.0)
    check_s: float = 5.0
    batch_s: float = 10.0
    has_spark: bool = True
    end_s: float = 600.0


@dataclass
class Verdict:
    """The outcome of a run."""

    faults: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = ["faults: " + ", ".join(f"{count} {kind}" for kind, count in self.faults.items()),
                 *(f"{count:,} {what}" for what, count in self.counts.items()),
                 f"{len(self.problems)} problems", *self.problems[:_SHOWN]]
        return "\n".join(lines)


@dataclass
class Record:
    """The record of a run, which the checker needs, with the outputs of the streams."""

    ledger: Ledger
    content: dict[Place, list[tuple[int, str]]]
    copied: list[tuple[str, str]]
    told: Told
    generations: dict[str, list[Generation]]
    batches: list[Batch]
    forgotten: int
    faults: Counter[str]
    nameless: list[tuple[float, float]]
    failures: list[str]


def run(plan: Plan) -> Verdict:
    """Run all, and compare; everything is ended when it returns."""
    ledger = Ledger()
    with World(plan.folder, ledger, plan.rate) as world:
        queries = Queries(plan.python, plan.folder, ledger, world.namesrv, plan.trigger_s, {
            "deletionCheckMs": str(int(plan.check_s * 1000))}, plan.seed, plan.has_spark)
        try:
            queries.start()
            _wait_for_rows(plan, world, queries)
            faults = _do_faults(plan, world, queries)
            record = _record(plan, world, queries, faults)
        finally:
            queries.kill()
    return judge(record)


def _wait_for_rows(plan: Plan, world: World, queries: Queries) -> None:
    """Wait until all streams run, and those to Parquet have written something."""
    queries.wait_for_all(plan.end_s)
    end = time.monotonic() + plan.end_s
    while time.monotonic() < end and not queries.failures:
        if all(committed_rows(queries.generations[name][-1].output)
               for name in ("loose", "strict")):
            return
        time.sleep(0.3)


def _do_faults(plan: Plan, world: World, queries: Queries) -> Faults:
    """Cause the faults while batches are read."""
    faults = Faults(world, queries, plan.seed, plan.kinds, pause_s=plan.pause_s,
                    away_s=plan.away_s, gone_s=plan.check_s + plan.trigger_s + 2)
    over = threading.Event()

    def ask() -> None:
        while not over.wait(plan.batch_s):
            queries.ask_for_batch()

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        faults.run(plan.seconds)
    finally:
        over.set()
        asking.join()
    return faults


def _record(plan: Plan, world: World, queries: Queries, faults: Faults) -> Record:
    """Stop the producers, let the streams reach the end, and record all data."""
    for sender in world.senders.values():
        sender.stop()
    content = {place: [(offset, body) for offset, body, _ in world.content(place)]
               for name in TOPICS for place in world.places(name)}
    copied = _wait_for_end(plan, world, queries, content)
    queries.kill()
    failures = [failure for sender in world.senders.values() for failure in sender.failures]
    record = Record(
        world.ledger, content, copied, queries.told, queries.generations, queries.batches,
        queries.forgotten, faults.counts, faults.nameless,
        [*failures, *faults.failures, *queries.failures])
    with (plan.folder / RECORD).open("wb") as file:
        pickle.dump(record, file)
    return record


def judge(record: Record) -> Verdict:
    """Compare the sinks with the acknowledged messages."""
    ledger = record.ledger
    checker = Checker(ledger, record.content, record.told.warned, record.nameless)
    checker.check_brokers()
    checker.check_warnings()
    loose = committed_rows(record.generations["loose"][-1].output)
    checker.check_loose(loose)
    strict = record.generations["strict"]
    checker.check_strict(strict, {each.number: committed_rows(each.output) for each in strict})
    checker.check_copy(record.copied)
    for batch in record.batches:
        checker.check_batch(batch)
    outcomes = Counter(sent.outcome for sent in ledger.all())
    counts = Counter({
        "messages acknowledged": outcomes[Outcome.ACKNOWLEDGED],
        "sent with an answer that promises less, or none": outcomes[Outcome.UNSAFE],
        "lost by brokers": sum(bool(sent.lost) for sent in ledger.all()),
        "rows in loose": len(loose), "rows in copy": len(record.copied),
        "runs of strict": len(strict), "drivers": record.told.drivers,
        "waits for servers": record.told.waits, "losses told": len(record.told.warned),
        "starts again for a late worker": record.told.late,
        "starts without a name server": record.told.nameless,
        "batches of killed drivers": record.forgotten})
    counts.update(checker.counts)
    return Verdict(record.faults, counts, [*record.failures, *checker.problems])


def _wait_for_end(plan: Plan, world: World, queries: Queries,
                  content: dict[Place, list[tuple[int, str]]]) -> list[tuple[str, str]]:
    """Wait until the streams have all messages; :returns: the marks and bodies of the copy."""
    wanted = {body for rows in content.values() for _, body in rows}
    to_copy = {body for place, rows in content.items() if place[0] == "steady"
               for _, body in rows}
    end = time.monotonic() + plan.end_s
    while True:
        copied = [(properties.get("mark", ""), body) for number in range(2)
                  for _, body, properties in world.content((COPY, PAIR, number))]
        have = [{row[4] for row in committed_rows(queries.generations[name][-1].output)}
                for name in ("loose", "strict")]
        is_read = all(each.end_s > 0 for each in queries.batches)
        if (to_copy <= {body for _, body in copied} and all(wanted <= each for each in have)
                and is_read) or queries.failures or time.monotonic() > end:
            return copied
        time.sleep(1)


