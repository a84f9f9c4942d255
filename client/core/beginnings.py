"""Where a queue begins for which a group has no offset.

    the option start          an unknown queue begins
    "first"                   at its first message
    a time                    at the first message that was stored then or later
    "last"                    at its end, unless the group was there before the queue

With "last", a group must not lose what was sent to a queue that is younger than the group:

    what is known                                          the queue begins
    the topic was deleted under this member                at its first message
    the group has an offset in another queue of the topic  at its first message
    this member saw the topic without the queue, or saw    where the broker says
    that there was no such topic
    the group has offsets in other topics only             where the broker says
    the group has no offset at all                         at its end

A broker that is asked as Apache's client asks it says 0 as long as the first message of the queue
is close at hand (in the cache of its log); otherwise it knows of no offset, and the queue begins at
its end. Retries belong to the group, so a retry topic always begins at its first message.

Source: RebalancePushImpl.computePullFromWhereWithException, ConsumerManageProcessor
.queryConsumerOffset @5.3.3. Differs from Apache: its client asks every time, so a new group gets
old messages too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final, Protocol

from twistmq.broker.codes import RequestCode, ResponseCode
from twistmq.broker.topic_names import RETRY_GROUP_TOPIC_PREFIX
from twistmq.broker.wire.bodies import MessageQueue
from twistmq.broker.wire.header import CommandHeader
from twistmq.broker.wire.headers import offset as headers
from twistmq.client.answers import checked_offset
from twistmq.client.core.client import ClientCore
from twistmq.client.core.held import MemberOptions
from twistmq.client.core.offsets import Familiarity, OffsetStore
from twistmq.client.core.subscriptions import Subscription
from twistmq.client.core.tasks import Task
from twistmq.client.errors import refusal

__all__ = ["Beginnings"]

log = logging.getLogger("twistmq.client")

_TIMEOUT_MS: Final = 6000


class _Member(Protocol):
    """What is asked of a member; see ``consuming.Member``."""

    client: ClientCore
    group: str
    options: MemberOptions
    subscriptions: dict[str, Subscription]
    offsets: OffsetStore


class Beginnings:
    """The beginnings of the queues of one member."""

    def __init__(self, member: _Member) -> None:
        self._member = member
        self._client = member.client
        #: The queues that each topic had when this member saw it for the first time.
        self._first_seen: dict[str, frozenset[MessageQueue]] = {}
        #: How well the group knew each topic when that was asked for first.
        self._familiar: dict[str, Familiarity] = {}
        self._asking: dict[str, Task[Familiarity]] = {}

    def seen(self, topic: str, queues: Iterable[MessageQueue]) -> None:
        """A topic has these queues now; only the first call for a topic counts."""
        if topic not in self._first_seen:
            self._first_seen[topic] = frozenset(queues)

    def has_offset(self, topic: str) -> None:
        """The group has an offset in a queue of a topic."""
        self._familiar.setdefault(topic, Familiarity.TOPIC)

    def forget(self, topic: str) -> None:
        """The subscription to a topic begins or ends while the member is in its group."""
        self._first_seen.pop(topic, None)
        self._familiar.pop(topic, None)
        self._member.offsets.forget_familiarity()

    async def offset(self, queue: MessageQueue, *, is_made_again: bool) -> int:
        """The offset at which an unknown queue begins.

        :param is_made_again: whether the topic was deleted while this member read the queue.
        :raises BrokerError: when it cannot be known now.
        """
        start = self._member.options.start
        if start == "first" or is_made_again or queue.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            return 0
        if start != "last":
            return await self._ask(
                queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, headers.SearchOffsetRequestHeader(
                    topic=queue.topic, queue_id=queue.queue_id, timestamp=int(start)))
        familiarity = await self._familiarity(queue.topic)
        if familiarity is Familiarity.TOPIC:
            log.info("group %s knows topic %s, but not its queue %s, which is read from its first "
                     "message", self._member.group, queue.topic, queue)
            return 0
        # Asked first: what comes between the two answers is not left out.
        end = await self._ask(queue, RequestCode.GET_MAX_OFFSET, headers.GetMaxOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id))
        is_late = queue not in self._first_seen.get(queue.topic, (queue,))
        if end and (is_late or familiarity is Familiarity.GROUP):
            return await self._as_the_broker_says(queue, end)
        return end

    async def is_made_again(self, queue: MessageQueue, known_ms: float) -> bool:
        """Whether a queue is not the one that had messages at a time, but a new one of its name.

        Its first message is then younger, and still there.

        :param known_ms: Unix ms.
        """
        header = headers.GetMinOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
        if await self._ask(queue, RequestCode.GET_MIN_OFFSET, header) > 0:
            return False
        address = self._client.routes.reader(self._client.routes.broker_of(queue))
        reply = await self._client.engine.invoke(
            address, RequestCode.GET_EARLIEST_MSG_STORETIME,
            headers.GetEarliestMsgStoretimeRequestHeader(
                topic=queue.topic, queue_id=queue.queue_id), timeout_ms=_TIMEOUT_MS)
        if reply.code != ResponseCode.SUCCESS:
            raise refusal(reply.code, reply.remark, address)
        return reply.header(
            headers.GetEarliestMsgStoretimeResponseHeader).timestamp > known_ms

    async def _as_the_broker_says(self, queue: MessageQueue, end: int) -> int:
        """0 when the first message is at hand at the broker, otherwise the end."""
        client = self._client
        address = client.routes.reader(client.routes.broker_of(queue))
        reply = await client.engine.invoke(
            address, RequestCode.QUERY_CONSUMER_OFFSET, headers.QueryConsumerOffsetRequestHeader(
                consumer_group=self._member.group, topic=queue.topic, queue_id=queue.queue_id),
            timeout_ms=_TIMEOUT_MS)
        if reply.code == ResponseCode.QUERY_NOT_FOUND:
            return end
        if reply.code != ResponseCode.SUCCESS:
            raise refusal(reply.code, reply.remark, address)
        offset = reply.header(headers.QueryConsumerOffsetResponseHeader).offset
        return offset if 0 <= offset <= end else end

    async def _familiarity(self, topic: str) -> Familiarity:
        """How well the group knew a topic before this member read it; it is asked for once."""
        known = self._familiar.get(topic)
        if known is not None:
            return known
        asking = self._asking.get(topic)
        if asking is None:
            asking = self._asking[topic] = self._client.tasks.spawn(
                self._member.offsets.familiarity(topic, self._queues()),
                "topics of the group")
            asking.when_done(lambda _: self._asking.pop(topic, None))
        await self._client.tasks.all_of([asking])
        # An offset may have been found meanwhile.
        return self._familiar.setdefault(topic, asking.result())

    def _queues(self) -> dict[str, Iterable[MessageQueue]]:
        """The queues of all topics that the member reads, by topic."""
        routes = {each: self._client.routes.known(each) for each in self._member.subscriptions}
        return {each: route.read_queues for each, route in routes.items() if route is not None}

    async def _ask(self, queue: MessageQueue, code: int, header: CommandHeader) -> int:
        address = self._client.routes.reader(self._client.routes.broker_of(queue))
        reply = await self._client.engine.invoke(address, code, header, timeout_ms=_TIMEOUT_MS)
        if reply.code != ResponseCode.SUCCESS:
            raise refusal(reply.code, reply.remark, address)
        # Of a queue that it does not have, Apache's broker says that it begins at -1.
        return max(checked_offset(reply.header(headers.GetMaxOffsetResponseHeader).offset,
                                  f"{queue} at {address}", -1), 0)
