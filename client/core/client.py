"""The core of a client: engine, routes, groups and heartbeats, shared by producers and consumers.

All producers and consumers of one client use one connection an address and one heartbeat. A
heartbeat is sent a second after the start, each 30 s, and to each broker as soon as a connection
to it opens. It goes to masters, and to slaves too while the client has consumers.

Source: MQClientInstance, ClientConfig, MQClientAPIImpl @5.3.3; client notes 1.1.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import msgspec

from twistmq.broker.codes import RequestCode, ResponseCode
from twistmq.broker.errors import BrokerError, RemotingError
from twistmq.broker.wire.bodies import ConsumerData, HeartbeatData, MessageQueue, ProducerData
from twistmq.broker.wire.command import RemotingCommand
from twistmq.broker.wire.flags import MASTER_ID
from twistmq.broker.wire.header import CommandHeader
from twistmq.client.core.engine import Connection, Engine
from twistmq.client.core.loops import Loop
from twistmq.client.core.names import NameServers
from twistmq.client.core.routes import POLL_MS, Routes
from twistmq.client.core.tasks import Clock, Future
from twistmq.client.errors import Closed, NoRoute, OptionError, RequestRefused, refusal
from twistmq.client.interceptors import Interceptors
from twistmq.client.namespace import Namespace

if TYPE_CHECKING:
    from twistmq.broker.wire.signature import Credentials

__all__ = ["ClientCore", "ClientOptions", "GroupMember"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")

#: The first heartbeat, and the time between heartbeats, ms.
HEARTBEAT_FIRST_MS: Final = 1000
HEARTBEAT_MS: Final = 30_000
#: The time-out of a heartbeat and of leaving, ms.
_HEARTBEAT_TIMEOUT_MS: Final = 3000


class ClientOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a client; times in ms."""

    name_servers: tuple[str, ...]
    #: Where to ask for name servers; "": nowhere.
    name_server_url: str = ""
    namespace: str = ""
    #: Whether requests say the namespace (5.1 and later), and names stay as they are.
    namespace_v2: bool = False
    credentials: Credentials | None = None
    #: The id under which brokers know the client.
    client_id: str
    #: Bound on one request.
    timeout_ms: float = 3000
    connect_timeout_ms: float = 3000
    #: How often a request is tried again when there is no answer, and after what wait.
    retries: int = 2
    retry_wait_ms: float = 200
    heartbeat_ms: float = HEARTBEAT_MS
    route_poll_ms: float = POLL_MS


class GroupMember(Protocol):
    """A producer or a consumer of the client, as heartbeats say it."""

    group: str
    #: The bound on a send of the program's, ms; 0: it sends nothing.
    send_timeout_ms: float

    def producer_data(self) -> ProducerData | None:
        """Its part of a heartbeat, as a producer."""

    def consumer_data(self) -> ConsumerData | None:
        """Its part of a heartbeat, as a consumer."""

    async def finish(self) -> None:
        """Bring what the program handed over to the brokers, because the program ends."""


