"""Notifies systemd when a service is ready and when it stops, for units of ``Type=notify``.

No notice is sent if ``NOTIFY_SOCKET`` is not set. The protocol is a text in one datagram. Its
definition promises that this will not change, and invites programs to implement it themselves.

Source: sd_notify(3).
"""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Final

__all__ = ["NOTIFY_SOCKET", "notify_ready", "notify_stopping"]

#: The variable that names the socket.
NOTIFY_SOCKET: Final = "NOTIFY_SOCKET"


def notify_ready() -> None:
    """Report that the service answers."""
    _notify("READY=1")


def notify_stopping() -> None:
    """Report that the service stops."""
    _notify("STOPPING=1")


def _notify(text: str) -> None:
    """Send a text to systemd. Errors are ignored, as in libsystemd: the service runs anyway."""
    path = os.environ.get(NOTIFY_SOCKET, "")
    if not path.startswith(("/", "@")):
        return
    # A name that begins with @ is an abstract name of Linux; such names begin with a zero byte.
    address = "\0" + path[1:] if path[0] == "@" else path
    with (contextlib.suppress(OSError),
          socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel):
        channel.sendto(text.encode(), address)
