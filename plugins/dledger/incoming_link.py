"""A connection that another member, or a stranger, has made to the port for members."""

from __future__ import annotations

from typing import Final, Protocol

from twisted.python.failure import Failure

from twistmq.broker.api.wire import Frame, encode_reply
from twistmq.plugins.replica.link import Link
from twistmq.protocol.frame import FrameDecoder

__all__ = ["IncomingLink", "LinkOwner"]

#: A connection with more unanswered requests, or more bytes of them, is not read from until half of
#: them are answered. Apache's leader has at most 1,000 pushes under way.
UNANSWERED_MAX: Final = 2048
UNANSWERED_BYTES_MAX: Final = 32 * 1024**2


class LinkOwner(Protocol):
    """The owner of incoming connections."""

    def frame_arrived(self, link: IncomingLink, frame: Frame) -> None:
        """Handle a frame."""

    def frames_ended(self) -> None:
        """Handle requests that waited for further frames; called after a group of frames."""

    def bytes_arrived(self, link: IncomingLink) -> None:
        """Check the memory that unfinished frames take, after bytes have arrived."""

    def link_ended(self, link: IncomingLink, why: str) -> None:
        """Forget a connection, which is lost, or closed by this side if there is a reason."""


class IncomingLink(Link):
    """A connection, which splits its bytes into frames and sends responses.

    :param peer: "host:port".
    """

    def __init__(self, peer: str, owner: LinkOwner) -> None:
        super().__init__()
        self.peer = peer
        #: The member that has sent a sound request over this connection; empty for a stranger.
        self.member = ""
        #: Whether the connection is closed or about to be closed.
        self.is_over = False
        self._owner = owner
        self._decoder = FrameDecoder()
        self._why = ""
        self._unanswered = 0
        self._unanswered_bytes = 0
        self._is_paused = False

    @property
    def pending_bytes(self) -> int:
        """The number of bytes of a frame that is not complete yet."""
        return self._decoder.pending_bytes

    def dataReceived(self, data: bytes) -> None:
        if self.is_over:
            return
        for frame in self._decoder.feed(data):
            self._owner.frame_arrived(self, frame)
        self._owner.frames_ended()
        if self._decoder.failure:
            self.end(f"it does not send requests of members: {self._decoder.failure}")
            return
        self._owner.bytes_arrived(self)

    def question_arrived(self, size: int) -> None:
        """Count a request that is answered later.

        :param size: the bytes of its body, which are in memory until then.
        """
        self._unanswered += 1
        self._unanswered_bytes += size
        if not self._is_paused and (self._unanswered > UNANSWERED_MAX
                                    or self._unanswered_bytes > UNANSWERED_BYTES_MAX):
            self._is_paused = True
            self.transport.pauseProducing()

    def question_ended(self, size: int) -> None:
        """Count the end of such a request."""
        self._unanswered -= 1
        self._unanswered_bytes -= size
        if (self._is_paused and not self.is_over and self._unanswered <= UNANSWERED_MAX // 2
                and self._unanswered_bytes <= UNANSWERED_BYTES_MAX // 2):
            self._is_paused = False
            self.transport.resumeProducing()

    def reply(self, code: int, opaque: int, body: bytes = b"", remark: str | None = None) -> None:
        """Send a response, unless the connection is over."""
        self.send(encode_reply(code, opaque, None, body, remark))

    def send(self, frames: bytes) -> None:
        """Send whole frames, or none, unless the connection is over."""
        if frames and not self.is_over:
            self.write_soon(frames)

    def end(self, why: str) -> None:
        """Close the connection at once.

        :param why: the reason for the log; empty for none.
        """
        if not self.is_over:
            self.is_over, self._why = True, why
            self.transport.abortConnection()

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        self.is_over = True
        self._owner.link_ended(self, self._why)
