"""Kill a streaming query of Spark at random points, and look for each message in its output.

    python -m tests.long.spark [--points 10] [--messages 200000] [--batches 120] [--seed 1]
                               [--keep DIR]

A query reads a topic of 8 queues from its begin in so many micro-batches, and writes Parquet, in a
process of its own. At random moments its Python workers are killed, or in turn the
driver with the JVM and all workers at once; then it is started again over its checkpoint. In the
end the output must have each message exactly once, with its body. Prints the counts; ends with
status 1 when any of that fails.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import subprocess
import tempfile
import time
import zlib
from pathlib import Path

from tests.interop.servers import Servers, wait_until
from tests.spark_bridge.session import spark_session
from tests.spark_bridge.stream_job import Job, committed_files, kill_workers
from twistmq.client import Message, Producer
from twistmq.protocol.bodies import MessageQueue

TOPIC, QUEUES, BATCH = "SparkKill", 8, 100
#: How long a start, and what is left at the end, may take.
START_SECONDS, END_SECONDS = 180.0, 900.0


def fill(name_server: str, broker: str, count: int) -> dict[tuple[int, int], int]:
    """Send messages; :returns: the CRC of each body by queue and offset."""
    sent = {}
    with Producer(name_server, timeout_s=30) as producer:
        for begin in range(0, count, BATCH):
            queue = MessageQueue(TOPIC, broker, begin // BATCH % QUEUES)
            bodies = [b"%d " % number * 20 for number in range(begin, min(begin + BATCH, count))]
            result = producer.send_batch([Message(TOPIC, body) for body in bodies], queue)
            for index, body in enumerate(bodies):
                sent[queue.queue_id, result.offset + index] = zlib.crc32(body)
    return sent


def kill_often(name_server: str, folder: Path, points: int, rows: int, seed: int) -> dict[str, int]:
    """Run the query and kill it; :returns: the number of kills of each kind."""
    chance = random.Random(seed)
    killed = {"driver": 0, "workers": 0, "query that failed with its workers": 0}
    output, checkpoint = folder / "output", folder / "checkpoint"
    job = Job(name_server, TOPIC, output, checkpoint, rows)
    try:
        while sum(killed.values()) - killed["query that failed with its workers"] < points:
            before = committed_files(output)
            wait_until("the query goes on", lambda job=job, before=before: (
                committed_files(output) > before or job.status() is not None), START_SECONDS)
            # The moment is what is random here; nothing waits for it.
            time.sleep(chance.uniform(0, 1.5))
            if job.status() == 0:
                raise SystemExit("the query ended before all points; give it more --batches")
            if (killed["driver"] + killed["workers"]) % 2:
                job.kill()
                killed["driver"] += 1
            else:
                killed["workers"] += bool(kill_workers(job.pid))
                with contextlib.suppress(subprocess.TimeoutExpired):
                    if job.wait(10):
                        killed["query that failed with its workers"] += 1
            print(f"{committed_files(output)} micro-batches, killed: {killed}", flush=True)
            if job.status() is not None and job.status() != 0:
                job = Job(name_server, TOPIC, output, checkpoint, rows)
        while job.wait(END_SECONDS):
            job = Job(name_server, TOPIC, output, checkpoint, rows)
    finally:
        job.kill()
    return killed


def compare(folder: Path, sent: dict[tuple[int, int], int]) -> list[str]:
    """Return the faults of the output."""
    rows = spark_session().read.parquet(str(folder / "output")).collect()
    found: dict[tuple[int, int], int] = {}
    problems = []
    for row in rows:
        place = (row.queueId, row.queueOffset)
        if place in found:
            problems.append(f"{place} is there twice")
        found[place] = zlib.crc32(row.body)
    problems += [f"{place} is missing" for place in sorted(sent.keys() - found.keys())]
    problems += [f"{place} was never sent" for place in sorted(found.keys() - sent.keys())]
    problems += [f"{place} has another body" for place in sorted(sent.keys() & found.keys())
                 if sent[place] != found[place]]
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=10)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--batches", type=int, default=120,
                        help="micro-batches of the run: enough that kills meet some of them")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="keep store and output in this folder")
    args = parser.parse_args()
    begin = time.monotonic()
    with contextlib.ExitStack() as stack:
        folder = args.keep or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="twistmq-")))
        servers = Servers(folder / "data", "brokerName=broker-a", f"defaultTopicQueueNums={QUEUES}")
        servers.start()
        stack.callback(servers.stop)
        make_topic(f"127.0.0.1:{servers.broker_port}", TOPIC)
        sent = fill(servers.namesrv, "broker-a", args.messages)
        killed = kill_often(servers.namesrv, folder, args.points,
                            max(args.messages // args.batches, 1), args.seed)
        problems = compare(folder, sent)
    told = ", ".join(f"{count} {what}" for what, count in killed.items())
    print(f"{args.points} points in {time.monotonic() - begin:.0f} s ({told}): {len(sent):,} sent, "
          f"{len(problems)} problems")
    for problem in problems[:20]:
        print(problem)
    return 1 if problems else 0


def make_topic(broker: str, topic: str) -> None:
    """Make a topic with all its queues on a broker, "host:port"."""
    from twistmq.broker.testing import RawClient as Connection
    from twistmq.protocol.codes import RequestCode
    from twistmq.protocol.headers.topic import CreateTopicRequestHeader

    with Connection(broker) as client:
        reply = client.request(RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader(
            topic=topic, default_topic="TBW102", read_queue_nums=QUEUES, write_queue_nums=QUEUES,
            perm=6, topic_filter_type="SINGLE_TAG"))
        assert not reply.code, reply.remark


if __name__ == "__main__":
    raise SystemExit(main())
