#!/usr/bin/env python3
"""Celery on twistmq beside Celery on Redis: tasks a second through one worker.

  celery_bench.py [--tasks 10000] [--rounds 3] [--twistmq PROGRAM] [--redis redis-server]

Starts `twistmq up` and a Redis server, each with its default settings. A round of one side sends
all tasks to its queue by ``delay``, one after the other, and only then starts a worker with a pool
of four processes. The rate of the worker counts from the first to the last of its tasks, so
its start does not count. In a second round, the worker waits while the tasks are sent, and the rate
counts from the first send to the last task. A task notes its time in a file, and nothing else.
There is no result backend, and both sides have Celery's default settings.

CPU counts the processes of the worker, with their start, and the broker. The sides take
turns; the medians of the rounds count, after a round that does not count. Without a Redis server,
or without the package redis of Celery's transport, our side is measured alone.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import bench_servers

PORT: Final = 32_900
REDIS_PORT: Final = 32_990
PROCESSES: Final = 4
#: How long a worker may take for all tasks, seconds.
PATIENCE_S: Final = 300.0
Figures = dict[str, float]

APPLICATION: Final = """
import os, struct, sys, time
from celery import Celery
if os.environ["BENCH_BROKER"].startswith("twistmq:"):
    import twistmq.integrations.celery

