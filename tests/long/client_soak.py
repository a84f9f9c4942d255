"""A producer and a consumer of one process for hours: nothing of the client may grow.

    python -m tests.long.client_soak [--hours 1] [--rate 1000] [--minutes 5]

Sends so many messages a second to our broker and consumes them. Each five minutes it notes the
memory of the process, and the tasks, timers, connections and requests that the engine has. After
the first quarter of the time none of these may be more than a tenth above that quarter's highest;
at the end each message must have been consumed. Prints a line each time; ends with status 1 when
something grew or is missing.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

from tests.interop.servers import Servers
from tests.long.client_memory import rss_mib
from twistmq.client import Client, Consumer, Producer

TOPIC: Final = "ClientSoak"
#: Sends between two looks at the clock.
STEP: Final = 50
#: What may be added to a small number before it counts as grown.
SLACK: Final = 8
#: How long the last messages may take, seconds.
END_SECONDS: Final = 60.0

Sample = dict[str, float]


class Soak:
    """The load, and what was noted.

    :param hours: how long it lasts.
    :param rate: messages a second.
    """

    def __init__(self, namesrv: str, hours: float, rate: int, minutes: float) -> None:
        self.namesrv = namesrv
        self.end = time.monotonic() + hours * 3600
        self.rate = rate
        self.interval = minutes * 60
        self.sent = 0
        #: Numbers of messages that were not consumed yet, and how many came twice.
        self.missing: set[int] = set()
        self.repeated = 0
        self.failed = 0
        self.samples: list[Sample] = []
        self._lock = threading.Lock()

    def consumed(self, message: Any) -> None:
        """Take a message off the missing ones."""
        number = int(message.body.split(b" ")[0])
        with self._lock:
            if number in self.missing:
                self.missing.remove(number)
            else:
                self.repeated += 1

    def note(self, client: Client) -> None:
        """Note the figures of now."""
        found: Sample = {"rss_mib": rss_mib(),
                         **client.loop.run_there(client.core.engine.debug_counts),
                         "threads": threading.active_count(), "behind": len(self.missing)}
        self.samples.append(found)
        print(json.dumps({"sent": self.sent, **{
            name: round(value, 1) for name, value in found.items()}}), flush=True)

    def _failed(self, future: Any) -> None:
        self.failed += future.exception() is not None

    def send(self, producer: Producer) -> None:
        """Send at the rate until the end."""
        begin, due = time.monotonic(), time.monotonic() + self.interval
        while time.monotonic() < self.end:
            for _ in range(STEP):
                with self._lock:
                    self.missing.add(self.sent)
                producer.send_soon(TOPIC, b"%d %s" % (self.sent, b"x" * 200)).add_done_callback(
                    self._failed)
                self.sent += 1
            time.sleep(max(begin + self.sent / self.rate - time.monotonic(), 0))
            if time.monotonic() >= due:
                due += self.interval
                self.note(producer.client)

    def run(self) -> list[str]:
        """Run it; :returns: what grew or is missing."""
        with Client(self.namesrv) as client, Producer(client, timeout_s=10) as producer, Consumer(
                client, group="client_soak", topics=TOPIC, start="first") as consumer:
            worker = threading.Thread(target=consumer.run, args=(self.consumed,),
                                      kwargs={"workers": 4})
            worker.start()
            self.send(producer)
            producer.flush()
            deadline = time.monotonic() + END_SECONDS
            while self.missing and time.monotonic() < deadline:
                time.sleep(0.1)
            consumer.stop()
            worker.join()
        print(f"{self.sent} sent, {self.failed} failed, {len(self.missing)} missing, "
              f"{self.repeated} repeated")
        found = growth(self.samples)
        if self.missing or self.failed:
            found.append(f"{len(self.missing)} messages are missing, {self.failed} failed")
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
        servers = Servers(Path(folder) / "data")
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
