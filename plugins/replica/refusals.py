"""Makes a slave refuse changes of tables that it copies from its master.

Slaves of 4.9.4 refuse them with the same text. Slaves of 5.3.3 make the change, answer with
success, and undo the change with the next copy.

Source: AdminBrokerProcessor.checkSlave @4.9.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from twistmq.broker.api import (
    AnyHandler,
    Handled,
    Request,
    RequestCode,
    RequestRefused,
    ResponseCode,
)

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["CHANGES", "refusing_rows"]

_REMARK: Final = ("Can't modify topic or subscription group from slave broker, please execute it "
                  "from master broker.")
#: The requests that change a table which slaves copy.
CHANGES: Final = frozenset({
    RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, RequestCode.DELETE_SUBSCRIPTIONGROUP,
    RequestCode.SET_MESSAGE_REQUEST_MODE, RequestCode.CLONE_GROUP_OFFSET,
})


def refusing_rows(broker: Broker, handlers: Mapping[int, AnyHandler]) -> list[AnyHandler]:
    """Return handlers of these requests that refuse them as long as the broker is a slave."""
    return [_refusing(broker, handlers[code]) for code in sorted(CHANGES) if code in handlers]


def _refusing(broker: Broker, row: AnyHandler) -> AnyHandler:
    inner = row.handle

    def handle(request: Request[Any]) -> Handled:
        if broker.is_slave:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, _REMARK)
        return inner(request)

    return replace(row, handle=handle)
