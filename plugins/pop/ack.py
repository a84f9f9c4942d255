"""ACK_MESSAGE and BATCH_ACK_MESSAGE (200051, 200151): popped messages were consumed.

All acknowledgements from one network read that belong to the same check point become one message
of the revive topic, and all messages of one read are stored with one append.

Source: AckMessageProcessor @5.3.3.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import ValidationError, convert, field
from twisted.logger import Logger
from twisted.python.failure import Failure

from twistmq.broker.api import (
    AnyHandler,
    BrokerError,
    EmptyHeader,
    Handled,
    Reply,
    Request,
    RequestCode,
    RequestHandler,
    RequestRefused,
    ResponseCode,
)
from twistmq.broker.api.bodies import Body
from twistmq.broker.api.errors import WireError
from twistmq.broker.api.headers import AckMessageRequestHeader
from twistmq.broker.api.limits import BATCH_ACK_POINTS_MAX, BATCH_ACK_SIZE_MAX
from twistmq.broker.api.observe import LineRate
from twistmq.broker.api.requests import DeferredReply, no_queue
from twistmq.broker.api.wire import Int32, Int64
from twistmq.plugins.pop.check_point import CHECK_POINT_MESSAGES_MAX, PointKey
from twistmq.plugins.pop.checks import require_group, require_topic
from twistmq.plugins.pop.names import (
    ORDER_REVIVE_QUEUE,
    Receipt,
    real_topic,
    require_broker_name,
)
from twistmq.plugins.pop.order_info import NOT_GIVEN_OUT

if TYPE_CHECKING:
    from twistmq.broker.api import Broker
    from twistmq.plugins.pop.state import PopState

__all__ = ["AckRequests", "require_offset", "require_range"]


class BatchAck(Body):
    """The acknowledgements of one check point, as one entry of a batch."""

    consumer_group: str = field(name="c", default="")
    topic: str = field(name="t", default="")
    #: 0 for a normal topic, 1 or 2 for a retry topic.
    retry: str = field(name="r", default="0")
    start_offset: Int64 = field(name="so", default=0)
    queue_id: Int32 = field(name="q", default=0)
    revive_queue_id: Int32 = field(name="rq", default=0)
    pop_time: Int64 = field(name="pt", default=0)
    invisible_time: Int64 = field(name="it", default=0)
    #: Base64 of a bit set, lowest bit first: the acknowledged offsets, relative to the first one.
    bit_set: str = field(name="b", default="")

    def offsets(self) -> list[int]:
        """Return the queue offsets in ascending order.

        :raises RequestRefused: when they are missing, or exceed the size of a check point.
        """
        try:
            data = b64decode(self.bit_set, validate=True)
        except (binascii.Error, ValueError) as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the bits: {error}") from None
        bits = int.from_bytes(data, "little")
        count = bits.bit_count()
        if count > CHECK_POINT_MESSAGES_MAX:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"{count} bits are set, a check point has {CHECK_POINT_MESSAGES_MAX} messages")
        offsets = []
        while bits:
            lowest = bits & -bits
            offsets.append(self.start_offset + lowest.bit_length() - 1)
            bits ^= lowest
        return offsets


#: Older clients use the long field names.
_SHORT_NAMES: Final = {
    "consumerGroup": "c", "topic": "t", "retry": "r", "startOffset": "so", "queueId": "q",
    "reviveQueueId": "rq", "popTime": "pt", "invisibleTime": "it", "bitSet": "b"}


class BatchAckMessageRequestBody(Body):
    """A batch of acknowledgements."""

    broker_name: str | None = None
    acks: list[dict[str, Any]] = field(default_factory=list)

    def batch_acks(self) -> list[BatchAck]:
        """Decode the acknowledgements.

        :raises WireError: when one of them is damaged.
        :raises RequestRefused: when there are too many.
        """
        if len(self.acks) > BATCH_ACK_POINTS_MAX:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"the batch has {len(self.acks)} check points, more than {BATCH_ACK_POINTS_MAX}")
        try:
            return [convert({_SHORT_NAMES.get(name, name): value for name, value in ack.items()
                             if value is not None}, BatchAck, strict=False) for ack in self.acks]
        except ValidationError as error:
            raise WireError(f"a batch acknowledgement: {error}") from None


class _Acks:
    """The acknowledgements of one check point that arrived in one network read."""

    __slots__ = ("invisible_time", "key", "offsets", "requests", "revive_queue")

    def __init__(self, key: PointKey, revive_queue: int, invisible_time: int) -> None:
        self.key = key
        self.revive_queue = revive_queue
        self.invisible_time = invisible_time
        #: Excludes offsets that were acknowledged earlier.
        self.offsets: dict[int, None] = {}
        #: Indexes of the requests that contain these acknowledgements.
        self.requests: list[int] = []


#: Acknowledgements by check point, revive queue and invisible time of the receipt.
_Groups = dict[tuple[PointKey, int, int], _Acks]


class AckRequests:
    """The acknowledgement handlers of one broker."""

    log = Logger()

    def __init__(self, broker: Broker, state: PopState) -> None:
        self._broker = broker
        self._state = state
        self._missing_lines = LineRate()

    def handlers(self) -> list[AnyHandler]:
        return [
            RequestHandler(RequestCode.ACK_MESSAGE, self._ack_one, AckMessageRequestHeader,
                           handle_batch=self._ack),
            RequestHandler(RequestCode.BATCH_ACK_MESSAGE, self._batch_one, EmptyHeader,
                           handle_batch=self._batch, body_size_max=BATCH_ACK_SIZE_MAX),
        ]

    # --- ACK_MESSAGE

    def _ack_one(self, request: Request[AckMessageRequestHeader]) -> Handled:
        return self._ack([request])[0]

    def _ack(self, requests: Sequence[Request[AckMessageRequestHeader]]) -> Sequence[Handled]:
        answers: list[Handled] = []
        groups: _Groups = {}
        #: The first and last offset of each queue that these requests name.
        ranges: dict[tuple[str, int], tuple[int, int]] = {}
        for index, request in enumerate(requests):
            answers.append(None)
            header = request.header
            try:
                self._require_queue(request, ranges)
                receipt = Receipt.parse(header.extra_info)
                require_group(self._broker, header.consumer_group)
                if receipt.is_order:
                    self._ack_in_order(request, header.topic, header.consumer_group,
                                       header.queue_id, header.offset, receipt.pop_time)
                    answers[index] = Reply()
                    continue
                key = PointKey(header.topic, header.consumer_group, header.queue_id,
                               receipt.start_offset, receipt.pop_time, receipt.broker_name)
                self._enter(groups, key, receipt.revive_queue, receipt.invisible_time,
                            (header.offset,), index)
            except BrokerError as error:
                answers[index] = Reply(error.response_code, remark=str(error))
        self._store(requests, groups, answers)
        return answers

    def _require_queue(
        self, request: Request[AckMessageRequestHeader],
        ranges: dict[tuple[str, int], tuple[int, int]],
    ) -> None:
        """:raises RequestRefused: when the message does not exist."""
        header = request.header
        offset_range = ranges.get((header.topic, header.queue_id))
        if offset_range is None:
            offset_range = require_range(self._broker, request)
            ranges[header.topic, header.queue_id] = offset_range
        require_offset(header.topic, header.queue_id, header.offset, *offset_range)

    # --- BATCH_ACK_MESSAGE

    def _batch_one(self, request: Request[EmptyHeader]) -> Handled:
        return self._batch([request])[0]

    def _batch(self, requests: Sequence[Request[EmptyHeader]]) -> Sequence[Handled]:
        answers: list[Handled] = []
        groups: _Groups = {}
        for index, request in enumerate(requests):
            answers.append(None)
            try:
                body = _batch_body(request.body)
                for ack in body.batch_acks():
                    self._enter_batch(groups, ack, body.broker_name, request, index)
            except BrokerError as error:
                answers[index] = Reply(error.response_code, remark=str(error))
        self._store(requests, groups, answers)
        return answers

    def _enter_batch(
        self, groups: _Groups, ack: BatchAck, broker_name: str | None, request: Request[Any],
        index: int,
    ) -> None:
        """:raises BrokerError: when the acknowledgement is not valid."""
        store = self._broker.store
        group, queue_id = ack.consumer_group, ack.queue_id
        topic = real_topic(ack.topic, group, ack.retry)
        if store.queues.find(topic, queue_id) is None:
            left_out = self._missing_lines.left_out(request.now_ms)
            if left_out is not None:
                self.log.warn("{peer} acknowledges a message of the missing queue "
                              "{topic}-{queue_id} ({left_out} such lines were left out before)",
                              topic=topic,
                              peer=request.channel.remote_address, queue_id=queue_id,
                              left_out=left_out)
            return
        require_group(self._broker, group)
        min_offset = store.queues.min_offset(topic, queue_id)
        max_offset = store.queues.max_offset(topic, queue_id)
        offsets = [offset for offset in ack.offsets() if min_offset <= offset <= max_offset]
        if ack.revive_queue_id == ORDER_REVIVE_QUEUE:
            for offset in offsets:
                self._ack_in_order(request, topic, group, queue_id, offset, ack.pop_time)
        elif offsets:
            key = PointKey(topic, group, queue_id, ack.start_offset, ack.pop_time,
                           require_broker_name(broker_name or self._broker.broker_name))
            self._enter(groups, key, ack.revive_queue_id, ack.invisible_time, offsets, index)

    # --- shared by both requests

    def _enter(
        self, groups: _Groups, key: PointKey, revive_queue: int, invisible_time: int,
        offsets: Sequence[int], index: int,
    ) -> None:
        """Note acknowledgements; :raises RequestRefused: when the revive queue does not exist."""
        acks = groups.get((key, revive_queue, invisible_time))
        if acks is None:
            self._state.require_revive_queue(revive_queue)
            acks = groups[key, revive_queue, invisible_time] = _Acks(
                key, revive_queue, invisible_time)
        for offset in offsets:
            acks.offsets[offset] = None
        acks.requests.append(index)

    def _store(
        self, requests: Sequence[Request[Any]], groups: _Groups, answers: list[Handled]
    ) -> None:
        """Note or store the acknowledgements, and fill in the answers that are still missing.

        Differs from Apache, which reports success even if an acknowledgement is not stored.
        """
        state = self._state
        remaining: list[_Acks] = []
        for acks in groups.values():
            offsets = list(acks.offsets)
            state.in_flight.remove((acks.key.topic, acks.key.group, acks.key.queue_id),
                                     len(offsets), acks.key.pop_time)
            if not state.buffer.acknowledge(acks.key, offsets):
                remaining.append(acks)
        if remaining:
            records = [state.records.ack(
                acks.key, sorted(acks.offsets), acks.revive_queue,
                acks.key.pop_time + acks.invisible_time) for acks in remaining]
            refusals = state.records.store(records)
            for number, error in refusals.items():
                for index in remaining[number].requests:
                    answers[index] = Reply(error.response_code, remark=str(error))
            self._hold_until_safe(requests, remaining, records[-1].next_offset, answers)
        for index, answer in enumerate(answers):
            if answer is None:
                answers[index] = Reply()

    def _hold_until_safe(
        self, requests: Sequence[Request[Any]], stored: Sequence[_Acks], next_offset: int,
        answers: list[Handled],
    ) -> None:
        """Delay the answers under SYNC_FLUSH until the acknowledgements are durable."""
        acknowledgement = self._broker.acknowledgement
        if not acknowledgement.stages:
            return
        safe = acknowledgement.wait(next_offset)
        if safe is None:
            return
        replies = {index: Reply() for acks in stored for index in acks.requests
                   if answers[index] is None}

        def set_code(code: ResponseCode) -> None:
            for reply in replies.values():
                reply.code = code

        def refuse(failure: Failure) -> None:
            # One Deferred holds several replies, and only the first one would see the failure.
            error = failure.value
            assert isinstance(error, RequestRefused)
            for reply in replies.values():
                reply.code, reply.remark = error.response_code, str(error)

        safe.addCallbacks(set_code, refuse)
        for index, reply in replies.items():
            answers[index] = DeferredReply(reply, safe)

    def _ack_in_order(
        self, request: Request[Any], topic: str, group: str, queue_id: int, offset: int,
        pop_time: int,
    ) -> None:
        """:raises RequestRefused: when the message is not given out."""
        table, state = self._broker.consumer_offset, self._state
        old = table.query(group, topic, queue_id)
        if offset < old:
            return
        key = topic, group, queue_id
        following = state.orders.commit(key, offset, pop_time)
        if following == NOT_GIVEN_OUT:
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"offset is illegal, key:{topic}@{group}@{queue_id}, old:{old}, commit:{offset}, "
                f"next:{following}, /{request.channel.remote_address}")
        if following >= 0:
            if not table.is_reset(group, topic, queue_id):
                table.commit(request.channel.remote_address, group, topic, queue_id, following)
            if not state.orders.is_blocked(key, None, 0, request.now_ms):
                state.hold.wake(topic, group, queue_id)


def _batch_body(data: bytes) -> BatchAckMessageRequestBody:
    """:raises BrokerError: when the body is not a batch of acknowledgements."""
    body = BatchAckMessageRequestBody.decode(data) if data else None
    if body is None or not body.acks:
        raise RequestRefused(ResponseCode.NO_MESSAGE, "the request does not acknowledge anything")
    return body


def require_range(broker: Broker, request: Request[Any]) -> tuple[int, int]:
    """Return the first and last offset of the queue that a request names.

    :raises RequestRefused: when the queue does not exist.
    """
    header = request.header
    config = require_topic(broker, header.topic)
    if not 0 <= header.queue_id < config.read_queue_nums:
        raise no_queue(request, config, ResponseCode.MESSAGE_ILLEGAL)
    return (broker.store.queues.min_offset(header.topic, header.queue_id),
            broker.store.queues.max_offset(header.topic, header.queue_id))


def require_offset(
    topic: str, queue_id: int, offset: int, min_offset: int, max_offset: int
) -> None:
    """:raises RequestRefused: when the queue has no message at this offset."""
    if not min_offset <= offset <= max_offset:
        raise RequestRefused(
            ResponseCode.NO_MESSAGE,
            f"offset is illegal, key:{topic}@{queue_id}, commit:{offset}, "
            f"store:{min_offset}~{max_offset}")
