"""A store that our broker and Apache's open in turn, over one folder.

``fill`` sends messages of mixed kinds to a broker; an ``Exchange`` has brokers take turns, and
compares what the one and the other say of the store.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from tests.interop.contents import (
    DELAY_LEVEL,
    GROUP,
    LOG_FILE_SIZE,
    LONG_GROUP,
    LONG_TOPIC,
    QUEUES,
    TOPICS,
    Contents,
    Request,
    differences,
    is_dispatched,
    pipelined,
    succeed,
)
from tests.interop.peer import Peer
from tests.interop.servers import MAIN, Servers, wait_until
from twistmq.broker.testing import RawClient
from twistmq.broker.testing.raw_client import send_header
from twistmq.plugins.timer.checkpoint import TimerCheckpoint
from twistmq.protocol import properties as names
from twistmq.protocol.batch import encode_batch
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import BrokerError
from twistmq.protocol.headers.offset import UpdateConsumerOffsetRequestHeader
from twistmq.protocol.headers.send import ConsumerSendMsgBackRequestHeader
from twistmq.protocol.json_dialect import JsonDialectError
from twistmq.protocol.json_dialect import decode as decode_json

__all__ = ["Exchange", "committed_offset", "fill"]

#: Of so many messages one is sent back.
SENT_BACK_EVERY: Final = 1000
PREPARED: Final = 4
BATCH_COUNT: Final = 3
QUEUE_FILE_SIZE: Final = 20 * 200
FILE_SETTINGS: Final = {
    "mappedFileSizeCommitLog": str(LOG_FILE_SIZE),
    "mappedFileSizeConsumeQueue": str(QUEUE_FILE_SIZE),
    "maxHashSlotNum": "5000", "maxIndexNum": "20000",
    # Else the log is read for lost keys from two files back at most, and these are small.
    "messageIndexSafe": "true",
}


def fill(client: RawClient, count: int, first: int, kinds: str) -> int:
    """Send messages of every kind in turn, and commit offsets.

    :param first: number of the first message; another for each round over one store.
    :param kinds: "plain"; "delayed" for delayed messages too, which only Apache's broker takes yet;
        "all" for half messages as well, in a topic that 4.9 hides, and for some sent back to a
        topic whose name is long, which 5.x can store.
    :returns: how many messages there are now in addition.
    """
    succeed(client, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, json.dumps(
        {"groupName": GROUP, "consumeEnable": True, "retryMaxTimes": 7}).encode())
    for topic in TOPICS:
        # A topic is there before many come at once.
        client.send(topic, b"first", properties={
            names.UNIQ_KEY: f"7F000004{first:016X}{len(topic):08X}"})
    stored = len(TOPICS)
    sends = [_message(number, kinds) for number in range(first, first + count)]
    for send, reply in zip(sends, pipelined(client, sends), strict=True):
        assert reply.code == ResponseCode.SUCCESS, (send, reply.code, reply.remark)
        stored += BATCH_COUNT if send[0] == RequestCode.SEND_BATCH_MESSAGE else 1
    wait_until("all are in their queues", lambda: is_dispatched(client))
    for topic in TOPICS:
        for queue_id in range(QUEUES):
            succeed(client, RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader(
                consumer_group=GROUP, topic=topic, queue_id=queue_id,
                commit_offset=committed_offset(first)))
    if kinds == "all":
        stored += _send_back(client, max(count // SENT_BACK_EVERY, 1))
    return stored


def _message(number: int, kinds: str) -> Request:
    """The request that sends a message, the kind of which follows from its number."""
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
            for i in range(BATCH_COUNT))
        fields = {}
    elif kind == 3:
        fields = {names.UNIQ_KEY: f"7F000003{number:024X}"}
        body = os.urandom(3000)
    elif kind == 4 and kinds != "plain":
        fields |= {names.DELAY: str(DELAY_LEVEL)}
    elif kind == 5 and kinds == "all":
        fields |= {names.TRAN_MSG: "true", names.PGROUP: "exchange_producers"}
        sys_flag = PREPARED
    else:
        fields |= {names.TAGS: f"tag{number % 7}"}
    header = send_header(topic, 1_700_000_000_000 + number, queue_id=queue_id, properties=fields)
    header.sys_flag = sys_flag
    header.batch = kind == 2
    return code, header, body


def committed_offset(first: int) -> int:
    """The offset that a round commits in every queue."""
    return first % 100 + 3


def _send_back(client: RawClient, count: int) -> int:
    """Have messages stored under a topic that only a V2 record can tell; :returns: how many."""
    succeed(client, RequestCode.HEART_BEAT, None, json.dumps({
        "clientID": "exchange@1", "producerDataSet": [], "consumerDataSet": [{
            "groupName": LONG_GROUP, "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "unitMode": False, "subscriptionDataSet": []}]}).encode())
    places = [message.physical_offset
              for message in client.pull(TOPICS[0], group=GROUP, max_count=32)]
    # The rounds before sent some back too.
    wanted = client.max_offset(LONG_TOPIC) + count
    for number in range(count):
        succeed(client, RequestCode.CONSUMER_SEND_MSG_BACK, ConsumerSendMsgBackRequestHeader(
            offset=places[number % len(places)], group=LONG_GROUP, delay_level=1,
            origin_topic=TOPICS[0], max_reconsume_times=16))
    wait_until("the messages are back", lambda: client.max_offset(LONG_TOPIC) >= wanted)
    wait_until("the index has them", lambda: is_dispatched(client))
    return count


class Exchange:
    """Two brokers that take turns over one folder.

    Apache's broker has no name server: no client asks one, and its start and stop take seconds.

    :param broker_port: of Apache's broker, which takes two more, two below and one above.
    :param settings: of both brokers, besides those of files.
    :param every: of the records, one in so many is also looked for by key and by id.
    :param check: whether ``twistmq store check`` has to find each store whole, beside the broker
        and when that has ended, and ``twistmq store dump`` to list all of it.
    :param killed: whether the store that is there was left by a kill.
    """

    def __init__(
        self, folder: Path, broker_port: int, version: str = "5.3.3",
        settings: Mapping[str, str] | None = None, every: int = 1, check: bool = False,
        killed: bool = False,
    ) -> None:
        self._folder = folder
        self._every = every
        self._check = check
        #: Whether the store was left by a kill.
        self._killed = killed
        self._peer = Peer(folder, version, broker_port=broker_port, heap="512m",
                          with_namesrv=False)
        self.set({} if settings is None else settings)

    def set(self, settings: Mapping[str, str]) -> None:
        """Give both brokers these settings from their next start on."""
        both = {**FILE_SETTINGS, **settings}
        self._peer.settings = {**both, "namesrvAddr": ""}
        self._ours = Servers(self._folder, *[f"{key}={value}" for key, value in both.items()],
                             "brokerName=broker-peer")

    def turn(
        self, whose: str, kill: bool, before: Contents | None, count: int, kinds: str = "plain"
    ) -> Contents:
        """Start a broker, compare it with the previous one, send, record
        everything, and stop it.

        :param whose: "apache" or "ours".
        :param kill: end it with SIGKILL.
        :param count: how many to send; 0: none.
        :returns: what it had at its end.
        :raises AssertionError: with what it does not say as the one before did.
        """
        may_lack_keys = (self._killed and whose == "apache") or (
            before is not None and before.may_lack_keys)

        def work(client: RawClient) -> Contents:
            contents = Contents()
            if before is not None:
                contents = Contents.read(client, self._every, before)
                contents.may_lack_keys = may_lack_keys
                problems = differences(before, contents)
                assert not problems, f"{len(problems)} differ\n" + "\n".join(problems[:20])
            if count:
                first = len(contents.records)
                least = first + fill(client, count, first, kinds)
                if kill:
                    self.wait_for_offsets(committed_offset(first))
                contents = Contents.read(client, self._every)
                contents.may_lack_keys = may_lack_keys
                assert len(contents.records) >= least, (len(contents.records), least)
                problems = differences(contents, contents)
                assert not problems, f"{len(problems)} of its own\n" + "\n".join(problems[:20])
            if self._check:
                self.check_store("beside the broker")
            return contents

        contents = (self.apache if whose == "apache" else self.ours)(work, kill)
        self._killed = kill
        assert isinstance(contents, Contents)
        if self._check:
            self.check_store("after its end")
            self._check_dump(contents)
        return contents

    def check_store(self, when: str) -> None:
        """Check that `twistmq store check` has no finding.

        :param when: for the message.
        """
        status, text = self._run("check")
        assert not status, f"store check {when}: {status}\n{text[-2000:]}"

    def _check_dump(self, contents: Contents) -> None:
        """`twistmq store dump` must list every record that the broker had, once."""
        status, text = self._run("dump", "--json", "--no-body")
        assert not status, f"store dump: {status}\n{text[-2000:]}"
        rows = [json.loads(line) for line in text.splitlines()]
        places = {row["offset"]: (row["topic"], row["queue"], row["queueOffset"]) for row in rows}
        assert len(places) == len(rows), f"{len(rows) - len(places)} records are listed twice"
        missing = [place for place, record in contents.records.items()
                   if places.get(record.physical_offset) != place]
        assert not missing, f"store dump lacks {len(missing)} records: {missing[:9]}"

    def timers(self) -> list[dict[str, Any]]:
        """Return the timers that `twistmq store dump --view timers` lists."""
        status, text = self._run("dump", "--json", "--view", "timers")
        assert not status, f"store dump: {status}\n{text[-2000:]}"
        return [json.loads(line) for line in text.splitlines()]

    def timers_read_ms(self) -> int:
        """Return the time up to which timed messages were delivered, by the store."""
        path = self._peer.home / "store" / "config" / "timercheck"
        return TimerCheckpoint.decode(path.read_bytes()).last_read_ms

    def _run(self, *arguments: str) -> tuple[int, str]:
        """Run `twistmq store` over the store; :returns: its status and all that it printed."""
        done = subprocess.run(
            [sys.executable, "-c", MAIN, "store", *arguments, str(self._peer.home / "store")],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.returncode, done.stdout

    def rolled(self) -> dict[str, int]:
        """Return the numbers of files of the commit log, the longest queue and the index."""
        store = self._peer.home / "store"
        queues = (len(list(path.iterdir())) for path in store.glob("consumequeue/*/*"))
        return {"commit log": len(list(store.glob("commitlog/*"))),
                "longest queue": max(queues), "index": len(list(store.glob("index/*")))}

    def apache(self, work: Callable[[RawClient], Any], kill: bool = False) -> Any:
        """Start Apache's broker, do something with it, stop or kill it."""
        self._peer.start()
        try:
            address = f"127.0.0.1:{self._peer.broker_port}"

            def has_read() -> bool:
                try:
                    with RawClient(address, 30) as client:
                        return is_dispatched(client)
                except BrokerError:
                    # In its first seconds it may close connections.
                    return False

            wait_until("it has read what is there", has_read)
            with RawClient(address, 30) as client:
                result = work(client)
        finally:
            self._peer.stop_one("broker", kill=kill)
        return result

    def wait_for_offsets(self, committed: int) -> None:
        """Wait until the broker has saved its offsets: every few seconds, or when it is stopped."""
        path = self._peer.home / "store" / "config" / "consumerOffset.json"

        def is_saved() -> bool:
            if not path.exists():
                return False
            try:
                table = decode_json(path.read_bytes())["offsetTable"]
            except JsonDialectError:
                # Apache's broker is writing it.
                return False
            return all(
                table.get(f"{topic}@{GROUP}", {}).get(queue_id) == committed
                or table.get(f"{topic}@{GROUP}", {}).get(str(queue_id)) == committed
                for topic in TOPICS for queue_id in range(QUEUES))

        wait_until("the offsets are saved", is_saved)

    def ours(self, work: Callable[[RawClient], Any], kill: bool = False) -> Any:
        """Start our broker, do something with it, stop or kill it."""
        self._ours.start()
        try:
            with RawClient(f"127.0.0.1:{self._ours.broker_port}", 30) as client:
                result = work(client)
        finally:
            self._ours.stop(signal.SIGKILL if kill else signal.SIGTERM)
        return result
