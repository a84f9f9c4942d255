"""Checks of ports, of the address that clients receive, and of name servers.

With ``running``, the server is expected to run, so its ports must answer instead of being free.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Iterator
from http.client import HTTPException
from typing import Final
from urllib.request import ProxyHandler, build_opener

from twistmq.broker.client.name_lookup import look_up
from twistmq.broker.config.host_address import resolved
from twistmq.broker.config.settings import Settings
from twistmq.broker.constants import VIP_PORT_DISTANCE
from twistmq.broker.edge.address_server_url import (
    address_server_url,
    asks_address_server,
    looks_names_up,
)
from twistmq.broker.edge.boot import WILDCARDS
from twistmq.broker.errors import SettingsError
from twistmq.client.blocking.connection import Connection
from twistmq.protocol.addresses import (
    ANSWER_SIZE_MAX,
    addresses_of_answer,
    split_address,
)
from twistmq.protocol.bodies import ClusterInfo
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import BrokerError
from twistmq.tools.doctor.findings import Finding, broken, fine, warning
from twistmq.tools.doctor.host_checks import Host
from twistmq.tools.doctor.tls_checks import client_context

__all__ = ["network_findings"]

_TIMEOUT_SECONDS: Final = 3.0
_ADDRESS: Final = "address"
_PORT: Final = "port"
_NAME_SERVER: Final = "name server"


def network_findings(
    kind: str, settings: Settings, host: Host, *, running: bool
) -> Iterator[Finding]:
    """Look at all of it.

    :param kind: "up", "broker" or "namesrv".
    """
    interface = settings.text("bindAddress")
    for port, name in _ports(kind, settings):
        yield _answers(port, name, interface) if running else _is_free(port, name, interface)
    if kind == "namesrv":
        return
    yield _announced_address(kind, settings, host)
    addresses = settings.addresses("namesrvAddr")
    if asks_address_server(settings):
        url = address_server_url(settings)
        try:
            addresses = _ask_address_server(url)
        except (OSError, ValueError, HTTPException) as error:
            yield broken(_NAME_SERVER, f"the address server {url} names no name server: {error}",
                         "check rmqAddressServerDomain and rmqAddressServerSubGroup, and that the "
                         "page is one line of addresses, host:port;host:port")
            return
        yield fine(_NAME_SERVER, f"{url} names {len(addresses)}")
    if kind == "broker" and not addresses:
        yield warning(_NAME_SERVER, "no name server is given: clients cannot find this broker",
                      "give the name servers: -n HOST:PORT;HOST:PORT, or namesrvAddr")
    for address in addresses:
        if looks_names_up(settings):
            yield from _looked_up(address, settings)
        else:
            yield _name_server(address, settings)


def _ask_address_server(url: str) -> list[str]:
    """:raises OSError, HTTPException, ValueError: when there is no answer, or no addresses."""
    opener = build_opener(ProxyHandler({}))
    with opener.open(url, timeout=_TIMEOUT_SECONDS) as answer:
        return addresses_of_answer(answer.read(ANSWER_SIZE_MAX))


def _ports(kind: str, settings: Settings) -> Iterator[tuple[int, str]]:
    """Return the ports of the server with their settings; a port of 0 is any free one."""
    main = settings.int("listenPort")
    if main:
        yield main, "listenPort"
        if kind != "namesrv":
            yield main - VIP_PORT_DISTANCE, "two below listenPort"
    if kind == "up" and settings.int("namesrv.port"):
        yield settings.int("namesrv.port"), "namesrv.port"
    name = "metricsPromExporterPort"
    if settings.has(name) and settings.text("metricsExporterType") == "PROM" and settings.int(name):
        yield settings.int(name), name


def _is_free(port: int, name: str, interface: str) -> Finding:
    """Check whether a server can listen on a port, by listening on it."""
    what = f"{interface or '0.0.0.0'}:{port} ({name})"
    if port <= 0:
        return broken(_PORT, f"{what}: there is no such port", f"choose a listenPort above "
                                                               f"{VIP_PORT_DISTANCE}")
    family = socket.AF_INET6 if ":" in interface else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((interface, port))
            probe.listen(1)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return broken(_PORT, f"{what} is in use",
                          f"stop the program that uses it (ss -ltnp 'sport = :{port}' shows it), "
                          "or choose another port; use --running if it is this server itself")
        if error.errno == errno.EACCES:
            return broken(_PORT, f"{what} may not be used", "choose a port from 1024 on, or give "
                          "the process CAP_NET_BIND_SERVICE")
        if error.errno == errno.EADDRNOTAVAIL:
            return broken(_PORT, f"{what}: this host has no such address",
                          "bindAddress is an address of this host, or 0.0.0.0 for all of them")
        return broken(_PORT, f"{what}: {error.strerror or error}",
                      "see bindAddress and the port's setting")
    return fine(_PORT, f"{what} is free")


def _answers(port: int, name: str, interface: str) -> Finding:
    """Check whether a server listens on a port."""
    host = "127.0.0.1" if interface in WILDCARDS else interface
    try:
        socket.create_connection((host, port), _TIMEOUT_SECONDS).close()
    except OSError as error:
        return broken(_PORT, f"{host}:{port} ({name}) does not answer: {error.strerror or error}",
                      "the log shows why the server does not run")
    return fine(_PORT, f"{host}:{port} ({name}) answers")


# # --- the address that clients receive


def _announced_address(kind: str, settings: Settings, host: Host) -> Finding:
    """Check brokerIP1, the address to which name servers direct clients."""
    announced_host, listens = settings.text("brokerIP1").strip(), settings.text("bindAddress")
    if announced_host in WILDCARDS:
        return broken(_ADDRESS,
                      f"clients get brokerIP1={announced_host}, to which no client can connect",
                      "set brokerIP1 to the address at which clients reach this host")
    try:
        address = ipaddress.ip_address(resolved(settings, "brokerIP1"))
    except SettingsError as error:
        return broken(_ADDRESS, str(error), "set brokerIP1 to an address, or correct the name")
    what = f"clients get the address {announced_host}" + (
        f", which is {address}" if str(address) != announced_host else "")
    mend = "set brokerIP1 to the address at which clients reach this host"
    hears_others = not _is_loopback(listens)
    if address.is_loopback and hears_others:
        return broken(_ADDRESS, f"{what}, which leads each client to its own host, but the broker "
                                f"listens on bindAddress={listens}", mend)
    if address.is_loopback and kind == "broker" and settings.addresses("namesrvAddr") and not all(
            _is_loopback(each.rpartition(":")[0]) for each in settings.addresses("namesrvAddr")):
        return broken(_ADDRESS, f"{what} from name servers on other hosts", mend)
    if not address.is_loopback and not hears_others:
        return broken(_ADDRESS, f"{what}, but the broker listens on bindAddress={listens} only",
                      "set bindAddress=0.0.0.0, or brokerIP1 to an address it listens on")
    if address.is_link_local:
        return broken(_ADDRESS, f"{what}, an address without a network", mend)
    if not _is_of_this_host(address):
        return warning(_ADDRESS, f"{what}, which is not an address of this host",
                       "right for NAT or a published port that leads here; otherwise set brokerIP1")
    if host.is_container and not settings.is_given("brokerIP1"):
        return warning(_ADDRESS, f"{what}, the container's own address: it cannot be reached from "
                                 "outside its network",
                       "set brokerIP1 to the host's address or name, and publish the same port "
                       "numbers")
    return fine(_ADDRESS, what)


def _is_loopback(text: str) -> bool:
    try:
        return ipaddress.ip_address(text.strip("[]")).is_loopback
    except ValueError:
        return text == "localhost"


def _is_of_this_host(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Return whether a socket can be bound to the address."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True


# --- name servers


def _looked_up(name: str, settings: Settings) -> Iterator[Finding]:
    """Look up a name in DNS, and ask each name server at its addresses."""
    try:
        addresses = look_up(name)
    except BrokerError as error:
        yield broken(_NAME_SERVER, str(error), "namesrvAddr is HOST:PORT, and "
                     "fetchNameSrvAddrByDnsLookup looks up all addresses of HOST in DNS")
        return
    yield fine(_NAME_SERVER, f"{name} stands for {', '.join(addresses)}")
    for address in addresses:
        yield _name_server(address, settings)


def _name_server(address: str, settings: Settings) -> Finding:
    """Ask a name server for its brokers."""
    try:
        split_address(address)
        with Connection(address, _TIMEOUT_SECONDS,
                                tls=client_context(settings)) as connection:
            reply = connection.request(RequestCode.GET_BROKER_CLUSTER_INFO)
            if reply.code != ResponseCode.SUCCESS:
                return broken(_NAME_SERVER, f"{address} answers, but is not a name server: "
                                            f"{(reply.remark or str(reply.code)).strip()}",
                              "the name server's port is 9876 by default; 10911 is a broker's")
            cluster_info = ClusterInfo.decode(reply.body)
    except (BrokerError, SettingsError, ValueError, OSError) as error:
        return broken(_NAME_SERVER, f"{address}: {error}",
                      "start it, or correct the address; a firewall may block the connection")
    name, announced_host = settings.text("brokerName"), settings.text("brokerIP1").strip()
    own = f"{announced_host}:{settings.int('listenPort')}"
    data = cluster_info.broker_addr_table.get(name)
    other = data.broker_addrs.get(settings.int("brokerId")) if data else None
    if other is not None and settings.int("listenPort") and other != own:
        return broken(_NAME_SERVER, f"{address} already knows a broker {name}, at {other}: of two "
                                    "brokers with one name, clients find the one that registered "
                                    f"last, {own}",
                      "choose another brokerName; an old master becomes the slave of the new one "
                      "with brokerRole=SLAVE and a brokerId above 0")
    return fine(_NAME_SERVER, f"{address} answers, {len(cluster_info.broker_addr_table)} brokers")
