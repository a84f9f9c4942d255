"""Queries about topics, queues, offsets and brokers, for clients and tools.

All offsets are logical offsets in a queue. Source: MQAdminImpl, MQClientAPIImpl @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from twistmq.client.base.answers import checked_offset
from twistmq.client.base.errors import Closed, NoRoute, RemotingError, RequestRefused
from twistmq.client.base.messages import PullResult
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.connection.link import Outcome
from twistmq.client.core.connection.tasks import Future
from twistmq.client.core.consumer.pull_request import pull_header, pull_result
from twistmq.protocol.bodies import ClusterInfo, KVTable, MessageQueue, TopicList, TopicRouteData
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import BrokerError
from twistmq.protocol.flags import MASTER_ID, PERM_READ_WRITE
from twistmq.protocol.headers import offset as offsets
from twistmq.protocol.headers.pull import PullMessageRequestHeader

__all__ = ["Queries"]

#: Apache's broker requires a default topic, and uses the settings of the topic itself.
_DEFAULT_TOPIC: Final = "TBW102"
#: A broker registers a new topic after its answer, so the route is asked for again after this time.
_ROUTE_WAIT_MS: Final = 20


class Queries:
    """The queries of a client; their errors are ``RequestRefused`` and ``RemotingError``."""

    def __init__(self, client: ClientCore) -> None:
        self._client = client

    # --- topics and brokers

    async def route(self, topic: str, *, again: bool = False) -> TopicRouteData:
        """Return the route of a topic; ``again``: ask a name server even if it is known."""
        self._client.check_open()
        name = self._client.namespace.topic(topic)
        return (await self._client.routes.find(name, again=again)).data

    async def topics(self) -> list[str]:
        """Return the names of all topics of the namespace, in order."""
        reply = await self._client.ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        space = self._client.namespace
        topics = TopicList.decode_reply(reply.body).topic_list
        return sorted(space.without(topic) for topic in topics if space.contains(topic))

    async def read_queues(self, topic: str, *, again: bool = False) -> list[MessageQueue]:
        """Return the queues from which a topic can be read, in order."""
        self._client.check_open()
        route = await self._client.routes.find(self._client.namespace.topic(topic), again=again)
        return self._named(route.read_queues, topic)

    async def write_queues(self, topic: str, *, again: bool = False) -> list[MessageQueue]:
        """Return the queues of a topic for sending, or the queues that a first send creates."""
        self._client.check_open()
        route = await self._client.routes.find_for_send(
            self._client.namespace.topic(topic), again=again)
        return self._named(route.write_queues, topic)

    async def cluster_info(self) -> ClusterInfo:
        """Return all clusters and brokers."""
        reply = await self._client.ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        return ClusterInfo.decode_reply(reply.body)

    async def broker_addresses(self) -> dict[str, str]:
        """Return the address of each broker's master, or of a slave without a master, by name."""
        table = (await self.cluster_info()).broker_addr_table
        return {name: data.broker_addrs[min(data.broker_addrs)]
                for name, data in table.items() if data.broker_addrs}

    async def runtime_info(self, address: str) -> dict[str, str]:
        """Return a broker's runtime table, which ``mqadmin brokerStatus`` shows."""
        reply = await self._client.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        return KVTable.decode_reply(reply.body).table

    async def create_topic(
        self, topic: str, queues: int, attributes: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic on each master, or change it, and wait until the name servers know it.

        :raises NoRoute: when the name servers know no master, or do not know the topic in time.
        """
        client = self._client
        info = await self.cluster_info()
        masters = [data.broker_addrs[MASTER_ID] for data in info.broker_addr_table.values()
                   if MASTER_ID in data.broker_addrs]
        if not masters:
            raise NoRoute(f"topic {topic} cannot be created: no name server knows a master")
        # Few programs create topics, so the import is done here.
        from twistmq.protocol.headers.topic import CreateTopicRequestHeader

        header = CreateTopicRequestHeader(
            topic=topic, default_topic=_DEFAULT_TOPIC, read_queue_nums=queues,
            write_queue_nums=queues, perm=PERM_READ_WRITE, topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0,
            attributes=",".join(f"+{name}={value}" for name, value in (attributes or {}).items())
            or None)
        for address in masters:
            await client.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        end_ms = client.tasks.now_ms + client.options.timeout_ms
        while not await self._has_topic(topic):
            if client.tasks.now_ms >= end_ms:
                raise NoRoute(f"topic {topic} was created, but no name server knows it yet")
            await client.tasks.sleep(_ROUTE_WAIT_MS)

    async def _has_topic(self, topic: str) -> bool:
        """Whether a name server knows the topic now."""
        try:
            await self.route(topic, again=True)
        except RequestRefused:
            return False
        return True

    def _named(self, queues: Sequence[MessageQueue], topic: str) -> list[MessageQueue]:
        """Return the queues with the topic's name in the namespace."""
        if not self._client.namespace.name:
            return list(queues)
        return [MessageQueue(topic, each.broker_name, each.queue_id) for each in queues]

    # --- offsets

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the first offset that can be read."""
        header = offsets.GetMinOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
        reply = await self._client.ask_queue(queue, RequestCode.GET_MIN_OFFSET, header)
        return checked_offset(reply.header(offsets.GetMinOffsetResponseHeader).offset,
                              f"the beginning of {queue}", -1)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the next message will have."""
        header = offsets.GetMaxOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
        reply = await self._client.ask_queue(queue, RequestCode.GET_MAX_OFFSET, header)
        return checked_offset(reply.header(offsets.GetMaxOffsetResponseHeader).offset,
                              f"the end of {queue}")

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the first offset stored at that Unix ms or later, or the end of the queue."""
        header = offsets.SearchOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms)
        reply = await self._client.ask_queue(
            queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
        return checked_offset(reply.header(offsets.SearchOffsetResponseHeader).offset,
                              f"the search result in {queue}")

    async def group_offset(self, group: str, queue: MessageQueue) -> int | None:
        """Return the first offset not consumed by a group; None when it never had the queue."""
        header = offsets.QueryConsumerOffsetRequestHeader(
            consumer_group=group, topic=queue.topic, queue_id=queue.queue_id,
            set_zero_if_not_found=False)
        reply = await self._client.ask_queue(
            queue, RequestCode.QUERY_CONSUMER_OFFSET, header,
            accepted_codes=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND))
        if reply.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return checked_offset(reply.header(offsets.QueryConsumerOffsetResponseHeader).offset,
                              f"group {group} in {queue}")

    async def commit_group_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Set the offset of a group, which is the first offset that it has not consumed."""
        header = offsets.UpdateConsumerOffsetRequestHeader(
            consumer_group=group, topic=queue.topic, queue_id=queue.queue_id,
            commit_offset=offset)
        await self._client.ask_queue(queue, RequestCode.UPDATE_CONSUMER_OFFSET, header,
                                     of_slaves=False)

    # --- messages

    async def pull(
        self, queue: MessageQueue, offset: int, *, group: str, max_count: int = 32,
        expression: str = "*", expression_type: str = "TAG", hold_ms: int = 0,
    ) -> PullResult:
        """Pull messages of one queue, and try again if there is no answer.

        :param hold_ms: how long the broker may wait for a message.
        """
        header = pull_header(queue, offset, group, max_count=max_count, expression=expression,
                             expression_type=expression_type, hold_ms=hold_ms)

        async def pull_once(attempt: int) -> PullResult:
            if attempt:
                await self._client.locate(queue, again=True)
            future: Future[PullResult] = Future()

            def done(outcome: PullResult | Exception) -> None:
                if isinstance(outcome, Exception):
                    future.set_error(outcome)
                else:
                    future.set_result(outcome)

            self.begin_pull(queue, header, done, attempt=attempt, hold_ms=hold_ms)
            return await future

        return await self._client.retried(pull_once)

    def begin_pull(
        self, queue: MessageQueue, header: PullMessageRequestHeader,
        on_done: Callable[[PullResult | Exception], object], *, attempt: int = 0,
        hold_ms: float = 0,
    ) -> None:
        """Pull once, and call back with the result or the error.

        :param attempt: the number of the attempt, from 0; later ones ask slaves too, in turn.
        """
        client = self._client
        named = client.namespace.header(header)

        def pull(broker_name: str) -> None:
            try:
                address = client.routes.in_turn(broker_name, attempt)
            except NoRoute as error:
                on_done(error)
                return

            def replied(outcome: Outcome) -> None:
                if isinstance(outcome, RemotingError):
                    on_done(outcome)
                    return
                try:
                    result = pull_result(outcome, address)
                except BrokerError as error:
                    on_done(error)
                else:
                    on_done(result)

            client.engine.request(address, RequestCode.PULL_MESSAGE, named, b"", replied,
                                  client.options.timeout_ms + hold_ms)

        name = client.routes.broker_of(queue)
        if name in client.routes.brokers:
            pull(name)
            return

        def pull_from_located(located: Future[str]) -> None:
            error = located.error
            if error is None:
                pull(located.result())
            else:
                on_done(error if isinstance(error, Exception) else Closed("the client is closed"))

        client.tasks.spawn(client.locate(queue), "route for a pull").when_done(pull_from_located)
