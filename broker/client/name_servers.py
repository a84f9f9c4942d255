"""The requests of a broker to name servers: registration, its end, and questions.

Each registration goes to all name servers at once, and one that fails does not hold up the others.
A name server that is silent is waited for once, for two seconds. After that its registrations go on
in the background, one at a time, and it is the last one to be asked a question, until it answers.

Source: BrokerOuterAPI, BrokerController.registerBrokerAll @5.3.3. Differs from Apache: its broker
waits up to 24 s for a silent name server, and so does each command that makes a topic.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from msgspec.structs import replace
from twisted.internet.defer import Deferred, FirstError, gatherResults
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twistmq.broker.client.remoting_client import RemotingClient
from twistmq.broker.scheduling.soon import Soon
from twistmq.protocol.bodies import (
    ClusterInfo,
    DataVersion,
    KVTable,
    TopicRouteData,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import BrokerError, RemotingTimeout, RequestRefused
from twistmq.protocol.flags import MASTER_ID
from twistmq.protocol.header import CommandHeader
from twistmq.protocol.headers.namesrv import (
    GetRouteInfoRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)

__all__ = ["BrokerIdentity", "NameServers", "Registered"]

T = TypeVar("T")

#: How long a registration waits for a name server that is silent, ms. A command that makes a topic
#: waits for the registration, and the client of the command waits for three seconds.
_SILENCE_MS: Final = 2000
#: How long a broker that stops waits for a name server that was silent before, ms.
_LAST_WORD_MS: Final = 500


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """The identity of a registering broker."""

    cluster_name: str
    broker_name: str
    broker_id: int
    #: "ip:port" of the broker and of its replication port.
    broker_address: str
    ha_address: str


@dataclass(frozen=True, slots=True)
class Registered:
    """The answer of a name server to a registration."""

    master_address: str | None
    ha_address: str | None
    #: The order topics' configuration: topic to "broker:queues;...".
    order_topics: dict[str, str]


class _Telling:
    """The registrations with one name server: one at a time, and then the newest.

    :param work: makes the registration ``one``; it does not raise.
    """

    def __init__(self, work: Callable[[_Telling], Coroutine[Any, Any, None]], name: str) -> None:
        #: The newest registration; it is set before it is asked for.
        self.one: Callable[[], Coroutine[Any, Any, Registered | None]]
        #: What the name server answered to the last registration, if it did.
        self.answer: Registered | None = None
        self.soon = Soon(lambda: work(self), name)


class NameServers:
    """The name servers one broker reports to.

    :param addresses: "host:port" each; may be replaced at any time.

    ``on_late`` is called when a name server answers a registration that went on without it. Its
    argument is the newest answer of each name server, in the order of their addresses.
    """

    log = Logger()

    def __init__(
        self, client: RemotingClient, addresses: Sequence[str], reactor: IReactorTime
    ) -> None:
        self._client = client
        self._reactor = reactor
        self.addresses = list(addresses)
        #: Those that could not be told by the last registration, and why.
        self.unreached: dict[str, str] = {}
        #: Those that took the plain body of the last registration, and why they refused the other.
        self.told_less: dict[str, str] = {}
        self._less: dict[str, str] = {}
        #: Those that left a request unanswered and have answered none since.
        self.silent: set[str] = set()
        self.on_late: Callable[[list[Registered]], object] = lambda _: None
        self._tellings: dict[str, _Telling] = {}
        self._is_leaving = False

    async def register(
        self, identity: BrokerIdentity, body: bytes, *,
        timeout_ms: int, compressed: bool = False, oneway: bool = False,
        heartbeat_timeout_ms: int | None = None, enable_acting_master: bool = False,
        plain: Callable[[], bytes] | None = None,
    ) -> list[Registered]:
        """Register with every name server.

        :param body: a RegisterBrokerBody, ``compressed`` or not.
        :param heartbeat_timeout_ms: the silence after which they forget the broker; None: theirs.
        :param enable_acting_master: whether a slave may stand in for its master.
        :param plain: encodes a body with the topics alone. A name server that refuses ``body`` is
            told this one: one bad table must not keep all topics from their clients.
        :returns: the answers of those that gave one.
        """
        header = RegisterBrokerRequestHeader(
            broker_name=identity.broker_name, broker_addr=identity.broker_address,
            cluster_name=identity.cluster_name, ha_server_addr=identity.ha_address,
            broker_id=identity.broker_id, heartbeat_timeout_millis=heartbeat_timeout_ms,
            enable_acting_master=enable_acting_master, compressed=compressed,
            body_crc32=_crc(body))

        async def one(address: str) -> Registered | None:
            self._less.pop(address, None)
            if oneway:
                await self._client.invoke_oneway(
                    address, RequestCode.REGISTER_BROKER, header, body)
                return None
            reply = await self._client.invoke(address, RequestCode.REGISTER_BROKER, header, body,
                                              timeout_ms=timeout_ms)
            if reply.code != ResponseCode.SUCCESS and plain is not None:
                less = plain()
                if less != body:
                    remark = str(reply.remark or reply.code)
                    reply = await self._client.invoke(
                        address, RequestCode.REGISTER_BROKER,
                        replace(header, body_crc32=_crc(less)), less, timeout_ms=timeout_ms)
                    if reply.code == ResponseCode.SUCCESS:
                        self._less[address] = remark
            _require_success(reply, address)
            answer = reply.header(RegisterBrokerResponseHeader)
            table = KVTable.decode(reply.body).table if reply.body else {}
            self.log.debug("registered with name server {address}", address=address)
            return Registered(answer.master_addr, answer.ha_server_addr, table)

        self._tellings = {address: self._telling(address) for address in self.addresses}
        for known in (self.unreached, self._less):
            for address in known.keys() - self._tellings.keys():
                del known[address]
        waits = []
        for address, telling in self._tellings.items():
            telling.one = partial(one, address)
            waits.append(self._wait(address, telling.soon.ask()))
        try:
            answered = await gatherResults(waits, consumeErrors=True)
        except FirstError as error:
            # The caller knows what it is, a cancellation for one, and not what it is wrapped in.
            error.subFailure.raiseException()
        self._note_told_less(dict(self._less))
        return [telling.answer
                for telling, is_answered in zip(self._tellings.values(), answered, strict=True)
                if is_answered and telling.answer is not None]

    def _telling(self, address: str) -> _Telling:
        return self._tellings.get(address) or _Telling(
            partial(self._tell, address), f"the registration with {address}")

    async def _tell(self, address: str, telling: _Telling) -> None:
        """Make the newest registration with one name server."""
        was_silent, telling.answer = address in self.silent, None
        try:
            answer = await telling.one()
        except BrokerError as error:
            self._less.pop(address, None)
            self.unreached[address] = str(error)
            if isinstance(error, RemotingTimeout):
                self.silent.add(address)
            if not self._is_leaving:
                self.log.warn("cannot register with name server {address}: {error}",
                              address=address, error=str(error))
            return
        is_late = was_silent or address in self.silent
        self._has_answered(address)
        telling.answer = answer
        if is_late and answer is not None and not self._is_leaving:
            self._note_told_less(dict(self._less))
            self.on_late([each.answer for each in self._tellings.values()
                          if each.answer is not None])

    def _wait(self, address: str, told: Deferred[None]) -> Deferred[bool]:
        """Wait for the end of a registration, unless the name server is silent.

        :returns: whether the registration ended.
        """
        ended: Deferred[bool] = Deferred()
        if address in self.silent and not told.called:
            ended.callback(False)
            return ended

        def give_up() -> None:
            ended.callback(False)
            if address in self.silent:
                # Another registration has waited for it, and said so.
                return
            self.silent.add(address)
            self.unreached[address] = f"no answer within {_SILENCE_MS / 1000:g} s"
            self.log.warn(
                "name server {address} has not answered a registration for {seconds:g} s; topics "
                "are registered with it in the background until it answers", address=address,
                seconds=_SILENCE_MS / 1000)

        timer = self._reactor.callLater(_SILENCE_MS / 1000, give_up)

        def stop(result: T) -> T:
            if timer.active():
                timer.cancel()
            return result

        ended.addBoth(stop)
        told.addCallback(lambda _: None if ended.called else ended.callback(True))
        return ended

    def _has_answered(self, address: str) -> None:
        self.silent.discard(address)
        self.unreached.pop(address, None)

    def _note_told_less(self, told_less: dict[str, str]) -> None:
        """Say once when name servers begin and when they cease to refuse a part."""
        if told_less and not self.told_less:
            address, why = next(iter(told_less.items()))
            self.log.error(
                "the queues of static topics, and what else plugins tell of topics, are left out "
                "of the registration with name server {address}, which refuses them: {why}",
                address=address, why=why)
        elif self.told_less and not told_less:
            self.log.info("all that plugins tell of topics is registered again")
        self.told_less = told_less

    async def unregister(self, identity: BrokerIdentity, *, timeout_ms: int) -> None:
        """Tell every name server that this broker goes."""
        self._is_leaving = True
        header = UnRegisterBrokerRequestHeader(
            broker_name=identity.broker_name, broker_addr=identity.broker_address,
            cluster_name=identity.cluster_name, broker_id=identity.broker_id)

        async def one(address: str) -> None:
            reply = await self._client.invoke(
                address, RequestCode.UNREGISTER_BROKER, header,
                timeout_ms=min(timeout_ms, _LAST_WORD_MS) if address in self.silent else timeout_ms)
            _require_success(reply, address)

        await self._each("unregister from", one)

    async def need_register(
        self, identity: BrokerIdentity, version: DataVersion, *, timeout_ms: int
    ) -> bool:
        """Whether any name server knows other topics than ours, or cannot be asked."""
        header = QueryDataVersionRequestHeader(
            broker_name=identity.broker_name, broker_addr=identity.broker_address,
            cluster_name=identity.cluster_name, broker_id=identity.broker_id)
        body = version.encode()

        async def one(address: str) -> bool:
            if address in self.silent:
                return True
            try:
                reply = await self._client.invoke(
                    address, RequestCode.QUERY_DATA_VERSION, header, body,
                    timeout_ms=min(timeout_ms, _SILENCE_MS))
            except RemotingTimeout:
                self.silent.add(address)
                raise
            _require_success(reply, address)
            if reply.header(QueryDataVersionResponseHeader).changed is not False:
                return True
            return not reply.body or DataVersion.decode(reply.body) != version

        answers = await self._each("ask the data version of", one)
        return len(answers) < len(self.addresses) or any(answers)

    async def find_route(self, topic: str, *, timeout_ms: int) -> TopicRouteData | None:
        """Ask one name server after the other where a topic is.

        :returns: None when the first that answers knows no such topic.
        :raises BrokerError: when none answers.
        """
        header = GetRouteInfoRequestHeader(topic=topic)

        async def one(address: str, share_ms: int) -> TopicRouteData | None:
            reply = await self._client.invoke(
                address, RequestCode.GET_ROUTEINFO_BY_TOPIC, header, timeout_ms=share_ms)
            if reply.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            _require_success(reply, address)
            return TopicRouteData.decode(reply.body)

        return await self._first(one, timeout_ms)

    async def find_broker(self, broker_name: str, *, timeout_ms: int) -> str | None:
        """Ask one name server after the other where the master of a broker name is.

        :returns: its "host:port"; None when those that answer do not know it.
        :raises BrokerError: when none answers.
        """
        members = await self._find(broker_name, timeout_ms, lambda found: MASTER_ID in found)
        return members.get(MASTER_ID)

    async def find_members(self, broker_name: str, *, timeout_ms: int) -> dict[int, str]:
        """Ask one name server after the other where the brokers of a name are.

        :returns: "host:port" by broker id; empty when those that answer know none.
        :raises BrokerError: when none answers.
        """
        return await self._find(broker_name, timeout_ms, bool)

    async def _find(
        self, broker_name: str, timeout_ms: int, is_enough: Callable[[dict[int, str]], bool]
    ) -> dict[int, str]:
        failure: BrokerError | None = BrokerError("there are no name servers")
        for address, share_ms in self._in_order(timeout_ms):
            try:
                reply = await self._client.invoke(
                    address, RequestCode.GET_BROKER_CLUSTER_INFO, None, timeout_ms=share_ms)
                self.silent.discard(address)
                _require_success(reply, address)
                data = ClusterInfo.decode(reply.body).broker_addr_table.get(broker_name)
            except BrokerError as error:
                self._note_silence(address, error)
                failure = failure and error
                continue
            failure = None
            if data is not None and is_enough(data.broker_addrs):
                return data.broker_addrs
        if failure is not None:
            raise failure
        return {}

    async def ask(
        self, code: int, header: CommandHeader, *, timeout_ms: int
    ) -> RemotingCommand:
        """Ask one name server after the other; :returns: the first reply, whatever its code.

        :raises BrokerError: when none answers.
        """
        return await self._first(
            lambda address, share_ms: self._client.invoke(
                address, code, header, timeout_ms=share_ms), timeout_ms)

    async def _first(
        self, one: Callable[[str, int], Coroutine[Any, Any, T]], timeout_ms: int
    ) -> T:
        """Run ``one`` for one address after the other; :returns: the first result.

        :param one: is called with an address and its share of the time, ms.
        :raises BrokerError: the last failure, when all fail.
        """
        failure = BrokerError("there are no name servers")
        for address, share_ms in self._in_order(timeout_ms):
            try:
                result = await one(address, share_ms)
            except BrokerError as error:
                self._note_silence(address, error)
                failure = error
            else:
                self.silent.discard(address)
                return result
        raise failure

    def _in_order(self, timeout_ms: int) -> Iterator[tuple[str, int]]:
        """The addresses to ask, silent ones last, each with its share of the time that is left.

        While others are left to ask, that is a half or a third.
        """
        begin = self._reactor.seconds()
        order = sorted(self.addresses, key=self.silent.__contains__)
        for number, address in enumerate(order):
            left_ms = timeout_ms - int((self._reactor.seconds() - begin) * 1000)
            yield address, max(left_ms // min(len(order) - number, 3), 1)

    def _note_silence(self, address: str, error: BrokerError) -> None:
        if isinstance(error, RemotingTimeout):
            self.silent.add(address)
        elif isinstance(error, RequestRefused):
            self.silent.discard(address)

    async def tell(
        self, code: int, header: CommandHeader, body: bytes = b"", *, timeout_ms: int
    ) -> None:
        """Send all name servers a request that is not answered.

        One that cannot be reached within ``timeout_ms`` gets none: the next registration says so.
        """
        async def one(address: str) -> None:
            try:
                await self._client.invoke_oneway(
                    address, code, header, body, timeout_ms=timeout_ms)
            except BrokerError as error:
                self.log.debug("name server {address} is not told request {code}: {error}",
                               address=address, code=code, error=str(error))

        await gatherResults([Deferred.fromCoroutine(one(each)) for each in self.addresses],
                            consumeErrors=True)

    async def _each(
        self, what: str, one: Callable[[str], Coroutine[Any, Any, T]]
    ) -> list[T]:
        """Run ``one`` for all addresses at once.

        :returns: the results that are no failures.
        """
        results: list[T] = []

        async def guarded(address: str) -> None:
            try:
                results.append(await one(address))
            except BrokerError as error:
                self.log.warn("cannot {what} name server {address}: {error}", what=what,
                              address=address, error=str(error))

        await gatherResults([Deferred.fromCoroutine(guarded(a)) for a in self.addresses],
                            consumeErrors=True)
        return results


def _crc(body: bytes) -> int:
    """The checksum of a body as the header of a registration has it."""
    return zlib.crc32(body) & 0x7FFFFFFF


def _require_success(reply: RemotingCommand, address: str) -> None:
    if reply.code != ResponseCode.SUCCESS:
        raise RequestRefused(reply.code, f"{address} answered {reply.code}: {reply.remark}")

