"""The parts of a broker that a client can see, to compare two brokers that open one store."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from twistmq.broker.testing import RawClient
from twistmq.broker.testing.raw_client import pull_header, records_of
from twistmq.protocol import properties as names
from twistmq.protocol.bodies import KVTable
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.header import CommandHeader
from twistmq.protocol.headers.offset import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
)
from twistmq.protocol.headers.query import QueryMessageRequestHeader, ViewMessageRequestHeader
from twistmq.protocol.json_dialect import decode as decode_json
from twistmq.protocol.record import StoredMessage

__all__ = ["DELAY_LEVEL", "GROUP", "HALF_TOPIC", "LOG_FILE_SIZE", "LONG_GROUP", "LONG_TOPIC",
           "QUEUES", "SCHEDULE_TOPIC", "TOPICS", "Contents", "Request", "differences",
           "is_dispatched", "pipelined", "succeed"]

TOPICS: Final = ("ExchangeA", "ExchangeB", "exchange_%-1")
QUEUES: Final = 4
GROUP: Final = "exchange_group"
#: With %RETRY% in front it is longer than the 127 bytes that a V1 record can tell.
LONG_GROUP: Final = "g" * 125
LONG_TOPIC: Final = f"%RETRY%{LONG_GROUP}"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
#: The longest delay, 2 hours: nothing comes back while a test runs.
DELAY_LEVEL: Final = 18
#: Requests that wait for their replies at a time.
IN_FLIGHT: Final = 32
_FIELDS: Final = (
    "size", "magic", "body_crc", "queue_id", "flag", "queue_offset", "physical_offset", "sys_flag",
    "born_timestamp", "born_host", "store_timestamp", "store_host", "reconsume_times",
    "prepared_transaction_offset", "body", "topic", "properties",
)
#: Bytes of a commit-log file: small, so that several roll.
LOG_FILE_SIZE: Final = 1024 * 1024
Request = tuple[RequestCode, CommandHeader, bytes]


def succeed(client: RawClient, code: RequestCode, header: Any, body: bytes = b"") -> Any:
    reply = client.request(code, header, body)
    assert reply.code == ResponseCode.SUCCESS, (code, reply.code, reply.remark)
    return reply


def is_dispatched(client: RawClient) -> bool:
    """Whether all that is stored is in its queue and in the index: Apache's answers before that.

    In its first second it cannot say, and answers with an exception.
    """
    reply = client.request(RequestCode.GET_BROKER_RUNTIME_INFO)
    return reply.code == ResponseCode.SUCCESS and (
        KVTable.decode(reply.body).table["dispatchBehindBytes"] == "0")


def pipelined(client: RawClient, requests: Iterable[Request]) -> Iterator[RemotingCommand]:
    """Have several requests under way; :returns: the replies in the order of the requests."""
    waiting: deque[int] = deque()
    for request in requests:
        waiting.append(client.begin(*request))
        if len(waiting) == IN_FLIGHT:
            yield client.reply(waiting.popleft())
    while waiting:
        yield client.reply(waiting.popleft())


@dataclass
class Contents:
    """The answers of a broker about its store."""

    #: Records by topic, queue id and queue offset, and the places found for each key asked for.
    records: dict[tuple[str, int, int], StoredMessage] = field(default_factory=dict)
    by_key: dict[tuple[str, str], set[int]] = field(default_factory=dict)
    #: Places of records that were found by their id.
    by_id: set[int] = field(default_factory=set)
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    topics: dict[str, Any] = field(default_factory=dict)
    groups: dict[str, Any] = field(default_factory=dict)
    #: Whether Apache's broker ever opened this store after a crash; see ``differences``.
    may_lack_keys: bool = False

    @classmethod
    def read(
        cls, client: RawClient, every: int = 1, like: Contents | None = None
    ) -> Contents:
        """Ask a broker for all it has.

        :param every: of the records, one in so many is also looked for by key and by id.
        :param like: what another broker had; its records are looked for. None: one's own.
        """
        contents = cls()
        queues = [(topic, queue_id) for topic in TOPICS for queue_id in range(QUEUES)]
        others = [(SCHEDULE_TOPIC, DELAY_LEVEL - 1), (HALF_TOPIC, 0), (LONG_TOPIC, 0)]
        for topic, queue_id in [*queues, *others]:
            contents._read_queue(client, topic, queue_id)
        contents._find(client, list((like or contents).records.values())[::every])
        for topic, queue_id in queues:
            reply = succeed(client, RequestCode.QUERY_CONSUMER_OFFSET,
                             QueryConsumerOffsetRequestHeader(
                                 consumer_group=GROUP, topic=topic, queue_id=queue_id))
            contents.offsets[topic, queue_id] = reply.header(
                QueryConsumerOffsetResponseHeader).offset
        reply = succeed(client, RequestCode.GET_ALL_TOPIC_CONFIG, None)
        contents.topics = _picked(decode_json(reply.body)["topicConfigTable"], TOPICS)
        reply = succeed(client, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, None)
        contents.groups = _picked(decode_json(reply.body)["subscriptionGroupTable"], (GROUP,))
        return contents

    def _read_queue(self, client: RawClient, topic: str, queue_id: int) -> None:
        maximum = succeed(client, RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(
            topic=topic, queue_id=queue_id)).header(GetMaxOffsetResponseHeader).offset
        offset = 0
        while offset < maximum:
            reply = client.request(RequestCode.PULL_MESSAGE, pull_header(
                topic, offset, queue_id=queue_id, group=GROUP))
            assert reply.code == ResponseCode.SUCCESS, (topic, offset, reply.code, reply.remark)
            for message in records_of(reply.body):
                self.records[topic, queue_id, message.queue_offset] = message
                offset = message.queue_offset + 1

    def _find(self, client: RawClient, messages: list[StoredMessage]) -> None:
        """Look for messages by id, and by a key and the unique key of each."""
        by_id = pipelined(client, (
            (RequestCode.VIEW_MESSAGE_BY_ID,
             ViewMessageRequestHeader(offset=message.physical_offset), b"")
            for message in messages))
        for message, reply in zip(messages, by_id, strict=True):
            assert reply.code == ResponseCode.SUCCESS, (message.physical_offset, reply.remark)
            assert fields_of(records_of(reply.body)[0]) == fields_of(message)
            self.by_id.add(message.physical_offset)
        keys = [key for message in messages for key in _keys_of(message)]
        by_key = pipelined(client, (
            (RequestCode.QUERY_MESSAGE, QueryMessageRequestHeader(
                topic=topic, key=key, max_num=64, begin_timestamp=0, end_timestamp=2**62), b"")
            for topic, key in keys))
        for place, reply in zip(keys, by_key, strict=True):
            assert reply.code in (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND), (
                place, reply.code, reply.remark)
            found = records_of(reply.body) if reply.code == ResponseCode.SUCCESS else []
            # Apache's broker answers with all that have the key's hash; clients look again.
            self.by_key[place] = {other.physical_offset for other in found
                                  if _has_key(other, *place)}


def _keys_of(message: StoredMessage) -> list[tuple[str, str]]:
    """Return the keys of a message to look for: its first key and its unique one,
    with its topic.
    """
    fields = message.properties_map()
    return [(message.topic, key) for key in (
        *fields.get(names.KEYS, "").split()[:1], fields[names.UNIQ_KEY])]


def _has_key(message: StoredMessage, topic: str, key: str) -> bool:
    """Whether a message has a key, or this is its unique one."""
    fields = message.properties_map()
    return message.topic == topic and key in (
        *fields.get(names.KEYS, "").split(), fields[names.UNIQ_KEY])


def _picked(table: Mapping[str, Any], wanted: tuple[str, ...]) -> dict[str, Any]:
    return {name: table[name] for name in wanted if name in table}


def fields_of(message: StoredMessage) -> dict[str, Any]:
    """A record's fields, to compare two readings of it."""
    # A compiled class has no __slots__.
    return {name: getattr(message, name) for name in _FIELDS}


