"""The driver of the fault harness without Spark: it calls the source as Spark does.

It takes the same commands as ``job.py`` and tells the same, and writes the same files, so that the
harness cannot tell the two apart. One thread runs each stream, and no JVM is started: hundreds of
faults cost little processor time.
"""

from __future__ import annotations

import json
import os
import pickle
import queue
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pyspark

from twistmq.spark_bridge import sink
from twistmq.spark_bridge.source import RocketMQDataSource

COLUMNS = ("topic", "brokerName", "queueId", "queueOffset", "body")


class Context:
    """The context of a task."""

    current = threading.local()

    def __init__(self, query: str, batch: int, partition: int) -> None:
        self._properties = {"sql.streaming.queryId": query, "streaming.sql.batchId": str(batch)}
        self._partition = partition

    @classmethod
    def get(cls) -> Context | None:
        found: Context | None = getattr(cls.current, "context", None)
        return found

    def partitionId(self) -> int:
        return self._partition

    def getLocalProperty(self, name: str) -> str | None:
        return self._properties.get(name)


def copied(thing: Any) -> Any:
    """Return a copy, as tasks get it."""
    return pickle.loads(pickle.dumps(thing))


def write_whole(path: Path, text: str) -> None:
    """Write a file that is there as a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.tmp")
    part.write_text(text)
    part.rename(path)


class Stream(threading.Thread):
    """One stream: it plans, records and executes micro-batches in Spark's order."""

    def __init__(self, driver: Driver, command: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self.driver, self.command = driver, command
        self.checkpoint = Path(command["checkpoint"])
        self.source = RocketMQDataSource(driver.options(command["options"]))
        self.reader: Any = self.source.streamReader(self.source.schema())
        self.tasks = copied(self.reader)
        query = self.checkpoint / "metadata"
        if not query.exists():
            write_whole(query, str(uuid.uuid4()))
        self.query = query.read_text()
        self.writer: Any = None
        if command["kind"] == "topic":
            from pyspark.sql.types import StringType, StructField, StructType

            self.writer = RocketMQDataSource(driver.options(command["sink"])).streamWriter(
                StructType([StructField("body", StringType())]), False)

    def run(self) -> None:
        name = self.command["query"]
        try:
            number, offset = self._resumed()
            self.driver.say(event="begun", query=name)
            while True:
                end = copied(self.reader.latestOffset(
                    copied(offset), self.reader.getDefaultReadLimit()))
                if end != offset:
                    self._write_down("offsets", number, end)
                    self._do(number, offset, end)
                    number, offset = number + 1, end
                time.sleep(self.driver.config["seconds"])
        except BaseException as error:
            self.driver.say(event="ended", query=name, error=f"{type(error).__name__}: {error}")

    def _resumed(self) -> tuple[int, Any]:
        """Return the number of the next micro-batch and its beginning."""
        offsets = self._numbers("offsets")
        if not offsets:
            self.reader.initialOffset()
            offset = copied(self.reader.initialOffset())
            self._write_down("offsets", -1, offset)
            return 0, offset
        last = max(offsets)
        end = self._read("offsets", last)
        if last >= 0 and last not in self._numbers("commits"):
            self._do(last, self._read("offsets", last - 1), end)
        self.reader.partitions(end, end)
        return last + 1, end

    def _do(self, number: int, start: Any, end: Any) -> None:
        """Execute a micro-batch, perhaps again."""
        parts = copied(self.reader.partitions(start, end))
        if self.writer is None:
            self._to_parquet(number, [batch for part in parts for batch in self._read_part(part)])
        else:
            for index, part in enumerate(parts):
                Context.current.context = Context(self.query, number, index)
                copied(self.writer).write(
                    batch.select(["body"]) for batch in self._read_part(part))
        self._write_down("commits", number, {})
        self.reader.commit(end)

    def _read_part(self, part: Any) -> Iterator[Any]:
        """The rows of a partition; a task that fails is run again, as on a cluster."""
        for tries in range(4):
            try:
                yield from [batch.select(list(COLUMNS)) for batch in copied(self.tasks).read(part)]
                return
            except Exception:
                if tries == 3:
                    raise

    def _to_parquet(self, number: int, batches: list[Any]) -> None:
        output = Path(self.command["output"])
        log = output / "_spark_metadata" / str(number)
        if log.exists():
            # A micro-batch that is written again counts once.
            return
        output.mkdir(parents=True, exist_ok=True)
        path = output / f"part-{number}-{uuid.uuid4()}.parquet"
        lines = ["v1"]
        if batches:
            parquet.write_table(pa.Table.from_batches(batches), path)
            lines.append(json.dumps({"path": f"file://{path}", "action": "add"}))
        write_whole(log, "\n".join(lines))

    def _numbers(self, folder: str) -> list[int]:
        return [int(path.name) for path in (self.checkpoint / folder).glob("[-0-9]*")]

    def _write_down(self, folder: str, number: int, value: Any) -> None:
        write_whole(self.checkpoint / folder / str(number), json.dumps(value))

    def _read(self, folder: str, number: int) -> Any:
        return json.loads((self.checkpoint / folder / str(number)).read_text())


class Driver:
    """The process of the driver."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self._lock = threading.Lock()
        self._batches: queue.Queue[dict[str, Any]] = queue.Queue()

    def options(self, given: dict[str, str]) -> dict[str, str]:
        """Return options as Spark passes them."""
        return {name.lower(): value for name, value in {
            "nameServer": self.config["nameServer"], "bodyFormat": "string", **given}.items()
            if name != "bodyFormat" or "topic" not in given}

    def say(self, **event: Any) -> None:
        """Send a text to the harness."""
        with self._lock:
            print("@@" + json.dumps(event), flush=True)

    def run(self) -> None:
        """Execute commands until the input ends."""
        threading.Thread(target=self._read_batches, daemon=True).start()
        self.say(event="ready")
        for line in sys.stdin:
            command = json.loads(line)
            if "batch" in command:
                self._batches.put(command)
            else:
                threading.Thread(target=self._start, args=(command,), daemon=True).start()
        os._exit(0)

    def _start(self, command: dict[str, Any]) -> None:
        Stream(self, command).start()

    def _read_batches(self) -> None:
        while True:
            command = self._batches.get()
            begin = time.time()
            try:
                source = RocketMQDataSource(self.options(command["options"]))
                reader: Any = source.reader(source.schema())
                tasks, parts = copied(reader), copied(reader.partitions())
                rows = [list(row.values()) for part in parts for batch in tasks.read(part)
                        for row in batch.select(list(COLUMNS)).to_pylist()]
            except Exception as error:
                self.say(event="batch", batch=command["batch"], begin=begin,
                         error=f"{type(error).__name__}: {error}")
            else:
                self.say(event="batch", batch=command["batch"], begin=begin, rows=rows)


if __name__ == "__main__":
    # A task of the sink asks for its context.
    sink.TaskContext = pyspark.TaskContext = Context  # type: ignore[misc,attr-defined]
    Driver(json.loads(sys.argv[1])).run()
