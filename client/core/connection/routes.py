"""The routes of topics: their queues, and the addresses of brokers.

The client asks for a route when a topic is first used, and again every 30 s as long as the topic
is in use. When a name server answers TOPIC_NOT_EXIST, or no name server answers, the known route
stays: brokers may register again.

Source: MQClientInstance (updateTopicRouteInfoFromNameServer, topicRouteData2TopicPublishInfo,
topicRouteData2TopicSubscribeInfo, topicRouteData2EndpointsForStaticTopic,
findBrokerAddressInSubscribe), TopicPublishInfo @5.3.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from twistmq.client.base.errors import NoRoute, RemotingError, RequestRefused
from twistmq.client.core.connection.engine import Engine
from twistmq.client.core.connection.loops import Loop
from twistmq.client.core.connection.name_servers import NameServers
from twistmq.client.core.connection.tasks import Future, Task
from twistmq.protocol.bodies import MessageQueue, TopicRouteData
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.decimal_text import whole_number
from twistmq.protocol.errors import BrokerError, WireError
from twistmq.protocol.flags import MASTER_ID, PERM_READ, PERM_WRITE
from twistmq.protocol.headers.namesrv import GetRouteInfoRequestHeader
from twistmq.protocol.topic_names import TEMPLATE_TOPIC

__all__ = ["NEW_TOPIC_QUEUES", "POLL_MS", "Route", "Routes"]

log = logging.getLogger("twistmq.client")

#: The interval at which routes in use are requested, in ms.
#: Source: ClientConfig.pollNameServerInterval.
POLL_MS: Final = 30_000
#: The number of queues of a topic that a send creates. Source: DefaultMQProducer.
NEW_TOPIC_QUEUES: Final = 4
#: The maximum numbers of brokers and queues in one route; a larger answer is not trusted. Clusters
#: have some hundred brokers, and topics some thousand queues.
BROKERS_MAX: Final = 4096
QUEUES_MAX: Final = 1 << 17
#: The maximum number of broker names in the text of an error, and the maximum number of characters
#: of a name that is not printable.
_NAMED_MAX: Final = 8
_NAME_SHOWN_MAX: Final = 40
#: The broker name of the logical queues of a static topic. Source: MixAll.getLogicalQueueMockName.
LOGICAL_BROKER_PREFIX: Final = "__syslo__"


class Route:
    """The route of one topic; it is immutable.

    ``write_queues`` are the queues to which a producer may send, and ``read_queues`` the queues
    that a consumer reads. ``owners`` maps each logical queue of a static topic to its broker.
    ``write_brokers`` are the names of the brokers of ``write_queues``.
    """

    __slots__ = ("data", "owners", "read_queues", "topic", "write_brokers", "write_queues")

    def __init__(self, topic: str, data: TopicRouteData) -> None:
        self.topic = topic
        self.data = data
        self.owners: dict[MessageQueue, str] = _static_queues(topic, data)
        static = sorted(self.owners)
        self.write_queues: list[MessageQueue] = static or _write_queues(topic, data)
        self.write_brokers = frozenset(self.owners.get(queue, queue.broker_name)
                                       for queue in self.write_queues)
        self.read_queues: list[MessageQueue] = static or sorted(
            MessageQueue(topic, each.broker_name, queue_id)
            for each in data.queue_datas if each.perm & PERM_READ
            for queue_id in range(each.read_queue_nums))

    @property
    def write_fault(self) -> str:
        """The reason why nothing can be sent, with a hint; "" if messages can be sent."""
        if self.write_queues:
            return ""
        writable = [each.broker_name for each in self.data.queue_datas
                    if each.perm & PERM_WRITE and each.write_queue_nums > 0]
        if not writable:
            return (f"the route of topic {self.topic} has no queue that may be written to: look at "
                    "its queues and permissions with topicRoute")
        return (f"the brokers of topic {self.topic} have no master now: "
                f"{', '.join(map(str, writable[:_NAMED_MAX]))}")

    @property
    def is_ordered(self) -> bool:
        """Whether the topic is ordered, so that its queues do not move when a broker is away."""
        return bool(self.data.order_topic_conf)

    def template_for(self, topic: str) -> Route:
        """Return a route for a topic that a send will create, from this template topic's route."""
        data = TopicRouteData(
            queue_datas=[
                msgspec.structs.replace(each, read_queue_nums=count, write_queue_nums=count)
                for each in self.data.queue_datas
                if (count := min(NEW_TOPIC_QUEUES, each.read_queue_nums))],
            broker_datas=self.data.broker_datas)
        return Route(topic, data)


