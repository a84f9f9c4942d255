"""The deliveries of a worker: how the end of each execution decides about its message.

Taskiq acknowledges a message by calling a function that it received with the message, and does not
report to the broker how the task has ended. A middleware of the broker observes this.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextvars import ContextVar
from typing import Any, Final

from taskiq import TaskiqMessage, TaskiqMiddleware, TaskiqResult
from taskiq.exceptions import NoResultError

from twistmq.client import ClientError
from twistmq.integrations.base.queue_reader import QueueReader, Task

__all__ = ["Deliveries", "Delivery"]

log = logging.getLogger("twistmq.integrations")

#: The delay before a request that failed is sent again, seconds.
_AGAIN_S: Final = 1.0


class Delivery:
    """One message that the worker has.

    :param task: the message as it was received.
    """

    def __init__(self, reader: QueueReader, task: Task) -> None:
        self._reader = reader
        self._task = task
        #: Whether its execution has failed, and no retry was sent.
        self.is_failed = False

    async def acknowledge(self) -> None:
        """Finish the message, or send it to the dead letters if its execution has failed."""
        if not self.is_failed:
            self._reader.acknowledge(self._task)
            return
        while True:
            try:
                await asyncio.to_thread(self._reader.bury, self._task)
            except ClientError as error:
                # The message stays hidden until then, so that the task does not run again.
                log.warning("queue %s: %r is not sent to the dead letters yet: %s",
                            self._task.queue, self._task.message, error)
                await asyncio.sleep(_AGAIN_S)
            else:
                return

    def end(self) -> None:
        """Let the message be delivered again, unless it was acknowledged."""
        self._reader.abandon(self._task)


#: The delivery that the running task of asyncio executes.
_current: ContextVar[Delivery | None] = ContextVar("delivery", default=None)


class Deliveries(TaskiqMiddleware):
    """The deliveries that were handed out; the first middleware of a broker.

    Its ``on_error`` runs after the hooks of all other middlewares, so it sees whether one of
    them has sent a retry.
    """

    def __init__(self, bury_failed: bool) -> None:
        super().__init__()
        self._bury_failed = bury_failed
        #: The deliveries whose execution has not begun, by the id of the task. A retry has the id
        #: of the task that has failed; executions begin in the order of the deliveries.
        self._waiting: dict[str, deque[Delivery]] = {}

    def note_delivery(self, task_id: str, delivery: Delivery) -> None:
        """Note a delivery that is handed out now."""
        self._waiting.setdefault(task_id, deque()).append(delivery)

    def clear(self) -> None:
        """Forget the deliveries whose execution will not begin."""
        self._waiting.clear()

    def pre_execute(self, message: TaskiqMessage) -> TaskiqMessage:
        """Connect the running task of asyncio with its delivery."""
        waiting = self._waiting.get(message.task_id)
        delivery = waiting.popleft() if waiting else None
        if not waiting:
            self._waiting.pop(message.task_id, None)
        _current.set(delivery)
        running = asyncio.current_task()
        if delivery is not None and running is not None:
            running.add_done_callback(lambda _: delivery.end())
        return message

    def on_error(
        self, message: TaskiqMessage, result: TaskiqResult[Any], exception: BaseException
    ) -> None:
        """Note a failure after which no retry was sent; Taskiq marks a retry by this error."""
        delivery = _current.get()
        if delivery is not None and self._bury_failed:
            delivery.is_failed = not isinstance(result.error, NoResultError)
