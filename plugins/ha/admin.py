"""Requests about replication: 907, 908.

Request 908 reports how far a master is flushed. A slave stores this offset and shows it; a master
ignores the request.

Source: AdminBrokerProcessor.getBrokerHaStatus, resetMasterFlushOffset,
DefaultHAService.getRuntimeInfo @5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twistmq.broker.api import EmptyHeader, Reply, Request, RequestCode, RequestHandler
from twistmq.broker.api.bodies import (
    HAClientRuntimeInfo,
    HAConnectionRuntimeInfo,
    HARuntimeInfo,
)
from twistmq.broker.api.headers import ResetMasterFlushOffsetHeader

if TYPE_CHECKING:
    from twistmq.broker.api import Broker
    from twistmq.plugins.ha.follower import Follower
    from twistmq.plugins.ha.links import SlaveLink
    from twistmq.plugins.ha.slaves import Slaves

__all__ = ["ReplicationRequests"]


class ReplicationRequests:
    """The handlers of requests about masters and slaves."""

    def __init__(self, broker: Broker, slaves: Slaves, follower: Follower) -> None:
        self._broker = broker
        self._slaves = slaves
        self._follower = follower
        #: The offset up to which the master was flushed when it started, as reported to this slave.
        self._master_flushed = 0

    def handlers(self) -> list[RequestHandler[Any]]:
        return [
            RequestHandler(RequestCode.GET_BROKER_HA_STATUS, self._status, EmptyHeader),
            RequestHandler(RequestCode.RESET_MASTER_FLUSH_OFFSET, self._reset,
                           ResetMasterFlushOffsetHeader),
        ]

    def _reset(self, request: Request[ResetMasterFlushOffsetHeader]) -> Reply:
        """RESET_MASTER_FLUSH_OFFSET (908)."""
        offset = request.header.master_flush_offset
        if self._broker.is_slave and offset is not None:
            self._master_flushed = offset
        return Reply()

    def _status(self, request: Request[EmptyHeader]) -> Reply:
        """GET_BROKER_HA_STATUS (907)."""
        end = self._broker.store.commit_log.max_offset
        if self._broker.is_slave:
            return Reply(body=HARuntimeInfo(ha_client_runtime_info=self._of_slave(end)).encode())
        links = [self._of_link(link) for link in self._slaves.links]
        return Reply(body=HARuntimeInfo(
            master=True, master_commit_log_max_offset=end, ha_connection_info=links,
            in_sync_slave_nums=sum(link.in_sync for link in links)).encode())

    def _of_link(self, link: SlaveLink) -> HAConnectionRuntimeInfo:
        """Describe one slave of this master."""
        sender = link.sender
        behind = sender.behind_bytes()
        return HAConnectionRuntimeInfo(
            addr=link.peer, slave_ack_offset=sender.acked, diff=behind,
            in_sync=behind < self._broker.settings.int("haMaxGapNotInSync"),
            transferred_byte_in_second=sender.rate.in_second(self._broker.steady.awake_ms()),
            transfer_from_where=sender.sent_from)

    def _of_slave(self, end: int) -> HAClientRuntimeInfo:
        """Describe this slave itself."""
        follower = self._follower
        return HAClientRuntimeInfo(
            activated=follower.is_connected, last_read_timestamp=follower.last_read_ms,
            last_write_timestamp=follower.last_written_ms,
            master_addr=follower.address or None, master_flush_offset=self._master_flushed,
            max_offset=end, transferred_byte_in_second=follower.received_in_second())
