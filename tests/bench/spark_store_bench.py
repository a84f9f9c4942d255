# ^The speed of Spark's reads of commit-log files by ``format("rocketmq_store")``.
"""How fast Spark reads a commit log's files by ``format("rocketmq_store")``.

  spark_store_bench.py [--messages 2000000] [--rounds 3] [--store DIR]

Writes a commit log of 1 GiB files with messages of 1 kB in 8 queues (with tag, key and what
a broker adds), unless --store names a directory with one; reads it with local[2] to nowhere, in
turns, and prints medians: default columns; without properties and what is made of them; record
batches made in this process by one core, without Spark; the ceiling, a source that yields batches
that are ready. Then it reads once more and compares count, sum of CRCs and the bounds of offsets by
queue with what was written. Beside it stands the most anonymous memory a worker had. It needs the
extra `spark` and Java. Nothing else should run on the machine meanwhile.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from twistmq.integrations.tables.columns import DERIVED_COLUMNS, default_columns
from twistmq.integrations.tables.log_pieces import PieceReader
from twistmq.integrations.tables.record_batches import BatchBuilder
from twistmq.integrations.tables.store_options import StoreOptions
from twistmq.integrations.tables.store_read import list_pieces
from twistmq.protocol import record
from twistmq.protocol.properties import format_properties
from twistmq.spark_bridge.spark_schema import spark_schema

FILE_SIZE, BODY_SIZE, QUEUES = 1 << 30, 1000, 8
BATCH = 10_000
#: Columns that cost least: no properties, nothing that is made of them.
PRUNED = ",".join(column.name for column in default_columns()
                  if column.name not in DERIVED_COLUMNS)


class Written:
    """The content of the store."""

    def __init__(self) -> None:
        self.count = self.crc_sum = 0


def write_store(folder: Path, messages: int) -> Written:
    """Write a commit log as a broker would have."""
    host = record.host_bytes("127.0.0.1", 10911)
    folder.mkdir(parents=True)
    written = Written()
    place = 0
    file = None
    for index in range(messages):
        properties = format_properties({
            "UNIQ_KEY": f"7F0000010000A6D0{index:016X}", "CLUSTER": "DefaultCluster",
            "TAGS": "TagA", "KEYS": f"key{index}", "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true", "WAIT": "true"})
        body = (b"%015d " % index) * (BODY_SIZE // 16) + b"x" * (BODY_SIZE % 16)
        made = record.MessageRecord("SparkBench", index % QUEUES, body, properties,
                                    1_700_000_000_000 + index // 50, host, host, [])
        made.queue_offset, made.store_timestamp = index // QUEUES, 1_700_000_000_001 + index // 50
        made.physical_offset = place
        data = record.encode_record(made)
        left = FILE_SIZE - place % FILE_SIZE
        if file is None or len(data) + 8 > left:
            if file is not None:
                file.write(record.blank_record(left))
                file.truncate(FILE_SIZE)
                file.close()
                place += left
                made.physical_offset = place
                data = record.encode_record(made)
            file = open(folder / f"{place:020d}", "wb")  # noqa: SIM115
        file.write(data)
        place += len(data)
        written.count += 1
        written.crc_sum += zlib.crc32(body) & 0x7FFFFFFF
    assert file is not None
    file.truncate(FILE_SIZE)
    file.close()
    return written


class Ready(DataSource):
    """A source whose batches are made in advance."""

    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> Any:
        return spark_schema(default_columns())

    def reader(self, schema: Any) -> DataSourceReader:
        return ReadyReader(self.options)


class ReadyReader(DataSourceReader):
    """Yields one batch repeatedly."""

    def __init__(self, options: Any) -> None:
        self._options = dict(options)

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(index) for index in range(2)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        batch = next(batches(self._options["path"], "", 1))
        for _ in range(int(self._options["messages"]) // 2 // batch.num_rows):
            yield batch


def batches(path: str, columns: str, files: int | None = None) -> Iterator[Any]:
    """Record batches of a store, made in this process."""
    options = StoreOptions.read({"path": path, "columns": columns})
    pieces, _ = list_pieces(options)
    for piece in pieces[:files]:
        yield from PieceReader(piece, BatchBuilder(options.columns), None, fail).batches()


def fail(path: str, position: int, text: str) -> None:
    raise SystemExit(f"{path} byte {position}: {text}")


class WorkerMemory:
    """The most anonymous memory a Python worker of Spark had, MB."""

    def __init__(self) -> None:
        self.most = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended.wait(0.1):
            for folder in Path("/proc").iterdir():
                if not folder.name.isdecimal():
                    continue
                try:
                    if b"pyspark.daemon" in (folder / "cmdline").read_bytes():
                        for line in (folder / "status").read_text().splitlines():
                            if line.startswith("RssAnon:"):
                                self.most = max(self.most, int(line.split()[1]) / 1000)
                except OSError:
                    continue

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--store", type=Path)
    args = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with tempfile.TemporaryDirectory(prefix="twistmq-bench-") as temporary:
        written = None
        path = args.store
        if path is None:
            path = Path(temporary) / "commitlog"
            begin = time.monotonic()
            written = write_store(path, args.messages)
            print(f"wrote {written.count:,} messages in {time.monotonic() - begin:.0f} s")
        spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config(
            "spark.driver.memory", "1g").config("spark.ui.showConsoleProgress", "false").config(
            "spark.log.level", "ERROR").getOrCreate()
        spark.dataSource.register(Ready)
        count = args.messages if written is None else written.count

        def spark_row(columns: str) -> None:
            spark.read.format("rocketmq_store").option("columns", columns).load(str(path)).write \
                .format("noop").mode("overwrite").save()

        def ready_row() -> None:
            spark.read.format("ready").option("messages", str(count)).load(str(path)).write.format(
                "noop").mode("overwrite").save()

        def one_core(columns: str) -> None:
            assert sum(batch.num_rows for batch in batches(str(path), columns))

        rows: dict[str, Callable[[], None]] = {
            "store, default columns": lambda: spark_row(""),
            "store, without properties": lambda: spark_row(PRUNED),
            "ceiling: batches that are ready": ready_row,
            "one core, no Spark, default": lambda: one_core(""),
            "one core, no Spark, without properties": lambda: one_core(PRUNED)}
        seconds: dict[str, list[float]] = {name: [] for name in rows}
        memory = WorkerMemory()
        spark_row("queueOffset")  # what starts only once is not measured
        for _ in range(args.rounds):
            for name, run in rows.items():
                begin = time.monotonic()
                run()
                seconds[name].append(time.monotonic() - begin)
        memory.stop()
        for name, each in seconds.items():
            print(f"{name:<40} {count / statistics.median(each):>10,.0f} rows/s")
        print(f"{'most anonymous memory of a worker':<40} {memory.most:>10,.0f} MB")
        if written is None:
            return 0
        frame = spark.read.format("rocketmq_store").option(
            "columns", "queueId,queueOffset,bodyCRC").load(str(path))
        found = {row[0]: tuple(row[1:]) for row in frame.groupBy("queueId").agg(
            f.count("*"), f.min("queueOffset"), f.max("queueOffset"), f.sum("bodyCRC")).collect()}
        each = written.count // QUEUES
        same = sum(row[0] for row in found.values()) == written.count \
            and sum(row[3] for row in found.values()) == written.crc_sum \
            and all(row[1] == 0 and row[2] >= each - 1 for row in found.values())
        print(f"count, CRCs and offsets of {len(found)} queues: {'the same' if same else 'DIFFER'}")
        return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
