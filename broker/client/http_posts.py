"""Sends data to other servers by HTTP, such as a collector of metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import Agent
from twisted.web.http_headers import Headers
from twisted.web.iweb import IBodyProducer
from zope.interface import implementer

from twistmq.broker.client.bounded_query import BoundedQuery
from twistmq.broker.client.http_errors import connect_error
from twistmq.protocol.errors import RemotingError

if TYPE_CHECKING:
    from twisted.internet.interfaces import IConsumer
    from twisted.web.iweb import IResponse

__all__ = ["post_http"]


@implementer(IBodyProducer)
class _WholeBody:
    """Sends a body in one write; the library's own producer needs the reactor of the process."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.length = len(body)

    def startProducing(self, consumer: IConsumer) -> Deferred[None]:
        consumer.write(self._body)
        return succeed(None)

    def pauseProducing(self) -> None:
        """Do nothing, because everything is written."""

    def resumeProducing(self) -> None:
        """Do nothing, because everything is written."""

    def stopProducing(self) -> None:
        """Do nothing, because everything is written."""


class _UnreadText(Protocol):
    """Closes the connection instead of reading the text of an answer."""

    def __init__(self) -> None:
        self.closed: Deferred[None] = Deferred()

    def connectionMade(self) -> None:
        if self.transport is not None:
            self.transport.loseConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if not self.closed.called:
            self.closed.callback(None)


async def post_http(
    reactor: Any, url: str, headers: Mapping[str, str], body: bytes, timeout_ms: int
) -> int:
    """Send a body by a POST request, on a connection of its own; cancel it to give up.

    :param url: an address that begins with http: or https:; the latter needs pyOpenSSL.
    :param timeout_ms: how long the connection and the answer may take together.
    :returns: the HTTP status of the answer; its text is not read.
    :raises RemotingTimeout: when there is no answer in time.
    :raises RemotingConnectError: when no connection can be made, or it is lost.
    """
    seconds = timeout_ms / 1000
    agent = Agent(reactor, connectTimeout=seconds)  # type: ignore[no-untyped-call]

    async def ask() -> int:
        response: IResponse = await agent.request(
            b"POST", url.encode(), Headers({"User-Agent": ["twistmq"], **{
                name: [value] for name, value in headers.items()}}), _WholeBody(body))
        text = _UnreadText()
        response.deliverBody(text)  # type: ignore[no-untyped-call]
        await text.closed
        return int(response.code)

    try:
        return await BoundedQuery(reactor).answer(Deferred.fromCoroutine(ask()), seconds)
    except RemotingError:
        raise
    except Exception as error:
        raise connect_error(error) from None
