"""Priority messages: the queue of a message is its priority, and a pop empties the highest first.

A message asks for a priority by the property ``_SYS_MSG_PRIORITY_``, a number from 0. It goes to
the queue with this number, or to the last queue. Consumers that pop from a topic of the type
``PRIORITY`` take from its queues in order, so a message of a higher priority overtakes the
waiting messages of lower ones. The attribute ``priority.factor`` of a group is the percentage of
its pops that do so; the other pops begin with any queue, so that low priorities are not starved.

The priority of a half message, a delayed message, or a message with a sharding key is dropped,
because these choose their queue differently.

Source: SendMessageProcessor, TopicMessageType.parseFromMessageProperty,
SubscriptionGroupConfig.getPriorityFactor @5.5.0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from twistmq.protocol import properties as names

__all__ = ["MESSAGE_TYPE", "PRIORITY_FACTOR", "PRIORITY_TYPE", "is_priority_topic",
           "priority_factor", "priority_queue"]

#: The attribute of a topic with its type, and the type of topics with priorities.
MESSAGE_TYPE: Final = "message.type"
PRIORITY_TYPE: Final = "PRIORITY"
#: The attribute of a group.
PRIORITY_FACTOR: Final = "priority.factor"
_FACTOR_MAX: Final = 100
_NUMBER: Final = re.compile(r"\+?[0-9]{1,10}", re.ASCII)
_INT_MAX: Final = 2**31 - 1
_OTHER_TYPES: Final = (names.DELAY, names.TIMER_DELIVER_MS, names.TIMER_DELAY_SEC,
                       names.TIMER_DELAY_MS, names.SHARDING_KEY)


def priority_queue(fields: dict[str, str], write_queue_nums: int) -> int | None:
    """Return the queue of a message with a priority.

    :param fields: the message's properties; a priority that does not apply is removed.
    :returns: None if the message keeps its queue.
    """
    text = fields[names.PRIORITY]
    priority = int(text) if _NUMBER.fullmatch(text) else _INT_MAX + 1
    if priority > _INT_MAX:
        # It is not a priority, and stays an ordinary property, as in Apache's broker.
        return None
    if fields.get(names.TRAN_MSG, "").lower() == "true" or not fields.keys().isdisjoint(
            _OTHER_TYPES):
        del fields[names.PRIORITY]
        return None
    return max(min(priority, write_queue_nums - 1), 0)


def is_priority_topic(attributes: Mapping[str, str]) -> bool:
    """Whether the queues of a topic with these attributes are priorities."""
    return attributes.get(MESSAGE_TYPE) == PRIORITY_TYPE


def priority_factor(attributes: Mapping[str, str]) -> int:
    """Return the percentage of a group's pops that begin with the highest priority."""
    text = attributes.get(PRIORITY_FACTOR, "")
    return int(text) if _NUMBER.fullmatch(text) else _FACTOR_MAX
