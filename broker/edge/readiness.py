"""Tells systemd that a service is ready, and that it stops: for units of ``Type=notify``.

Nothing is told where ``NOTIFY_SOCKET`` is not set. The package sdnotify speaks the protocol.

Source: sd_notify(3).
"""

from __future__ import annotations

import os
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
    if os.environ.get(NOTIFY_SOCKET):
        import sdnotify  # only a service of systemd needs it

        sdnotify.SystemdNotifier().notify(text)
