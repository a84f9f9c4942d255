"""PULL_MESSAGE and LITE_PULL_MESSAGE (11, 361): read a queue from an offset, or wait for messages.

Source: PullMessageProcessor, DefaultPullMessageResultHandler @5.3.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from twisted.logger import Logger

from twistmq.broker.config.identity import Identity
from twistmq.broker.config.settings import Settings
from twistmq.broker.constants import LONG_HEADER_SIZE_MAX
from twistmq.broker.plugin.hooks import Hooks
from twistmq.broker.remoting.messages import Handled, Reply, Request, RequestHandler
from twistmq.broker.request.client_table import ConsumerGroup
from twistmq.broker.request.consume_context import ConsumeContext
from twistmq.broker.request.filters import MATCH_ALL, TAG, is_tag_type
from twistmq.broker.request.host import Host
from twistmq.broker.request.messages_reply import MessagesReply
from twistmq.broker.request.providers import Providers
from twistmq.broker.request.pull_hold import PullHold
from twistmq.broker.request.refusals import no_group, no_queue, no_topic
from twistmq.broker.request.tables import Tables
from twistmq.broker.store.message_store import (
    GetMessageResult,
    GetMessageStatus,
    MessageFilter,
    MessageStore,
)
from twistmq.protocol.bodies import SubscriptionData, SubscriptionGroupConfig, TopicConfig
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import RequestRefused
from twistmq.protocol.flags import (
    MASTER_ID,
    PERM_READ,
    PULL_CLASS_FILTER,
    PULL_COMMIT_OFFSET,
    PULL_SUBSCRIPTION,
    PULL_SUSPEND,
)
from twistmq.protocol.headers.pull import (
    PullForbiddenResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
)
from twistmq.protocol.log_rate import LineRate
from twistmq.protocol.topic_names import (
    LMQ_PREFIX,
    SAME_GROUP_SUGGESTION,
    is_light,
)

if TYPE_CHECKING:
    from twistmq.broker.plugin.interfaces import BroadcastClient

__all__ = ["PullRequests"]


#: The bit for reading in a group's mask of forbidden operations for a topic.
#: Source: PermName.INDEX_PERM_READ.
_FORBIDDEN_READ_INDEX: Final = 2
#: The origin of a refusal, in the reply's header. Source: ForbiddenType.
_BROKER_FORBIDDEN, _GROUP_FORBIDDEN, _TOPIC_FORBIDDEN = 1, 2, 3
_BROADCASTING_FORBIDDEN, _SUBSCRIPTION_FORBIDDEN = 4, 5

_CODE_OF_STATUS: Final = {
    GetMessageStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_RESET: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}


#: Looking up a member of an enumeration takes five times as long as a name of the module.
_SUCCESS: Final = ResponseCode.SUCCESS
_NOT_FOUND: Final = ResponseCode.PULL_NOT_FOUND
_OFFSET_MOVED: Final = ResponseCode.PULL_OFFSET_MOVED
_RETRY: Final = ResponseCode.PULL_RETRY_IMMEDIATELY
_FOUND: Final = GetMessageStatus.FOUND
_FOUND_NAME: Final = _FOUND.name
_EMPTY: Final = GetMessageStatus.NO_MESSAGE_IN_QUEUE
#: The queue does not have this offset; a slave's queue may get it later.
_OUTSIDE: Final = (_EMPTY, GetMessageStatus.NO_MATCHED_LOGIC_QUEUE,
                   GetMessageStatus.OFFSET_OVERFLOW_BADLY, GetMessageStatus.OFFSET_TOO_SMALL)
_NAMES: Final = {status: status.name for status in GetMessageStatus}


#: Twisted takes the name from the frame of the caller, and a compiled module does not have one.
_log: Final = Logger(__name__)


class _Forbidden(Exception):
    """Refuses a pull with NO_PERMISSION; the header states what forbids the pull."""

    def __init__(self, kind: int, remark: str) -> None:
        super().__init__(remark)
        self.kind = kind

    def __reduce__(self) -> tuple[type[_Forbidden], tuple[int, str]]:
        return _Forbidden, (self.kind, str(self))


class PullRequests:
    """The pull handlers of one broker."""

    def __init__(
        self, settings: Settings, identity: Identity, host: Host, tables: Tables,
        providers: Providers, hooks: Hooks, store: MessageStore, pull_hold: PullHold,
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._host = host
        self._tables = tables
        self._providers = providers
        self._hooks = hooks
        self._store = store
        self._pull_hold = pull_hold
        self._moved_lines = LineRate()
        self._commit_lines = LineRate()
        self._read_settings({})
        settings.on_change.append(self._read_settings)

    def _read_settings(self, changes: Mapping[str, object]) -> None:
        settings = self._settings
        self._broker_ip = settings.text("brokerIP1")
        self._broker_readable = bool(settings.int("brokerPermission") & PERM_READ)
        self._lite_pull = settings.flag("litePullMessageEnable")
        self._slave_read = settings.flag("slaveReadEnable")
        self._slave_moves_offsets = settings.flag("offsetCheckInSlave")
        self._long_polling = settings.flag("longPollingEnable")
        self._short_polling_ms = settings.int("shortPollingTimeMills")
        #: Whether all light topics and groups share one key of the statistics.
        self._light_together = settings.flag("enableLmq") and not settings.flag("enableLmqStats")
        self._property_filter = settings.flag("enablePropertyFilter")

    def handlers(self) -> list[RequestHandler[Any]]:
        return [
            RequestHandler(code, self._pull, PullMessageRequestHeader, on_vip_port=False,
                           waits=True, header_size_max=LONG_HEADER_SIZE_MAX)
            for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
        ]

    def _pull(self, request: Request[PullMessageRequestHeader]) -> Handled:
        return self._answer(request, request.now_ms, may_wait=True)

    def _pull_again(self, request: Request[PullMessageRequestHeader], now_ms: int) -> Handled:
        return self._answer(request, now_ms, may_wait=False)

    def _answer(
        self, request: Request[PullMessageRequestHeader], now_ms: int, may_wait: bool
    ) -> Handled:
        header = request.header
        try:
            group, topic = self._check(request)
            message_filter = self._filter(request, group)
        except _Forbidden as error:
            return Reply(ResponseCode.NO_PERMISSION,
                         PullForbiddenResponseHeader(forbidden_type=error.kind),
                         remark=str(error))
        hooks = self._hooks
        context = None
        if hooks.before_consume or hooks.after_consume:
            context = ConsumeContext(header.consumer_group, header.topic,
                                     header.queue_id, header.queue_offset, request.channel)
            refusal = hooks.refuse_consume(context)
            if refusal is not None:
                raise refusal
        # Untyped, because mypyc does not support the interfaces of zope.
        broadcast: Any = self._providers.broadcast_offsets
        client = None if broadcast is None else broadcast.client_of(request)
        result = self._read(request, message_filter, client)
        code = self._code(header, result)
        if client is not None:
            broadcast.pulled(request, client, result.next_begin_offset if (
                code == ResponseCode.PULL_OFFSET_MOVED) else header.queue_offset)
        if result.status is not _EMPTY or header.topic in self._tables.topic_config.table:
            # Otherwise it is a light queue without messages, for which any name is valid.
            self._tables.consumer_offset.pulled(header.consumer_group, header.topic,
                                                header.queue_id, result.next_begin_offset)
        if may_wait and header.sys_flag & PULL_COMMIT_OFFSET:
            self._commit_offset(request, result.max_offset)
        if code != _SUCCESS and may_wait and header.sys_flag & PULL_SUSPEND:
            wait_ms = self._wait_ms(header, code, result.status)
            held = None if wait_ms is None else self._pull_hold.hold(
                request, wait_ms, message_filter, self._pull_again)
            if held is not None:
                return held
        reply = self._reply(header, result, code, group, topic)
        if code == _SUCCESS:
            self._count(request, result, context)
        return reply

    # --- may this group read this queue?

    def _check(
        self, request: Request[PullMessageRequestHeader]
    ) -> tuple[SubscriptionGroupConfig, TopicConfig]:
        """:raises RequestRefused, _Forbidden: when the pull must not be served."""
        header = request.header
        if not self._broker_readable:
            raise _Forbidden(_BROKER_FORBIDDEN,
                             f"the broker[{self._broker_ip}] pulling message is forbidden")
        if not self._lite_pull and request.command.code == RequestCode.LITE_PULL_MESSAGE:
            raise _Forbidden(_BROKER_FORBIDDEN,
                             f"the broker[{self._broker_ip}] for lite pull consumer is forbidden")
        group = self._tables.subscription_group.find(header.consumer_group)
        if group is None:
            raise no_group(header.consumer_group)
        if not group.consume_enable:
            raise _Forbidden(_GROUP_FORBIDDEN,
                             f"subscription group no permission, {header.consumer_group}")
        topic = self._tables.topic_config.table.get(header.topic)
        if topic is None:
            topic = self._tables.topic_config.light_topic(header.topic)
        if topic is None:
            raise no_topic(header.topic)
        if not topic.perm & PERM_READ:
            raise _Forbidden(_TOPIC_FORBIDDEN,
                             f"the topic[{header.topic}] pulling message is forbidden")
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise no_queue(request, topic, ResponseCode.INVALID_PARAMETER)
        return group, topic

    def _filter(
        self, request: Request[PullMessageRequestHeader], group: SubscriptionGroupConfig
    ) -> MessageFilter | None:
        """The filter of the pull's own subscription, or of the group's heartbeat."""
        header = request.header
        filters = self._providers.filters
        group_name, topic = header.consumer_group, header.topic
        if header.sys_flag & PULL_SUBSCRIPTION:
            expression_type = header.expression_type
            if header.sys_flag & PULL_CLASS_FILTER:
                return None
            expression = header.subscription
            if (expression == MATCH_ALL or not expression) and (
                    not expression_type or expression_type == TAG):
                # Most pulls take this path, which does not make or look up any filter.
                return None
            message_filter = filters.own_filter(
                group_name, topic, expression_type, expression)
        else:
            members, subscription = self._group_subscription(header, group)
            expression_type = subscription.expression_type
            if header.sys_flag & PULL_CLASS_FILTER:
                return None
            message_filter = filters.group_filter(
                group_name, subscription, header.sub_version, members.filters)
        if not is_tag_type(expression_type) and not self._property_filter:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {expression_type}")
        return message_filter

    def _group_subscription(
        self, header: PullMessageRequestHeader, group: SubscriptionGroupConfig
    ) -> tuple[ConsumerGroup, SubscriptionData]:
        """The group's subscription to the topic, from its members' heartbeats."""
        members = self._tables.clients.consumer_group(header.consumer_group)
        if members is None:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_NOT_EXIST,
                                 f"the consumer's group info not exist{SAME_GROUP_SUGGESTION}")
        if not group.consume_broadcast_enable and members.message_model == "BROADCASTING":
            raise _Forbidden(
                _BROADCASTING_FORBIDDEN,
                f"the consumer group[{header.consumer_group}] can not consume by broadcast way")
        if self._tables.subscription_group.is_forbidden(
            header.consumer_group, header.topic, _FORBIDDEN_READ_INDEX
        ):
            raise _Forbidden(
                _SUBSCRIPTION_FORBIDDEN,
                f"the consumer group[{header.consumer_group}] is forbidden for "
                f"topic[{header.topic}]")
        subscription = members.subscriptions.get(header.topic)
        if subscription is None:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_NOT_EXIST,
                                 f"the consumer's subscription not exist{SAME_GROUP_SUGGESTION}")
        if subscription.sub_version < header.sub_version:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_NOT_LATEST,
                                 "the consumer's subscription not latest")
        return members, subscription

    # --- read and answer

    def _read(
        self, request: Request[PullMessageRequestHeader], message_filter: MessageFilter | None,
        client: BroadcastClient | None,
    ) -> GetMessageResult:
        header = request.header
        reset = self._tables.consumer_offset.take_reset_offset(
            header.topic, header.consumer_group, header.queue_id)
        if client is not None and reset is None:
            broadcast: Any = self._providers.broadcast_offsets
            reset = broadcast.begin_offset(request, client)
        store = self._store
        if reset is None:
            return store.get_message(header.topic, header.queue_id, header.queue_offset,
                                     header.max_msg_nums, message_filter)
        return GetMessageResult(
            status=GetMessageStatus.OFFSET_RESET, next_begin_offset=reset,
            min_offset=store.queues.min_offset(header.topic, header.queue_id),
            max_offset=store.queues.max_offset(header.topic, header.queue_id))

    def _code(self, header: PullMessageRequestHeader, result: GetMessageResult) -> ResponseCode:
        status = result.status
        if status is _FOUND:
            return _SUCCESS
        code = _CODE_OF_STATUS.get(status)
        if code is None:
            # The queue is empty: only a pull at offset 0 can wait for its first message.
            code = (ResponseCode.PULL_NOT_FOUND if header.queue_offset == 0
                    else ResponseCode.PULL_OFFSET_MOVED)
        if code == _OFFSET_MOVED:
            if self._identity.is_slave and not self._slave_moves_offsets:
                # The master may have messages there, so the consumer must ask for the same again.
                if status is not GetMessageStatus.OFFSET_RESET:
                    result.next_begin_offset = header.queue_offset
                return _RETRY
            left_out = self._moved_lines.left_out(self._host.now_ms())
            if left_out is not None:
                _log.info(
                    "pull of {topic}-{queue_id} by {group} at {offset} moved to {new_offset}: "
                    "{status} ({left_out} such lines were left out before)",
                    topic=header.topic, queue_id=header.queue_id, group=header.consumer_group,
                    offset=header.queue_offset, new_offset=result.next_begin_offset,
                    status=status.name, left_out=left_out)
        return code

    def _wait_ms(
        self, header: PullMessageRequestHeader, code: ResponseCode, status: GetMessageStatus
    ) -> int | None:
        """Return how long a pull that found nothing may wait; None if it may not wait.

        Differs from Apache, whose slave answers at once for an offset that it will reach later, so
        that clients ask again at once.
        """
        if code == _NOT_FOUND:
            return header.suspend_timeout_millis if self._long_polling else self._short_polling_ms
        if code == _RETRY and status in _OUTSIDE:
            return min(header.suspend_timeout_millis, self._short_polling_ms)
        return None

    def _reply(
        self, header: PullMessageRequestHeader, result: GetMessageResult, code: ResponseCode,
        group: SubscriptionGroupConfig, topic: TopicConfig,
    ) -> Reply:
        broker_id = MASTER_ID
        if self._slave_read:
            broker_id = (group.which_broker_when_consume_slowly if result.suggest_slave
                         else group.broker_id)
        answer = PullMessageResponseHeader(
            suggest_which_broker_id=broker_id, next_begin_offset=result.next_begin_offset,
            min_offset=result.min_offset, max_offset=result.max_offset,
            topic_sys_flag=topic.topic_sys_flag, group_sys_flag=group.group_sys_flag)
        if code == _SUCCESS:
            return MessagesReply(code, answer, result.messages, result.size, _FOUND_NAME)
        return Reply(code, answer, remark=_NAMES[result.status])

    def _commit_offset(self, request: Request[PullMessageRequestHeader], end: int) -> None:
        """Commit the offset up to which the consumer claims to have consumed.

        Differs from Apache, which accepts any offset. An offset that no message of the queue has
        had, or for which there is no room, is not stored; the pull continues.

        :param end: the offset that the queue's next message will get.
        """
        header = request.header
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        table = self._tables.consumer_offset
        if 0 <= header.commit_offset <= end and table.has_room(group, topic, queue_id):
            table.commit(request.channel.remote_address, group, topic, queue_id,
                         header.commit_offset)
            return
        left_out = self._commit_lines.left_out(self._host.now_ms())
        if left_out is not None:
            _log.warn(
                "offset {offset} of {group} in {topic}-{queue_id} from {peer} is not stored: the "
                "queue ends at {end}, the offset table has {size} bytes ({left_out} such lines "
                "were left out before)", offset=header.commit_offset, group=group, topic=topic,
                queue_id=queue_id, peer=request.channel.remote_address, end=end,
                size=table.size_bytes, left_out=left_out)

    def _count(
        self, request: Request[PullMessageRequestHeader], result: GetMessageResult,
        context: ConsumeContext | None,
    ) -> None:
        header = request.header
        group, topic = header.consumer_group, header.topic
        if self._light_together:
            group, topic = (LMQ_PREFIX if is_light(name) else name for name in (group, topic))
        self._tables.stats.messages_got(group, topic, result.message_count, result.size)
        if context is not None:
            context.message_count = result.message_count
            context.size_bytes = result.size
            context.messages = result.messages
            self._hooks.consumed(context)
