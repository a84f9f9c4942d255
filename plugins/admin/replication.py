"""Requests about replication that a master without slaves can answer: 905, 907, 908.

Replication does not exist yet: a broker whose id is not 0 refuses all three. A master has nothing
to do when it is told which broker of its group has the lowest id (905), or how far a master is
flushed (908):
both are for slaves.

Source: AdminBrokerProcessor.notifyMinBrokerIdChange, getBrokerHaStatus, resetMasterFlushOffset,
DefaultHAService.getRuntimeInfo @5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twistmq.broker.api import (
    CommandHeader,
    EmptyHeader,
    Reply,
    Request,
    RequestCode,
    RequestHandler,
    RequestRefused,
    ResponseCode,
)
from twistmq.broker.api.bodies import HARuntimeInfo
from twistmq.broker.api.headers import (
    NotifyMinBrokerIdChangeRequestHeader,
    ResetMasterFlushOffsetHeader,
)

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["ReplicationRequests"]


class ReplicationRequests:
    """The handlers about masters and slaves."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> list[RequestHandler[Any]]:
        return [
            RequestHandler(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, self._for_slaves,
                           NotifyMinBrokerIdChangeRequestHeader),
            RequestHandler(RequestCode.GET_BROKER_HA_STATUS, self._status, EmptyHeader),
            RequestHandler(RequestCode.RESET_MASTER_FLUSH_OFFSET, self._for_slaves,
                           ResetMasterFlushOffsetHeader),
        ]

    def _require_master(self) -> None:
        """:raises RequestRefused: at a slave: what it should do is not there yet."""
        if self._broker.is_slave:
            raise RequestRefused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                                 "there is no replication here yet")

    def _for_slaves(self, request: Request[CommandHeader]) -> Reply:
        self._require_master()
        return Reply()

    def _status(self, request: Request[EmptyHeader]) -> Reply:
        self._require_master()
        log = self._broker.store.commit_log
        return Reply(body=HARuntimeInfo(
            master=True, master_commit_log_max_offset=log.max_offset).encode())
