"""CHANGE_MESSAGE_INVISIBLETIME (200053): changes how long a popped message stays invisible.

The message gets a new check point that begins now, and is acknowledged in its former one.

Source: ChangeInvisibleTimeProcessor @5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twistmq.broker.api import (
    AnyHandler,
    Handled,
    Reply,
    Request,
    RequestCode,
    RequestHandler,
    RequestRefused,
    ResponseCode,
)
from twistmq.broker.api.headers import (
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)
from twistmq.broker.api.requests import DeferredReply
from twistmq.plugins.pop.ack import require_offset, require_range
from twistmq.plugins.pop.check_point import CheckPoint, PointKey
from twistmq.plugins.pop.checks import require_group, require_invisible_time
from twistmq.plugins.pop.names import Receipt

if TYPE_CHECKING:
    from twistmq.broker.api import Broker
    from twistmq.plugins.pop.state import PopState
    from twistmq.plugins.pop.take import Taker

__all__ = ["ChangeInvisibleTime"]


class ChangeInvisibleTime:
    """The handler of one broker."""

    def __init__(self, broker: Broker, state: PopState, taker: Taker) -> None:
        self._broker = broker
        self._state = state
        self._taker = taker

    def handlers(self) -> list[AnyHandler]:
        return [RequestHandler(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, self._change,
                               ChangeInvisibleTimeRequestHeader)]

    def _change(self, request: Request[ChangeInvisibleTimeRequestHeader]) -> Handled:
        header = request.header
        least, end = require_range(self._broker, request)
        require_offset(header.topic, header.queue_id, header.offset, least, end - 1)
        receipt = Receipt.parse(header.extra_info)
        require_group(self._broker, header.consumer_group)
        require_invisible_time(
            self._broker, header.invisible_time, ResponseCode.SYSTEM_ERROR)
        if receipt.is_order:
            return self._change_in_order(request, receipt)
        if header.offset >= self._taker.peek_offset(
                (header.topic, header.consumer_group, header.queue_id)):
            raise _not_given_out(header)
        return self._change_check_point(request, receipt)

    def _change_check_point(
        self, request: Request[ChangeInvisibleTimeRequestHeader], receipt: Receipt
    ) -> Handled:
        """:raises BrokerError: when the check point cannot be stored."""
        state, header = self._state, request.header
        state.require_revive_queue(receipt.revive_queue)
        # Differs from Apache: in the millisecond of the pop the two check points would be equal,
        # and the acknowledgement would apply to both.
        now_ms = max(self._broker.now_ms(), receipt.pop_time + 1)
        key = PointKey(header.topic, header.consumer_group, header.queue_id, header.offset, now_ms,
                       receipt.broker_name)
        is_mine = receipt.broker_name == self._broker.broker_name
        log_end = self._broker.store.commit_log.max_offset if is_mine else -1
        point = CheckPoint(key, [header.offset], header.invisible_time, log_end=log_end)
        origin = key._replace(start_offset=receipt.start_offset, pop_time=receipt.pop_time)
        records = [state.records.check_point(point, receipt.revive_queue)]
        in_memory = state.buffer.has(origin)
        if not in_memory:
            records.append(state.records.ack(
                origin, [header.offset], receipt.revive_queue,
                receipt.pop_time + receipt.invisible_time))
        for error in state.records.store(records, [0] * len(records)).values():
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error))
        if in_memory:
            state.buffer.acknowledge(origin, [header.offset], records[-1].next_offset)
        reply = Reply(header=ChangeInvisibleTimeResponseHeader(
            pop_time=now_ms, invisible_time=header.invisible_time,
            revive_qid=receipt.revive_queue))
        safe = self._broker.acknowledgement.wait(records[-1].next_offset)
        if safe is None:
            return reply

        def set_code(code: ResponseCode) -> None:
            reply.code = code

        return DeferredReply(reply, safe.addCallback(set_code))

    def _change_in_order(
        self, request: Request[ChangeInvisibleTimeRequestHeader], receipt: Receipt
    ) -> Reply:
        header, broker = request.header, self._broker
        key = header.topic, header.consumer_group, header.queue_id
        old = broker.consumer_offset.query(header.consumer_group, header.topic, header.queue_id)
        if header.offset < old:
            return Reply(header=ChangeInvisibleTimeResponseHeader(
                pop_time=0, invisible_time=0, revive_qid=0))
        visible_ms = broker.now_ms() + header.invisible_time
        if not self._state.orders.hide(key, header.offset, receipt.pop_time, visible_ms):
            raise _not_given_out(header)
        return Reply(header=ChangeInvisibleTimeResponseHeader(
            pop_time=receipt.pop_time, invisible_time=visible_ms - receipt.pop_time,
            revive_qid=receipt.revive_queue))


def _not_given_out(header: ChangeInvisibleTimeRequestHeader) -> RequestRefused:
    """Refuse the change: hiding it would deliver a message before the group reached it."""
    return RequestRefused(
        ResponseCode.MESSAGE_ILLEGAL,
        f"offset is illegal, key:{header.topic}@{header.consumer_group}@{header.queue_id}, "
        f"offset:{header.offset} is not given out")
