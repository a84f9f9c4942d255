"""SYNC_MASTER and SYNC_FLUSH in a pair whose syncs can be held back."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.plugins.ha.simulation import PairSimulation
from twistmq.broker.testing.store import message
from twistmq.protocol.codes import ResponseCode


class HeldSyncTests(SynchronousTestCase):
    """A pair whose steps the test controls."""

    def setUp(self) -> None:
        self.pair = PairSimulation(1, {"syncFlushTimeout": "4000", "slaveTimeout": "2000"})
        self.pair.start()
        self.master, self.slave = self.pair.machines["master"], self.pair.machines["slave"]
        self.codes: list[ResponseCode] = []

    def send(self) -> int:
        """Send a message, and note the code of the reply when it comes; :returns: where it ends."""
        kernel = self.master.box.kernel
        kernel.append([message("T")])
        end = kernel.store.commit_log.max_offset
        waiting = kernel.acknowledgement.wait(end)
        assert waiting is not None
        waiting.addCallback(self.codes.append)
        return end

    def acked(self) -> int:
        """Return the offset that the slave has reported."""
        [link] = self.master.plugin.slaves.links
        return link.sender.acked

    def test_the_reply_waits_for_both(self) -> None:
        """For the master's disk when the slave has the message, and for the slave's."""
        self.master.holds = True
        end = self.send()
        self.pair.exchange(held="master")
        self.assertEqual((self.acked(), self.codes), (end, []))
        self.pair.exchange()
        self.assertEqual(self.codes, [ResponseCode.SUCCESS])
        self.slave.holds = True
        end = self.send()
        self.pair.exchange(held="slave")
        self.assertLess(self.acked(), end)
        self.assertEqual(self.master.box.kernel.store.commit_log.flushed_offset, end)
        self.assertEqual(len(self.codes), 1)
        self.pair.exchange()
        self.assertEqual(self.codes, [ResponseCode.SUCCESS] * 2)

    def test_a_late_slave(self) -> None:
        """After slaveTimeout the code says that the slave is late."""
        self.slave.holds = True
        self.send()
        self.pair.exchange(held="slave")
        self.master.pass_time(1999)
        self.assertEqual(self.codes, [])
        self.master.pass_time(1000)
        self.assertEqual(self.codes, [ResponseCode.FLUSH_SLAVE_TIMEOUT])

    def test_a_late_disk(self) -> None:
        """After syncFlushTimeout, which is another setting, the code says that the disk is late."""
        self.master.holds = True
        self.send()
        self.pair.exchange(held="master")
        self.master.pass_time(3999)
        self.assertEqual(self.codes, [])
        self.master.pass_time(1000)
        self.assertEqual(self.codes, [ResponseCode.FLUSH_DISK_TIMEOUT])
