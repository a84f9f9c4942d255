"""A store written by one broker, opened by the other: ours and Apache's, over one folder.

``fill`` sends messages of mixed kinds to a broker, ``Contents.read`` takes down all that a client
can see of it: every queue by pull, samples by key and by id, committed offsets, topics and groups.
Both brokers are asked the same, so that what they say can be compared.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.interop.peer import Peer
from tests.interop.servers import Servers, wait_until
from twistmq.broker.codes import RequestCode, ResponseCode
from twistmq.broker.testing import BlockingClient
from twistmq.broker.testing.blocking_client import pull_header, records_of, send_header
from twistmq.broker.wire import properties as names
from twistmq.broker.wire.batch import encode_batch
from twistmq.broker.wire.headers.offset import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from twistmq.broker.wire.headers.query import QueryMessageRequestHeader, ViewMessageRequestHeader
from twistmq.broker.wire.headers.send import ConsumerSendMsgBackRequestHeader
from twistmq.broker.wire.json_dialect import decode as decode_json
from twistmq.broker.wire.record import StoredMessage

__all__ = ["Contents", "Exchange", "committed_offset", "differences", "fill"]

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
PREPARED: Final = 4
_FIELDS: Final = (
    "size", "magic", "body_crc", "queue_id", "flag", "queue_offset", "physical_offset", "sys_flag",
    "born_timestamp", "born_host", "store_timestamp", "store_host", "reconsume_times",
    "prepared_transaction_offset", "body", "topic", "properties",
)
#: Small files, so that several roll.
LOG_FILE_SIZE: Final = 1024 * 1024
QUEUE_FILE_SIZE: Final = 20 * 500
FILE_SETTINGS: Final = {
    "mapedFileSizeCommitLog": str(LOG_FILE_SIZE),
    "mapedFileSizeConsumeQueue": str(QUEUE_FILE_SIZE),
    "maxHashSlotNum": "5000", "maxIndexNum": "20000",
}


def fill(client: BlockingClient, count: int, first: int, kinds: str) -> int:
    """Send messages of every kind in turn, and commit offsets.

    :param first: number of the first message; another for each round over one store.
    :param kinds: "plain", or "all" for what only Apache's broker takes yet: delayed and half
        messages, and one sent back to a topic with a long name.
    :returns: how many messages there are now in addition.
    """
    stored = 0
    _succeed(client, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, json.dumps(
        {"groupName": GROUP, "consumeEnable": True, "retryMaxTimes": 7}).encode())
    for number in range(first, first + count):
        topic, queue_id = TOPICS[number % len(TOPICS)], number % QUEUES
        fields: dict[str, str] = {names.KEYS: f"key{number} shared{number % 50}",
                                  names.UNIQ_KEY: f"7F000001{number:024X}"}
        body = b"%d " % number + b"x" * (number * 31 % 900)
        code, sys_flag = RequestCode.SEND_MESSAGE_V2, 0
        kind = number % 10
        if kind == 1:
            fields |= {"größe": "ü\u4e16\U0001f600", names.TAGS: "Ä"}
        elif kind == 2:
            code = RequestCode.SEND_BATCH_MESSAGE
            body = encode_batch((0, b"%d-%d" % (number, i), names.format_properties({
                names.UNIQ_KEY: f"7F000002{number:020X}{i:04X}", names.TAGS: "batch"}))
                for i in range(3))
            fields = {}
        elif kind == 3:
            fields = {names.UNIQ_KEY: f"7F000003{number:024X}"}
            body = os.urandom(3000)
        elif kind == 4 and kinds == "all":
            fields |= {names.DELAY: str(DELAY_LEVEL)}
        elif kind == 5 and kinds == "all":
            fields |= {names.TRAN_MSG: "true", names.PGROUP: "exchange_producers"}
            sys_flag = PREPARED
        else:
            fields |= {names.TAGS: f"tag{number % 7}"}
        header = send_header(topic, 1_700_000_000_000 + number, queue_id=queue_id,
                             properties=fields)
        header.sys_flag = sys_flag
        header.batch = kind == 2
        reply = client.request(code, header, body)
        assert reply.code == ResponseCode.SUCCESS, (number, reply.code, reply.remark)
        stored += 3 if kind == 2 else 1
    for topic in TOPICS:
        for queue_id in range(QUEUES):
            _succeed(client, RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader(
                consumer_group=GROUP, topic=topic, queue_id=queue_id,
                commit_offset=committed_offset(first)))
    if kinds == "all":
        stored += _send_back(client)
    return stored


def committed_offset(first: int) -> int:
    """The offset that a round commits in every queue."""
    return first % 100 + 3


def _send_back(client: BlockingClient) -> int:
    """Have a message stored under a topic that only a V2 record can tell."""
    _succeed(client, RequestCode.HEART_BEAT, None, json.dumps({
        "clientID": "exchange@1", "producerDataSet": [], "consumerDataSet": [{
            "groupName": LONG_GROUP, "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "unitMode": False, "subscriptionDataSet": []}]}).encode())
    _succeed(client, RequestCode.CONSUMER_SEND_MSG_BACK, ConsumerSendMsgBackRequestHeader(
        offset=0, group=LONG_GROUP, delay_level=1, origin_topic=TOPICS[0],
        max_reconsume_times=16))
    wait_until("the message is back", lambda: client.max_offset(LONG_TOPIC))
    return 1


def _succeed(client: BlockingClient, code: RequestCode, header: Any, body: bytes = b"") -> Any:
    reply = client.request(code, header, body)
    assert reply.code == ResponseCode.SUCCESS, (code, reply.code, reply.remark)
    return reply


@dataclass
class Contents:
    """What a client can see of a broker."""

    #: Records by topic, queue id and queue offset, and those of each key asked for.
    records: dict[tuple[str, int, int], StoredMessage] = field(default_factory=dict)
    by_key: dict[tuple[str, str], set[int]] = field(default_factory=dict)
    #: Places of records that were found by their id.
    by_id: set[int] = field(default_factory=set)
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    topics: dict[str, Any] = field(default_factory=dict)
    groups: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(
        cls, client: BlockingClient, every: int = 1, like: Contents | None = None
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
        for message in list((like or contents).records.values())[::every]:
            contents._find(client, message)
        for topic, queue_id in queues:
            reply = _succeed(client, RequestCode.QUERY_CONSUMER_OFFSET,
                             QueryConsumerOffsetRequestHeader(
                                 consumer_group=GROUP, topic=topic, queue_id=queue_id))
            contents.offsets[topic, queue_id] = reply.header(
                QueryConsumerOffsetResponseHeader).offset
        reply = _succeed(client, RequestCode.GET_ALL_TOPIC_CONFIG, None)
        contents.topics = _picked(decode_json(reply.body)["topicConfigTable"], TOPICS)
        reply = _succeed(client, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, None)
        contents.groups = _picked(decode_json(reply.body)["subscriptionGroupTable"], (GROUP,))
        return contents

    def _read_queue(self, client: BlockingClient, topic: str, queue_id: int) -> None:
        maximum = _succeed(client, RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(
            topic=topic, queue_id=queue_id)).header(GetMaxOffsetResponseHeader).offset
        offset = 0
        while offset < maximum:
            reply = client.request(RequestCode.PULL_MESSAGE, pull_header(
                topic, offset, queue_id=queue_id, group=GROUP))
            assert reply.code == ResponseCode.SUCCESS, (topic, offset, reply.code, reply.remark)
            for message in records_of(reply.body):
                self.records[topic, queue_id, message.queue_offset] = message
                offset = message.queue_offset + 1

    def _find(self, client: BlockingClient, message: StoredMessage) -> None:
        reply = _succeed(client, RequestCode.VIEW_MESSAGE_BY_ID,
                         ViewMessageRequestHeader(offset=message.physical_offset))
        assert fields_of(records_of(reply.body)[0]) == fields_of(message), message.physical_offset
        self.by_id.add(message.physical_offset)
        keys = message.properties_map().get(names.KEYS, "").split()
        for key in [*keys[:1], message.properties_map()[names.UNIQ_KEY]]:
            reply = client.request(RequestCode.QUERY_MESSAGE, QueryMessageRequestHeader(
                topic=message.topic, key=key, max_num=64, begin_timestamp=0,
                end_timestamp=2**62))
            found = records_of(reply.body) if reply.code == ResponseCode.SUCCESS else []
            self.by_key[message.topic, key] = {other.physical_offset for other in found}


def _picked(table: Mapping[str, Any], wanted: tuple[str, ...]) -> dict[str, Any]:
    return {name: table[name] for name in wanted if name in table}


def fields_of(message: StoredMessage) -> dict[str, Any]:
    """A record's fields, to compare two readings of it."""
    # A compiled class has no __slots__.
    return {name: getattr(message, name) for name in _FIELDS}


