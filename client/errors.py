"""Every error of the client, in one tree.

    ClientError                 has ``retriable`` and ``response_code``
      OptionError               an option or an argument has no meaning
      Closed                    the client, producer or consumer is closed
      ForkedError               the process was forked; the child needs a client of its own
      NoRoute                   no name server knows the topic, or no broker takes it
      Full                      there was no room in time for another message under way
      RequestRefused            a server answered with an error
        Denied                  16: no permission
        TopicMissing            17: no such topic
        Rejected                13: the message is illegal
        Busy                    2, 14, 215: later, or at another broker
        Unsupported             3: the server does not know the request
      SendFailed                all attempts of a send failed; it has them all
      NotSafe                   stored, but not as safely as was asked for
      Undecodable               a body cannot be decompressed or decoded
      NotAssigned               the queue is not this consumer's
      ReceiptExpired            a popped message is not this consumer's any more
      RequestTimeout            no reply to a request-reply in time

A lost connection, a failed connect and a reply that does not come are ``RemotingSendError``,
``RemotingConnectError`` and ``RemotingTimeout`` of ``twistmq.broker.errors``; the last part of
this tree. They are errors of the client as well as the broker: catch :class:`ClientError` and
``RemotingError``, or their common base ``BrokerError``.

Source: MQClientException, MQBrokerException, RemotingException @5.3.3; client notes 2.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from twistmq.broker.codes import ResponseCode
from twistmq.broker.errors import (
    BrokerError,
    RemotingConnectError,
    RemotingError,
    RemotingSendError,
    RemotingTimeout,
)
from twistmq.broker.errors import RequestRefused as Refused

if TYPE_CHECKING:
    from twistmq.client.answers import SendResult

__all__ = [
    "Attempt", "Busy", "ClientError", "Closed", "Denied", "ForkedError", "Full", "NoRoute",
    "NotAssigned", "NotSafe", "OptionError", "ReceiptExpired", "Rejected", "RemotingConnectError",
    "RemotingError", "RemotingSendError", "RemotingTimeout", "RequestRefused", "RequestTimeout",
    "SendFailed", "TopicMissing", "Undecodable", "Unsupported", "refusal",
]


class ClientError(BrokerError):
    """Any error of the client. ``retriable``: the same call may succeed later or elsewhere."""


class OptionError(ClientError, ValueError):
    """An option or an argument has no meaning; the text names it."""


class Closed(ClientError):
    """The client, producer or consumer was closed, or closes."""


class ForkedError(ClientError):
    """The process was forked after the client was made; its connections are the parent's."""


class NoRoute(ClientError):
    """No name server knows where the topic is, or no broker of the route can take it."""

    response_code = ResponseCode.TOPIC_NOT_EXIST
    retriable = True


class Full(ClientError):
    """As many messages are under way as may be, and none ended in time."""

    retriable = True


class RequestRefused(ClientError, Refused):
    """A server answered a request with an error.

    :param code: the response code.
    :param remark: the text, which names the server.
    """


class Denied(RequestRefused):
    """The account, the topic or the group has no permission for it."""


class TopicMissing(RequestRefused):
    """The broker does not know the topic and makes none."""


class Rejected(RequestRefused):
    """The broker finds the message illegal."""


class Busy(RequestRefused):
    """The broker is overloaded or does not serve now."""

    retriable = True


class Unsupported(RequestRefused):
    """The server does not know the request."""


class Attempt(msgspec.Struct, frozen=True):
    """One attempt of a send that failed."""

    broker_name: str
    #: How long it took, ms.
    duration_ms: float
    error: BaseException


class SendFailed(ClientError):
    """All attempts of a send failed.

    :param attempts: in order.

    ``maybe_stored`` says whether one of them may have stored the message: true after a time-out or
    a lost connection, false when all were refused or found no connection.
    """

    retriable = True

    def __init__(self, topic: str, attempts: list[Attempt]) -> None:
        said = "; ".join(f"{attempt.broker_name or 'no broker'} after "
                         f"{attempt.duration_ms:.0f} ms: {attempt.error}" for attempt in attempts)
        super().__init__(f"cannot send to topic {topic}: {said}")
        self.attempts = attempts
        self.maybe_stored = any(
            isinstance(attempt.error, RemotingTimeout | RemotingSendError) for attempt in attempts)
        last = attempts[-1].error if attempts else None
        if isinstance(last, BrokerError):
            self.response_code = last.response_code


class NotSafe(ClientError):
    """The message was stored, but a flush or a slave was not waited for.

    :param result: where it is.
    """

    def __init__(self, result: SendResult) -> None:
        super().__init__(f"{result.queue} offset {result.offset}: stored, but {result.status}")
        self.result = result


class Undecodable(ClientError):
    """A body cannot be decompressed, or the decoder raised."""


class NotAssigned(ClientError):
    """The queue is not one of this consumer's now."""


class ReceiptExpired(ClientError):
    """A popped message was acknowledged or given back before, or it was hidden no longer.

    In the last case it comes again, perhaps to another member.
    """


class RequestTimeout(ClientError):
    """No consumer replied to a request message in time."""

    retriable = True


_BY_CODE: Final[dict[int, type[RequestRefused]]] = {
    ResponseCode.NO_PERMISSION: Denied,
    ResponseCode.TOPIC_NOT_EXIST: TopicMissing,
    ResponseCode.MESSAGE_ILLEGAL: Rejected,
    ResponseCode.SYSTEM_BUSY: Busy,
    ResponseCode.SERVICE_NOT_AVAILABLE: Busy,
    ResponseCode.FLOW_CONTROL: Busy,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Unsupported,
}


#: Characters of a remark that an error has; logs have errors.
REMARK_MAX: Final = 2000


def refusal(code: int, remark: str | None, address: str) -> RequestRefused:
    """The error for a reply that is no success.

    :param code: the reply's response code.
    """
    from twistmq.broker.printable import one_line

    kind = _BY_CODE.get(code, RequestRefused)
    text = remark or "no remark"
    length = len(text)
    # A program prints and logs errors, so a server's text must not act on a terminal.
    text = one_line(text[:REMARK_MAX])
    if length > REMARK_MAX:
        text = f"{text}... ({length} characters)"
    return kind(code, f"{address} answered {code}: {text}")
