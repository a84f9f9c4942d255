"""A master and a slave of ours over real sockets."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.plugins.ha.pair import LOCAL, LoneBroker, identical, lone_broker, wait_until
from twistmq.broker.codes import RequestCode, ResponseCode
from twistmq.broker.testing import RunningBroker, running_broker
from twistmq.broker.testing.raw_client import send_header
from twistmq.plugins import ha


class PairTests(SynchronousTestCase):
    """A master beside a name server, and slaves that come and go."""

    timeout = 120

    def setUp(self) -> None:
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.folder = Path(self.mktemp())

    def start_master(self, **settings: str) -> RunningBroker:
        """A master, with a name server."""
        self.master = self.stack.enter_context(running_broker(
            {**LOCAL, **settings}, data=self.folder / "master"))
        return self.master

    def slave(self, broker_id: int = 1, **settings: str) -> LoneBroker:
        """A slave of it."""
        return self.stack.enter_context(lone_broker(self.folder / f"slave{broker_id}", {
            "namesrvAddr": self.master.namesrv_address, "brokerRole": "SLAVE",
            "brokerId": str(broker_id), **settings}))

    @property
    def end(self) -> int:
        """Where the master's log ends."""
        return self.master.kernel.store.commit_log.max_offset

    def plugin(self) -> ha.Plugin:
        found = self.master.kernel.hooks.find(ha.Plugin)
        assert found is not None
        return found

    def send(self, count: int, size: int = 500, first: int = 0) -> None:
        with self.master.client() as client:
            for number in range(first, first + count):
                client.send("T", b"%06d" % number + b"x" * size, keys=f"k{number}")

    def caught_up(self, slave: LoneBroker) -> None:
        """Wait until a slave has all, then compare."""
        wait_until(lambda: slave.end == self.end and not slave.kernel.store.dispatch.behind_bytes,
                   "the slave has all")
        self.assertTrue(identical(self.folder / "master/store/commitlog",
                                  slave.data / "commitlog", self.end))

    def test_a_slave_has_what_its_master_has(self) -> None:
        """Before it came and after, over many files; it is readable there."""
        self.start_master()
        self.send(300)
        slave = self.slave(slaveReadEnable="true")
        wait_until(lambda: slave.end == self.end, "the slave catches up")
        self.send(300, first=300)
        self.caught_up(slave)
        self.assertGreater(len(list((slave.data / "commitlog").glob("0*"))), 4)
        queues = self.master.kernel.store.queues
        for queue in queues:
            copy = slave.kernel.store.queues.find(queue.topic, queue.queue_id)
            assert copy is not None
            self.assertEqual((copy.min_offset, copy.max_offset),
                             (queue.min_offset, queue.max_offset))

    def test_a_slave_refuses_sends(self) -> None:
        """Its log takes the master's bytes alone."""
        self.start_master()
        slave = self.slave()
        with slave.client() as client:
            reply = client.request(RequestCode.SEND_MESSAGE_V2, send_header("T", 1), b"body")
        self.assertNotEqual(reply.code, ResponseCode.SUCCESS)
        self.assertEqual(slave.end, 0)

    def test_a_slave_that_was_away_goes_on(self) -> None:
        """It has what came meanwhile, once, and the master tells how far it is."""
        self.start_master()
        for first in (0, 200, 400):
            with ExitStack() as stack:
                self.stack, outer = stack, self.stack
                slave = self.slave()
                self.stack = outer
                self.send(100, first=first)
                self.caught_up(slave)
                [link] = self.plugin().slaves.links
                wait_until(lambda link=link: link.sender.acked == self.end, "the report")
            wait_until(lambda: not self.plugin().slaves.links, "the slave is gone")
            self.send(100, first=first + 100)
        self.caught_up(self.slave())