def _write_queues(topic: str, data: TopicRouteData) -> list[MessageQueue]:
    """Return the queues of brokers that allow writing and have a master."""
    masters = {each.broker_name for each in data.broker_datas if MASTER_ID in each.broker_addrs}
    if data.order_topic_conf:
        return [MessageQueue(topic, name, queue_id)
                for name, count in _ordered_counts(data) for queue_id in range(count)]
    return sorted(MessageQueue(topic, each.broker_name, queue_id)
                  for each in data.queue_datas
                  if each.perm & PERM_WRITE and each.broker_name in masters
                  for queue_id in range(each.write_queue_nums))


def _ordered_counts(data: TopicRouteData) -> list[tuple[str, int]]:
    """Return broker names and queue counts of an ordered topic, given as "name:number;..."."""
    counts = []
    for part in (data.order_topic_conf or "").split(";"):
        name, _, count = part.partition(":")
        number = whole_number(count)
        if number is not None:
            counts.append((name, number))
    return counts


def _static_queues(topic: str, data: TopicRouteData) -> dict[MessageQueue, str]:
    """Return the broker of each logical queue, which is the broker with the newest mapping."""
    owners: dict[MessageQueue, tuple[int, str]] = {}
    for name, mapping in (data.topic_queue_mapping_by_broker or {}).items():
        scope = mapping.scope.removeprefix("__").removesuffix("__")
        logical = f"{LOGICAL_BROKER_PREFIX}{scope}__"
        for queue_id in mapping.curr_id_map:
            queue = MessageQueue(topic, logical, queue_id)
            if queue not in owners or owners[queue][0] < mapping.epoch:
                owners[queue] = (mapping.epoch, name)
    return {queue: name for queue, (_, name) in owners.items()}


def _route_data(topic: str, reply: RemotingCommand) -> TopicRouteData:
    """Return the route in a response; :raises WireError: when it is unreadable or too large.

    The names of brokers appear in errors and in the log, so they must be printable.
    """
    data = TopicRouteData.decode_reply(reply.body)
    for name in (*(each.broker_name or "" for each in data.broker_datas),
                 *(each.broker_name for each in data.queue_datas),
                 *(name for name, _ in _ordered_counts(data)),
                 *(data.topic_queue_mapping_by_broker or {})):
        if not name.isprintable():
            raise WireError(f"the name {name[:_NAME_SHOWN_MAX]!r} of a broker of topic {topic} is "
                            "not printable")
    if len(data.broker_datas) > BROKERS_MAX:
        raise WireError(f"{len(data.broker_datas)} brokers of topic {topic}, of {BROKERS_MAX} at "
                        "most")
    counts = [max(each.read_queue_nums, each.write_queue_nums, 0) for each in data.queue_datas]
    counts += [count for _, count in _ordered_counts(data)]
    counts += [len(each.curr_id_map)
               for each in (data.topic_queue_mapping_by_broker or {}).values()]
    if sum(counts) > QUEUES_MAX:
        raise WireError(f"{sum(counts)} queues of topic {topic}, of {QUEUES_MAX} at most")
    return data


