"""Sends that wait for slaves."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.store import message
from twistmq.plugins import ha
from twistmq.plugins.ha.waits import ReplicaWaits
from twistmq.protocol.codes import ResponseCode


class ReplicaWaitsTests(SynchronousTestCase):
    """The stage of a SYNC_MASTER, with reports of slaves that the test gives."""

    def start(self, replicas: int, role: str = "SYNC_MASTER") -> None:
        self.box = KernelBox([("ha", ha.Plugin)], {
            "brokerRole": role, "inSyncReplicas": str(replicas)})
        self.addCleanup(self.box.stop)
        self.acked: list[int] = []
        self.waits: ReplicaWaits = self.box.plugin(ha.Plugin).slaves.waits
        self.waits._acked = lambda: self.acked
        self.codes: list[ResponseCode] = []

    def send(self) -> int:
        """Store a message and note the code of its reply; :returns: where it ends."""
        self.box.kernel.append([message("T")])
        end = self.box.kernel.store.commit_log.max_offset
        waits = self.box.kernel.acknowledgement.wait(end)
        if waits is None:
            self.codes.append(ResponseCode.SUCCESS)
        else:
            waits.addCallback(self.codes.append)
        return end

    def report(self, *offsets: int) -> None:
        self.acked = list(offsets)
        self.waits.reported()

    def later(self, ms: int) -> None:
        """Let time pass."""
        self.box.now_ms += ms
        self.box.kernel.acknowledgement.expire(0)
        self.waits.expire()

    def test_no_slave_is_waited_for(self) -> None:
        """This is so if the master alone is enough, and in another role."""
        self.start(1)
        self.send()
        self.start(2, "ASYNC_MASTER")
        self.send()
        self.assertEqual(self.codes, [ResponseCode.SUCCESS])

    def test_one_report_answers_all_sends_below_it(self) -> None:
        """Sends above it still wait."""
        self.start(2)
        ends = [self.send() for _ in range(3)]
        self.report(ends[0] - 1)
        self.assertEqual(self.codes, [])
        self.report(ends[1])
        self.assertEqual(self.codes, [ResponseCode.SUCCESS] * 2)
        self.assertEqual(self.waits.count, 1)
        self.report(ends[2])
        self.assertEqual(self.codes, [ResponseCode.SUCCESS] * 3)

    def test_so_many_slaves_must_have_it(self) -> None:
        """The slower one of two decides; one that is far behind does not matter."""
        self.start(3)
        end = self.send()
        self.report(end)
        self.report(end, end - 1)
        self.assertEqual(self.codes, [])
        self.report(end, 0, end)
        self.assertEqual(self.codes, [ResponseCode.SUCCESS])

    def test_a_slave_that_left_has_nothing(self) -> None:
        """Its reports count neither for later sends nor for waiting ones."""
        self.start(2)
        self.report(10_000)
        self.report()
        self.send()
        self.assertEqual(self.codes, [])

    def test_late_slaves(self) -> None:
        """The client gets the code after slaveTimeout; the message remains, and no wait remains."""
        self.start(2)
        end = self.send()
        self.later(2999)
        self.assertEqual(self.codes, [])
        self.later(1)
        self.assertEqual(self.codes, [ResponseCode.FLUSH_SLAVE_TIMEOUT])
        self.assertEqual((self.waits.count, self.waits.timeouts, self.waits.waits), (0, 1, 1))
        self.report(end)
        self.assertEqual(self.codes, [ResponseCode.FLUSH_SLAVE_TIMEOUT])

    def test_a_change_of_the_role_ends_the_waits(self) -> None:
        """They are answered as late, because the messages are stored but perhaps on no slave."""
        self.start(2)
        self.send()
        self.successResultOf(Deferred.fromCoroutine(
            self.box.kernel.change_role("ASYNC_MASTER", 0)))
        self.assertEqual(self.codes, [ResponseCode.FLUSH_SLAVE_TIMEOUT])
        self.send()
        self.assertEqual(self.codes[1:], [ResponseCode.SUCCESS])
