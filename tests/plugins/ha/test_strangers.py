"""Connections to the port for slaves that do not belong to slaves."""

from __future__ import annotations

import random
import socket
import time
from contextlib import ExitStack
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.plugins.ha.pair import LOCAL, LoneBroker, lone_broker, wait_until
from twistmq.broker.testing import RawClient, RunningBroker, running_broker
from twistmq.broker.testing.raw_client import send_header
from twistmq.plugins import ha
from twistmq.protocol.codes import RequestCode, ResponseCode


class StrangersTests(SynchronousTestCase):
    """A SYNC_MASTER that waits for one slave, and others that connect."""

    def setUp(self) -> None:
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.folder = Path(self.mktemp())

    def start(self, **settings: str) -> RunningBroker:
        self.master = self.stack.enter_context(running_broker(
            {**LOCAL, "brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "slaveTimeout": "300",
             **settings}, data=self.folder / "master"))
        found = self.master.kernel.hooks.find(ha.Plugin)
        assert found is not None
        self.slaves = found.slaves
        return self.master

    def slave(self) -> LoneBroker:
        slave = self.stack.enter_context(lone_broker(self.folder / "slave", {
            "namesrvAddr": self.master.namesrv_address, "brokerRole": "SLAVE", "brokerId": "1"}))
        wait_until(lambda: self.slaves.links, "the slave is there")
        # It acknowledges what is sent from here on, however busy the machine is.
        self.master.call(self.master.kernel.settings.put, "slaveTimeout", 20_000)
        return slave

    def connect(self) -> socket.socket:
        """Return a connection to the port for slaves."""
        port = self.master.kernel.identity.ha_port
        made = socket.create_connection(("127.0.0.1", port), 10)
        self.addCleanup(made.close)
        return made

    def send(self) -> int:
        """Send a message; :returns: the code of the answer."""
        with RawClient(self.master.broker_address, 30) as client:
            return client.request(RequestCode.SEND_MESSAGE_V2,
                                  send_header("T", 1_700_000_000_000), b"body").code

    def closed(self, made: socket.socket) -> bytes:
        """Wait until the other side closes; :returns: the bytes it sent.

        Heartbeats do not prolong the wait, which is shorter than the silence that a master allows.
        """
        deadline = time.monotonic() + 10
        heard = b""
        try:
            while True:
                made.settimeout(max(deadline - time.monotonic(), 0.001))
                data = made.recv(1 << 16)
                if not data:
                    break
                heard += data
        except ConnectionResetError:
            pass
        return heard

    def test_bogus_reports_count_for_nothing(self) -> None:
        """They are closed without a byte, and sends still wait for the real slave."""
        self.start()
        late = ResponseCode.FLUSH_SLAVE_TIMEOUT
        self.assertEqual(self.send(), late)
        end = self.master.kernel.store.commit_log.max_offset
        for said in (*((report).to_bytes(8, "big", signed=True)
                       for report in (2**60, -5, end + 1)), b"GET / HTTP/1.1\r\n\r\n"):
            stranger = self.connect()
            stranger.sendall(said)
            self.assertEqual(self.closed(stranger), b"")
        self.assertEqual(self.send(), late)
        self.slave()
        self.assertEqual(self.send(), ResponseCode.SUCCESS)

    def test_an_acknowledgement_of_what_was_not_sent(self) -> None:
        """A slave that reports more bytes than it got is disconnected."""
        self.start()
        stranger = self.connect()
        stranger.sendall(bytes(8))
        wait_until(lambda: self.slaves.links, "it counts")
        stranger.sendall((1 << 40).to_bytes(8, "big"))
        self.closed(stranger)
        wait_until(lambda: not self.slaves.links, "it does not count")
        self.assertEqual(self.send(), ResponseCode.FLUSH_SLAVE_TIMEOUT)

    def test_garbage_and_silence(self) -> None:
        """Random bytes are closed, an incomplete report waits, and no failure is logged."""
        self.start()
        chance = random.Random(1)
        for _ in range(10):
            stranger = self.connect()
            stranger.sendall(b"\xff" + chance.randbytes(10_000))
            self.closed(stranger)
        silent = self.connect()
        silent.sendall(bytes(7))
        self.slave()
        self.assertEqual(self.send(), ResponseCode.SUCCESS)
        self.assertEqual(len(self.slaves.links), 1)
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_connections_that_say_nothing(self) -> None:
        """Some hundreds are closed for new ones; the slave stays connected, and another can
        connect.
        """
        self.start()
        self.slave()
        [link] = self.slaves.links
        idle = [self.connect() for _ in range(300)]
        for _ in range(300):
            self.connect().close()
        wait_until(lambda: len(self.slaves._links) <= 65, "the others are closed")
        self.assertEqual(self.slaves.links, [link])
        self.assertEqual(self.send(), ResponseCode.SUCCESS)
        self.assertEqual(self.closed(idle[0]), b"")

    def test_silent_connections_are_closed(self) -> None:
        """After haHousekeepingInterval, whether they reported or not."""
        self.start(haHousekeepingInterval="1000")
        silent, reported = self.connect(), self.connect()
        reported.sendall(bytes(8))
        self.closed(silent)
        self.closed(reported)
        wait_until(lambda: not self.slaves._links, "all are gone")

    def test_only_listed_addresses_get_bytes(self) -> None:
        """Others are closed before their first byte, whatever they send."""
        self.start(**{"ha.peers": "10.0.0.0/8"})
        stranger = self.connect()
        stranger.sendall(bytes(8))
        self.assertEqual(self.closed(stranger), b"")
        self.assertEqual(self.slaves._links, {})

    def test_a_broker_with_accounts_listens_for_listed_slaves_only(self) -> None:
        """The port is not opened: it would give all messages without a password."""
        self.start(brokerRole="ASYNC_MASTER", aclEnable="true")
        self.assertEqual(self.master.kernel.identity.ha_port, 0)
