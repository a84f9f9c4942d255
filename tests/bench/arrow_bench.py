#!/usr/bin/env python3
"""A topic into a table of DuckDB: by the Arrow reader, and through the Spark bridge.

  arrow_bench.py [--messages 1000000] [--size 1024] [--rounds 3] [--ways Arrow ...]
                 [--twistmq PROGRAM]

Starts `twistmq up`, fills a topic of 8 queues, and copies all default columns of it to a table in a
new file of DuckDB:

  Arrow          read_messages, whose reader DuckDB consumes
  Spark-Arrow    DataFrame.toArrow, which collects the rows in the memory of the driver
  Spark-Parquet  the DataFrame is written to Parquet files, which DuckDB reads

Spark has local[2], two Python workers and a driver of 6 GiB. Each round is a new process, which
first copies another topic of a tenth of the size; then the copy counts, and the start of Spark does
not. DuckDB has its default settings but for a memory limit of 64 MB, so that the memory of the
process shows what the reader needs. The ways take turns, and the medians count. Memory is the
largest resident set of the Python process (VmHWM); the JVM and its workers are not counted. Each
table is compared with what was sent: rows, bytes, and the CRCs of the bodies.
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
ARROW, SPARK_ARROW, SPARK_PARQUET = "Arrow", "Spark-Arrow", "Spark-Parquet"
WAYS: Final = (ARROW, SPARK_ARROW, SPARK_PARQUET)
Figures = dict[str, float]
#: Copies a topic to a table "messages" in a new file.
Copy = Callable[[str, Path], Any]


def open_table(path: Path) -> Any:
    """Open a new file of DuckDB."""
    import duckdb

    return duckdb.connect(str(path), config={"memory_limit": MEMORY_LIMIT})


def copy_by_arrow(name_server: str) -> Copy:
    """Return the copy by the Arrow reader."""
    from twistmq.integrations.arrow import read_messages

    def copy(topic: str, path: Path) -> Any:
        table = open_table(path)
        reader = read_messages(name_server, topic)
        table.register("reader", reader)
        table.execute("CREATE TABLE messages AS SELECT * FROM reader")
        return table

    return copy


def copy_by_spark(name_server: str, folder: Path, *, by_parquet: bool) -> Copy:
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
        table = open_table(path)
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


def run_here(way: str, name_server: str, folder: Path) -> Figures:
    """Copy the topic in this process; :returns: what that took, and what the table has."""
    if way == ARROW:
        copy = copy_by_arrow(name_server)
    else:
        copy = copy_by_spark(name_server, folder, by_parquet=way == SPARK_PARQUET)
    copy(FIRST_TOPIC, folder / "first.duckdb").close()
    cpu_s, begin = time.process_time(), time.monotonic()
    table = copy(TOPIC, folder / "whole.duckdb")
    took_s, cpu_s = time.monotonic() - begin, time.process_time() - cpu_s
    memory = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    assert memory is not None
    rows, size, crcs = table.execute(
        "SELECT count(*), sum(octet_length(body)), sum(bodyCRC) FROM messages").fetchone()
    return {"s": took_s, "cpu": cpu_s, "MB": int(memory[1]) / 1024, "rows": int(rows),
            "size": int(size), "crcs": int(crcs)}


def run_apart(way: str, name_server: str, expected: Figures) -> Figures:
    """Copy the topic in a new process."""
    with tempfile.TemporaryDirectory(prefix="twistmq-arrow-bench-") as folder:
        done = subprocess.run(
            [sys.executable, __file__, "--run", way, name_server, folder],
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
    """Print the rates of all ways, and the ratios that have bounds."""
    print(f"\n| {count:,} messages into DuckDB | rows/s | worst round | s | "
          "CPU of the process, s | VmHWM, MB |\n| --- | --- | --- | --- | --- | --- |")
    rates = {}
    for way, each in rounds.items():
        seconds = [one["s"] for one in each]
        median_s = statistics.median(seconds)
        rates[way] = count / median_s
        print(f"| {way} | {rates[way]:,.0f} | {count / max(seconds):,.0f} | {median_s:.1f} | "
              f"{statistics.median(one['cpu'] for one in each):.1f} | "
              f"{max(one['MB'] for one in each):.0f} |")
    print("\n| | value | bound |\n| --- | --- | --- |")
    by_spark = [rate for way, rate in rates.items() if way != ARROW]
    if ARROW in rates and by_spark:
        print(f"| Arrow/the faster way of Spark | {rates[ARROW] / max(by_spark):.2f}x | >= 1.5 |")
    if ARROW in rates:
        memory = max(one["MB"] for one in rounds[ARROW])
        print(f"| memory of the Arrow reader's process, MB | {memory:.0f} | <= 300 |", flush=True)


def main() -> None:
    parser = bench_servers.parser_of(__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--run", nargs=3, metavar=("WAY", "NAME_SERVER", "FOLDER"))
    arguments = parser.parse_args()
    if arguments.run:
        way, name_server, folder = arguments.run
        print(json.dumps(run_here(way, name_server, Path(folder))))
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
                    figures = run_apart(way, name_server, expected)
                    rounds[way].append(figures)
                    print(f"round {number} {way}: {count / figures['s']:,.0f} rows/s, "
                          f"{figures['MB']:.0f} MB", flush=True)
            print_table(rounds, count)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
