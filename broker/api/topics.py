"""Names of topics and groups: system topics, prefixes, checks.

A patch release keeps these names; a minor release may change them and lists this in CHANGELOG.md.
"""

from __future__ import annotations

from twistmq.protocol.topic_names import (
    BROADCAST_GROUP_SUFFIX,
    CHECK_MAX_TIME_TOPIC,
    DLQ_GROUP_TOPIC_PREFIX,
    HALF_TOPIC,
    LMQ_PREFIX,
    OP_HALF_TOPIC,
    RETRY_GROUP_TOPIC_PREFIX,
    SCHEDULE_TOPIC,
    SEND_FORBIDDEN_TOPICS,
    SUBSCRIPTION_GROUP_SUGGESTION,
    SYSTEM_GROUP_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
    TIMER_TOPIC,
    TRACE_TOPIC,
    can_be_directory,
    dlq_topic,
    group_fault,
    is_light,
    is_system_topic,
    retry_topic,
    topic_fault,
)

__all__ = [
    "BROADCAST_GROUP_SUFFIX",
    "CHECK_MAX_TIME_TOPIC",
    "DLQ_GROUP_TOPIC_PREFIX",
    "HALF_TOPIC",
    "LMQ_PREFIX",
    "OP_HALF_TOPIC",
    "RETRY_GROUP_TOPIC_PREFIX",
    "SCHEDULE_TOPIC",
    "SEND_FORBIDDEN_TOPICS",
    "SUBSCRIPTION_GROUP_SUGGESTION",
    "SYSTEM_GROUP_PREFIX",
    "SYSTEM_TOPICS",
    "SYSTEM_TOPIC_PREFIX",
    "TIMER_TOPIC",
    "TRACE_TOPIC",
    "can_be_directory",
    "dlq_topic",
    "group_fault",
    "is_light",
    "is_system_topic",
    "retry_topic",
    "topic_fault",
]
