"""The topics and groups of a broker, as far as permissions depend on them.

Messages that a group popped and did not acknowledge wait in the topic ``%RETRY%GROUP_TOPIC`` or
``%RETRY%GROUP+TOPIC``. Both names may contain underscores, so a topic name can have several
readings: it can even be the retry topic of a group that is called ``GROUP_TOPIC``.

Source: KeyBuilder @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Final

from twistmq.broker.api.topics import (
    RETRY_GROUP_TOPIC_PREFIX,
    SEND_FORBIDDEN_TOPICS,
    SYSTEM_TOPIC_PREFIX,
    TRACE_TOPIC,
)

__all__ = ["NO_NAMES", "KnownNames", "retry_readings"]

#: Limit of characters in a topic's name, because the store names a directory after it.
_NAME_LENGTH_MAX: Final = 255
_SEPARATORS: Final = "_+"


def _nothing(name: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class KnownNames:
    """The topics and groups of a broker.

    :param has_topic: whether a topic exists.
    :param has_group: whether a consumer group exists.
    :param internal_topics: topics to which only the broker writes.
    :param reply_topic: the topic of the reply messages of all clients; empty if it is unknown.
    """

    has_topic: Callable[[str], bool] = _nothing
    has_group: Callable[[str], bool] = _nothing
    internal_topics: Collection[str] = SEND_FORBIDDEN_TOPICS
    reply_topic: str = ""

    def is_internal(self, topic: str) -> bool:
        """Whether only the broker itself writes to a topic and interprets its messages."""
        return topic in self.internal_topics or topic.startswith(SYSTEM_TOPIC_PREFIX)

    def is_shared(self, topic: str) -> bool:
        """Whether every account may write to a topic, so that it contains messages of all."""
        return topic in (TRACE_TOPIC, self.reply_topic)


#: The names of a broker without topics and groups.
NO_NAMES: Final = KnownNames()


def retry_readings(name: str) -> Iterator[tuple[str, str]]:
    """Yield each group and topic whose popped messages may be stored in a topic.

    :param name: a topic ``%RETRY%...``.
    """
    if len(name) > _NAME_LENGTH_MAX:
        return
    begin = len(RETRY_GROUP_TOPIC_PREFIX)
    for index in range(begin + 1, len(name) - 1):
        if name[index] in _SEPARATORS:
            yield name[begin:index], name[index + 1:]
