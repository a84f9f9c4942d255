"""NOTIFICATION and POLLING_INFO (200054, 200055): whether a client can pop, and who waits.

A notification with a filter of tags is answered by the messages that match it, as long as a queue
has few messages for the group; how few is limited, because each of their tags is compared.

Source: NotificationProcessor, PollingInfoProcessor @5.3.3; the filter: @5.5.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twistmq.broker.api import AnyHandler, Handled, Reply, Request, RequestCode, RequestHandler
from twistmq.broker.api.headers import (
    NotificationRequestHeader,
    NotificationResponseHeader,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
)
from twistmq.broker.api.limits import LONG_HEADER_SIZE_MAX
from twistmq.broker.api.requests import is_tag_type
from twistmq.plugins.pop.checks import require_attempt_id, require_readable
from twistmq.plugins.pop.hold import HeldPop
from twistmq.plugins.pop.names import pop_retry_topic

if TYPE_CHECKING:
    from twistmq.broker.api import Broker
    from twistmq.broker.api.store import MessageFilter
    from twistmq.plugins.pop.state import PopState
    from twistmq.plugins.pop.take import Taker

__all__ = ["Notifications"]


class Notifications:
    """The notification handlers of one broker."""

    def __init__(self, broker: Broker, state: PopState, taker: Taker) -> None:
        self._broker = broker
        self._state = state
        self._taker = taker
        #: The notification requests that wait.
        self._hold = state.notified
        #: The pop requests that wait.
        self._pops = state.hold

    def handlers(self) -> list[AnyHandler]:
        return [
            RequestHandler(RequestCode.NOTIFICATION, self._notify, NotificationRequestHeader,
                           on_vip_port=False, waits=True,
                           header_size_max=LONG_HEADER_SIZE_MAX),
            RequestHandler(RequestCode.POLLING_INFO, self._polling_info,
                           PollingInfoRequestHeader, on_vip_port=False),
        ]

    def _notify(self, request: Request[NotificationRequestHeader]) -> Handled:
        header, hold = request.header, self._hold
        require_readable(self._broker, request, "peeking")
        require_attempt_id(header.attempt_id)
        wants = self._filter(header)
        if self._has_message(header, wants):
            return _reply(has_msg=True)
        deadline_ms = hold.deadline_ms(
            header.born_time or request.now_ms, header.poll_time, request.now_ms)
        key = header.topic, header.consumer_group, header.queue_id
        if header.poll_time <= 0 or hold.is_too_late(deadline_ms, request.now_ms):
            return _reply()
        if not hold.has_room(request, key):
            return _reply(polling_full=True)
        return hold.hold(HeldPop(request, key, deadline_ms, wants, self._look_again,
                                 lambda _: _reply(polling_full=True)))

    def _look_again(self, waiting: HeldPop, is_last: bool) -> Reply | None:
        has_msg = self._has_message(waiting.request.header, waiting.wants)
        return _reply(has_msg=has_msg) if has_msg or is_last else None

    def _filter(self, header: NotificationRequestHeader) -> MessageFilter | None:
        """:raises RequestRefused: when the filter expression is not valid."""
        broker = self._broker
        if not header.exp or not header.exp_type or not broker.settings.flag(
                "useMessageFilterForNotification"):
            return None
        return broker.filters.own_filter(
            header.consumer_group, header.topic, header.exp_type, header.exp)

    def _has_message(
        self, header: NotificationRequestHeader, wants: MessageFilter | None
    ) -> bool:
        settings, table = self._state.settings, self._broker.topic_config
        topic, group = header.topic, header.consumer_group
        retries = {pop_retry_topic(topic, group, settings.retry_v2)}
        if settings.retry_v1_too:
            retries.add(pop_retry_topic(topic, group, False))
        if header.queue_id >= 0:
            queues = [(topic, header.queue_id)]
        else:
            config = table.get(topic)
            queues = [(topic, each) for each in range(config.read_queue_nums if config else 0)]
        queues += [(retry, 0) for retry in retries if table.get(retry) is not None]
        return any(self._queue_has(header, wants, *queue) for queue in queues)

    def _queue_has(
        self, header: NotificationRequestHeader, wants: MessageFilter | None, topic: str,
        queue_id: int,
    ) -> bool:
        broker, state = self._broker, self._state
        key = topic, header.consumer_group, queue_id
        if header.order and state.orders.is_blocked(
                key, header.attempt_id, 0, broker.now_ms()):
            return False
        offset = self._taker.peek_offset(key)
        rest = broker.store.queues.max_offset(topic, queue_id) - offset
        if wants is None or not is_tag_type(header.exp_type) or rest >= broker.settings.int(
                "maxMessageFilterNumForNotification"):
            return rest > 0
        return rest > 0 and any(
            wants.match_queue_entry(tags_code)
            for _, _, tags_code in broker.store.queues.entries(topic, queue_id, offset, rest))

    def _polling_info(self, request: Request[PollingInfoRequestHeader]) -> Reply:
        header = request.header
        require_readable(self._broker, request, "peeking")
        return Reply(header=PollingInfoResponseHeader(polling_num=self._pops.waiting(
            (header.topic, header.consumer_group, header.queue_id))))


def _reply(*, has_msg: bool = False, polling_full: bool = False) -> Reply:
    return Reply(header=NotificationResponseHeader(has_msg=has_msg, polling_full=polling_full))
