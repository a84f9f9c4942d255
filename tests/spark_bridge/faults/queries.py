"""The queries of the fault harness: a driver that can be killed, and its output.

Of the streams, ``loose`` reads all topics into Parquet with ``failOnDataLoss=false``, ``strict``
does so with ``true`` and is begun again when it ends for a loss, and ``copy`` writes one topic into
another. Batches are read all the time.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.interop.servers import wait_until
from tests.spark_bridge.faults.ledger import Ledger, Outcome, Place
from tests.spark_bridge.faults.world import COPY, TOPICS

__all__ = ["NO_NAME_SERVER", "Batch", "Generation", "Queries", "Row", "Told", "Warned",
           "committed_rows", "losses_of"]

_JOBS: Final = {True: Path(__file__).with_name("job.py"),
                False: Path(__file__).with_name("plain_job.py")}
_START_SECONDS: Final = 240.0
#: The error of a new query while no name server answers.
NO_NAME_SERVER: Final = "option nameServer: no name server answers"
#: Topic, broker, queue, offset, body.
Row = tuple[str, str, int, int, str]

_PLACE: Final = r"topic ([\w.%-]+), broker ([\w.-]+), queue (\d+)"
_LAST: Final = 1 << 62
#: The lines that tell of a loss, and what they say is gone: from an offset to another one.
_SKIPPED: Final = re.compile(_PLACE + r".*; (\d+) offsets are skipped, (\d+) to (\d+)")
_NEXT: Final = re.compile(_PLACE + r": .*?offset (\d+) was next")
_REPLACED: Final = re.compile(_PLACE + r": the message before offset (\d+) is not the one")
_QUEUE: Final = re.compile(_PLACE)


@dataclass(frozen=True, slots=True)
class Warned:
    """A loss that the bridge reported.

    :param first: the first offset that is skipped.
    :param last: the last one.
    :param count: how many that are, where the line says it.
    """

    place: Place
    first: int
    last: int
    count: int | None
    time_s: float
    line: str


def losses_of(line: str, time_s: float) -> Warned | None:
    """Return the loss that a line of the log reports, or None."""
    found = _SKIPPED.search(line)
    if found is not None:
        return Warned((found[1], found[2], int(found[3])), int(found[5]), int(found[6]),
                      int(found[4]), time_s, line)
    found = _NEXT.search(line) or _REPLACED.search(line)
    if found is None:
        return None
    return Warned((found[1], found[2], int(found[3])), int(found[4]), _LAST, None, time_s, line)


@dataclass
class Generation:
    """One run of a stream from an empty checkpoint.

    :param error: what it ended with; "" while it runs.
    """

    query: str
    number: int
    folder: Path
    begin_s: float
    error: str = ""
    end_s: float = 0.0

    @property
    def output(self) -> Path:
        return self.folder / "output"


@dataclass
class Batch:
    """A requested batch.

    :param ranges: the first offset and the one after the last of each queue.
    """

    number: int
    ranges: dict[Place, tuple[int, int]]
    fails: bool
    begin_s: float
    end_s: float = 0.0
    rows: list[Row] | None = None
    error: str = ""


@dataclass
class Told:
    """The output of all drivers."""

    warned: list[Warned] = field(default_factory=list)
    waits: int = 0
    nameless: int = 0
    late: int = 0
    drivers: int = 0


class Queries:
    """The driver and its queries.

    :param python: the interpreter of an environment with PySpark.
    :param seconds: between two micro-batches.
    :param options: of every read.
    :param has_spark: whether the driver is Spark's, or one that asks the source what Spark asks it.
    """

    def __init__(self, python: str, folder: Path, ledger: Ledger, name_server: str, seconds: float,
                 options: dict[str, str], seed: int, has_spark: bool = True) -> None:
        self._job = _JOBS[has_spark]
        self._python, self._folder, self._ledger = python, folder, ledger
        self._config = {"nameServer": name_server, "folder": str(folder), "seconds": seconds}
        self._options = options
        self._chance = random.Random(f"{seed}/batches")
        self._process: subprocess.Popen[str] | None = None
        self._threads: list[threading.Thread] = []
        self._lock = threading.RLock()
        self.told = Told()
        self.generations: dict[str, list[Generation]] = {}
        self.batches: list[Batch] = []
        self.forgotten = 0
        self.failures: list[str] = []
        #: The streams that run.
        self.begun: set[str] = set()
        self.log = folder / "driver.log"
        for name in ("loose", "copy", "strict"):
            self._new_generation(name)

    # --- the driver

    def start(self) -> None:
        """Start a driver over the checkpoints; returns when its queries are asked for."""
        ready = threading.Event()
        self.begun.clear()
        process = subprocess.Popen(
            [self._python, str(self._job), json.dumps(self._config)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
            start_new_session=True)
        self._threads = [threading.Thread(target=work, args=arguments, daemon=True)
                         for work, arguments in ((self._read_events, (process, ready)),
                                                 (self._read_log, (process,)))]
        for thread in self._threads:
            thread.start()
        self._process = process
        wait_until("the driver is ready", lambda: (
            ready.is_set() or process.poll() is not None), _START_SECONDS)
        if not ready.is_set():
            raise RuntimeError(f"the driver does not start, see {self.log}")
        self.told.drivers += 1
        with self._lock:
            for name in self.generations:
                self._begin(self.generations[name][-1])

    def wait_for_all(self, seconds: float) -> None:
        """Wait until all streams run, if they do so in time."""
        with contextlib.suppress(AssertionError):
            wait_until("the streams run", lambda: self.begun >= self.generations.keys(),
                       seconds)

    def kill(self) -> None:
        """Kill the driver, its JVM and its workers."""
        self.begun.clear()
        process, self._process = self._process, None
        if process is None:
            return
        # Workers have groups of their own, in the same session. Others may start meanwhile.
        while pids := _of_session(process.pid):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.poll()
        process.wait()
        for thread in self._threads:
            thread.join()
        for pipe in (process.stdin, process.stdout, process.stderr):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
        with self._lock:
            waiting = [each for each in self.batches if not each.end_s]
            self.forgotten += len(waiting)
            self.batches = [each for each in self.batches if each.end_s]

    def _tell(self, **command: Any) -> None:
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        # A driver that was killed meanwhile reads nothing.
        with contextlib.suppress(OSError, ValueError):
            process.stdin.write(json.dumps(command) + "\n")
            process.stdin.flush()

    def _read_log(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        with self.log.open("a") as log:
            for line in process.stderr:
                now = time.time()
                log.write(f"{time.strftime('%H:%M:%S', time.localtime(now))} {line}")
                log.flush()
                if "waiting for up to" in line:
                    self.told.waits += 1
                warned = losses_of(line, now)
                # The error of a query that failed is not printed; its text comes as an event.
                if warned is not None and "with the option failOnDataLoss=false" not in line:
                    self.told.warned.append(warned)

    def _read_events(self, process: subprocess.Popen[str], ready: threading.Event) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if not line.startswith("@@"):
                continue
            try:
                event = json.loads(line[2:])
            except ValueError:
                # It was killed in the middle of a line.
                continue
            if event["event"] == "ready":
                ready.set()
            elif event["event"] == "begun":
                self.begun.add(event["query"])
            elif event["event"] == "late":
                self.told.late += 1
            elif event["event"] == "ended":
                self._ended(event["query"], event["error"])
            else:
                self._batch_read(event)

    # --- streams

    def _new_generation(self, name: str) -> Generation:
        known = self.generations.setdefault(name, [])
        known.append(Generation(name, len(known), self._folder / f"{name}-{len(known)}",
                                time.time()))
        return known[-1]

    def _begin(self, generation: Generation) -> None:
        """Let the driver start a stream."""
        read = {**self._options, "startingOffsets": "earliest"}
        topics = sorted({topic for each in TOPICS.values() for topic in each})
        if generation.query == "strict":
            read |= {"subscribePattern": "|".join(topics), "failOnDataLoss": "true"}
        else:
            read |= {"subscribe": ",".join(topics), "failOnDataLoss": "false"}
        command = {"query": generation.query, "options": read, "kind": "parquet",
                   "checkpoint": str(generation.folder / "checkpoint"),
                   "output": str(generation.output)}
        if generation.query == "copy":
            read["subscribe"] = "steady"
            command |= {"kind": "topic", "sink": {
                "topic": COPY, "idempotenceKey": "mark", "batchSize": "8"}}
        self._tell(**command)

    def _ended(self, name: str, error: str) -> None:
        """Record that a stream has ended; only a loss is a valid reason."""
        with self._lock:
            self.begun.discard(name)
            generation = self.generations[name][-1]
            if NO_NAME_SERVER in error and not any(generation.folder.glob("checkpoint/offsets/*")):
                # A new query does not wait for a name server that never answered.
                self.told.nameless += 1
                self._begin(generation)
                return
            generation.error, generation.end_s = error, time.time()
            print(f"{time.strftime('%H:%M:%S')} {name} ended", flush=True)
            if name != "strict" or "DataLoss: " not in error:
                self.failures.append(f"the query {name} ended: {error[:1000]} [...] {error[-500:]}")
                print(self.failures[-1], flush=True)
                generation.error = ""
            else:
                generation = self._new_generation(name)
            self._begin(generation)

    # --- batches

    def ask_for_batch(self) -> None:
        """Have the driver read some of the last messages of a topic, unless it still reads some."""
        with self._lock:
            if self._process is None or any(not each.end_s for each in self.batches):
                return
            topic = self._chance.choice(("steady", "grows", "made"))
            ranges: dict[Place, tuple[int, int]] = {}
            first: dict[Place, int] = {}
            last: dict[Place, int] = {}
            for each in self._ledger.all():
                if (each.place[0] == topic and each.outcome is Outcome.ACKNOWLEDGED
                        and not each.lost):
                    first.setdefault(each.place, each.offset)
                    last[each.place] = each.offset
            for place, offset in last.items():
                ranges[place] = (max(offset - self._chance.randrange(60), first[place]),
                                 offset + 1)
            if not ranges:
                return
            batch = Batch(len(self.batches) + self.forgotten, ranges,
                          self._chance.random() < 0.5, time.time())
            self.batches.append(batch)
            self._tell(batch=batch.number, options=self._batch_options(topic, batch))

    def _batch_options(self, topic: str, batch: Batch) -> dict[str, str]:
        def offsets(index: int) -> str:
            found: dict[str, Any] = {topic: {}}
            for place, bounds in batch.ranges.items():
                found[topic].setdefault(place[1], {})[str(place[2])] = bounds[index]
            return json.dumps(found)

        queues: dict[str, list[int]] = {}
        for _, broker, queue_id in sorted(batch.ranges):
            queues.setdefault(broker, []).append(queue_id)
        return {**self._options, "assign": json.dumps({topic: queues}),
                "startingOffsets": offsets(0), "endingOffsets": offsets(1),
                "failOnDataLoss": str(batch.fails).lower()}

    def _batch_read(self, event: dict[str, Any]) -> None:
        with self._lock:
            for batch in self.batches:
                if batch.number == event["batch"]:
                    batch.end_s = time.time()
                    batch.error = event.get("error", "")
                    if "rows" in event:
                        batch.rows = [tuple(row) for row in event["rows"]]


def _of_session(leader: int) -> list[int]:
    """The processes of a session that have not ended."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, _, _, session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(session) == leader and state != "Z":
                found.append(int(folder.name))
    return found


def committed_rows(output: Path) -> list[Row]:
    """The rows that a stream has written to Parquet, in the order of its micro-batches."""
    import pyarrow.parquet as parquet

    rows: list[Row] = []
    for file in _committed_files(output):
        for row in parquet.ParquetFile(file).read().to_pylist():
            rows.append((row["topic"], row["brokerName"], row["queueId"], row["queueOffset"],
                         row["body"]))
    return rows


def _committed_files(output: Path) -> list[Path]:
    """The files that count: Spark's log of the sink names them."""
    log = output / "_spark_metadata"
    names: dict[str, None] = {}
    versions = [path for path in log.glob("[0-9]*") if not path.name.endswith(".tmp")]
    compact = max((int(path.name.split(".")[0]) for path in versions
                   if path.name.endswith(".compact")), default=-1)
    for path in sorted(versions, key=lambda path: int(path.name.split(".")[0])):
        number = int(path.name.split(".")[0])
        if number < compact or (number == compact and not path.name.endswith(".compact")):
            continue
        for line in path.read_text().splitlines()[1:]:
            entry = json.loads(line)
            names[entry["path"].removeprefix("file://")] = None
    return [Path(name) for name in names]


