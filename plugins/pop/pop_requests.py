"""POP_MESSAGE and PEEK_MESSAGE (200050, 200052): messages for a group from any queue.

Source: PopMessageProcessor, PeekMessageProcessor @5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twistmq.broker.api import (
    AnyHandler,
    ConsumeContext,
    EmptyHeader,
    Handled,
    Reply,
    Request,
    RequestCode,
    RequestHandler,
    RequestRefused,
    ResponseCode,
)
from twistmq.broker.api.headers import (
    PeekMessageRequestHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from twistmq.broker.api.limits import LONG_HEADER_SIZE_MAX
from twistmq.broker.api.requests import (
    is_batch_topic,
    is_priority_topic,
    is_tag_type,
    priority_factor,
)
from twistmq.broker.api.store import GetMessageStatus
from twistmq.broker.api.topics import can_be_directory
from twistmq.broker.api.wire import properties as names
from twistmq.plugins.pop.check_point import CHECK_POINT_MESSAGES_MAX
from twistmq.plugins.pop.checks import (
    require_attempt_id,
    require_invisible_time,
    require_readable,
)
from twistmq.plugins.pop.hold import HeldPop
from twistmq.plugins.pop.names import ORDER_REVIVE_QUEUE, is_retry, pop_retry_topic, retry_mark
from twistmq.plugins.pop.take import Attempt, Taker

if TYPE_CHECKING:
    from twistmq.broker.api import Broker
    from twistmq.broker.api.store import MessageFilter
    from twistmq.plugins.pop.state import PopState

__all__ = ["PopRequests"]

#: The maximum number of messages that one pop may ask for.
_COUNT_MAX: Final = CHECK_POINT_MESSAGES_MAX
#: A pop that arrives later than this after the end of its poll time is refused, ms.
_LATE_MAX_MS: Final = 500
_FOUND, _NONE = GetMessageStatus.FOUND.name, GetMessageStatus.NO_MESSAGE_IN_QUEUE.name


class PopRequests:
    """The pop handlers of one broker."""

    def __init__(self, broker: Broker, state: PopState, taker: Taker) -> None:
        self._broker = broker
        self._state = state
        self._hold = state.hold
        self._taker = taker
        self._settings = state.settings
        self._next_revive_queue = 0

    def handlers(self) -> list[AnyHandler]:
        return [
            RequestHandler(RequestCode.POP_MESSAGE, self._pop, PopMessageRequestHeader,
                           on_vip_port=False, waits=True,
                           header_size_max=LONG_HEADER_SIZE_MAX),
            RequestHandler(RequestCode.PEEK_MESSAGE, self._peek, PeekMessageRequestHeader,
                           on_vip_port=False),
            RequestHandler(RequestCode.POP_ROLLBACK, self._roll_back, EmptyHeader),
        ]

    def _roll_back(self, request: Request[EmptyHeader]) -> Reply:
        """Move check points from RocksDB to messages; twistmq stores all of them as messages.

        Source: AdminBrokerProcessor.transferPopToFsStore @5.3.3.
        """
        return Reply()

    # --- POP_MESSAGE

    def _pop(self, request: Request[PopMessageRequestHeader]) -> Handled:
        header = request.header
        header.born_time = header.born_time or request.now_ms
        late_ms = request.now_ms - header.born_time - header.poll_time
        if late_ms > _LATE_MAX_MS:
            ip = self._broker.settings.text("brokerIP1")
            return Reply(ResponseCode.POLLING_TIMEOUT, PopMessageResponseHeader(
                pop_time=0, invisible_time=0, revive_qid=0, rest_num=0),
                remark=f"the broker[{ip}] pop message is timeout too much")
        self._check(request)
        message_filter = self._filter(header)
        key = header.topic, header.consumer_group, header.queue_id
        attempt = self._attempt(request, message_filter)
        if attempt.parts:
            return self._found_reply(request, attempt)
        deadline_ms = self._hold.deadline_ms(
            header.born_time, header.poll_time, request.now_ms)
        if header.poll_time <= 0 or self._hold.is_too_late(deadline_ms, request.now_ms):
            return self._reply(attempt, ResponseCode.POLLING_TIMEOUT)
        if not self._hold.has_room(request, key):
            return self._reply(attempt, ResponseCode.POLLING_FULL)
        waiting = HeldPop(request, key, deadline_ms, message_filter, self._look_again,
                          self._pushed_out)
        held = self._hold.hold(waiting)
        if attempt.has_more_to_look_at:
            self._hold.look_soon(waiting)
        return held

    def _look_again(self, waiting: HeldPop, is_last: bool) -> Reply | None:
        """Check whether a wait is over; :returns: the reply, or None to wait longer."""
        attempt = self._attempt(waiting.request, waiting.wants)
        if attempt.parts:
            return self._found_reply(waiting.request, attempt)
        if is_last:
            return self._reply(attempt, ResponseCode.POLLING_TIMEOUT)
        if attempt.has_more_to_look_at:
            # The filter has not reached the end of the queue.
            self._hold.look_soon(waiting)
        return None

    def _pushed_out(self, waiting: HeldPop) -> Reply:
        """Answer a wait that ends because its room is needed for another request."""
        attempt = Attempt(waiting.request.header, self._broker.now_ms(), 0, None)
        return self._reply(attempt, ResponseCode.POLLING_FULL)

    def _check(self, request: Request[PopMessageRequestHeader]) -> None:
        """:raises RequestRefused: when the pop must not be served."""
        broker, header = self._broker, request.header
        ip = broker.settings.text("brokerIP1")
        if header.max_msg_nums > _COUNT_MAX:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER,
                                 f"the broker[{ip}] pop message's num is greater than "
                                 f"{_COUNT_MAX}")
        require_attempt_id(header.attempt_id)
        if names.TIMER_DELIVER_MS not in broker.claimed_properties:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"the broker[{ip}] pop message is forbidden because timerWheelEnable is false")
        require_invisible_time(
            broker, header.invisible_time, ResponseCode.MESSAGE_ILLEGAL)
        if not header.order and not self._can_be_retried(header.topic, header.consumer_group):
            # Differs from Apache, where messages that are not acknowledged would be lost.
            raise RequestRefused(ResponseCode.INVALID_PARAMETER,
                                 "the names of topic and group are too long for a retry topic")
        if is_batch_topic(require_readable(broker, request, "pop")):
            # Apache's broker gives out batches whose messages clients cannot acknowledge.
            raise RequestRefused(ResponseCode.SYSTEM_ERROR,
                                 f"topic[{header.topic}] has batch queues, it cannot be popped")

    def _can_be_retried(self, topic: str, group: str) -> bool:
        """Whether messages of a topic that a group does not acknowledge can be stored again."""
        return is_retry(topic) or can_be_directory(
            pop_retry_topic(topic, group, self._settings.retry_v2))

    def _filter(self, header: PopMessageRequestHeader) -> MessageFilter | None:
        """:raises RequestRefused: when the filter expression is not valid."""
        if not header.exp:
            return None
        broker = self._broker
        message_filter = broker.filters.own_filter(
            header.consumer_group, header.topic, header.exp_type, header.exp)
        if not is_tag_type(header.exp_type) and not broker.settings.flag("enablePropertyFilter"):
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, "The broker does not support consumer to filter "
                f"message by {header.exp_type}")
        return message_filter

    def _attempt(
        self, request: Request[PopMessageRequestHeader], message_filter: MessageFilter | None
    ) -> Attempt:
        """Take the available messages.

        :raises BrokerError: when check points cannot be stored, or a plugin forbids the request.
        """
        header, broker = request.header, self._broker
        context = self._context(request, header.queue_id)
        if context is not None:
            refusal = broker.hooks.refuse_consume(context)
            if refusal is not None:
                raise refusal
        attempt = Attempt(header, broker.now_ms(), self._revive_queue(header), message_filter)
        chance = broker.random.randrange(100)
        by_priority = self._is_by_priority(header, chance)
        retries_first = chance < broker.settings.int(
            "popFromRetryProbabilityForPriority" if by_priority else "popFromRetryProbability")
        if retries_first and not header.order:
            self._take_retries(attempt, chance)
        if header.queue_id < 0 and by_priority:
            self._taker.take_by_priority(attempt, header.topic)
        elif header.queue_id < 0:
            self._taker.take_topic(attempt, header.topic, chance)
        else:
            self._taker.take_queue(attempt, header.topic, header.queue_id)
        if not retries_first and attempt.remaining > 0 and not header.order:
            self._take_retries(attempt, chance)
        if attempt.parts:
            self._taker.cover(attempt)
        return attempt

    def _is_by_priority(self, header: PopMessageRequestHeader, chance: int) -> bool:
        """Whether a pop takes messages of the highest priority first.

        :param chance: a random number from 0 to 99.
        """
        topic = self._broker.topic_config.get(header.topic)
        if header.order or topic is None or not is_priority_topic(topic.attributes):
            return False
        group = self._broker.subscription_group.find(header.consumer_group)
        return chance < priority_factor({} if group is None else group.attributes)

    def _revive_queue(self, header: PopMessageRequestHeader) -> int:
        if header.order:
            return ORDER_REVIVE_QUEUE
        self._next_revive_queue = (self._next_revive_queue + 1) % self._settings.revive_queues
        return self._next_revive_queue

    def _take_retries(self, attempt: Attempt, chance: int) -> None:
        """Take from one of the group's retry topics, because a receipt names one kind only."""
        header, settings = attempt.header, self._settings
        v2 = settings.retry_v2 and not (settings.retry_v1_too and chance % 2 == 0)
        topic = pop_retry_topic(header.topic, header.consumer_group, v2)
        self._state.revive_retry_topic(topic, header.consumer_group)
        self._taker.take_topic(attempt, topic, chance)

    def _context(
        self, request: Request[PopMessageRequestHeader], queue_id: int, offset: int = -1
    ) -> ConsumeContext | None:
        hooks, header = self._broker.hooks, request.header
        if not hooks.before_consume and not hooks.after_consume:
            return None
        return ConsumeContext(header.consumer_group, header.topic, queue_id, offset,
                              request.channel)

    # --- replies to a pop

    def _found_reply(self, request: Request[PopMessageRequestHeader], attempt: Attempt) -> Reply:
        header, broker = request.header, self._broker
        for part in attempt.parts:
            topic, group, queue_id = part.key
            result = part.result
            broker.stats.messages_popped(
                group, header.topic, result.message_count, result.size,
                retry_topic=None if topic == header.topic else topic)
            if not header.order:
                self._state.in_flight.add(part.key, len(part.offsets))
            context = self._context(request, queue_id, part.start_offset)
            if context is not None:
                context.topic = topic
                context.message_count, context.size_bytes = result.message_count, result.size
                context.messages = result.messages
                broker.hooks.consumed(context)
        if attempt.rest > 0:
            self._hold.wake(header.topic, header.consumer_group, header.queue_id)
        return self._reply(attempt, ResponseCode.SUCCESS)

    def _reply(self, attempt: Attempt, code: ResponseCode) -> Reply:
        header = attempt.header
        starts, offsets = [], []
        for part in attempt.parts:
            topic, _, queue_id = part.key
            prefix = f"{retry_mark(topic)} {queue_id}"
            starts.append(f"{prefix} {part.start_offset}")
            offsets.append(f"{prefix} {','.join(map(str, part.offsets))}")
        answer = PopMessageResponseHeader(
            pop_time=attempt.pop_time, invisible_time=header.invisible_time,
            revive_qid=attempt.revive_queue, rest_num=attempt.rest,
            start_offset_info=";".join(starts), msg_offset_info=";".join(offsets),
            order_count_info=";".join(attempt.order_counts) if header.order else None)
        has_messages = code == ResponseCode.SUCCESS
        body = b"".join(self._taker.messages(attempt)) if has_messages else b""
        return Reply(code, answer, body, _FOUND if has_messages else _NONE)

    # --- PEEK_MESSAGE

    def _peek(self, request: Request[PeekMessageRequestHeader]) -> Reply:
        """Return messages as a pop would find them, without taking them."""
        broker, header = self._broker, request.header
        config = require_readable(broker, request, "peeking")
        retry = pop_retry_topic(header.topic, header.consumer_group, self._settings.retry_v2)
        queues = [(header.topic, each) for each in (
            range(config.read_queue_nums) if header.queue_id < 0 else (header.queue_id,))]
        if broker.topic_config.get(retry) is not None:
            queues.append((retry, 0))
        messages: list[bytes] = []
        rest = size = 0
        for topic, queue_id in queues:
            offset = self._taker.peek_offset((topic, header.consumer_group, queue_id))
            rest += max(broker.store.queues.max_offset(topic, queue_id) - offset, 0)
            remaining = min(header.max_msg_nums, _COUNT_MAX) - len(messages)
            if remaining > 0:
                result = broker.store.get_message(topic, queue_id, offset, remaining)
                if result.status in (GetMessageStatus.OFFSET_TOO_SMALL,
                                     GetMessageStatus.OFFSET_OVERFLOW_BADLY):
                    result = broker.store.get_message(
                        topic, queue_id, result.next_begin_offset, remaining)
                messages += result.messages
                size += result.size
        if messages:
            broker.stats.messages_got(header.consumer_group, header.topic, len(messages), size)
        answer = PopMessageResponseHeader(
            pop_time=0, invisible_time=0, revive_qid=0, rest_num=rest)
        if not messages:
            return Reply(ResponseCode.PULL_NOT_FOUND, answer, remark=_NONE)
        return Reply(ResponseCode.SUCCESS, answer, b"".join(messages), _FOUND)
