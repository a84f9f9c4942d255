"""The errors of the protocol, which servers and clients share, in one tree.

    BrokerError                 an error with a response code: a server answers a request with it
      WireError                 bytes that are not the protocol
        HeaderError             one header is wrong: that request is refused, the rest goes on
      RequestRefused            a handler's refusal, with the code and the remark of the reply
      ReplyTooLong              a reply that does not fit into a frame
      StoreError                the store could not do what was asked
        MessageIllegal          the record does not fit the format's limits
        StoreDamaged            a record or a file is not what its format says
      RemotingError             a request to another server failed
        RemotingConnectError    no connection could be made
        RemotingTimeout         no reply came in time
        RemotingSendError       the connection was lost before the reply
        RemotingTooLong         the request or the reply is longer than a frame may be

``twistmq.broker.errors`` continues the tree with the errors that only a server has. The texts are
Apache's where clients show them. Source: ResponseCode, RemotingException and its subclasses @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twistmq.protocol.codes import ResponseCode

__all__ = [
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


class CopiedError(Exception):
    """An error that ``pickle`` and ``copy`` rebuild without a call of its constructor.

    By default Python calls the constructor with ``args``. That fails, or changes the text, when the
    constructor takes anything other than the text. An error that cannot be rebuilt in the parent
    process stops a ``multiprocessing.Pool`` for ever.
    """

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any] | None]:
        return _rebuilt, (type(self), self.args), self.__dict__ or None


def _rebuilt(kind: type[CopiedError], args: tuple[Any, ...]) -> CopiedError:
    """Make an error that has these ``args``; its attributes are set afterwards."""
    return kind.__new__(kind, *args)


class BrokerError(CopiedError):
    """An error with a response code; its text is the remark the client is sent."""

    response_code: int = ResponseCode.SYSTEM_ERROR
    #: Whether the same request may succeed on another broker or a little later.
    retriable: bool = False


class WireError(BrokerError):
    """The bytes are not what the remoting protocol says."""


class HeaderError(WireError):
    """A request's header lacks a field or holds one of the wrong type."""


class RequestRefused(BrokerError):
    """A request was understood and refused.

    :param code: the response code the client gets.
    :param remark: the remark the client gets.
    """

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.response_code = code


class ReplyTooLong(BrokerError):
    """A reply is longer than a frame may be: its asker would close the connection over it."""


class StoreError(BrokerError):
    """The store could not do what was asked."""


class MessageIllegal(StoreError):
    """The message breaks a limit of the record format (body, properties or topic too long)."""

    response_code = ResponseCode.MESSAGE_ILLEGAL
    #: Which record of an append it was; None where there was only one.
    record_index: int | None = None


class StoreDamaged(StoreError):
    """A file of the store is not what its format says; the text names the file and the place."""


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
    """The request is not sent or the reply passed over: it is longer than a frame may be."""

    retriable = False
