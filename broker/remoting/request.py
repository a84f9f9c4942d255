"""A request as its handler sees it.

Leaf module of the hot path: typed, so that mypyc compiles it.

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

    :param command: None: a subclass reads it, and the header, when they are asked for.
    """

    __slots__ = ("_command", "_header", "channel", "kept_bytes", "now_ms", "texts")

    #: Further memory of the request while it waits, bytes; not set if it needs no more.
    kept_bytes: int

    def __init__(
        self, command: RemotingCommand | None, header: H | None, channel: Channel, now_ms: int,
        texts: HeaderTexts | None = None,
    ) -> None:
        self._command: RemotingCommand | None = command
        self._header: Any = header
        #: The connection it came by.
        self.channel: Channel = channel
        #: When the bytes were read, Unix ms.
        self.now_ms: int = now_ms
        #: For access validators: the extFields, if they were read with the header; else
        #: ``command.fields()`` has them.
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
        """The extFields as the header class of the code's handler; None: they cannot be read."""
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
        """The number by which the sender finds the reply."""
        return self.command.opaque

    @property
    def flag(self) -> int:
        """Bits: 1 a response, 2 one-way."""
        return self.command.flag

    def _read(self) -> RemotingCommand:
        """Read the command, and set the header."""
        raise NotImplementedError
