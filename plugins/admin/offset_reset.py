"""Resets a group to another offset: 222.

The broker resets the group itself: the group's next pull of each queue starts at the new offset.
Without useServerSideResetOffset, the members of the group are asked to do it. Only in this case
does ``is_force`` matter: a broker that resets a group itself also moves it forward, whatever the
request contains.

Source: AdminBrokerProcessor.resetOffset, resetOffsetInner, Broker2Client.resetOffset @5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from twisted.logger import Logger

from twistmq.broker.api import (
    Handled,
    Reply,
    Request,
    RequestCode,
    RequestHandler,
    RequestRefused,
    ResponseCode,
)
from twistmq.broker.api.bodies import (
    MessageQueue,
    MessageQueueForC,
    ResetOffsetBody,
    ResetOffsetBodyForC,
    TopicConfig,
)
from twistmq.broker.api.headers import ResetOffsetRequestHeader
from twistmq.broker.api.observe import LimitedLog
from twistmq.broker.api.requests import Client, Work

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["TELLABLE_VERSION_MIN", "ResetRequests"]

#: Clients before MQVersion V3_0_7_SNAPSHOT do not support the notice.
TELLABLE_VERSION_MIN: Final = 28
_CPP: Final = "CPP"


class ResetRequests:
    """The handler that resets a group."""

    log = Logger()

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._lines = LimitedLog(self.log)

    def handlers(self) -> list[RequestHandler[Any]]:
        return [RequestHandler(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, self._reset,
                               ResetOffsetRequestHeader)]

    def _reset(self, request: Request[ResetOffsetRequestHeader]) -> Handled:
        header = request.header
        self._lines.info(
            request.now_ms,
            "{peer} resets {group} in {topic}-{queue_id} to {timestamp} or {offset}",
            peer=request.channel.remote_address, group=header.group, topic=header.topic,
            queue_id=header.queue_id, timestamp=header.timestamp, offset=header.offset)
        by_broker = self._broker.settings.flag("useServerSideResetOffset")
        work = self._by_broker(header) if by_broker else self._by_clients(header)
        return self._broker.long_answers.answer(work, request.channel)

    # --- reset by the broker

    def _by_broker(self, header: ResetOffsetRequestHeader) -> Work:
        broker, topic, group = self._broker, header.topic, header.group
        if broker.is_slave:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR,
                                 "Can not reset offset in slave broker")
        config = self._config(topic, f"Topic {topic} does not exist")
        if not broker.subscription_group.has(group):
            raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                                 f"Group {group} does not exist")
        offsets = {}
        if header.queue_id >= 0:
            self._require_queue(config, header.queue_id)
            offsets[header.queue_id] = self._one_offset(header)
        else:
            for queue_id in range(config.read_queue_nums):
                offsets[queue_id] = self._offset_at(topic, queue_id, header.timestamp)
                yield
        if not offsets:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "No queues to reset.")
        for queue_id, offset in offsets.items():
            broker.consumer_offset.reset(group, topic, queue_id, offset)
        return self._answer(topic, offsets)

    def _config(self, topic: str, missing: str) -> TopicConfig:
        config = self._broker.topic_config.get(topic)
        if config is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, missing)
        return config

    def _require_queue(self, config: TopicConfig, queue_id: int) -> None:
        """Require a queue. Differs from Apache, which keeps offsets for missing queues."""
        count = max(config.read_queue_nums, config.write_queue_nums)
        topic = config.topic_name
        if queue_id >= count and not self._broker.store.queues.max_offset(topic, queue_id):
            raise RequestRefused(ResponseCode.INVALID_PARAMETER,
                                 f"topic {topic} has no queue {queue_id}")

    def _one_offset(self, header: ResetOffsetRequestHeader) -> int:
        """Return the offset to which a group is reset in the requested queue."""
        topic, queue_id, offset = header.topic, header.queue_id, header.offset
        if offset is None or offset == -1:
            return self._offset_at(topic, queue_id, header.timestamp)
        store = self._broker.store
        begin, end = (store.queues.min_offset(topic, queue_id),
                      store.queues.max_offset(topic, queue_id))
        # Differs from Apache, which also accepts the offset after the end of the queue, where
        # nothing can be pulled.
        if not begin <= offset <= end:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"Target offset {offset} not in consume queue range [{begin}-{end}]")
        return offset

    def _offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Return the first message stored then or later; a negative time means the queue's end."""
        store = self._broker.store
        if timestamp_ms < 0:
            return store.queues.max_offset(topic, queue_id)
        return max(store.reader.offset_by_time(topic, queue_id, timestamp_ms), 0)

    def _answer(self, topic: str, offsets: dict[int, int]) -> Reply:
        return Reply(body=ResetOffsetBody(self._by_queue(topic, offsets)).encode())

    def _by_queue(self, topic: str, offsets: dict[int, int]) -> dict[MessageQueue, int]:
        return {MessageQueue(topic, self._broker.broker_name, queue_id): offset
                for queue_id, offset in offsets.items()}

    # --- reset by the group's members

    def _by_clients(self, header: ResetOffsetRequestHeader) -> Work:
        broker, topic, group = self._broker, header.topic, header.group
        config = self._config(
            topic, f"[reset-offset] reset offset failed, no topic in this broker. topic={topic}")
        offsets = {}
        for queue_id in range(config.write_queue_nums):
            consumed = broker.consumer_offset.query(group, topic, queue_id)
            if consumed == -1:
                raise RequestRefused(ResponseCode.SYSTEM_ERROR,
                                     f"THe consumer group <{group}> not exist")
            target_offset = self._offset_at(topic, queue_id, header.timestamp)
            offsets[queue_id] = (
                target_offset if header.is_force or target_offset < consumed else consumed)
            yield
        for client in self._members(header):
            client.channel.send_oneway(
                RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
                ResetOffsetRequestHeader(group=group, topic=topic, timestamp=header.timestamp,
                                         is_force=False),
                self._orders(client, topic, offsets))
        return self._answer(topic, offsets)

    def _members(self, header: ResetOffsetRequestHeader) -> list[Client]:
        """Return the members of a group, if all of them support the notice.

        :raises RequestRefused: when no client is connected, or one is too old.
        """
        members = self._broker.clients.consumer_group(header.group)
        if members is None:
            raise RequestRefused(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {header.group} "
                f"Topic: {header.topic} Timestamp: {header.timestamp}")
        clients = list(members.clients.values())
        for client in clients:
            # Differs from Apache: no client is notified if one of them is too old.
            if client.version < TELLABLE_VERSION_MIN:
                raise RequestRefused(
                    ResponseCode.SYSTEM_ERROR,
                    f"the client does not support this feature. version={client.version}")
        return clients

    def _orders(self, client: Client, topic: str, offsets: dict[int, int]) -> bytes:
        """Encode the notice for a client in the format that the client can decode.

        Differs from Apache, which writes the format of the sender of the reset.
        """
        if client.language != _CPP:
            return ResetOffsetBody(self._by_queue(topic, offsets)).encode()
        return ResetOffsetBodyForC(
            [MessageQueueForC(topic, self._broker.broker_name, queue_id, offset)
             for queue_id, offset in offsets.items()]).encode()
