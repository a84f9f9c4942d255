#!/usr/bin/env python3
"""A topic into a table of DuckDB: by the Arrow reader, and through the Spark bridge.

  arrow_bench.py [--messages 1000000] [--size 1024] [--rounds 5] [--ways Arrow ...]
                 [--ordered] [--twistmq PROGRAM]

Starts `twistmq up`, fills a topic of 8 queues, and copies all default columns of it to a table in a
new file of DuckDB:

  Arrow          read_messages, whose reader DuckDB consumes
  Spark-Arrow    DataFrame.toArrow, which collects the rows in the memory of the driver
  Spark-Parquet  the DataFrame is written to Parquet files, which DuckDB reads

Spark has local[2], two Python workers and a driver of 6 GiB. Each round is a new process, which
first copies another topic of a tenth of the size; then the copy counts, and the start of Spark does
not. DuckDB has a memory limit of 64 MB, so that the memory of the process shows what the reader
needs, or of 96 MB for Parquet files, because reading these fails with less. It does not preserve
the insertion order, as its guide recommends for data that are larger than the memory. It has these
settings in all ways; with --ordered, only the limit. The ways take turns, and the medians count.
Memory is the largest resident set of the Python process (VmHWM); the JVM and its workers are not
counted. Each table is compared with what was sent: rows, bytes, and the CRCs of the bodies.

CPU is that of the process and of all its descendants, so it contains the JVM and the workers of
Python. The CPU of the broker is a column of its own.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import bench_servers

QUEUES: Final = 8
PORT: Final = 32_650
TOPIC, FIRST_TOPIC = "ArrowBench", "ArrowBenchFirst"
MEMORY_LIMIT: Final = "64MB"
PARQUET_MEMORY_LIMIT: Final = "96MB"
ARROW, SPARK_ARROW, SPARK_PARQUET = "Arrow", "Spark-Arrow", "Spark-Parquet"
WAYS: Final = (ARROW, SPARK_ARROW, SPARK_PARQUET)
Figures = dict[str, float]
#: Copies a topic to a table "messages" in a new file.
Copy = Callable[[str, Path], Any]


def open_table(path: Path, *, is_ordered: bool, memory_limit: str = MEMORY_LIMIT) -> Any:
    """Open a new file of DuckDB."""
    import duckdb

    return duckdb.connect(str(path), config={
        "memory_limit": memory_limit, "preserve_insertion_order": str(is_ordered).lower()})


def copy_by_arrow(name_server: str, *, is_ordered: bool) -> Copy:
    """Return the copy by the Arrow reader."""
    from twistmq.integrations.arrow import read_messages

    def copy(topic: str, path: Path) -> Any:
        table = open_table(path, is_ordered=is_ordered)
        reader = read_messages(name_server, topic)
        table.register("reader", reader)
        table.execute("CREATE TABLE messages AS SELECT * FROM reader")
        return table

    return copy


def copy_by_spark(
    name_server: str, folder: Path, *, by_parquet: bool, is_ordered: bool
) -> Copy:
    """Return the copy through the Spark bridge."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    session = SparkSession.builder.master("local[2]").config(
        "spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false").config(
        "spark.driver.memory", "6g").config("spark.driver.maxResultSize", "0").config(
        "spark.local.dir", str(folder)).config("spark.log.level", "OFF").getOrCreate()

    def copy(topic: str, path: Path) -> Any:
        frame = session.read.format("rocketmq").options(
            nameServer=name_server, subscribe=topic).load()
        limit = PARQUET_MEMORY_LIMIT if by_parquet else MEMORY_LIMIT
        table = open_table(path, is_ordered=is_ordered, memory_limit=limit)
        source = "reader"
        if by_parquet:
            files = path.with_suffix(".parquet")
            frame.write.parquet(str(files))
            source = f"read_parquet('{files}/*.parquet')"
        else:
            table.register(source, frame.toArrow())
        table.execute(f"CREATE TABLE messages AS SELECT * FROM {source}")
        return table

    return copy


def tree_cpu_s(root: int) -> float:
    """Return the CPU time of a process and of all its descendants, seconds.

    The time of a descendant that has ended counts if its parent has waited for it.
    """
    ticks: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        pid = int(path.parent.name)
        ticks[pid] = sum(map(int, fields[11:15]))
        children.setdefault(int(fields[1]), []).append(pid)
    pids = [root]
    for pid in pids:
        pids += children.get(pid, ())
    return sum(ticks[pid] for pid in pids) / os.sysconf("SC_CLK_TCK")


