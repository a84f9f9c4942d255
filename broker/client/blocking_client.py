"""A client for code that has no reactor: workers of Spark, scripts, notebooks.

    with BlockingClient(["127.0.0.1:9876"]) as client:
        client.send(OutgoingMessage("orders", b"paid"))
        for queue in client.read_queues("orders"):
            result = client.pull(queue, client.min_offset(queue))

What fails for want of a connection or of an answer is asked again: of the next name server, of a
slave of the same name (reads), of another broker (sends without a queue). It belongs to one thread;
it sends no heartbeats, so brokers do not count it as a member of a group.

Source: MQClientAPIImpl, DefaultMQProducerImpl, PullAPIWrapper @5.3.3.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from twistmq.broker.client.blocking_cluster import (
    NEW_TOPIC_QUEUES,
    BlockingCluster,
    PendingRequest,
    refusal,
)
from twistmq.broker.client.messages import OutgoingMessage, PullResult, PullStatus, SendResult
from twistmq.broker.codes import RequestCode, ResponseCode
from twistmq.broker.errors import RequestRefused
from twistmq.broker.topic_names import TEMPLATE_TOPIC
from twistmq.broker.wire.batch import encode_batch
from twistmq.broker.wire.bodies import ClusterInfo, KVTable, MessageQueue
from twistmq.broker.wire.command import RemotingCommand
from twistmq.broker.wire.flags import PULL_SUBSCRIPTION, PULL_SUSPEND
from twistmq.broker.wire.header import CommandHeader
from twistmq.broker.wire.headers import offset as offsets
from twistmq.broker.wire.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from twistmq.broker.wire.headers.send import (
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from twistmq.broker.wire.properties import format_properties

__all__ = ["BlockingClient"]

_PULL_STATUS: Final = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW_MESSAGE,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MESSAGE,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_MOVED,
}
#: A send with one of these is stored.
_STORED: Final = frozenset({
    ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
})
#: Refusals that may end in a moment, or at another broker.
#: Source: DefaultMQProducer.retryResponseCodes.
_TRY_AGAIN: Final = frozenset({
    ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE,
})


class BlockingClient(BlockingCluster):
    """A client of a cluster; parameters are those of :class:`BlockingCluster`."""

    #: How many queues :meth:`send` chose.
    _turn = 0

    # --- offsets: all are logical indices in a queue

    def min_offset(self, queue: MessageQueue) -> int:
        """The first offset that can be read."""
        header = offsets.GetMinOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
        reply = self._ask(queue, RequestCode.GET_MIN_OFFSET, header)
        return reply.header(offsets.GetMinOffsetResponseHeader).offset

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset the next message will have."""
        header = offsets.GetMaxOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
        reply = self._ask(queue, RequestCode.GET_MAX_OFFSET, header)
        return reply.header(offsets.GetMaxOffsetResponseHeader).offset

    def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first message stored at that time or later; the queue's end without one.

        :param timestamp_ms: Unix ms.
        """
        header = offsets.SearchOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms)
        reply = self._ask(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
        return reply.header(offsets.SearchOffsetResponseHeader).offset

    def group_offset(self, group: str, queue: MessageQueue) -> int | None:
        """The first offset a group has not consumed; None when it never consumed the queue."""
        header = offsets.QueryConsumerOffsetRequestHeader(
            consumer_group=group, topic=queue.topic, queue_id=queue.queue_id,
            set_zero_if_not_found=False)
        reply = self._ask(queue, RequestCode.QUERY_CONSUMER_OFFSET, header,
                          taken=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND))
        if reply.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return reply.header(offsets.QueryConsumerOffsetResponseHeader).offset

    def commit_group_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Commit the offset of a group: the first offset it has not consumed."""
        header = offsets.UpdateConsumerOffsetRequestHeader(
            consumer_group=group, topic=queue.topic, queue_id=queue.queue_id,
            commit_offset=offset)
        self._ask(queue, RequestCode.UPDATE_CONSUMER_OFFSET, header, of_slaves=False)

    # --- brokers

    def broker_addresses(self) -> dict[str, str]:
        """The address of each broker's master, or of a slave without a master, by name.

        :raises RemotingError: when no name server answers.
        """
        reply = self._ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO, None)
        table = ClusterInfo.decode(reply.body).broker_addr_table
        return {name: data.broker_addrs[min(data.broker_addrs)]
                for name, data in table.items() if data.broker_addrs}

    def runtime_info(self, address: str) -> dict[str, str]:
        """A broker's runtime table: what `mqadmin brokerStatus` shows.

        :raises RequestRefused: when it may not be asked.
        :raises RemotingError: when it does not answer.
        """
        reply = self._request(self._connection(address), RequestCode.GET_BROKER_RUNTIME_INFO, None)
        if reply.code != ResponseCode.SUCCESS:
            raise refusal(reply, address)
        return KVTable.decode(reply.body).table

    # --- pulling

    def pull(
        self, queue: MessageQueue, offset: int, *, group: str = "twistmq_blocking_client",
        max_count: int = 32, expression: str = "*", expression_type: str = "TAG",
        hold_ms: int = 0,
    ) -> PullResult:
        """Pull messages of one queue.

        :param hold_ms: how long the broker may wait for a message.
        :raises RequestRefused: with the broker's code and remark.
        """
        def once(attempt: int) -> PullResult:
            return self.end_pull(self.begin_pull(
                queue, offset, group=group, max_count=max_count, expression=expression,
                expression_type=expression_type, hold_ms=hold_ms, attempt=attempt))

        return self.retried(queue.topic, once)

    def begin_pull(
        self, queue: MessageQueue, offset: int, *, group: str, max_count: int,
        expression: str = "*", expression_type: str = "TAG", hold_ms: int = 0, attempt: int = 0,
    ) -> PendingRequest:
        """Ask for messages and do not wait; :returns: what :meth:`end_pull` takes.

        :param attempt: which time this is, from 0: later ones also ask slaves.
        :raises RemotingError: when the broker is not reached.
        """
        header = PullMessageRequestHeader(
            consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, queue_offset=offset,
            max_msg_nums=max_count, sys_flag=PULL_SUBSCRIPTION | (PULL_SUSPEND if hold_ms else 0),
            commit_offset=0, suspend_timeout_millis=hold_ms, sub_version=0,
            subscription=expression, expression_type=expression_type)
        return self.begin(queue, RequestCode.PULL_MESSAGE, header, b"", attempt,
                           self.timeout_s + hold_ms / 1000)

    def end_pull(self, pending: PendingRequest) -> PullResult:
        """Wait for the answer to a pull; :raises: as :meth:`pull`, but nothing is retried."""
        reply = self.end(pending)
        if reply.code not in _PULL_STATUS:
            raise refusal(reply, pending.connection.address)
        answer = reply.header(PullMessageResponseHeader)
        return PullResult(_PULL_STATUS[ResponseCode(reply.code)], answer.next_begin_offset,
                          answer.min_offset, answer.max_offset, reply.body, reply.remark or "")

    # --- sending

    def send(
        self, message: OutgoingMessage | Sequence[OutgoingMessage],
        queue: MessageQueue | None = None, *, group: str = "twistmq_blocking_client",
    ) -> SendResult:
        """Send a message, or several of one topic as a batch, and wait until they are stored.

        :param queue: where to; None: the queues in turn, and another broker when one fails.
        :raises RequestRefused: with the broker's code and remark.
        """
        topic = message.topic if isinstance(message, OutgoingMessage) else message[0].topic
        failed: set[str] = set()

        def once(attempt: int) -> SendResult:
            target = queue or self._next_queue(topic, failed)
            failed.add(target.broker_name)
            return self.end_send(self.begin_send(message, target, group=group))

        return self.retried(topic, once, _TRY_AGAIN)

    def begin_send(
        self, message: OutgoingMessage | Sequence[OutgoingMessage], queue: MessageQueue, *,
        group: str,
    ) -> PendingRequest:
        """Send and do not wait; :returns: what :meth:`end_send` takes.

        :raises RemotingError: when the broker is not reached.
        :raises MessageIllegal: when the properties of a batch's message are too long.
        """
        batch = not isinstance(message, OutgoingMessage)
        if isinstance(message, OutgoingMessage):
            body, properties = message.body, format_properties(message.properties)
            flag, sys_flag = message.flag, message.sys_flag
        else:
            body = encode_batch((one.flag, one.body, format_properties(one.properties))
                                for one in message)
            properties, flag, sys_flag = "", 0, 0
        header = SendMessageRequestHeaderV2(
            producer_group=group, topic=queue.topic, default_topic=TEMPLATE_TOPIC,
            default_topic_queue_nums=NEW_TOPIC_QUEUES, queue_id=queue.queue_id, sys_flag=sys_flag,
            born_timestamp=time.time_ns() // 1_000_000, flag=flag, properties=properties,
            reconsume_times=0, unit_mode=False, batch=batch)
        code = RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2
        return self.begin(queue, code, header, body, 0, self.timeout_s)

    def end_send(self, pending: PendingRequest) -> SendResult:
        """Wait for the answer to a send; :raises: as :meth:`send`, but nothing is retried."""
        reply = self.end(pending)
        if reply.code not in _STORED:
            raise refusal(reply, pending.connection.address)
        answer = reply.header(SendMessageResponseHeader)
        queue = MessageQueue(pending.queue.topic, pending.queue.broker_name, answer.queue_id)
        return SendResult(reply.code, queue, answer.queue_offset, answer.msg_id)

    def _next_queue(self, topic: str, failed: set[str]) -> MessageQueue:
        """The next queue in turn, of a broker that did not fail if there is one."""
        queues = self.write_queues(topic, refresh=bool(failed))
        if not queues:
            raise RequestRefused(ResponseCode.NO_PERMISSION, f"topic {topic} cannot be written to")
        left = [queue for queue in queues if queue.broker_name not in failed] or queues
        self._turn += 1
        return left[self._turn % len(left)]

    # --- requests

    def _ask(
        self, queue: MessageQueue, code: int, header: CommandHeader,
        taken: tuple[int, ...] = (ResponseCode.SUCCESS,), of_slaves: bool = True,
    ) -> RemotingCommand:
        """Ask the broker of a queue, again when it fails.

        :param taken: the codes of an answer that is returned.
        :param of_slaves: whether slaves may be asked when the master fails.
        """
        def once(attempt: int) -> RemotingCommand:
            pending = self.begin(queue, code, header, b"", attempt if of_slaves else 0,
                                 self.timeout_s)
            reply = self.end(pending)
            if reply.code not in taken:
                raise refusal(reply, pending.connection.address)
            return reply

        return self.retried(queue.topic, once)
