"""Delivery: the queues of a member take turns, and callers that want messages wait in line.

Source: DefaultMQPushConsumerImpl, ConsumeMessageOrderlyService @5.3.3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from twistmq.client.base.errors import Closed
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.connection.tasks import Future
from twistmq.client.core.consumer.assigned_queues import AssignedQueue, Batch, MemberOptions
from twistmq.client.core.consumer.queue_locks import Locks
from twistmq.client.core.consumer.window import ByteTotal, QueueWindow
from twistmq.protocol.bodies import MessageQueue

if TYPE_CHECKING:
    from twistmq.client.core.producer.tracer import Trace

__all__ = ["Delivery"]

T = TypeVar("T")


class Delivery(Generic[T]):
    """The part of a member that hands out messages.

    :param client: the client, perhaps shared.
    """

    #: The value of ``GroupMember`` for consumers.
    send_timeout_ms = 0.0

    def __init__(self, client: ClientCore, options: MemberOptions) -> None:
        self.client = client
        self.tasks = client.tasks
        self.options = options
        #: The group's name at brokers.
        self.group = client.namespace.group(options.group)
        #: The queues that are assigned to this member.
        self.assigned_queues: dict[MessageQueue, AssignedQueue[T]] = {}
        self.total = ByteTotal()
        self.locks: Locks | None = (
            Locks(client, self.group, self.queue_windows)
            if options.in_order and not options.is_broadcast else None)
        #: Records the consumed messages; None: the consumer is not traced.
        self.trace: Trace | None = None
        self.is_closing = False
        #: The number of messages that were handed out and are not finished.
        self.running = 0
        self._ready: deque[AssignedQueue[T]] = deque()
        self._waiting: deque[Future[None]] = deque()

    def queue_windows(self) -> list[tuple[MessageQueue, QueueWindow[Any]]]:
        """Return the queues of this member with their windows."""
        return [(queue, assigned.window) for queue, assigned in self.assigned_queues.items()]

    def arrived(self, assigned: AssignedQueue[T]) -> None:
        """Note that a queue may have messages to hand out."""
        if assigned.is_ready or not assigned.window.waiting_count or assigned.window.is_dropped:
            return
        if self.options.in_order and assigned.window.running_count:
            return
        assigned.is_ready = True
        self._ready.append(assigned)
        self._notify()

    def _notify(self) -> None:
        """Wake one caller that waits for messages."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.is_done:
                waiter.set_result(None)
                break

    @property
    def has_ready(self) -> bool:
        """Whether there may be messages to hand out."""
        return bool(self._ready)

    def take(self, max_count: int) -> Batch[T] | None:
        """Hand out the next messages of one queue; the queues take turns.

        :returns: None when there are no messages to hand out at present.
        """
        now_ms = self.tasks.now_ms
        in_order = self.options.in_order
        for _ in range(len(self._ready)):
            assigned = self._ready.popleft()
            assigned.is_ready = False
            window = assigned.window
            if window.is_dropped or self.is_closing:
                continue
            if in_order:
                if not self._may_run(assigned):
                    self.tasks.call_later(max(assigned.in_order_until_ms - now_ms, 100),
                                     self.arrived, assigned)
                    continue
                messages = window.take_in_order(max_count, int(now_ms))
            else:
                messages = window.take(max_count, int(now_ms))
                self.arrived(assigned)
            if messages:
                assigned.taken_ms = now_ms
                self.running += len(messages)
                if self.trace is not None:
                    self.trace.consuming(assigned.public_queue, messages)
                if self.client.interceptors:
                    self.client.interceptors.call(
                        "before_consume", self.options.group, assigned.public_queue, messages)
                return Batch(assigned, messages)
        return None

    def _may_run(self, assigned: AssignedQueue[T]) -> bool:
        """Whether messages of an ordered queue may be handed out: this member holds its lock."""
        if assigned.in_order_until_ms > self.tasks.now_ms:
            return False
        return self.locks is None or assigned.window.holds_lock(int(self.tasks.now_ms))

    async def ready(self) -> None:
        """Wait until there may be messages to hand out, or the caller should check for a stop.

        A caller that was woken does not wait again here: a stop may have come in between.

        :raises Closed: when the consumer stops or closes.
        """
        if not self.is_closing and not self._ready:
            waiter: Future[None] = Future()
            with self.waiting(waiter):
                await waiter
        if self.is_closing:
            raise Closed("the consumer is closed")

    @contextmanager
    def waiting(self, waiter: Future[None]) -> Iterator[None]:
        """While the block waits, notify ``waiter`` when there may be messages to hand out."""
        self._waiting.append(waiter)
        try:
            yield
        except BaseException:
            # Cancelled: if the notification has come, pass it on to another waiting caller.
            if waiter not in self._waiting and self._ready:
                self._notify()
            raise
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)

    def wake_all(self) -> None:
        """Make all callers of :meth:`ready` raise, so that they check for a stop."""
        waiting, self._waiting = self._waiting, deque()
        for waiter in waiting:
            waiter.set_error(Closed("the consumer stops"))
