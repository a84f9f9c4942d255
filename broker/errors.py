"""Every error of the broker, in one tree.

    BrokerError                 something a client is told about; carries its response code
      WireError                 bytes that are not the protocol
        HeaderError             one header is wrong: that request is refused, the rest goes on
      RequestRefused            a handler's no, with the code and the remark the client gets
      ReplyTooLong              a reply that no frame can hold
      StoreError                the store could not do what was asked
        StoreFull               the disk is full: sends are refused, reads go on
        StoreClosed             the store is stopping or does not accept writes
          StoreGone             files of the running store were removed, renamed or cut
        MessageIllegal          the record does not fit the format's limits
          LightQueuesFull       it would need one more light queue than are allowed
        StoreDamaged            a file on disk is not what its format says
      RemotingError             a request of ours to another server failed
        RemotingConnectError    no connection
        RemotingTimeout         no reply in time
        RemotingSendError       the connection was lost before the reply
        RemotingTooLong         request or reply are longer than a frame may be
    SettingsError               a setting has no meaning; shown on the command line
      SettingUnavailable        a file or port that it names cannot be had now

Handlers raise; one translator (``remoting/dispatcher.py``) turns an error into the reply. Remarks
are Apache's where clients show them. Source: ResponseCode, RemotingException and its subclasses
@5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twistmq.broker.codes import ResponseCode

__all__ = [
    "BrokerError",
    "CopiedError",
    "HeaderError",
    "LightQueuesFull",
    "MessageIllegal",
    "RemotingConnectError",
    "RemotingError",
    "RemotingSendError",
    "RemotingTimeout",
    "RemotingTooLong",
    "ReplyTooLong",
    "RequestRefused",
    "SettingUnavailable",
    "SettingsError",
    "StoreClosed",
    "StoreDamaged",
    "StoreError",
    "StoreFull",
    "StoreGone",
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


class StoreFull(StoreError):
    """The disk is full or over its limit; messages that are stored can still be read."""

    response_code = ResponseCode.SERVICE_NOT_AVAILABLE
    retriable = True


class StoreClosed(StoreError):
    """The store does not accept messages: it is stopping, or its role forbids it."""

    response_code = ResponseCode.SERVICE_NOT_AVAILABLE
    retriable = True


class StoreGone(StoreClosed):
    """The folder or the commit log of the running store was removed, renamed, replaced or cut.

    Differs from Apache, whose broker keeps writing into the removed files.
    """


class MessageIllegal(StoreError):
    """The message breaks a limit of the record format (body, properties or topic too long)."""

    response_code = ResponseCode.MESSAGE_ILLEGAL
    #: Which record of an append it was; None where there was only one.
    record_index: int | None = None


class LightQueuesFull(MessageIllegal):
    """There are as many light queues as maxLmqConsumeQueueNum allows."""

    response_code = ResponseCode.SYSTEM_ERROR


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


class SettingsError(CopiedError):
    """A setting is unknown, out of bounds or of the wrong type; the text says which and why."""


class SettingUnavailable(SettingsError):
    """The file or port that a setting names cannot be had now; the next start may succeed."""
