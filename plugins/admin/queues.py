"""The raw entries of a consume queue: 321.

Source: AdminBrokerProcessor.queryConsumeQueue, QueryConsumeQueueResponseBody, ConsumeQueueData
@5.3.3.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

from twistmq.broker.api import (
    Handled,
    Reply,
    Request,
    RequestCode,
    RequestHandler,
    RequestRefused,
    ResponseCode,
)
from twistmq.broker.api.bodies import Body, SubscriptionData, encode_with_rows
from twistmq.broker.api.headers import QueryConsumeQueueRequestHeader
from twistmq.broker.api.requests import Work
from twistmq.broker.api.store import ConsumeQueue, ExtensionUnit, MessageFilter, is_address
from twistmq.broker.api.wire import Int32, Int64

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["ENTRIES_MAX", "ConsumeQueueData", "QueryConsumeQueueResponseBody", "QueueQuestions"]

#: The maximum number of entries in a response, whose size then stays far below that of a frame.
ENTRIES_MAX: Final = 5000
_ENTRIES_AT_A_TIME: Final = 64


class ConsumeQueueData(Body):
    """One entry of a consume queue."""

    #: Place of the record in the commit log, and size of the record, bytes.
    physic_offset: Int64 = 0
    physic_size: Int32 = 0
    tags_code: Int64 = 0
    #: The extension unit of the entry as JSON, and the unit's bitmap as digits, last byte first.
    extend_data_json: str | None = None
    bit_map: str | None = None
    #: Whether the group's filter accepts the entry according to its extension unit.
    eval: bool = False
    #: Reports that the extension unit of the entry does not exist.
    msg: str | None = None

    @classmethod
    def of(
        cls, entry: tuple[int, int, int], unit: ExtensionUnit | None,
        message_filter: MessageFilter | None, is_group_known: bool,
    ) -> ConsumeQueueData:
        """Describe an entry.

        :param message_filter: the group's filter; None accepts everything.
        """
        row = cls(*entry)
        if unit is not None:
            row.tags_code = unit.tags_code
            row.extend_data_json = _ExtendData.of(unit).encode().decode()
            row.bit_map = _digits(unit.bitmap) if unit.bitmap else None
            row.eval = is_group_known and (
                message_filter is None or message_filter.match_queue_entry(
                    unit.tags_code, unit.store_time, unit.bitmap or None))
        elif is_address(entry[2]):
            row.msg = f"Cq extend not exist!addr: {entry[2]}"
        return row


class _ExtendData(Body):
    """An extension unit. Source: CqExtUnit."""

    #: Base64.
    filter_bit_map: str | None = None
    msg_store_time: Int64 = 0
    size: Int32 = 0
    tags_code: Int64 = 0

    @classmethod
    def of(cls, unit: ExtensionUnit) -> _ExtendData:
        bitmap = base64.b64encode(unit.bitmap).decode("ascii") if unit.bitmap else None
        return cls(bitmap, unit.store_time, unit.size, unit.tags_code)


def _digits(bitmap: bytes) -> str:
    """Format the bits, last byte first; a line ends after a byte whose number 8 divides."""
    return "".join(f"{bitmap[number]:08b}" + ("" if number % 8 else "\n")
                   for number in reversed(range(len(bitmap))))


class QueryConsumeQueueResponseBody(Body):
    """Entries, and the bounds of the queue."""

    #: The subscription of the named group, and its filter as readable text.
    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: list[ConsumeQueueData] | None = None
    max_queue_index: Int64 = 0
    min_queue_index: Int64 = 0


class QueueQuestions:
    """The handlers of requests about consume queues."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> list[RequestHandler[Any]]:
        return [RequestHandler(RequestCode.QUERY_CONSUME_QUEUE, self._entries,
                               QueryConsumeQueueRequestHeader)]

    def _entries(self, request: Request[QueryConsumeQueueRequestHeader]) -> Handled:
        header = request.header
        queue = self._broker.store.queues.find(header.topic or "", header.queue_id)
        if queue is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR,
                                 f"{header.queue_id}@{header.topic} is not exist!")
        body = QueryConsumeQueueResponseBody(
            max_queue_index=queue.max_offset, min_queue_index=queue.min_offset)
        message_filter = None
        if header.consumer_group is not None:
            message_filter = self._describe_group(body, header.consumer_group, queue.topic)
        if not queue.min_offset <= header.index < queue.max_offset:
            return Reply(remark=f"Index {header.index} of {header.queue_id}@{header.topic} "
                                "is not exist!")
        return self._broker.long_answers.answer(self._read(
            queue, header.index, header.count, body, message_filter), request.channel)

    def _describe_group(
        self, body: QueryConsumeQueueResponseBody, name: str, topic: str
    ) -> MessageFilter | None:
        """Describe the subscription of a group in the body; :returns: its filter."""
        group = self._broker.clients.consumer_group(name)
        subscription = group.subscriptions.get(topic) if group else None
        body.subscription_data = subscription
        filters = self._broker.filters
        body.filter_data = (filters.describe(name, topic) if subscription
                            else f"{name}@{topic} is not online!")
        if group is None or subscription is None:
            return None
        try:
            return filters.group_filter(name, subscription, subscription.sub_version,
                                        group.filters)
        except RequestRefused:
            # A filter that cannot be evaluated accepts everything, as in Apache's broker.
            return None

    def _read(
        self, queue: ConsumeQueue, index: int, count: int, body: QueryConsumeQueueResponseBody,
        message_filter: MessageFilter | None,
    ) -> Work:
        """Read entries. Differs from Apache: the answer is limited to the size of a frame."""
        rows: list[bytes] = []
        max_count = min(count, ENTRIES_MAX)
        while len(rows) < max_count:
            entries, index = self._broker.store.queues.extended_entries(
                queue.topic, queue.queue_id, index,
                min(max_count - len(rows), _ENTRIES_AT_A_TIME))
            if not entries:
                break
            rows += [ConsumeQueueData.of(entry, unit, message_filter,
                                         body.subscription_data is not None).encode()
                     for entry, unit in entries]
            yield
        body.queue_data = []
        return Reply(body=encode_with_rows(body, b'"queueData":[]', rows))
