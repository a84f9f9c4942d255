"""Resolving the name of a host that a setting gives."""

from __future__ import annotations

import socket

from twistmq.broker.config.settings import Settings

__all__ = ["resolved"]


def resolved(settings: Settings, name: str) -> str:
    """Return the IP address that a setting stands for, IPv4 if possible; this may block.

    Records contain addresses and not names. Clients receive the name, so that it may stand for
    another address after the next start. Source: BrokerController's InetSocketAddress @5.3.3.

    :raises SettingsError: when the host has no address. Differs from Apache, which starts in that
        case.
    """
    text = settings.text(name).strip()
    if not text:
        raise settings.error(name, "is not the address or name of a host")
    try:
        addresses = socket.getaddrinfo(text, None, type=socket.SOCK_STREAM)
    except (OSError, TypeError, ValueError) as error:  # not a possible name of a host
        why = getattr(error, "strerror", None) or str(error)
        raise settings.error(name, f"cannot be resolved: {why}") from None
    addresses.sort(key=lambda row: row[0] != socket.AF_INET)
    return str(addresses[0][4][0]).partition("%")[0]
