"""The memory of a slow consumer with a large backlog.

    python -m tests.long.client_memory [--messages 1000000] [--queues 256] [--seconds 120]

Fills a topic of our broker with messages of 1 KiB, and runs a consumer in a process of its own
whose handler takes a second for each. The memory of that process must stay within one and a half
times the bound of the client (64 MiB) and 40 MiB. Every queue must stay within its bounds: 1,000
messages, 100 MiB, offsets over 2,000; one pull may go beyond. A queue that is full must be looked
at no more than 20 times a second. Prints a line each ten seconds; ends with status 1 when a bound
is broken.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from tests.interop.servers import Servers
from twistmq.client import Consumer, Message, Producer
from twistmq.protocol.codes import RequestCode

TOPIC: Final = "ClientMemory"
BODY_SIZE: Final = 1024
#: Messages of a batch that fills the topic.
BATCH: Final = 100
CACHE_MIB: Final = 64
#: Bounds of the process in MiB, and of each queue; a pull brings up to 32 messages.
RSS_MIB: Final = CACHE_MIB * 1.5 + 40
COUNT_MAX, BYTES_MAX, SPAN_MAX, PULL_MAX = 1000, 100 << 20, 2000, 32
PULLS_A_SECOND: Final = 20

Sample = dict[str, float]


class Pulls:
    """An interceptor that counts pulls."""

    def __init__(self) -> None:
        self.count = 0

    def before_request(self, address: str, code: int, body: bytes) -> None:
        """Count a pull before it is sent."""
        self.count += code == RequestCode.PULL_MESSAGE

    def __getattr__(self, name: str) -> Any:
        """Let all other events pass."""
        if name.startswith(("before_", "after_")):
            return lambda *arguments: None
        raise AttributeError(name)


def rss_mib() -> float:
    """Return the memory of this process."""
    text = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in text.splitlines()
                    if line.startswith("VmRSS"))) / 1024


def sample(consumer: Consumer[bytes], pulls: Pulls) -> Sample:
    """The figures of the consumer now; runs on the client's thread."""
    windows = [held.window for held in consumer._member.assigned_queues.values()]
    return {
        "rss_mib": rss_mib(), "queues": len(windows), "pulls": pulls.count,
        "cached_mib": consumer._member.assigned_queues.total.byte_count / (1 << 20),
        "messages": sum(window.count for window in windows),
        "count_max": max((window.count for window in windows), default=0),
        "bytes_max": max((window.byte_count for window in windows), default=0),
        "span_max": max((window.span for window in windows), default=0)}


def member(namesrv: str, seconds: float) -> None:
    """Consume slowly, and print the figures of each second."""
    pulls = Pulls()
    consumer: Consumer[bytes] = Consumer(
        namesrv, group="client_memory", topics=TOPIC, start="first", interceptors=[pulls])
    end = time.monotonic() + seconds

    def handle(message: Any) -> None:
        time.sleep(1)
        found = consumer.client._loop.call_in_loop(lambda: sample(consumer, pulls))
        print(json.dumps(found), flush=True)
        if time.monotonic() > end:
            consumer.stop()

    with consumer:
        consumer.run(handle, workers=1)


def fill(namesrv: str, messages: int) -> None:
    """Send the backlog."""
    body = b"x" * BODY_SIZE
    with Producer(namesrv, in_flight_max=64, timeout_s=30) as producer:
        for _ in range(messages // BATCH):
            producer.send_batch_soon([Message(TOPIC, body) for _ in range(BATCH)])


def faults(found: Sample, pulls: float, queues: int) -> list[str]:
    """Return the limits that were exceeded.

    :param pulls: in the last second.
    """
    broken = []
    for name, most in (("rss_mib", RSS_MIB), ("count_max", COUNT_MAX + PULL_MAX),
                       ("bytes_max", BYTES_MAX), ("span_max", SPAN_MAX + PULL_MAX)):
        if found[name] > most:
            broken.append(f"{name} is {found[name]:.0f}, more than {most:.0f}")
    if pulls > PULLS_A_SECOND * queues:
        broken.append(f"{pulls:.0f} pulls a second of {queues} queues")
    return broken


def watch(namesrv: str, queues: int, seconds: float) -> list[str]:
    """Run the consumer; :returns: the bounds that it broke."""
    process = subprocess.Popen(
        [sys.executable, "-m", __spec__.name, "--member", namesrv, "--seconds", str(seconds)],
        stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    broken: list[str] = []
    most, count = 0.0, 0
    last_pulls, last = 0.0, time.monotonic()
    for line in process.stdout:
        found: Sample = json.loads(line)
        now = time.monotonic()
        # While the windows fill, each pull brings messages.
        is_full = count > 30
        broken += faults(found, (found["pulls"] - last_pulls) / (now - last) if is_full else 0,
                         queues)
        last_pulls, last = found["pulls"], now
        most = max(most, found["rss_mib"])
        if count % 10 == 0:
            print(json.dumps({name: round(value, 1) for name, value in found.items()}), flush=True)
        count += 1
    if process.wait():
        broken.append(f"the consumer ended with status {process.returncode}")
    print(f"at most {most:.0f} MiB of {RSS_MIB:.0f} in {count} messages")
    return broken


def run(messages: int, queues: int, seconds: float) -> int:
    """Fill, consume and judge; :returns: the exit status."""
    with tempfile.TemporaryDirectory(prefix="client-memory-") as folder:
        servers = Servers(Path(folder) / "data", f"defaultTopicQueueNums={queues}")
        servers.start()
        try:
            subprocess.run(
                [sys.executable, "-c", Servers.program, "admin", "updateTopic", "-b",
                 f"127.0.0.1:{servers.broker_port}", "-t", TOPIC, "-r", str(queues), "-w",
                 str(queues)], check=True, stdout=subprocess.DEVNULL)
            begin = time.monotonic()
            fill(servers.namesrv, messages)
            print(f"{messages} messages in {queues} queues after {time.monotonic() - begin:.0f} s",
                  flush=True)
            broken = watch(servers.namesrv, queues, seconds)
        finally:
            servers.stop()
    for each in broken[:10]:
        print(each)
    return 1 if broken else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--queues", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--member", metavar="NAMESRV", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.member:
        member(arguments.member, arguments.seconds)
        return 0
    return run(arguments.messages, arguments.queues, arguments.seconds)


if __name__ == "__main__":
    raise SystemExit(main())