def differences(before: Contents, after: Contents) -> list[str]:
    """What another broker does not say as the first did; it may have more messages."""
    problems = []
    for place, message in before.records.items():
        other = after.records.get(place)
        if other is None:
            problems.append(f"{place} is lost")
        elif fields_of(other) != fields_of(message):
            problems.append(f"{place} is another: {fields_of(message)} {fields_of(other)}")
    for key, places in before.by_key.items():
        # A broker that was killed delivers a delayed message once more.
        if not places or not places <= after.by_key.get(key, set()):
            problems.append(f"key {key}: {places} and {after.by_key.get(key)}")
    if not before.by_id or before.by_id != after.by_id:
        problems.append("other records are found by id")
    for name in ("offsets", "topics", "groups"):
        if getattr(before, name) != getattr(after, name):
            problems.append(f"{name}: {getattr(before, name)} and {getattr(after, name)}")
    return problems


class Exchange:
    """Two brokers that take turns over one folder.

    :param namesrv_port: of Apache's name server.
    :param broker_port: of its broker, which takes two more, two below and one above.
    :param settings: of both brokers, besides those of files.
    """

    def __init__(
        self, folder: Path, namesrv_port: int, broker_port: int, version: str = "5.3.3",
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = folder
        self._peer = Peer(folder, version, namesrv_port, broker_port, "512m")
        self.set({} if settings is None else settings)

    def set(self, settings: Mapping[str, str]) -> None:
        """Give both brokers these settings from their next start on."""
        both = {**FILE_SETTINGS, **settings}
        self._peer.settings = both
        self._ours = Servers(self._folder, *[f"{key}={value}" for key, value in both.items()],
                             "brokerName=broker-peer")

    def apache(self, work: Callable[[BlockingClient], Any], kill: bool = False) -> Any:
        """Start Apache's broker, do something with it, stop or kill it."""
        self._peer.start()
        try:
            with BlockingClient(f"127.0.0.1:{self._peer.broker_port}", 30) as client:
                result = work(client)
        finally:
            self._peer.stop_one("broker", kill=kill)
            self._peer.stop_one("namesrv")
        return result

    def wait_for_offsets(self, committed: int) -> None:
        """Wait until the broker has saved its offsets, which it does every few seconds."""
        path = self._peer.home / "store" / "config" / "consumerOffset.json"

        def is_saved() -> bool:
            if not path.exists():
                return False
            table = decode_json(path.read_bytes())["offsetTable"]
            return all(
                table.get(f"{topic}@{GROUP}", {}).get(queue_id) == committed
                or table.get(f"{topic}@{GROUP}", {}).get(str(queue_id)) == committed
                for topic in TOPICS for queue_id in range(QUEUES))

        wait_until("the offsets are saved", is_saved, 30)

    def ours(self, work: Callable[[BlockingClient], Any], kill: bool = False) -> Any:
        """Start our broker, do something with it, stop or kill it."""
        self._ours.start()
        try:
            with BlockingClient(f"127.0.0.1:{self._ours.broker_port}", 30) as client:
                result = work(client)
        finally:
            self._ours.stop(signal.SIGKILL if kill else signal.SIGTERM)
        return result
