# ^Pops and acknowledgements compared with Apache's broker, over the wire.
"""Pops and acknowledgements beside Apache's broker, over the wire.

  pop_bench.py [--twistmq .venv/bin/twistmq] [--count 100000] [--connections 4] [--in-flight 4]
               [--invisible 20] [--acks one|batch] [--runs 1] [-- SETTING=VALUE ...]

Each broker in turn gets so many messages of 128 bytes in 4 queues. Then the connections pop them,
32 at a time, and acknowledge each by a request of its own (or those of a pop by one request), as
fast as the answers come. Before the messages that count it gets others, until it is warm
(warm_up.py). Acknowledgements are worked off when the time is over for which messages
are hidden: the last columns say how long after the last acknowledgement that was done, and what
the broker's CPU had to do for all of it, us a message. Prints a table; the exit status is 1 when
a message is lost, or comes twice.
"""

from __future__ import annotations

import argparse
import base64
import json
import shutil
import struct
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench_servers import Apache, Server, Twistmq, parser_of
from feature_loads import BODY_SIZE, SUCCESS, Broker, Link, drive, refuse, request, send_request
from warm_up import warm_up

TOPIC, GROUP = "PopBench", "pop_bench"
#: As the send requests of feature_loads make topics.
QUEUES = 4
POP, ACK, BATCH_ACK, OFFSET = 200050, 200051, 200151, 14
POLLING_TIMEOUT, QUERY_NOT_FOUND = 210, 22
POP_COUNT = 32
#: As Apache's is called by its starter.
BROKER = "broker-peer"
#: Nothing is refused because the machine is busy.
PATIENT = tuple(f"{name}=30000" for name in (
    "waitTimeMillsInSendQueue", "waitTimeMillsInPullQueue", "waitTimeMillsInAckQueue",
    "osPageCacheBusyTimeOutMills"))
#: Sends in flight.
WINDOW = 256
PORT_FIRST = 32_400
#: How long a pop before those that count hides its messages, seconds.
WARM_UP_INVISIBLE = 10


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def pop_request(opaque: int, invisible_ms: int) -> bytes:
    return request(POP, opaque, {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": "-1", "maxMsgNums": str(POP_COUNT),
        "invisibleTime": str(invisible_ms), "pollTime": "0", "bornTime": str(now_ms()),
        "initMode": "0", "expType": "TAG", "exp": "*", "order": "false"})


def fill(broker: Broker, count: int) -> None:
    """Send the messages."""
    sent = [0]

    def replied(link: Link, code: int, header: dict, body: bytes) -> bytes:
        if code != SUCCESS:
            raise refuse(link, header)
        if sent[0] >= count:
            return b""
        sent[0] += 1
        return send_request(sent[0], TOPIC, sent[0] % QUEUES, {"UNIQ_KEY": f"{sent[0]:032X}"})

    broker.make_topic(TOPIC)
    link = broker.link(replied)
    first = min(WINDOW, count)
    sent[0] = first
    link.send(b"".join(send_request(number, TOPIC, number % QUEUES, {
        "UNIQ_KEY": f"{number:032X}"}) for number in range(1, first + 1)), first)
    drive([link], lambda: not link.in_flight)
    link.connection.close()


