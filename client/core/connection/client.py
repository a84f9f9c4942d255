"""The core of a client: engine, routes, groups and heartbeats, shared by producers and consumers.

All producers and consumers of one client share one connection for each address and one heartbeat.
A heartbeat is sent a second after the start, then every 30 s, and to each broker as soon as a
connection to it opens. It goes to masters, and while the client has consumers also to slaves.

Source: MQClientInstance, ClientConfig, MQClientAPIImpl @5.3.3; client notes 1.1.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import msgspec

from twistmq.client.base.errors import (
    Closed,
    NoRoute,
    OptionError,
    RemotingError,
    RequestRefused,
    refusal,
)
from twistmq.client.base.interceptors import Interceptors
from twistmq.client.base.namespace import Namespace
from twistmq.client.core.connection.engine import Connection, Engine
from twistmq.client.core.connection.loops import Loop
from twistmq.client.core.connection.name_servers import NameServers
from twistmq.client.core.connection.routes import POLL_MS, Routes
from twistmq.client.core.connection.tasks import Clock, Future
from twistmq.protocol.bodies import ConsumerData, HeartbeatData, MessageQueue, ProducerData
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import BrokerError
from twistmq.protocol.flags import MASTER_ID
from twistmq.protocol.header import CommandHeader

if TYPE_CHECKING:
    from twistmq.protocol.signature import Credentials

__all__ = ["ClientCore", "ClientOptions", "GroupMember"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")

#: The time of the first heartbeat and the interval between heartbeats, in ms.
HEARTBEAT_FIRST_MS: Final = 1000
HEARTBEAT_MS: Final = 30_000
#: The time-out of a heartbeat, and of an unregistration with the heartbeat before it, in ms.
_HEARTBEAT_TIMEOUT_MS: Final = 3000
#: The time-out of an unregistration after a heartbeat without a response, in ms.
_UNREGISTER_TIMEOUT_MIN_MS: Final = 100


class ClientOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a client; all times are in ms."""

    name_servers: tuple[str, ...]
    #: The URL to ask for name servers; "": the list is fixed.
    name_server_url: str = ""
    namespace: str = ""
    #: Whether requests carry the namespace in their own field (5.1 and later) and names stay
    #: unchanged.
    namespace_v2: bool = False
    credentials: Credentials | None = None
    #: The id by which brokers know the client.
    client_id: str
    #: The time-out of one request.
    timeout_ms: float = 3000
    connect_timeout_ms: float = 3000
    #: How often a request without an answer is tried again, and the wait before that.
    retries: int = 2
    retry_wait_ms: float = 200
    heartbeat_ms: float = HEARTBEAT_MS
    route_poll_ms: float = POLL_MS


class GroupMember(Protocol):
    """A producer or a consumer of the client, as heartbeats describe it."""

    #: The kind of member in errors; a client has one member of a kind and group.
    kind: str
    group: str
    #: The time-out of the program's sends, in ms; 0 if the program sends nothing with it.
    send_timeout_ms: float

    def producer_data(self) -> ProducerData | None:
        """Return the member's part of a heartbeat as a producer."""

    def consumer_data(self) -> ConsumerData | None:
        """Return the member's part of a heartbeat as a consumer."""

    async def finish(self) -> None:
        """Send pending messages and results to the brokers, because the program ends."""


