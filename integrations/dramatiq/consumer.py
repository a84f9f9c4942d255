"""The consumer by which a worker of Dramatiq reads one queue."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, Final

from dramatiq.broker import Consumer, MessageProxy
from dramatiq.errors import DecodeError
from dramatiq.message import Message

from twistmq.client import ReceivedMessage, Undecodable
from twistmq.integrations.base.connection import Connection
from twistmq.integrations.base.queue_reader import Task
from twistmq.integrations.dramatiq.errors import dramatiq_errors

__all__ = ["QueueConsumer", "TaskProxy", "message_of"]

#: The type of each field of a message.
_FIELDS: Final[dict[str, type]] = {
    "queue_name": str, "actor_name": str, "kwargs": dict, "options": dict, "message_id": str,
    "message_timestamp": int}


def message_of(queue: str, received: ReceivedMessage[Any]) -> Message[Any]:
    """Return the message of Dramatiq for a worker that reads a queue.

    Its option ``eta`` is removed, because its time has come: a worker would keep a message with
    this option in its memory, and then send it again.

    :raises Undecodable: when Dramatiq's encoder cannot read it, or a field has another type.
    """
    try:
        message: Message[Any] = Message.decode(received.body)
    except DecodeError as error:
        raise Undecodable(f"{error} {error.error}") from error
    _check_form(message)
    message.options.pop("eta", None)
    if message.queue_name != queue:
        # The worker finds the consumer of a message by this name.
        message = dataclasses.replace(message, queue_name=queue)
    return message


def _check_form(message: Message[Any]) -> None:
    """Check the fields that Dramatiq's decoder takes as they are, and on which a worker fails.

    :raises Undecodable: when one of them has another type.
    """
    for name, kind in _FIELDS.items():
        value = getattr(message, name)
        if not isinstance(value, kind):
            raise Undecodable(f"its {name} is of the type {type(value).__name__}")


class TaskProxy(MessageProxy):
    """A message that a worker has.

    :param task: the message as it was received.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(task.value)
        self.task = task
        #: Whether a retry of the message could not be sent, so that the message itself is needed.
        self.is_kept = False

    @property
    def redelivered(self) -> bool:
        """Whether another worker had the message before."""
        return self.task.message.attempt > 1

    @property
    def is_over(self) -> bool:
        """Whether its actor has failed, so that a message sent now in its name is a retry."""
        return getattr(self, "_exception", None) is not None


class QueueConsumer(Consumer):
    """Reads one queue.

    :param prefetch: the largest number of messages that the worker has and has not finished.
    :param timeout: the milliseconds after which ``next`` returns None.
    """

    def __init__(self, connection: Connection, queue: str, prefetch: int, timeout: int) -> None:
        self._connection = connection
        self._prefetch = prefetch
        self._timeout_s = timeout / 1000
        with dramatiq_errors():
            self._reader = connection.reader(queue)

    def __next__(self) -> TaskProxy | None:
        """Return the next message, or None if none has arrived in time."""
        task = self._reader.take()
        if task is None:
            with dramatiq_errors():
                self._reader.receive_tasks(self._timeout_s, self._prefetch)
            task = self._reader.take()
        return None if task is None else TaskProxy(task)

    def ack(self, message: MessageProxy) -> None:
        """Finish a message; one that was not received here is ignored."""
        if not isinstance(message, TaskProxy):
            return
        if message.is_kept:
            self._reader.abandon(message.task)
        else:
            self._reader.acknowledge(message.task)

    def nack(self, message: MessageProxy) -> None:
        """Send a message to the dead letters; one that was not received here is ignored.

        :raises dramatiq.errors.ConnectionClosed: when the broker does not answer.
        """
        if not isinstance(message, TaskProxy):
            return
        with dramatiq_errors():
            self._reader.bury(message.task)

    def requeue(self, messages: Iterable[TaskProxy]) -> None:
        """Make messages visible to other workers."""
        for message in messages:
            self._reader.give_back(message.task)

    def close(self) -> None:
        """Give back the messages that the worker did not take."""
        self._connection.release(self._reader)
