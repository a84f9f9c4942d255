"""Checks whether a message may be sent to a topic, and finds its queues; for sends and replies.

Source: AbstractSendMessageProcessor.msgCheck @5.3.3.
"""

from __future__ import annotations

from collections.abc import Collection

from twistmq.broker.config.settings import Settings
from twistmq.broker.request.send_context import SendRequest
from twistmq.broker.request.subscription_group import SubscriptionGroupTable
from twistmq.broker.request.topic_config import TopicConfigTable
from twistmq.protocol.bodies import TopicConfig
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.errors import RequestRefused
from twistmq.protocol.flags import PERM_READ_WRITE, PERM_WRITE, UNIT, UNIT_SUB
from twistmq.protocol.headers.send import SendMessageRequestHeader
from twistmq.protocol.topic_names import (
    APPLY_TOPIC_SUGGESTION,
    RETRY_GROUP_TOPIC_PREFIX,
    SUBSCRIPTION_GROUP_SUGGESTION,
    topic_fault,
)

__all__ = ["SendTopics", "queue_refusal"]


class SendTopics:
    """The topics to which messages are sent."""

    def __init__(
        self, settings: Settings, topic_config: TopicConfigTable,
        subscription_group: SubscriptionGroupTable, forbidden_topics: Collection[str]
    ) -> None:
        self._settings = settings
        self._topic_config = topic_config
        self._subscription_group = subscription_group
        self._forbidden_topics = forbidden_topics
        self._broker_ip = settings.text("brokerIP1")
        #: Whether topics were created since this was set to False; the caller informs the kernel.
        self.made = False

    def _broker_writable(self) -> bool:
        return bool(self._settings.int("brokerPermission") & PERM_WRITE)

    def find(self, request: SendRequest) -> TopicConfig:
        """Check the topic's name and permissions; create it where that is allowed.

        :raises RequestRefused: when nothing may be sent to the topic.
        """
        header: SendMessageRequestHeader = request.header
        topic = header.topic
        table = self._topic_config
        if not self._broker_writable() and table.is_order_topic(topic):
            raise RequestRefused(ResponseCode.NO_PERMISSION,
                                 f"the broker[{self._broker_ip}] sending message is forbidden")
        fault = topic_fault(topic)
        if fault is not None:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, fault)
        if topic in self._forbidden_topics:
            raise RequestRefused(ResponseCode.NO_PERMISSION,
                                 f"Sending message to topic[{topic}] is forbidden.")
        config = table.get(topic)
        if config is not None:
            return config
        is_retry = topic.startswith(RETRY_GROUP_TOPIC_PREFIX)
        group = topic.removeprefix(RETRY_GROUP_TOPIC_PREFIX)
        if is_retry and self._subscription_group.find(group) is None:
            # Differs from Apache, which creates a topic for a group that does not exist.
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {group} {SUBSCRIPTION_GROUP_SUGGESTION}")
        unit_flag = 0 if not header.unit_mode else UNIT_SUB if is_retry else UNIT
        config = table.create_in_send(
            topic, header.default_topic, request.channel.remote_address,
            header.default_topic_queue_nums, unit_flag)
        if config is None and is_retry:
            config = table.create_in_send_back(topic, 1, PERM_READ_WRITE, unit_flag)
        if config is None:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{topic}] not exist, apply first please!{APPLY_TOPIC_SUGGESTION}")
        self.made = True
        return config


def queue_refusal(request: SendRequest, config: TopicConfig) -> RequestRefused:
    """Make the refusal of a queue id that the topic does not have."""
    return RequestRefused(
        ResponseCode.INVALID_PARAMETER,
        f"request queueId[{request.header.queue_id}] is illegal, {config} "
        f"Producer: {request.channel.remote_address}")
