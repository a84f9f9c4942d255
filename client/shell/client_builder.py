"""Builds the core of a client from its options, for all shells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from twistmq.client.base.interceptors import Interceptors, installed_interceptors
from twistmq.client.core.connection.client import ClientCore, ClientOptions
from twistmq.client.core.connection.tasks import Clock
from twistmq.client.shell.identity import new_client_id, randrange
from twistmq.client.shell.lookup import fetch_name_servers, local_ip, name_servers_of
from twistmq.client.shell.options import CLIENT, NameServers, values_of

if TYPE_CHECKING:
    import ssl

__all__ = ["Built", "build_client"]


class Built(msgspec.Struct, frozen=True):
    """The core of a client, and the TLS context that its shell needs in addition."""

    core: ClientCore
    tls: ssl.SSLContext | None


def build_client(name_servers: NameServers, clock: Clock, arguments: Mapping[str, Any]) -> Built:
    """Build the core of a client.

    :raises OptionError: when an option is invalid or no name server is given.
    """
    values = values_of(CLIENT, arguments)
    addresses, url = name_servers_of(name_servers)
    options = ClientOptions(
        name_servers=tuple(addresses), name_server_url=url, namespace=values["namespace"],
        namespace_v2=values["namespace_v2"], credentials=values["credentials"],
        client_id=new_client_id(local_ip(addresses), values["instance"], values["unit"]),
        timeout_ms=values["timeout_s"] * 1000,
        connect_timeout_ms=values["connect_timeout_s"] * 1000, retries=values["retries"],
        retry_wait_ms=values["retry_wait_s"] * 1000)
    core = ClientCore(options, clock, randrange, fetch_name_servers,
                      Interceptors((*values["interceptors"], *installed_interceptors())))
    return Built(core, values["tls"])
