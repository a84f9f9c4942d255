"""The record of a sent message, and the reply that states its position.

This is a leaf module of the hot path; it is typed, so that mypyc compiles it.

Source: SendMessageProcessor.sendMessage, AbstractSendMessageProcessor.buildMsgContext @5.3.3.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from twistmq.broker.remoting.request import Request
from twistmq.broker.remoting.request_runs import UnreadSend
from twistmq.broker.request.sent_topics import SentTopic, SentTopics
from twistmq.broker.request.unsupported_properties import refuse_unclaimed
from twistmq.protocol.batch import count_batch
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.command import ONEWAY_FLAG
from twistmq.protocol.errors import MessageIllegal
from twistmq.protocol.frame import JSON, encode_frame
from twistmq.protocol.json_text import quoted, reply_format
from twistmq.protocol.message_id import OFFSET_DIGITS, UniqueIdMaker, offset_message_id
from twistmq.protocol.plain_properties import plain_keys
from twistmq.protocol.properties import (
    CLUSTER,
    INNER_BASE,
    INNER_NUM,
    MSG_REGION,
    POP_CK,
    PROPERTY_SEPARATOR,
    TAGS,
    TRACE_ON,
    UNIQ_KEY,
    format_properties,
    index_keys,
    pair_count,
    parse_properties,
    tags_code,
)
from twistmq.protocol.record import SYS_INNER_BATCH, MessageRecord, utf8

__all__ = ["KEYS_MAX", "RecordMaker", "StoredReplyMaker", "queue_ids_of"]

#: The number of keys of a message. Each key is an index entry, and the shortest keys take two bytes
#: of a message's 32 KiB of properties. Apache has no bound, but clients give a message few keys.
KEYS_MAX: Final = 1024
_SUCCESS: Final = int(ResponseCode.SUCCESS)


class RecordMaker:
    """Makes records of sent messages.

    :param region: the value of MSG_REGION in every message.
    :param trace_on: the value of TRACE_ON in every message, "true" or "false".
    :param cluster: the value of CLUSTER in every message.
    """

    def __init__(
        self, region: str, trace_on: str, cluster: str, unique_ids: UniqueIdMaker
    ) -> None:
        self._added: dict[str, str] = {MSG_REGION: region, TRACE_ON: trace_on, CLUSTER: cluster}
        self._added_text: str = format_properties(self._added)
        #: The same text for properties that end with a separator, and for those that do not.
        self._added_bytes: bytes = utf8(self._added_text)
        self._added_after: bytes = utf8(PROPERTY_SEPARATOR) + self._added_bytes
        self._unique_ids: UniqueIdMaker = unique_ids

    def make_plain(
        self, requests: Sequence[Request[Any]], topics: SentTopics,
        forbidden: Collection[str], asking: frozenset[str], looked_at: frozenset[str],
        body_size_max: int, store_host: bytes,
    ) -> list[MessageRecord | None]:
        """Make the records of requests that send one plain message each.

        :param requests: requests with headers like SendMessageRequestHeader.
        :param topics: the existing topics.
        :param forbidden: topics to which not every message may be sent.
        :param asking: properties of messages that are not plain.
        :param looked_at: these, and all other properties that plugins or the broker read.
        :returns: a record for each request; None if the request must be examined more closely and
            may have to be refused.
        """
        records: list[MessageRecord | None] = []
        last_topic: str | None = None
        sent: SentTopic | None = None
        queue_count = 0
        channel: object = None
        host = b""
        for request in requests:
            if request.channel is not channel:
                channel = request.channel
                host = request.channel.remote_host
            if isinstance(request, UnreadSend):
                topic = request.topic
                queue_id = request.queue_id
                data = request.properties
                text = data.decode("latin-1")
                flag, sys_flag = request.message_flag, request.sys_flag
                reconsume_times = request.reconsume_times
                born_timestamp = request.born_timestamp
                body = request.body
            else:
                header = request.header
                topic = header.topic
                queue_id = -1 if header.batch else header.queue_id
                text = header.properties or ""
                data = utf8(text)
                flag, sys_flag = header.flag, header.sys_flag
                reconsume_times = header.reconsume_times or 0
                born_timestamp = header.born_timestamp
                body = request.command.body
            if topic != last_topic:
                last_topic = topic
                sent = topics.get(topic)
                queue_count = 0 if sent is None or topic in forbidden else sent.queue_count
            record: MessageRecord | None = None
            if 0 <= queue_id < queue_count and len(body) <= body_size_max:
                assert sent is not None
                keys, tags_code = plain_keys(data, text, looked_at)
                if keys is not None and len(keys) <= KEYS_MAX and not sys_flag & SYS_INNER_BATCH:
                    # All pairs of the text are properties that are stored.
                    stored = data + (
                        self._added_bytes if data[-1] == 2 else self._added_after)
                    record = MessageRecord(
                        sent.name, queue_id, body, "", born_timestamp, host, store_host, keys,
                        tags_code, flag, sys_flag, reconsume_times, stored=stored)
                else:
                    fields = parse_properties(text)
                    if asking.isdisjoint(fields):
                        try:
                            record = self.make(
                                sent.name, queue_id, body, fields, text, flag, sys_flag,
                                reconsume_times, born_timestamp, host, store_host, request.now_ms)
                        except MessageIllegal:
                            record = None
                if record is not None:
                    record.queue = topics.queue(sent, queue_id)
            records.append(record)
        return records

    def make(
        self, topic: str, queue_id: int, body: bytes, fields: dict[str, str], text: str, flag: int,
        sys_flag: int, reconsume_times: int, born_timestamp: int, born_host: bytes,
        store_host: bytes, now_ms: int,
    ) -> MessageRecord:
        """Make a record from the client's message.

        Properties that are not stored are removed, and the broker's own are added. The order of
        properties has no meaning; in Apache's broker it is the order of a Java hash map.

        :param fields: the result of ``parse_properties`` for ``text``; a missing unique key is
            added to it.
        :param text: the client's properties; empty when ``fields`` has other sources.
        :raises MessageIllegal: when the body of an inner batch is not a batch, when another message
            is marked as an inner batch, or when it has too many keys.
        """
        stored: str
        message_count = 1
        if sys_flag & SYS_INNER_BATCH:
            message_count = _count_inner(body, fields)
            text = ""
        if (
            pair_count(text) == len(fields) and UNIQ_KEY in fields and POP_CK not in fields
            and MSG_REGION not in fields and TRACE_ON not in fields and CLUSTER not in fields
            and INNER_NUM not in fields
        ):
            # All pairs of the text are properties that are stored, so it is used unchanged.
            stored = text if text.endswith(PROPERTY_SEPARATOR) else text + PROPERTY_SEPARATOR
            stored += self._added_text
        else:
            if INNER_NUM in fields and not sys_flag & SYS_INNER_BATCH:
                raise MessageIllegal(f"{INNER_NUM} of a message that is not an inner batch")
            fields.pop(POP_CK, None)
            if UNIQ_KEY not in fields:
                fields[UNIQ_KEY] = self._unique_ids.make(now_ms)
            stored = format_properties({**fields, **self._added})
        keys = index_keys(fields)
        if len(keys) > KEYS_MAX:
            raise MessageIllegal(f"the message has {len(keys)} keys, more than {KEYS_MAX}")
        return MessageRecord(
            topic, queue_id, body, stored, born_timestamp, born_host, store_host,
            keys, tags_code(fields.get(TAGS)), flag, sys_flag, reconsume_times,
            message_count=message_count)

    def make_batch(
        self, messages: list[tuple[int, bytes, str]], common: dict[str, str],
        unclaimed: frozenset[str], topic: str, queue_id: int, sys_flag: int,
        reconsume_times: int, born_timestamp: int, born_host: bytes, store_host: bytes, now_ms: int,
    ) -> list[MessageRecord]:
        """Make the records of a batch's messages, or of a part of them.

        :param messages: the result of ``decode_batch``.
        :param common: properties that each message gets if it does not have them itself.
        :param unclaimed: properties that no message may have.
        :raises RequestRefused: when a message has one of them.
        :raises MessageIllegal: see ``make``.
        """
        records: list[MessageRecord] = []
        for flag, body, text in messages:
            fields = parse_properties(text)
            for name, value in common.items():
                # A message keeps its own unique key, because the batch's key is a list of them.
                if name not in fields:
                    fields[name] = value
                    if text and not text.endswith(PROPERTY_SEPARATOR):
                        text += PROPERTY_SEPARATOR
                    text += f"{name}\x01{value}\x02"
            if not unclaimed.isdisjoint(fields):
                refuse_unclaimed(topic, fields, unclaimed)
            records.append(self.make(
                topic, queue_id, body, fields, text, flag, sys_flag, reconsume_times,
                born_timestamp, born_host, store_host, now_ms))
        return records


def _count_inner(body: bytes, fields: dict[str, str]) -> int:
    """Count the messages of an inner batch, and record the number in its properties.

    :raises MessageIllegal: when the body is not a batch, or the client's number is different.
    """
    count = count_batch(body)
    if fields.setdefault(INNER_NUM, str(count)) != str(count):
        raise MessageIllegal(f"{INNER_NUM} of {count} messages is {fields[INNER_NUM]}")
    fields.pop(INNER_BASE, None)
    return count


def queue_ids_of(records: Sequence[MessageRecord]) -> list[int]:
    """Return the queue ids of records, before a plugin redirects some of them."""
    return [record.queue_id for record in records]


class StoredReplyMaker:
    """Writes the replies that state the positions of single messages, without a header object.

    :param region: the value of MSG_REGION in every reply.
    :param trace_on: the value of TRACE_ON in every reply.
    """

    def __init__(self, region: str, trace_on: bool) -> None:
        self.region: str = region
        self.trace_on: bool = trace_on
        self._end: str = f'"MSG_REGION":{quoted(region)},"TRACE_ON":"{str(trace_on).lower()}"'
        #: The headers of replies with and without a key, for the last address that was used.
        self._store_host: bytes = b""
        self._with_key: bytes = b""
        self._without_key: bytes = b""

    def frames(
        self, requests: Sequence[Request[Any]], records: Sequence[MessageRecord],
        queue_ids: Sequence[int], store_host: bytes,
    ) -> list[bytes]:
        """Write the replies of success to requests with one record each, except one-way ones."""
        frames: list[bytes] = []
        for index, record in enumerate(records):
            request = requests[index]
            if request.flag & ONEWAY_FLAG:
                continue
            frames.append(self.frame(
                _SUCCESS, request.opaque, record, queue_ids[index], store_host))
        return frames

    def frame(
        self, code: int, opaque: int, record: MessageRecord, queue_id: int, store_host: bytes
    ) -> bytes:
        """Write the reply as one frame, with the fields of SendMessageResponseHeader."""
        if store_host != self._store_host:
            self._write_formats(store_host)
        header: bytes
        keys = record.keys
        if keys:
            key = keys[0]
            header = self._with_key % (
                code, record.physical_offset, queue_id, record.queue_offset,
                utf8(key if key.isalnum() else quoted(key)[1:-1]), opaque)
        else:
            # A plugin's before_append hook may have removed the keys.
            header = self._without_key % (
                code, record.physical_offset, queue_id, record.queue_offset, opaque)
        return encode_frame(JSON, header, b"")

    def _write_formats(self, store_host: bytes) -> None:
        self._store_host = store_host
        begin = (f'"msgId":"{offset_message_id(store_host, 0)[:-OFFSET_DIGITS]}%016X",'
                 '"queueId":"%d","queueOffset":"%d",').encode()
        end = utf8(self._end).replace(b"%", b"%%")
        self._with_key = reply_format(begin + b'"transactionId":"%b",' + end)
        self._without_key = reply_format(begin + end)
