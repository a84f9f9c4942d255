"""Names of topics and groups, tags and keys: which are allowed, and which the system reserves.

Source: TopicValidator, MixAll, FAQUrl @5.3.3.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = [
    "APPLY_TOPIC_SUGGESTION", "BLANKS", "BROADCAST_GROUP_SUFFIX", "DLQ_GROUP_TOPIC_PREFIX",
    "LMQ_PREFIX", "RETRY_GROUP_TOPIC_PREFIX",
    "SAME_GROUP_SUGGESTION", "SEND_FORBIDDEN_TOPICS", "SUBSCRIPTION_GROUP_SUGGESTION",
    "SYSTEM_TOPICS", "TEMPLATE_TOPIC", "allows_light_queues", "can_be_directory", "dlq_topic",
    "group_fault", "group_of_topic", "is_light", "is_system_group", "is_system_topic",
    "key_fault", "retry_topic", "subscription_tags", "tag_fault", "topic_fault",
]

#: The characters that Java's String.trim removes from both ends of a text.
BLANKS: Final = "".join(map(chr, range(33)))

RETRY_GROUP_TOPIC_PREFIX: Final = "%RETRY%"
DLQ_GROUP_TOPIC_PREFIX: Final = "%DLQ%"
#: The prefix of the names of light queues.
LMQ_PREFIX: Final = "%LMQ%"
#: The topic whose settings an automatically created topic copies.
TEMPLATE_TOPIC: Final = "TBW102"
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"

SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"

#: System topics that every broker has; a broker adds further ones (cluster, broker, reply, revive).
SYSTEM_TOPICS: Final = frozenset({
    TEMPLATE_TOPIC, SCHEDULE_TOPIC, BENCHMARK_TOPIC, HALF_TOPIC, TRACE_TOPIC, OP_HALF_TOPIC,
    CHECK_MAX_TIME_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC, "CHECKPOINT_TOPIC",
})
#: Topics to which no client may send, because the broker itself interprets their messages.
SEND_FORBIDDEN_TOPICS: Final = frozenset({
    SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, CHECK_MAX_TIME_TOPIC, SELF_TEST_TOPIC,
    OFFSET_MOVED_TOPIC, TIMER_TOPIC,
})
#: Groups that every broker has (4.12 of the protocol notes).
SYSTEM_GROUPS: Final = frozenset({
    "TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_RMQ_SYS_TRANS",
})
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
#: A group name with this suffix is the name under which the smallest offsets of a broadcast group's
#: clients are kept. No group has such a name. Source: BroadcastOffsetManager.
BROADCAST_GROUP_SUFFIX: Final = "@broadcast"

TOPIC_LENGTH_MAX: Final = 127
#: The maximum length of a file name, bytes.
FILE_NAME_SIZE_MAX: Final = 255
#: The maximum length of a group name. Differs from Apache, which allows 255: the retry topic of
#: such a group has a name that no directory can have.
GROUP_LENGTH_MAX: Final = FILE_NAME_SIZE_MAX - len(RETRY_GROUP_TOPIC_PREFIX)

_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+", re.ASCII)
_SUGGESTION = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."

#: The suffix that Apache adds to these remarks; clients display it.
APPLY_TOPIC_SUGGESTION: Final = _SUGGESTION
SAME_GROUP_SUGGESTION: Final = _SUGGESTION
SUBSCRIPTION_GROUP_SUGGESTION: Final = _SUGGESTION


def topic_fault(topic: str) -> str | None:
    """The fault of a topic name, in the words of Apache; None if the name is valid."""
    if not topic or topic.isspace():
        return "The specified topic is blank."
    if not _LEGAL.fullmatch(topic):
        return ("The specified topic contains illegal characters, "
                "allowing only ^[%|a-zA-Z0-9_-]+$")
    if len(topic) > TOPIC_LENGTH_MAX:
        return "The specified topic is longer than topic max length."
    return None


def can_be_directory(topic: str) -> bool:
    """Whether a topic's name can also be the name of its directory."""
    try:
        size = len(topic.encode("utf-8"))
    except UnicodeEncodeError:
        return False
    return 0 < size <= FILE_NAME_SIZE_MAX and topic not in (".", "..") and not (
        "/" in topic or "\0" in topic)


def is_light(name: str) -> bool:
    """Whether a topic is a light queue, or a group is a group for light queues."""
    return name.startswith(LMQ_PREFIX)


def allows_light_queues(topic: str) -> bool:
    """Whether records of a topic may be in light queues as well.

    Differs from Apache, whose light queues show half messages.
    """
    return topic not in (SCHEDULE_TOPIC, HALF_TOPIC) and not topic.startswith(
        (RETRY_GROUP_TOPIC_PREFIX, SYSTEM_TOPIC_PREFIX))


def group_fault(group: str) -> str | None:
    """The fault of a group name; None if the name is valid."""
    if not group or group.isspace():
        return "the specified group is blank"
    if not _LEGAL.fullmatch(group):
        return ("the specified group contains illegal characters, "
                "allowing only ^[%|a-zA-Z0-9_-]+$")
    if len(group) > GROUP_LENGTH_MAX:
        return f"the specified group is longer than {GROUP_LENGTH_MAX}"
    return None


def tag_fault(tag: str) -> str | None:
    """The reason why no subscription can name a tag; None if one can.

    A subscription joins tags with ``||``. Brokers and clients strip the blanks and the control
    characters around each tag, and some of them every white space.
    """
    if not tag:
        return "it is empty"
    if tag == "*":
        return "a subscription to * means all tags"
    if "||" in tag:
        return "|| separates the tags of a subscription"
    if tag != tag.strip() or tag[:1] <= " " or tag[-1:] <= " ":
        return "subscriptions leave out blanks and control characters around a tag"
    return None


def subscription_tags(expression: str) -> list[str]:
    """Return the tags of an expression ``a || b``.

    As in Apache's clients and brokers, only blanks and control characters around a tag are left
    out: another white space, such as U+3000, is a part of the tag.
    """
    tags = [tag.strip(BLANKS) for tag in expression.split("||")]
    return [tag for tag in tags if tag]


def key_fault(key: str) -> str | None:
    """The reason why a message cannot be found by a key; None if it can."""
    if not key:
        return "it is empty"
    if " " in key:
        return "a blank separates two keys"
    return None


def is_system_topic(topic: str) -> bool:
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_system_group(group: str) -> bool:
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def group_of_topic(topic: str) -> str | None:
    """The group to which a retry or dead letter topic belongs; None for an ordinary topic."""
    for prefix in (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX):
        if topic.startswith(prefix):
            return topic[len(prefix):]
    return None


def retry_topic(group: str) -> str:
    return RETRY_GROUP_TOPIC_PREFIX + group


def dlq_topic(group: str) -> str:
    return DLQ_GROUP_TOPIC_PREFIX + group