class ClientCore:
    """A client.

    :param clock: the process's clocks, or a test's.
    :param randrange: returns a random number below its argument.
    :param interceptors: objects that see each message as it is sent or consumed.
    :param fetch: asks for name servers and blocks; see ``twistmq.client.shell.lookup``.

    The functions in ``on_heartbeat`` are called with a broker's address after the broker accepted
    a heartbeat. The functions in ``on_close`` are called when the client is closed, before its
    connections are closed. The functions in ``before_close`` are awaited while the client still
    works.
    """

    def __init__(
        self, options: ClientOptions, clock: Clock, randrange: Callable[[int], int],
        fetch: Callable[[str], list[str]] | None = None,
        interceptors: Interceptors | None = None,
    ) -> None:
        self.options = options
        self.interceptors = interceptors or Interceptors(())
        self.engine = Engine(clock, credentials=options.credentials,
                             connect_timeout_ms=options.connect_timeout_ms,
                             extra_fields=_namespace_fields(options))
        if self.interceptors:
            self.engine.on_request = self._requested
        self.tasks = self.engine.tasks
        self.namespace = Namespace("" if options.namespace_v2 else options.namespace)
        self.names = NameServers(self.engine, options.name_servers, options.name_server_url, fetch,
                                 choose=randrange, timeout_ms=options.timeout_ms,
                                 retries=options.retries)
        self.routes = Routes(self.engine, self.names, poll_ms=options.route_poll_ms)
        self.randrange = randrange
        self.client_id = options.client_id
        self.members: list[GroupMember] = []
        self.on_heartbeat: list[Callable[[str], object]] = []
        self.on_close: list[Callable[[], object]] = []
        self.before_close: list[Callable[[], Awaitable[None]]] = []
        #: The request messages that wait for replies, see ``producer.replies``; None at first.
        self.replies: object | None = None
        self._heartbeats = False
        #: The heartbeat in flight, by address: its body, and whether the broker accepted it.
        self._beating: dict[str, tuple[bytes, Future[bool]]] = {}
        #: The number of sends in flight, of all producers and consumers.
        self.sends_under_way = 0
        self.is_closed = False
        #: Finished by the close that is in progress; None if there is none.
        self._closing: Future[None] | None = None
        #: The versions of brokers, by address, from their responses to heartbeats.
        self.versions: dict[str, int] = {}
        self.engine.on_open.append(self._opened)

    def __repr__(self) -> str:
        state = ", closed" if self.is_closed else ""
        members = "".join(f", {member!r}" for member in self.members)
        return f"<client of {';'.join(self.names.addresses) or 'no name server'}{members}{state}>"

    # --- members and heartbeats

    def add(self, member: GroupMember) -> None:
        """Add a producer or a consumer to the heartbeats.

        :raises Closed: when the client is closed.
        :raises OptionError: when the client already has a member of that kind and group.
        """
        self.check_open()
        for other in self.members:
            if other.group == member.group and other.kind == member.kind:
                raise OptionError(f"the client has a {member.kind} of group "
                                  f"{member.group}; a second one needs another client")
        self.members.append(member)
        if not self._heartbeats:
            self._heartbeats = True
            self.tasks.spawn(self._send_heartbeats(), "heartbeats")

    async def remove(self, member: GroupMember) -> None:
        """Remove a member, and unregister it at all brokers."""
        if member not in self.members:
            return
        self.members.remove(member)
        # Imported here, because a client without members does not need it.
        from twistmq.protocol.headers.client import UnregisterClientRequestHeader

        header = UnregisterClientRequestHeader(
            client_id=self.client_id,
            producer_group=self.namespace.group(member.group) if member.producer_data() else None,
            consumer_group=self.namespace.group(member.group) if member.consumer_data() else None)
        leaving = [self.tasks.spawn(self._unregister(address, header), "unregistration")
                   for address in self.broker_addresses()]
        await self.tasks.all_of(leaving)

    async def _unregister(self, address: str, header: CommandHeader) -> None:
        """Unregister a member at a broker, after the heartbeat in flight.

        Apache's broker handles the two requests on different threads. If it handled the heartbeat
        last, the member would be registered again, and its queues would not be read.
        """
        end_ms = self.tasks.now_ms + _HEARTBEAT_TIMEOUT_MS
        under_way = self._beating.get(address)
        if under_way is not None:
            await under_way[1]
        if address in self.engine.open_addresses():
            await self.engine.invoke(
                address, RequestCode.UNREGISTER_CLIENT, header,
                timeout_ms=max(end_ms - self.tasks.now_ms, _UNREGISTER_TIMEOUT_MIN_MS))

    @property
    def has_consumers(self) -> bool:
        """Whether a member consumes."""
        return any(member.consumer_data() is not None for member in self.members)

    def heartbeat_body(self) -> bytes:
        """Return the heartbeat of all members."""
        producers = [member.producer_data() for member in self.members]
        consumers = [member.consumer_data() for member in self.members]
        return HeartbeatData(
            client_id=self.client_id,
            producer_data_set=tuple(each for each in producers if each is not None),
            consumer_data_set=tuple(each for each in consumers if each is not None),
        ).encode_standard()

    async def heartbeat(self, address: str, timeout_ms: float = _HEARTBEAT_TIMEOUT_MS) -> bool:
        """Send a heartbeat to a broker; :returns: whether the broker accepted it.

        Only one heartbeat is in flight at a time, because a broker may refuse a second one while it
        processes the first. Callers that would send the same heartbeat share one.
        """
        body = self.heartbeat_body()
        while (under_way := self._beating.get(address)) is not None:
            is_accepted = await under_way[1]
            if under_way[0] == body:
                return is_accepted
            body = self.heartbeat_body()
        if not self.members:
            return False
        future: Future[bool] = Future()
        self._beating[address] = body, future
        is_accepted = False
        try:
            is_accepted = await self._beat(address, body, timeout_ms)
        finally:
            del self._beating[address]
            future.set_result(is_accepted)
        return is_accepted

    async def _beat(self, address: str, body: bytes, timeout_ms: float) -> bool:
        try:
            reply = await self.engine.invoke(address, RequestCode.HEART_BEAT, None, body,
                                             timeout_ms=timeout_ms)
        except RemotingError as error:
            log.debug("no heartbeat to %s: %s", address, error)
            return False
        self.versions[address] = reply.version
        if reply.code != ResponseCode.SUCCESS:
            log.warning("the heartbeat is refused: %s",
                        refusal(reply.code, reply.remark, address))
            return False
        for listener in list(self.on_heartbeat):
            listener(address)
        return True

    async def heartbeat_all(self) -> None:
        """Send a heartbeat to all brokers of the routes."""
        tasks = [self.tasks.spawn(self.heartbeat(address), "heartbeat")
                 for address in self.broker_addresses()]
        await self.tasks.all_of(tasks)

    async def _send_heartbeats(self) -> None:
        await self.tasks.sleep(HEARTBEAT_FIRST_MS)
        loop = Loop("the heartbeats", None)
        while True:
            await loop.turn(self.heartbeat_all())
            await self.tasks.sleep(self.options.heartbeat_ms)

    def broker_addresses(self) -> list[str]:
        """Return the addresses that get heartbeats: slaves only while there are consumers."""
        with_slaves = self.has_consumers
        return sorted({address for addresses in self.routes.brokers.values()
                       for broker_id, address in addresses.items()
                       if broker_id == MASTER_ID or with_slaves})

    def _opened(self, connection: Connection) -> None:
        if self.members and connection.address in self.broker_addresses():
            self.tasks.spawn(self.heartbeat(connection.address), "heartbeat")

    def _requested(self, address: str, code: int, body: bytes) -> None:
        self.interceptors.call("before_request", address, code, body)

    # --- requests

    def check_open(self) -> None:
        """:raises Closed: when the client is closed."""
        if self.is_closed:
            raise Closed("the client is closed")

    async def ask(
        self, address: str, code: int, header: CommandHeader | None = None, body: bytes = b"", *,
        accepted_codes: tuple[int, ...] = (ResponseCode.SUCCESS,), timeout_ms: float | None = None,
    ) -> RemotingCommand:
        """Send a request to the server at an address, once.

        :param accepted_codes: the response codes for which the response is returned.
        :raises RequestRefused: when the response has another code.
        :raises RemotingError: when the server does not answer; the text names it.
        """
        self.check_open()
        if header is not None:
            header = self.namespace.header(header)
        reply = await self.engine.invoke(
            address, code, header, body,
            timeout_ms=self.options.timeout_ms if timeout_ms is None else timeout_ms)
        if reply.code not in accepted_codes:
            raise refusal(reply.code, reply.remark, address)
        return reply

    async def ask_name_server(
        self, code: int, header: CommandHeader | None = None
    ) -> RemotingCommand:
        """Ask one name server after another until one answers.

        :raises RequestRefused: when the name server answers with an error.
        :raises RemotingError: when no name server answers.
        """
        self.check_open()
        return await self.names.ask(code, None if header is None else self.namespace.header(header))

    async def ask_queue(
        self, queue: MessageQueue, code: int, header: CommandHeader, *,
        accepted_codes: tuple[int, ...] = (ResponseCode.SUCCESS,), of_slaves: bool = True,
        timeout_ms: float | None = None,
    ) -> RemotingCommand:
        """Send a request to the broker of a queue, and try again if there is no answer.

        :param of_slaves: whether later attempts may go to slaves.
        :raises: like :meth:`ask`, and ``NoRoute``.
        """
        async def ask_once(attempt: int) -> RemotingCommand:
            name = await self.locate(queue, again=attempt > 0)
            broker_id = attempt if of_slaves else MASTER_ID
            address = (self.routes.reader(name, broker_id) if of_slaves
                       else self.routes.master(name))
            return await self.ask(address, code, header, accepted_codes=accepted_codes,
                                  timeout_ms=timeout_ms)

        return await self.retried(ask_once)

    async def locate(self, queue: MessageQueue, *, again: bool = False) -> str:
        """Return the name of a queue's broker, and ask for its route if the broker is unknown."""
        name = self.routes.broker_of(queue)
        if again or name not in self.routes.brokers:
            try:
                await self.routes.find_for_send(self.namespace.topic(queue.topic), again=True)
            except (RemotingError, RequestRefused):
                if name not in self.routes.brokers:
                    raise
            name = self.routes.broker_of(queue)
        return name

    async def retried(self, make_attempt: Callable[[int], Awaitable[T]]) -> T:
        """Try until an attempt succeeds, with at most ``options.retries`` more attempts.

        An attempt may itself ask a name server several times. No attempt begins after the time that
        all attempts would take if each were one request.

        :param make_attempt: makes one attempt; its argument is the number of the attempt, from 0.
        """
        attempt = 0
        options = self.options
        end_ms = self.tasks.now_ms + (options.retries + 1) * (
            options.timeout_ms + options.retry_wait_ms)
        while True:
            try:
                return await make_attempt(attempt)
            except (RemotingError, NoRoute) as error:
                if (not error.retriable or attempt >= options.retries
                        or self.tasks.now_ms + options.retry_wait_ms >= end_ms):
                    raise
            attempt += 1
            await self.tasks.sleep(options.retry_wait_ms)

    # --- the end

    @property
    def is_closing(self) -> bool:
        """Whether a close is in progress."""
        return self._closing is not None

    @property
    def is_quiet(self) -> bool:
        """Whether no send is in flight and no bytes are waiting to be sent."""
        return not self.sends_under_way and not self.engine.has_output

    async def close(self) -> None:
        """Leave all groups and close the connections.

        A second call waits for the end of the first, and takes over if the first was cancelled.
        """
        while self._closing is not None:
            await self._closing
        if self.is_closed:
            return
        closing: Future[None] = Future()
        self._closing = closing
        try:
            for flush in list(self.before_close):
                await flush()
            for member in list(self.members):
                try:
                    await self.remove(member)
                except BrokerError as error:
                    log.warning("cannot unregister the group %s of this client: %s",
                                member.group, error)
            self.is_closed = True
            for listener in self.on_close:
                listener()
        finally:
            self._closing = None
            # The waiting calls continue before the engine ends all tasks.
            closing.set_result(None)
        self.engine.close()


def _namespace_fields(options: ClientOptions) -> dict[str, str]:
    """Return the fields for a namespace of the second kind. Source: NamespaceRpcHook @5.3.3."""
    if options.namespace and options.namespace_v2:
        return {"nsd": "true", "ns": options.namespace}
    return {}
