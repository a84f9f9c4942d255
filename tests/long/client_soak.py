"""A producer and a consumer of one process for hours: nothing of the client may grow.

    python -m tests.long.client_soak [--hours 1] [--rate 1000] [--minutes 5]

Sends so many messages a second to our broker and consumes them. Each five minutes it notes the
memory of the process, the objects in it, and the tasks, timers, connections and requests that the
engine has. After the first quarter of the time none of these may be more than a tenth above that
quarter's highest; at the end each message must have been consumed. Prints a line each time; ends
with status 1 when something grew or is missing.

The first messages are sent at once, before any is handled, so that as many wait in the process as
its bounds allow: a busy machine that lets messages wait later then adds nothing. Which messages
were consumed is one bit each in a table whose memory is there from the start.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

from tests.interop.servers import Servers
from tests.long.client_memory import rss_mib
from twistmq.client import Client, Consumer, Full, Producer

TOPIC: Final = "ClientSoak"
#: Sends between two looks at the clock.
STEP: Final = 50
#: What is sent at once at the start: more than the bounds of all four queues.
BURST: Final = 20_000
#: What may be added to a small number before it counts as grown.
SLACK: Final = 8
#: How long no message may come while some are missing at the end, seconds.
END_SECONDS: Final = 60.0

Sample = dict[str, float]


class Soak:
    """The load, and the recorded figures.

    :param hours: how long it lasts.
    :param rate: messages a second.
    """

    def __init__(self, namesrv: str, hours: float, rate: int, minutes: float) -> None:
        self.namesrv = namesrv
        self.end = time.monotonic() + hours * 3600
        self.rate = rate
        self.interval = minutes * 60
        self.sent = 0
        #: A bit of each message that was not consumed yet.
        self.missing = bytearray(b"\xff" * (int(hours * 3600 * rate + BURST) // 8 + STEP))
        self.consumed_count = 0
        self.repeated = 0
        self.failed = 0
        self.samples: list[Sample] = []
        self._lock = threading.Lock()

    def consumed(self, message: Any) -> None:
        """Remove a message from the missing ones."""
        place, bit = divmod(int(message.body.split(b" ")[0]), 8)
        with self._lock:
            if self.missing[place] >> bit & 1:
                self.missing[place] ^= 1 << bit
                self.consumed_count += 1
            else:
                self.repeated += 1

    @property
    def behind(self) -> int:
        """Return how many messages were sent and not consumed yet."""
        return self.sent - self.consumed_count

    def note(self, client: Client) -> None:
        """Record the current figures."""
        found: Sample = {"rss_mib": rss_mib(), "objects": sys.getallocatedblocks(),
                         **client._loop.call_in_loop(client._core.engine.debug_counts),
                         "threads": threading.active_count(), "behind": self.behind}
        self.samples.append(found)
        print(json.dumps({"sent": self.sent, **{
            name: round(value, 1) for name, value in found.items()}}), flush=True)

    def _failed(self, future: Any) -> None:
        self.failed += future.exception() is not None

    def send_some(self, producer: Producer, count: int) -> None:
        """Send so many, as fast as the producer takes them."""
        for number in range(self.sent, self.sent + count):
            self.sent = number + 1
            self._begin(producer, b"%d %s" % (number, b"x" * 200)).add_done_callback(self._failed)

    @staticmethod
    def _begin(producer: Producer, body: bytes) -> Any:
        """Begin a send; repeat it if a busy machine has no room in time."""
        while True:
            try:
                return producer.send_soon(TOPIC, body)
            except Full as error:
                print(error, flush=True)

    def send(self, producer: Producer) -> None:
        """Send at the rate until the end."""
        begin, due = time.monotonic(), time.monotonic() + self.interval
        before = self.sent
        while time.monotonic() < self.end:
            self.send_some(producer, STEP)
            time.sleep(max(begin + (self.sent - before) / self.rate - time.monotonic(), 0))
            if time.monotonic() >= due:
                due += self.interval
                self.note(producer.client)

    def wait_for_the_last(self) -> None:
        """Wait until all are consumed, or no more come."""
        deadline, before = time.monotonic() + END_SECONDS, self.consumed_count
        while self.behind and time.monotonic() < deadline:
            time.sleep(0.1)
            if self.consumed_count > before:
                deadline, before = time.monotonic() + END_SECONDS, self.consumed_count

    def run(self) -> list[str]:
        """Run the load; :returns: the figures that grew, and missing messages."""
        with (Client(self.namesrv) as client, Producer(client=client, timeout_s=10) as producer,
              Consumer(client=client, group="client_soak", topics=TOPIC,
                       start="first") as consumer):
            self.send_some(producer, BURST)
            self.note(client)
            worker = threading.Thread(target=consumer.run, args=(self.consumed,),
                                      kwargs={"workers": 4})
            worker.start()
            self.send(producer)
            producer.flush()
            self.wait_for_the_last()
            consumer.stop()
            worker.join()
        print(f"{self.sent} sent, {self.failed} failed, {self.behind} missing, "
              f"{self.repeated} repeated")
        found = growth(self.samples)
        if self.behind or self.failed:
            found.append(f"{self.behind} messages are missing, {self.failed} failed")
        return found


def growth(samples: list[Sample]) -> list[str]:
    """The figures that are more than a tenth above the highest of the first quarter."""
    quarter = max(len(samples) // 4, 1)
    found = []
    for name in samples[0] if samples else ():
        first = max(each[name] for each in samples[:quarter])
        most = max(each[name] for each in samples[quarter:] or samples)
        slack = 0 if name == "rss_mib" else SLACK
        if name not in ("behind", "waiting") and most > first * 1.1 + slack:
            found.append(f"{name} grew from {first:.0f} to {most:.0f}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=1)
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=5, help="between two lines")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="client-soak-") as folder:
        servers = Servers(Path(folder) / "data", patience_seconds=300)
        servers.start()
        try:
            found = Soak(servers.namesrv, arguments.hours, arguments.rate, arguments.minutes).run()
        finally:
            servers.stop()
    for each in found:
        print(each)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
