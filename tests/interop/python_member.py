"""A member of a group, with PyPI's `rocketmq==0.4.4`; java/GroupMember.java is the same.

    python python_member.py NAMESRV TOPIC

The group is named as its topic. It tells "end TOPIC MS BROKER QUEUE OFFSET TRIES BODY" of each
message, with the time in ms, and leaves at the end of its input.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from rocketmq.client import PushConsumer  # type: ignore[import-not-found, unused-ignore]

_lock = threading.Lock()


def tell(line: str) -> None:
    """Print a whole line."""
    with _lock:
        print(line, flush=True)


def main() -> None:
    """The command line."""
    where, topic = sys.argv[1:]

    def listener(message: Any) -> None:
        tell(f"end {topic} {time.time_ns() // 1_000_000} - {message.queue_id} "
             f"{message.queue_offset} {message.reconsume_times} {message.body.decode()}")

    consumer = PushConsumer(topic)
    consumer.set_namesrv_addr(where)
    consumer.set_instance_name(topic)
    consumer.subscribe(topic, listener, "*")
    consumer.start()
    tell(f"started {topic}")
    sys.stdin.read()
    consumer.shutdown()
    tell(f"left {topic}")


if __name__ == "__main__":
    main()
