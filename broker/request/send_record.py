"""The record of a sent message: what the broker takes out of its properties and puts in.

Leaf module of the hot path: typed, so that mypyc compiles it.

Source: SendMessageProcessor.sendMessage, AbstractSendMessageProcessor.buildMsgContext @5.3.3.
"""

from __future__ import annotations

from twistmq.broker.wire.message_id import UniqueIdMaker
from twistmq.broker.wire.properties import (
    CLUSTER,
    MSG_REGION,
    POP_CK,
    TAGS,
    TRACE_ON,
    UNIQ_KEY,
    format_properties,
    index_keys,
    parse_properties,
    tags_code,
)
from twistmq.broker.wire.record import MessageRecord

__all__ = ["RecordMaker"]


class RecordMaker:
    """Makes records of sent messages.

    :param region: MSG_REGION of every message.
    :param trace_on: TRACE_ON of every message, "true" or "false".
    :param cluster: CLUSTER of every message.
    """

    def __init__(
        self, region: str, trace_on: str, cluster: str, unique_ids: UniqueIdMaker
    ) -> None:
        self._region: str = region
        self._trace_on: str = trace_on
        self._cluster: str = cluster
        self._unique_ids: UniqueIdMaker = unique_ids

    def stored_properties(self, text: str | None) -> dict[str, str]:
        """What a client sent, without what is not stored, with what the broker adds.

        The order of properties has no meaning; Apache's is that of a Java hash map.
        """
        fields: dict[str, str] = {}
        if text:
            fields = parse_properties(text)
            if POP_CK in fields:
                del fields[POP_CK]
        fields[MSG_REGION] = self._region
        fields[TRACE_ON] = self._trace_on
        fields[CLUSTER] = self._cluster
        return fields

    def make(
        self, topic: str, queue_id: int, body: bytes, fields: dict[str, str], flag: int,
        sys_flag: int, reconsume_times: int, born_timestamp: int, born_host: bytes,
        store_host: bytes, now_ms: int,
    ) -> MessageRecord:
        """Make a record.

        :param fields: of ``stored_properties``; gets a unique key when it has none.
        """
        if UNIQ_KEY not in fields:
            fields[UNIQ_KEY] = self._unique_ids.make(now_ms)
        return MessageRecord(
            topic, queue_id, body, format_properties(fields), born_timestamp, born_host,
            store_host, index_keys(fields), tags_code(fields.get(TAGS)), flag, sys_flag,
            reconsume_times)
