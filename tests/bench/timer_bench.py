# ^Timed messages compared with Apache's broker: their delay when many are due.
"""Timed messages beside Apache's broker: how late they come when many are due.

  timer_bench.py [--twistmq .venv/bin/twistmq] [--count 200000] [--seconds 60] [--lead 40]

Each broker in turn is warmed up with a tenth of the messages again and again (warm_up.py), and then
gets so many messages, due at times spread evenly over so many seconds, of which
the first comes after the lead; four connections pull while they come. Lateness is from a message's
own time to its arrival here: a tick of a second, which both brokers wait for, is half of that in
the mean. CPU is the broker's: while messages are sent, and until all have come. Prints a table; the
exit status is 1 when a message is early, lost or there twice.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from bench_servers import Apache, Server, Twistmq, parser_of
from feature_loads import Broker
from warm_up import warm_up

from twistmq.broker.testing.raw_client import RawClient, send_header
from twistmq.protocol.codes import RequestCode, ResponseCode

TOPIC = "TimerBench"
QUEUES = 4
#: Requests in flight while sending.
WINDOW = 256
PORT_FIRST = 32_300
#: The most seconds from the first send of the warm-up until messages are due.
WARM_UP_LEAD = 15


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Puller(threading.Thread):
    """Pulls one queue and notes how late its messages are, ms."""

    def __init__(self, address: str, topic: str, queue_id: int) -> None:
        super().__init__(daemon=True)
        self._topic = topic
        self.late_ms: list[int] = []
        self.bodies: set[bytes] = set()
        self.stopped = threading.Event()
        self._client = RawClient(address, 30)
        self._queue_id = queue_id

    def run(self) -> None:
        offset = 0
        while not self.stopped.is_set():
            messages = self._client.pull(self._topic, offset, queue_id=self._queue_id, hold_ms=2000)
            came_ms = now_ms()
            offset += len(messages)
            for message in messages:
                self.bodies.add(message.body)
                self.late_ms.append(came_ms - int(message.body.partition(b" ")[0]))


def send(address: str, topic: str, count: int, first_ms: int, span_ms: int) -> float:
    """Send the messages; :returns: how many a second."""
    begin = time.monotonic()
    numbers = deque(range(count))
    with RawClient(address, 60) as client:
        while numbers:
            waiting: list[tuple[int, int]] = []
            for _ in range(min(WINDOW, len(numbers))):
                number = numbers.popleft()
                # Neighbours are far from each other in time, as messages of many senders are.
                due_ms = first_ms + number * 7919 % count * span_ms // count
                header = send_header(topic, now_ms(), queue_id=number % QUEUES, properties={
                    "TIMER_DELIVER_MS": str(due_ms)})
                waiting.append((number, client.begin(
                    RequestCode.SEND_MESSAGE_V2, header, b"%d %d" % (due_ms, number))))
            for number, opaque in waiting:
                reply = client.reply(opaque)
                if reply.code == ResponseCode.SYSTEM_BUSY:
                    numbers.append(number)
                else:
                    assert reply.code == ResponseCode.SUCCESS, reply.remark
    return count / (time.monotonic() - begin)


def measure(server: Server, count: int, seconds: int, lead: int) -> tuple[bool, str]:
    """Measure one broker; :returns: whether all arrived, none early or twice; the row."""
    broker = Broker(server.endpoint)

    def cpu_of_timers() -> dict[str, float]:
        some = max(count // 10, 1)
        # A topic of its own for each round: all of it is pulled.
        _, send_cpu, cpu, _, _ = deliver(
            broker, f"{TOPIC}WarmUp{time.time_ns()}", some, max(seconds // 10, 1),
            min(lead, WARM_UP_LEAD))
        return {"us a send": send_cpu / some * 1e6, "us in all": cpu / some * 1e6}

    warm_up("timers", {server.name: cpu_of_timers})
    rate, send_cpu, cpu, late, bodies = deliver(broker, TOPIC, count, seconds, lead)
    early = sum(each < 0 for each in late)
    at = {share: late[min(int(len(late) * share), len(late) - 1)] for share in (0.5, 0.99)}
    row = (f"| {server.name} | {rate:,.0f} | {send_cpu * 1e6 / count:,.1f} | "
           f"{cpu * 1e6 / count:,.1f} | {bodies:,} | {len(late) - bodies} | {early} | "
           f"{late[0]} | {at[0.5]} | {at[0.99]} | {late[-1]} |")
    return bodies == count and not early and len(late) == count, row


def deliver(
    broker: Broker, topic: str, count: int, seconds: int, lead: int
) -> tuple[float, float, float, list[int], int]:
    """Send timed messages and wait for them.

    :returns: messages sent a second; CPU seconds of the broker meanwhile, and until all have come;
        how late each came, ms, in order; how many different ones.
    """
    host, port = next(broker.endpoint.addresses)
    address = f"{host}:{port}"
    with RawClient(address, 30) as client:
        client.send(topic, b"0 seed")
        # A route takes Apache's broker a moment.
        client.pull(topic)
    pullers = [Puller(address, topic, queue_id) for queue_id in range(QUEUES)]
    for puller in pullers:
        puller.start()
    cpu = broker.cpu_seconds()
    first_ms = now_ms() + lead * 1000
    rate = send(address, topic, count, first_ms, seconds * 1000)
    send_cpu = broker.cpu_seconds() - cpu
    assert now_ms() < first_ms, "sending took longer than the lead"
    deadline = time.monotonic() + lead + seconds + 120
    while time.monotonic() < deadline and sum(
            len(puller.late_ms) for puller in pullers) < count + 1:
        time.sleep(0.2)
    cpu = broker.cpu_seconds() - cpu
    # What comes twice comes after that.
    time.sleep(3)
    for puller in pullers:
        puller.stopped.set()
    for puller in pullers:
        puller.join()
    # The seed is not timed.
    late = sorted(each for puller in pullers for each in puller.late_ms if each < 10**9)
    return rate, send_cpu, cpu, late, len(set().union(*(puller.bodies for puller in pullers))) - 1


def run(servers: Sequence[Server], arguments: argparse.Namespace) -> bool:
    rows = ["| broker | sends/s | CPU a sent message, us | CPU a message in all, us | came | twice "
            "| early | first, ms late | p50 | p99 | last |",
            "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    good = True
    for server in servers:
        server.start()
        try:
            was_good, row = measure(server, arguments.count, arguments.seconds, arguments.lead)
        finally:
            server.stop()
        rows.append(row)
        good &= was_good
    print(*rows, sep="\n", flush=True)
    return good


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--lead", type=int, default=40)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="twistmq-bench-") as text:
        folder = Path(text)
        return 0 if run([Twistmq("twistmq", arguments.twistmq, folder, PORT_FIRST),
                         Apache(folder, PORT_FIRST + 20)], arguments) else 1


if __name__ == "__main__":
    raise SystemExit(main())
