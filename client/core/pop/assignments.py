"""The sources of a member that pops, which brokers assign every 20 s and when the members change.

If an administrator has set the group's mode to pop (``setConsumeMode``), a broker answers with
queues, or with -1 for all queues of a broker. Otherwise the mode of the group is pull, and the
member pops all queues of all brokers of the topic: members of a group may pop the same queue.

    no answer, no queues       the sources stay as they were; all queues at first
    not known to the broker    the start fails: the broker has no pop consumption

Source: RebalanceImpl.tryQueryAssignment, getRebalanceResultFromBroker,
MQClientAPIImpl.queryAssignment @5.3.3. Differs from Apache: its client pulls without the mode.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from msgspec import field

from twistmq.client.base.errors import Unsupported, refusal
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.connection.routes import Route
from twistmq.client.core.consumer.queue_listeners import QueueListeners
from twistmq.client.core.consumer.subscriptions import SubscriptionTable
from twistmq.client.core.pop.pop_loop import PopLoop, Source
from twistmq.protocol.bodies import Body, MessageModel, MessageQueue
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import BrokerError
from twistmq.protocol.flags import MASTER_ID

__all__ = ["PopAssignments"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")

#: Source: RebalanceImpl.QUERY_ASSIGNMENT_TIMEOUT.
_TIMEOUT_MS: Final = 3000
#: The mode of queues that should be popped. Source: MessageRequestMode.
_POP: Final = "POP"


class _Question(Body):
    """The client that asks for its assignment. Source: QueryAssignmentRequestBody."""

    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str
    message_model: MessageModel = MessageModel.CLUSTERING


class _Assignment(Body):
    """One queue; id -1 stands for all queues of its broker."""

    message_queue: MessageQueue
    mode: str = ""


class _Answer(Body):
    """Source: QueryAssignmentResponseBody."""

    message_queue_assignments: list[_Assignment] | None = field(default_factory=list)


class PopAssignments(Generic[T]):
    """Determines the sources of one member.

    :param group: the group's name at brokers.
    :param strategy_name: the name of the strategy by which brokers divide queues.
    :param popping: pops the sources.
    :param forget_lines: called after each round.
    """

    def __init__(
        self, client: ClientCore, group: str, strategy_name: str,
        subscriptions: SubscriptionTable, popping: PopLoop[T], listeners: QueueListeners,
        forget_lines: Callable[[], None],
    ) -> None:
        self._client = client
        self._group = group
        self._strategy_name = strategy_name
        self._subscriptions = subscriptions
        self._popping = popping
        self._listeners = listeners
        self._forget_lines = forget_lines

    async def require_pop(self) -> None:
        """Ask all brokers of the topics for assignments.

        :raises Unsupported: when a broker does not know pop consumption.
        """
        for topic in list(self._subscriptions):
            route = self._client.routes.cached_route(topic)
            for name in [] if route is None else _brokers(route):
                try:
                    await self._ask(topic, name)
                except Unsupported:
                    raise Unsupported(
                        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                        f"broker {name} at {self._client.routes.master(name)} has no pop "
                        f"consumption, which needs RocketMQ 5.0 or later: topic {topic} can be "
                        "read by a Consumer or a PullConsumer") from None
                except BrokerError as error:
                    log.debug("broker %s does not report an assignment: %s", name, error)

    async def round(self) -> bool:
        """Update the sources of all topics; :returns: whether nothing is missing."""
        is_complete = True
        assigned: list[MessageQueue] = []
        for topic in list(self._subscriptions):
            queues = await self._queues(topic)
            if queues is None:
                is_complete = False
                queues = [queue for queue in self._popping.sources if queue.topic == topic]
            assigned += queues
        added, lost = self._popping.change([
            Source(queue, self._client.namespace.queue_without(queue))
            for queue in assigned if queue.topic in self._subscriptions])
        self._listeners.call_lost(sorted(source.public_queue for source in lost))
        self._listeners.call_assigned(sorted(source.public_queue for source in added))
        self._forget_lines()
        return is_complete

    async def _queues(self, topic: str) -> list[MessageQueue] | None:
        """Return the queues of a topic to pop; None when they are not known now."""
        try:
            route = await self._client.routes.find(topic)
        except BrokerError as error:
            log.debug("topic %s has no route: %s", topic, error)
            return None
        names = _brokers(route)
        if not names:
            return None
        queues: list[MessageQueue] | None = []
        try:
            queues = await self._ask(topic, names[self._client.randrange(len(names))])
        except BrokerError as error:
            log.debug("the queues of topic %s to pop are not known now: %s", topic, error)
            if any(queue.topic == topic for queue in self._popping.sources):
                return None
        return queues or [MessageQueue(topic, name, -1) for name in names]

    async def _ask(self, topic: str, broker_name: str) -> list[MessageQueue]:
        """Return the queues that a broker assigns for popping; empty if the mode is pull.

        :raises BrokerError: when the broker does not answer or refuses.
        """
        address = self._client.routes.master(broker_name)
        question = _Question(topic, self._group, self._client.client_id, self._strategy_name)
        reply = await self._client.engine.invoke(
            address, RequestCode.QUERY_ASSIGNMENT, None, question.encode_standard(),
            timeout_ms=_TIMEOUT_MS)
        if reply.code != ResponseCode.SUCCESS:
            raise refusal(reply.code, reply.remark, address)
        assignments = _Answer.decode_reply(reply.body).message_queue_assignments or ()
        return sorted({each.message_queue for each in assignments if each.mode == _POP})


def _brokers(route: Route) -> list[str]:
    """Return the brokers of a topic that allow reading and have a master."""
    masters = {each.broker_name for each in route.data.broker_datas
               if MASTER_ID in each.broker_addrs}
    readable = set(route.owners.values()) or {queue.broker_name for queue in route.read_queues}
    return sorted(readable & masters)
