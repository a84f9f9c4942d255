"""Sends tasks by the asyncio client, in the event loop of the program."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from twistmq.client import MessageQueue, RequestRefused, aio
from twistmq.integrations.base.delays import SentDelays, delivery_time, due_properties
from twistmq.integrations.base.names import queue_topic
from twistmq.integrations.taskiq.labels import SendLabels
from twistmq.integrations.taskiq.options import TaskiqOptions

if TYPE_CHECKING:
    from twistmq.client.shell.arguments import ClientArguments
    from twistmq.client.shell.options import NameServers

__all__ = ["Sender"]


class Sender:
    """A producer, which belongs to the event loop of its first send.

    :param queue: the queue of tasks that name no other.
    :raises OptionError: when an option of the client is not valid.
    """

    def __init__(
        self, name_servers: NameServers, queue: str, options: TaskiqOptions,
        client_options: ClientArguments,
    ) -> None:
        self._queue = queue
        self._options = options
        self._client = aio.Client(name_servers, **client_options)
        self._producer = aio.Producer(client=self._client, group=f"{options.prefix}-producers")
        #: The topics that exist.
        self._topics: set[str] = set()
        self.delays = SentDelays()

    async def send(self, body: bytes, labels: SendLabels) -> None:
        """Send a task.

        :raises ClientError: when it is not stored.
        """
        queue = labels.queue or self._queue
        topic = queue_topic(self._options.prefix, queue)
        await self._ensure_topic(topic)
        deliver_at = delivery_time(labels.due, self._options)
        priority = min(labels.priority or 0, self._options.priorities - 1)
        has_priority = self._options.priorities > 1
        # The broker ignores the priority of a delayed message, but not its queue.
        target = await self._queue_of(topic, priority) if has_priority and deliver_at else None
        self.delays.note(queue, labels.due)
        await self._producer.send(
            topic, body, keys=labels.keys, tags=labels.tag, properties=due_properties(labels.due),
            deliver_at=deliver_at, queue=target,
            priority=priority if has_priority and target is None else None)

    async def _queue_of(self, topic: str, priority: int) -> MessageQueue | None:
        """Return the queue of a priority on one of the brokers; None if it does not exist."""
        queues = [each for each in await self._client.write_queues(topic)
                  if each.queue_id == priority]
        return random.choice(queues) if queues else None

    async def _ensure_topic(self, topic: str) -> None:
        """Create a topic unless it exists."""
        if topic in self._topics:
            return
        try:
            await self._client.read_queues(topic, again=True)
        except RequestRefused:
            await self._client.create_topic(
                topic, queues=max(self._options.topic_queues, self._options.priorities),
                attributes=self._options.topic_attributes)
        self._topics.add(topic)

    async def close(self) -> None:
        """Wait for the messages in flight, and close the connections."""
        await self._producer.close()
        await self._client.close()
