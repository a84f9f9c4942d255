"""Kills ``twistmq spark export`` at random moments and runs it again; no message may be lost.

    python -m tests.long.export [--kills 10] [--messages 200000] [--seed N]

Messages come while it runs. The command, its JVM and its workers are killed at once; what a later
run finds is what they left. The exit status is 1 when a message is missing or there twice.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from tests.interop.servers import MAIN, Servers, wait_until
from twistmq.client import Message, Producer

TOPICS = ("orders", "refunds")
#: A run that is not killed has ended after this, seconds.
RUN_SECONDS = 300


def send_all(namesrv: str, count: int) -> None:
    """Send numbered messages to both topics, in batches."""
    with Producer(namesrv) as producer:
        for first in range(0, count, 100):
            topic = TOPICS[first // 100 % 2]
            producer.send_batch([Message(topic, b"%d" % number, keys=[f"k{number}"])
                                 for number in range(first, min(first + 100, count))])
            time.sleep(0.005)


def start(namesrv: str, output: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start the command in a session of its own."""
    with log.open("ab") as out:
        return subprocess.Popen(
            [sys.executable, "-c", MAIN, "spark", "export", "-n", namesrv, "-o", str(output),
             "--batch", "5000", "--master", "local[2]", *[word for topic in TOPICS
                                                          for word in ("--topic", topic)]],
            stdout=out, stderr=subprocess.STDOUT, start_new_session=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    rng = random.Random(args.seed)
    with tempfile.TemporaryDirectory(prefix="twistmq-export-") as temporary:
        folder = Path(temporary)
        servers = Servers(folder / "data")
        servers.start()
        try:
            send_all(servers.namesrv, 200)  # the topics
            sender = threading.Thread(target=send_all, args=(servers.namesrv, args.messages))
            sender.start()
            for number in range(args.kills):
                log = folder / f"log{number}"
                process = start(servers.namesrv, folder / "out", log)
                steps = rng.randrange(4)
                wait_until("progress of the export", lambda process=process, log=log, steps=steps: (
                    process.poll() is not None or log.read_text().count(" %)") >= steps),
                    RUN_SECONDS)
                # Between two steps as well as while one is written.
                status: object = process.poll()
                if status is None:
                    time.sleep(rng.uniform(0, 3))
                    os.killpg(process.pid, signal.SIGKILL)
                    status = f"killed {process.wait()}, after {steps} steps and a bit"
                print(f"run {number + 1}: {status}", flush=True)
            sender.join()
            last = start(servers.namesrv, folder / "out", folder / "log")
            status = last.wait(RUN_SECONDS)
            print((folder / "log").read_text()[-400:])
        finally:
            servers.stop()
        return compare(folder / "out/messages", args.messages) if not status else 1


def compare(table: Path, messages: int) -> int:
    """Read every file there is by another reader than wrote it, which knows no log of Spark's."""
    import pyarrow.parquet as pq

    found: Counter[int] = Counter()
    for path in table.rglob("*.parquet"):
        found.update(int(body.as_py()) for body in pq.ParquetFile(path).read(["body"])["body"])
    wanted = Counter(range(messages)) + Counter(range(200))
    missing, double = wanted - found, found - wanted
    print(f"{found.total():,} rows; {missing.total()} missing, {double.total()} too many")
    return 1 if missing or double else 0


if __name__ == "__main__":
    sys.exit(main())
