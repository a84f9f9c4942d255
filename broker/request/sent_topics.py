"""Topics as the sends of plain messages need them: one object with data from several tables.

When a message arrives, hardly one of ten thousand topics is in the processor's caches, and each
table costs several loads from memory. This is a leaf module of the hot path; it is typed, so that
mypyc compiles it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from twistmq.broker.store.consume_queue import ConsumeQueue

__all__ = ["SentTopic", "SentTopics"]

#: The number of queues of a topic that are kept.
_QUEUES_MAX: Final = 64


class SentTopic:
    """One topic, with everything that the send of a plain message needs."""

    __slots__ = ("name", "queue_count", "queues")

    def __init__(self, name: str, queue_count: int) -> None:
        #: The topic's own name object; with a request's copy, each table would compare the text.
        self.name: str = name
        #: Messages to queues below this number are plain; 0 if each must be examined closely.
        self.queue_count: int = queue_count
        #: Its queues by id, if they were requested before.
        self.queues: list[ConsumeQueue | None] = [None] * min(queue_count, _QUEUES_MAX)


class SentTopics:
    """The existing topics to which messages were sent.

    :param topics: the table of topics, of TopicConfig.
    :param multi_tag: a topic with this filter type has records that are not plain.
    :param find_queue: finds the queue of a topic and an id, if anything was stored in it.
    """

    def __init__(
        self, topics: Mapping[str, Any], multi_tag: object,
        find_queue: Callable[[str, int], ConsumeQueue | None],
    ) -> None:
        self._topics: Mapping[str, Any] = topics
        self._multi_tag: object = multi_tag
        self._find_queue: Callable[[str, int], ConsumeQueue | None] = find_queue
        self._sent: dict[str, SentTopic] = {}

    def get(self, topic: str) -> SentTopic | None:
        """Find a topic; None if no topic has this name."""
        sent = self._sent.get(topic)
        return self._look_up(topic) if sent is None else sent

    def _look_up(self, topic: str) -> SentTopic | None:
        config = self._topics.get(topic)
        if config is None:
            return None
        write_count: int = config.write_queue_nums
        read_count: int = config.read_queue_nums
        is_plain: bool = config.topic_filter_type is not self._multi_tag
        name: str = config.topic_name
        sent = SentTopic(name, max(write_count, read_count) if is_plain else 0)
        self._sent[name] = sent
        return sent

    def queue(self, sent: SentTopic, queue_id: int) -> ConsumeQueue | None:
        """Find a queue of a topic; None if nothing was stored in it, or if it is not kept here."""
        if queue_id >= len(sent.queues):
            return None
        queue = sent.queues[queue_id]
        if queue is None or queue.is_removed:
            queue = sent.queues[queue_id] = self._find_queue(sent.name, queue_id)
        return queue

    def forget(self, topic: str) -> None:
        """Drop a topic that was changed or deleted."""
        self._sent.pop(topic, None)
