"""Refusals that several handlers give in the same words: those of Apache's broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twistmq.broker.codes import ResponseCode
from twistmq.broker.errors import RequestRefused
from twistmq.broker.topic_names import APPLY_TOPIC_SUGGESTION, SUBSCRIPTION_GROUP_SUGGESTION

if TYPE_CHECKING:
    from twistmq.broker.remoting import Request
    from twistmq.broker.wire.bodies import TopicConfig

__all__ = ["no_group", "no_queue", "no_topic"]


def no_topic(topic: str) -> RequestRefused:
    """There is no such topic to read."""
    return RequestRefused(
        ResponseCode.TOPIC_NOT_EXIST,
        f"topic[{topic}] not exist, apply first please! {APPLY_TOPIC_SUGGESTION}")


def no_group(group: str) -> RequestRefused:
    """There is no such group to read for."""
    return RequestRefused(
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        f"subscription group [{group}] does not exist, {SUBSCRIPTION_GROUP_SUGGESTION}")


def no_queue(request: Request[Any], config: TopicConfig, code: int) -> RequestRefused:
    """The topic does not have the queue that a request would read."""
    header = request.header
    return RequestRefused(
        code, f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
        f"topicConfig.readQueueNums:[{config.read_queue_nums}] "
        f"consumer:[/{request.channel.remote_address}]")
