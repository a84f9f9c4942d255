"""Names of pop consumption: retry topics, the revive topic and its group, receipts.

A message that a group popped and did not acknowledge is stored again in a topic that belongs to the
group and the topic: %RETRY%GROUP_TOPIC, or %RETRY%GROUP+TOPIC under enableRetryTopicV2. A receipt,
which Apache calls extra info, identifies the check point of a message that is given out. The client
sends the receipt back with its acknowledgement.

Source: KeyBuilder, ExtraInfoUtil, PopAckConstants @5.3.3.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, Self

from twistmq.broker.api import BrokerError, RequestRefused, ResponseCode
from twistmq.broker.api.limits import RECEIPT_LENGTH_MAX
from twistmq.broker.api.topics import RETRY_GROUP_TOPIC_PREFIX, SYSTEM_TOPIC_PREFIX

__all__ = ["ORDER_REVIVE_QUEUE", "REVIVE_GROUP", "Receipt", "is_retry", "normal_topic",
           "pop_retry_topic", "real_topic", "require_broker_name", "retry_mark", "revive_topic"]

#: The group whose consumer offsets record the progress in the revive topic.
REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
#: The number that stands in place of a revive queue in the receipts of ordered groups.
ORDER_REVIVE_QUEUE: Final = 999
_SEPARATOR_V1: Final = "_"
_SEPARATOR_V2: Final = "+"
#: The number of parts of a receipt that an acknowledgement needs.
_PARTS_LEAST: Final = 6
_NUMBER: Final = re.compile(r"-?[0-9]{1,18}")


def revive_topic(cluster: str) -> str:
    """Return the topic for the check points and acknowledgements of a cluster."""
    return f"{SYSTEM_TOPIC_PREFIX}REVIVE_LOG_{cluster}"


def pop_retry_topic(topic: str, group: str, v2: bool) -> str:
    """Return the topic for the messages of a topic that a group did not acknowledge."""
    return f"{RETRY_GROUP_TOPIC_PREFIX}{group}{_SEPARATOR_V2 if v2 else _SEPARATOR_V1}{topic}"


def is_retry(topic: str) -> bool:
    return topic.startswith(RETRY_GROUP_TOPIC_PREFIX)


def normal_topic(topic: str, group: str) -> str:
    """Return the topic whose retries a topic holds; any other topic is returned unchanged."""
    for v2 in (True, False):
        beginning = pop_retry_topic("", group, v2)
        if topic.startswith(beginning):
            return topic[len(beginning):]
    return topic


def retry_mark(topic: str) -> str:
    """Return the mark of a topic in receipts: 0, or 1 and 2 for retry topics."""
    if not is_retry(topic):
        return "0"
    return "2" if _SEPARATOR_V2 in topic else "1"


def real_topic(topic: str, group: str, mark: str) -> str:
    """Return the topic that a receipt refers to.

    :param topic: the topic that was popped.
    :raises BrokerError: for an unknown mark.
    """
    if mark == "0":
        return topic
    if mark not in ("1", "2"):
        raise BrokerError(f"a receipt's topic is 0, 1 or 2, not {mark[:20]!r}")
    return pop_retry_topic(topic, group, mark == "2")


def require_broker_name(name: str) -> str:
    """:returns: the name; :raises RequestRefused: when the name is too long for a receipt."""
    if len(name) > RECEIPT_LENGTH_MAX:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER,
                             f"a broker's name of {len(name)} characters does not fit into a "
                             "receipt")
    return name


class Receipt(NamedTuple):
    """The identity of the check point that an acknowledgement refers to."""

    #: Queue offset at which the check point begins.
    start_offset: int
    #: Unix ms.
    pop_time: int
    #: Time for which the message is hidden, ms.
    invisible_time: int
    #: ORDER_REVIVE_QUEUE if the group keeps order.
    revive_queue: int
    broker_name: str

    @property
    def is_order(self) -> bool:
        return self.revive_queue == ORDER_REVIVE_QUEUE

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text of a client; :raises RequestRefused: when it is not a receipt."""
        parts = text[:RECEIPT_LENGTH_MAX + 1].split(" ")
        if len(text) > RECEIPT_LENGTH_MAX or len(parts) < _PARTS_LEAST or any(
                _NUMBER.fullmatch(part) is None for part in parts[:4]):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR,
                                 f"{text[:80]!r} is not the extra info of a popped message")
        return cls(int(parts[0]), int(parts[1]), int(parts[2]), int(parts[3]), parts[5])

    def text(self, topic: str, queue_id: int, queue_offset: int) -> str:
        """Format the receipt for one message.

        :param topic: the topic from which the message was popped.
        """
        return (f"{self.start_offset} {self.pop_time} {self.invisible_time} {self.revive_queue} "
                f"{retry_mark(topic)} {self.broker_name} {queue_id} {queue_offset}")
