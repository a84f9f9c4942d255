"""Messages of two brokers, handled in order and without order, by each style of the client.

    python -m tests.long.client_order [--messages 100000] [--styles blocking,aio,tx]

Our broker and Apache's have eight queues each of one topic. One handler of a hundred fails, so
that its message is handed out again: in order after a pause, else from the retry topic. Prints a
line for each style and mode; ends with status 1 when a queue's messages did not come one after the
other, or one did not come at all.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from tests.interop.mixed_group import both_brokers
from tests.interop.servers import wait_until
from twistmq.broker.testing import RawClient
from twistmq.client import Consumer, Message, NoRoute, Producer, ReceivedMessage, Retry
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.topic import CreateTopicRequestHeader

TOPIC: Final = "ClientOrder"
#: At each broker.
QUEUES: Final = 8
#: One of so many handlers fails.
FAILS: Final = 0.01
BATCH: Final = 100
#: Of a reader, seconds.
PATIENCE: Final = 1800.0
STYLES: Final = ("blocking", "aio", "tx")


class Handled:
    """The messages that one consumer got.

    :param count: of the messages that there are.
    """

    def __init__(self, count: int, *, in_order: bool) -> None:
        self._count, self._in_order = count, in_order
        self._chance = random.Random(1)
        self._lock = threading.Lock()
        #: The next offset of each queue.
        self._next: dict[tuple[str, int], int] = {}
        self._seen: set[int] = set()
        self.failures = 0
        #: Messages that came out of their turn.
        self.faults: list[str] = []

    def take(self, message: ReceivedMessage[Any]) -> bool:
        """Handle a message; :returns: whether it was the last one.

        :raises Retry: when the handler fails.
        """
        queue = message.queue.broker_name, message.queue.queue_id
        with self._lock:
            expected = self._next.get(queue, 0)
            if self._in_order and message.offset != expected:
                self.faults.append(f"{queue}: {message.offset} instead of {expected}")
            if self._chance.random() < FAILS:
                self.failures += 1
                raise Retry(1)
            self._next[queue] = message.offset + 1
            self._seen.add(int(message.body))
            return len(self._seen) == self._count

    def facts(self) -> dict[str, Any]:
        return {"handled": len(self._seen), "failed": self.failures, "faults": self.faults[:20]}


def read(style: str, where: str, count: int, *, in_order: bool) -> dict[str, Any]:
    """Handle all messages by one consumer; :returns: the facts."""
    handled = Handled(count, in_order=in_order)
    options: dict[str, Any] = {
        "group": f"order_{style}_{in_order}", "topics": TOPIC, "start": "first",
        **({"order": "queue", "suspend_s": 0.01} if in_order else {})}
    if style == "blocking":
        with Consumer(where, **options) as consumer:
            consumer.run(lambda message: consumer.stop() if handled.take(message) else None,
                         workers=QUEUES)
    elif style == "aio":
        from twistmq.client import aio

        asyncio.run(_read_async(aio.Consumer(where, **options), handled))
    else:
        from twisted.internet.defer import Deferred
        from twisted.internet.task import react

        from twistmq.client import tx

        def main(reactor: Any) -> Deferred[None]:
            return Deferred.fromCoroutine(_read_async(
                tx.Consumer(where, reactor=reactor, **options), handled))

        try:
            react(main)
        except SystemExit as end:
            assert not end.code, "the reactor's program failed"
    return handled.facts()


async def _read_async(consumer: Any, handled: Handled) -> None:
    async def handle(message: ReceivedMessage[Any]) -> None:
        if handled.take(message):
            consumer.stop()

    async with consumer:
        await consumer.run(handle)


def send(where: str, brokers: list[str], count: int) -> None:
    """Make the topic, and send numbered messages to all queues."""
    for address in brokers:
        with RawClient(address) as client:
            reply = client.request(
                RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader(
                    topic=TOPIC, default_topic="TBW102", read_queue_nums=QUEUES,
                    write_queue_nums=QUEUES, perm=6, topic_filter_type="SINGLE_TAG"))
            assert reply.code == ResponseCode.SUCCESS, reply.remark
    with Producer(where, group="client_order") as producer:
        def has_route() -> bool:
            try:
                return len(producer.queues(TOPIC)) == QUEUES * len(brokers)
            except NoRoute:
                return False

        wait_until("the topic has its queues", has_route, 90)
        for first in range(0, count, BATCH):
            producer.send_many([Message(topic=TOPIC, body=b"%d" % number)
                                for number in range(first, min(first + BATCH, count))])


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--styles", default=",".join(STYLES))
    parser.add_argument("--read", nargs=3, metavar=("STYLE", "MODE", "NAMESRV"),
                        help="handle the messages that there are; the program calls itself so")
    args = parser.parse_args()
    if args.read:
        logging.getLogger("twistmq.client").setLevel(logging.ERROR)
        style, mode, where = args.read
        print(json.dumps(read(style, where, args.messages, in_order=mode == "order")))
        return
    bad = False
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="twistmq-order-")))
        where, brokers = both_brokers(folder, stack)
        send(where, brokers, args.messages)
        for style in args.styles.split(","):
            for mode in ("order", "concurrent"):
                begin = time.monotonic()
                done = subprocess.run(
                    [sys.executable, "-m", "tests.long.client_order", "--messages",
                     str(args.messages), "--read", style, mode, where],
                    stdout=subprocess.PIPE, text=True, timeout=PATIENCE, check=True)
                facts = json.loads(done.stdout.splitlines()[-1])
                bad = bad or facts["handled"] != args.messages or bool(facts["faults"])
                print(f"{style}, {mode}: {facts['handled']} of {args.messages} handled, "
                      f"{facts['failed']} failures, {len(facts['faults'])} out of order, "
                      f"{time.monotonic() - begin:.0f} s", *facts["faults"], sep="\n  ", flush=True)
    raise SystemExit(bad)


if __name__ == "__main__":
    main()
