"""Read many messages with Spark in three ways, from our broker and Apache's, and compare.

    python -m tests.long.spark_read [--messages 2000000] [--size 1000] [--brokers ours,apache]
                                    [--reads batch,stream,store] [--seed 1] [--keep DIR]

Each broker is filled with messages of about that size, no two alike, in 8 queues that do not get
the same share. Then they are read by ``format("rocketmq")`` at once, by a streaming query that
writes Parquet in 20 micro-batches, and by ``format("rocketmq_store")`` from the files of the broker
while it runs. Of every queue the number of messages, the sum of the CRCs of their bodies, the
number of different offsets, the least and the greatest must be those of what was sent. Prints a
line a read; ends with status 1 when one differs. Needs java, and for Apache's broker mvn.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import tempfile
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop.clients import java_missing
from tests.interop.peer import Peer
from tests.interop.servers import free_port, servers
from tests.long.spark import QUEUES, make_topic
from tests.spark_bridge.session import spark_session
from twistmq.client import Message, Producer
from twistmq.protocol.bodies import MessageQueue

TOPIC = "SparkRead"
BROKERS, READS = ("ours", "apache"), ("batch", "stream", "store")
#: Messages of a send, sends under way, and micro-batches of the stream.
BATCH, WINDOW, MICRO_BATCHES = 64, 16, 20
STREAM_SECONDS = 3600


@dataclass(slots=True)
class Sums:
    """The values of a queue that are compared."""

    count: int = 0
    crc_sum: int = 0
    offsets: int = 0
    first: int = -1
    last: int = -1


@dataclass(frozen=True, slots=True)
class Filled:
    """A running broker, and the folder of its files."""

    name_server: str
    broker_name: str
    broker_port: int
    store: Path


@contextlib.contextmanager
def broker(whose: str, folder: Path) -> Iterator[Filled]:
    """Start servers of either kind over a folder; they are stopped at the end."""
    if whose == "ours":
        with servers(folder, "brokerName=broker-a") as running:
            yield Filled(running.namesrv, "broker-a", running.broker_port, folder / "store")
        return
    peer = Peer(folder, namesrv_port=free_port(), broker_port=free_port(),
                # What is sent faster than that is refused, on a machine with other work to do.
                settings={"waitTimeMillsInSendQueue": "20000"})
    peer.start()
    try:
        yield Filled(peer.namesrv_address, "broker-peer", peer.broker_port, peer.home / "store")
    finally:
        peer.stop()


def fill(target: Filled, count: int, size: int, seed: int) -> dict[int, Sums]:
    """Send messages, several batches at a time; :returns: the sums of each queue."""
    chance = random.Random(seed)
    filler = chance.randbytes(2 * size)
    sums = {queue_id: Sums() for queue_id in range(QUEUES)}
    with Producer(target.name_server, timeout_s=60) as producer:
        window: list[tuple[Any, int, int]] = []

        def end_oldest() -> None:
            pending, queue_id, sent = window.pop(0)
            offset, found = pending.result().offset, sums[queue_id]
            found.first = offset if found.first < 0 else min(found.first, offset)
            found.last = max(found.last, offset + sent - 1)
            found.offsets += sent

        for begin in range(0, count, BATCH):
            queue_id = chance.choices(range(QUEUES), range(1, QUEUES + 1))[0]
            batch = []
            for number in range(begin, min(begin + BATCH, count)):
                body = b"%d " % number + filler[number % size:][:chance.randrange(size * 2)]
                sums[queue_id].count += 1
                sums[queue_id].crc_sum += zlib.crc32(body)
                batch.append(Message(TOPIC, body, properties={
                    "KEYS": f"key{number}", "TAGS": f"t{number % 7}", "UNIQ_KEY": f"U{number:X}"}))
            queue = MessageQueue(TOPIC, target.broker_name, queue_id)
            window.append((producer.send_batch_soon(batch, queue), queue_id, len(batch)))
            if len(window) == WINDOW:
                end_oldest()
        while window:
            end_oldest()
    return {queue_id: found for queue_id, found in sums.items() if found.count}


def read(how: str, target: Filled, count: int, folder: Path) -> Any:
    """A frame with ``queueId``, ``queueOffset`` and the CRC of each body."""
    spark = spark_session()
    options = {"nameServer": target.name_server, "subscribe": TOPIC, "includeProperties": "false"}
    if how == "store":
        frame = spark.read.format("rocketmq_store").options(
            topics=TOPIC, includeProperties="false").load(str(target.store))
    elif how == "batch":
        frame = spark.read.format("rocketmq").options(**options).load()
    else:
        frame = spark.readStream.format("rocketmq").options(
            **options, startingOffsets="earliest",
            maxOffsetsPerTrigger=str(max(count // MICRO_BATCHES, 1))).load()
    frame = frame.selectExpr("queueId", "queueOffset", "crc32(body) AS crc")
    if how != "stream":
        return frame
    output = str(folder / "output")
    query = frame.writeStream.format("parquet").option(
        "checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start(output)
    if not query.awaitTermination(STREAM_SECONDS):
        raise SystemExit(f"the stream does not end in {STREAM_SECONDS} s")
    return spark.read.parquet(output)


def sums_of(frame: Any) -> dict[int, Sums]:
    """Return the sums of each queue of a frame."""
    from pyspark.sql import functions as f

    rows = frame.groupBy("queueId").agg(
        f.count("*"), f.sum("crc"), f.count_distinct("queueOffset"), f.min("queueOffset"),
        f.max("queueOffset")).collect()
    return {row[0]: Sums(*row[1:]) for row in rows}


def compare(whose: str, args: argparse.Namespace, folder: Path) -> int:
    """Fill a broker and read it in each way; :returns: how many reads differ."""
    differ = 0
    with broker(whose, folder / "data") as target:
        make_topic(f"127.0.0.1:{target.broker_port}", TOPIC)
        begin = time.monotonic()
        sent = fill(target, args.messages, args.size, args.seed)
        print(f"{whose}: {args.messages:,} sent in {time.monotonic() - begin:.0f} s, "
              f"{sum(1 for _ in (target.store / 'commitlog').iterdir())} files", flush=True)
        for how in args.reads:
            begin = time.monotonic()
            found = sums_of(read(how, target, args.messages, folder))
            seconds, same = time.monotonic() - begin, found == sent
            rows = sum(each.count for each in found.values())
            print(f"{whose}, {how}: {rows:,} rows of {len(found)} queues in {seconds:.0f} s "
                  f"({rows / seconds:,.0f}/s): {'the same' if same else 'DIFFERS'}", flush=True)
            if not same:
                differ += 1
                for queue_id in sorted(sent.keys() | found.keys()):
                    print(f"  queue {queue_id}: sent {sent.get(queue_id)}, "
                          f"read {found.get(queue_id)}", flush=True)
    return differ


def names(allowed: tuple[str, ...]) -> Any:
    """A type of an argument: some of these words, apart by commas."""
    def parse(text: str) -> list[str]:
        found = text.split(",")
        if not set(found) <= set(allowed):
            raise argparse.ArgumentTypeError(f"{text} is not of {', '.join(allowed)}")
        return found

    return parse


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--size", type=int, default=1000, help="bytes of a body on average")
    parser.add_argument("--brokers", type=names(BROKERS), default=list(BROKERS))
    parser.add_argument("--reads", type=names(READS), default=list(READS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="keep stores and output in this folder")
    args = parser.parse_args()
    if "apache" in args.brokers and (reason := java_missing("5.3.3")):
        parser.error(reason)
    begin, differ = time.monotonic(), 0
    for whose in args.brokers:
        # One store at a time: two of two million messages are 10 GB.
        with contextlib.ExitStack() as stack:
            folder = args.keep / whose if args.keep else Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="twistmq-")))
            folder.mkdir(parents=True, exist_ok=True)
            differ += compare(whose, args, folder)
    print(f"{len(args.brokers) * len(args.reads)} reads of {args.messages:,} messages in "
          f"{time.monotonic() - begin:.0f} s: {differ} differ")
    return 1 if differ else 0


if __name__ == "__main__":
    raise SystemExit(main())
