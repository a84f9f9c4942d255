"""A request as its handler sees it.

This is a leaf module of the hot path; it is typed, so that mypyc compiles it.

Source: NettyRequestProcessor @5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.field_sets import HeaderTexts
from twistmq.protocol.header import CommandHeader

if TYPE_CHECKING:
    from twistmq.broker.remoting.messages import Channel

__all__ = ["Request"]

H = TypeVar("H", bound=CommandHeader)


class Request(Generic[H]):
    """One request as its handler sees it.

    :param command: the command; if it is None, a subclass reads command and header on demand.
    """

    __slots__ = ("_command", "_header", "channel", "kept_bytes", "now_ms", "texts")

    #: Further memory of the request while it waits, bytes; not set if it needs no further memory.
    kept_bytes: int

    def __init__(
        self, command: RemotingCommand | None, header: H | None, channel: Channel, now_ms: int,
        texts: HeaderTexts | None = None,
    ) -> None:
        self._command: RemotingCommand | None = command
        self._header: Any = header
        #: The connection on which it arrived.
        self.channel: Channel = channel
        #: The time when the bytes were read, Unix ms.
        self.now_ms: int = now_ms
        #: The extFields for access validators, if they were read with the header; otherwise they
        #: are in ``command.fields()``.
        self.texts: HeaderTexts | None = texts

    @property
    def command(self) -> RemotingCommand:
        """The command as sent: ``code``, ``flag``, ``version``, ``language``, ``fields()``."""
        command = self._command
        if command is None:
            command = self._command = self._read()
        return command

    @property
    def header(self) -> H:
        """The extFields as the header class of the code's handler; None if they are unreadable."""
        if self._command is None:
            self._command = self._read()
        header: H = self._header
        return header

    @property
    def body(self) -> bytes:
        """The bytes after the header."""
        return self.command.body

    @property
    def code(self) -> int:
        """The request code."""
        return self.command.code

    @property
    def opaque(self) -> int:
        """The number by which the sender matches the reply."""
        return self.command.opaque

    @property
    def flag(self) -> int:
        """Flag bits: 1 for a response, 2 for a one-way request."""
        return self.command.flag

    def _read(self) -> RemotingCommand:
        """Parse the command, and set the header."""
        raise NotImplementedError
