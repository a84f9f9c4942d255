"""Sends frames from the files of the log directly to a socket, for a slave with a large lag.

The bytes of the log are not copied here: the operating system passes its own copy of the file to
the socket (``sendfile``). The socket may take a frame in parts; until the frame is complete,
nothing else may be written to it.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

from twistmq.broker.api import StoreError

if TYPE_CHECKING:
    from twistmq.plugins.ha.sender import Sender

__all__ = ["DirectFrames"]

#: Announces that more bytes follow, so that a frame's head is not sent alone. Linux only.
_MORE: Final = getattr(socket, "MSG_MORE", 0)


class DirectFrames:
    """The frames of one slave on their way to its socket.

    :param to: a connected, non-blocking socket that is not encrypted.
    """

    def __init__(self, sender: Sender, to: socket.socket) -> None:
        self._sender = sender
        self._socket = to
        #: The part of a frame's head that is still to be sent.
        self._head = b""
        #: The part of its body that is still to be sent: offset in the log, and size.
        self._at = self._remaining = 0

    @property
    def is_within(self) -> bool:
        """Whether a part of a frame is still to be sent."""
        return bool(self._head or self._remaining)

    def send(self, size_max: int, now_ms: int) -> None:
        """Send frames until the socket is full, or about ``size_max`` bytes are sent.

        :raises StoreError: when the log does not have these bytes.
        :raises OSError: when the disk fails, or the connection is lost.
        """
        size = 0
        try:
            while size < size_max:
                if not self.is_within:
                    frame = self._sender.next_frame(now_ms)
                    if frame is None:
                        return
                    self._head, self._at, self._remaining = frame
                if self._head:
                    self._head = self._head[self._socket.send(self._head, _MORE):]
                    continue
                sent_size = self._sender.raw.send_to(
                    self._socket.fileno(), self._at, self._remaining)
                if not sent_size:
                    raise StoreError(f"the log no longer has the bytes at {self._at}")
                self._at += sent_size
                self._remaining -= sent_size
                size += sent_size
        except BlockingIOError:
            pass  # The reactor reports when the socket takes more bytes.
