"""The connection of one process to the cluster: it sends tasks, and reads queues of tasks."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from twistmq.client import Client, ClientError, Producer, ReceivedMessage
from twistmq.integrations.base.delays import delivery_time, due_properties
from twistmq.integrations.base.holder import Holder
from twistmq.integrations.base.names import queue_topic, search_keys
from twistmq.integrations.base.options import QueueOptions
from twistmq.integrations.base.queue_reader import RECEIVE_MAX, QueueReader
from twistmq.integrations.base.topics import KnownTopics, unfinished_count

if TYPE_CHECKING:
    from twistmq.client.shell.arguments import ClientArguments
    from twistmq.client.shell.options import NameServers

__all__ = ["Connection"]

#: The properties that connect a message with its trace.
_CONTEXT: Final[tuple[str, ...]] = ("traceparent", "tracestate", "baggage")


class Connection:
    """A client, a producer, and the readers of queues.

    :param decode: see :class:`QueueReader`.
    :raises OptionError: when an option of the client is not valid.
    """

    def __init__(
        self, name_servers: NameServers, options: QueueOptions, client_options: ClientArguments, *,
        decode: Callable[[str, ReceivedMessage[Any]], Any],
        receive_max: int = RECEIVE_MAX,
    ) -> None:
        #: The process that has the connection; a forked child must not use it.
        self.process = os.getpid()
        self._options = options
        self._decode = decode
        self._receive_max = receive_max
        self._lock = threading.RLock()
        self._readers: dict[str, QueueReader] = {}
        self._holder: Holder | None = None
        self._client = Client(name_servers, **client_options)
        self._topics = KnownTopics(
            self._client, options.topic_queues, options.topic_attributes)
        try:
            self._producer = Producer(client=self._client, group=f"{options.prefix}-producers")
        except BaseException:
            self._client.close()
            raise

    def _topic(self, queue: str) -> str:
        """Return the topic of a queue, which is created if necessary."""
        topic = queue_topic(self._options.prefix, queue)
        self._topics.ensure_topic(topic)
        return topic

    def send(
        self, queue: str, body: bytes, task_id: str | None, due: float | None = None
    ) -> None:
        """Send a task.

        :param task_id: becomes a key of the message, by which tools find it.
        :param due: the Unix seconds at which it is delivered; None: at once.
        :raises ClientError: when it is not stored.
        """
        self._producer.send(
            self._topic(queue), body, keys=search_keys(task_id), properties=due_properties(due),
            deliver_at=delivery_time(due, self._options))

    def _send_again(self, queue: str, message: ReceivedMessage[Any], due: float) -> None:
        """Send a message that has arrived before its time, with its keys, tags and trace."""
        context = {name: message.properties[name] for name in _CONTEXT
                   if name in message.properties}
        self._producer.send(
            self._topic(queue), message.body, keys=message.keys, tags=message.tags,
            properties={**context, **due_properties(due)},
            deliver_at=delivery_time(due, self._options))

    def reader(self, queue: str) -> QueueReader:
        """Return the reader of a queue; :raises ClientError: when its topic cannot be created."""
        with self._lock:
            reader = self._readers.get(queue)
            if reader is None:
                self._topic(queue)
                if self._holder is None:
                    self._holder = Holder(self._options.invisible_s)
                reader = self._readers[queue] = QueueReader(
                    queue, self._client, self._options, self._holder, decode=self._decode,
                    send_again=self._send_again, receive_max=self._receive_max)
            return reader

    def release(self, reader: QueueReader) -> None:
        """Close a reader that is not used at present, unless some of its tasks still run."""
        reader.give_back_waiting()
        with self._lock:
            if reader.unfinished_count or self._readers.get(reader.queue) is not reader:
                return
            del self._readers[reader.queue]
        if self._holder is not None:
            self._holder.flush()
        with suppress(ClientError):
            reader.close()

    def unfinished_count(self, queue: str) -> int:
        """Return how many messages of a queue are not acknowledged, apart from delayed ones.

        :raises ClientError: when a server does not answer.
        """
        reader = self._readers.get(queue)
        held = 0 if reader is None else reader.unfinished_count
        return max(held, unfinished_count(self._client, self._topic(queue)))

    def close(self) -> None:
        """Send the last acknowledgements; unfinished messages become visible to other consumers."""
        if self.process != os.getpid():
            # A forked child leaves the connection of its parent alone.
            return
        if self._holder is not None:
            self._holder.close()
        for reader in list(self._readers.values()):
            with suppress(ClientError):
                reader.close()
        with suppress(ClientError):
            self._producer.close()
        self._client.close()
