"""Asks an address server for the name servers: by HTTP, one line with "host:port;host:port".

Source: DefaultTopAddressing, MixAll.getWSAddr, HttpTinyClient @5.3.3.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urljoin

from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import Agent, ResponseDone
from twisted.web.http import OK, PotentialDataLoss
from twisted.web.http_headers import Headers
from twisted.web.iweb import IResponse

from twistmq.broker.client.bounded_query import BoundedQuery
from twistmq.broker.client.http_errors import connect_error
from twistmq.protocol.addresses import ANSWER_SIZE_MAX, addresses_of_answer
from twistmq.protocol.errors import RemotingError, RemotingTooLong

__all__ = ["AddressServer"]

#: The time-out of an answer, including connection and redirections, seconds.
_TIMEOUT_SECONDS: Final = 3
#: The number of redirections that are followed, for these statuses.
_MOVES_MAX: Final = 3
_MOVED: Final = frozenset({301, 302, 303, 307, 308})


class _Body(Protocol):
    """Reads an answer up to its size limit; cancelling ``done`` closes the connection."""

    def __init__(self) -> None:
        self.done: Deferred[bytes] = Deferred(lambda _: self._close())
        self._data = bytearray()

    def dataReceived(self, data: bytes) -> None:
        self._data += data
        if len(self._data) > ANSWER_SIZE_MAX and not self.done.called:
            self._close()
            self.done.errback(RemotingTooLong(f"the answer has more than {ANSWER_SIZE_MAX} bytes"))

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self.done.called:
            return
        if reason.check(ResponseDone, PotentialDataLoss):
            # A server may end its answer by closing the connection.
            self.done.callback(bytes(self._data))
        else:
            self.done.errback(reason)

    def _close(self) -> None:
        if self.transport is not None:
            self.transport.loseConnection()


class AddressServer:
    """Queries address servers, one at a time."""

    def __init__(self, reactor: Any) -> None:
        self._question = BoundedQuery(reactor)
        self._agent = Agent(  # type: ignore[no-untyped-call]
            reactor, connectTimeout=_TIMEOUT_SECONDS)

    async def fetch(self, url: str) -> list[str]:
        """Request the addresses.

        :raises RemotingError: when there is no answer, or it is not a list of addresses.
        """
        asking = Deferred.fromCoroutine(self._get(url))
        try:
            return addresses_of_answer(await self._question.answer(asking, _TIMEOUT_SECONDS))
        except RemotingError:
            raise
        except ValueError as error:
            raise RemotingError(f"the answer cannot be used: {error}") from None
        except Exception as error:
            raise connect_error(error) from None

    def stop(self) -> None:
        """Stop waiting for an answer: the query in progress fails."""
        self._question.stop()

    async def _get(self, url: str) -> bytes:
        for _ in range(_MOVES_MAX + 1):
            response: IResponse = await self._agent.request(
                b"GET", url.encode(), Headers({"User-Agent": ["twistmq"]}))
            body = _Body()
            response.deliverBody(body)  # type: ignore[no-untyped-call]
            if response.code == OK:
                return await body.done
            body.done.addErrback(lambda _: None)
            body.done.cancel()
            if response.code not in _MOVED:
                raise RemotingError(f"the answer is HTTP status {response.code}")
            [where] = response.headers.getRawHeaders("location") or [""]
            url = urljoin(url, where)
        raise RemotingError(f"the answer is another page's address, {_MOVES_MAX + 1} times")
