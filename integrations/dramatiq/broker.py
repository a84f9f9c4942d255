"""The broker for Dramatiq."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any

from dramatiq.broker import Broker, Consumer
from dramatiq.common import current_millis, q_name
from dramatiq.errors import BrokerConnectionError, BrokerError, QueueJoinTimeout, QueueNotFound
from dramatiq.message import Message
from dramatiq.middleware import Middleware

from twistmq.integrations.base.connection import Connection
from twistmq.integrations.base.delays import SentDelays
from twistmq.integrations.base.options import QueueOptions
from twistmq.integrations.dramatiq.consumer import QueueConsumer, TaskProxy, message_of
from twistmq.integrations.dramatiq.errors import dramatiq_errors

if TYPE_CHECKING:
    from typing import Unpack

    from twistmq.client.shell.arguments import ClientArguments
    from twistmq.client.shell.options import NameServers

__all__ = ["TwistmqBroker"]


class TwistmqBroker(Broker):
    """A broker for Dramatiq that keeps its queues at a twistmq or RocketMQ broker.

    It connects when the first message is sent or a worker starts.

    :param name_servers: "host:port;host:port" or a list; None: the environment variable
        NAMESRV_ADDR.
    :param middleware: as for every broker of Dramatiq; None: the default ones.
    :param prefix: the beginning of the names of all topics and groups.
    :param topic_queues: the number of queues of a new topic on each broker. With one, messages
        begin in the order in which they were sent.
    :param invisible_s: the time after which the messages of a dead worker are delivered again,
        seconds.
    :param delay_max_s: the longest delay that the broker accepts, seconds; longer ones are divided.
    :param max_attempts: the number of attempts after which a message that no attempt finishes
        becomes a dead letter. Dramatiq's own retries are not counted.
    :param client_options: options of :class:`twistmq.client.Client`, such as ``credentials``,
        ``tls`` and ``namespace``.
    :raises ValueError: when an option is not valid.
    """

    def __init__(
        self, name_servers: NameServers = None, *, middleware: list[Middleware] | None = None,
        prefix: str = "dramatiq", topic_queues: int = 1, invisible_s: float = 60.0,
        delay_max_s: float = 3 * 86_400 - 600, max_attempts: int = 16,
        **client_options: Unpack[ClientArguments],
    ) -> None:
        super().__init__(middleware=middleware)
        self.queues: set[str] = set()
        self._name_servers = name_servers
        self._options = QueueOptions(
            prefix=prefix, topic_queues=topic_queues, invisible_s=invisible_s,
            delay_max_s=delay_max_s, max_attempts=max_attempts)
        self._client_options = client_options
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._delays = SentDelays()

    def _connect(self) -> Connection:
        """Return the connection of this process."""
        with self._lock:
            connection = self._connection
            if connection is None or connection.process != os.getpid():
                with dramatiq_errors():
                    connection = self._connection = Connection(
                        self._name_servers, self._options, self._client_options,
                        decode=message_of)
            return connection

    def close(self) -> None:
        """Close the connection; messages that are not finished become visible to other workers."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # --- queues

    def declare_queue(self, queue_name: str) -> None:
        """Declare a queue; its topic is made when it is first used."""
        queue = q_name(queue_name)
        if queue not in self.queues:
            self.emit_before("declare_queue", queue)
            self.queues.add(queue)
            self.emit_after("declare_queue", queue)

    def get_declared_queues(self) -> set[str]:
        """Return the names of the declared queues."""
        return self.queues.copy()

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 5000) -> Consumer:
        """Return an iterator of the messages of a queue.

        :param prefetch: the largest number of messages that are not finished.
        :param timeout: the milliseconds after which the iterator returns None.
        :raises dramatiq.errors.QueueNotFound: when the queue was not declared.
        :raises dramatiq.errors.BrokerConnectionError: when no server answers.
        """
        if queue_name not in self.queues:
            raise QueueNotFound(queue_name)
        return QueueConsumer(self._connect(), queue_name, prefetch, timeout)

    # --- messages

    def enqueue(self, message: Message[Any], *, delay: int | None = None) -> Message[Any]:
        """Send a message.

        :param delay: the milliseconds for which the broker keeps the message.
        :returns: the message as it was sent.
        :raises dramatiq.errors.BrokerConnectionError: when no broker stores the message.
        :raises dramatiq.errors.BrokerError: when the broker refuses it, such as one that is too
            large.
        """
        queue = q_name(message.queue_name)
        self.declare_queue(queue)
        sent = message.copy(queue_name=queue)
        if delay is not None:
            sent.options["eta"] = current_millis() + delay
        self.logger.debug("Enqueueing message %r on queue %r.", sent.message_id, queue)
        self.emit_before("enqueue", sent, delay)
        try:
            self._send(queue, sent)
        except BrokerError as error:
            if isinstance(message, TaskProxy) and message.is_over:
                self._keep(message, error)
            raise
        self.emit_after("enqueue", sent, delay)
        return sent

    def _send(self, queue: str, message: Message[Any]) -> None:
        eta = message.options.get("eta")
        due = eta / 1000 if isinstance(eta, int | float) else None
        self._delays.note(queue, due)
        connection = self._connect()
        with dramatiq_errors():
            connection.send(queue, message.encode(), message.message_id, due)

    def _keep(self, message: TaskProxy, error: BrokerError) -> None:
        """Keep a message whose retry was not sent; otherwise the worker would acknowledge it."""
        if isinstance(error, BrokerConnectionError):
            self.logger.warning("A retry of message %r was not sent, so the message is delivered "
                                "again later.", message.message_id)
            message.is_kept = True
        else:
            self.logger.warning("A retry of message %r was refused, so the message becomes a dead "
                                "letter.", message.message_id)
            message.fail()

    def flush(self, queue_name: str) -> None:
        """Drop the messages of a queue that no worker has and whose time has come.

        :raises dramatiq.errors.BrokerConnectionError: when no server answers.
        """
        connection = self._connect()
        with dramatiq_errors():
            connection.reader(q_name(queue_name)).purge()

    def flush_all(self) -> None:
        """Call :meth:`flush` for all declared queues."""
        for queue in self.get_declared_queues():
            self.flush(queue)

    def join(
        self, queue_name: str, *, interval: int = 100, timeout: int | None = None
    ) -> None:
        """Wait until all messages of a queue are finished, for tests.

        This includes the delayed messages that this process has sent.

        :param interval: the milliseconds between two checks of the queue.
        :param timeout: the largest number of milliseconds to wait.
        :raises dramatiq.errors.QueueJoinTimeout: when the time is over.
        """
        queue = q_name(queue_name)
        connection = self._connect()
        end = None if timeout is None else time.monotonic() + timeout / 1000
        while True:
            with dramatiq_errors():
                count = connection.unfinished_count(queue)
            # The delays are checked last, because an actor may have sent another message by then.
            if not count and self._delays.are_over(queue):
                return
            if end is not None and time.monotonic() >= end:
                raise QueueJoinTimeout(queue_name)
            time.sleep(interval / 1000)
