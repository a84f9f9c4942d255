"""Every error of the client, in one tree.

    ClientError                 has ``retriable`` and ``response_code``
      OptionError               an option or an argument is invalid
      Closed                    the client, producer or consumer is closed
      ForkedError               the process was forked; the child needs its own client
      WrongLoop                 an object of asyncio is used outside of its event loop
      NoRoute                   no name server knows the topic, or no broker accepts it
        RouteTimeout            no name server answered in time; a ``TimeoutError``
      Full                      too many messages are in flight, and none ended in time; a
                                ``TimeoutError``
      RequestRefused            a server answered with an error
        Denied                  16: no permission
        TopicMissing            17: the topic does not exist
        Rejected                13: the message is illegal
        Busy                    2, 14, 215: try again later or at another broker
        Unsupported             3: the server does not know the request
      SendFailed                all attempts of a send failed; it lists them all
      NotSafe                   stored, but not as safely as requested
      Undecodable               a body cannot be decompressed or decoded
      NotAssigned               the queue is not assigned to this consumer
        AlreadyHandled              the message does not wait for an acknowledgement
      ReceiptExpired            a popped message no longer belongs to this consumer
      RequestTimeout            no reply to a request-reply in time; a ``TimeoutError``
      RemotingError             a request got no response
        RemotingConnectError    no connection could be made
          ConnectTimeout        no connection could be made in time; a ``TimeoutError``
        RemotingSendError       the connection was lost before the response came
        RemotingTimeout         no response came in time; a ``TimeoutError``
      ProtocolError             a server's response violates the protocol

``except ClientError`` catches every error that the client raises. A ``SendFailed`` also has the
class of its attempts, see there. ``RemotingError`` and ``ProtocolError`` also inherit from
the class of the same name, and from ``WireError``, in ``twistmq.protocol.errors``, which servers
use.

Source: MQClientException, MQBrokerException, RemotingException @5.3.3; client notes 2.4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from twistmq.protocol import errors as protocol
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.errors import BrokerError

if TYPE_CHECKING:
    from twistmq.client.base.answers import SendResult

__all__ = [
    "AlreadyHandled",
    "Attempt",
    "Busy",
    "ClientError",
    "Closed",
    "ConnectTimeout",
    "Denied",
    "ForkedError",
    "Full",
    "NoRoute",
    "NotAssigned",
    "NotSafe",
    "OptionError",
    "ProtocolError",
    "ReceiptExpired",
    "Rejected",
    "RemotingConnectError",
    "RemotingError",
    "RemotingSendError",
    "RemotingTimeout",
    "RequestRefused",
    "RequestTimeout",
    "RouteTimeout",
    "SendFailed",
    "TopicMissing",
    "Undecodable",
    "Unsupported",
    "WrongLoop",
    "client_error",
    "refusal",
]


class ClientError(BrokerError):
    """Any error of the client; ``except ClientError`` catches them all.

    ``retriable`` is true if the same call may succeed later or elsewhere. ``response_code`` is the
    code in the response of a server; for an error that no response reported, it is a code that
    describes the error.
    """


class OptionError(ClientError, ValueError):
    """An option or an argument is invalid; the error text names it and says what is allowed.

    It is a mistake of the program, so the same call fails again. It is also a ``ValueError``.
    """


class Closed(ClientError):
    """The client, producer or consumer is closed or is being closed; make a new one."""


class ForkedError(ClientError):
    """The process was forked after the client was made; its connections belong to the parent.

    Make a new client in the child. A close in the child raises no error and does nothing, so that
    the ``with`` blocks that the fork copied can end.
    """


class WrongLoop(ClientError, RuntimeError):
    """An object of ``twistmq.client.aio`` was used in another event loop than its own.

    Its own loop is the one in which its first call ran. Make one object in each loop.
    """


class NoRoute(ClientError):
    """No name server knows where the topic is, or no broker of the route can accept it.

    Check the name of the topic, and create it if brokers do not create topics at the first send.
    """

    response_code = ResponseCode.TOPIC_NOT_EXIST
    retriable = True


class RouteTimeout(NoRoute, TimeoutError):
    """No name server answered in time where the topic is; check the addresses of name servers."""


class Full(ClientError, TimeoutError):
    """The maximum number of messages is in flight, and none of them ended in time.

    The message was not sent. The options ``in_flight_max`` and ``in_flight_bytes_max`` set the
    maximum.
    """

    retriable = True


class RequestRefused(ClientError, protocol.RequestRefused):
    """A server answered a request with an error.

    ``response_code`` is the code of the response, and the text has the server and its remark. The
    classes that inherit from this one are the refusals that programs usually distinguish.

    :param code: the response code.
    :param remark: the text, which names the server.
    """


class Denied(RequestRefused):
    """The account, the topic or the group does not have the permission for the request.

    Check the option ``credentials`` and the permissions of the topic at the broker.
    """


class TopicMissing(RequestRefused):
    """The broker does not know the topic and does not create it.

    ``twistmq admin updateTopic -c DefaultCluster -t TOPIC`` creates it.
    """


class Rejected(RequestRefused):
    """The broker considers the message illegal, for example because it is too large."""


class Busy(RequestRefused):
    """The broker is overloaded or does not serve requests at present; try again later."""

    retriable = True


class Unsupported(RequestRefused):
    """The server does not know the request, for example because its version is too old."""


class RemotingError(ClientError, protocol.RemotingError):
    """A request got no response; the text names the server. ``retriable`` is true.

    The server may have carried out the request, unless no connection could be made.
    """


class RemotingConnectError(RemotingError, protocol.RemotingConnectError):
    """No connection to the address could be made, so the server did not get the request."""


class ConnectTimeout(RemotingConnectError, TimeoutError):
    """No connection could be made within ``connect_timeout_s``, so no request was sent."""


class RemotingSendError(RemotingError, protocol.RemotingSendError):
    """The connection was lost before the response came.

    The server may have carried out the request.
    """


class RemotingTimeout(RemotingError, protocol.RemotingTimeout, TimeoutError):
    """The server did not respond within the time-out; it may still carry out the request."""


class ProtocolError(ClientError, protocol.WireError):
    """A server's response violates the protocol; perhaps the address is not RocketMQ's."""


class Attempt(msgspec.Struct, frozen=True):
    """One attempt of a send that failed.

    :param broker_name: the broker to which the message was sent; "" if no broker could be chosen.
    :param duration_ms: the duration of the attempt.
    :param error: why it failed.
    """

    broker_name: str
    duration_ms: float
    error: BaseException


class SendFailed(ClientError):
    """All attempts of a send failed.

    :param attempts: the attempts, in order.

    ``maybe_stored`` is true if one of the attempts may have stored the message: after a time-out
    or a lost connection. It is false if all attempts were refused or found no connection.

    If brokers refused all attempts with the same error, such as :class:`TopicMissing`, this is an
    error of that class too. If no attempt got its response in time, it is a ``TimeoutError``. It is
    ``retriable`` if one of the attempts was.
    """

    retriable = True

    def __new__(cls, topic: str, attempts: Sequence[Attempt]) -> Self:
        """Make an error, whose class depends on the attempts."""
        kind: type[Self] = _class_of(cls, _common_class(attempts))
        return super(SendFailed, kind).__new__(kind)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any] | None]:
        return SendFailed, (self.topic, self.attempts), self.__dict__

    def __init__(self, topic: str, attempts: list[Attempt]) -> None:
        reasons = "; ".join(f"{attempt.broker_name or 'no broker'} after "
                            f"{attempt.duration_ms:.0f} ms: {attempt.error}"
                            for attempt in attempts)
        # The class of the attempts may have a constructor with other arguments.
        self.args = (f"cannot send to topic {topic}: {reasons}",)
        self.topic = topic
        self.attempts = attempts
        self.retriable = not attempts or any(
            getattr(attempt.error, "retriable", True) for attempt in attempts)
        self.maybe_stored = any(
            isinstance(attempt.error, protocol.RemotingTimeout | protocol.RemotingSendError)
            for attempt in attempts)
        last = attempts[-1].error if attempts else None
        if isinstance(last, BrokerError):
            self.response_code = last.response_code


def _common_class(attempts: Sequence[Attempt]) -> type[BaseException] | None:
    """Return the class of refusal that all attempts share, ``TimeoutError``, or None."""
    kinds = {type(attempt.error) for attempt in attempts}
    if len(kinds) == 1 and issubclass(kind := next(iter(kinds)), RequestRefused):
        return kind
    return TimeoutError if kinds and all(issubclass(kind, TimeoutError) for kind in kinds) else None


#: The classes of failed sends that are also of another class.
_classes: Final[dict[tuple[type, type], type]] = {}


def _class_of(base: type[Any], kind: type[BaseException] | None) -> type[Any]:
    """Return a class of failed sends that is also of the given class."""
    if kind is None or issubclass(base, kind):
        return base
    known = _classes.get((base, kind))
    if known is None:
        known = _classes[(base, kind)] = type(base.__name__, (base, kind), {
            "__module__": base.__module__, "__doc__": base.__doc__})
    return known


class NotSafe(ClientError):
    """The message was stored, but the broker did not wait for a flush or a slave.

    Sends raise it only with the option ``require_safe``, and transactions always. ``result`` is
    the ``SendResult``, which a send without that option returns.

    :param result: where the message was stored.
    """

    def __init__(self, result: SendResult) -> None:
        super().__init__(f"{result.queue} offset {result.offset}: stored, but {result.status}")
        self.result = result


class Undecodable(ClientError):
    """A message cannot be decompressed, the decoder raised an error, or the record is damaged."""


class NotAssigned(ClientError):
    """The queue is not assigned to this consumer at present; another member may have it."""


class AlreadyHandled(NotAssigned):
    """The message does not wait for an acknowledgement, so none was made.

    It was acknowledged already, it has failed, or no iteration of this consumer returned it.
    """


class ReceiptExpired(ClientError):
    """A popped message was already acknowledged or given back, or its invisible time has ended.

    After the end of its invisible time the message is delivered again, perhaps to another member.
    """


class RequestTimeout(ClientError, TimeoutError):
    """No consumer replied in time to a message that ``Producer.request`` sent.

    A consumer may still process the message, so a second request may be processed as well.
    """

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


#: The number of characters of a remark that an error keeps, because errors are logged.
REMARK_MAX: Final = 2000


def refusal(code: int, remark: str | None, address: str) -> RequestRefused:
    """Return the error for a response that does not report success.

    :param code: the response code.
    """
    from twistmq.protocol.printable import one_line

    kind = _BY_CODE.get(code, RequestRefused)
    text = remark or "no remark"
    length = len(text)
    # Programs print and log errors, so the text of a server must not act on a terminal.
    text = one_line(text[:REMARK_MAX])
    if length > REMARK_MAX:
        text = f"{text}... ({length} characters)"
    return kind(code, f"{address} answered {code}: {text}")


def client_error(error: BaseException) -> BaseException:
    """Return the client's error for an error of the core, whose decoders raise server errors."""
    if not isinstance(error, BrokerError) or isinstance(error, ClientError):
        return error
    if isinstance(error, protocol.RequestRefused):
        return _BY_CODE.get(error.response_code, RequestRefused)(error.response_code, str(error))
    if isinstance(error, protocol.WireError):
        return ProtocolError(str(error))
    if isinstance(error, protocol.MessageIllegal | protocol.StoreDamaged):
        return Undecodable(str(error))
    return ClientError(str(error))
