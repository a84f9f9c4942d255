"""Peers that do not read their replies, and floods of connections."""

from __future__ import annotations

import json
import resource
from pathlib import Path

from tests.hostile.case import HostileCase, MemoryPeak
from tests.hostile.wire import Closed, RawConnection, json_frame
from tests.interop.servers import Servers, wait_until
from twistmq.broker.constants import CONNECTION_BYTES_UNSENT_MAX
from twistmq.broker.testing.raw_client import RawClient
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.flags import PULL_SUBSCRIPTION, PULL_SUSPEND

_PULL = int(RequestCode.PULL_MESSAGE)

_BODY_SIZE = 4 * 1024 * 1024 - 1024


def pull_frame(topic: str, offset: int, opaque: int, hold_ms: int = 0) -> bytes:
    """Return a pull of one message."""
    fields = {
        "consumerGroup": "slow_group", "topic": topic, "queueId": "0", "queueOffset": str(offset),
        "maxMsgNums": "1", "sysFlag": str(PULL_SUBSCRIPTION | (PULL_SUSPEND if hold_ms else 0)),
        "commitOffset": "0", "suspendTimeoutMillis": str(hold_ms), "subVersion": "0",
        "subscription": "*"}
    return json_frame(_PULL, json.dumps(fields), opaque=opaque)


class NeverReadsTests(HostileCase):
    """Peers that send requests and do not read."""

    def test_asks_for_too_much(self) -> None:
        """Its requests are not read while its replies wait; memory is limited, nothing is lost."""
        count = CONNECTION_BYTES_UNSENT_MAX // _BODY_SIZE + 8
        with RawClient(self.broker) as client:
            client.send("large_topic", bytes(_BODY_SIZE))
        peer = self.connect(receive_bytes=4096)
        with MemoryPeak(self.servers.pid) as peak:
            peer.says_what_it_can(b"".join(pull_frame("large_topic", 0, opaque)
                                           for opaque in range(count)))
            self.good.wait_for_rounds(50)
        # A reply that waits is there twice at most: as it was made, and as what is left of it.
        self.assertLess(peak.kib - self.memory_before_kib, 6 * _BODY_SIZE // 1024)
        self.assertEqual(self.logged("cut off"), [])
        replies = [peer.hears() for _ in range(count)]
        self.assertEqual([reply.opaque for reply in replies], list(range(count)))
        self.assertEqual({reply.code for reply in replies}, {ResponseCode.SUCCESS})

    def test_is_woken_too_often(self) -> None:
        """Waiting pulls are all answered at once; above the limit it is disconnected."""
        count = CONNECTION_BYTES_UNSENT_MAX // _BODY_SIZE + 8
        with RawClient(self.broker) as client:
            client.send("woken_topic", b"first")
            end = client.max_offset("woken_topic")
            peer = self.connect(receive_bytes=4096)
            peer.says(b"".join(pull_frame("woken_topic", end, opaque, hold_ms=20_000)
                               for opaque in range(count)))
            # It answers in order, so that the pulls before this are held when it is answered.
            peer.says(json_frame(9999, opaque=9999))
            self.assertEqual(peer.hears().opaque, 9999)
            with MemoryPeak(self.servers.pid) as peak:
                client.send("woken_topic", bytes(_BODY_SIZE))
                wait_until("cut off", lambda: self.logged(f"connection of {peer.name} cut off"))
            [cut_off] = self.logged(f"connection of {peer.name} cut off")
            self.assertIn("does not read its replies", cut_off)
            self.assertLess(peak.kib - self.memory_before_kib,
                            2 * CONNECTION_BYTES_UNSENT_MAX // 1024)
            self.assertTrue(peer.is_closed())
            self.assertLess(len(peer.heard), count)
            self.assertEqual(client.max_offset("woken_topic"), end + 1)

    def test_pipelines_without_end(self) -> None:
        """It sends small requests without end and reads no reply, so its reading is paused."""
        peer = self.connect(receive_bytes=4096)
        question = json_frame(9999) * 1000
        sent = 0
        with MemoryPeak(self.servers.pid) as peak:
            while (taken := peer.says_what_it_can(question)) == len(question):
                sent += taken
                self.assertLess(sent, 256 * 1024 * 1024, msg="it is never stopped")
            self.good.wait_for_rounds(20)
        self.assertLess(peak.kib - self.memory_before_kib, 32 * 1024)


class FloodTests(HostileCase):
    """Connections without end."""

    def make_servers(self) -> Servers:
        """Servers of their own: their limit of open files is lowered."""
        return self.own_servers("mappedFileSizeCommitLog=1048576")

    def test_more_than_files_allow(self) -> None:
        """Connections above the limit of open files are closed; existing ones continue."""
        limit = 512
        _, hard = resource.prlimit(self.servers.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(self.servers.pid, resource.RLIMIT_NOFILE, (limit, hard))
        taken, refused = self.flood(limit)
        self.assertGreater(len(taken), 50)
        self.assertGreater(refused, 50)
        lines = len(self.logged("connection refused"))
        self.assertGreater(lines, 0)
        self.assertLessEqual(lines, limit.bit_length())
        taken[0].says(json_frame(9999))
        self.assertEqual(taken[0].hears().code, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        self.good.wait_for_rounds(20)
        for connection in taken:
            connection.close()
        wait_until("there is room again", self.is_served)

    def flood(self, count: int) -> tuple[list[RawConnection], int]:
        """Open a number of connections; :returns: the served ones, and how many were closed."""
        connections = [self.connect() for _ in range(count)]
        taken = []
        for connection in connections:
            try:
                connection.says(json_frame(9999))
                connection.hears()
                taken.append(connection)
            except Closed:
                connection.close()
        return taken, count - len(taken)

    def is_served(self) -> bool:
        """Whether a new connection is served."""
        return bool(self.flood(1)[0])

    def test_come_and_go(self) -> None:
        """Two thousand connections, some closed in the middle of a frame, leave nothing behind."""
        before = self.descriptors()
        for number in range(2000):
            with RawConnection(self.broker if number % 2 else self.namesrv) as connection:
                if number % 3 == 0:
                    connection.says(json_frame(9999)[:30])
        wait_until("descriptors are given back", lambda: self.descriptors() <= before + 5)

    def descriptors(self) -> int:
        """Return how many descriptors the servers have open."""
        return len(list(Path(f"/proc/{self.servers.pid}/fd").iterdir()))
