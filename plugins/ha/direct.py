"""Frames that go from the files of the log to a socket, for a slave that is far behind.

The bytes of the log are not copied here: the system gives its own copy of the file to the socket
(``sendfile``). A frame may be taken in parts; nothing else may be written before it is whole.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

from twistmq.broker.api import StoreError

if TYPE_CHECKING:
    from twistmq.plugins.ha.sender import Sender

__all__ = ["DirectFrames"]

#: Says that more bytes follow at once: the head of a frame is no packet of its own. Linux only.
_MORE: Final = getattr(socket, "MSG_MORE", 0)


class DirectFrames:
    """The frames of one slave on their way to its socket.

    :param to: a connected socket that does not block, and is not encrypted.
    """

    def __init__(self, sender: Sender, to: socket.socket) -> None:
        self._sender = sender
        self._socket = to
        #: The part of a frame's head that the socket has not taken.
        self._head = b""
        #: The part of its bytes that the socket has not taken: their offset in the log, their size.
        self._at = self._left = 0

    @property
    def is_within(self) -> bool:
        """Whether a part of a frame is left."""
        return bool(self._head or self._left)

    def send(self, size_max: int, now_ms: int) -> None:
        """Send frames until the socket takes no more, or about ``size_max`` bytes are sent.

        :raises StoreError: when the log has no such bytes.
        :raises OSError: when the disk fails, or the connection is lost.
        """
        size = 0
        try:
            while size < size_max:
                if not self.is_within:
                    frame = self._sender.next_frame(now_ms)
                    if frame is None:
                        return
                    self._head, self._at, self._left = frame
                if self._head:
                    self._head = self._head[self._socket.send(self._head, _MORE):]
                    continue
                taken = self._sender.raw.send_to(self._socket.fileno(), self._at, self._left)
                if not taken:
                    raise StoreError(f"the log has no bytes of {self._at} any longer")
                self._at += taken
                self._left -= taken
                size += taken
        except BlockingIOError:
            pass  # The reactor says when it takes more.
