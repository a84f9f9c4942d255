"""Checks whether a request may read a message that it names by its position.

Source: none. Apache's broker checks only topics that headers name.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from twistmq.broker.remoting.dispatcher import Dispatcher
from twistmq.broker.remoting.messages import Request
from twistmq.protocol.properties import REAL_TOPIC
from twistmq.protocol.record import StoredMessage
from twistmq.protocol.topic_names import SEND_FORBIDDEN_TOPICS

__all__ = ["require_readable"]


def require_readable(
    dispatcher: Dispatcher, request: Request[Any], message: StoredMessage,
    groups: Collection[str] = (),
) -> None:
    """Ask the validators whether a request may read a message.

    A message that waits for delivery may be read by a request that may read the topic to which it
    will be delivered.

    :param groups: the consumer groups for which the request acts.
    :raises BrokerError: when the current topic or the future topic must not be read.
    """
    topics = {message.topic}
    if REAL_TOPIC in message.properties:
        topics.add(message.properties_map().get(REAL_TOPIC, message.topic))
        if len(topics) > 1:
            # Only the broker writes to these topics, where messages of all topics wait.
            topics -= SEND_FORBIDDEN_TOPICS
    dispatcher.require_access(request, consumes=topics, groups=groups)
