"""Finds the leading sends of a network read that certainly pass, in one loop.

Most sends have the same account, topic and group as a send that was permitted before, so only
their signatures have to be checked. The loop ends at the first send that differs; the validator
examines it and all requests after it. This is a leaf module of the hot path. It is fully typed, so
that mypyc can compile it.

Source: PlainPermissionManager.validate @4.9.4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from twistmq.broker.api import RequestCode
from twistmq.broker.api.wire import ACCESS_KEY, TIMER_DEL_UNIQKEY
from twistmq.broker.api.wire import properties as names

if TYPE_CHECKING:
    from twistmq.broker.api import Request

__all__ = ["passing_sends"]

#: SEND_MESSAGE_V2, and the names of its fields for the group, the topic, the properties, and
#: whether the body is a batch.
_SEND: Final = int(RequestCode.SEND_MESSAGE_V2)
_GROUP: Final = "a"
_TOPIC: Final = "b"
_PROPERTIES: Final = "i"
_BATCH: Final = "m"
#: The property that names light queues, which are topics too.
_LIGHT_QUEUES: Final = names.INNER_MULTI_DISPATCH


def passing_sends(requests: Sequence[Request[Any]], accounts: Mapping[str, Any]) -> int:
    """Count the leading requests that are sends and certainly pass.

    :param requests: requests of one connection.
    :param accounts: access key to ``Account`` or ``Subject``.
    """
    last_key: str | None = None
    last_group: str | None = None
    last_topic: str | None = None
    account: Any = None
    signer: Any = None
    count = 0
    for request in requests:
        texts = request.texts
        if texts is None or request.code != _SEND:
            break
        key = texts.get(ACCESS_KEY)
        if key is None:
            break
        if key != last_key:
            account = accounts.get(key)
            if account is None or not account.passes_runs:
                break
            signer = account.signer
            last_key, last_group, last_topic = key, None, None
        group, topic = texts.get(_GROUP), texts.get(_TOPIC)
        if group != last_group or topic != last_topic:
            if (_SEND, topic, group) not in account.passed:
                break
            last_group, last_topic = group, topic
        properties, batch = texts.get(_PROPERTIES), texts.get(_BATCH)
        if (properties is not None and (
                TIMER_DEL_UNIQKEY in properties or _LIGHT_QUEUES in properties)) or (
                batch is not None and batch != "false"):
            break
        if not texts.are_signed_by(signer, request.body):
            break
        count += 1
    return count
