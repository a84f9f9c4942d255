"""Workers of Dramatiq that are killed by -9 in the middle of a task."""

from __future__ import annotations

from typing import Final

import dramatiq

from tests.integrations.killed_workers import KilledWorkersCase
from twistmq.broker.testing import running_broker
from twistmq.integrations.dramatiq import TwistmqBroker

WORKER: Final = """
import os, sys, time
import dramatiq
from twistmq.integrations.dramatiq import TwistmqBroker

broker = TwistmqBroker("ADDRESS", invisible_s=2)

def note(word, number):
    with open(sys.argv[1], "a") as file:
        file.write(f"{word} {number} {os.getpid()}\\n")

@dramatiq.actor(broker=broker)
def work(number):
    note("begin", number)
    time.sleep(0.05)
    note("end", number)

dramatiq.Worker(broker, worker_timeout=100, worker_threads=2).start()
while True:
    time.sleep(60)
"""


class KillTests(KilledWorkersCase):
    """Kills in the middle of tasks."""

    def test_nothing_is_lost_and_only_running_tasks_run_twice(self) -> None:
        """Three workers are killed, and a fourth worker runs the remaining tasks."""
        with running_broker() as server:
            broker = TwistmqBroker(server.namesrv_address)
            self.addCleanup(broker.close)

            @dramatiq.actor(broker=broker)
            def work(number: int) -> None:
                self.fail("no worker runs here")

            for number in range(60):
                work.send(number)
            self.run_and_kill(WORKER.replace("ADDRESS", server.namesrv_address), kills=3,
                              count=60, threads=2)
