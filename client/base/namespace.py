"""Names of topics and groups inside a namespace: brokers know them as ``namespace%name``.

In the name of a retry topic or a dead-letter topic, the namespace follows the prefix:
``%RETRY%namespace%group``. System names do not have a namespace.

Source: NamespaceUtil @5.3.3.
"""

from __future__ import annotations

from typing import Final

import msgspec

from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.header import CommandHeader
from twistmq.protocol.topic_names import (
    DLQ_GROUP_TOPIC_PREFIX,
    RETRY_GROUP_TOPIC_PREFIX,
    is_system_group,
    is_system_topic,
)

__all__ = ["Namespace"]

_SEPARATOR: Final = "%"
_PREFIXES: Final = (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX)
#: The fields of request headers that hold a name.
_TOPIC_FIELD: Final = "topic"
_GROUP_FIELDS: Final = ("consumer_group", "producer_group")


class Namespace:
    """One namespace.

    :param name: the name of the namespace; with "", every name stays as it is.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def topic(self, name: str) -> str:
        """Return the name that the broker uses for a topic."""
        return name if is_system_topic(name) else self._inside(name)

    def queue(self, queue: MessageQueue) -> MessageQueue:
        """Return a queue with the name that the broker uses for its topic."""
        return MessageQueue(self.topic(queue.topic), queue.broker_name, queue.queue_id)

    def queue_without(self, queue: MessageQueue) -> MessageQueue:
        """Return a queue with the name of its topic within the namespace."""
        return MessageQueue(self.without(queue.topic), queue.broker_name, queue.queue_id)

    def group(self, name: str) -> str:
        """Return the name that the broker uses for a group."""
        return name if is_system_group(name) else self._inside(name)

    def without(self, name: str) -> str:
        """Return the name of a topic or group within the namespace."""
        if not self.name:
            return name
        prefix, rest = _split(name)
        return prefix + rest.removeprefix(self.name + _SEPARATOR)

    def contains(self, topic: str) -> bool:
        """Whether a topic of the broker belongs to this namespace."""
        return not self.name or self.topic(self.without(topic)) == topic

    def header(self, header: CommandHeader) -> CommandHeader:
        """Return a request's header with the names that brokers use."""
        if not self.name:
            return header
        changes: dict[str, str] = {}
        for field in (_TOPIC_FIELD, *_GROUP_FIELDS):
            value = getattr(header, field, None)
            if value:
                changes[field] = self.topic(value) if field == _TOPIC_FIELD else self.group(value)
        return msgspec.structs.replace(header, **changes)

    def _inside(self, name: str) -> str:
        prefix, rest = _split(name)
        if not self.name or not name or rest.startswith(self.name + _SEPARATOR):
            return name
        return f"{prefix}{self.name}{_SEPARATOR}{rest}"


def _split(name: str) -> tuple[str, str]:
    """Split the name of a retry topic or dead-letter topic into its prefix and its remainder."""
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return prefix, name[len(prefix):]
    return "", name
