"""Delivery: the queues of a member take turns, and callers that want messages wait in line.

Source: DefaultMQPushConsumerImpl, ConsumeMessageOrderlyService @5.3.3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

from twistmq.client.base.errors import Closed
from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.connection.tasks import Future
from twistmq.client.core.consumer.assigned_queues import AssignedQueue, Batch, MemberOptions
from twistmq.client.core.consumer.close_signal import CloseSignal

if TYPE_CHECKING:
    from twistmq.client.core.producer.tracer import Trace

__all__ = ["Delivery"]

T = TypeVar("T")


class Delivery(Generic[T]):
    """Hands out the messages of one member, and counts the messages that are not finished.

    :param client: the client, whose interceptors see the messages.
    :param closing: nothing is handed out once the member closes.
    :param needs_locks: whether the messages of a queue are handed out only under its lock.
    :param trace: records the messages; None: the consumer is not traced.

    The functions in ``on_finished`` are called when messages were finished or put back.
    """

    def __init__(
        self, client: ClientCore, options: MemberOptions, closing: CloseSignal, *,
        needs_locks: bool = False, trace: Trace | None = None,
    ) -> None:
        self._client = client
        self._tasks = client.tasks
        self._group = options.group
        self._in_order = options.in_order
        self._closing = closing
        self._needs_locks = needs_locks
        self._trace = trace
        self.on_finished: list[Callable[[], object]] = []
        #: The number of messages that were handed out and are not finished.
        self.running = 0
        #: The queues with messages to hand out, in the order of their turns.
        self.ready_queues: deque[AssignedQueue[T]] = deque()
        #: The callers that wait for messages.
        self._waiting: deque[Future[None]] = deque()
        self._idle: Future[None] | None = None

    # --- messages that come and go

    def arrived(self, assigned: AssignedQueue[T]) -> None:
        """Note that a queue may have messages to hand out."""
        if assigned.is_ready or not assigned.window.waiting_count or assigned.window.is_dropped:
            return
        if self._in_order and assigned.window.running_count:
            return
        assigned.is_ready = True
        self.ready_queues.append(assigned)
        self._notify()

    def take(self, max_count: int) -> Batch[T] | None:
        """Hand out the next messages of one queue; the queues take turns.

        :returns: None when there are no messages to hand out at present.
        """
        now_ms = self._tasks.now_ms
        in_order = self._in_order
        for _ in range(len(self.ready_queues)):
            assigned = self.ready_queues.popleft()
            assigned.is_ready = False
            window = assigned.window
            if window.is_dropped or self._closing.is_set:
                continue
            if in_order:
                if not self._may_run(assigned):
                    self._tasks.call_later(max(assigned.in_order_until_ms - now_ms, 100),
                                           self.arrived, assigned)
                    continue
                messages = window.take_in_order(max_count, int(now_ms))
            else:
                messages = window.take(max_count, int(now_ms))
                self.arrived(assigned)
            if messages:
                assigned.taken_ms = now_ms
                self.running += len(messages)
                if self._trace is not None:
                    self._trace.consuming(assigned.public_queue, messages)
                if self._client.interceptors:
                    self._client.interceptors.call(
                        "before_consume", self._group, assigned.public_queue, messages)
                return Batch(assigned, messages)
        return None

    def _may_run(self, assigned: AssignedQueue[T]) -> bool:
        """Whether messages of an ordered queue may be handed out: this member holds its lock."""
        if assigned.in_order_until_ms > self._tasks.now_ms:
            return False
        return not self._needs_locks or assigned.window.holds_lock(int(self._tasks.now_ms))

    def finished(self, count: int, assigned: AssignedQueue[T]) -> None:
        """Note that messages of a queue are no longer running."""
        self.running -= count
        self.arrived(assigned)
        if self._idle is not None and self.running <= 0:
            self._idle.set_result(None)
        for listener in self.on_finished:
            listener()

    def release(self, assigned: AssignedQueue[T], messages: Sequence[ReceivedMessage[T]]) -> None:
        """Let messages wait again that were handed out but not begun."""
        assigned.window.put_back(messages)
        self.finished(len(messages), assigned)

    # --- callers that wait for messages

    async def ready(self) -> None:
        """Wait until there may be messages to hand out, or the caller should check for a stop.

        A caller that was woken does not wait again here: a stop may have come in between.

        :raises Closed: when the consumer stops or closes.
        """
        if not self._closing.is_set and not self.ready_queues:
            waiter: Future[None] = Future()
            with self.waiting(waiter):
                await waiter
        if self._closing.is_set:
            raise Closed("the consumer is closed")

    @contextmanager
    def waiting(self, waiter: Future[None]) -> Iterator[None]:
        """While the block waits, notify ``waiter`` when there may be messages to hand out."""
        self._waiting.append(waiter)
        try:
            yield
        except BaseException:
            # Cancelled: if the notification has come, pass it on to another waiting caller.
            if waiter not in self._waiting and self.ready_queues:
                self._notify()
            raise
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)

    def _notify(self) -> None:
        """Wake one caller that waits for messages."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.is_done:
                waiter.set_result(None)
                break

    def wake_all(self, reason: str = "the consumer stops") -> None:
        """Make all callers of :meth:`ready` raise ``Closed``, so that they check for a stop."""
        waiting, self._waiting = self._waiting, deque()
        for waiter in waiting:
            waiter.set_error(Closed(reason))

    # --- the end

    async def wait_until_idle(self, timeout_ms: float) -> None:
        """Wait until no message is running, or until :meth:`stop_waiting`.

        :raises TimeoutError: when the time is over.
        """
        if self.running > 0:
            self._idle = Future()
            await self._tasks.wait_for(timeout_ms, self._idle, TimeoutError)

    def stop_waiting(self) -> None:
        """End :meth:`wait_until_idle`, although messages are running."""
        if self._idle is not None:
            self._idle.set_result(None)
