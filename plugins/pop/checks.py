"""Checks that several pop requests have in common: whether a group may pop a queue.

Source: PopMessageProcessor.processRequest, NotificationProcessor.processRequest @5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from twistmq.broker.api import Request, RequestRefused, ResponseCode
from twistmq.broker.api.limits import ATTEMPT_ID_LENGTH_MAX
from twistmq.broker.api.requests import no_group, no_queue, no_topic
from twistmq.broker.api.wire import PERM_READ

if TYPE_CHECKING:
    from twistmq.broker.api import Broker
    from twistmq.broker.api.bodies import TopicConfig

__all__ = ["invisible_max_ms", "require_attempt_id", "require_group", "require_invisible_time",
           "require_readable", "require_topic"]

#: The default of timerMaxDelaySec, converted to ms.
_INVISIBLE_MAX_MS: Final = 3 * 86_400_000


def require_topic(broker: Broker, topic: str) -> TopicConfig:
    """:raises RequestRefused: when the topic does not exist."""
    config = broker.topic_config.get(topic)
    if config is None:
        raise no_topic(topic)
    return config


def require_group(broker: Broker, group: str) -> None:
    """Require that a group exists; only a pop creates a missing group, later requests do not.

    :raises RequestRefused: when the group does not exist.
    """
    if not broker.subscription_group.has(group):
        raise no_group(group)


def require_attempt_id(attempt_id: str | None) -> None:
    """:raises RequestRefused: when the attempt id of an ordered pop is longer than any client's."""
    if attempt_id is not None and len(attempt_id) > ATTEMPT_ID_LENGTH_MAX:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER,
                             f"the attemptId is longer than {ATTEMPT_ID_LENGTH_MAX} characters")


def invisible_max_ms(broker: Broker) -> int:
    """Return the longest time for which a message can be hidden or delayed, ms."""
    if not broker.settings.has("timerMaxDelaySec"):
        # Without the timer nothing can be popped, but a saved order may exist.
        return _INVISIBLE_MAX_MS
    return broker.settings.int("timerMaxDelaySec") * 1000


def require_invisible_time(broker: Broker, invisible_ms: int, code: ResponseCode) -> None:
    """Refuse an invisible time that is longer than any message can be hidden.

    Differs from Apache, where a single ordered pop can hide its queue from the group forever.

    :param invisible_ms: the time that the client requests.
    :param code: the response code of the refusal.
    :raises RequestRefused: when the time is negative or longer than a message can be delayed.
    """
    max_ms = invisible_max_ms(broker)
    if not 0 <= invisible_ms <= max_ms:
        raise RequestRefused(
            code, f"a message cannot be invisible for {invisible_ms} ms, only for 0 to {max_ms} ms "
            "(timerMaxDelaySec)")


def require_readable(broker: Broker, request: Request[Any], what: str) -> TopicConfig:
    """:raises RequestRefused: when the group may not pop the topic, or the queue does not exist.

    :param what: the operation named in the remark, popping or peeking.
    """
    header = request.header
    if not broker.settings.int("brokerPermission") & PERM_READ:
        raise RequestRefused(
            ResponseCode.NO_PERMISSION,
            f"the broker[{broker.settings.text('brokerIP1')}] {what} message is forbidden")
    config = require_topic(broker, header.topic)
    if not config.perm & PERM_READ:
        raise RequestRefused(ResponseCode.NO_PERMISSION,
                             f"the topic[{header.topic}] peeking message is forbidden")
    if header.queue_id >= config.read_queue_nums:
        raise no_queue(request, config, ResponseCode.INVALID_PARAMETER)
    group = broker.subscription_group.find(header.consumer_group)
    if group is None:
        raise no_group(header.consumer_group)
    if not group.consume_enable:
        raise RequestRefused(ResponseCode.NO_PERMISSION,
                             f"subscription group no permission, {header.consumer_group}")
    return config
