"""The entries of a consume queue as they are: 321.

Source: AdminBrokerProcessor.queryConsumeQueue, QueryConsumeQueueResponseBody, ConsumeQueueData
@5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from twistmq.broker.codes import RequestCode, ResponseCode
from twistmq.broker.errors import RequestRefused
from twistmq.broker.remoting import Handled, Reply, Request, RequestHandler
from twistmq.broker.store.consume_queue import ConsumeQueue
from twistmq.broker.wire.bodies import Body, SubscriptionData
from twistmq.broker.wire.header import Int32, Int64
from twistmq.broker.wire.headers.query import QueryConsumeQueueRequestHeader
from twistmq.plugins.admin.long_answers import LongAnswers, Work
from twistmq.plugins.admin.rows import encode_with_rows

if TYPE_CHECKING:
    from twistmq.broker.kernel import Kernel

__all__ = ["ENTRIES_MAX", "ConsumeQueueData", "QueryConsumeQueueResponseBody", "QueueQuestions"]

#: Entries of one answer: some hundred kilobytes, far below the longest frame.
ENTRIES_MAX: Final = 5000
_ENTRIES_AT_A_TIME: Final = 64


class ConsumeQueueData(Body):
    """One entry."""

    #: Place in the commit log, bytes; size of the record there, bytes.
    physic_offset: Int64 = 0
    physic_size: Int32 = 0
    tags_code: Int64 = 0
    #: Whether the group's filter takes it, where that can be said of the entry alone.
    eval: bool = False


class QueryConsumeQueueResponseBody(Body):
    """Entries, and where the queue begins and ends."""

    #: What the group that was named subscribes to; what its filter is, as a text for people.
    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: list[ConsumeQueueData] | None = None
    max_queue_index: Int64 = 0
    min_queue_index: Int64 = 0


class QueueQuestions:
    """The handlers about consume queues."""

    def __init__(self, kernel: Kernel, long_answers: LongAnswers) -> None:
        self._kernel = kernel
        self.long_answers = long_answers

    def handlers(self) -> list[RequestHandler[Any]]:
        return [RequestHandler(RequestCode.QUERY_CONSUME_QUEUE, self._entries,
                               QueryConsumeQueueRequestHeader)]

    def _entries(self, request: Request[QueryConsumeQueueRequestHeader]) -> Handled:
        header = request.header
        queue = self._kernel.store.queue(header.topic or "", header.queue_id)
        if queue is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR,
                                 f"{header.queue_id}@{header.topic} is not exist!")
        body = QueryConsumeQueueResponseBody(
            max_queue_index=queue.max_offset, min_queue_index=queue.min_offset)
        if header.consumer_group is not None:
            self._describe_group(body, header.consumer_group, queue.topic)
        if not queue.min_offset <= header.index < queue.max_offset:
            return Reply(remark=f"Index {header.index} of {header.queue_id}@{header.topic} "
                                "is not exist!")
        return self.long_answers.answer(self._read(queue, header.index, header.count, body))

    def _describe_group(
        self, body: QueryConsumeQueueResponseBody, name: str, topic: str
    ) -> None:
        group = self._kernel.clients.consumer_group(name)
        subscription = group.subscriptions.get(topic) if group else None
        body.subscription_data = subscription
        body.filter_data = "null" if subscription else f"{name}@{topic} is not online!"

    def _read(
        self, queue: ConsumeQueue, index: int, count: int, body: QueryConsumeQueueResponseBody
    ) -> Work:
        """Differs from Apache: an answer has an end, because a reply fits into a frame."""
        rows: list[bytes] = []
        wanted = min(count, ENTRIES_MAX)
        while len(rows) < wanted:
            entries, index = self._kernel.store.read_entries(
                queue.topic, queue.queue_id, index,
                min(wanted - len(rows), _ENTRIES_AT_A_TIME))
            if not entries:
                break
            rows += [ConsumeQueueData(*entry).encode() for entry in entries]
            yield
        body.queue_data = []
        return Reply(body=encode_with_rows(body, b'"queueData":[]', rows))
