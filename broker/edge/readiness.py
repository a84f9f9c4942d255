"""Tells systemd that a service is ready, and that it stops: for units of ``Type=notify``.

Nothing is told where ``NOTIFY_SOCKET`` is not set. The protocol is a text in one datagram; its
definition promises that it stays so, and invites programs to speak it themselves.

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
    """Tell that the service answers."""
    _notify("READY=1")


def notify_stopping() -> None:
    """Tell that the service stops."""
    _notify("STOPPING=1")


def _notify(text: str) -> None:
    """Send a text to systemd. An error is ignored, as libsystemd does: the service runs anyway."""
    path = os.environ.get(NOTIFY_SOCKET, "")
    if not path.startswith(("/", "@")):
        return
    # A name that begins with @ is one of Linux's abstract names, which begin with a zero byte.
    address = "\0" + path[1:] if path[0] == "@" else path
    with (contextlib.suppress(OSError),
          socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel):
        channel.sendto(text.encode(), address)
