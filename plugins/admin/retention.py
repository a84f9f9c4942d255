"""Removal of old or unused data on request of an administrator: 306, 316, 329.

Source: AdminBrokerProcessor.cleanExpiredConsumeQueue, cleanUnusedTopic, deleteExpiredCommitLog,
DefaultMessageStore.cleanUnusedTopic @5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.logger import Logger

from twistmq.broker.api import EmptyHeader, Handled, Reply, Request, RequestCode, RequestHandler
from twistmq.broker.api.requests import Work
from twistmq.broker.api.topics import LMQ_PREFIX, SYSTEM_TOPICS, is_system_topic

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["RetentionRequests"]


class RetentionRequests:
    """The handlers of requests that remove files."""

    log = Logger()

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> list[RequestHandler[Any]]:
        return [
            RequestHandler(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, self._clean_queues,
                           EmptyHeader),
            RequestHandler(RequestCode.CLEAN_UNUSED_TOPIC, self._clean_topics, EmptyHeader),
            RequestHandler(RequestCode.DELETE_EXPIRED_COMMITLOG, self._delete_files, EmptyHeader),
        ]

    def _clean_queues(self, request: Request[EmptyHeader]) -> Handled:
        return self._broker.long_answers.answer(
            self._remove_queues(), request.channel, is_wanted=True)

    def _remove_queues(self) -> Work:
        """Remove the queues whose messages are all gone, except for queues of system topics."""
        broker = self._broker
        kept = SYSTEM_TOPICS | broker.topic_config.system_topics
        for queue in broker.store.clean_expired_queues(kept):
            self.log.info("queue {topic}-{queue_id} had no message left and is removed",
                          topic=queue.topic, queue_id=queue.queue_id)
            yield
        return Reply()

    def _clean_topics(self, request: Request[EmptyHeader]) -> Handled:
        return self._broker.long_answers.answer(
            self._remove_topics(), request.channel, is_wanted=True)

    def _remove_topics(self) -> Work:
        """Remove the queues of topics that have no configuration.

        The queues of system topics stay, and so do light queues, which never have a configuration.
        """
        broker = self._broker
        for topic in broker.store.queues.ids_by_topic():
            table = broker.topic_config
            if (table.get(topic) is not None or is_system_topic(topic)
                    or table.is_system_topic(topic) or topic.startswith(LMQ_PREFIX)):
                continue
            count = broker.store.delete_topic(topic)
            broker.stats.forget_topic(topic)
            self.log.info("topic {topic} has no configuration: its {count} queues are removed",
                          topic=topic, count=count)
            yield
        return Reply()

    def _delete_files(self, request: Request[EmptyHeader]) -> Reply:
        """Let the next rounds remove expired files; the answer does not wait for them."""
        self._broker.store.log_retention.remove_expired()
        return Reply()
