"""Kill a broker with delayed messages and retries, repeatedly over one store, and count.

    python -m tests.long.redelivery [--kills 60] [--seed 1] [--keep DIR]

A producer sends messages with delay levels; a consumer fails with every message of another topic,
sends it back, and again what comes of that, until it is a dead letter. At random moments the
process gets SIGKILL and is started again. In the end nothing waits any more, and then:

* each message that was acknowledged, and each try that was, came where it belongs;
* nothing came before it was due;
* what came again was delivered before a kill when ``delayOffset.json`` did not say so yet;
* nothing was sent back more often than it was asked for.

Prints the counts; ends with status 1 when any of that fails, or nothing came twice at all.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.interop.servers import Servers, wait_until
from twistmq.broker.testing import RawClient
from twistmq.broker.testing.raw_client import send_header
from twistmq.protocol.bodies import DelayOffsetSerializeWrapper
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import BrokerError
from twistmq.protocol.header import CommandHeader
from twistmq.protocol.headers.send import ConsumerSendMsgBackRequestHeader
from twistmq.protocol.headers.topic import CreateTopicRequestHeader
from twistmq.protocol.record import StoredMessage
from twistmq.protocol.topic_names import SCHEDULE_TOPIC, TEMPLATE_TOPIC

__all__ = ["DELAYED", "DELAYS_MS", "DLQ", "FAILING", "RETRY", "TRIES", "Check", "delay_offsets",
           "join", "kill_often", "prepare", "read", "send_back", "settings"]

DELAYED, FAILING, GROUP = "Delayed", "Failing", "failing"
RETRY, DLQ = f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"
#: The levels; what is sent back begins at the third.
DELAYS_MS = (1000, 2000, 1000, 2000, 1000)
TRIES = 3
WINDOW = 16
#: Messages that are sent at least between two kills.
LIFE = 60


def settings(save_ms: int = 300, delays_ms: Sequence[int] = DELAYS_MS) -> list[str]:
    """:param save_ms: the period in which the progress of the delivery is saved."""
    levels = " ".join(f"{delay // 1000}s" for delay in delays_ms)
    return [f"messageDelayLevel={levels}", f"flushDelayOffsetInterval={save_ms}"]


class Come(NamedTuple):
    """A message where consumers find it."""

    topic: str
    body: bytes
    tries: int


class Waiting(NamedTuple):
    """An entry of the schedule topic."""

    level: int
    queue_offset: int
    due_ms: int
    come: Come


def read(client: RawClient, topic: str, queue_id: int = 0) -> list[StoredMessage]:
    """Return all messages of a queue."""
    found: list[StoredMessage] = []
    while messages := client.pull(topic, len(found), queue_id=queue_id):
        found += messages
    return found


def send_back(client: RawClient, message: StoredMessage) -> None:
    """:raises BrokerError: when it is not acknowledged."""
    reply = client.request(
        RequestCode.CONSUMER_SEND_MSG_BACK, ConsumerSendMsgBackRequestHeader(
            offset=message.physical_offset, group=GROUP, delay_level=0, origin_topic=FAILING,
            max_reconsume_times=TRIES))
    assert reply.code == ResponseCode.SUCCESS, (reply.code, reply.remark)


def delay_offsets(folder: Path) -> dict[int, int]:
    """Return the saved progress of the delivery by level, of a broker that does not run."""
    path = folder / "store" / "config" / "delayOffset.json"
    if not path.exists():
        return {}
    return DelayOffsetSerializeWrapper.decode_saved(path.read_bytes()).offset_table


@dataclass
class Clients:
    """The knowledge of the clients over all kills."""

    sent: int = 0
    #: What was acknowledged, as it has to come.
    known: set[Come] = field(default_factory=set)
    #: How often each try was asked for.
    asked: Counter[Come] = field(default_factory=Counter)
    #: By topic how far the consumer has come.
    offsets: dict[str, int] = field(default_factory=lambda: {FAILING: 0, RETRY: 0})
    failures: list[str] = field(default_factory=list)

    def produce(self, address: str) -> None:
        """Send until the connection is lost, with some messages in flight."""
        with RawClient(address) as client:
            waiting: list[tuple[Come, int]] = []
            while True:
                number, self.sent = self.sent, self.sent + 1
                level = number % 3
                topic = DELAYED if level else FAILING
                header = send_header(topic, 1, properties={"DELAY": str(level)} if level else None)
                come = Come(topic, b"%d" % number, 0)
                waiting.append((come, client.begin(
                    RequestCode.SEND_MESSAGE_V2, header, come.body)))
                if len(waiting) < WINDOW:
                    continue
                come, opaque = waiting.pop(0)
                reply = client.reply(opaque)
                assert reply.code == ResponseCode.SUCCESS, (reply.code, reply.remark)
                self.known.add(come)
                # The consumer is to come after; a producer's pace, no wait for anything.
                time.sleep(0.002)

    def consume(self, address: str) -> None:
        """Fail every message until the connection is lost."""
        with RawClient(address) as client:
            join(client)
            while self.consume_once(client) or True:
                time.sleep(0.005)

    def consume_once(self, client: RawClient) -> int:
        """Send back all messages; :returns: their number."""
        count = 0
        for topic in self.offsets:
            for message in client.pull(topic, self.offsets[topic]):
                tries = message.reconsume_times + 1
                come = Come(RETRY if tries <= TRIES else DLQ, message.body, tries)
                self.asked[come] += 1
                send_back(client, message)
                self.known.add(come)
                self.offsets[topic] = message.queue_offset + 1
                count += 1
        return count

    def run(self, address: str) -> list[threading.Thread]:
        """Run both in threads, until the broker is killed."""
        def work(what: str) -> None:
            try:
                getattr(self, what)(address)
            except BrokerError:
                # The broker was killed.
                pass
            except Exception as error:
                self.failures.append(f"{what}: {error!r}")

        threads = [threading.Thread(target=work, args=(what,), daemon=True)
                   for what in ("produce", "consume")]
        for thread in threads:
            thread.start()
        return threads


class Check:
    """The final state, compared with the knowledge of the clients.

    :param saved: how far delivery was saved to have come at each kill, by level.
    """

    def __init__(self, client: RawClient, clients: Clients, saved: list[dict[int, int]],
                 ) -> None:
        self.problems = list(clients.failures)
        self.waited = self._waiting(client)
        self.come = [(Come(topic, each.body, each.reconsume_times), each.store_timestamp)
                     for topic in (DELAYED, FAILING, RETRY, DLQ) for each in read(client, topic)]
        self.counts = Counter(come for come, _ in self.come)
        self.twice = sum(count - 1 for count in self.counts.values())
        self.lost = clients.known - self.counts.keys()
        self.problems += [f"lost: {come}" for come in self.lost]
        due_ms: dict[Come, int] = {}
        entries, allowed = Counter[Come](), Counter[Come]()
        for entry in self.waited:
            entries[entry.come] += 1
            allowed[entry.come] += 1 + sum(
                offsets.get(entry.level, 0) <= entry.queue_offset for offsets in saved)
            due_ms[entry.come] = min(entry.due_ms, due_ms.get(entry.come, entry.due_ms))
        self.early = 0
        for come, stored_ms in self.come:
            if come in due_ms and stored_ms < due_ms[come]:
                self.early += 1
                self.problems.append(f"early by {due_ms[come] - stored_ms} ms: {come}")
        for come, count in self.counts.items():
            # What did not wait was stored as often as it was asked for.
            most = allowed[come] or max(clients.asked[come], 1)
            if count > most:
                self.problems.append(f"{count} times, {most} are allowed: {come}")
        self.problems += [
            f"waited {count} times, asked for {max(clients.asked[come], 1)} times: {come}"
            for come, count in entries.items() if count > max(clients.asked[come], 1)]

    @staticmethod
    def _waiting(client: RawClient) -> list[Waiting]:
        found = []
        for level, delay_ms in enumerate(DELAYS_MS, 1):
            for each in read(client, SCHEDULE_TOPIC, level - 1):
                come = Come(each.properties_map()["REAL_TOPIC"], each.body, each.reconsume_times)
                found.append(Waiting(level, each.queue_offset, each.store_timestamp + delay_ms,
                                     come))
        return found


def kill_often(folder: Path, kills: int, seed: int) -> Check:
    """Start, work and kill; let the last broker finish, then check the messages."""
    chance = random.Random(seed)
    clients = Clients()
    saved: list[dict[int, int]] = []
    servers = Servers(folder, *settings())
    servers.start()
    try:
        with RawClient(f"127.0.0.1:{servers.broker_port}", 30) as client:
            prepare(client)
        for _ in range(kills):
            wanted = clients.sent + LIFE
            threads = clients.run(f"127.0.0.1:{servers.broker_port}")
            wait_until("messages are sent", lambda wanted=wanted: clients.sent >= wanted)
            # The moment is what is random here; nothing waits for it.
            time.sleep(chance.uniform(0.3, 2.5))
            servers.stop(signal.SIGKILL)
            for thread in threads:
                thread.join(30)
            saved.append(delay_offsets(folder))
            servers.start()
        with RawClient(f"127.0.0.1:{servers.broker_port}", 30) as client:
            wait_until("nothing waits any more",
                       lambda: not clients.consume_once(client) and _all_came(client), 240)
            return Check(client, clients, saved)
    finally:
        servers.stop()


def prepare(client: RawClient) -> None:
    """Make topics and group; who asks for that is answered when they are saved."""
    for topic in (DELAYED, FAILING):
        _succeed(client, RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader(
            topic=topic, default_topic=TEMPLATE_TOPIC, read_queue_nums=4, write_queue_nums=4,
            perm=6, topic_filter_type="SINGLE_TAG"))
    _succeed(client, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, json.dumps(
        {"groupName": GROUP, "consumeEnable": True}).encode())
    join(client)


def join(client: RawClient) -> None:
    """Register a consumer: its heartbeat creates the retry topic."""
    _succeed(client, RequestCode.HEART_BEAT, None, json.dumps({
        "clientID": "failing@1", "producerDataSet": [], "consumerDataSet": [{
            "groupName": GROUP, "consumeType": "CONSUME_PASSIVELY", "unitMode": False,
            "messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [{"topic": FAILING, "subString": "*"}]}]}).encode())


def _succeed(client: RawClient, code: RequestCode, header: CommandHeader | None,
             body: bytes = b"") -> None:
    reply = client.request(code, header, body)
    assert reply.code == ResponseCode.SUCCESS, (code, reply.code, reply.remark)


def _max_offset(client: RawClient, topic: str, queue_id: int = 0) -> int:
    try:
        return client.max_offset(topic, queue_id)
    except BrokerError:
        return 0


def _all_came(client: RawClient) -> bool:
    """Whether all that waits was delivered by this broker or one before."""
    table = client.request(RequestCode.GET_ALL_DELAY_OFFSET)
    offsets = DelayOffsetSerializeWrapper.decode_saved(table.body).offset_table
    return all(offsets.get(level, 0) == _max_offset(client, SCHEDULE_TOPIC, level - 1)
               for level in range(1, len(DELAYS_MS) + 1))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="keep the store in this folder")
    args = parser.parse_args()
    begin = time.monotonic()
    with contextlib.ExitStack() as stack:
        folder = args.keep or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="twistmq-")))
        check = kill_often(folder, args.kills, args.seed)
    dead = sum(count for come, count in check.counts.items() if come.topic == DLQ)
    print(f"{args.kills} kills in {time.monotonic() - begin:.0f} s: {len(check.come):,} came, "
          f"{len(check.waited):,} of them after a delay, {dead:,} dead letters; "
          f"{len(check.lost)} lost, {check.early} early, {check.twice:,} came again, "
          f"{len(check.problems)} problems")
    for problem in check.problems[:20]:
        print(problem)
    return 1 if check.problems or not check.twice else 0


if __name__ == "__main__":
    raise SystemExit(main())