class Routes:
    """The routes of a client.

    :param poll_ms: the interval at which routes in use are requested, in ms.

    The functions in ``on_change`` are called with each route that is new or has changed.
    """

    def __init__(self, engine: Engine, names: NameServers, *, poll_ms: float = POLL_MS) -> None:
        self._engine = engine
        self._names = names
        self._poll_ms = poll_ms
        self._routes: dict[str, Route] = {}
        #: The addresses of all routes, by broker name and id.
        self.brokers: dict[str, dict[int, str]] = {}
        #: The topics of producers and consumers, whose routes are requested again and again.
        self._followed: set[str] = set()
        self._asking: dict[str, Task[Route]] = {}
        self._polling: Task[None] | None = None
        self.on_change: list[Callable[[Route], object]] = []

    # --- topics

    def cached_route(self, topic: str) -> Route | None:
        """Return the route of a topic, if it was found before."""
        return self._routes.get(topic)

    def follow(self, topic: str) -> None:
        """Request the route of a topic again every 30 s."""
        self._followed.add(topic)
        if self._polling is None:
            self._polling = self._engine.tasks.spawn(self._poll(), "routes")

    def unfollow(self, topic: str) -> None:
        """Undo :meth:`follow`."""
        self._followed.discard(topic)

    def followed(self) -> set[str]:
        """Return the topics that are followed."""
        return set(self._followed)

    async def find(self, topic: str, *, again: bool = False) -> Route:
        """Return the route of a topic.

        :param again: send a request even if the route is known.
        :raises RequestRefused: TOPIC_NOT_EXIST when no name server knows the topic.
        :raises RemotingError: when no name server answers, or no response is a valid route.
        """
        route = self._routes.get(topic)
        if route is not None and not again:
            return route
        asking = self._asking.get(topic)
        if asking is None:
            asking = self._asking[topic] = self._engine.tasks.spawn(
                self._ask(topic), f"route of {topic}")
            asking.when_done(lambda _: self._asking.pop(topic, None))
        # The task is awaited as a future: a cancelled caller does not stop the other callers.
        waiting: Future[Route] = asking
        return await waiting

    async def find_for_send(self, topic: str, *, again: bool = False) -> Route:
        """Return the route of a topic, or the route that it will have after a first send.

        :raises RequestRefused: TOPIC_NOT_EXIST when no broker creates topics.
        :raises RemotingError: when no name server answers and no route is known.
        """
        try:
            return await self.find(topic, again=again)
        except (RemotingError, RequestRefused, WireError) as error:
            route = self._routes.get(topic)
            if route is not None:
                return route
            if not isinstance(error, RequestRefused) or (
                    error.response_code != ResponseCode.TOPIC_NOT_EXIST):
                raise
            try:
                template = await self.find(TEMPLATE_TOPIC, again=again)
            except RequestRefused:
                raise error from None
            return template.template_for(topic)

    async def _ask(self, topic: str) -> Route:
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        data = await self._names.read(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, header, partial(_route_data, topic))
        old = self._routes.get(topic)
        if old is not None and old.data == data:
            return old
        route = self._routes[topic] = Route(topic, data)
        for each in data.broker_datas:
            if each.broker_name is not None:
                self.brokers[each.broker_name] = dict(each.broker_addrs)
        for listener in list(self.on_change):
            listener(route)
        return route

    async def _poll(self) -> None:
        loop = Loop("the update of routes", None)
        while True:
            await self._engine.tasks.sleep(self._poll_ms)
            for topic in sorted(self._followed):
                await loop.turn(self._find_again(topic))
            self._forget_brokers()

    async def _find_again(self, topic: str) -> None:
        try:
            await self.find(topic, again=True)
        except BrokerError as error:
            log.debug("the route of topic %s stays as it was: %s", topic, error)

    def _forget_brokers(self) -> None:
        """Forget brokers that no longer appear in a route."""
        named = {each.broker_name for route in self._routes.values()
                 for each in route.data.broker_datas}
        for name in [name for name in self.brokers if name not in named]:
            del self.brokers[name]

    # --- addresses

    def broker_of(self, queue: MessageQueue) -> str:
        """Return the name of the broker that serves a queue; a logical queue has an owner."""
        if queue.broker_name.startswith(LOGICAL_BROKER_PREFIX):
            route = self._routes.get(queue.topic)
            if route is not None:
                return route.owners.get(queue, queue.broker_name)
        return queue.broker_name

    def master(self, broker_name: str) -> str:
        """Return the address of a master.

        :raises NoRoute: when no route names a master.
        """
        address = self.brokers.get(broker_name, {}).get(MASTER_ID)
        if address is None:
            raise NoRoute(f"no name server knows a master of broker {broker_name}")
        return address

    def has_master(self, queue: MessageQueue) -> bool:
        """Whether a route names a master of the broker that serves a queue."""
        return MASTER_ID in self.brokers.get(self.broker_of(queue), ())

    def reader(self, broker_name: str, broker_id: int = MASTER_ID, *, only: bool = False) -> str:
        """Return the address of a broker for reading.

        :param broker_id: the preferred broker id; if it is missing, the next slave is used, then
            any broker.
        :param only: use no other broker.
        :raises NoRoute: when no route names such a broker.
        """
        addresses = self.brokers.get(broker_name, {})
        address = addresses.get(broker_id)
        if address is None and broker_id != MASTER_ID:
            address = addresses.get(broker_id + 1)
        if address is None and addresses and not only:
            address = addresses[min(addresses)]
        if address is None:
            raise NoRoute(f"no name server knows a broker {broker_name}")
        return address

    def in_turn(self, broker_name: str, attempt: int) -> str:
        """Return the address for a read attempt: first the master, then its slaves, in turn.

        :param attempt: the number of the attempt, from 0.
        :raises NoRoute: when no route names the broker.
        """
        addresses = self.brokers.get(broker_name)
        if not addresses:
            raise NoRoute(f"no name server knows a broker {broker_name}")
        order = sorted(addresses)
        return addresses[order[attempt % len(order)]]

    def masters(self) -> dict[str, str]:
        """Return the address of each master that a route names, by broker name."""
        return {name: addresses[MASTER_ID] for name, addresses in self.brokers.items()
                if MASTER_ID in addresses}
