"""Name servers: which are asked, and in which order.

The list is fixed, or it is asked for again every two minutes: of an address server by HTTP, or of
DNS. One name server is asked at a time. The first is chosen at random, so that many clients
spread; one that fails gives way to the next for all later requests. While others are left to ask,
one has a half or a third of a request's time.

Source: NettyRemotingClient.getAndCreateNameserverChannel, MQClientAPIImpl.fetchNameServerAddr,
DefaultTopAddressing @5.3.3.
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
        errors: list[str] = []
        for attempt in range(max(self.retries + 1, len(self.addresses))):
            if attempt >= len(self.addresses):
                await self._engine.tasks.sleep(RETRY_WAIT_MS)
            if not self.addresses:
                break
            address = self.addresses[0]
            # One that is silent leaves time for the others, within the time of a send.
            timeout_ms = self.timeout_ms / max(min(len(self.addresses) - attempt, 3), 1)
            try:
                reply = await self._engine.invoke(address, code, header, timeout_ms=timeout_ms)
                if reply.code not in taken:
                    raise refusal(reply.code, reply.remark, address)
                return decode(reply)
            except RemotingError as error:
                errors.append(str(error))
            except WireError as error:
                errors.append(f"{address}: its answer cannot be read: {error}")
            self._put_last(address)
        raise RemotingConnectError("no name server answers: "
                                   + ("; ".join(dict.fromkeys(errors)) or "none is known"))

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
            log.warning("%s gives no name servers: %s", self._url, error)
            return
        if found and set(found) != set(self.addresses):
            log.info("the name servers are now %s", ";".join(found))
            self.addresses = list(found)
