"""The port of metrics and health while strangers hold connections to it."""

from __future__ import annotations

import contextlib
import re
import socket
import time
import urllib.request

from tests.hostile.case import HostileCase
from tests.hostile.wire import RawConnection
from tests.interop.servers import Servers

#: More connections than the port serves.
_COUNT = 100


class HealthTests(HostileCase):
    """Servers with that port."""

    def make_servers(self) -> Servers:
        return self.own_servers("metricsExporterType=PROM", "metricsPromExporterPort=0",
                                "metricsPromExporterHost=127.0.0.1")

    def address(self) -> str:
        """Return the address of the port."""
        found = re.search(r"metrics and health are on (127\.0\.0\.1:\d+)", self.servers.log())
        assert found is not None
        return found.group(1)

    def test_many_at_a_time(self) -> None:
        """Thousands of requests at once are refused, and do not delay other clients."""
        host, _, port = self.address().rpartition(":")

        def attack() -> None:
            for page in (b"nosuch", b"health", b"metrics"):
                for _ in range(10):
                    with (socket.create_connection((host, int(port)), 20) as connection,
                          contextlib.suppress(ConnectionError)):
                        connection.sendall(
                            b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n" % page * 5000)
                        while connection.recv(1 << 16):
                            pass

        self.assertOthersGoOn("thousands of requests", attack, 0.25)

    def slowest_page(self, address: str) -> float:
        """Ask for both pages twenty times; :returns: the longest wait for one, seconds."""
        slowest = 0.0
        for _ in range(20):
            for page in ("health", "metrics"):
                begin = time.monotonic()
                with urllib.request.urlopen(f"http://{address}/{page}", timeout=20) as answer:
                    self.assertEqual(answer.status, 200)
                slowest = max(slowest, time.monotonic() - begin)
        return slowest

    def test_half_requests(self) -> None:
        """A complete request is answered, whatever the number of incomplete ones is."""
        address = self.address()
        # On a machine that is busy they wait without an attack as well.
        before = self.slowest_page(address)
        held: list[RawConnection] = []
        for _ in range(_COUNT):
            held.append(self.connect(address))
            held[-1].says(b"GET /health HTTP/1.1\r\n")
        self.assertLess(self.slowest_page(address), 1.0 + 4 * before)
        for connection in held[:_COUNT // 3]:
            self.assertTrue(connection.is_closed())
