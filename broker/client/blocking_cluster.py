"""The base of a blocking client: name servers, routes, connections, retries.

A request without a connection or an answer is sent again, to the next name server or to a slave of
the same name, with a new route.

Source: MQClientInstance, NettyRemotingClient (name servers), ResponseCode @5.3.3.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Self, TypeVar

from twistmq.broker.client.blocking_connection import BlockingConnection
from twistmq.broker.codes import RequestCode, ResponseCode
from twistmq.broker.errors import RemotingConnectError, RemotingError, RequestRefused
from twistmq.broker.topic_names import TEMPLATE_TOPIC
from twistmq.broker.wire.addresses import split_addresses
from twistmq.broker.wire.bodies import MessageQueue, QueueData, TopicList, TopicRouteData
from twistmq.broker.wire.command import RemotingCommand
from twistmq.broker.wire.flags import PERM_READ, PERM_WRITE
from twistmq.broker.wire.header import CommandHeader
from twistmq.broker.wire.headers.namesrv import GetRouteInfoRequestHeader
from twistmq.broker.wire.signature import Credentials
from twistmq.client.namespace import Namespace

__all__ = ["NEW_TOPIC_QUEUES", "BlockingCluster", "PendingRequest", "refusal"]

T = TypeVar("T")

#: How many queues a topic is asked for that a send makes.
NEW_TOPIC_QUEUES: Final = 4


class PendingRequest:
    """A request whose reply was not waited for yet.

    :param queue: what it is about.
    """

    __slots__ = ("connection", "opaque", "queue", "timeout_s")

    def __init__(self, queue: MessageQueue, connection: BlockingConnection, opaque: int,
                 timeout_s: float) -> None:
        self.queue = queue
        self.connection = connection
        self.opaque = opaque
        self.timeout_s = timeout_s

    def reply(self) -> RemotingCommand:
        """Wait for it; :raises RemotingError: when it does not come."""
        return self.connection.reply(self.opaque, self.timeout_s)


class BlockingCluster:
    """Routes of a cluster, and connections to its servers.

    :param name_servers: "host:port" each, or one text with ; between.
    :param timeout_s: bound on each reply, seconds.
    :param connect_timeout_s: bound on making a connection, seconds.
    :param retries: how often a request is tried again.
    :param retry_wait_s: how long it waits before that, seconds.
    :param credentials: what requests are signed with.
    :param tls: what connections are wrapped in, also those to name servers.
    :param namespace: of all topics and groups, which are named here without it; "" for none.
    """

    def __init__(
        self, name_servers: str | Sequence[str], *, timeout_s: float = 3.0,
        connect_timeout_s: float = 3.0, retries: int = 2, retry_wait_s: float = 0.2,
        credentials: Credentials | None = None, tls: ssl.SSLContext | None = None,
        namespace: str = "",
    ) -> None:
        text = name_servers if isinstance(name_servers, str) else ";".join(name_servers)
        self._name_servers = split_addresses(text)
        self.timeout_s = timeout_s
        self.retries = retries
        self.retry_wait_s = retry_wait_s
        self._connect_timeout_s = connect_timeout_s
        self._credentials = credentials
        self._tls = tls
        self._namespace = Namespace(namespace)
        self._connections: dict[str, BlockingConnection] = {}
        self._routes: dict[str, TopicRouteData] = {}
        #: Addresses by broker name and id, of all routes.
        self._brokers: dict[str, dict[int, str]] = {}
        #: Topics whose route may not hold any more.
        self._stale: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # --- routes

    def route(self, topic: str, *, refresh: bool = False) -> TopicRouteData:
        """The route of a topic.

        :param refresh: ask even when the route is known.
        :raises RequestRefused: TOPIC_NOT_EXIST when no name server knows it.
        :raises RemotingError: when none answers.
        """
        if refresh or topic in self._stale or topic not in self._routes:
            header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
            reply = self._ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
            route = self._routes[topic] = TopicRouteData.decode(reply.body)
            self._stale.discard(topic)
            for data in route.broker_datas:
                if data.broker_name is not None:
                    self._brokers[data.broker_name] = data.broker_addrs
        return self._routes[topic]

    def topics(self) -> list[str]:
        """The names of all topics, in order."""
        reply = self._ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, None)
        named = self._namespace
        return sorted(named.without(topic) for topic in TopicList.decode(reply.body).topic_list
                      if named.holds(topic))

    def read_queues(self, topic: str, *, refresh: bool = False) -> list[MessageQueue]:
        """The queues a topic can be read from, in order; :raises: as :meth:`route`."""
        return self._queues(topic, refresh, PERM_READ, lambda data: data.read_queue_nums)

    def write_queues(self, topic: str, *, refresh: bool = False) -> list[MessageQueue]:
        """The queues a topic can be sent to, in order.

        A topic that is not there yet has those of the template topic, of which brokers make it.

        :raises RequestRefused: TOPIC_NOT_EXIST when no broker makes topics either.
        """
        try:
            return self._queues(topic, refresh, PERM_WRITE, lambda data: data.write_queue_nums)
        except RequestRefused as error:
            if error.response_code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            try:
                template = self._queues(TEMPLATE_TOPIC, refresh, PERM_WRITE,
                                        lambda data: min(data.write_queue_nums, NEW_TOPIC_QUEUES))
            except RequestRefused:
                raise error from None
            return [MessageQueue(topic, queue.broker_name, queue.queue_id) for queue in template]

    def _queues(
        self, topic: str, refresh: bool, permission: int, count: Callable[[QueueData], int]
    ) -> list[MessageQueue]:
        return sorted(MessageQueue(topic, data.broker_name, queue_id)
                      for data in self.route(topic, refresh=refresh).queue_datas
                      if data.perm & permission
                      for queue_id in range(count(data)))

    # --- requests, for subclasses

    def _ask_name_server(self, code: int, header: CommandHeader | None) -> RemotingCommand:
        """Ask the name servers in turn until one answers."""
        header = None if header is None else self._namespace.header(header)
        errors: list[str] = []
        for attempt in range(max(self.retries + 1, len(self._name_servers))):
            address = self._name_servers[0]
            if attempt >= len(self._name_servers):
                time.sleep(self.retry_wait_s)
            try:
                connection = self._connection(address)
                reply = self._request(connection, code, header)
            except RemotingError as error:
                errors.append(f"{address}: {error}")
                # The one that failed comes last from now on.
                self._name_servers.append(self._name_servers.pop(0))
                continue
            if reply.code != ResponseCode.SUCCESS:
                raise refusal(reply, address)
            return reply
        raise RemotingConnectError(
            f"no name server answers: {'; '.join(dict.fromkeys(errors))}")

    def _request(
        self, connection: BlockingConnection, code: int, header: CommandHeader | None
    ) -> RemotingCommand:
        try:
            return connection.request(code, header)
        except RemotingError:
            self._drop(connection)
            raise

    def retried(
        self, topic: str, once: Callable[[int], T], try_again: frozenset[int] = frozenset()
    ) -> T:
        """Call until it succeeds.

        :param once: is given which time this is, from 0.
        :param try_again: codes of refusals after which it may.
        """
        attempt = 0
        while True:
            try:
                return once(attempt)
            except (RemotingError, RequestRefused) as error:
                retriable = error.retriable or (error.response_code in try_again and isinstance(
                    error, RequestRefused))
                if not retriable or attempt >= self.retries:
                    raise
            attempt += 1
            time.sleep(self.retry_wait_s)
            # The brokers may have gone elsewhere.
            self.forget_route(topic)

    def forget_route(self, topic: str) -> None:
        """Ask for the route of a topic again when it is next needed."""
        self._stale.add(topic)

    def begin(
        self, queue: MessageQueue, code: int, header: CommandHeader, body: bytes, attempt: int,
        timeout_s: float,
    ) -> PendingRequest:
        """Send a request to the broker of a queue.

        :param attempt: which time this is, from 0: later ones go to its slaves too.
        :raises RemotingError: when it is not reached.
        """
        address = self._address(queue, attempt)
        connection = self._connection(address)
        try:
            opaque = connection.begin(code, self._namespace.header(header), body)
            return PendingRequest(queue, connection, opaque, timeout_s)
        except RemotingError as error:
            self._drop(connection)
            raise type(error)(f"{address}: {error}") from None

    def end(self, pending: PendingRequest) -> RemotingCommand:
        """Wait for the reply; :raises RemotingError: when it does not come."""
        try:
            return pending.reply()
        except RemotingError as error:
            self._drop(pending.connection)
            raise type(error)(f"{pending.connection.address}: {error}") from None

    def _address(self, queue: MessageQueue, attempt: int) -> str:
        """The master of a queue's broker; in later attempts its slaves too, in turn."""
        if queue.topic in self._stale or queue.broker_name not in self._brokers:
            try:
                self.route(queue.topic)
            except (RemotingError, RequestRefused):
                # Where nothing is known now, the old holds.
                if queue.broker_name not in self._brokers:
                    # A topic that a send is about to make has no route yet.
                    self.route(TEMPLATE_TOPIC)
        addresses = self._brokers.get(queue.broker_name)
        if not addresses:
            raise RemotingConnectError(f"no name server knows a broker {queue.broker_name}")
        order = sorted(addresses)
        return addresses[order[attempt % len(order)]]

    def _connection(self, address: str) -> BlockingConnection:
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = BlockingConnection(
                address, self.timeout_s, connect_timeout_s=self._connect_timeout_s,
                credentials=self._credentials, tls=self._tls)
        return connection

    def _drop(self, connection: BlockingConnection) -> None:
        """Close a connection that failed; its requests under way fail too."""
        if self._connections.get(connection.address) is connection:
            del self._connections[connection.address]
        connection.close()


def refusal(reply: RemotingCommand, address: str) -> RequestRefused:
    """The error for an unexpected answer."""
    return RequestRefused(
        reply.code, f"{address} answered {reply.code}: {reply.remark or 'no remark'}")