class Consumer:
    """The common state of all connections of one run."""

    def __init__(self, count: int, invisible_ms: int, acks: str) -> None:
        self.count = count
        self.invisible_ms = invisible_ms
        self.acks = acks
        self.came: list[int] = []
        self.acked = 0
        self.opaque = 0

    def next_opaque(self) -> int:
        self.opaque += 1
        return self.opaque

    def replied(self, link: Link, code: int, header: dict, body: bytes) -> bytes:
        """A pop causes acknowledgements and another pop; an acknowledgement causes nothing."""
        fields = header.get("extFields") or {}
        if "popTime" not in fields:
            if code != SUCCESS:
                raise refuse(link, header)
            self.acked += POP_COUNT if self.acks == "batch" else 1
            return b""
        if code == POLLING_TIMEOUT:
            return b"" if len(self.came) >= self.count else self.pop(link)
        if code != SUCCESS:
            raise refuse(link, header)
        out = (self.ack_each if self.acks == "one" else self.ack_together)(fields, body)
        # The link counts one request for this answer; there are more.
        link.in_flight += len(out) - (0 if len(self.came) < self.count else 1)
        if len(self.came) < self.count:
            out.append(pop_request(self.next_opaque(), self.invisible_ms))
        return b"".join(out)

    def pop(self, link: Link) -> bytes:
        return pop_request(self.next_opaque(), self.invisible_ms)

    def messages(self, body: bytes) -> list[tuple[int, int]]:
        """(queue, offset) of each message; notes its number."""
        found, position = [], 0
        while position < len(body):
            (size,) = struct.unpack_from(">i", body, position)
            (queue_id,) = struct.unpack_from(">i", body, position + 12)
            (offset,) = struct.unpack_from(">q", body, position + 20)
            self.came.append(int(body[position + 88:position + 100]))
            found.append((queue_id, offset))
            position += size
        return found

    def ack_each(self, fields: dict, body: bytes) -> list[bytes]:
        starts = {int(each.split(" ")[1]): each.split(" ")[2]
                  for each in fields["startOffsetInfo"].split(";")}
        tail = f"{fields['popTime']} {fields['invisibleTime']} {fields['reviveQid']} 0 {BROKER}"
        return [request(ACK, self.next_opaque(), {
            "consumerGroup": GROUP, "topic": TOPIC, "queueId": str(queue_id),
            "offset": str(offset), "extraInfo": f"{starts[queue_id]} {tail} {queue_id} {offset}"})
            for queue_id, offset in self.messages(body)]

    def ack_together(self, fields: dict, body: bytes) -> list[bytes]:
        starts = {int(each.split(" ")[1]): int(each.split(" ")[2])
                  for each in fields["startOffsetInfo"].split(";")}
        bits = dict.fromkeys(starts, 0)
        for queue_id, offset in self.messages(body):
            bits[queue_id] |= 1 << offset - starts[queue_id]
        acks = [{"c": GROUP, "t": TOPIC, "r": "0", "so": starts[queue_id], "q": queue_id,
                 "rq": int(fields["reviveQid"]), "pt": int(fields["popTime"]),
                 "it": int(fields["invisibleTime"]),
                 "b": base64.b64encode(each.to_bytes(each.bit_length() // 8 + 1, "little")
                                       ).decode()} for queue_id, each in bits.items()]
        return [request(BATCH_ACK, self.next_opaque(), {}, json.dumps({
            "brokerName": BROKER, "acks": acks}).encode())]

def revived(broker: Broker, cluster: str) -> list[tuple[int, int]]:
    """(offset of the revive group, messages) of each revive queue that has messages."""
    topic = f"rmq_sys_REVIVE_LOG_{cluster}"
    found = []
    for queue_id in range(8):
        end = broker.max_offset(topic, queue_id)
        if end:
            found.append((offset_of(broker, topic, queue_id), end))
    return found


def offset_of(broker: Broker, topic: str, queue_id: int) -> int:
    answers: list[int] = []

    def replied(link: Link, code: int, header: dict, body: bytes) -> bytes:
        answers.append(int(header["extFields"]["offset"]) if code == SUCCESS else -1)
        return b""

    link = broker.link(replied)
    link.send(request(OFFSET, 1, {"consumerGroup": "CID_RMQ_SYS_REVIVE_GROUP", "topic": topic,
                                  "queueId": str(queue_id)}))
    drive([link], lambda: bool(answers))
    link.connection.close()
    return answers[0]


def measure(server: Server, arguments: argparse.Namespace) -> tuple[bool, float, str]:
    """Measure one broker; :returns: whether each message arrived once, the rate, a row."""
    broker = Broker(server.endpoint)

    def cpu_of_pops() -> dict[str, float]:
        count, _, _, _, cpu, _, total_cpu = pop_all(
            broker, arguments, arguments.count, WARM_UP_INVISIBLE)
        return {"us": cpu * 1e6 / count, "us in all": total_cpu * 1e6 / count}

    warm_up("pops", {server.name: cpu_of_pops})
    count, twice, missing, seconds, cpu, worked_off, total_cpu = pop_all(
        broker, arguments, arguments.count, arguments.invisible)
    again = broker.max_offset(f"%RETRY%{GROUP}_{TOPIC}", 0)
    row = (f"| {server.name} | {count / seconds:,.0f} | {cpu * 1e6 / count:,.1f} | {twice} "
           f"| {again} | {worked_off:.0f} | {total_cpu * 1e6 / count:,.1f} |")
    return not twice and not again and not missing, count / seconds, row


def pop_all(
    broker: Broker, arguments: argparse.Namespace, messages: int, invisible: int
) -> tuple[int, int, int, float, float, float, float]:
    """Send messages, pop and acknowledge all, and wait until that is worked off.

    :param invisible: how long what is popped is hidden, seconds.
    :returns: how many came, came twice and are missing; seconds and CPU seconds until the last
        acknowledgement; seconds from then on until all was worked off, CPU seconds for all of it.
    """
    fill(broker, messages)
    # The message that made the topic, or asked for it, comes too.
    consumer = Consumer(messages + 1, invisible * 1000, arguments.acks)
    cpu, begin = broker.cpu_seconds(), time.monotonic()
    links = [broker.link(consumer.replied) for _ in range(arguments.connections)]
    for link in links:
        link.send(b"".join(consumer.pop(link) for _ in range(arguments.in_flight)),
                  arguments.in_flight)
    drive(links, lambda: len(consumer.came) >= consumer.count and not any(
        link.in_flight for link in links))
    seconds = time.monotonic() - begin
    cpu_seconds = broker.cpu_seconds() - cpu
    for link in links:
        link.connection.close()
    time.sleep(invisible + 2)
    wait_until_worked_off(broker)
    came, different = len(consumer.came), len(set(consumer.came))
    return (came, came - different, consumer.count - different, seconds, cpu_seconds,
            time.monotonic() - begin - seconds, broker.cpu_seconds() - cpu)


def wait_until_worked_off(broker: Broker) -> None:
    """Wait until all that was acknowledged is worked off; two minutes at most."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        before = revived(broker, "DefaultCluster")
        time.sleep(2)
        after = revived(broker, "DefaultCluster")
        if before == after and after and all(offset >= 0 for offset, _ in after):
            return


def run(servers: Sequence[Server], arguments: argparse.Namespace) -> bool:
    print(f"{BODY_SIZE}-byte bodies, {arguments.connections} connections with "
          f"{arguments.in_flight} pops of {POP_COUNT} each, acknowledged "
          f"{'one by one' if arguments.acks == 'one' else 'by one request a pop'}")
    rows = ["| broker | popped and acknowledged/s | CPU us | twice | again | worked off, s | CPU "
            "us, all |", "| --- | --- | --- | --- | --- | --- | --- |"]
    good = True
    rates: dict[str, list[float]] = {}
    for _ in range(arguments.runs):
        for server in servers:
            server.start(f"brokerName={BROKER}", *PATIENT, *arguments.settings)
            try:
                was_good, rate, row = measure(server, arguments)
            finally:
                server.stop()
            shutil.rmtree(server.folder, ignore_errors=True)
            server.folder.mkdir(parents=True, exist_ok=True)
            good &= was_good
            rows.append(row)
            rates.setdefault(server.name, []).append(rate)
    print(*rows, sep="\n", flush=True)
    middle = {name: sorted(each)[len(each) // 2] for name, each in rates.items()}
    print(f"twistmq has {middle['twistmq'] / middle['Apache']:.2f} times Apache's rate")
    return good


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--in-flight", type=int, default=4)
    parser.add_argument("--invisible", type=int, default=20)
    parser.add_argument("--acks", choices=("one", "batch"), default="one")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("settings", nargs="*", metavar="SETTING=VALUE")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="twistmq-bench-") as text:
        folders = [Path(text) / name for name in ("ours", "apaches")]
        for folder in folders:
            folder.mkdir()
        servers = [Twistmq("twistmq", arguments.twistmq, folders[0], PORT_FIRST),
                   Apache(folders[1], PORT_FIRST + 20)]
        return 0 if run(servers, arguments) else 1


if __name__ == "__main__":
    raise SystemExit(main())
