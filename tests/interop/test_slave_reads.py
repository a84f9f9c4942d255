"""Our client with a pair of a master and a slave: ours, and Apache's."""

from __future__ import annotations

from contextlib import ExitStack

from tests.interop.clients import JavaTestCase
from tests.interop.slave_reads import Pair, check_diverted, check_late_member
from tests.interop.test_replication import COMMON, PairCase
from tests.plugins.ha.pair import LOCAL, LoneBroker, lone_broker, wait_until
from twistmq.broker.testing import running_broker

#: A master that sends readers to its slave: Apache's when so much of the memory is behind, percent.
DIVERTED = {"slaveReadEnable": "true"}
APACHES = {**DIVERTED, "accessMessageInMemoryMaxRatio": "0"}


class OurPairTests(JavaTestCase):
    """Both brokers are ours."""

    def setUp(self) -> None:
        super().setUp()
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.masters = self.stack.enter_context(ExitStack())
        self.beside = self.stack.enter_context(running_broker(
            {**LOCAL, "brokerName": "beside"}, data=self.folder / "beside"))

    def start_master(self) -> LoneBroker:
        """Start the master over its old data."""
        master = self.masters.enter_context(lone_broker(
            self.folder / "master", {"namesrvAddr": self.beside.namesrv_address, **DIVERTED}))
        # The setting has no value for "none", and a test does not fill a hundredth of the memory.
        master.kernel.store.reader._in_memory_bytes = 0
        return master

    def pair(self) -> Pair:
        """Start the pair."""
        master = self.start_master()
        slave = self.stack.enter_context(lone_broker(self.folder / "slave", {
            "namesrvAddr": self.beside.namesrv_address, "brokerRole": "SLAVE", "brokerId": "1",
            "slaveReadEnable": "true"}))
        wait_until(lambda: slave.plugin.follower.is_connected, "the slave is connected", 90)
        return Pair(
            self.beside.namesrv_address, f"127.0.0.1:{master.service.port}",
            f"127.0.0.1:{slave.service.port}", self.beside.broker_address,
            lambda: slave.end == master.end
            and not slave.kernel.store.dispatch.behind_bytes)

    def test_a_suggested_slave_is_read_and_left_again(self) -> None:
        """The member follows the answers to its pulls."""
        check_diverted(self.pair())

    def test_a_member_that_starts_after_the_masters_end_reads_the_slave(self) -> None:
        check_late_member(self.pair(), self.masters.close)


class ApachesPairTests(PairCase):
    """Both brokers are Apache's."""

    def pair(self) -> Pair:
        """Start it, with a broker of ours beside and our name server."""
        beside = self.stack.enter_context(running_broker(
            {**LOCAL, "brokerName": "beside"}, data=self.folder / "beside"))
        master, slave = (self.start_apache(
            role, with_namesrv=False, namesrv_address=beside.namesrv_address,
            settings={**COMMON, **APACHES, **settings})
            for role, settings in (("master", {}), ("slave", {
                "brokerRole": "SLAVE", "brokerId": "1"})))
        addresses = [f"127.0.0.1:{each.broker_port}" for each in (master, slave)]
        return Pair(
            beside.namesrv_address, *addresses, beside.broker_address,
            lambda: self.end_of(addresses[0]) == self.end_of(addresses[1]))

    def test_a_suggested_slave_is_read_and_left_again(self) -> None:
        """The member follows the answers to its pulls."""
        check_diverted(self.pair())
