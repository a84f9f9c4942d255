"""Refusals that several handlers share, with the remarks of Apache's broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.errors import RequestRefused
from twistmq.protocol.topic_names import (
    APPLY_TOPIC_SUGGESTION,
    GROUP_LENGTH_MAX,
    SUBSCRIPTION_GROUP_SUGGESTION,
)

if TYPE_CHECKING:
    from twistmq.broker.remoting.messages import Request
    from twistmq.protocol.bodies import TopicConfig

__all__ = ["no_group", "no_queue", "no_topic"]


def _shown(name: str) -> str:
    """Shorten a name for a remark if it is too long to be a valid name."""
    return name if len(name) <= GROUP_LENGTH_MAX else name[:GROUP_LENGTH_MAX] + "..."


def no_topic(topic: str) -> RequestRefused:
    """Refuse a request for a topic that does not exist."""
    return RequestRefused(
        ResponseCode.TOPIC_NOT_EXIST,
        f"topic[{_shown(topic)}] not exist, apply first please! {APPLY_TOPIC_SUGGESTION}")


def no_group(group: str) -> RequestRefused:
    """Refuse a request for a group that does not exist."""
    return RequestRefused(
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        f"subscription group [{_shown(group)}] does not exist, {SUBSCRIPTION_GROUP_SUGGESTION}")


def no_queue(request: Request[Any], config: TopicConfig, code: int) -> RequestRefused:
    """Refuse a request for a queue that the topic does not have."""
    header = request.header
    return RequestRefused(
        code, f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
        f"topicConfig.readQueueNums:[{config.read_queue_nums}] "
        f"consumer:[/{request.channel.remote_address}]")
