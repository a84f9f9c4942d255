"""Batch and light queues: stores that our broker and Apache's exchange, and a Java client."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any, Final

from tests.broker.store.test_inspect import check
from tests.interop import clients
from tests.interop.contents import fields_of
from tests.interop.peer import Peer, java_command
from tests.interop.servers import Servers, free_port, wait_until
from twistmq.broker.testing import RawClient
from twistmq.broker.testing.raw_client import pull_header, records_of, send_header
from twistmq.protocol import properties as names
from twistmq.protocol.batch import decode_batch, encode_batch
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.query import QueryMessageRequestHeader
from twistmq.protocol.headers.send import SendMessageResponseHeader
from twistmq.protocol.headers.topic import CreateTopicRequestHeader
from twistmq.protocol.record import SYS_INNER_BATCH, StoredMessage

BATCHES: Final = "ExchangeBatches"
PARENT: Final = "ExchangeParent"
LIGHT: Final = tuple(f"%LMQ%{name}" for name in "abc")
#: Small files, so that several roll.
SETTINGS: Final = {
    "mappedFileSizeCommitLog": "200000", "mappedFileSizeConsumeQueue": "2000",
    "mapperFileSizeBatchConsumeQueue": str(46 * 20), "maxHashSlotNum": "500",
    "maxIndexNum": "2000", "enableLmq": "true", "enableMultiDispatch": "true",
}
COUNT: Final = 240
#: Queue, and place in it, of every record a client can read.
Contents = dict[tuple[str, int, int], dict[str, Any]]


def create_topics(client: RawClient, batches: str, parent: str) -> None:
    """Make the two topics."""
    for topic, attributes in ((batches, "+queue.type=BatchCQ"), (parent, "")):
        reply = client.request(RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader(
            topic=topic, default_topic="TBW102", read_queue_nums=2, write_queue_nums=2, perm=6,
            topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=False,
            attributes=attributes))
        assert reply.code == ResponseCode.SUCCESS, reply.remark


def fill(client: RawClient, first: int) -> None:
    """Send batches, single messages, and messages that name light queues, in turn."""
    for number in range(first, first + COUNT):
        fields = {names.UNIQ_KEY: f"7F000001{number:024X}", names.KEYS: f"key{number}"}
        topic, code, body = BATCHES, RequestCode.SEND_MESSAGE_V2, b"%d " % number * 20
        kind = number % 4
        if kind == 1:
            code = RequestCode.SEND_BATCH_MESSAGE
            body = encode_batch([(0, b"%d-%d" % (number, index), f"TAGS\x01T{index}\x02")
                                 for index in range(number % 7 + 1)])
        elif kind > 1:
            topic = PARENT
            fields[names.INNER_MULTI_DISPATCH] = ",".join(LIGHT[: number % 3 + 1])
        header = send_header(topic, 1_700_000_000_000 + number, queue_id=number // 4 % 2,
                             properties=fields)
        header.batch = kind == 1
        reply = client.request(code, header, body)
        assert reply.code == ResponseCode.SUCCESS, (number, reply.code, reply.remark)
        if kind == 1:
            answer = reply.header(SendMessageResponseHeader)
            assert answer.batch_uniq_id == fields[names.UNIQ_KEY], answer


def read(client: RawClient) -> Contents:
    """Record all messages that can be pulled, each inner batch from its first and last offset."""
    contents: Contents = {}
    queues = [(topic, queue_id) for topic in (BATCHES, PARENT) for queue_id in range(2)]
    for topic, queue_id in [*queues, *[(light, 0) for light in LIGHT]]:
        maximum = client.max_offset(topic, queue_id)
        offset = 0
        while offset < maximum:
            found = pull(client, topic, queue_id, offset)
            assert found, (topic, queue_id, offset)
            message = found[0]
            contents[topic, queue_id, offset] = fields_of(message)
            count = 1
            if message.sys_flag & SYS_INNER_BATCH:
                count = len(decode_batch(message.body))
                again = pull(client, topic, queue_id, offset + count - 1)[0]
                assert fields_of(again) == fields_of(message), (topic, offset)
            offset += count
        assert offset == maximum, (topic, queue_id, offset, maximum)
    return contents


def pull(
    client: RawClient, topic: str, queue_id: int, offset: int
) -> list[StoredMessage]:
    """Return the records from an offset on."""
    reply = client.request(RequestCode.PULL_MESSAGE, pull_header(
        topic, offset, queue_id=queue_id, max_count=1))
    assert reply.code == ResponseCode.SUCCESS, (topic, offset, reply.code, reply.remark)
    return records_of(reply.body)


def find(client: RawClient, topic: str, key: str) -> list[int]:
    """Return the positions of the records with a key."""
    reply = client.request(RequestCode.QUERY_MESSAGE, QueryMessageRequestHeader(
        topic=topic, key=key, max_num=32, begin_timestamp=0, end_timestamp=2**62))
    if reply.code != ResponseCode.SUCCESS:
        return []
    return [message.physical_offset for message in records_of(reply.body)]


class BatchQueueTests(clients.JavaTestCase):
    """Our broker and Apache's over one folder."""

    def setUp(self) -> None:
        super().setUp()
        self.peer = Peer(self.folder, self.version, free_port(), free_port(), "512m",
                         settings=dict(SETTINGS))
        self.servers = Servers(self.folder, *[f"{key}={value}" for key, value in SETTINGS.items()],
                               "brokerName=broker-peer")

    def apache(self, work: Callable[[RawClient], Contents], kill: bool) -> Contents:
        """Start Apache's broker, do something with it, stop or kill it."""
        self.peer.start()
        try:
            with RawClient(f"127.0.0.1:{self.peer.broker_port}", 30) as client:
                return work(client)
        finally:
            self.peer.stop_one("broker", kill=kill)
            self.peer.stop_one("namesrv")

    def ours(self, work: Callable[[RawClient], Contents], kill: bool) -> Contents:
        """Start our broker, do something with it, stop or kill it."""
        self.servers.start()
        try:
            with RawClient(f"127.0.0.1:{self.servers.broker_port}", 30) as client:
                return work(client)
        finally:
            self.servers.stop(signal.SIGKILL if kill else signal.SIGTERM)

    def begin(self, client: RawClient) -> Contents:
        """Run the first round."""
        create_topics(client, BATCHES, PARENT)
        fill(client, 0)
        return self.settled(client, COUNT)

    def settled(self, client: RawClient, count: int) -> Contents:
        """Read once the last message can be found in every way: Apache dispatches later."""
        wait_until("the last messages are found by key", lambda: all(
            find(client, topic, f"key{number}")
            for topic, number in ((BATCHES, count - 3), (PARENT, count - 1))))
        return read(client)

    def go_on(self, client: RawClient, before: Contents, first: int) -> Contents:
        """Compare with the previous broker, by offset and by key; then continue."""
        found = read(client)
        self.assertEqual(found, before)
        for (topic, _, _), message in list(found.items())[::9]:
            key = names.parse_properties(message["properties"])[names.KEYS]
            if topic in (BATCHES, PARENT):
                self.assertEqual(find(client, topic, key), [message["physical_offset"]])
        fill(client, first)
        return self.settled(client, first + COUNT)

    def there_and_back(self, kill: bool) -> None:
        """Apache's broker fills the store, both continue in turn, and ours reads it all."""
        first = self.apache(self.begin, kill)
        self.assertEqual({topic for topic, _, _ in first}, {BATCHES, PARENT, *LIGHT})
        second = self.ours(lambda client: self.go_on(client, first, COUNT), kill)
        self.assertGreater(len(second), 2 * len(first) - 20)
        third = self.apache(lambda client: self.go_on(client, second, 2 * COUNT), kill)
        self.assertEqual(self.ours(read, False), third)
        self.assertEqual(check(self.folder / "store")[0], [])

    def long_stopped(self) -> None:
        """Each broker is stopped cleanly."""
        self.there_and_back(kill=False)

    def test_both_brokers_open_the_batch_queues_of_a_killed_one(self) -> None:
        """Each broker is killed after its last acknowledgement."""
        self.there_and_back(kill=True)

    def test_java_client(self) -> None:
        """It splits batches, and pulls from light queues."""
        self.servers.start()
        self.addCleanup(self.servers.stop)
        with RawClient(f"127.0.0.1:{self.servers.broker_port}", 30) as client:
            create_topics(client, "RoundBatches", "RoundParent")
        classes = clients.java_classes(self.version, main="BatchRound")
        command = java_command(self.folder / "home", [
            str(classes), clients.class_path(self.version)])
        output = clients.run([*command, "BatchRound", self.servers.namesrv, "broker-peer"],
                             clients.ROUND_TIMEOUT)
        self.assertRegex(output, r"ok \d{2,} checks")
