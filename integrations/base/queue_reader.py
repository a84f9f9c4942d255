"""Reads one queue of tasks: pops its messages, hides them, and hands out each one when it is due.

A task library takes one message at a time, and decides about each of them in any order and at any
time. A broker delivers several messages in one response, a second too early if they were delayed,
and delivers them again when their invisible time is over. The reader stands between the two. It
keeps the received messages in a heap by the time at which they are due, lets the ``Holder`` extend
their invisible time, and reports each decision to the broker once. A message that cannot be decoded
or has used up its attempts becomes a dead letter, and one that arrived much too early is sent again
with the remaining delay, so that neither ever reaches the library.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from twistmq.client import (
    Client,
    ClientError,
    Closed,
    ForkedError,
    PopConsumer,
    ReceiptExpired,
    ReceivedMessage,
    Undecodable,
)
from twistmq.integrations.base.delays import due_of, is_too_early
from twistmq.integrations.base.holder import HeldMessage, Holder
from twistmq.integrations.base.names import queue_topic
from twistmq.integrations.base.options import QueueOptions
from twistmq.integrations.base.topics import is_connection_error

__all__ = ["QueueReader", "Task"]

log = logging.getLogger("twistmq.integrations")

#: The largest number of messages in one pop, and of messages that a process may hold.
RECEIVE_MAX: Final = 32
_HELD_MAX: Final = 100_000

_numbers = itertools.count(1)


class Task(HeldMessage):
    """One message that was received.

    :param value: the message in the form of the task library.
    :param ready_at: the Unix seconds at which it may be handed out.
    """

    __slots__ = ("_number", "is_finished", "ready_at", "value")

    def __init__(
        self, queue: str, message: ReceivedMessage[Any], consumer: PopConsumer[Any], value: Any,
        ready_at: float,
    ) -> None:
        super().__init__(queue, message, consumer)
        self.value = value
        self.ready_at = ready_at
        self.is_finished = False
        self._number = next(_numbers)

    def __lt__(self, other: Task) -> bool:
        """Whether this message is handed out first: by time, then in the order of arrival."""
        return (self.ready_at, self._number) < (other.ready_at, other._number)


class QueueReader:
    """The messages of one queue that this process has received.

    :param queue: the name of the queue in the task library. Its topic exists.
    :param decode: returns the message in the form of the library. It raises ``Undecodable`` for a
        message that has to become a dead letter; its arguments are the queue and the message.
    :param send_again: sends a message that has arrived too early; its arguments are the queue, the
        message and the time in Unix seconds.
    :param receive_max: the largest number of messages in one pop.
    """

    def __init__(
        self, queue: str, client: Client, options: QueueOptions, holder: Holder, *,
        decode: Callable[[str, ReceivedMessage[Any]], Any],
        send_again: Callable[[str, ReceivedMessage[Any], float], None],
        receive_max: int = RECEIVE_MAX,
    ) -> None:
        self.queue = queue
        self._options = options
        self._holder = holder
        self._decode = decode
        self._send_again = send_again
        self._receive_max = receive_max
        self._waiting: list[Task] = []
        self._changed = threading.Condition()
        #: The number of messages that are not finished, including those that wait here.
        self.unfinished_count = 0
        topic = queue_topic(options.prefix, queue)
        self._consumer: PopConsumer[Any] = PopConsumer(
            client=client, group=topic, topics=topic, start="first",
            invisible_s=options.invisible_s, in_flight_max=_HELD_MAX,
            max_attempts=options.max_attempts)

    # --- messages that arrive

    def take(self) -> Task | None:
        """Return a message that is ready, without waiting for one."""
        with self._changed:
            if self._waiting and self._waiting[0].ready_at <= time.time():
                return heapq.heappop(self._waiting)
        return None

    def receive_tasks(self, wait_s: float, limit: int | None = None) -> None:
        """Receive messages until one of them is ready, or until the time is over.

        :param limit: the largest number of messages that are not finished; None: no limit.
        :raises ClientError: when no server answers, or when the reader is closed.
        """
        end = time.monotonic() + wait_s
        while (remaining := self._remaining(end)) > 0:
            room = self._receive_max
            with self._changed:
                if limit is not None:
                    room = min(room, limit - self.unfinished_count)
                    if room <= 0:
                        self._changed.wait(remaining)
                        continue
            for message in self._consumer.receive(room, wait_s=remaining):
                self._receive_one(message)

    def _remaining(self, end: float) -> float:
        """Return the seconds until a message is ready, and at most until ``end``."""
        remaining = end - time.monotonic()
        with self._changed:
            if self._waiting:
                remaining = min(remaining, self._waiting[0].ready_at - time.time())
        return remaining

    def _receive_one(self, message: ReceivedMessage[Any]) -> None:
        if message.attempt > self._options.max_attempts:
            self._refuse(message, f"{message.attempt - 1} attempts were not finished")
            return
        try:
            value = self._decode(self.queue, message)
        except Undecodable as error:
            self._refuse(message, str(error))
            return
        due = due_of(message.properties)
        if due is not None and is_too_early(due):
            self._postpone(message, due)
            return
        # Messages that are due already are handed out in the order of their arrival.
        ready_at = due if due is not None and due > time.time() else 0.0
        task = Task(self.queue, message, self._consumer, value, ready_at)
        self._holder.hold(task)
        with self._changed:
            self.unfinished_count += 1
            heapq.heappush(self._waiting, task)

    def _refuse(self, message: ReceivedMessage[Any], why: str) -> None:
        log.error("queue %s: %r goes to the dead letters: %s", self.queue, message, why)
        try:
            self._consumer.bury(message)
        except ClientError as error:
            log.warning("queue %s: %r is delivered again after its invisible time: %s", self.queue,
                        message, error)

    def _postpone(self, message: ReceivedMessage[Any], due: float) -> None:
        try:
            self._send_again(self.queue, message, due)
            self._consumer.acknowledge(message)
        except ClientError as error:
            log.warning("queue %s: %r is delivered again after its invisible time: %s", self.queue,
                        message, error)

    # --- decisions

    def acknowledge(self, task: Task) -> None:
        """Finish a message; returns before the broker has answered."""
        if self._finish(task):
            self._holder.acknowledge(task)

    def give_back(self, task: Task) -> None:
        """Make a message visible to all workers again."""
        if self._finish(task):
            self._holder.give_back(task)

    def abandon(self, task: Task) -> None:
        """Stop extending a message, which becomes visible when its invisible time is over."""
        if self._finish(task):
            self._holder.forget(task)

    def bury(self, task: Task) -> None:
        """Send a message to the dead letters.

        :raises ClientError: when the broker does not answer; the message stays hidden.
        """
        if task.is_finished:
            return
        try:
            self._consumer.bury(task.message)
        except (Closed, ForkedError):
            # The consumer gave the message back when it was closed.
            pass
        except ClientError as error:
            if is_connection_error(error) and not isinstance(error, ReceiptExpired):
                raise
            log.warning("queue %s: %r is not sent to the dead letters, and is delivered again: %s",
                        self.queue, task.message, error)
        self.abandon(task)

    def _finish(self, task: Task) -> bool:
        """Count a message as finished; :returns: False when it already was."""
        with self._changed:
            if task.is_finished:
                return False
            task.is_finished = True
            self.unfinished_count -= 1
            self._changed.notify_all()
        return True

    def give_back_waiting(self) -> None:
        """Make all messages that were not handed out visible to other workers."""
        with self._changed:
            waiting, self._waiting = self._waiting, []
        for task in waiting:
            self.give_back(task)

    def purge(self) -> int:
        """Acknowledge all messages that are visible now or wait here; :returns: their number."""
        with self._changed:
            waiting, self._waiting = self._waiting, []
        for task in waiting:
            self.acknowledge(task)
        count = len(waiting)
        while messages := self._consumer.receive(RECEIVE_MAX, wait_s=0):
            self._consumer.acknowledge(messages)
            count += len(messages)
        return count

    def close(self) -> None:
        """Leave the group; messages that are not finished become visible to other workers."""
        self._consumer.close()
