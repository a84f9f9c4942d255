"""The sends of a read that an account may certainly send, found in one loop.

Most sends are as the one before: of the same account, to the same topic, by the same group. Such a
send has passed already, and only its signature is left to check. The validator looks at any other
request, and refuses it or lets it pass.
Leaf module of the hot path: typed, so that mypyc compiles it.

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

#: SEND_MESSAGE_V2, and the names of its fields: the group, the topic, the properties, and whether
#: its body is a batch.
_SEND: Final = int(RequestCode.SEND_MESSAGE_V2)
_GROUP: Final = "a"
_TOPIC: Final = "b"
_PROPERTIES: Final = "i"
_BATCH: Final = "m"
#: The property that names light queues, which are topics too.
_LIGHT_QUEUES: Final = names.INNER_MULTI_DISPATCH


def passing_sends(requests: Sequence[Request[Any]], accounts: Mapping[str, Any]) -> int:
    """Count the first requests that are sends and certainly pass.

    :param requests: of one connection.
    :param accounts: ``Account`` by access key.
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
            if account is None or account.white_address.text:
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
