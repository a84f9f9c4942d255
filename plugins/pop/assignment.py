"""QUERY_ASSIGNMENT (400): a consumer asks which queues it owns, and whether to pull or to pop.

The broker assigns the queues of a topic in the same way as the clients of a group would do it
themselves. It learns the queues of other brokers from the name servers. A member that pops needs
no assigned queues: all members of the group may pop from all queues, unless the number of members
that share a queue is configured.

The client has the same strategies for its own members (``client/core/consumer/strategies.py``).
The code is not shared because a bundled plugin imports only ``twistmq.broker.api``.

Source: QueryAssignmentProcessor, TopicRouteInfoManager, AllocateMessageQueueAveragely,
AllocateMessageQueueAveragelyByCircle @5.3.3.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from twistmq.broker.api import (
    AnyHandler,
    BrokerError,
    EmptyHeader,
    Handled,
    Reply,
    Request,
    RequestCode,
    RequestHandler,
)
from twistmq.broker.api.bodies import Body, MessageModel, MessageQueue, TopicRouteData
from twistmq.broker.api.observe import LimitedLog
from twistmq.broker.api.topics import can_be_directory, is_light
from twistmq.broker.api.wire import PERM_READ
from twistmq.plugins.pop.request_mode import (
    RequestMode,
    RequestModes,
    SetMessageRequestModeRequestBody,
)

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["Assignments", "allocate_averagely", "allocate_by_circle", "allocate_for_pop"]

#: The number of routes that are cached.
_ROUTES_MAX: Final = 1000

#: Computes the share of one member from (queues, members, index of the member).
Allocate = Callable[[Sequence[MessageQueue], Sequence[str], int], list[MessageQueue]]


class QueryAssignmentRequestBody(Body):
    """Identifies the client that asks."""

    topic: str = ""
    consumer_group: str = ""
    client_id: str = ""
    strategy_name: str = ""
    message_model: MessageModel = MessageModel.CLUSTERING


class MessageQueueAssignment(Body):
    """One assigned queue; the queue id -1 stands for all queues of a broker."""

    message_queue: MessageQueue
    mode: RequestMode


class QueryAssignmentResponseBody(Body):
    """The assigned queues, or None if the client keeps its present queues."""

    message_queue_assignments: list[MessageQueueAssignment] | None = None


def allocate_averagely(
    queues: Sequence[MessageQueue], members: Sequence[str], index: int
) -> list[MessageQueue]:
    """Assign a block of adjacent queues to each member; the first members get one more."""
    each, more = divmod(len(queues), len(members))
    begin = index * each + min(index, more)
    return list(queues[begin:begin + each + (index < more)])


def allocate_by_circle(
    queues: Sequence[MessageQueue], members: Sequence[str], index: int
) -> list[MessageQueue]:
    """Assign the queues to the members in turn, one at a time."""
    return list(queues[index::len(members)])


STRATEGIES: Final[dict[str, Allocate]] = {
    "AVG": allocate_averagely, "AVG_BY_CIRCLE": allocate_by_circle}


def allocate_for_pop(
    allocate: Allocate, queues: Sequence[MessageQueue], members: Sequence[str], index: int,
    share: int,
) -> list[MessageQueue]:
    """Return the queues from which a member pops.

    :param share: the number of following members with which a member shares its queues.
    """
    if share <= 0 or share >= len(members) - 1:
        return [MessageQueue(queue.topic, queue.broker_name, -1) for queue in queues]
    if len(members) <= len(queues):
        return [queue for behind in range(share + 1)
                for queue in allocate(queues, members, (index + behind) % len(members))]
    return [queues[index % len(queues)]]


class Assignments:
    """The handler of one broker."""

    log = Logger()

    def __init__(self, broker: Broker, modes: RequestModes) -> None:
        self._broker = broker
        self._lines = LimitedLog(self.log)
        self._modes = modes
        #: Topic to (its queues, the time at which they were fetched in Unix ms).
        self._routes: OrderedDict[str, tuple[list[MessageQueue], int]] = OrderedDict()

    def handlers(self) -> list[AnyHandler]:
        return [RequestHandler(RequestCode.QUERY_ASSIGNMENT, self._query)]

    def _query(self, request: Request[EmptyHeader]) -> Handled:
        body = QueryAssignmentRequestBody.decode(request.body)
        queues = self._queues(body.topic, self._broker.steady.now_ms())
        if isinstance(queues, Deferred):
            return queues.addCallback(lambda all_queues: self._answer(body, all_queues))
        return self._answer(body, queues)

    def _answer(
        self, body: QueryAssignmentRequestBody, queues: list[MessageQueue] | None
    ) -> Reply:
        mode = self._modes.mode_of(body.topic, body.consumer_group)
        shares = None if queues is None else self._share(body, queues, mode)
        answer = QueryAssignmentResponseBody(None if shares is None else [
            MessageQueueAssignment(queue, mode.mode) for queue in sorted(set(shares))])
        return Reply(body=answer.encode())

    def _share(
        self, body: QueryAssignmentRequestBody, queues: list[MessageQueue],
        mode: SetMessageRequestModeRequestBody,
    ) -> list[MessageQueue] | None:
        """Return the queues of the client, or None if they are unknown."""
        if body.message_model is MessageModel.BROADCASTING or (
                not self._broker.settings.flag("serverLoadBalancerEnable")):
            return queues
        group = self._broker.clients.consumer_group(body.consumer_group)
        allocate = STRATEGIES.get(body.strategy_name)
        if group is None or allocate is None:
            self._lines.warn(
                self._broker.now_ms(),
                "no queues of {topic} are assigned to {client} of {group} by {strategy}",
                topic=body.topic, client=body.client_id, group=body.consumer_group,
                strategy=body.strategy_name)
            return None
        members = sorted(set(group.client_ids))
        if body.client_id not in members:
            return []
        index = members.index(body.client_id)
        if mode.mode is RequestMode.POP:
            return allocate_for_pop(allocate, queues, members, index, mode.pop_share_queue_num)
        return allocate(queues, members, index)

    # --- routes

    def _queues(
        self, topic: str, now_ms: int
    ) -> list[MessageQueue] | Deferred[list[MessageQueue] | None] | None:
        """Return all queues of a topic in order, or None if the topic does not exist."""
        if is_light(topic):
            return [MessageQueue(topic, self._broker.broker_name, 0)]
        host = self._broker.host
        if not host.has_name_servers:
            return self._own_queues(topic)
        if not can_be_directory(topic):
            # No broker can have a topic of this name.
            return None
        route = self._routes.get(topic)
        max_age_ms = self._broker.settings.int("loadBalancePollNameServerInterval")
        if route is not None and now_ms - route[1] <= max_age_ms:
            return route[0]
        lookup = Deferred.fromCoroutine(host.find_route(topic))
        return lookup.addCallbacks(self._note_route, self._no_route,
                                   callbackArgs=(topic, now_ms), errbackArgs=(topic,))

    def _note_route(
        self, route: TopicRouteData | None, topic: str, now_ms: int
    ) -> list[MessageQueue] | None:
        queues = None if route is None else sorted(
            MessageQueue(topic, data.broker_name, queue_id)
            for data in route.queue_datas if data.perm & PERM_READ
            for queue_id in range(data.read_queue_nums))
        if not queues:
            self._routes.pop(topic, None)
            return queues
        self._routes[topic] = queues, now_ms
        self._routes.move_to_end(topic)
        if len(self._routes) > _ROUTES_MAX:
            self._routes.popitem(last=False)
        return queues

    def _no_route(self, failure: Failure, topic: str) -> list[MessageQueue] | None:
        """Keep using the known route when no name server answers."""
        failure.trap(BrokerError)
        self._lines.warn(self._broker.now_ms(), "no route of {topic}: {error}", topic=topic,
                         error=failure.getErrorMessage())
        route = self._routes.get(topic)
        return None if route is None else route[0]

    def _own_queues(self, topic: str) -> list[MessageQueue] | None:
        """Return the queues of this broker; used when no name server is configured."""
        config = self._broker.topic_config.get(topic)
        if config is None or not config.perm & PERM_READ:
            return None
        return [MessageQueue(topic, self._broker.broker_name, queue_id)
                for queue_id in range(config.read_queue_nums)]
