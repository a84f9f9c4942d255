"""The hosts that may connect to a port of replication, which asks for no password."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from twistmq.broker.api import Settings

__all__ = ["AllowedHosts"]

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class AllowedHosts:
    """A list of addresses and networks; an empty one allows every host."""

    def __init__(self, networks: Sequence[_Network]) -> None:
        self.networks = networks

    @classmethod
    def read(cls, settings: Settings, name: str) -> AllowedHosts:
        """Read the list in a setting.

        :raises SettingsError: when a text is neither an address nor a network.
        """
        networks: list[_Network] = []
        for text in settings.names(name):
            try:
                networks.append(ipaddress.ip_network(text, strict=False))
            except ValueError:
                raise settings.error(name, f"contains {text!r}, which is neither an IP address nor "
                                           "a network") from None
        return cls(networks)

    def allows_host(self, host: str) -> bool:
        """Return whether a host may connect.

        :param host: its address as text; an IPv4 address may be mapped to IPv6.
        """
        if not self.networks:
            return True
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self.networks)
