"""The same task in Celery, Taskiq and Dramatiq, and the workers that run it in processes.

The task notes its begin and its end in a file, as the sender does before and after its send. Each
line has a word, the number of the task, the number of the worker's start, the id of the process,
and the time in Unix seconds: ``begin 17 1 4242 1764500000.5``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from twistmq.client import Client, ClientError
from twistmq.integrations.base.topics import unfinished_count

__all__ = ["INVISIBLE_S", "LIBRARIES", "Application", "Library", "Note", "Worker"]

ROOT: Final = Path(__file__).resolve().parents[2]
#: The time after which another worker gets the messages of a worker that was killed, seconds.
INVISIBLE_S: Final = 5
#: How long a task runs, seconds, and the number of tasks that a worker runs at once.
TASK_S: Final = 0.01
CONCURRENCY: Final = 4

_NOTES: Final = f"""
import asyncio, os, sys, time

ADDRESS, INVISIBLE_S, TASK_S = os.environ["WORK_ADDRESS"], {INVISIBLE_S}, {TASK_S}
notes = os.open(os.environ["WORK_NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def note(word, number):
    line = f"{{word}} {{number}} {{os.environ['WORK_LIFE']}} {{os.getpid()}} {{time.time()}}\\n"
    os.write(notes, line.encode())

def task(number):
    note("begin", number)
    time.sleep(TASK_S)
    note("end", number)
"""

_CELERY: Final = """
from celery import Celery
import twistmq.integrations.celery

app = Celery("work", broker=f"twistmq://{ADDRESS}")
app.conf.update(task_acks_late=True, task_reject_on_worker_lost=True, worker_prefetch_multiplier=4,
                broker_transport_options={"invisible_s": INVISIBLE_S},
                broker_connection_retry_on_startup=True)
work = app.task(name="work")(task)

def send(count, delay_s):
    for number in range(count):
        note("send", number)
        work.apply_async((number,), countdown=delay_s or None)
        note("sent", number)
"""

_TASKIQ: Final = """
from twistmq.integrations.taskiq import TwistmqBroker

broker = TwistmqBroker(ADDRESS, invisible_s=INVISIBLE_S)

@broker.task(task_name="work")
async def work(number: int) -> None:
    note("begin", number)
    await asyncio.sleep(TASK_S)
    note("end", number)

def send(count, delay_s):
    async def main():
        await broker.startup()
        for number in range(count):
            note("send", number)
            await work.kicker().with_labels(**({"delay": delay_s} if delay_s else {})).kiq(number)
            note("sent", number)
        await broker.shutdown()

    asyncio.run(main())
"""

_DRAMATIQ: Final = """
import dramatiq
from twistmq.integrations.dramatiq import TwistmqBroker

broker = TwistmqBroker(ADDRESS, invisible_s=INVISIBLE_S)
dramatiq.set_broker(broker)
work = dramatiq.actor(task, actor_name="work")

def send(count, delay_s):
    for number in range(count):
        note("send", number)
        work.send_with_options(args=(number,), delay=round(delay_s * 1000) or None)
        note("sent", number)
    broker.close()
"""

_SEND: Final = "import sys, work; work.send(int(sys.argv[1]), float(sys.argv[2]))"


@dataclass(frozen=True)
class Library:
    """One task library.

    :param code: the program ``work.py``, after the part that all libraries share.
    :param command: the module and the arguments that start a worker.
    :param topic: the topic of the queue, which is also the name of its group.
    :param replaces_processes: whether a worker replaces a process of its pool that was killed.
    """

    name: str
    code: str
    command: Sequence[str]
    topic: str
    replaces_processes: bool = False


LIBRARIES: Final = {each.name: each for each in (
    Library("celery", _CELERY, (
        "celery", "-A", "work", "worker", "--concurrency", f"{CONCURRENCY}",
        "--loglevel", "WARNING"), "kombu-celery", replaces_processes=True),
    Library("taskiq", _TASKIQ, (
        "taskiq", "worker", "work:broker", "--workers", "2",
        "--max-async-tasks", f"{CONCURRENCY // 2}"), "taskiq-default"),
    Library("dramatiq", _DRAMATIQ, (
        "dramatiq", "work", "--processes", "2", "--threads", f"{CONCURRENCY // 2}"),
        "dramatiq-default"),
)}


class Note(NamedTuple):
    """A line of the file; ``word`` is "send", "sent", "begin" or "end"."""

    word: str
    number: int
    life: int
    pid: int
    time: float


class Worker:
    """A worker that runs, with all of its processes.

    :param life: the number of this start.
    """

    def __init__(self, life: int, process: subprocess.Popen[bytes]) -> None:
        self.life = life
        self.process = process

    def kill(self) -> None:
        """Kill all processes of the worker by -9."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Application:
    """The program of one library in a folder of its own.

    :param address: the address of the name server.
    """

    def __init__(self, library: Library, folder: Path, address: str) -> None:
        folder.mkdir()
        self.library = library
        self.log = folder / "worker.log"
        self.lives = 0
        self.notes: list[Note] = []
        self._address = address
        self._folder = folder
        self._path = folder / "notes"
        self._path.touch()
        self._position = 0
        (folder / "work.py").write_text(_NOTES + library.code)

    def _start(self, *command: str) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{self._folder}",
            "WORK_ADDRESS": self._address, "WORK_NOTES": str(self._path),
            "WORK_LIFE": str(self.lives)}
        with open(self.log, "ab") as log:
            return subprocess.Popen([sys.executable, *command], cwd=self._folder, env=environment,
                                    stdout=log, stderr=log, start_new_session=True)

    def send(self, count: int, delay_s: float = 0) -> None:
        """Send tasks with the numbers below ``count``."""
        if self._start("-c", _SEND, str(count), str(delay_s)).wait():
            raise SystemExit(f"{self.library.name} sends no tasks:\n{self.end_of_log()}")

    def start_worker(self) -> Worker:
        """Start a worker."""
        self.lives += 1
        return Worker(self.lives, self._start("-m", *self.library.command))

    def read_notes(self) -> list[Note]:
        """Return all lines that the tasks have written so far."""
        with open(self._path, "rb") as file:
            file.seek(self._position)
            whole = file.read().rpartition(b"\n")
        self._position += len(whole[0]) + len(whole[1])
        for line in whole[0].splitlines():
            word, number, life, pid, time = line.decode().split()
            self.notes.append(Note(word, int(number), int(life), int(pid), float(time)))
        return self.notes

    def unfinished_count(self) -> int:
        """Return how many messages of the queue are not acknowledged."""
        with Client(self._address) as client:
            return unfinished_count(client, self.library.topic)

    def dead_letter_count(self) -> int:
        """Return how many messages have become dead letters."""
        with Client(self._address) as client:
            try:
                queues = client.read_queues(f"%DLQ%{self.library.topic}")
            except ClientError:
                # The first dead letter makes the topic.
                return 0
            return sum(client.max_offset(queue) for queue in queues)

    def end_of_log(self) -> str:
        """Return what the processes have printed last."""
        return self.log.read_text(errors="replace")[-4000:]
