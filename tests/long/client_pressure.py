"""A producer whose broker stops reading for a while: messages in flight are limited, and all
arrive.

    python -m tests.long.client_pressure [--messages 1000000] [--size 100] [--pauses 5]

Sends by ``send_soon`` from one thread. So often, spread over the messages, the broker gets SIGSTOP
and goes on once the producer waits for room. Prints the highest figures; ends with status 1 when
one is over its bound, a send failed or a message is missing.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import threading
from pathlib import Path
from typing import Any, Final

from tests.interop.servers import Servers, wait_until
from tests.long.client_memory import rss_mib
from twistmq.client import Client, Producer

TOPIC: Final = "Pressure"
#: The bounds of a producer.
COUNT_MAX: Final = 1024
BYTES_MAX: Final = 64 << 20
#: How much its process may grow, MiB, however little is under way; and beside what is under way,
#: which is there twice at most: in a frame, and in the bytes that the socket is given.
GROWTH_MIB: Final = 100
BESIDE_MIB: Final = 40
#: How long a send may take, with a broker that reads nothing meanwhile, seconds.
PATIENCE_S: Final = 300.0
#: Messages between two looks at the memory.
STEP: Final = 1000


class Pressure:
    """The load and the highest figures.

    :param count: messages, of ``size`` bytes each.
    """

    def __init__(self, servers: Servers, count: int, size: int, pauses: int) -> None:
        self._servers = servers
        self._count, self._body, self._pauses = count, bytes(size), pauses
        self.count_max = self.bytes_max = 0
        self.growth_mib = 0.0
        self.sent = self.failed = self.stored = 0
        #: How often the producer waited for room while the broker read nothing.
        self.waits = 0

    def _ended(self, future: Any) -> None:
        self.failed += future.exception() is not None

    def _send(self, producer: Producer, count: int) -> None:
        """Send so many messages; figures are looked at while they are under way."""
        room = producer._room
        for _ in range(count):
            producer.send_soon(TOPIC, self._body).add_done_callback(self._ended)
            self.sent += 1
            self.count_max = max(self.count_max, room.count)
            self.bytes_max = max(self.bytes_max, room.bytes)
            if not self.sent % STEP:
                self.growth_mib = max(self.growth_mib, rss_mib() - self._begin_mib)

    def run(self) -> None:
        """Send all messages, and count the stored ones."""
        with Client(self._servers.namesrv, timeout_s=PATIENCE_S) as client, Producer(
                client=client, compress_over=0, timeout_s=PATIENCE_S) as producer:
            producer.send(TOPIC, self._body)
            self._begin_mib = rss_mib()
            part = self._count // (self._pauses + 1)
            self._send(producer, self._count - part * self._pauses)
            for _ in range(self._pauses):
                self._pause(producer, part)
            producer.flush()
            self.growth_mib = max(self.growth_mib, rss_mib() - self._begin_mib)
            self.stored = sum(client.max_offset(queue)
                              for queue in client.read_queues(TOPIC, again=True)) - 1

    def _pause(self, producer: Producer, count: int) -> None:
        """Send while the broker reads nothing, until the producer waits; then it reads on."""
        os.kill(self._servers.pid, signal.SIGSTOP)
        try:
            thread = threading.Thread(target=self._send, args=(producer, count), daemon=True)
            thread.start()
            room, size = producer._room, len(self._body)
            wait_until("there is no room", lambda: not thread.is_alive() or not room.fits(size))
            self.waits += thread.is_alive()
        finally:
            os.kill(self._servers.pid, signal.SIGCONT)
        thread.join()

    def faults(self) -> list[str]:
        """Return what exceeds its limit, or is missing."""
        growth_max = max(GROWTH_MIB, BESIDE_MIB + 2 * (self.bytes_max >> 20))
        found = [f"{name}: {value}, at most {most}" for name, value, most in (
            ("messages under way", self.count_max, COUNT_MAX),
            ("bytes under way", self.bytes_max, BYTES_MAX),
            ("growth in MiB", self.growth_mib, growth_max), ("failed", self.failed, 0))
            if value > most]
        if self.stored != self.sent or self.sent != self._count:
            found.append(f"{self.stored} stored of {self.sent} sent")
        if self.waits != self._pauses:
            found.append(f"the producer waited in {self.waits} of {self._pauses} pauses")
        return found


def pressed(folder: Path, count: int, size: int, pauses: int) -> Pressure:
    """Run it with a broker of its own."""
    servers = Servers(folder)
    servers.start()
    try:
        pressure = Pressure(servers, count, size, pauses)
        pressure.run()
    finally:
        servers.stop()
    return pressure


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a body")
    parser.add_argument("--pauses", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="client-pressure-") as folder:
        found = pressed(Path(folder) / "data", arguments.messages, arguments.size,
                        arguments.pauses)
    print(f"{found.sent} sent, {found.failed} failed, {found.stored} stored; at most "
          f"{found.count_max} messages and {found.bytes_max >> 20} MiB under way; the process grew "
          f"by {found.growth_mib:.0f} MiB")
    for fault in found.faults():
        print(fault)
    return bool(found.faults())


if __name__ == "__main__":
    raise SystemExit(main())
