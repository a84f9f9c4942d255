"""SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE (10, 310, 320).

Handling one message costs less than the steps around it: the write to the log, the sync, the update
of statistics and the write of the reply. Therefore the send requests of one read, or of several
connections, are handled together and share these steps. Each request is checked and turned into
records, the records are appended with one write, and each request gets its answer. A refused
request does not affect other requests. A batch of many messages takes a different path, see
``large_sends``.

Source: SendMessageProcessor, AbstractSendMessageProcessor, HookUtils @5.3.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Final, cast

from twisted.internet.defer import Deferred, fail

from twistmq.broker.config.identity import Identity
from twistmq.broker.config.settings import Settings
from twistmq.broker.constants import LONG_HEADER_SIZE_MAX
from twistmq.broker.errors import LightQueuesFull, StoreClosed, StoreFull, StoreGone
from twistmq.broker.plugin.hooks import Hooks
from twistmq.broker.remoting.messages import (
    DeferredReply,
    Handled,
    Reply,
    RequestHandler,
    defer_until,
)
from twistmq.broker.request.appender import Appender
from twistmq.broker.request.large_sends import LargeBatch, LargeSends
from twistmq.broker.request.priority import priority_queue
from twistmq.broker.request.providers import Providers
from twistmq.broker.request.send_context import LazyBatch, SendRequest
from twistmq.broker.request.send_record import RecordMaker, StoredReplyMaker, queue_ids_of
from twistmq.broker.request.send_reply import StoredReplies, StoredReply, settle
from twistmq.broker.request.send_topic import SendTopics, queue_refusal
from twistmq.broker.request.sent_topics import SentTopics
from twistmq.broker.request.tables import Tables
from twistmq.broker.request.topic_config import is_batch_topic
from twistmq.broker.request.unsupported_properties import refuse_unclaimed, unclaimed_properties
from twistmq.broker.scheduling.scheduler import Scheduler
from twistmq.protocol import properties as names
from twistmq.protocol.batch import decode_batch, is_longer_batch
from twistmq.protocol.bodies import TopicConfig, TopicFilterType
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import BrokerError, MessageIllegal, RequestRefused
from twistmq.protocol.flags import PERM_WRITE
from twistmq.protocol.frame import FRAME_SIZE_MAX
from twistmq.protocol.headers.send import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    SendRefusedResponseHeader,
)
from twistmq.protocol.message_id import offset_message_id
from twistmq.protocol.properties import parse_properties
from twistmq.protocol.record import (
    SYS_INNER_BATCH,
    SYS_MULTI_TAGS,
    SYS_NEED_UNWRAP,
    MessageRecord,
)
from twistmq.protocol.topic_names import RETRY_GROUP_TOPIC_PREFIX

__all__ = ["LARGE_BATCH_COUNT", "SendRequests"]

#: Batches of more messages are handled in slices: this number takes about four milliseconds.
LARGE_BATCH_COUNT = 512

#: Looking up a member of an enumeration takes ten times as long.
_MULTI_TAG: Final = TopicFilterType.MULTI_TAG
#: Part of the properties of a message whose sender does not wait until it is safe.
_WAITS_NOT = f"{names.WAIT}\x01false"
_STORED_WAITS_NOT = _WAITS_NOT.encode()
#: Properties that are not stored as the client sent them.
_REPLACED = frozenset((names.POP_CK, names.MSG_REGION, names.TRACE_ON, names.CLUSTER,
                       names.INNER_NUM))


class SendRequests:
    """The send handlers of one broker."""

    def __init__(
        self, settings: Settings, identity: Identity, tables: Tables, providers: Providers,
        hooks: Hooks, appender: Appender, foreground: Scheduler, random: Random,
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._tables = tables
        self._providers = providers
        self._hooks = hooks
        self._appender = appender
        self._random = random
        self._unclaimed = unclaimed_properties(providers.claimed_properties)
        #: Properties that make a message more than a plain one; few messages have any.
        self._asking = self._unclaimed | {names.TRAN_MSG, names.PRIORITY}
        #: These properties, and all others that plugins or the broker read.
        self._looked_at = self._asking | providers.claimed_properties | _REPLACED
        self._topics = SendTopics(settings, tables.topic_config, tables.subscription_group,
                                  providers.send_forbidden_topics)
        self._forbidden_topics = providers.send_forbidden_topics
        topics, find_queue = tables.topic_config, appender.store.queues.find
        self._sent_topics = SentTopics(topics.table, _MULTI_TAG, find_queue)
        self._no_topics = SentTopics({}, _MULTI_TAG, find_queue)
        topics.on_change.append(self._sent_topics.forget)
        #: The original queues of the half messages in the batch.
        self._half_queue_ids: dict[MessageRecord, int] = {}
        self._large = LargeSends(foreground, identity, hooks, appender.store, self)
        self._read_settings({})
        settings.on_change.append(self._read_settings)

    def _read_settings(self, changes: Mapping[str, object]) -> None:
        settings = self._settings
        self._region = settings.text("regionId")
        self._trace_on = settings.flag("traceOn")
        self._reject_transactions = settings.flag("rejectTransactionMessage")
        self._body_size_max = settings.int("maxMessageSize")
        self._broker_ip = settings.text("brokerIP1")
        self._broker_writable = bool(settings.int("brokerPermission") & PERM_WRITE)
        self._reply_maker = StoredReplyMaker(self._region, self._trace_on)
        self._maker = RecordMaker(self._region, "true" if self._trace_on else "false",
                                  self._identity.cluster_name, self._identity.unique_ids)

    def handlers(self) -> list[RequestHandler[SendMessageRequestHeader]]:
        v1, v2 = SendMessageRequestHeader, SendMessageRequestHeaderV2
        return [
            RequestHandler(code, self._send_one, header, handle_batch=self._send,
                           joins_connections=code != RequestCode.SEND_BATCH_MESSAGE,
                           header_size_max=LONG_HEADER_SIZE_MAX, body_size_max=FRAME_SIZE_MAX,
                           too_long=ResponseCode.MESSAGE_ILLEGAL)
            for code, header in (
                (RequestCode.SEND_MESSAGE, v1),
                (RequestCode.SEND_MESSAGE_V2, v2),
                (RequestCode.SEND_BATCH_MESSAGE, v2),
            )
        ]

    def _send_one(self, request: SendRequest) -> Handled:
        return self._send([request])[0]

    def _send(self, requests: Sequence[SendRequest]) -> Sequence[Handled]:
        """Handle a batch: make the records, call the hooks, append once, and answer."""
        large = self._large.channels
        # The requests of one connection are adjacent.
        is_joined = requests[0].channel is not requests[-1].channel
        if large and not is_joined and requests[0].channel.channel_id in large:
            return self._large.wait(requests)
        plain = self._maker.make_plain(
            requests, self._sent_topics if self._broker_writable else self._no_topics,
            self._forbidden_topics, self._asking, self._looked_at,
            self._body_size_max, self._identity.store_host)
        if is_joined and (large or None in plain):
            return self._send_apart(requests, plain)
        if None not in plain:
            return self._complete(
                requests, LazyBatch(list(requests), single=cast("list[MessageRecord]", plain)))
        records_of: list[list[MessageRecord]] = []
        replies: list[Handled] = [None] * len(requests)
        for index, request in enumerate(requests):
            record = plain[index]
            try:
                records_of.append(self.records(request) if record is None else [record])
            except BrokerError as error:
                records_of.append([])
                replies[index] = self.refused(error)
            except LargeBatch:
                # Requests before it are stored before it; requests after it wait with it.
                replies = self.complete(requests[:index], records_of, replies[:index])
                return replies + self._large.wait(requests[index:])
        return self.complete(requests, records_of, replies)

    def _send_apart(
        self, requests: Sequence[SendRequest], plain: Sequence[MessageRecord | None]
    ) -> list[Handled]:
        """Handle a batch of several connections, some of which sent messages that are not plain.

        The requests of each of these connections are handled separately, and the requests of all
        other connections form one batch.

        :param plain: the record of each request; None for a message that is not plain.
        """
        separate_ids = {
            request.channel.channel_id for request, record in zip(requests, plain, strict=True)
            if record is None or request.channel.channel_id in self._large.channels}
        #: Indexes by the connection that is handled separately; None for all other connections.
        groups: dict[int | None, list[int]] = {}
        for index, request in enumerate(requests):
            channel_id = request.channel.channel_id
            groups.setdefault(channel_id if channel_id in separate_ids else None, []).append(index)
        answers: list[Handled] = [None] * len(requests)
        for group, indexes in groups.items():
            own = [requests[index] for index in indexes]
            try:
                group_answers = self._send(own) if group is not None else self._complete(
                    own, LazyBatch(
                        own, single=[cast("MessageRecord", plain[index]) for index in indexes]))
            except Exception as error:
                # The error refuses only the requests of this group.
                group_answers = [fail(error) for _ in own]
            for index, answer in zip(indexes, group_answers, strict=True):
                answers[index] = answer
        return answers

    def complete(
        self, requests: Sequence[SendRequest], records_of: list[list[MessageRecord]],
        replies: list[Handled],
    ) -> list[Handled]:
        """Store the records of requests that have no reply yet, and answer each request."""
        return list(self._complete(requests, LazyBatch(list(requests), records_of, replies)))

    def _complete(self, requests: Sequence[SendRequest], batch: LazyBatch) -> Sequence[Handled]:
        """Store the records of a batch and answer requests."""
        saved = self.save_created_topics()
        if not requests:
            return []
        hooks = self._hooks
        for index, refusal in hooks.refuse_send(batch).items():
            if batch.replies[index] is None:
                batch.replies[index] = self.refused(refusal)
        answers = self._append(requests, batch)
        if saved is not None:
            answers = list(answers)
            defer_until(saved, answers)
        batch.answered(answers)
        hooks.sent(batch)
        return answers if batch.made_replies is None else batch.made_replies

    def require_topic(self, request: SendRequest) -> None:
        """Check again that a topic exists and accepts messages, after some time has passed.

        :raises RequestRefused: when nothing may be sent to the topic now.
        """
        if not self._broker_writable or (
                request.header.topic not in self._tables.topic_config.table):
            self._topics.find(request)

    def save_created_topics(self) -> Deferred[None] | None:
        """Save and register topics that the batch created, once for the whole batch.

        :returns: a Deferred that fires when the table is saved or saving has failed; None if
            nothing must be saved. The sender waits for it: without its topic, a message could not
            be pulled after a kill.
        """
        if not self._topics.made:
            return None
        self._topics.made = False
        saved = self._tables.save_topics()
        self._tables.topics_changed()
        return saved

    # --- from request to records

    def records(self, request: SendRequest) -> list[MessageRecord]:
        """Check a request and make the records of its messages.

        :raises BrokerError: when it is refused.
        :raises LargeBatch: when it has so many messages that they must be made in slices.
        """
        header: SendMessageRequestHeader = request.header
        topic = header.topic
        config = self._tables.topic_config.table.get(topic)
        if config is None or topic in self._forbidden_topics or not self._broker_writable:
            config = self._topics.find(request)
        queue_id = header.queue_id
        if queue_id >= config.write_queue_nums and queue_id >= config.read_queue_nums:
            raise queue_refusal(request, config)
        if queue_id < 0:
            queue_id = self._random.randrange(max(config.write_queue_nums, 1))
        if len(request.command.body) > self._body_size_max:
            raise self._illegal()
        if header.batch:
            return self._batch_records(request, queue_id, config)
        text = header.properties or ""
        fields = parse_properties(text)
        asks = not self._asking.isdisjoint(fields)
        if asks and self._unclaimed:
            refuse_unclaimed(topic, fields, self._unclaimed)
        if asks and names.PRIORITY in fields:
            queue = priority_queue(fields, config.write_queue_nums)
            queue_id = queue_id if queue is None else queue
        record = self._maker.make(
            topic, queue_id, request.command.body, fields, text, header.flag,
            header.sys_flag, header.reconsume_times or 0, header.born_timestamp,
            request.channel.remote_host, self._identity.store_host, request.now_ms)
        if config.topic_filter_type is _MULTI_TAG:
            record.sys_flag |= SYS_MULTI_TAGS
        if asks and fields.get(names.TRAN_MSG) == "true" and not (
            record.reconsume_times > 0 and names.DELAY in fields
        ):
            self._prepare(record, fields)
        return [record]

    def _prepare(self, record: MessageRecord, fields: Mapping[str, str]) -> None:
        """Turn a record into a half message, or refuse it."""
        if self._reject_transactions:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._broker_ip}] sending transaction message is forbidden")
        service = self._providers.transaction_service
        if service is None:
            raise RequestRefused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                                 "no plugin of this broker provides transaction messages")
        self._half_queue_ids[record] = record.queue_id
        service.prepare(record, fields)

    def _batch_records(
        self, request: SendRequest, queue_id: int, config: TopicConfig
    ) -> list[MessageRecord]:
        """Make the records of a request that carries a batch of messages.

        For a batch queue this is a single record, an inner batch.
        """
        header: SendMessageRequestHeader = request.header
        if header.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL,
                                 f"batch request does not support retry group {header.topic}")
        common = parse_properties(header.properties or "")
        refuse_unclaimed(header.topic, common, self._unclaimed)
        sys_flag = header.sys_flag
        if config.topic_filter_type is _MULTI_TAG:
            sys_flag |= SYS_MULTI_TAGS
        if is_batch_topic(config) and names.UNIQ_KEY in common:
            # It stays one record; a client that did not set its own key does not expect one back.
            common.pop(names.INNER_NUM, None)
            return [self._maker.make(
                header.topic, queue_id, request.command.body, common, "", header.flag,
                sys_flag | SYS_NEED_UNWRAP | SYS_INNER_BATCH, header.reconsume_times or 0,
                header.born_timestamp, request.channel.remote_host, self._identity.store_host,
                request.now_ms)]
        batch = LargeBatch(queue_id, sys_flag, common)
        if is_longer_batch(request.command.body, LARGE_BATCH_COUNT):
            raise batch
        return self.batch_part(request, batch, decode_batch(request.command.body))

    def batch_part(
        self, request: SendRequest, batch: LargeBatch, messages: list[tuple[int, bytes, str]]
    ) -> list[MessageRecord]:
        """Make the records of messages of a batch.

        :raises BrokerError: when one of them is refused.
        """
        header: SendMessageRequestHeader = request.header
        return self._maker.make_batch(
            messages, batch.common, self._unclaimed, header.topic, batch.queue_id, batch.sys_flag,
            header.reconsume_times or 0, header.born_timestamp, request.channel.remote_host,
            self._identity.store_host, request.now_ms)

    def _illegal(self) -> RequestRefused:
        return RequestRefused(
            ResponseCode.MESSAGE_ILLEGAL,
            "the message is illegal, maybe msg body or properties length not matched. msg body "
            f"length limit {self._body_size_max}B, msg properties length limit 32KB.")

    # --- from records to replies

    def _append(self, requests: Sequence[SendRequest], batch: LazyBatch) -> Sequence[Handled]:
        """Append the accepted records; :returns: all replies, including those made before."""
        if batch.is_untouched and not self._half_queue_ids and not (
                self._appender.acknowledgement.stages and any(
                    _STORED_WAITS_NOT in record.stored_properties for record in batch.single)):
            return self._append_single(requests, batch.single)
        records_of, replies = batch.records, batch.replies
        # A plugin may redirect a record; the reply names the queue of the request.
        queue_ids = [records[0].queue_id if records else 0 for records in records_of]
        if self._half_queue_ids:
            queue_ids = [self._half_queue_ids.get(records[0], queue_id) if records else 0
                         for records, queue_id in zip(records_of, queue_ids, strict=True)]
            self._half_queue_ids = {}
        waiting = [index for index, reply in enumerate(replies) if reply is None]
        flat = [record for index in waiting for record in records_of[index]]
        owners = [index for index in waiting for _ in records_of[index]]
        refusals = self._appender.append(flat, owners)
        for position, error in refusals.items():
            replies[owners[position]] = self.refused(self.not_stored(error))
        self.stored(requests, records_of, replies, queue_ids)
        return replies

    def _append_single(
        self, requests: Sequence[SendRequest], records: Sequence[MessageRecord]
    ) -> Sequence[Handled]:
        """Append the one record of each request. Its reply is made only when it is needed."""
        queue_ids = queue_ids_of(records)
        refusals = self._appender.append(records)
        if not refusals:
            self._tables.stats.messages_put(records)
            answers = StoredReplies(
                records, queue_ids, self._identity.store_host, self._reply_maker)
            safe = self._appender.acknowledgement.wait(records[-1].next_offset)
            if safe is not None:
                answers.wait(safe, self.refused, requests)
            return answers
        replies: list[Handled] = [None] * len(requests)
        for index, error in refusals.items():
            replies[index] = self.refused(self.not_stored(error))
        self.stored(requests, [[record] for record in records], replies, queue_ids)
        return replies

    def stored(
        self, requests: Sequence[SendRequest], records_of: Sequence[list[MessageRecord]],
        replies: list[Handled], queue_ids: Sequence[int], message_ids: str | None = None,
    ) -> None:
        """Make the replies for stored messages, and count the messages.

        :param queue_ids: the queue to which each request was sent.
        :param message_ids: the message ids of the only request, if they are made already.
        """
        host, maker = self._identity.store_host, self._reply_maker
        stored = [index for index, reply in enumerate(replies) if reply is None]
        for index in stored:
            request, records = requests[index], records_of[index]
            replies[index] = self._batch_reply(
                request, records, queue_ids[index], message_ids
            ) if len(records) > 1 or request.header.batch else StoredReply(
                records[0], queue_ids[index], host, maker)
        self._tables.stats.messages_put(
            [record for index in stored for record in records_of[index]])
        if self._appender.acknowledgement.stages:
            self._when_safe(requests, records_of, stored, replies)

    def _batch_reply(
        self, request: SendRequest, records: list[MessageRecord], queue_id: int,
        message_ids: str | None,
    ) -> Reply:
        host = self._identity.store_host
        first = records[0]
        if message_ids is None:
            message_ids = ",".join([offset_message_id(host, r.physical_offset) for r in records])
        unique_key = parse_properties(request.header.properties or "").get(names.UNIQ_KEY)
        is_inner = bool(first.sys_flag & SYS_INNER_BATCH)
        return Reply(ResponseCode.SUCCESS, SendMessageResponseHeader(
            msg_id=message_ids, queue_id=queue_id, queue_offset=first.queue_offset,
            transaction_id=unique_key, batch_uniq_id=unique_key if is_inner else None,
            msg_region=self._region, trace_on=self._trace_on))

    def _when_safe(
        self, requests: Sequence[SendRequest], records_of: Sequence[list[MessageRecord]],
        stored: Sequence[int], replies: list[Handled],
    ) -> None:
        """Hold replies until the messages are as safe as the settings demand.

        Messages with WAIT=false wait only for mandatory stages.
        """
        waiting = [index for index in stored if _waits(requests[index])]
        if waiting:
            self._hold(requests, records_of, waiting, replies, only_mandatory=False)
        if len(waiting) < len(stored) and self._appender.acknowledgement.has_mandatory:
            others = [index for index in stored if not _waits(requests[index])]
            self._hold(requests, records_of, others, replies, only_mandatory=True)

    def _hold(
        self, requests: Sequence[SendRequest], records_of: Sequence[list[MessageRecord]],
        waiting: Sequence[int], replies: list[Handled], *, only_mandatory: bool,
    ) -> None:
        """Hold some of the replies.

        They all wait for the last of their messages: it was one write, and one flush covers it.
        """
        # This runs while the disk works: a sync may be in progress since the append.
        held_replies: list[tuple[int, Reply]] = []
        for index in waiting:
            reply = replies[index]
            assert isinstance(reply, Reply)
            held_replies.append((index, reply))
            if isinstance(reply, StoredReply):
                reply.write_ahead(requests[index].command.opaque)
        offset = records_of[waiting[-1]][-1].next_offset
        safe = self._appender.acknowledgement.wait(offset, only_mandatory=only_mandatory)
        if safe is None:
            return
        until = settle([reply for _, reply in held_replies], safe, self.refused)
        for index, reply in held_replies:
            replies[index] = DeferredReply(reply, until)

    def refused(self, error: BrokerError) -> Reply:
        """Make the reply to a refused send; Apache adds region and trace switch to it too."""
        return Reply(error.response_code, SendRefusedResponseHeader(
            msg_region=self._region, trace_on=self._trace_on), remark=str(error))

    def not_stored(self, error: BrokerError) -> BrokerError:
        """Translate a store's error into the words of Apache's broker."""
        if isinstance(error, LightQueuesFull):
            return RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]broker config enableLmq and enableMultiDispatch, "
                "lmq consumeQueue num exceed maxLmqConsumeQueueNum config num, default limit 2w.")
        if isinstance(error, MessageIllegal):
            return self._illegal()
        if isinstance(error, StoreGone) or not isinstance(error, (StoreFull, StoreClosed)):
            return error
        log, queues = self._appender.store.disk_ratios()
        return RequestRefused(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            "service not available now. It may be caused by one of the following reasons: the "
            f"broker's disk is full [CL: {log:5.2f} CQ: {queues:5.2f} INDEX: {queues:5.2f}], "
            "messages are put to the slave, message store has been shut down, etc.")


def _waits(request: SendRequest) -> bool:
    """Whether its sender waits until the message is safe."""
    return _WAITS_NOT not in (request.header.properties or "")
