"""A broker in this process, and brokers of Taskiq that use it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from taskiq import AckableMessage
from twisted.trial.unittest import SynchronousTestCase

from tests.interop.kept import kept
from twistmq.broker.testing import running_broker
from twistmq.broker.testing.in_process_broker import RunningBroker
from twistmq.client import Client, ReceivedMessage
from twistmq.client.core.consumer.pull_request import messages_of
from twistmq.integrations.taskiq import TwistmqBroker
from twistmq.integrations.taskiq.testing import running_worker

__all__ = ["TaskiqCase", "until"]


def start_server(folder: Path, stack: ExitStack) -> RunningBroker:
    """Start a name server and a broker for the tests of a module."""
    return stack.enter_context(running_broker())


async def until(what: str, condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for a condition; :raises TimeoutError: when it does not come true in time."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


class TaskiqCase(SynchronousTestCase):
    """Each test has its own queue."""

    server: RunningBroker

    def setUp(self) -> None:
        """Start the broker, unless another test of the module has started it."""
        self.server = kept(self, start_server)
        self.queue = f"q{uuid.uuid4().hex[:12]}"
        self.calls: list[Any] = []

    def broker(self, **options: Any) -> TwistmqBroker:
        """Make a broker of Taskiq, which the test closes."""
        return TwistmqBroker(self.server.namesrv_address,
                             **{"queue_name": self.queue, "invisible_s": 2, **options})

    @asynccontextmanager
    async def open_broker(self, **options: Any) -> AsyncIterator[TwistmqBroker]:
        """Make a broker that is shut down after the block."""
        broker = self.broker(**options)
        await broker.startup()
        try:
            yield broker
        finally:
            await broker.shutdown()

    def noting(self, broker: TwistmqBroker, **labels: Any) -> Any:
        """Make a task that notes its argument."""
        async def note(value: Any) -> Any:
            self.calls.append(value)
            return value

        return broker.register_task(note, task_name="note", **labels)

    async def run_worker(self, broker: TwistmqBroker, **options: Any) -> None:
        """Run a worker until its queue is empty."""
        async with running_worker(broker, **options):
            await broker.wait_all(60)

    async def take(self, broker: TwistmqBroker) -> AckableMessage:
        """Return the next message of the queue."""
        messages = broker.listen()
        try:
            async with asyncio.timeout(60):
                return await anext(messages)
        finally:
            await messages.aclose()

    def run_async(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run the body of a test."""
        asyncio.run(coroutine)

    def count(self, topic: str, queue_id: int = 0) -> int:
        """Return the number of messages of a queue at the broker."""
        return self.server.call(
            lambda: self.server.kernel.store.queues.max_offset(topic, queue_id))

    def messages(self) -> list[ReceivedMessage[Any]]:
        """Return all messages of the queue of this test."""
        with Client(self.server.namesrv_address) as client:
            queue, = client.read_queues(f"taskiq-{self.queue}")
            return messages_of(client.pull(queue, 0), queue, damaged=[])

    def dead_letter_count(self) -> int:
        """Return the number of dead letters of the queue of this test."""
        return self.count(f"%DLQ%taskiq-{self.queue}")