def differences(before: Contents, after: Contents) -> list[str]:
    """Return the differences of another broker, which may have more messages."""
    problems = []
    for place, message in before.records.items():
        other = after.records.get(place)
        if other is None:
            problems.append(f"{place} is lost")
        elif fields_of(other) != fields_of(message):
            problems.append(f"{place} is another: {fields_of(message)} {fields_of(other)}")
    # A broker that was killed delivers a delayed message once more, so that there may be more.
    problems += _lost_keys(before, after)
    if not before.by_id or before.by_id != after.by_id:
        problems.append("other records are found by id")
    if before.offsets != after.offsets:
        problems.append(f"offsets: {before.offsets} and {after.offsets}")
    for ours, theirs in ((before.topics, after.topics), (before.groups, after.groups)):
        if not ours or ours.keys() != theirs.keys():
            problems.append(f"topics or groups: {list(ours)} and {list(theirs)}")
        # 5.x knows more of a topic and a group than 4.9.
        problems += [f"{name}: {table} and {theirs.get(name)}" for name, table in ours.items()
                     if any(theirs.get(name, {}).get(key, value) != value
                            for key, value in table.items())]
    return problems


def _lost_keys(before: Contents, after: Contents) -> list[str]:
    """Return the keys of the first broker's messages by which another broker does not find them.

    Both brokers have to find everything after a crash too, under messageIndexSafe. Apache's removes
    the index files that are newer than the checkpoint's time of the index and dispatches again from
    the newest log file on whose first message is not newer than that time, to the millisecond. So
    it may miss messages of that very millisecond in the file before, and nothing else; its own
    broker misses the same messages of its own store.
    """
    messages = {message.physical_offset: message for message in before.records.values()}
    rolled: dict[int, int] = {}
    if after.may_lack_keys:
        rolled = {message.store_timestamp: place for place, message in messages.items()
                  if place and place % LOG_FILE_SIZE == 0}
    problems, found_count = [], 0
    wanted = {(key, place) for place, message in messages.items() for key in _keys_of(message)
              if key in after.by_key}
    wanted |= {(key, place) for key, places in before.by_key.items() for place in places}
    for key, place in sorted(wanted):
        message = messages.get(place)
        if place in after.by_key.get(key, ()):
            found_count += 1
        elif message is None or place >= rolled.get(message.store_timestamp, 0):
            problems.append(f"{key} does not lead to {place}")
    if not found_count:
        problems.append("keys do not lead anywhere")
    return problems
