"""Checks of the addresses and ports of a start, by binding a socket before anything listens."""

from __future__ import annotations

import errno
import ipaddress
import socket
from typing import Final

from twistmq.broker.config.settings import Settings
from twistmq.broker.constants import VIP_PORT_DISTANCE
from twistmq.protocol.errors import BrokerError

__all__ = ["LISTENING", "cannot_listen", "ports_of", "require_address", "require_number",
           "require_port", "try_to_bind"]

#: The ports on which this process listens. They are free for a start after its end.
LISTENING: Final[set[int]] = set()


def try_to_bind(interface: str, port: int) -> OSError | None:
    """Return why a socket cannot be bound to an address and port; None if it can.

    A socket that is only bound detects a listener at that address, and does not disturb any other
    socket.

    :param interface: an address, or the name of a host, which is looked up; "" for all addresses.
    :param port: 0: any free one.
    """
    family = socket.AF_INET6 if ":" in interface else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((interface, port))
    except OSError as error:
        return error
    except (TypeError, ValueError, OverflowError) as error:  # not a possible name of a host
        return OSError(errno.EINVAL, str(error))
    return None


def cannot_listen(interface: str, port: int, purpose: str, error: OSError) -> BrokerError:
    """Return the error for a port that cannot be opened.

    :param purpose: the owner of the port and the setting that gives it.
    """
    why = getattr(error, "strerror", None) or error
    return BrokerError(f"cannot listen on {interface}:{port} ({purpose}): {why}")


def require_port(settings: Settings, port: int, purpose: str, interface: str | None = None) -> None:
    """Make sure that a start can listen on a port.

    A port of this process counts as free, because it is free for a start after the end of this
    process; a second process beside this one fails when it listens.

    :param interface: the address to listen on; None: ``bindAddress``.
    :raises BrokerError: when the start cannot listen; the text names the port and the reason.
    """
    if port in LISTENING:
        return
    host = settings.text("bindAddress") if interface is None else interface
    error = try_to_bind(host, port)
    if error is not None:
        raise cannot_listen(host, port, purpose, error)


def ports_of(settings: Settings, but: str = "") -> dict[int, str]:
    """Return the ports that settings give to the servers themselves, each with its owner.

    :param but: a setting whose port is left out.
    """
    ports: dict[int, str] = {}
    port = settings.int("listenPort")
    if port and settings.has("brokerName"):
        ports[port] = f"the broker's: listenPort={port}"
        if port > VIP_PORT_DISTANCE:
            ports[port - VIP_PORT_DISTANCE] = (
                f"the broker's VIP port, two below its own: listenPort={port}")
    elif port:
        ports[port] = f"the name server's: listenPort={port}"
    for row in settings.rows:
        if row.of_each == "port" and row.name not in ("listenPort", but) and (
                settings.is_given(row.name) and settings.int(row.name)):
            ports.setdefault(settings.int(row.name), f"that of {row.name}")
    return ports


def require_address(settings: Settings, name: str) -> None:
    """Make sure that a setting is an address of this host, or a name for one.

    :raises SettingsError: when a socket cannot be bound to it.
    """
    require_number(settings, name)
    interface = settings.text(name)
    error = try_to_bind(interface, 0)
    if error is not None:
        why = ("is not an address of this host" if error.errno == errno.EADDRNOTAVAIL
               else f"is not an address to listen on: {error.strerror or error}")
        raise settings.error(name, why)


def require_number(settings: Settings, name: str) -> None:
    """Make sure that a tool gives a numeric address: looking up a name would block the reactor.

    :raises SettingsError: when the tool gives a name.
    """
    text = settings.text(name).strip()
    if settings.running is None or not text:
        return
    try:
        ipaddress.ip_address(text)
    except ValueError:
        raise settings.error(
            name, "is not an IP address: a host's name is taken from the file or the command line "
                  "only, because it has to be looked up") from None