class ClientCore:
    """A client.

    :param clock: the process's clocks, or a test's.
    :param randrange: a random number below its argument.
    :param interceptors: see messages on their way.
    :param fetch: asks for name servers, blocking; see ``twistmq.client.lookup``.

    ``on_heartbeat`` functions are called with a broker's address after it took a heartbeat,
    ``on_close`` ones when the client is closed, before its connections are. ``before_close`` ones
    are awaited while it still works.
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
        #: The request messages that wait for replies, see ``core.replies``; None: before the first.
        self.replies: object | None = None
        self._heartbeats = False
        #: The heartbeat that is under way, by address: its body, and whether it is taken.
        self._beating: dict[str, tuple[bytes, Future[bool]]] = {}
        #: Sends that have begun and not ended, of all producers and consumers.
        self.sends_under_way = 0
        self.is_closed = False
        #: The end of the close that is under way, if one is.
        self._closing: Future[None] | None = None
        #: The versions of brokers, by address, as their answers to heartbeats say.
        self.versions: dict[str, int] = {}
        self.engine.on_open.append(self._opened)

    # --- members and heartbeats

    def add(self, member: GroupMember) -> None:
        """Take a producer or a consumer into the heartbeats.

        :raises Closed: when the client is closed.
        :raises OptionError: when the client has a member of that kind and group.
        """
        self.check_open()
        for other in self.members:
            if other.group == member.group and type(other) is type(member):
                raise OptionError(f"the client has a {type(member).__name__} of group "
                                  f"{member.group}; a second one needs a client of its own")
        self.members.append(member)
        if not self._heartbeats:
            self._heartbeats = True
            self.tasks.spawn(self._send_heartbeats(), "heartbeats")

    async def remove(self, member: GroupMember) -> None:
        """Take a member out, and tell all brokers that it leaves."""
        if member not in self.members:
            return
        self.members.remove(member)
        # A client alone has no members.
        from twistmq.broker.wire.headers.client import UnregisterClientRequestHeader

        header = UnregisterClientRequestHeader(
            client_id=self.client_id,
            producer_group=self.namespace.group(member.group) if member.producer_data() else None,
            consumer_group=self.namespace.group(member.group) if member.consumer_data() else None)
        leaving = [self.engine.invoke(address, RequestCode.UNREGISTER_CLIENT, header,
                                      timeout_ms=_HEARTBEAT_TIMEOUT_MS)
                   for address in self.broker_addresses()
                   if address in self.engine.open_addresses()]
        await self.tasks.all_of(leaving)

    @property
    def has_consumers(self) -> bool:
        """Whether a member consumes."""
        return any(member.consumer_data() is not None for member in self.members)

    def heartbeat_body(self) -> bytes:
        """The heartbeat of all members."""
        producers = [member.producer_data() for member in self.members]
        consumers = [member.consumer_data() for member in self.members]
        return HeartbeatData(
            client_id=self.client_id,
            producer_data_set=tuple(each for each in producers if each is not None),
            consumer_data_set=tuple(each for each in consumers if each is not None),
        ).encode_standard()

    async def heartbeat(self, address: str, timeout_ms: float = _HEARTBEAT_TIMEOUT_MS) -> bool:
        """Send a heartbeat to a broker; :returns: whether it took it.

        One at a time: a broker may refuse a second while it takes the first. Callers that would
        send the same share one.
        """
        body = self.heartbeat_body()
        while (under_way := self._beating.get(address)) is not None:
            taken = await under_way[1]
            if under_way[0] == body:
                return taken
            body = self.heartbeat_body()
        if not self.members:
            return False
        future: Future[bool] = Future()
        self._beating[address] = body, future
        is_taken = False
        try:
            is_taken = await self._beat(address, body, timeout_ms)
        finally:
            del self._beating[address]
            future.set_result(is_taken)
        return is_taken

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
        """The addresses that get heartbeats: slaves only while there are consumers."""
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
        taken: tuple[int, ...] = (ResponseCode.SUCCESS,), timeout_ms: float | None = None,
    ) -> RemotingCommand:
        """Ask the server at an address, once.

        :param taken: the codes of an answer that is returned.
        :raises RequestRefused: with another code.
        :raises RemotingError: when it does not answer; the text names it.
        """
        self.check_open()
        if header is not None:
            header = self.namespace.header(header)
        reply = await self.engine.invoke(
            address, code, header, body,
            timeout_ms=self.options.timeout_ms if timeout_ms is None else timeout_ms)
        if reply.code not in taken:
            raise refusal(reply.code, reply.remark, address)
        return reply

    async def ask_name_server(
        self, code: int, header: CommandHeader | None = None
    ) -> RemotingCommand:
        """Ask one name server after the other until one answers.

        :raises RequestRefused: when it answers with an error.
        :raises RemotingError: when none answers.
        """
        self.check_open()
        return await self.names.ask(code, None if header is None else self.namespace.header(header))

    async def ask_queue(
        self, queue: MessageQueue, code: int, header: CommandHeader, *,
        taken: tuple[int, ...] = (ResponseCode.SUCCESS,), of_slaves: bool = True,
        timeout_ms: float | None = None,
    ) -> RemotingCommand:
        """Ask the broker of a queue, and again when there is no answer.

        :param of_slaves: whether later attempts may go to slaves.
        :raises: as :meth:`ask`, and ``NoRoute``.
        """
        async def once(attempt: int) -> RemotingCommand:
            name = await self.locate(queue, again=attempt > 0)
            broker_id = attempt if of_slaves else MASTER_ID
            address = (self.routes.reader(name, broker_id) if of_slaves
                       else self.routes.master(name))
            return await self.ask(address, code, header, taken=taken, timeout_ms=timeout_ms)

        return await self.retried(once)

    async def locate(self, queue: MessageQueue, *, again: bool = False) -> str:
        """The name of a queue's broker, its route asked for when it is not known."""
        name = self.routes.broker_of(queue)
        if again or name not in self.routes.brokers:
            try:
                await self.routes.find_for_send(self.namespace.topic(queue.topic), again=True)
            except (RemotingError, RequestRefused):
                if name not in self.routes.brokers:
                    raise
            name = self.routes.broker_of(queue)
        return name

    async def retried(self, once: Callable[[int], Awaitable[T]]) -> T:
        """Try until it succeeds, ``options.retries`` times more at most.

        :param once: is given which time this is, from 0.
        """
        attempt = 0
        while True:
            try:
                return await once(attempt)
            except (RemotingError, NoRoute) as error:
                if not error.retriable or attempt >= self.options.retries:
                    raise
            attempt += 1
            await self.tasks.sleep(self.options.retry_wait_ms)

    # --- the end

    @property
    def is_quiet(self) -> bool:
        """Whether no send is under way, and no bytes wait to be sent."""
        return not self.sends_under_way and not self.engine.has_output

    async def close(self) -> None:
        """Leave all groups and close the connections.

        A second call waits for the end of the first, and goes on if that was cancelled.
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
                    log.warning("the group %s is not told that this client leaves: %s",
                                member.group, error)
            self.is_closed = True
            for listener in self.on_close:
                listener()
        finally:
            self._closing = None
            # Those that wait go on before the engine ends all tasks.
            closing.set_result(None)
        self.engine.close()


def _namespace_fields(options: ClientOptions) -> dict[str, str]:
    """The fields that say a namespace of the second kind. Source: NamespaceRpcHook @5.3.3."""
    if options.namespace and options.namespace_v2:
        return {"nsd": "true", "ns": options.namespace}
    return {}
