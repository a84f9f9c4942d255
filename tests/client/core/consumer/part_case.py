"""The common parts of tests of a member's parts: a clock, messages, and queues with windows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from twisted.trial.unittest import SynchronousTestCase

from tests.client.core.box import HandClock
from twistmq.client.base.interceptors import Interceptors
from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.connection.tasks import Scheduler, Task
from twistmq.client.core.consumer.assigned_queues import AssignedQueue, AssignedQueues
from twistmq.client.core.consumer.close_signal import CloseSignal
from twistmq.client.core.consumer.subscriptions import Subscription
from twistmq.client.core.consumer.window import QueueWindow
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.record import MAGIC_V1, StoredMessage

__all__ = ["PartCase", "queue"]


def queue(number: int) -> MessageQueue:
    """Return a queue of the topic."""
    return MessageQueue("T", "a", number)


class PartCase(SynchronousTestCase):
    """A scheduler runs by a clock that the test sets, without a client."""

    def setUp(self) -> None:
        """Make the objects that the parts of a member share."""
        self.clock = HandClock()
        self.tasks = Scheduler(self.clock)
        self.client = cast(ClientCore, SimpleNamespace(
            tasks=self.tasks, interceptors=Interceptors(())))
        self.closing = CloseSignal(self.tasks)
        self.queues: AssignedQueues[bytes] = AssignedQueues()

    def advance(self, milliseconds: float) -> None:
        """Let time pass, a timer at a time."""
        end_ms = self.clock.now_ms + milliseconds
        while (due_ms := self.tasks.run()) is not None and due_ms <= end_ms:
            self.clock.now_ms = max(due_ms, self.clock.now_ms)
        self.clock.now_ms = end_ms
        self.tasks.run()

    def spawn(self, coroutine: Any) -> Task[Any]:
        """Run a coroutine up to its first wait."""
        task: Task[Any] = self.tasks.spawn(coroutine)
        self.tasks.run()
        return task

    def message(self, offset: int, queue_id: int = 0) -> ReceivedMessage[bytes]:
        """Return a message whose body is its offset."""
        record = StoredMessage(0, MAGIC_V1, 0, queue_id, 0, offset, 0, 0, 0, bytes(8), 0, bytes(8),
                               0, 0, b"%d" % offset, "T", "")
        return ReceivedMessage(record, queue(queue_id), offset, "T", None)

    def assign(self, count: int, queue_id: int = 0) -> AssignedQueue[bytes]:
        """Assign a queue, with so many messages in its window."""
        name = queue(queue_id)
        window: QueueWindow[Any] = QueueWindow(name, 0, int(self.tasks.now_ms), self.queues.total)
        assigned = self.queues[name] = AssignedQueue(name, name, Subscription("T"), window, 0)
        assigned.is_settled = True
        window.put([self.message(offset, queue_id) for offset in range(count)])
        return assigned
