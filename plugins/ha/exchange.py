"""EXCHANGE_BROKER_HA_INFO (906): a master and its slaves exchange the master's addresses.

A master that comes online sends its addresses to each broker of its group; a slave that comes
online asks its master for them.

Differs from Apache: a broker without enableSlaveActingMaster, and a master, ignore the addresses of
another master. Apache's brokers follow any broker that sends them.

Source: AdminBrokerProcessor.updateBrokerHaInfo, BrokerOuterAPI.retrieveBrokerHaInfo,
sendBrokerHaInfo @5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twistmq.broker.api import (
    Reply,
    Request,
    RequestCode,
    RequestHandler,
    RequestRefused,
    ResponseCode,
)
from twistmq.broker.api.headers import ExchangeHAInfoRequestHeader, ExchangeHAInfoResponseHeader
from twistmq.plugins.replica.ask import TIMEOUT_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from twistmq.broker.api import Broker

__all__ = ["Exchange"]


class Exchange:
    """The exchange requests of one broker, and its responses.

    :param on_master: called with the master's addresses for requests and for replication.
    """

    def __init__(self, broker: Broker, on_master: Callable[[str, str], None]) -> None:
        self._broker = broker
        self._on_master = on_master
        #: The end of the log when this broker started, in bytes.
        self.first_end = 0

    def handler(self) -> RequestHandler[ExchangeHAInfoRequestHeader]:
        """Return the handler of the request."""
        return RequestHandler(RequestCode.EXCHANGE_BROKER_HA_INFO, self._exchange,
                              ExchangeHAInfoRequestHeader)

    def _own(self) -> ExchangeHAInfoResponseHeader:
        broker = self._broker
        return ExchangeHAInfoResponseHeader(
            master_ha_address=broker.identity.ha_address, master_flush_offset=self.first_end,
            master_address=broker.broker_address)

    def _exchange(self, request: Request[ExchangeHAInfoRequestHeader]) -> Reply:
        header, broker = request.header, self._broker
        if header.master_ha_address is None:
            return Reply(header=None if broker.is_slave else self._own())
        if broker.is_slave and broker.identity.enable_acting_master and header.master_address:
            self._on_master(header.master_address, header.master_ha_address)
        return Reply()

    async def notify_slaves(self, address: str) -> None:
        """Notify a broker of the group that this broker is the master.

        :raises BrokerError: when that broker refuses.
        """
        await self._ask(address, self._own())

    async def find(self, address: str) -> bool:
        """Ask a master for its addresses; :returns: whether it named them.

        :raises BrokerError: when the master does not answer.
        """
        reply = await self._ask(address, ExchangeHAInfoRequestHeader())
        if not reply.master_ha_address:
            return False
        self._on_master(reply.master_address or address, reply.master_ha_address)
        return True

    async def _ask(
        self, address: str, header: ExchangeHAInfoRequestHeader
    ) -> ExchangeHAInfoResponseHeader:
        reply = await self._broker.host.ask_server(
            address, RequestCode.EXCHANGE_BROKER_HA_INFO, header, timeout_ms=TIMEOUT_MS)
        if reply.code != ResponseCode.SUCCESS:
            raise RequestRefused(reply.code, f"{address} answered {reply.code}: "
                                             f"{reply.remark or 'no remark'}")
        return reply.header(ExchangeHAInfoResponseHeader)
