"""A member of a group, and one of an ordered group; java/GroupMember.java is the same.

    python -P group_member.py NAMESRV CONCURRENT_TOPIC ORDERLY_TOPIC WORK_MS

Each group is named as its topic. It tells, a line each with the time in ms: "held TOPIC MS QUEUES"
when the queues that it has change, "begin" and "end TOPIC MS BROKER QUEUE OFFSET TRIES BODY" of
each message. It leaves at the end of its input.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from twistmq.client import Client, Consumer, ReceivedMessage

_POLL_SECONDS = 0.05
_lock = threading.Lock()


def now_ms() -> int:
    """Return Unix ms."""
    return time.time_ns() // 1_000_000


def tell(line: str) -> None:
    """Print a whole line."""
    with _lock:
        print(line, flush=True)


def handler(topic: str, work_ms: int) -> Callable[[ReceivedMessage[Any]], None]:
    """Print the begin and the end of the work of a handler."""
    def handle(message: ReceivedMessage[Any]) -> None:
        what = (f"{message.queue.broker_name} {message.queue.queue_id} {message.offset} "
                f"{message.attempt - 1} {message.body.decode()}")
        tell(f"begin {topic} {now_ms()} {what}")
        time.sleep(work_ms / 1000)
        tell(f"end {topic} {now_ms()} {what}")

    return handle


def watch(consumers: dict[str, Consumer[Any]], is_over: threading.Event) -> None:
    """Tell the queues of the consumers as they change."""
    told: dict[str, str] = {}
    while not is_over.wait(_POLL_SECONDS):
        for topic, consumer in consumers.items():
            held = ",".join(f"{each.broker_name}:{each.queue_id}" for each in consumer.assigned())
            if told.get(topic, "") != held:
                told[topic] = held
                tell(f"held {topic} {now_ms()} {held}")


def main() -> None:
    """The command line."""
    where, *topics, work = sys.argv[1:]
    is_over = threading.Event()
    with Client(where) as client:
        concurrent: Consumer[Any] = Consumer(client=client, group=topics[0], topics=topics[0],
                                             start="first")
        orderly: Consumer[Any] = Consumer(client=client, group=topics[1], topics=topics[1],
                                          start="first", order="queue")
        consumers = dict(zip(topics, (concurrent, orderly), strict=True))
        threads = [threading.Thread(target=watch, args=(consumers, is_over))]
        for topic, consumer in consumers.items():
            threads.append(threading.Thread(target=consumer.run, args=(handler(topic, int(work)),)))
        for thread in threads:
            thread.start()
        tell(f"started {topics[0]}")
        sys.stdin.read()
        is_over.set()
        for consumer in consumers.values():
            consumer.close()
        for thread in threads:
            thread.join()
    tell(f"left {topics[0]}")


if __name__ == "__main__":
    main()
