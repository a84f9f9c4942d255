"""Stores messages that fall due on a slave that stands in for its master on other masters.

The slave cannot append messages to its log, which is a copy of another log. Each message goes to a
queue of its topic on a broker of another name, one after another. If no such broker exists, it
waits for the slave's master.

Differs from Apache: a message that another broker stored also counts as delivered when its flush or
its replication was late; Apache sends it again.

Source: EscapeBridge.asyncPutMessage, BrokerOuterAPI.sendMessageToSpecificBrokerAsync @5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twisted.internet.defer import Deferred, gatherResults

from twistmq.broker.api import BrokerError, RequestCode, ResponseCode, parse_properties
from twistmq.broker.api.headers import SendMessageRequestHeaderV2
from twistmq.broker.api.wire import MASTER_ID, PERM_WRITE
from twistmq.broker.api.wire import properties as names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twistmq.broker.api import Broker, MessageRecord

__all__ = ["EscapeBridge"]

#: Source: EscapeBridge.SEND_TIMEOUT.
_SEND_TIMEOUT_MS: Final = 3000
#: How long a route is used before it is requested again, ms.
_ROUTE_MS: Final = 30_000
#: The number of routes that are kept.
_ROUTES_MAX: Final = 1000
#: The response codes of a message that was stored.
_STORED: Final = frozenset({
    ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE})
#: The template and the number of queues of a new topic, as a producer asks for them.
_DEFAULT_TOPIC, _DEFAULT_QUEUES = "TBW102", 8


class EscapeBridge:
    """Sends the messages of one slave to other brokers."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        #: For each topic the time until which its route is used, ms, and the queues of the route:
        #: address and number.
        self._routes: dict[str, tuple[int, list[tuple[str, int]]]] = {}
        self._turn = 0
        #: The number of messages that were stored on other brokers.
        self.count = 0

    def store(self, records: Sequence[MessageRecord]) -> Deferred[dict[int, BrokerError]]:
        """Store records on other brokers; fires with the refusals by index."""
        refusals: dict[int, BrokerError] = {}

        async def one(index: int, record: MessageRecord) -> None:
            try:
                await self._send(record)
            except BrokerError as error:
                self._routes.pop(record.topic, None)
                refusals[index] = error

        return gatherResults([
            Deferred.fromCoroutine(one(index, record)) for index, record in enumerate(records)],
            consumeErrors=True).addCallback(lambda _: refusals)

    async def _send(self, record: MessageRecord) -> None:
        """:raises BrokerError: when no other broker stored the message."""
        queues = await self._queues(record.topic)
        if not queues:
            raise BrokerError(f"no other broker accepts messages of {record.topic}")
        self._turn += 1
        address, queue_id = queues[self._turn % len(queues)]
        reply = await self._broker.host.ask_server(
            address, RequestCode.SEND_MESSAGE_V2, self._header(record, queue_id), record.body,
            timeout_ms=_SEND_TIMEOUT_MS)
        if reply.code not in _STORED:
            raise BrokerError(f"{address} answered {reply.code}: {reply.remark or 'no remark'}")
        self.count += 1

    def _header(self, record: MessageRecord, queue_id: int) -> SendMessageRequestHeaderV2:
        broker = self._broker
        group = parse_properties(record.properties).get(names.PGROUP) or (
            f"InnerProducerGroup_{broker.broker_name}_{broker.broker_id}")
        return SendMessageRequestHeaderV2(
            producer_group=group, topic=record.topic, default_topic=_DEFAULT_TOPIC,
            default_topic_queue_nums=_DEFAULT_QUEUES, queue_id=queue_id, sys_flag=record.sys_flag,
            born_timestamp=record.born_timestamp, flag=record.flag, properties=record.properties,
            reconsume_times=record.reconsume_times, batch=False)

    async def _queues(self, topic: str) -> list[tuple[str, int]]:
        """Return the queues of a topic on masters of other names.

        :raises BrokerError: when no name server answers.
        """
        now_ms = self._broker.steady.now_ms()
        until_ms, queues = self._routes.get(topic, (0, []))
        if now_ms < until_ms:
            return queues
        route = await self._broker.host.find_route(topic)
        queues = []
        if route is not None:
            masters = {group.broker_name: group.broker_addrs.get(MASTER_ID)
                       for group in route.broker_datas}
            for data in route.queue_datas:
                address = masters.get(data.broker_name)
                if address and data.perm & PERM_WRITE and (
                        data.broker_name != self._broker.broker_name):
                    queues += [(address, number) for number in range(data.write_queue_nums)]
        if len(self._routes) >= _ROUTES_MAX:
            self._routes.clear()
        if queues:
            self._routes[topic] = now_ms + _ROUTE_MS, queues
        return queues
