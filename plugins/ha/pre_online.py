"""Lets a broker of a group with acting masters register once it is connected to the group.

A master sends each broker of its group its address, waits until that broker is connected, and
adopts its larger consumer offsets. A slave asks its master for the address, and waits until it is
connected. Until the broker registers, clients do not use it. A broker without others in its group
registers at once.

Differs from Apache: a master that waits for several brokers of one host counts their connections.

Source: BrokerPreOnlineService @5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from twistmq.broker.api import BrokerError
from twistmq.broker.api.wire import MASTER_ID
from twistmq.plugins.ha.acting_settings import ACTING
from twistmq.plugins.ha.returning_master import take_back
from twistmq.plugins.ha.settings import FAULT_AFTER_MS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twistmq.broker.api import Broker
    from twistmq.plugins.ha.exchange import Exchange
    from twistmq.plugins.ha.follower import Follower
    from twistmq.plugins.ha.members import Members
    from twistmq.plugins.ha.slaves import Slaves

__all__ = ["PreOnline", "has_pre_online"]


def has_pre_online(broker: Broker) -> bool:
    """Whether a broker waits for its group before it registers."""
    settings = broker.settings
    return (settings.flag(ACTING) and settings.int("totalReplicas") > 1
            and not settings.flag("skipPreOnline") and broker.host.has_name_servers)


class PreOnline:
    """Connects one broker to its group."""

    log = Logger()

    def __init__(
        self, broker: Broker, members: Members, exchange: Exchange, slaves: Slaves,
        follower: Follower,
    ) -> None:
        self._broker = broker
        self._members = members
        self._exchange = exchange
        self._slaves, self._follower = slaves, follower
        #: Brokers that were connected and whose offsets were adopted.
        self._done: set[str] = set()
        #: Why the broker is not registered yet, as it was logged.
        self.fault = ""
        #: Since when the broker waits, and whether the fault was logged as a warning.
        self._since_ms = broker.steady.awake_ms()
        self._has_warned = False

    def step(self, _: int = 0) -> Deferred[None] | None:
        """Take the next step; periodic."""
        if self._broker.identity.registers:
            return None
        return Deferred.fromCoroutine(self._step())

    async def _step(self) -> None:
        broker = self._broker
        try:
            members = {number: address for number, address in (await self._members.ask()).items()
                       if address != broker.broker_address}
            fault = await (self._slave_waits(members) if broker.is_slave
                           else self._master_waits(members))
        except BrokerError as error:
            fault = str(error)
        if fault:
            self._say(fault)
            return
        self.fault = ""
        broker.identity.registers = True
        self.log.info("this broker is connected to its group and registers")
        registered = broker.host.register_soon()
        if registered is not None:
            await registered

    def _say(self, fault: str) -> None:
        """Log a fault, as a warning only if it lasts: at first brokers wait for each other."""
        is_overdue = self._broker.steady.awake_ms() - self._since_ms >= FAULT_AFTER_MS
        if fault == self.fault and self._has_warned >= is_overdue:
            return
        self.fault, self._has_warned = fault, is_overdue
        write = self.log.warn if is_overdue else self.log.info
        write("this broker does not register yet: {fault}", fault=fault)

    async def _slave_waits(self, members: Mapping[int, str]) -> str:
        """:returns: why the broker cannot register; an empty text if it can."""
        address = members.get(MASTER_ID)
        if address is None or self._follower.is_connected:
            return ""
        if not await self._exchange.find(address):
            return ""
        return f"it is not connected to its master, {address}"

    async def _master_waits(self, members: Mapping[int, str]) -> str:
        """:returns: why the broker cannot register; an empty text if it can."""
        hosts = [link.peer.rpartition(":")[0] for link in self._slaves.links]
        for _, address in sorted(members.items()):
            if address in self._done:
                continue
            host = address.rpartition(":")[0]
            before = sum(each.rpartition(":")[0] == host for each in self._done)
            if hosts.count(host) <= before:
                await self._exchange.notify_slaves(address)
                return f"the slave at {address} is not connected"
            await take_back(self._broker, address)
            self._done.add(address)
        return ""
