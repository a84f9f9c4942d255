"""The address of a host that a setting names."""

from __future__ import annotations

import socket

from twistmq.broker.config.settings import Settings

__all__ = ["resolved"]


def resolved(settings: Settings, name: str) -> str:
    """The IP address that a setting stands for, IPv4 where there is one; it may block.

    Records hold addresses, not names. Clients are told the name, so that it may stand for another
    address at the next start. Source: BrokerController's InetSocketAddress @5.3.3.

    :raises SettingsError: when the host has no address. Differs from Apache, which then starts.
    """
    text = settings.text(name).strip()
    if not text:
        raise settings.error(name, "is not the address or name of a host")
    try:
        found = socket.getaddrinfo(text, None, type=socket.SOCK_STREAM)
    except (OSError, TypeError, ValueError) as error:  # of what no host can be called
        why = getattr(error, "strerror", None) or str(error)
        raise settings.error(name, f"cannot be resolved: {why}") from None
    found.sort(key=lambda row: row[0] != socket.AF_INET)
    return str(found[0][4][0]).partition("%")[0]
