"""The requests of a broker to name servers: registering, unregistering, and queries.

Each registration is sent to all name servers at once, and a failure does not delay the requests to
the other name servers. A silent name server is waited for once, for two seconds. After that, its
registrations continue in the background, one at a time, and it is the last one to be queried, until
it answers.

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
from twistmq.protocol.errors import (
    NOT_A_NAME_SERVER,
    BrokerError,
    RemotingTimeout,
    RequestRefused,
)
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

#: The time for which a registration waits for a silent name server, ms. A command that creates a
#: topic waits for the registration, and the client of the command waits for three seconds.
_SILENCE_MS: Final = 2000
#: The time for which a stopping broker waits for a name server that was silent before, ms.
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
    #: The configuration of ordered topics: topic to "broker:queues;...".
    order_topics: dict[str, str]


class _Registrar:
    """The registrations with one name server: one at a time, and then only the newest one.

    :param work: makes the registration ``one``; it does not raise.
    """

    def __init__(self, work: Callable[[_Registrar], Coroutine[Any, Any, None]], name: str) -> None:
        #: The newest registration; it is set before it is requested.
        self.one: Callable[[], Coroutine[Any, Any, Registered | None]]
        #: The name server's answer to the last registration, if there was one.
        self.answer: Registered | None = None
        self.soon = Soon(lambda: work(self), name)


class NameServers:
    """The name servers with which one broker registers.

    :param addresses: a list of "host:port", which may be replaced at any time.

    ``on_late`` is called when a name server answers a registration that continued without it. Its
    argument contains the newest answer of each name server, in the order of their addresses.
    """

    log = Logger()

    def __init__(
        self, client: RemotingClient, addresses: Sequence[str], reactor: IReactorTime
    ) -> None:
        self._client = client
        self._reactor = reactor
        self.addresses = list(addresses)
        #: Name servers that did not get the last registration, and the reasons.
        self.unreached: dict[str, str] = {}
        #: Name servers that got the plain body of the last registration, and their reasons to
        #: refuse the complete one.
        self.told_less: dict[str, str] = {}
        self._less: dict[str, str] = {}
        #: Name servers that left a request unanswered, and every request since.
        self.silent: set[str] = set()
        self.on_late: Callable[[list[Registered]], object] = lambda _: None
        self._tellings: dict[str, _Registrar] = {}
        self._is_leaving = False

    async def register(
        self, identity: BrokerIdentity, body: bytes, *,
        timeout_ms: int, compressed: bool = False, oneway: bool = False,
        heartbeat_timeout_ms: int | None = None, enable_acting_master: bool = False,
        plain: Callable[[], bytes] | None = None,
    ) -> list[Registered]:
        """Register with every name server.

        :param body: a RegisterBrokerBody, ``compressed`` or not.
        :param heartbeat_timeout_ms: the silence after which they remove the broker; None for the
            default of the name server.
        :param enable_acting_master: whether a slave may stand in for its master.
        :param plain: encodes a body with the topics alone. A name server that refuses ``body`` gets
            this one instead, because one bad table must not hide all topics from their clients.
        :returns: the answers that were received.
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
        for faults in (self.unreached, self._less):
            for address in faults.keys() - self._tellings.keys():
                del faults[address]
        waits = []
        for address, telling in self._tellings.items():
            telling.one = partial(one, address)
            waits.append(self._wait(address, telling.soon.ask()))
        try:
            answered = await gatherResults(waits, consumeErrors=True)
        except FirstError as error:
            # The caller handles the original exception, such as a cancellation, not its wrapper.
            error.subFailure.raiseException()
        self._note_told_less(dict(self._less))
        return [telling.answer
                for telling, is_answered in zip(self._tellings.values(), answered, strict=True)
                if is_answered and telling.answer is not None]

    def _telling(self, address: str) -> _Registrar:
        return self._tellings.get(address) or _Registrar(
            partial(self._tell, address), f"the registration with {address}")

    async def _tell(self, address: str, telling: _Registrar) -> None:
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

    def _wait(self, address: str, registration: Deferred[None]) -> Deferred[bool]:
        """Wait for the end of a registration, unless the name server is silent.

        :returns: whether the registration ended.
        """
        ended: Deferred[bool] = Deferred()
        if address in self.silent and not registration.called:
            ended.callback(False)
            return ended

        def give_up() -> None:
            ended.callback(False)
            if address in self.silent:
                # Another registration has waited for it, and logged this.
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
        registration.addCallback(lambda _: None if ended.called else ended.callback(True))
        return ended

    def _has_answered(self, address: str) -> None:
        self.silent.discard(address)
        self.unreached.pop(address, None)

    def _note_told_less(self, told_less: dict[str, str]) -> None:
        """Log once when name servers begin to refuse a part, and once when they accept it again."""
        if told_less and not self.told_less:
            address, why = next(iter(told_less.items()))
            self.log.error(
                "the queues of static topics, and other data that plugins add to topics, are left "
                "out of the registration with name server {address}, which refuses them: {why}",
                address=address, why=why)
        elif self.told_less and not told_less:
            self.log.info("the data that plugins add to topics is registered again")
        self.told_less = told_less

    async def unregister(self, identity: BrokerIdentity, *, timeout_ms: int) -> None:
        """Unregister this broker from every name server."""
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
        """Whether any name server has a different version of the topics, or cannot be queried."""
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
        """Query the name servers for the route of a topic, one at a time.

        :returns: the route; None when the first name server that answers does not know the topic.
        :raises BrokerError: when no name server answers.
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
        """Query the name servers for the master of a broker name, one at a time.

        :returns: its "host:port"; None when the name servers that answer do not know it.
        :raises BrokerError: when no name server answers.
        """
        members = await self._find(broker_name, timeout_ms, lambda brokers: MASTER_ID in brokers)
        return members.get(MASTER_ID)

    async def find_members(self, broker_name: str, *, timeout_ms: int) -> dict[int, str]:
        """Query the name servers for the brokers with a name, one at a time.

        :returns: "host:port" by broker id; empty when the name servers that answer know none.
        :raises BrokerError: when no name server answers.
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
        """Query the name servers one at a time; :returns: the first reply, whatever its code.

        :raises BrokerError: when no name server answers.
        """
        return await self._first(
            lambda address, share_ms: self._client.invoke(
                address, code, header, timeout_ms=share_ms), timeout_ms)

    async def _first(
        self, one: Callable[[str, int], Coroutine[Any, Any, T]], timeout_ms: int
    ) -> T:
        """Run ``one`` for one address at a time; :returns: the first result.

        :param one: called with an address and its share of the time, ms.
        :raises BrokerError: the last failure, when all of them fail.
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
        """Yield the addresses to query, silent ones last, each with its share of the time left.

        The share is a half or a third as long as other addresses remain.
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

    async def notify(
        self, code: int, header: CommandHeader, body: bytes = b"", *, timeout_ms: int
    ) -> None:
        """Send a one-way request to all name servers.

        A name server that cannot be reached within ``timeout_ms`` does not get it; the next
        registration reports that it is unreachable.
        """
        async def one(address: str) -> None:
            try:
                await self._client.invoke_oneway(
                    address, code, header, body, timeout_ms=timeout_ms)
            except BrokerError as error:
                self.log.debug("request {code} was not sent to name server {address}: {error}",
                               address=address, code=code, error=str(error))

        await gatherResults([Deferred.fromCoroutine(one(each)) for each in self.addresses],
                            consumeErrors=True)

    async def _each(
        self, what: str, one: Callable[[str], Coroutine[Any, Any, T]]
    ) -> list[T]:
        """Run ``one`` for all addresses at once.

        :returns: the results of the calls that did not fail.
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
    """Return the checksum of a body in the form of the registration's header."""
    return zlib.crc32(body) & 0x7FFFFFFF


def _require_success(reply: RemotingCommand, address: str) -> None:
    """Raise an error for a response to a request that every name server serves."""
    if reply.code == ResponseCode.SUCCESS:
        return
    text = f"{address} answered {reply.code}: {(reply.remark or 'no remark').strip()}"
    if reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        text += f", {NOT_A_NAME_SERVER}"
    raise RequestRefused(reply.code, text)