app = Celery("application", broker=os.environ["BENCH_BROKER"])
app.conf.update(broker_connection_retry_on_startup=True)
notes = os.open(os.environ["BENCH_NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

@app.task(ignore_result=True)
def note(number):
    os.write(notes, struct.pack("d", time.monotonic()))

def send(count):
    note.delay(-1)
    begin = time.monotonic()
    for number in range(count - 1):
        note.delay(number)
    print(begin, time.monotonic())
"""

ROWS: Final = (
    ("sends, tasks/s", "sends", ",.0f", "> 1"),
    ("worker of four processes, tasks/s", "drains", ",.0f", "> 1"),
    ("from the first send to the last task, tasks/s", "through", ",.0f", "> 1"),
    ("CPU of the worker, us a task", "worker", ".0f", ""),
    ("CPU of the broker, us a task", "broker", ".0f", ""),
)


class Side:
    """One broker, and the Celery application that uses it.

    :param url: the broker's URL.
    :param pids: the processes of the broker.
    """

    def __init__(self, name: str, url: str, pids: list[int], folder: Path) -> None:
        self.name = name
        self.pids = pids
        self.rounds: list[Figures] = []
        self._folder = folder
        self._notes = folder / "notes"
        folder.mkdir()
        (folder / "application.py").write_text(APPLICATION)
        self._environment = {
            **os.environ, "BENCH_BROKER": url, "BENCH_NOTES": str(self._notes),
            "PYTHONPATH": os.pathsep.join(
                [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])}

    def send(self, count: int) -> tuple[float, float]:
        """Send tasks; :returns: the times of the first and the last send, by the monotonic clock.
        """
        done = subprocess.run(
            [sys.executable, "-c", f"import application; application.send({count})"],
            cwd=self._folder, env=self._environment, stdout=subprocess.PIPE, text=True, check=True)
        begin, end = map(float, done.stdout.split())
        return begin, end

    @contextmanager
    def _worker(self) -> Iterator[subprocess.Popen[bytes]]:
        """Start a worker, which is killed if the block does not stop it."""
        with open(self._folder / "worker.log", "ab") as log:
            worker = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", "application", "worker",
                 "--concurrency", str(PROCESSES), "--loglevel", "WARNING"],
                cwd=self._folder, env=self._environment, stdout=log, stderr=log,
                start_new_session=True)
        try:
            yield worker
        finally:
            if worker.returncode is None:
                os.killpg(worker.pid, signal.SIGKILL)
                worker.wait()

    def _stop(self, worker: subprocess.Popen[bytes]) -> float:
        """Stop a worker; :returns: the CPU time of its processes, seconds."""
        worker.send_signal(signal.SIGTERM)
        _, status, used = os.wait4(worker.pid, 0)
        worker.returncode = os.waitstatus_to_exitcode(status)
        if worker.returncode:
            raise SystemExit(f"a worker on {self.name} ended with status {worker.returncode}:\n"
                             + (self._folder / "worker.log").read_text()[-4000:])
        return used.ru_utime + used.ru_stime

    def _wait_for(self, count: int) -> None:
        end = time.monotonic() + PATIENCE_S
        while not self._notes.exists() or self._notes.stat().st_size < 8 * count:
            if time.monotonic() > end:
                raise SystemExit(f"tasks on {self.name} are missing:\n"
                                 + (self._folder / "worker.log").read_text()[-4000:])
            time.sleep(0.02)

    def _times(self, count: int) -> list[float]:
        """Return the times of all tasks, and forget them."""
        values = memoryview(self._notes.read_bytes()).cast("d").tolist()
        # A worker has the file open, and appends to it.
        os.truncate(self._notes, 0)
        if len(values) != count:
            raise SystemExit(f"{len(values)} tasks ran on {self.name}, {count} were sent")
        return sorted(values)

    def run_round(self, count: int) -> Figures:
        """Measure once."""
        cpu_s = _cpu_s(self.pids)
        begin, end = self.send(count)
        figures = {"sends": count / (end - begin)}
        with self._worker() as worker:
            self._wait_for(count)
            figures["worker"] = self._stop(worker) / count * 1e6
        figures["broker"] = (_cpu_s(self.pids) - cpu_s) / count * 1e6
        times = self._times(count)
        figures["drains"] = count / (times[-1] - times[0])
        with self._worker() as worker:
            self.send(1)
            self._wait_for(1)
            self._times(1)
            begin, _ = self.send(count)
            self._wait_for(count)
            self._stop(worker)
        figures["through"] = count / (self._times(count)[-1] - begin)
        return figures

    def median(self) -> Figures:
        """Return the median of each figure."""
        return {name: statistics.median(each[name] for each in self.rounds)
                for name in self.rounds[0]}


def _cpu_s(pids: list[int]) -> float:
    """Return the CPU time that processes have used, seconds."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


@contextmanager
def redis_server(program: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A Redis server with default settings, which ends with the block."""
    folder.mkdir()
    with open(folder / "out", "wb") as out:
        process = subprocess.Popen(
            [program, "--port", str(REDIS_PORT), "--bind", "127.0.0.1", "--dir", str(folder)],
            stdout=out, stderr=out)
    try:
        end = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", REDIS_PORT), 1).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > end:
                    raise SystemExit((folder / "out").read_text()) from None
                time.sleep(0.05)
        yield process
    finally:
        process.terminate()
        process.wait()


def measure(sides: list[Side], count: int, rounds: int) -> None:
    """Let the sides take turns, and print the table."""
    for number in range(rounds + 1):
        for side in sides if number % 2 else sides[::-1]:
            figures = side.run_round(count)
            text = ", ".join(f"{name} {figures[key]:{form}}" for name, key, form, _ in ROWS)
            print(f"round {number} {side.name}: {text}", flush=True)
            if number:
                side.rounds.append(figures)
    medians = [side.median() for side in sides]
    if len(sides) == 2:
        print(f"\n| | {sides[0].name} | {sides[1].name} | ratio | bound |")
        print("| --- | --- | --- | --- | --- |")
        for text, key, form, bound in ROWS:
            ours, theirs = (each[key] for each in medians)
            print(f"| {text} | {ours:{form}} | {theirs:{form}} | {ours / theirs:.2f}x | {bound} |")
        return
    print(f"\n| | {sides[0].name} |\n| --- | --- |")
    for text, key, form, _ in ROWS:
        print(f"| {text} | {medians[0][key]:{form}} |")


def main() -> None:
    parser = bench_servers.parser_of(__doc__)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--redis", default=shutil.which("redis-server"),
                        help="Redis's server; the one of the path by default")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="twistmq-celery-bench-") as name:
        folder = Path(name)
        server = bench_servers.Twistmq("twistmq", arguments.twistmq, folder, PORT)
        server.start()
        sides = [Side("twistmq", f"twistmq://127.0.0.1:{PORT}", server.pids, folder / "ours")]
        try:
            if not arguments.redis or importlib.util.find_spec("redis") is None:
                print("there is no Redis server, or no package redis: our side alone", flush=True)
                measure(sides, arguments.tasks, arguments.rounds)
                return
            version = subprocess.run([arguments.redis, "--version"], capture_output=True,
                                     text=True, check=True).stdout
            print(f"Redis: {version.strip()}", flush=True)
            with redis_server(arguments.redis, folder / "redis") as process:
                sides.append(Side("Redis", f"redis://127.0.0.1:{REDIS_PORT}/0", [process.pid],
                                  folder / "theirs"))
                measure(sides, arguments.tasks, arguments.rounds)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
