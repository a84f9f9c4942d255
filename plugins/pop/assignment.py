"""QUERY_ASSIGNMENT (400): a consumer asks which queues are its own, and whether to pull or to pop.

The broker shares the queues of a topic out as the clients of a group would themselves. Those of
other brokers it knows from the name servers. A member that pops needs no queues of its own: all
members of the group may pop all of them, unless it is set with how many of them each shares.

The client has the same strategies, for its own members (``client/core/strategies.py``). They are
not shared: a stock plugin imports ``twistmq.broker.api`` only.

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

#: Routes that are kept.
_ROUTES_MAX: Final = 1000

#: Share of one of the members: (queues, members, its place among them).
Allocate = Callable[[Sequence[MessageQueue], Sequence[str], int], list[MessageQueue]]


class QueryAssignmentRequestBody(Body):
    """The client that asks."""

    topic: str = ""
    consumer_group: str = ""
    client_id: str = ""
    strategy_name: str = ""
    message_model: MessageModel = MessageModel.CLUSTERING


class MessageQueueAssignment(Body):
    """One queue; the queue -1 stands for all of a broker."""

    message_queue: MessageQueue
    mode: RequestMode


class QueryAssignmentResponseBody(Body):
    """The queues; None if the client keeps its queues."""

    message_queue_assignments: list[MessageQueueAssignment] | None = None


def allocate_averagely(
    queues: Sequence[MessageQueue], members: Sequence[str], index: int
) -> list[MessageQueue]:
    """A block of neighbours for each member; the first ones have one more."""
    each, more = divmod(len(queues), len(members))
    begin = index * each + min(index, more)
    return list(queues[begin:begin + each + (index < more)])


def allocate_by_circle(
    queues: Sequence[MessageQueue], members: Sequence[str], index: int
) -> list[MessageQueue]:
    """Each member in turn gets a queue."""
    return list(queues[index::len(members)])


STRATEGIES: Final[dict[str, Allocate]] = {
    "AVG": allocate_averagely, "AVG_BY_CIRCLE": allocate_by_circle}


def allocate_for_pop(
    allocate: Allocate, queues: Sequence[MessageQueue], members: Sequence[str], index: int,
    share: int,
) -> list[MessageQueue]:
    """The queues a member pops.

    :param share: the number of members after it with which a member shares its queues.
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
        #: By topic: its queues, and since when, Unix ms.
        self._routes: OrderedDict[str, tuple[list[MessageQueue], int]] = OrderedDict()

    def handlers(self) -> list[AnyHandler]:
        return [RequestHandler(RequestCode.QUERY_ASSIGNMENT, self._query)]

    def _query(self, request: Request[EmptyHeader]) -> Handled:
        body = QueryAssignmentRequestBody.decode(request.body)
        queues = self._queues(body.topic, self._broker.steady.now_ms())
        if isinstance(queues, Deferred):
            return queues.addCallback(lambda found: self._answer(body, found))
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
        """The queues of the client; None: unknown."""
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
        """All queues of a topic, in order; None when there is no such topic."""
        if is_light(topic):
            return [MessageQueue(topic, self._broker.broker_name, 0)]
        host = self._broker.host
        if not host.has_name_servers:
            return self._own_queues(topic)
        if not can_be_directory(topic):
            # No broker could have it.
            return None
        known = self._routes.get(topic)
        most_ms = self._broker.settings.int("loadBalancePollNameServerInterval")
        if known is not None and now_ms - known[1] <= most_ms:
            return known[0]
        found = Deferred.fromCoroutine(host.find_route(topic))
        return found.addCallbacks(self._note_route, self._no_route,
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
        """No name server answers: the known route stays in use."""
        failure.trap(BrokerError)
        self._lines.warn(self._broker.now_ms(), "no route of {topic}: {error}", topic=topic,
                         error=failure.getErrorMessage())
        known = self._routes.get(topic)
        return None if known is None else known[0]

    def _own_queues(self, topic: str) -> list[MessageQueue] | None:
        """This broker's queues, where there is no name server."""
        config = self._broker.topic_config.get(topic)
        if config is None or not config.perm & PERM_READ:
            return None
        return [MessageQueue(topic, self._broker.broker_name, queue_id)
                for queue_id in range(config.read_queue_nums)]
