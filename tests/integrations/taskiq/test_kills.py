"""Workers of Taskiq that are killed by -9 in the middle of a task."""

from __future__ import annotations

import asyncio
from typing import Final

from tests.integrations.killed_workers import KilledWorkersCase
from twistmq.broker.testing import running_broker
from twistmq.integrations.taskiq import TwistmqBroker

WORKER: Final = """
import asyncio, os, sys
from twistmq.integrations.taskiq import TwistmqBroker
from twistmq.integrations.taskiq.testing import running_worker

broker = TwistmqBroker("ADDRESS", invisible_s=2, prefetch=2)

def note(word, number):
    with open(sys.argv[1], "a") as file:
        file.write(f"{word} {number} {os.getpid()}\\n")

@broker.task(task_name="work")
async def work(number: int):
    note("begin", number)
    await asyncio.sleep(0.05)
    note("end", number)

async def main():
    async with running_worker(broker, max_async_tasks=2):
        await asyncio.Event().wait()

asyncio.run(main())
"""


class KillTests(KilledWorkersCase):
    """Kills in the middle of tasks."""

    def test_nothing_is_lost_and_only_running_tasks_run_twice(self) -> None:
        """Three workers are killed, and a fourth worker runs the remaining tasks."""
        with running_broker() as server:
            broker = TwistmqBroker(server.namesrv_address)

            async def work(number: int) -> None:
                self.fail("no worker runs here")

            async def send() -> None:
                task = broker.register_task(work, task_name="work")
                for number in range(60):
                    await task.kiq(number)
                await broker.shutdown()

            asyncio.run(send())
            self.run_and_kill(WORKER.replace("ADDRESS", server.namesrv_address), kills=3,
                              count=60, threads=2)
