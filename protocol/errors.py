"""The errors of the protocol, in one tree that servers and clients share.

    BrokerError                 an error with a response code, which a server sends to the client
      WireError                 bytes that are not the protocol
        HeaderError             one header is wrong: only that request is refused
      RequestRefused            a handler's refusal, with the code and remark of the response
      ReplyTooLong              a response that does not fit into a frame
      StoreError                the store could not perform an operation
        MessageIllegal          the record exceeds a limit of the format
        StoreDamaged            a record or a file does not match its format
      RemotingError             a request to another server failed
        RemotingConnectError    no connection could be made
        RemotingTimeout         the response did not arrive in time
        RemotingSendError       the connection was lost before the response arrived
        RemotingTooLong         the request or the response is longer than a frame may be

``twistmq.broker.errors`` adds the errors that only a server has. The texts that clients display are
the same as Apache's. Source: ResponseCode, RemotingException and its subclasses @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from twistmq.protocol.codes import ResponseCode

__all__ = [
    "NOT_A_NAME_SERVER",
    "BrokerError",
    "CopiedError",
    "HeaderError",
    "MessageIllegal",
    "RemotingConnectError",
    "RemotingError",
    "RemotingSendError",
    "RemotingTimeout",
    "RemotingTooLong",
    "ReplyTooLong",
    "RequestRefused",
    "StoreDamaged",
    "StoreError",
    "WireError",
]


#: The end of the error for a server that does not know a request that every name server serves.
NOT_A_NAME_SERVER: Final = "so it is not a name server; it may be a broker"


class CopiedError(Exception):
    """An error that ``pickle`` and ``copy`` rebuild without calling its constructor.

    By default Python calls the constructor with ``args``. That fails, or changes the text, when the
    constructor takes anything other than the text. An error that cannot be rebuilt in the parent
    process blocks a ``multiprocessing.Pool`` forever.
    """

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any] | None]:
        return _rebuilt, (type(self), self.args), self.__dict__ or None


def _rebuilt(kind: type[CopiedError], args: tuple[Any, ...]) -> CopiedError:
    """Make an error with these ``args``; its attributes are set afterwards."""
    return kind.__new__(kind, *args)


class BrokerError(CopiedError):
    """An error with a response code; its text is the remark that is sent to the client."""

    response_code: int = ResponseCode.SYSTEM_ERROR
    #: Whether the same request may succeed on another broker or a little later.
    retriable: bool = False


class WireError(BrokerError):
    """The bytes do not follow the remoting protocol."""


class HeaderError(WireError):
    """A request's header lacks a field or contains a field of the wrong type."""


class RequestRefused(BrokerError):
    """A request was understood but refused.

    :param code: the response code that the client gets.
    :param remark: the remark that the client gets.
    """

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.response_code = code


class ReplyTooLong(BrokerError):
    """A response is longer than a frame may be: the client would close the connection."""


class StoreError(BrokerError):
    """The store could not perform an operation."""


class MessageIllegal(StoreError):
    """The message breaks a limit of the record format (body, properties or topic too long)."""

    response_code = ResponseCode.MESSAGE_ILLEGAL
    #: The index of the record in an append; None when the append had only one record.
    record_index: int | None = None


class StoreDamaged(StoreError):
    """A file of the store does not match its format; the text names the file and the place."""


class RemotingError(BrokerError):
    """A request to another server failed."""

    retriable = True


class RemotingConnectError(RemotingError):
    """No connection to the address could be made."""


class RemotingTimeout(RemotingError):
    """The address did not answer within the time allowed."""


class RemotingSendError(RemotingError):
    """The connection was lost before the reply came."""


class RemotingTooLong(RemotingError):
    """The request was not sent, or the response was skipped: it is longer than a frame may be."""

    retriable = False
