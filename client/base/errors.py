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
      RequestTimeout            no reply to a request-reply in time; a ``TimeoutError``
      RemotingError             a request got no response
        RemotingConnectError    no connection could be made
        RemotingSendError       the connection was lost before the response came
        RemotingTimeout         no response came in time; a ``TimeoutError``
      ProtocolError             a server's response is not what the protocol says

``except ClientError`` catches every error that the client raises. The last two also have the type
of the same name, and ``WireError``, of ``twistmq.protocol.errors``, which servers use.

Source: MQClientException, MQBrokerException, RemotingException @5.3.3; client notes 2.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from twistmq.protocol import errors as protocol
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.errors import BrokerError

if TYPE_CHECKING:
    from twistmq.client.base.answers import SendResult

__all__ = [
    "Attempt", "Busy", "ClientError", "Closed", "Denied", "ForkedError", "Full", "NoRoute",
    "NotAssigned", "NotSafe", "OptionError", "ProtocolError", "ReceiptExpired", "Rejected",
    "RemotingConnectError", "RemotingError", "RemotingSendError", "RemotingTimeout",
    "RequestRefused", "RequestTimeout", "SendFailed", "TopicMissing", "Undecodable",
    "Unsupported", "client_error", "refusal",
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


class RequestRefused(ClientError, protocol.RequestRefused):
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


class RemotingError(ClientError, protocol.RemotingError):
    """A request got no response."""


class RemotingConnectError(RemotingError, protocol.RemotingConnectError):
    """No connection to the address could be made."""


class RemotingSendError(RemotingError, protocol.RemotingSendError):
    """The connection was lost before the response came."""


class RemotingTimeout(RemotingError, protocol.RemotingTimeout, TimeoutError):
    """The address did not respond within the time allowed."""


class ProtocolError(ClientError, protocol.WireError):
    """A server's response is not what the protocol says."""


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


class RequestTimeout(ClientError, TimeoutError):
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
    kind = _BY_CODE.get(code, RequestRefused)
    text = remark or "no remark"
    if len(text) > REMARK_MAX:
        text = f"{text[:REMARK_MAX]}... ({len(text)} characters)"
    return kind(code, f"{address} answered {code}: {text}")


def client_error(error: BaseException) -> BaseException:
    """The error that a program gets for one of the core, whose decoders are those of servers."""
    if not isinstance(error, BrokerError) or isinstance(error, ClientError):
        return error
    if isinstance(error, protocol.RequestRefused):
        return _BY_CODE.get(error.response_code, RequestRefused)(error.response_code, str(error))
    if isinstance(error, protocol.WireError):
        return ProtocolError(str(error))
    if isinstance(error, protocol.MessageIllegal | protocol.StoreDamaged):
        return Undecodable(str(error))
    return ClientError(str(error))
