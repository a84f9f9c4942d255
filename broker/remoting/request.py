"""A request as its handler sees it, and the requests at the head of a read.

Leaf module of the hot path: typed, so that mypyc compiles it.

Source: NettyRequestProcessor, NettyRemotingAbstract @5.3.3.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from twistmq.broker.errors import HeaderError
from twistmq.broker.wire.command import RESPONSE_FLAG, RemotingCommand
from twistmq.broker.wire.field_sets import HeaderTexts, ReadRequest
from twistmq.broker.wire.frame import Frame
from twistmq.broker.wire.header import CommandHeader
from twistmq.broker.wire.request_reader import RequestReader

if TYPE_CHECKING:
    from twistmq.broker.remoting.messages import Channel

__all__ = ["Request", "read_run"]

H = TypeVar("H", bound=CommandHeader)


class Request(Generic[H]):
    """One request as its handler sees it."""

    __slots__ = ("channel", "command", "header", "kept_bytes", "now_ms", "texts")

    #: Further memory of the request while it waits, bytes; not set if it needs no more.
    kept_bytes: int

    def __init__(
        self, command: RemotingCommand, header: H, channel: Channel, now_ms: int,
        texts: HeaderTexts | None = None,
    ) -> None:
        #: The command as sent: ``code``, ``flag``, ``version``, ``language``, ``fields()``.
        self.command: RemotingCommand = command
        #: The extFields as the header class of the code's handler; None when they cannot be read.
        self.header: H = header
        #: The connection it came by.
        self.channel: Channel = channel
        #: When the bytes were read, Unix ms.
        self.now_ms: int = now_ms
        #: For access validators: the extFields, if they were read with the header; else
        #: ``command.fields()`` has them.
        self.texts: HeaderTexts | None = texts

    @property
    def body(self) -> bytes:
        """The bytes after the header."""
        return self.command.body


def read_run(
    reader: RequestReader, frames: Sequence[Frame], codes: Collection[int], size_free: int,
    channel: Channel, now_ms: int,
) -> tuple[list[Request[Any]], ReadRequest | None]:
    """Read the requests at the head of a read, as long as they have one code and are plain.

    :param codes: those of requests that are handled together; others are not taken.
    :param size_free: bytes of a frame that no handler's bounds have to be looked at for.
    :returns: requests with their headers; and the frame behind them, if it was read.
    """
    run: list[Request[Any]] = []
    code = 0
    for frame in frames:
        if len(frame[1]) + len(frame[2]) > size_free:
            break
        try:
            read = reader.read(frame)
        except HeaderError:
            break
        command: RemotingCommand = read[0]
        header = read[1]
        if header is None or command.flag & RESPONSE_FLAG:
            return run, read
        if not run and command.code in codes:
            code = command.code
        elif command.code != code:
            return run, read
        run.append(Request(command, header, channel, now_ms))
    return run, None
