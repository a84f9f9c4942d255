"""The loads of ``twistmq bench``: a producer, a consumer, and the latency of single sends."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from twistmq.client.base.messages import Message, ReceivedMessage
from twistmq.client.blocking.client import Client
from twistmq.client.blocking.consumer import Consumer
from twistmq.client.blocking.producer import Producer

__all__ = ["consumer_load", "producer_load"]


def producer_load(
    where: str, topic: str, size: int, under_way: int, batch: int, seconds: float,
    arguments: dict[str, Any],
) -> dict[str, Any]:
    """Send for some seconds.

    :param under_way: the number of requests in flight; 1: one send at a time.
    :returns: the figures by name; times are in ms, the CPU time in us per message.
    """
    body = b"x" * size
    latencies: list[float] = []
    failed = 0
    with Producer(where, group="twistmq_bench", in_flight_max=max(under_way, 1),
                  **arguments) as producer:
        producer.send(topic, body)
        waiting: deque[Any] = deque()
        begin, cpu = time.monotonic(), time.process_time()
        end = begin + seconds
        count = 0
        group = [Message(topic=topic, body=body) for _ in range(batch)]
        while time.monotonic() < end:
            start = time.monotonic()
            if batch > 1:
                producer.send_batch(group)
                latencies.append(time.monotonic() - start)
            elif under_way == 1:
                producer.send(topic, body)
                latencies.append(time.monotonic() - start)
            else:
                waiting.append(producer.send_soon(topic, body))
                while len(waiting) > 2 * under_way:
                    failed += waiting.popleft().exception() is not None
            count += batch
        producer.flush()
        failed += sum(each.exception() is not None for each in waiting)
        took = time.monotonic() - begin
        cpu = time.process_time() - cpu
    return {"messages": count, "failed": failed, "messages a second": round(count / took),
            "client CPU a message, us": round(cpu / max(count, 1) * 1e6, 2),
            **_percentiles(latencies)}


def consumer_load(
    where: str, topic: str, seconds: float, batch: int, arguments: dict[str, Any]
) -> dict[str, Any]:
    """Consume from the beginning for some seconds, as a new group, without printing messages."""
    count = 0
    group = f"twistmq_bench_{time.time_ns()}"
    with ExitStack() as stack:
        client = stack.enter_context(Client(where, **arguments))
        # A missing topic is an error.
        client.read_queues(topic)
        consumer: Consumer[bytes] = stack.enter_context(
            Consumer(client=client, group=group, topics=topic, start="first"))
        begin, cpu = time.monotonic(), time.process_time()

        def one(message: ReceivedMessage[Any]) -> None:
            nonlocal count
            count += 1

        def many(messages: Sequence[ReceivedMessage[Any]]) -> None:
            nonlocal count
            count += len(messages)

        timer = threading.Timer(seconds, consumer.stop)
        timer.start()
        try:
            if batch > 1:
                consumer.run_batches(many, size=batch, workers=1)
            else:
                consumer.run(one, workers=1)
        finally:
            timer.cancel()
        took = time.monotonic() - begin
        cpu = time.process_time() - cpu
    return {"messages": count, "messages a second": round(count / took),
            "client CPU a message, us": round(cpu / max(count, 1) * 1e6, 2)}


def _percentiles(latencies: list[float]) -> dict[str, float]:
    if not latencies:
        return {}
    ordered = sorted(latencies)
    return {f"p{share:g}, ms": round(ordered[min(int(len(ordered) * share / 100),
                                                 len(ordered) - 1)] * 1000, 3)
            for share in (50, 99, 99.9)}
