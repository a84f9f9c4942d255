#!/usr/bin/env python3
"""One load of this project's client, for client_bench: client_loads.py MEASURE NAMESRV TOPIC ...

Runs in the Python of the installation that is measured. Each line of its standard input is the
length of a round in seconds, and the process ends with its input (load_process.py). A round prints
one line of JSON: messages, seconds, CPU seconds of this process, and failures. The time in which a
round connects is not measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

from twistmq.client import Consumer, Message, Producer
from twistmq.client.aio import Producer as AsyncProducer
from twistmq.client.aio import PullConsumer

BODY = b"x" * 128
#: Messages under way of ``send_soon``; batches under way; threads and tasks that wait for each.
ASYNC, AUTO, BATCHES, WAITERS = 1024, 8192, 64, 64
WORKERS = 20
#: A round of sends lasts so long before it is measured, so that its producer is connected.
LEAD_SECONDS = 0.5
Values = dict[str, float]


class Window:
    """The measured time: it begins after the lead and has a number of seconds."""

    def __init__(self, seconds: float) -> None:
        self.begin = time.monotonic() + LEAD_SECONDS
        self.end = self.begin + seconds
        self._first: tuple[float, float, int] | None = None

    def is_over(self, count: int) -> bool:
        """Whether it is over. :param count: messages so far."""
        now = time.monotonic()
        if self._first is None and now >= self.begin:
            self._first = now, time.process_time(), count
        return now >= self.end

    def values(self, count: int, failed: int = 0) -> Values:
        """Return the current figures."""
        assert self._first is not None
        begin, cpu, before = self._first
        return {"messages": count - before, "seconds": time.monotonic() - begin,
                "cpu": time.process_time() - cpu, "failed": failed}


def soon(
    where: str, window: Window, send: Callable[[Producer], Any], size: int, under_way: int,
    **options: Any,
) -> Values:
    """Send without waiting.

    :param size: messages of a send.
    """
    waiting: deque[Any] = deque()
    count = failed = 0
    with Producer(where, group="client_bench", in_flight_max=under_way, **options) as producer:
        while not window.is_over(count):
            for _ in range(16):
                waiting.append(send(producer))
            count += 16 * size
            while waiting and waiting[0].done():
                failed += waiting.popleft().exception() is not None
        producer.flush()
        values = window.values(count)
        values["failed"] = failed + sum(each.exception() is not None for each in waiting)
    return values


def sync(where: str, window: Window, topic: str, threads: int) -> Values:
    """Send and wait, in some threads."""
    counts = [0] * threads
    took: list[float] = []
    with Producer(where, group="client_bench") as producer:

        def work(number: int) -> None:
            begin = time.monotonic()
            while begin < window.end:
                producer.send(topic, BODY)
                counts[number] += 1
                end = time.monotonic()
                if threads == 1 and begin >= window.begin:
                    took.append(end - begin)
                begin = end

        running = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        for each in running:
            each.start()
        time.sleep(max(window.begin - time.monotonic(), 0))
        window.is_over(sum(counts))
        for each in running:
            each.join()
        values = window.values(sum(counts))
    if took:
        values["p50"] = statistics.median(took) * 1e6
    return values


async def tasks(where: str, window: Window, topic: str, count: int) -> Values:
    """Sends that are waited for, by tasks of asyncio."""
    done = 0
    async with AsyncProducer(where, group="client_bench") as producer:

        async def work() -> None:
            nonlocal done
            while not window.is_over(done):
                await producer.send(topic, BODY)
                done += 1

        await asyncio.gather(*[work() for _ in range(count)])
        return window.values(done)


def consume(where: str, topic: str, messages: int, size: int, group: str) -> Values:
    """Consume so many messages from the beginning, as a new group.

    :param size: messages of a call of the handler.
    """
    lock = threading.Lock()
    count = 0
    first: tuple[float, float, int] | None = None
    last = (0.0, 0.0)
    consumer: Consumer[bytes] = Consumer(where, group=group, topics=topic, start="first")

    def came(number: int) -> None:
        nonlocal count, first, last
        with lock:
            if first is None:
                first = time.monotonic(), time.process_time(), number
            count += number
            if count >= messages and not last[0]:
                last = time.monotonic(), time.process_time()
                consumer.stop()

    def many(batch: Sequence[Any]) -> None:
        came(len(batch))

    with consumer:
        if size > 1:
            consumer.run_batches(many, size=size, workers=WORKERS)
        else:
            consumer.run(lambda message: came(1), workers=WORKERS)
    assert first is not None
    return {"messages": count - first[2], "seconds": last[0] - first[0], "cpu": last[1] - first[1],
            "failed": 0}


async def poll(where: str, topic: str, messages: int, pull_count: int, group: str) -> Values:
    """Poll 32 messages at a time from the beginning, as a new group.

    :param pull_count: messages that a pull asks the broker for.
    """
    first, count = (0.0, 0.0, 0), 0
    async with PullConsumer[bytes](where, group=group, topics=topic, start="first",
                                   pull_count=pull_count) as consumer:
        while count < messages:
            count += len(await consumer.poll(32, 1))
            if count and not first[2]:
                first = time.monotonic(), time.process_time(), count
        return {"messages": count - first[2], "seconds": time.monotonic() - first[0],
                "cpu": time.process_time() - first[1], "failed": 0}


def reads(arguments: argparse.Namespace, seconds: float) -> Values:
    """Consume the messages again and again for a time; :returns: the sums of all figures."""
    where, topic, kind = arguments.namesrv, arguments.topic, arguments.measure
    sums: Counter[str] = Counter()
    end = time.monotonic() + seconds
    while not sums or time.monotonic() < end:
        group = f"client_bench_{time.time_ns()}"
        if kind.startswith("poll"):
            pull_count = int(kind.removeprefix("poll"))
            sums.update(asyncio.run(poll(where, topic, arguments.messages, pull_count, group)))
        else:
            size = 32 if kind == "consume_batch" else 1
            sums.update(consume(where, topic, arguments.messages, size, group))
    return dict(sums)


def measure(arguments: argparse.Namespace, seconds: float) -> Values:
    """Run a round of the load; :returns: its figures."""
    where, topic, kind = arguments.namesrv, arguments.topic, arguments.measure
    if kind.startswith(("consume", "poll")):
        return reads(arguments, seconds)
    window = Window(seconds)
    if kind == "async":
        return soon(where, window, lambda producer: producer.send_soon(topic, BODY), 1, ASYNC)
    if kind == "auto":
        return soon(where, window, lambda producer: producer.send_soon(topic, BODY), 1, AUTO,
                    auto_batch=True)
    if kind.startswith("batch"):
        size = int(kind.removeprefix("batch"))
        return soon(where, window, lambda producer: producer.send_batch_soon(
            [Message(topic, BODY) for _ in range(size)]), size, BATCHES)
    if kind == "tasks":
        return asyncio.run(tasks(where, window, topic, WAITERS))
    return sync(where, window, topic, 1 if kind == "sync1" else WAITERS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("measure")
    parser.add_argument("namesrv")
    parser.add_argument("topic")
    parser.add_argument("--messages", type=int, default=200_000)
    arguments = parser.parse_args()
    for line in sys.stdin:
        print(json.dumps(measure(arguments, float(line))), flush=True)


if __name__ == "__main__":
    main()
