"""Workers of Celery that are killed by -9 in the middle of a task."""

from __future__ import annotations

from typing import Final

from celery import Celery

import twistmq.integrations.celery  # noqa: F401
from tests.integrations.killed_workers import KilledWorkersCase
from twistmq.broker.testing import running_broker

WORKER: Final = """
import os, sys, time
from celery import Celery
import twistmq.integrations.celery

app = Celery("kills", broker="twistmq://ADDRESS")
app.conf.update(task_acks_late=True, worker_prefetch_multiplier=1,
                worker_enable_remote_control=False, broker_transport_options={"invisible_s": 2})

def note(word, number):
    with open(sys.argv[1], "a") as file:
        file.write(f"{word} {number} {os.getpid()}\\n")

@app.task(name="work")
def work(number):
    note("begin", number)
    time.sleep(0.05)
    note("end", number)

app.worker_main(["worker", "--pool", "threads", "--concurrency", "2", "--loglevel", "ERROR"])
"""


class KillTests(KilledWorkersCase):
    """Kills in the middle of tasks."""

    def test_nothing_is_lost_and_only_running_tasks_run_twice(self) -> None:
        """Three workers are killed, and a fourth one does the rest."""
        with running_broker() as server, Celery(
                "kills", broker=f"twistmq://{server.namesrv_address}", set_as_current=False) as app:
            for number in range(60):
                app.send_task("work", (number,))
            self.run_and_kill(WORKER.replace("ADDRESS", server.namesrv_address), kills=3,
                              count=60, threads=2)
