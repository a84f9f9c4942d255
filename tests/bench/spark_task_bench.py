# ^The cost of a task of the Spark bridge: CPU of a row, and memory, without a JVM.
"""What a task of the Spark bridge costs: CPU a row, and the memory of its process, without a JVM.

  spark_task_bench.py [--messages 400000] [--sizes 1024,200] [--rounds 3] [--before PYTHON]

Starts `twistmq up`, fills a topic of 8 queues for each size, and reads it in a process that does
what a Python worker of Spark does for tasks of all default columns. With --before another
interpreter, which has another twistmq and PySpark, reads the same topics in turn. CPU counts
the reading process, and is valid on a loaded machine too; rows a second are the rate of one such
process, whose broker shares the machine. The best of the rounds counts. Each process reads a queue
before it counts.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import bench_servers
import spark_bench
from warm_up import warm_up

QUEUES, PORT = 8, 32_600
Figures = dict[str, float]


def read_here(name_server: str, topic: str, count: int) -> Figures:
    """Read a topic in this process; :returns: the costs."""
    spark_bench.TOPIC = topic
    with spark_bench.Client(name_server) as client:
        [broker] = {data.broker_name for data in client.route(topic).broker_datas}

    def cpu() -> float:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime

    spark_bench.read_some(name_server, broker, range(1), count // QUEUES, {})
    cpu_s, begin_s = cpu(), time.monotonic()
    spark_bench.read_some(name_server, broker, range(QUEUES), count // QUEUES, {})
    cpu_s, took_s = cpu() - cpu_s, time.monotonic() - begin_s
    return {"us": cpu_s / count * 1e6, "rows/s": count / took_s,
            "MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def read_by(python: str, name_server: str, topic: str, count: int) -> Figures:
    """Have a new process of an interpreter read a topic."""
    done = subprocess.run([python, __file__, "--read", name_server, topic, str(count)],
                          stdout=subprocess.PIPE, text=True, check=True)
    found: Figures = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(
    name_server: str, size: int, count: int, rounds: int, sides: dict[str, str],
) -> list[str]:
    """Fill a topic and read it by all sides in turn; :returns: a row of the table for each."""
    spark_bench.TOPIC = topic = f"SparkTasks{size}"
    broker = spark_bench.make_topic(name_server, topic, QUEUES)
    spark_bench.fill_some(name_server, broker, range(QUEUES), count // QUEUES, size,
                          multiprocessing.Value("q", 0))
    warm_up(f"{size} bytes", {
        name: lambda python=python: {"us": read_by(python, name_server, topic, count)["us"]}
        for name, python in sides.items()}, rounds_max=4)
    found: dict[str, list[Figures]] = {name: [] for name in sides}
    for number in range(rounds):
        for name in (list(sides) if number % 2 else list(sides)[::-1]):
            found[name].append(read_by(sides[name], name_server, topic, count))
    rows = []
    for name, each in found.items():
        us = [one["us"] for one in each]
        rows.append(f"| {name}, {size} bytes | {min(us):.2f} | {max(us):.2f} | "
                    f"{max(one['rows/s'] for one in each):,.0f} | "
                    f"{max(one['MB'] for one in each):.0f} |")
    return rows


def main() -> None:
    parser = bench_servers.parser_of(__doc__)
    parser.add_argument("--messages", type=int, default=400_000)
    parser.add_argument("--sizes", default="1024,200")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--before", default="", help="an interpreter with another twistmq")
    parser.add_argument("--read", nargs=3, metavar=("NAME_SERVER", "TOPIC", "COUNT"))
    arguments = parser.parse_args()
    if arguments.read:
        name_server, topic, count = arguments.read
        print(json.dumps(read_here(name_server, topic, int(count))))
        return
    sides = {"now": sys.executable}
    if arguments.before:
        sides["before"] = arguments.before
    count = arguments.messages // QUEUES * QUEUES
    with tempfile.TemporaryDirectory(prefix="twistmq-spark-bench-") as folder:
        server = bench_servers.Twistmq("twistmq", arguments.twistmq, Path(folder), PORT)
        server.start()
        lines = ["| tasks of all default columns | us of CPU a row | worst round | rows/s | MB |",
                 "| --- | --- | --- | --- | --- |"]
        try:
            for size in arguments.sizes.split(","):
                lines += measure(f"127.0.0.1:{PORT}", int(size), count, arguments.rounds, sides)
            print("\n".join(lines), flush=True)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
