"""Rebalance: decides which queues this member has, and takes or gives up queues accordingly.

The members of a group divide the queues of each topic among themselves. Each member applies the
same rule to the same two lists (queues and members), so that all agree without a coordinator. It
does so in rounds, see ``rounds.py``.

The difficult part is the handover of a queue, because for a moment two members may both believe
that they have it. The member that loses a queue drops it first, and commits (``handover.py``). The
member that gets the queue waits for half a second before its first pull, so that the previous
member can commit, and then asks for the offset again (``takeover.py``, ``fetcher.py``).

Apache's client does not ask again: with its first pull it commits the offset that it found first,
which resets the group if the previous member committed in between. Therefore this member commits
as soon as it learns of a change, and if a queue comes back to it soon, it continues where it
stopped (``stop_positions.py``).

Source: RebalanceImpl, RebalancePushImpl, MQClientInstance.findConsumerIdList @5.3.3.
"""

from __future__ import annotations

import logging
from typing import Final, Generic, TypeVar

from twistmq.client.base.errors import NoRoute, RemotingError, refusal
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.connection.routes import Route
from twistmq.client.core.consumer.assigned_queues import AssignedQueues, MemberOptions
from twistmq.client.core.consumer.handover import Handover
from twistmq.client.core.consumer.initial_offsets import Beginnings
from twistmq.client.core.consumer.strategies import share, sorted_queues
from twistmq.client.core.consumer.subscription_check import SubscriptionCheck
from twistmq.client.core.consumer.subscriptions import SubscriptionTable
from twistmq.client.core.consumer.takeover import Takeover
from twistmq.protocol.bodies import GetConsumerListByGroupResponseBody
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import BrokerError
from twistmq.protocol.headers.client import GetConsumerListByGroupRequestHeader
from twistmq.protocol.topic_names import RETRY_GROUP_TOPIC_PREFIX

__all__ = ["Rebalance"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")

_MEMBERS_TIMEOUT_MS: Final = 3000


class Rebalance(Generic[T]):
    """Divides the queues of one member's topics.

    :param group: the group's name at brokers.
    :param beginnings: learns which queues the topics have.
    :param check: compares the subscriptions of the members.
    """

    def __init__(
        self, client: ClientCore, group: str, options: MemberOptions,
        subscriptions: SubscriptionTable, queues: AssignedQueues[T], beginnings: Beginnings,
        check: SubscriptionCheck, handover: Handover[T], takeover: Takeover[T],
    ) -> None:
        self._client = client
        self._group = group
        self._options = options
        self._subscriptions = subscriptions
        self._queues = queues
        self._beginnings = beginnings
        self._check = check
        self._handover = handover
        self._takeover = takeover
        #: Topics without a route for which this was logged.
        self._missing: set[str] = set()

    async def round(self) -> bool:
        """Divide the queues of all topics once; :returns: whether nothing is missing."""
        is_complete = True
        changed = False
        for topic in list(self._subscriptions):
            complete, change = await self._divide(topic)
            is_complete = is_complete and complete
            changed = changed or change
        unwanted = [assigned for assigned in self._queues.values()
                    if assigned.queue.topic not in self._subscriptions]
        if unwanted:
            changed = True
            await self._handover.give_up(unwanted)
        if changed:
            # Brokers filter by the newest version of a subscription.
            self._subscriptions.renew()
            await self._client.heartbeat_all()
        return is_complete

    async def _divide(self, topic: str) -> tuple[bool, bool]:
        """Divide the queues of a topic; :returns: if nothing is missing, if anything changed."""
        route = self._client.routes.cached_route(topic)
        if route is None:
            try:
                route = await self._client.routes.find(topic)
            except BrokerError as error:
                self._beginnings.note_missing(topic, error)
                # The retry topic does not exist before the first retry.
                is_retry = topic.startswith(RETRY_GROUP_TOPIC_PREFIX)
                if not is_retry and topic not in self._missing:
                    self._missing.add(topic)
                    log.warning("group %s waits for topic %s: %s", self._group, topic, error)
                return is_retry, False
            self._missing.discard(topic)
        queues = route.read_queues
        self._beginnings.note_queues(topic, queues)
        fixed = self._queues.fixed
        if fixed is not None:
            mine = [queue for queue in sorted_queues(queues) if queue in fixed]
        elif self._options.is_broadcast:
            mine = sorted_queues(queues)
        else:
            members = await self._members(route)
            if members is None:
                return False, False
            mine = share(self._options.strategy, self._client.client_id, queues, members)
        lost = [assigned for assigned in self._queues.values()
                if assigned.queue.topic == topic and (
                    assigned.queue not in mine or assigned.window.is_dropped
                    or assigned.window.is_idle(int(self._client.tasks.now_ms)))]
        await self._handover.give_up(lost)
        missing = [queue for queue in mine if queue not in self._queues]
        acquired = await self._takeover.take(missing)
        return len(acquired) == len(missing), bool(lost or acquired)

    async def _members(self, route: Route) -> list[str] | None:
        """Return the members of the group, as a broker of the topic lists them, or None.

        All brokers know all members. Therefore, if one broker does not answer, another one is
        asked, and the time-out of the first leaves time for the second.
        """
        names = sorted({queue.broker_name for queue in route.read_queues})
        if route.owners:
            names = sorted(set(route.owners.values()))
        if not names:
            return None
        first = self._client.randrange(len(names))
        broker_names = [
            names[first], *([names[(first + 1) % len(names)]] if len(names) > 1 else [])]
        errors: list[str] = []
        for name in broker_names:
            try:
                members = await self._members_at(name, _MEMBERS_TIMEOUT_MS / len(broker_names))
            except (RemotingError, NoRoute) as error:
                errors.append(str(error))
            except BrokerError as error:
                errors.append(str(error))
                break
            else:
                self._check.has_others = len(members) > 1
                self._client.tasks.spawn(self._check.run(name), "subscriptions of the group")
                return members
        log.warning("the members of group %s are not known now: %s", self._group,
                    "; ".join(errors))
        return None

    async def _members_at(self, name: str, timeout_ms: float) -> list[str]:
        """Return the members that one broker lists; :raises BrokerError: without a valid answer."""
        header = GetConsumerListByGroupRequestHeader(consumer_group=self._group)
        address = self._client.routes.reader(name)
        reply = await self._client.engine.invoke(
            address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header, timeout_ms=timeout_ms)
        if reply.code != ResponseCode.SUCCESS:
            raise refusal(reply.code, reply.remark, address)
        return GetConsumerListByGroupResponseBody.decode_reply(reply.body).consumer_id_list
