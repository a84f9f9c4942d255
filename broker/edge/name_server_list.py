"""The name servers of a broker: given in the settings, or found by an address server or DNS.

Differs from Apache: an address server is also asked at the start, and not only ten seconds later,
so that clients find the broker as soon as it answers. Its answer is used only if it consists
entirely of addresses. Each of several names is looked up in DNS; if DNS does not know a name, its
previous addresses stay in use.

Source: BrokerController.initializeBrokerScheduledTasks, updateNamesrvAddr,
BrokerOuterAPI.fetchNameServerAddr, updateNameServerAddressListByDnsLookup, BrokerStartup @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from twistmq.broker.client.name_lookup import NameLookup
from twistmq.broker.config.settings import Settings
from twistmq.broker.edge.address_server_url import (
    ADDRESS_NAMES,
    LOOKUP_PERIOD,
    PERIOD,
    address_server_url,
    asks_address_server,
    looks_names_up,
)
from twistmq.broker.scheduling.periodic import PeriodicTask
from twistmq.broker.scheduling.soon import Soon
from twistmq.protocol.errors import RemotingError

if TYPE_CHECKING:
    from twistmq.broker.client.address_server import AddressServer

__all__ = ["NameServerList"]

#: The time of the second DNS look-up, ms; later ones follow each LOOKUP_PERIOD.
_SECOND_LOOKUP_MS: Final = 10_000


class NameServerList:
    """The addresses of the name servers of one broker.

    :param changed: called when the addresses have changed or may have changed.
    """

    log = Logger()

    def __init__(self, reactor: Any, settings: Settings, changed: Callable[[], object]) -> None:
        self._reactor = reactor
        self._settings = settings
        self._changed = changed
        #: The address of the name server in this process, and its synonyms.
        self._own: tuple[str, ...] = ()
        self._fetched: list[str] = []
        #: The last DNS answer for each name.
        self._looked_up: dict[str, list[str]] = {}
        self._server: AddressServer | None = None
        self._lookup = NameLookup(reactor)
        self._fetching = Soon(self._fetch, "the look-up of the name servers' addresses")
        #: The reason why the last answer is not used; empty: it is used.
        self.fault = ""
        settings.on_change.append(self._settings_changed)

    @property
    def addresses(self) -> list[str]:
        """The addresses, each as "host:port"."""
        named = self._fetched if self._asks else self._settings.addresses("namesrvAddr")
        return [*self._own[:1], *(address for address in named if address not in self._own)]

    @property
    def _asks(self) -> bool:
        return asks_address_server(self._settings) or looks_names_up(self._settings)

    def keep(self, address: str, *other_names: str) -> None:
        """Always use one name server regardless of the settings: the one in this process.

        :param other_names: addresses in the settings that stand for the same server.
        """
        self._own = (address, *other_names)
        self._changed()

    def tasks(self) -> list[PeriodicTask]:
        """Return the periodic tasks."""
        def period_ms() -> int:
            return self._settings.int(PERIOD)

        def lookup_period_ms() -> int:
            return self._settings.int(LOOKUP_PERIOD)

        return [
            PeriodicTask("request the addresses of name servers", period_ms(), period_ms,
                         lambda _: self.fetch() if asks_address_server(self._settings) else None),
            PeriodicTask("look up the names of name servers", _SECOND_LOOKUP_MS, lookup_period_ms,
                         lambda _: self.fetch() if looks_names_up(self._settings) else None),
        ]

    def fetch(self, *, again: bool = False) -> Deferred[None] | None:
        """Ask the address server or DNS, if the settings enable that; failures are logged.

        :param again: whether to discard the answer of a request that is already in progress.
        """
        if not self._asks:
            self.fault = ""
            return None
        return self._fetching.ask(again=again)

    def stop(self) -> None:
        """Stop asking."""
        if self._server is not None:
            self._server.stop()
        self._lookup.stop()

    async def _fetch(self) -> None:
        if not self._asks:
            # The settings may have changed since the request, and may no longer name a server.
            self.fault = ""
            return
        addresses, fault = await (self._look_up() if looks_names_up(self._settings)
                                  else self._ask_server())
        if fault and fault != self.fault:
            self.log.warn("cannot look up the name servers' addresses, the old ones stay in use: "
                          "{fault}", fault=fault)
        # DNS may return the same addresses in a different order each time.
        is_changed = set(addresses) != set(self._fetched) and bool(addresses or not fault)
        if is_changed or (self.fault and not fault):
            self.log.info("the name servers are now {addresses}, before {old}",
                          addresses=addresses, old=self._fetched)
        self.fault = fault
        if is_changed:
            self._fetched = addresses
            self._changed()

    async def _ask_server(self) -> tuple[list[str], str]:
        """Ask the address server; return the addresses, and the reason if the list is empty."""
        if self._server is None:
            from twistmq.broker.client.address_server import AddressServer  # it takes megabytes

            self._server = AddressServer(self._reactor)
        url = address_server_url(self._settings)
        try:
            return await self._server.fetch(url), ""
        except RemotingError as error:
            return [], f"the address server {url} gives none: {error}"

    async def _look_up(self) -> tuple[list[str], str]:
        """Ask DNS; return the addresses, with the old ones of unknown names, and the reason."""
        names = [name for name in self._settings.addresses("namesrvAddr") if name not in self._own]
        faults = []
        for name in names:
            try:
                self._looked_up[name] = await self._lookup.fetch(name)
            except RemotingError as error:
                faults.append(f"DNS: {error}")
        self._looked_up = {name: self._looked_up[name] for name in names
                           if name in self._looked_up}
        addresses = [address for each in self._looked_up.values() for address in each]
        return list(dict.fromkeys(addresses)), "; ".join(faults)

    def _settings_changed(self, changes: Mapping[str, object]) -> None:
        if not ADDRESS_NAMES.isdisjoint(changes):
            self._changed()
            # The names may have changed since the request.
            self.fetch(again=True)
