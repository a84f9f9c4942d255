"""A worker inside a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from taskiq.receiver import Receiver

from twistmq.integrations.taskiq.broker import TwistmqBroker

__all__ = ["running_worker"]


@asynccontextmanager
async def running_worker(broker: TwistmqBroker, **options: Any) -> AsyncIterator[None]:
    """Run a worker in the event loop of the test while the block runs; then close the broker.

    :param options: options of the ``Receiver`` of Taskiq, such as ``max_async_tasks`` and
        ``ack_type``.
    """
    await broker.start_worker()
    finish = asyncio.Event()
    with ThreadPoolExecutor(thread_name_prefix="twistmq-tasks") as pool:
        receiver = Receiver(broker, executor=pool, run_startup=False,
                            **{"max_async_tasks": 100, **options})
        listening = asyncio.create_task(receiver.listen(finish))
        try:
            yield
        finally:
            finish.set()
            try:
                await listening
            finally:
                await broker.shutdown()
