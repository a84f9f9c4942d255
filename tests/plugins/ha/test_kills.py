"""A master that is killed under load: its slave has all that was acknowledged."""

from __future__ import annotations

import contextlib
import signal
import threading
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.interop.servers import Servers
from tests.plugins.ha.pair import LOCAL, identical, lone_broker, wait_until
from twistmq.broker.codes import RequestCode, ResponseCode
from twistmq.broker.errors import BrokerError
from twistmq.broker.testing import RawClient
from twistmq.broker.testing.raw_client import send_header

SENDERS = 4
KILLS = 4


class KillTests(SynchronousTestCase):
    """A SYNC_MASTER in a process of its own, and its slave in this one."""

    timeout = 120

    def setUp(self) -> None:
        folder = Path(self.mktemp())
        self.master = Servers(folder / "master", *(
            f"{name}={value}" for name, value in {
                **LOCAL, "brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}.items()
            if name not in ("haListenPort", "brokerFastFailureEnable")))
        self.folder = folder
        self.acknowledged: set[bytes] = set()
        self.stops = threading.Event()

    def send(self, sender: int, kill: int) -> None:
        """Send until the master is gone, and note what it acknowledged."""
        number = 0
        with contextlib.suppress(OSError, BrokerError), RawClient(
                f"127.0.0.1:{self.master.broker_port}") as client:
            while not self.stops.is_set():
                body = b"<%d/%d/%d>" % (kill, sender, number)
                number += 1
                reply = client.request(RequestCode.SEND_MESSAGE_V2,
                                       send_header("T", 1_700_000_000_000), body)
                if reply.code == ResponseCode.SUCCESS:
                    self.acknowledged.add(body)

    def round(self, kill: int, enough: int) -> None:
        """Load the master until so many are acknowledged, and kill it."""
        self.stops.clear()
        threads = [threading.Thread(target=self.send, args=(sender, kill))
                   for sender in range(SENDERS)]
        for thread in threads:
            thread.start()
        try:
            wait_until(lambda: len(self.acknowledged) >= enough, "sends are acknowledged")
        finally:
            self.master.stop(signal.SIGKILL)
            self.stops.set()
            for thread in threads:
                thread.join()

    def test_no_acknowledged_message_is_lost(self) -> None:
        """After each kill the slave has each of them once; the logs are the same after a start."""
        self.master.start()
        self.addCleanup(self.master.stop)
        with lone_broker(self.folder / "slave", {
                "namesrvAddr": self.master.namesrv, "brokerRole": "SLAVE",
                "brokerId": "1"}) as slave:
            for kill in range(KILLS):
                wait_until(lambda: slave.plugin.follower.is_connected, "the master is followed")
                self.round(kill, len(self.acknowledged) + 200)
                wait_until(lambda: not slave.plugin.follower.is_connected, "the master is gone")
                log = b"".join(path.read_bytes() for path in sorted(
                    (slave.data / "commitlog").glob("0*")))
                counts = [log.count(body) for body in self.acknowledged]
                self.assertEqual(set(counts), {1})
                self.master.start()
                wait_until(lambda: slave.plugin.follower.is_connected, "the master is back")
                self.assertTrue(identical(self.folder / "master/store/commitlog",
                                          slave.data / "commitlog", slave.end))
