"""The name servers of a client, and the order in which they are asked.

The list is fixed, or it is fetched again every two minutes from an address server by HTTP, or from
DNS. The first name server is chosen at random, so that many clients spread over all name servers.
Normally only one name server is asked. If it fails, the next name server is asked, and the failed
one moves to the end of the list for all later requests. A name server that has not answered for
half a second also moves to the end; the next one is then asked in addition, and the first answer
counts.

Source: NettyRemotingClient.getAndCreateNameserverChannel, MQClientAPIImpl.fetchNameServerAddr,
DefaultTopAddressing @5.3.3. Differs from Apache: its client waits for a silent name server for the
whole time of a request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from twistmq.client.base.errors import (
    RemotingConnectError,
    RemotingError,
    RemotingTimeout,
    Unsupported,
    refusal,
)
from twistmq.client.core.connection.engine import Engine
from twistmq.client.core.connection.loops import Loop
from twistmq.client.core.connection.tasks import Future
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import NOT_A_NAME_SERVER, WireError
from twistmq.protocol.header import CommandHeader

__all__ = ["NameServers"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")

#: The delay after the start and the interval at which an address server is asked, in ms.
#: Source: MQClientInstance.startScheduledTask.
FETCH_FIRST_MS: Final = 10_000
FETCH_MS: Final = 120_000
#: The wait before a name server is asked again after all of them have failed, in ms.
RETRY_WAIT_MS: Final = 200
#: The requests that every name server answers. A server that does not know one of them is another
#: kind of server.
_ALWAYS_SERVED: Final = frozenset({
    RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER})
#: How long a name server may be silent before the next one is asked too, in ms.
PATIENCE_MS: Final = 500


class NameServers:
    """The name servers of a client, in the order in which they are asked.

    :param addresses: the addresses, each as "host:port".
    :param url: the URL to ask for the list; "": the list is fixed.
    :param fetch: returns the list for a URL; it blocks, so it is called outside the engine.
    :param choose: returns a random number below its argument; chooses the first name server.
    """

    def __init__(
        self, engine: Engine, addresses: Sequence[str], url: str = "",
        fetch: Callable[[str], list[str]] | None = None, *,
        choose: Callable[[int], int] = lambda _: 0, timeout_ms: float = 3000, retries: int = 0,
    ) -> None:
        self._engine = engine
        self.addresses = list(addresses)
        self.timeout_ms = timeout_ms
        self.retries = retries
        self._url = url
        self._fetch = fetch
        first = choose(len(self.addresses)) if self.addresses else 0
        self.addresses = self.addresses[first:] + self.addresses[:first]
        if url:
            engine.tasks.spawn(self._follow(), "name server list")

    async def ask(
        self, code: int, header: CommandHeader | None = None, *,
        accepted_codes: tuple[int, ...] = (ResponseCode.SUCCESS,),
    ) -> RemotingCommand:
        """Ask one name server after another until one answers.

        :param accepted_codes: the response codes for which the response is returned.
        :raises RequestRefused: when the response has another code.
        :raises RemotingTimeout: when no name server answers in time; the text has all errors.
        :raises RemotingConnectError: when no name server answers for other reasons.
        """
        return await self.read(code, header, lambda reply: reply, accepted_codes=accepted_codes)

    async def read(
        self, code: int, header: CommandHeader | None, decode: Callable[[RemotingCommand], T], *,
        accepted_codes: tuple[int, ...] = (ResponseCode.SUCCESS,),
    ) -> T:
        """Like :meth:`ask`, but also try the next name server if a response cannot be decoded.

        :param decode: raises ``WireError`` when a response is invalid.
        :returns: the decoded answer.
        """
        if not self.addresses and self._url:
            await self._update()
        tasks = self._engine.tasks
        errors: list[str] = []
        #: Whether all errors are time-outs.
        is_late = True
        asked_addresses: set[str] = set()
        under_way: dict[str, Future[RemotingCommand]] = {}
        end_ms = tasks.now_ms + self.timeout_ms
        for _ in range(max(self.retries + 1, len(self.addresses))):
            address = self._next(asked_addresses)
            if address is None:
                await tasks.sleep(RETRY_WAIT_MS)
                if not self.addresses:
                    break
                address, end_ms = self.addresses[0], tasks.now_ms + self.timeout_ms
            asked_addresses.add(address)
            under_way[address] = self._engine.invoke(
                address, code, header, timeout_ms=max(end_ms - tasks.now_ms, 1))
            while under_way:
                is_last = self._next(asked_addresses) is None
                ended = await self._any(under_way, None if is_last else PATIENCE_MS)
                if ended is None:
                    self._put_last(address)
                    break
                try:
                    reply = under_way.pop(ended).result()
                    if reply.code not in accepted_codes:
                        refused = refusal(reply.code, reply.remark, ended)
                        if isinstance(refused, Unsupported) and code in _ALWAYS_SERVED:
                            raise RemotingConnectError(f"{refused}, {NOT_A_NAME_SERVER}")
                        raise refused
                    return decode(reply)
                except RemotingError as error:
                    errors.append(str(error))
                    is_late = is_late and isinstance(error, TimeoutError)
                except WireError as error:
                    is_late = False
                    errors.append(f"{ended}: its answer cannot be read: {error}")
                self._put_last(ended)
                if not is_last:
                    break
        kind = RemotingTimeout if errors and is_late else RemotingConnectError
        raise kind("no name server answers: "
                   + ("; ".join(dict.fromkeys(errors)) or "none is known"))

    def _next(self, asked_addresses: set[str]) -> str | None:
        """Return the first name server that was not asked; None when all were asked."""
        return next((each for each in self.addresses if each not in asked_addresses), None)

    async def _any(
        self, under_way: dict[str, Future[RemotingCommand]], patience_ms: float | None
    ) -> str | None:
        """Wait until a request ends, at most for ``patience_ms``.

        :returns: the name server whose request has ended; None when the time is over.
        """
        either: Future[None] = Future()

        def wake(_: Future[RemotingCommand]) -> None:
            either.set_result(None)

        timer = (None if patience_ms is None
                 else self._engine.tasks.call_later(patience_ms, either.set_result, None))
        for future in under_way.values():
            future.when_done(wake)
        try:
            await either
        finally:
            if timer is not None:
                timer.cancel()
            for future in under_way.values():
                future.forget(wake)
        return next((name for name, each in under_way.items() if each.is_done), None)

    def _put_last(self, address: str) -> None:
        if address in self.addresses:
            self.addresses.remove(address)
            self.addresses.append(address)

    async def _follow(self) -> None:
        """Fetch the list again and again."""
        await self._engine.tasks.sleep(FETCH_FIRST_MS)
        loop = Loop("the update of the name servers", None)
        while True:
            await loop.turn(self._update())
            await self._engine.tasks.sleep(FETCH_MS)

    async def _update(self) -> None:
        """Fetch the list; if there is no answer, the old list stays."""
        fetch = self._fetch
        assert fetch is not None
        try:
            addresses = await self._engine.in_thread(lambda: fetch(self._url))
        except (OSError, ValueError) as error:
            from twistmq.protocol.printable import one_line

            # The text of the error may come from the server.
            log.warning("%s returned no name servers: %s", self._url, one_line(str(error)))
            return
        if addresses and set(addresses) != set(self.addresses):
            log.info("the name servers are now %s", ";".join(addresses))
            self.addresses = list(addresses)
