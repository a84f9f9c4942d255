"""Finds the name servers: by an argument, the environment, an address server or DNS.

Source: DefaultTopAddressing, MixAll.getWSAddr, HttpTinyClient @5.3.3.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Sequence
from typing import Final

from twistmq.client.base.errors import OptionError
from twistmq.protocol.addresses import (
    ANSWER_SIZE_MAX,
    addresses_of_answer,
    split_address,
    split_addresses,
)

__all__ = ["NAMESRV_ADDR", "fetch_name_servers", "local_ip", "name_servers_of"]

#: The environment variable with the name servers. Source: MixAll.NAMESRV_ADDR_ENV.
NAMESRV_ADDR: Final = "NAMESRV_ADDR"

#: The time-out for an address server, in seconds.
_TIMEOUT_S: Final = 3.0


def fetch_name_servers(url: str) -> list[str]:
    """Ask an address server or DNS for the addresses of name servers.

    :param url: "http://...", "https://..." or "dns://host:port".
    :returns: at least one address, as "address:port".
    :raises OSError: when there is no answer.
    :raises ValueError: when the answer is not a list of addresses.
    """
    if url.startswith("dns://"):
        return _look_up(url.removeprefix("dns://"))
    # The import takes 40 ms, and few programs need it.
    import urllib.error
    import urllib.request

    request = urllib.request.Request(url, headers={"User-Agent": "twistmq"})
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            data: bytes = answer.read(ANSWER_SIZE_MAX + 1)
    except urllib.error.HTTPError as error:
        # The error holds a connection too.
        error.close()
        raise
    if len(data) > ANSWER_SIZE_MAX:
        raise ValueError(f"the answer has more than {ANSWER_SIZE_MAX} bytes")
    return addresses_of_answer(data)


def _look_up(name: str) -> list[str]:
    host, port = split_address(name)
    addresses: dict[str, None] = {}
    for family, _, _, _, socket_address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        if family == socket.AF_INET6:
            addresses[f"[{socket_address[0]}]:{port}"] = None
        elif family == socket.AF_INET:
            addresses[f"{socket_address[0]}:{port}"] = None
    return list(addresses)


def name_servers_of(where: str | Sequence[str] | None) -> tuple[list[str], str]:
    """Read the argument that names the name servers of a client.

    :param where: "host:port;host:port", a list of "host:port", "http://..." for an address server,
        "dns://host:port" for all addresses of a host name, or None for the environment variable
        NAMESRV_ADDR.
    :returns: the addresses, and the URL to ask for them, or "".
    :raises OptionError: when the argument does not name a server.
    """
    if where is None:
        where = os.environ.get(NAMESRV_ADDR, "")
        if not where:
            raise OptionError(f"no name server: give one, or set {NAMESRV_ADDR}=host:port")
    if not isinstance(where, str) and not (
            isinstance(where, Iterable) and all(isinstance(each, str) for each in where)):
        raise OptionError(f"name servers are {where!r}: give 'host:port;host:port', a list of such "
                          "texts, or client=... for a Client to share")
    text = where if isinstance(where, str) else ";".join(where)
    if text.startswith(("http://", "https://", "dns://")):
        return [], text
    try:
        return split_addresses(text), ""
    except ValueError as error:
        raise OptionError(f"name servers: {error}") from None


def local_ip(name_servers: Sequence[str]) -> str:
    """Return the address of this host as a name server sees it; nothing is sent."""
    for address in name_servers:
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((host, int(port)))
                ip: str = probe.getsockname()[0]
                return ip
        except OSError:
            continue
    return "127.0.0.1"
