#!/usr/bin/env python3
"""One load of aiokafka, as client_loads.py is one of ours: kafka_loads.py auto|consume WHERE COUNT.

Runs in the environment of aiokafka. Each line of its standard input is the length of a round in
seconds, in which it sends or reads COUNT messages again and again; its answer is one line of JSON
with the sums of messages, seconds and CPU seconds.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

BODY = b"x" * 128
TOPIC = "ClientBench"
UNDER_WAY = 8192


async def send(where: str, messages: int) -> tuple[int, float, float]:
    """Send messages that the client batches; :returns: messages, seconds, CPU seconds."""
    async with AIOKafkaProducer(bootstrap_servers=where, linger_ms=10) as producer:
        await producer.send_and_wait(TOPIC, BODY)
        begin, cpu = time.monotonic(), time.process_time()
        sent = []
        for _ in range(messages):
            sent.append(await producer.send(TOPIC, BODY))
            if len(sent) >= UNDER_WAY:
                await asyncio.gather(*sent)
                sent = []
        await asyncio.gather(*sent)
        return messages, time.monotonic() - begin, time.process_time() - cpu


async def consume(where: str, messages: int) -> tuple[int, float, float]:
    """Read messages, 32 at a time, as a new group; :returns: as :func:`send`."""
    async with AIOKafkaConsumer(
            TOPIC, bootstrap_servers=where, group_id=f"bench{time.time_ns()}",
            auto_offset_reset="earliest") as consumer:
        first, count = (0, 0.0, 0.0), 0
        while count < messages:
            found = await consumer.getmany(timeout_ms=1000, max_records=32)
            count += sum(map(len, found.values()))
            if count and not first[0]:
                first = count, time.monotonic(), time.process_time()
        took = time.monotonic() - first[1], time.process_time() - first[2]
    return count - first[0], *took


def round_of(seconds: float) -> dict[str, float]:
    """Send or read the messages again and again for a time; :returns: the sums."""
    work = send if sys.argv[1] == "auto" else consume
    sums: Counter[str] = Counter()
    end = time.monotonic() + seconds
    while not sums or time.monotonic() < end:
        values = asyncio.run(work(sys.argv[2], int(sys.argv[3])))
        sums.update(dict(zip(("messages", "seconds", "cpu"), values, strict=True)))
    return {**sums, "failed": 0}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(round_of(float(line))), flush=True)
