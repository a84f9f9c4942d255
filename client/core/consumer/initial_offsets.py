"""The start offset of a queue for which the group has no offset.

    the option start          an unknown queue begins
    "first"                   at its first message
    a time                    at the first message that was stored then or later
    "last"                    at its end, unless the group existed before the queue

With "last", a group must not lose messages in a queue that is newer than the group:

    known fact                                             the queue begins
    the topic was deleted while this member read it        at its first message
    the group has an offset in another queue of the topic  at its first message
    this member saw the topic without the queue, or saw    at the broker's choice
    that the topic did not exist
    the group has offsets in other topics only             at the broker's choice
    the group does not have any offset                     at its end

The broker's choice is the answer to the request that Apache's client sends. The broker answers 0 as
long as the first message of the queue is in the cache of its log; otherwise it reports that there
is no offset, and the queue begins at its end. Retries belong to the group, so a retry topic always
begins at its first message.

Source: RebalancePushImpl.computePullFromWhereWithException, ConsumerManageProcessor
.queryConsumerOffset @5.3.3. Differs from Apache: its client asks every time, so a new group gets
old messages too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from twistmq.client.base.answers import checked_offset
from twistmq.client.base.errors import RequestRefused, refusal
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.connection.tasks import Task
from twistmq.client.core.consumer.assigned_queues import MemberOptions
from twistmq.client.core.consumer.offsets import Familiarity, OffsetStore
from twistmq.client.core.consumer.subscriptions import SubscriptionTable
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import BrokerError
from twistmq.protocol.header import CommandHeader
from twistmq.protocol.headers import offset as headers
from twistmq.protocol.topic_names import RETRY_GROUP_TOPIC_PREFIX

__all__ = ["Beginnings"]

log = logging.getLogger("twistmq.client")

_TIMEOUT_MS: Final = 6000


class Beginnings:
    """The start offsets of the queues of one member.

    :param group: the group's name at brokers.
    :param offsets: the offsets of the group.
    """

    def __init__(
        self, client: ClientCore, group: str, options: MemberOptions,
        subscriptions: SubscriptionTable, offsets: OffsetStore,
    ) -> None:
        self._client = client
        self._group = group
        self._options = options
        self._subscriptions = subscriptions
        self._offsets = offsets
        #: The queues that each topic had when this member saw it for the first time.
        self._first_seen: dict[str, frozenset[MessageQueue]] = {}
        #: Where the group had offsets, as seen from each topic, at the first request.
        self._familiar: dict[str, Familiarity] = {}
        self._asking: dict[str, Task[Familiarity]] = {}

    def note_queues(self, topic: str, queues: Iterable[MessageQueue]) -> None:
        """Note the queues of a topic; only the first call for a topic has an effect."""
        if topic not in self._first_seen:
            self._first_seen[topic] = frozenset(queues)

    def note_missing(self, topic: str, error: BrokerError) -> None:
        """If a topic does not exist, note that no queue of it is older than this member.

        :param error: the reason why the topic has no route.
        """
        if isinstance(error, RequestRefused) and (
                error.response_code == ResponseCode.TOPIC_NOT_EXIST):
            self.note_queues(topic, ())

    def has_offset(self, topic: str) -> None:
        """Note that the group has an offset in a queue of a topic."""
        self._familiar.setdefault(topic, Familiarity.TOPIC)

    def forget(self, topic: str) -> None:
        """Forget a topic whose subscription begins or ends while the member is in its group."""
        self._first_seen.pop(topic, None)
        self._familiar.pop(topic, None)
        self._offsets.forget_familiarity()

    async def offset(self, queue: MessageQueue, *, is_made_again: bool) -> int:
        """Return the offset at which an unknown queue begins.

        :param is_made_again: whether the topic was deleted while this member read the queue.
        :raises BrokerError: when the offset cannot be determined now.
        """
        start = self._options.start
        if start == "first" or is_made_again or queue.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            return 0
        if start != "last":
            return await self._ask(
                queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, headers.SearchOffsetRequestHeader(
                    topic=queue.topic, queue_id=queue.queue_id, timestamp=int(start)))
        familiarity = await self._familiarity(queue.topic)
        if familiarity is Familiarity.TOPIC:
            log.info("group %s knows topic %s, but not its queue %s, which is read from its first "
                     "message", self._group, queue.topic, queue)
            return 0
        # The end is requested first, so that messages between the two responses are not skipped.
        end = await self._ask(queue, RequestCode.GET_MAX_OFFSET, headers.GetMaxOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id))
        is_late = queue not in self._first_seen.get(queue.topic, (queue,))
        if end and (is_late or familiarity is Familiarity.GROUP):
            return await self._as_the_broker_says(queue, end)
        return end

    async def is_made_again(self, queue: MessageQueue, known_ms: float) -> bool:
        """Whether a queue was deleted and created again after it had messages at a given time.

        If so, its first message is newer than that time and still exists.

        :param known_ms: the time, in Unix ms.
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
        """Return 0 if the first message is in the broker's cache, otherwise the end."""
        client = self._client
        address = client.routes.reader(client.routes.broker_of(queue))
        reply = await client.engine.invoke(
            address, RequestCode.QUERY_CONSUMER_OFFSET, headers.QueryConsumerOffsetRequestHeader(
                consumer_group=self._group, topic=queue.topic, queue_id=queue.queue_id),
            timeout_ms=_TIMEOUT_MS)
        if reply.code == ResponseCode.QUERY_NOT_FOUND:
            return end
        if reply.code != ResponseCode.SUCCESS:
            raise refusal(reply.code, reply.remark, address)
        offset = reply.header(headers.QueryConsumerOffsetResponseHeader).offset
        return offset if 0 <= offset <= end else end

    async def _familiarity(self, topic: str) -> Familiarity:
        """Return how well the group knew a topic before this member; it is requested once."""
        familiarity = self._familiar.get(topic)
        if familiarity is not None:
            return familiarity
        asking = self._asking.get(topic)
        if asking is None:
            asking = self._asking[topic] = self._client.tasks.spawn(
                self._offsets.familiarity(topic, self._queues()),
                "topics of the group")
            asking.when_done(lambda _: self._asking.pop(topic, None))
        await self._client.tasks.all_of([asking])
        # An offset may have been found in the meantime.
        return self._familiar.setdefault(topic, asking.result())

    def _queues(self) -> dict[str, Iterable[MessageQueue]]:
        """Return the queues of all topics that the member reads, by topic."""
        routes = {each: self._client.routes.cached_route(each)
                  for each in self._subscriptions}
        return {each: route.read_queues for each, route in routes.items() if route is not None}

    async def _ask(self, queue: MessageQueue, code: int, header: CommandHeader) -> int:
        address = self._client.routes.reader(self._client.routes.broker_of(queue))
        reply = await self._client.engine.invoke(address, code, header, timeout_ms=_TIMEOUT_MS)
        if reply.code != ResponseCode.SUCCESS:
            raise refusal(reply.code, reply.remark, address)
        # Apache's broker reports -1 as the beginning of a queue that it does not have.
        return max(checked_offset(reply.header(headers.GetMaxOffsetResponseHeader).offset,
                                  f"{queue} at {address}", -1), 0)
