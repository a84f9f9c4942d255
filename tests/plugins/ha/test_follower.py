"""A slave without its master."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.testing.kernel import KernelBox
from twistmq.plugins import ha


class FollowerTests(SynchronousTestCase):
    """The health of a slave, by the clock of the test."""

    def test_its_health_is_bad_after_thirty_seconds(self) -> None:
        """Not before, and not when it is a slave no longer."""
        box = KernelBox([("ha", ha.Plugin)], {"brokerRole": "SLAVE", "brokerId": "1"})
        self.addCleanup(box.stop)
        check = box.kernel.health_checks["replication"]
        follower = box.plugin(ha.Plugin).follower
        follower.tick()
        box.now_ms += 29_999
        self.assertEqual(check(), "")
        box.now_ms += 1
        self.assertIn("no connection to the master for 30 s", check())
        follower.stop()
        self.assertEqual(check(), "")
