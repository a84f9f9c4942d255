"""The topics of queues at the brokers, and the errors of requests to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from twistmq.client import (
    Busy,
    Client,
    ClientError,
    Closed,
    Full,
    NoRoute,
    RemotingError,
    RequestRefused,
    SendFailed,
)

__all__ = ["KnownTopics", "is_connection_error", "unfinished_count"]

#: Errors after which the same call may succeed later or on a new connection.
_OF_CONNECTION: Final = (RemotingError, NoRoute, Busy, Full, Closed)


def is_connection_error(error: ClientError) -> bool:
    """Whether a server did not answer; otherwise, it refused the request."""
    return isinstance(error, _OF_CONNECTION) or (
        isinstance(error, SendFailed) and error.retriable)


class KnownTopics:
    """The topics that a connection has found or created.

    :param queues: the number of queues of a new topic on each broker.
    :param attributes: the attributes of a new topic.
    """

    def __init__(
        self, client: Client, queues: int, attributes: Mapping[str, str] | None = None
    ) -> None:
        self._client = client
        self._queues = queues
        self._attributes = attributes
        self._names: set[str] = set()

    def has_topic(self, topic: str) -> bool:
        """Whether a topic exists; :raises ClientError: when no name server answers."""
        if topic not in self._names:
            try:
                self._client.read_queues(topic, again=True)
            except RequestRefused:
                return False
            self._names.add(topic)
        return True

    def ensure_topic(self, topic: str) -> None:
        """Create a topic unless it exists; :raises ClientError: when that fails."""
        if not self.has_topic(topic):
            self._client.create_topic(
                topic, queues=self._queues, attributes=self._attributes)
            self._names.add(topic)


def unfinished_count(client: Client, topic: str) -> int:
    """Return how many messages of a topic its group has not acknowledged.

    :raises ClientError: when a server does not answer.
    """
    count = 0
    for each in client.read_queues(topic):
        first = client.group_offset(topic, each)
        if first is None:
            first = client.min_offset(each)
        count += max(client.max_offset(each) - first, 0)
    return count
