"""The settings of the port by which the members of a group reach each other."""

from __future__ import annotations

import ipaddress
from typing import Final

from twistmq.broker.api import Setting, Settings
from twistmq.broker.api.wire import split_address
from twistmq.plugins.dledger.peer_group import PeerGroup
from twistmq.plugins.replica.allowed_hosts import AllowedHosts

__all__ = ["BIND", "PEERS", "PEER_SETTINGS", "TLS", "allowed_hosts"]

BIND: Final = "dledger.bind"
PEERS: Final = "dledger.peers"
TLS: Final = "dledger.tls"
_WITH: Final = "enableDLegerCommitLog=true"

PEER_SETTINGS: Final = (
    Setting(BIND, "text", "",
            "The address that the port for members is bound to.", default_text="bindAddress",
            at_start=True, only_with=_WITH),
    Setting(PEERS, "names", (),
            "Addresses and networks of members, such as 10.0.0.0/8, separated by commas: other "
            "hosts cannot connect to the port for members, which asks for no password. If "
            "dLegerPeers contains addresses only, no other host is allowed by default; if it "
            "contains names of hosts, any host is.",
            default_text="the addresses in dLegerPeers", at_start=True, only_with=_WITH),
    Setting(TLS, "flag", False,
            "Whether the connections between members are encrypted, by tls.server.* and "
            "tls.client.*. All members need the same value. Apache's members do not support this.",
            at_start=True, only_with=_WITH),
)


def allowed_hosts(settings: Settings, group: PeerGroup) -> AllowedHosts:
    """Return the hosts that may connect to the port for members.

    :raises SettingsError: when ``dledger.peers`` contains neither an address nor a network.
    """
    hosts = AllowedHosts.read(settings, PEERS)
    if hosts.networks:
        return hosts
    try:
        return AllowedHosts([ipaddress.ip_network(split_address(address)[0])
                             for address in group.addresses.values()])
    except ValueError:
        # The name of a host may stand for other addresses tomorrow.
        return hosts