def run_here(
    way: str, name_server: str, folder: Path, server: int, *, is_ordered: bool
) -> Figures:
    """Copy the topic in this process.

    :param server: the process of the broker.
    :returns: what that took, and what the table has.
    """
    if way == ARROW:
        copy = copy_by_arrow(name_server, is_ordered=is_ordered)
    else:
        copy = copy_by_spark(name_server, folder, by_parquet=way == SPARK_PARQUET,
                             is_ordered=is_ordered)
    copy(FIRST_TOPIC, folder / "first.duckdb").close()
    cpu_s, server_s, begin = tree_cpu_s(os.getpid()), tree_cpu_s(server), time.monotonic()
    table = copy(TOPIC, folder / "whole.duckdb")
    took_s = time.monotonic() - begin
    cpu_s, server_s = tree_cpu_s(os.getpid()) - cpu_s, tree_cpu_s(server) - server_s
    memory = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    assert memory is not None
    rows, size, crcs = table.execute(
        "SELECT count(*), sum(octet_length(body)), sum(bodyCRC) FROM messages").fetchone()
    return {"s": took_s, "us": cpu_s / rows * 1e6, "server": server_s / rows * 1e6,
            "MB": int(memory[1]) / 1024, "rows": int(rows), "size": int(size), "crcs": int(crcs)}


def run_apart(
    way: str, name_server: str, server: int, expected: Figures, *, is_ordered: bool
) -> Figures:
    """Copy the topic in a new process."""
    with tempfile.TemporaryDirectory(prefix="twistmq-arrow-bench-") as folder:
        done = subprocess.run(
            [sys.executable, __file__, "--run", way, name_server, folder, str(server),
             *(["--ordered"] if is_ordered else [])],
            stdout=subprocess.PIPE, text=True, check=True)
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    if any(figures[name] != value for name, value in expected.items()):
        raise SystemExit(f"{way}: the table has {figures}, sent were {expected}")
    return figures


def fill(name_server: str, topic: str, count: int, size: int) -> Figures:
    """Fill a topic; :returns: what a table of it has."""
    import spark_bench

    spark_bench.TOPIC = topic
    broker = spark_bench.make_topic(name_server, topic, QUEUES)
    sums = multiprocessing.Value("q", 0)
    middle = QUEUES // 2
    spark_bench.in_two(spark_bench.fill_some, *(
        (name_server, broker, half, count // QUEUES, size, sums)
        for half in (range(middle), range(middle, QUEUES))))
    return {"rows": count, "size": count * size, "crcs": sums.value}


def print_table(rounds: dict[str, list[Figures]], count: int) -> None:
    """Print the medians of all ways, and the ratios that have bounds."""
    print(f"\n| {count:,} messages into DuckDB | rows/s | worst round | s | us of CPU a message | "
          "worst round | broker, us a message | VmHWM, MB |\n"
          "| --- | --- | --- | --- | --- | --- | --- | --- |")
    seconds: Figures = {}
    costs: Figures = {}
    for way, each in rounds.items():
        seconds[way], costs[way], server_us = (
            statistics.median(one[name] for one in each) for name in ("s", "us", "server"))
        worst = {name: max(one[name] for one in each) for name in ("s", "us", "MB")}
        print(f"| {way} | {count / seconds[way]:,.0f} | {count / worst['s']:,.0f} | "
              f"{seconds[way]:.1f} | {costs[way]:.2f} | {worst['us']:.2f} | {server_us:.2f} | "
              f"{worst['MB']:.0f} |")
    if ARROW not in rounds:
        return
    print("\n| | value | bound |\n| --- | --- | --- |")
    if len(rounds) > 1:
        for text, values in (("rows/s, Arrow/the faster way of Spark", seconds),
                             ("CPU a message, the cheaper way of Spark/Arrow", costs)):
            spark = min(value for way, value in values.items() if way != ARROW)
            print(f"| {text} | {spark / values[ARROW]:.2f}x | >= 1.5 |")
    memory = max(one["MB"] for one in rounds[ARROW])
    print(f"| memory of the Arrow reader's process, MB | {memory:.0f} | <= 300 |", flush=True)


def main() -> None:
    parser = bench_servers.parser_of(__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--ordered", action="store_true")
    parser.add_argument("--run", nargs=4, metavar=("WAY", "NAME_SERVER", "FOLDER", "PID"))
    arguments = parser.parse_args()
    if arguments.run:
        way, name_server, folder, pid = arguments.run
        print(json.dumps(run_here(way, name_server, Path(folder), int(pid),
                                  is_ordered=arguments.ordered)))
        return
    count = arguments.messages // (10 * QUEUES) * 10 * QUEUES
    with tempfile.TemporaryDirectory(prefix="twistmq-arrow-bench-") as folder:
        server = bench_servers.Twistmq("twistmq", arguments.twistmq, Path(folder), PORT)
        server.start()
        name_server = f"127.0.0.1:{PORT}"
        try:
            fill(name_server, FIRST_TOPIC, count // 10, arguments.size)
            expected = fill(name_server, TOPIC, count, arguments.size)
            rounds: dict[str, list[Figures]] = {way: [] for way in arguments.ways}
            for number in range(arguments.rounds):
                for way in arguments.ways if number % 2 else arguments.ways[::-1]:
                    figures = run_apart(way, name_server, server.process.pid, expected,
                                        is_ordered=arguments.ordered)
                    rounds[way].append(figures)
                    print(f"round {number} {way}: {count / figures['s']:,.0f} rows/s, "
                          f"{figures['us']:.2f} us of CPU a message, {figures['MB']:.0f} MB",
                          flush=True)
            print_table(rounds, count)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
