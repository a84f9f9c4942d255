"""Name servers: which are asked, and in which order.

The list is fixed, or it is asked for again every two minutes: of an address server by HTTP, or of
DNS. One name server is asked at a time. The first is chosen at random, so that many clients
spread; one that fails gives way to the next for all later requests. One that has not answered for
half a second does so, too. The next one is asked then, and the first answer of both counts.

Source: NettyRemotingClient.getAndCreateNameserverChannel, MQClientAPIImpl.fetchNameServerAddr,
DefaultTopAddressing @5.3.3. Differs from Apache: its client gives a silent name server all the
time of a request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from twistmq.broker.codes import ResponseCode
from twistmq.broker.errors import RemotingConnectError, RemotingError, WireError
from twistmq.broker.wire.command import RemotingCommand
from twistmq.broker.wire.header import CommandHeader
from twistmq.client.core.engine import Engine
from twistmq.client.core.loops import Loop
from twistmq.client.core.tasks import Future
from twistmq.client.errors import refusal

__all__ = ["NameServers"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")

#: How long after the start, and how often, an address server is asked again, ms.
#: Source: MQClientInstance.startScheduledTask.
FETCH_FIRST_MS: Final = 10_000
FETCH_MS: Final = 120_000
#: How long a name server that failed is asked after the others, ms, when only one is left.
RETRY_WAIT_MS: Final = 200
#: How long a name server may be silent until the next one is asked too, ms.
PATIENCE_MS: Final = 500


class NameServers:
    """The name servers of a client, in the order in which they are asked.

    :param addresses: "host:port" each.
    :param url: to ask for the list; "": the list is fixed.
    :param fetch: gets the list of a URL; it blocks, so it is called outside the engine.
    :param choose: a random number below its argument; the first name server is chosen by it.
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
        taken: tuple[int, ...] = (ResponseCode.SUCCESS,),
    ) -> RemotingCommand:
        """Ask one name server after the other until one answers.

        :param taken: the codes of an answer that is returned.
        :raises RequestRefused: with another code.
        :raises RemotingConnectError: when none answers; the text has the error of each.
        """
        return await self.read(code, header, lambda reply: reply, taken=taken)

    async def read(
        self, code: int, header: CommandHeader | None, decode: Callable[[RemotingCommand], T], *,
        taken: tuple[int, ...] = (ResponseCode.SUCCESS,),
    ) -> T:
        """As :meth:`ask`; a name server whose answer cannot be decoded gives way to the next, too.

        :param decode: raises ``WireError`` for an answer that has no meaning.
        :returns: the decoded answer.
        """
        if not self.addresses and self._url:
            await self._update()
        tasks = self._engine.tasks
        errors: list[str] = []
        asked: set[str] = set()
        under_way: dict[str, Future[RemotingCommand]] = {}
        end_ms = tasks.now_ms + self.timeout_ms
        for _ in range(max(self.retries + 1, len(self.addresses))):
            address = self._next(asked)
            if address is None:
                await tasks.sleep(RETRY_WAIT_MS)
                if not self.addresses:
                    break
                address, end_ms = self.addresses[0], tasks.now_ms + self.timeout_ms
            asked.add(address)
            under_way[address] = self._engine.invoke(
                address, code, header, timeout_ms=max(end_ms - tasks.now_ms, 1))
            while under_way:
                is_last = self._next(asked) is None
                ended = await self._any(under_way, None if is_last else PATIENCE_MS)
                if ended is None:
                    self._put_last(address)
                    break
                try:
                    reply = under_way.pop(ended).result()
                    if reply.code not in taken:
                        raise refusal(reply.code, reply.remark, ended)
                    return decode(reply)
                except RemotingError as error:
                    errors.append(str(error))
                except WireError as error:
                    errors.append(f"{ended}: its answer cannot be read: {error}")
                self._put_last(ended)
                if not is_last:
                    break
        raise RemotingConnectError("no name server answers: "
                                   + ("; ".join(dict.fromkeys(errors)) or "none is known"))

    def _next(self, asked: set[str]) -> str | None:
        """The first name server that was not asked; None when all were."""
        return next((each for each in self.addresses if each not in asked), None)

    async def _any(
        self, under_way: dict[str, Future[RemotingCommand]], patience_ms: float | None
    ) -> str | None:
        """Wait for the end of a request, at most for some milliseconds.

        :returns: the name server whose request ended; None when the time is over.
        """
        either: Future[None] = Future()

        def wake(_: Future[RemotingCommand]) -> None:
            either.set_result(None)

        timer = (None if patience_ms is None
                 else self._engine.tasks.later(patience_ms, either.set_result, None))
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
        """Ask for the list again and again."""
        await self._engine.tasks.sleep(FETCH_FIRST_MS)
        loop = Loop("the question for the name servers", None)
        while True:
            await loop.turn(self._update())
            await self._engine.tasks.sleep(FETCH_MS)

    async def _update(self) -> None:
        """Ask for the list; without an answer the old one stays."""
        fetch = self._fetch
        assert fetch is not None
        try:
            found = await self._engine.in_thread(lambda: fetch(self._url))
        except (OSError, ValueError) as error:
            from twistmq.broker.printable import one_line

            # Its text may be the server's.
            log.warning("%s gives no name servers: %s", self._url, one_line(str(error)))
            return
        if found and set(found) != set(self.addresses):
            log.info("the name servers are now %s", ";".join(found))
            self.addresses = list(found)
