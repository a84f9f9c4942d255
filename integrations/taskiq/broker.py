"""The broker for Taskiq.

Taskiq is asynchronous, and a task that computes for long blocks its event loop. The message of such
a task must stay hidden from other workers, so a worker reads, extends and acknowledges on threads,
by the reader that all integrations of task queues share. A program that only sends tasks needs no
thread: it uses the asyncio client, in its own event loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from taskiq import AckableMessage, AsyncBroker, BrokerMessage, TaskiqMessage

from twistmq.client import ClientError, Closed, ReceivedMessage, Undecodable
from twistmq.integrations.base.connection import Connection
from twistmq.integrations.base.queue_reader import QueueReader
from twistmq.integrations.taskiq.deliveries import Deliveries, Delivery
from twistmq.integrations.taskiq.labels import send_labels
from twistmq.integrations.taskiq.options import TaskiqOptions
from twistmq.integrations.taskiq.sender import Sender

if TYPE_CHECKING:
    from typing import Unpack

    from twistmq.client.shell.arguments import ClientArguments
    from twistmq.client.shell.options import NameServers

__all__ = ["TwistmqBroker"]

log = logging.getLogger("twistmq.integrations")

#: How long one request for messages waits, and the delay after one that failed, seconds.
_WAIT_S: Final = 5.0
_AGAIN_S: Final = 1.0
#: The delay between two checks of a queue, seconds.
_LOOK_S: Final = 0.1


class TwistmqBroker(AsyncBroker):
    """A broker for Taskiq that keeps its queues at a twistmq or RocketMQ broker.

    Tasks are sent by the asyncio client, which connects when the first task is sent. A worker reads
    on threads, so that a task that blocks the event loop keeps its message hidden.

    :param name_servers: "host:port;host:port" or a list; None: the environment variable
        NAMESRV_ADDR.
    :param queue_name: the queue that workers read, and to which tasks are sent.
    :param prefix: the beginning of the names of all topics and groups.
    :param topic_queues: the number of queues of a new topic on each broker. With one, tasks begin
        in the order in which they were sent.
    :param priorities: the number of priorities; with more than one, a new topic has as many queues.
    :param prefetch: the largest number of messages that a worker fetches at once.
    :param bury_failed: whether the message of a task that failed, without a further retry, becomes
        a dead letter.
    :param invisible_s: the time after which the messages of a dead worker are delivered again,
        seconds.
    :param delay_max_s: the longest delay that the broker accepts, seconds; longer ones are divided.
    :param max_attempts: the number of attempts after which a message that no attempt finishes
        becomes a dead letter. The retries of Taskiq middlewares are not counted.
    :param client_options: options of :class:`twistmq.client.Client`, such as ``credentials``,
        ``tls`` and ``namespace``.
    :raises ValueError: when an option is not valid.
    """

    def __init__(
        self, name_servers: NameServers = None, *, queue_name: str = "default",
        prefix: str = "taskiq", topic_queues: int = 1, priorities: int = 1, prefetch: int = 10,
        bury_failed: bool = True, invisible_s: float = 60.0, delay_max_s: float = 3 * 86_400 - 600,
        max_attempts: int = 16, **client_options: Unpack[ClientArguments],
    ) -> None:
        super().__init__()
        self.queue_name = queue_name
        self._name_servers = name_servers
        self._options = TaskiqOptions(
            prefix=prefix, topic_queues=max(topic_queues, priorities), priorities=priorities,
            prefetch=prefetch, bury_failed=bury_failed, invisible_s=invisible_s,
            delay_max_s=delay_max_s, max_attempts=max_attempts)
        self._client_options = client_options
        self._deliveries = Deliveries(bury_failed)
        self.add_middlewares(self._deliveries)
        self._sender: Sender | None = None
        self._lock = threading.RLock()
        self._connection: Connection | None = None
        #: The thread that waits for messages.
        self._reading: ThreadPoolExecutor | None = None

    async def start_worker(self) -> None:
        """Start as a worker does, in a program that runs Taskiq's receiver itself."""
        self.is_worker_process = True
        await self.startup()

    async def shutdown(self) -> None:
        """Close all connections; messages that are not finished become visible to other workers."""
        await super().shutdown()
        sender, self._sender = self._sender, None
        with self._lock:
            connection, self._connection = self._connection, None
            reading, self._reading = self._reading, None
        self._deliveries.clear()
        if connection is not None:
            await asyncio.to_thread(connection.close)
        if reading is not None:
            reading.shutdown(wait=False)
        if sender is not None:
            await sender.close()

    # --- programs that send

    async def kick(self, message: BrokerMessage) -> None:
        """Send a task.

        :raises ValueError: when a label of the task is not valid.
        :raises ClientError: when no broker stores the task, such as one that is too large.
        """
        labels = send_labels(message.task_id, message.labels)
        if self._sender is None:
            self._sender = Sender(
                self._name_servers, self.queue_name, self._options, self._client_options)
        await self._sender.send(message.message, labels)

    async def wait_all(self, timeout_s: float | None = None) -> None:
        """Wait until all tasks of the queue are finished, for tests.

        This includes the delayed tasks that this process has sent.

        :raises TimeoutError: when the time is over.
        :raises ClientError: when no server answers.
        """
        async with asyncio.timeout(timeout_s):
            while True:
                count = await asyncio.to_thread(
                    lambda: self._connect().unfinished_count(self.queue_name))
                # The delays are checked last, because a task may have sent another one by then.
                if not count and (self._sender is None
                                  or self._sender.delays.are_over(self.queue_name)):
                    return
                await asyncio.sleep(_LOOK_S)

    # --- workers

    def _connect(self) -> Connection:
        """Return the connection of this process that reads; any thread may call it."""
        with self._lock:
            connection = self._connection
            if connection is None or connection.process != os.getpid():
                connection = self._connection = Connection(
                    self._name_servers, self._options, self._client_options, decode=self._task_of,
                    receive_max=self._options.prefetch)
            return connection

    def _task_of(self, queue: str, received: ReceivedMessage[Any]) -> TaskiqMessage:
        """Return the task of a message.

        :raises Undecodable: when the message is not a task that this worker knows.
        """
        try:
            message: TaskiqMessage = self.formatter.loads(received.body)
        except Exception as error:
            # The text of the error may contain the body of the message.
            raise Undecodable(f"it is not a task: {type(error).__name__}") from error
        if self.find_task(message.task_name) is None:
            raise Undecodable(f"the task {message.task_name!r} is not known")
        return message

    def _receive(self, reading: ThreadPoolExecutor) -> QueueReader:
        """Wait for messages, on the thread that reads.

        :returns: the reader that has them.
        :raises Closed: when the broker is shut down.
        """
        with self._lock:
            if self._reading is not reading:
                raise Closed("the broker is shut down")
            connection = self._connect()
        reader = connection.reader(self.queue_name)
        reader.receive_tasks(_WAIT_S)
        return reader

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Yield the tasks of the queue, until the broker is shut down.

        If no server answers, one line is logged, and the queue is read again until one does.
        """
        loop = asyncio.get_running_loop()
        if self._reading is None:
            self._reading = ThreadPoolExecutor(1, "twistmq-reading")
        reading = self._reading
        is_away = False
        while self._reading is reading:
            try:
                reader = await loop.run_in_executor(reading, self._receive, reading)
            except Closed:
                continue
            except ClientError as error:
                if not is_away:
                    log.warning("queue %s cannot be read, and will be tried again: %s",
                                self.queue_name, error)
                is_away = True
                await asyncio.sleep(_AGAIN_S)
                continue
            is_away = False
            while (task := reader.take()) is not None:
                delivery = Delivery(reader, task)
                self._deliveries.note_delivery(task.value.task_id, delivery)
                yield AckableMessage(data=task.message.body, ack=delivery.acknowledge)
