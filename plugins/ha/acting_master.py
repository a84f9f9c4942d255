"""The slave with the lowest id stands in for its master while the master is gone.

Name servers know which brokers are alive. They are asked every second, and they also send a
notification (905) when the lowest id of a group has changed. Clients see the broker with the lowest
id as the master, without the permission to write.

Source: BrokerController.syncBrokerMemberGroup, updateMinBroker, onMinBrokerChange,
AdminBrokerProcessor.notifyMinBrokerIdChange @5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from twistmq.broker.api import BrokerError, Reply, Request, RequestCode, RequestHandler
from twistmq.broker.api.headers import NotifyMinBrokerIdChangeRequestHeader
from twistmq.broker.api.observe import Outage
from twistmq.broker.api.wire import MASTER_ID
from twistmq.plugins.ha.acting_settings import ACTING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from twistmq.broker.api import Broker
    from twistmq.plugins.ha.exchange import Exchange
    from twistmq.plugins.ha.master import MasterAddress
    from twistmq.plugins.ha.members import Members

__all__ = ["ActingMaster"]


class ActingMaster:
    """Knows whether one broker stands in for its master.

    :param exchange: asks a master for its addresses.
    :param on_master: called with the addresses of a master for requests and for replication.
    """

    log = Logger()

    def __init__(
        self, broker: Broker, members: Members, master: MasterAddress, exchange: Exchange,
        on_master: Callable[[str, str], None],
    ) -> None:
        self._broker = broker
        self._members = members
        self._master = master
        self._exchange = exchange
        self._on_master = on_master
        self.is_on = broker.settings.flag(ACTING)
        #: The number of brokers of the group that name servers know, including this one.
        self.alive = broker.settings.int("totalReplicas")
        #: The addresses of these brokers by id; empty before they are known.
        self.members: Mapping[int, str] = {}
        #: The lowest id of the group and its address; None before they are known.
        self.lowest: tuple[int, str] | None = None
        self._outage = Outage()

    def role_changed(self) -> None:
        """Forget the lowest id, so that it is determined again."""
        self.lowest = None

    # --- members of the group

    def handler(self) -> RequestHandler[NotifyMinBrokerIdChangeRequestHeader]:
        """Return the handler of NOTIFY_MIN_BROKER_ID_CHANGE (905)."""
        return RequestHandler(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, self._notified,
                              NotifyMinBrokerIdChangeRequestHeader)

    def _notified(self, request: Request[NotifyMinBrokerIdChangeRequestHeader]) -> Reply:
        header = request.header
        if header.min_broker_id is not None:
            self._note_lowest(header.min_broker_id, header.min_broker_addr or "",
                              header.offline_broker_addr or "", header.ha_broker_addr or "")
        return Reply()

    def sync(self, _: int = 0) -> Deferred[None]:
        """Ask which brokers are in the group; periodic."""
        return Deferred.fromCoroutine(self._sync())

    async def _sync(self) -> None:
        try:
            members = await self._members.ask()
        except BrokerError as error:
            if self._outage.begins():
                self.log.warn("name servers do not report the brokers of the group: {error}",
                              error=str(error))
            return
        self._outage.ends()
        if not members:
            return
        self.members = members
        self.alive = len(members) + (self._broker.broker_id not in members)
        lowest = min(members)
        before = self.lowest
        gone_address = before[1] if before is not None and before[0] < lowest else ""
        self._note_lowest(lowest, members[lowest], gone_address)

    def _note_lowest(
        self, lowest: int, address: str, gone_address: str, ha_address: str = ""
    ) -> None:
        """Note the lowest id of the group; a broker that is not yet online does not stand in.

        :param gone_address: the address of the broker that left, if one did.
        :param ha_address: the replication port of the broker that came, if it is known.
        """
        broker = self._broker
        if not self.is_on or not broker.is_slave or not broker.identity.registers or (
                self.lowest is not None and self.lowest[0] == lowest):
            return
        self.log.info("the lowest broker id of {name} is now {lowest}, at {address}",
                      name=broker.broker_name, lowest=lowest, address=address)
        self.lowest = lowest, address
        self._act(lowest == broker.broker_id)
        if gone_address:
            self._master.forget(gone_address)
        if lowest == MASTER_ID and address:
            if ha_address:
                self._on_master(address, ha_address)
            else:
                Deferred.fromCoroutine(self._find(address))

    def _act(self, is_acting: bool) -> None:
        identity = self._broker.identity
        if identity.is_acting != is_acting:
            identity.is_acting = is_acting
            self.log.info("this slave stands in for its master" if is_acting else
                          "this slave no longer stands in for its master")

    async def _find(self, address: str) -> None:
        """Ask a returning master for its replication port."""
        try:
            await self._exchange.find(address)
        except BrokerError as error:
            self.log.warn("the master at {address} does not report its address for replication: "
                          "{error}", address=address, error=str(error))
