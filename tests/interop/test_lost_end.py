"""A master of Apache's lost the end of its log, and our slave has it."""

from __future__ import annotations

from pathlib import Path

from tests.interop.replica_kills import ALONE
from tests.interop.replicas import configure, slaves_of
from tests.interop.test_replication import FILE_SIZE, PATIENT_MS, PairCase
from tests.plugins.ha.pair import LoneBroker, wait_until
from twistmq.broker.testing import RawClient
from twistmq.broker.testing.raw_client import send_header
from twistmq.protocol.codes import RequestCode

LOST = 25


def cut(folder: Path, place: int) -> None:
    """Remove all bytes of a log from a place on; the files keep their length."""
    for path in folder.glob("0*"):
        size = max(0, place - int(path.name))
        if size < FILE_SIZE:
            path.write_bytes(path.read_bytes()[:size].ljust(FILE_SIZE, b"\0"))


class LostEndCase(PairCase):
    """A master of Apache's with our slave."""

    #: Whether it can be asked for its slaves.
    tells_slaves = True

    def lose_its_end(self) -> None:
        """No data is mixed, and nothing is acknowledged until the slave may follow."""
        java = self.java_master(brokerRole="SYNC_MASTER", inSyncReplicas="2",
                                slaveTimeout=PATIENT_MS)
        address, theirs = f"127.0.0.1:{java.broker_port}", java.home / "store/commitlog"
        slave = self.our_slave(java.namesrv_address)
        ours = slave.data / "commitlog"
        here = (f"127.0.0.1:{slave.service.port}", ours)
        wait_until(lambda: slave.plugin.follower.is_connected, "the slave is there", 60)
        # A master of 4.9.4 takes a connection for a slave some time after it was made.
        wait_until(lambda: self.send(address, 1, 100) == [0], "it is a slave", 60)
        self.assertEqual(set(self.send(address, 2 * LOST)), {0})
        end = self.same((address, theirs), here)
        before = [path.read_bytes() for path in sorted(ours.glob("0*"))]
        place = slave.thread.call(lambda: [
            at for at, _ in slave.kernel.store.raw.messages(0)][-LOST])
        java.stop_one("broker")
        cut(theirs, place)
        java.start_broker()
        self.refused(slave, f"the log ends at {end}, but the master's log at {place}")
        # No slave answers from here on: no send need wait for long.
        configure(address, slaveTimeout="500")
        self.assertLessEqual(set(self.send(address, 6, 100)), set(ALONE))
        self.assertLess(self.end_of(address), end)
        self.grow(address, end)
        slave.thread.call(slave.plugin.follower.retry)
        self.refused(slave, "differs from the master's")
        self.assertLessEqual(set(self.send(address, 3, 100)), set(ALONE))
        if self.tells_slaves:
            self.assertEqual(slaves_of(address).ha_connection_info, [])
        self.assertEqual((slave.end, [path.read_bytes() for path in sorted(ours.glob("0*"))]),
                         (end, before))
        configure(address, slaveTimeout=PATIENT_MS)
        self.follow_again(slave)
        wait_until(lambda: self.send(address, 1, 100) == [0], "it is a slave again", 60)
        self.assertEqual(set(self.send(address, 20)), {0})
        self.same((address, theirs), here)

    def refused(self, slave: LoneBroker, why: str) -> None:
        """Check that the slave does not follow and logs the reason."""
        follower = slave.plugin.follower
        wait_until(lambda: follower.differs and why in follower.fault, why, 90)
        self.assertIn("ha.resync", slave.thread.call(follower.health))
        self.assertFalse(follower.is_connected)

    @staticmethod
    def grow(address: str, end: int) -> None:
        """Send until the master's log is longer than the slave's again."""
        with RawClient(address) as client:
            while PairCase.end_of(address) <= end:
                header = send_header("T", 1_700_000_000_000, queue_id=0)
                reply = client.request(RequestCode.SEND_MESSAGE_V2, header, bytes(100_000))
                assert reply.code in ALONE, reply

    @staticmethod
    def follow_again(slave: LoneBroker) -> None:
        """Allow the slave to remove the end that the master lacks."""
        slave.thread.call(slave.kernel.settings.put, "ha.resync", True)
        slave.thread.call(slave.plugin.follower.retry)
        wait_until(lambda: slave.plugin.follower.is_connected, "the slave follows", 60)


class LostEndTests(LostEndCase):
    """The master is 5.3.3."""

    def test_our_slave_of_a_master_that_lost_its_end(self) -> None:
        """No data is mixed, and nothing is acknowledged until the slave may follow."""
        self.lose_its_end()


class OldLostEndTests(LostEndCase):
    """The master is 4.9.4."""

    version = "4.9.4"
    tells_slaves = False

    def long_our_slave_of_a_master_that_lost_its_end(self) -> None:
        """The behaviour is that with 5.3.3."""
        self.lose_its_end()
