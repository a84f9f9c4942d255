"""Pairs of our broker and Apache's, each as master and as slave."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.interop.clients import JavaTestCase
from tests.interop.mqadmin import mqadmin
from tests.plugins.ha.pair import LOCAL, LoneBroker, identical, lone_broker, wait_until
from twistmq.broker.testing import RawClient, RunningBroker, running_broker
from twistmq.broker.testing.raw_client import send_header
from twistmq.plugins import ha
from twistmq.protocol.bodies import KVTable
from twistmq.protocol.codes import RequestCode, ResponseCode

FILE_SIZE = 1024 * 1024
#: The slaveTimeout of a master whose sends a slave acknowledges however busy the machine is, ms.
PATIENT_MS = "20000"
#: How long the answer to a send may take, seconds.
ANSWER_SECONDS = 30.0
#: Of both brokers of each pair; Apache's store demands more than a test's disk may have.
COMMON = {"brokerName": "pair", "mappedFileSizeCommitLog": str(FILE_SIZE),
          "maxMessageSize": "400000", "brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1",
          "slaveReadEnable": "true", "diskMaxUsedSpaceRatio": "95"}


class PairCase(JavaTestCase):
    """A master and a slave, one of each kind."""

    def setUp(self) -> None:
        super().setUp()
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.chance = random.Random(7)

    def our_master(self, **settings: str) -> RunningBroker:
        """Return a master of ours, with our name server."""
        return self.stack.enter_context(running_broker(
            {**LOCAL, **COMMON, **settings}, data=self.folder / "ours"))

    def our_slave(self, namesrv: str, **settings: str) -> LoneBroker:
        """Return a slave of ours."""
        return self.stack.enter_context(lone_broker(self.folder / "ours/store", {
            **COMMON, "namesrvAddr": namesrv, "brokerRole": "SLAVE", "brokerId": "1",
            **settings}))

    def java_slave(self, namesrv: str, **settings: str) -> Any:
        """Start Apache's broker as the slave."""
        return self.start_apache(with_namesrv=False, namesrv_address=namesrv, settings={
            **COMMON, "brokerRole": "SLAVE", "brokerId": "1", **settings})

    def java_master(self, **settings: str) -> Any:
        """Apache's broker as the master, with its name server."""
        return self.start_apache(settings={**COMMON, **settings})

    def send(self, address: str, count: int, size_max: int = 40_000) -> list[int]:
        """Send messages of mixed size; :returns: the codes of the answers."""
        codes = []
        with RawClient(address, ANSWER_SECONDS) as client:
            for number in range(count):
                size = int(size_max ** self.chance.random())
                header = send_header("T", 1_700_000_000_000 + number, queue_id=number % 4,
                                     properties={"KEYS": f"k{number}", "TAGS": "abc"[number % 3]})
                codes.append(client.request(
                    RequestCode.SEND_MESSAGE_V2, header, self.chance.randbytes(size)).code)
        return codes

    @staticmethod
    def end_of(address: str) -> int:
        """Return the end of a broker's log; -1 while it does not report it."""
        with RawClient(address) as client:
            reply = client.request(RequestCode.GET_BROKER_RUNTIME_INFO)
            if reply.code or not reply.body:
                return -1
            return int(KVTable.decode(reply.body).table["commitLogMaxOffset"])

    def same(self, master: tuple[str, Path], slave: tuple[str, Path]) -> int:
        """Wait until the slave has all, and compare the logs; :returns: where they end.

        :param master: its address, and the folder of its log.
        :param slave: the same of the slave.
        """
        wait_until(lambda: self.end_of(master[0]) >= 0, "the master says where its log ends", 60)
        end = self.end_of(master[0])
        wait_until(lambda: self.end_of(slave[0]) == end, "the slave has all", 60)
        self.assertTrue(identical(master[1], slave[1], end))
        return end


class OurMasterTests(PairCase):
    """Our master with a slave of 5.3.3."""

    def test_the_log_of_the_slave_is_the_masters(self) -> None:
        """Messages are sent before and after its start, in many files; its stop loses none."""
        master = self.our_master()
        ours = self.folder / "ours/store/commitlog"
        self.assertEqual(set(self.send(master.broker_address, 20)), {0})
        java = self.java_slave(master.namesrv_address)
        address = f"127.0.0.1:{java.broker_port}"
        theirs = java.home / "store/commitlog"
        plugin = master.kernel.hooks.find(ha.Plugin)
        assert plugin is not None
        wait_until(lambda: plugin.slaves.links, "the slave is there", 60)
        self.assertEqual(set(self.send(master.broker_address, 600)), {0})
        end = self.same((master.broker_address, ours), (address, theirs))
        self.assertGreater(end, 2 * FILE_SIZE)
        java.stop_one("broker", kill=True)
        wait_until(lambda: not plugin.slaves.links, "the slave is gone")
        self.assertEqual(set(self.send(master.broker_address, 300)), {0})
        java.start_broker()
        self.same((master.broker_address, ours), (address, theirs))

    def test_sends_wait_for_the_slave(self) -> None:
        """12 without one, 0 with one; the message is stored in either case."""
        master = self.our_master(brokerRole="SYNC_MASTER", inSyncReplicas="2")
        self.assertEqual(self.send(master.broker_address, 1),
                         [ResponseCode.FLUSH_SLAVE_TIMEOUT])
        java = self.java_slave(master.namesrv_address)
        plugin = master.kernel.hooks.find(ha.Plugin)
        assert plugin is not None
        wait_until(lambda: plugin.slaves.links, "the slave is there", 60)
        self.assertEqual(set(self.send(master.broker_address, 200)), {0})
        self.same((master.broker_address, self.folder / "ours/store/commitlog"),
                  (f"127.0.0.1:{java.broker_port}", java.home / "store/commitlog"))

    def test_a_slave_that_is_longer_acknowledges_nothing(self) -> None:
        """The master lost its end, so the slave's reports are refused, and no data is mixed."""
        master = self.our_master(brokerRole="SYNC_MASTER", inSyncReplicas="2",
                                 slaveTimeout=PATIENT_MS)
        java = self.java_slave(master.namesrv_address)
        address = f"127.0.0.1:{java.broker_port}"
        plugin = master.kernel.hooks.find(ha.Plugin)
        assert plugin is not None
        wait_until(lambda: plugin.slaves.links, "the slave is there", 60)
        self.assertEqual(set(self.send(master.broker_address, 50)), {0})
        end = self.same((master.broker_address, self.folder / "ours/store/commitlog"),
                        (address, java.home / "store/commitlog"))
        store = master.kernel.store
        place = [at for at, _ in store.raw.messages(0)][25]
        master.call(plugin.slaves.end_all, "a test cuts the log")
        wait_until(lambda: not plugin.slaves.links, "the slave is gone")
        master.call(store.log_cut.truncate, place)
        master.call(master.kernel.settings.put, "slaveTimeout", 500)
        self.assertEqual(set(self.send(master.broker_address, 12, 100)),
                         {ResponseCode.FLUSH_SLAVE_TIMEOUT})
        self.assertLess(store.commit_log.max_offset, end)
        self.assertEqual((plugin.slaves.links, self.end_of(address)), ([], end))


class ToolTests(PairCase):
    """mqadmin asks pairs for the positions of their slaves."""

    @staticmethod
    def printed(namesrv: str, address: str, slaves: Callable[[], object]) -> str:
        """The output of haStatus about a broker, with each number as 0."""
        wait_until(slaves, "the slave is there", 60)
        [text] = mqadmin(namesrv, [f"haStatus -b {address}"])
        return re.sub(r"[ \t]+", " ", re.sub(r"\d[\d.:]*( \d[\d:]*)?", "0", text))

    def test_mqadmin_prints_what_it_prints_of_apaches_pair(self) -> None:
        """The lines of a master, of our slave and of Apache's slave are equal."""
        java = self.java_master()
        address = f"127.0.0.1:{java.broker_port}"
        self.send(address, 20)
        slave = self.our_slave(java.namesrv_address)
        namesrv = java.namesrv_address
        theirs = self.printed(namesrv, address, lambda: slave.plugin.follower.is_connected)
        wait_until(lambda: slave.end == self.end_of(address), "the slave has all")
        ours_as_slave = self.printed(
            namesrv, f"127.0.0.1:{slave.service.port}", lambda: True)
        self.stack.close()
        master = self.our_master(brokerName="second", storePathRootDir=str(
            self.folder / "second"))
        self.send(master.broker_address, 20)
        other = self.start_apache("other", with_namesrv=False,
                                  namesrv_address=master.namesrv_address, settings={
                                      **COMMON, "brokerName": "second", "brokerRole": "SLAVE",
                                      "brokerId": "1"})
        plugin = master.kernel.hooks.find(ha.Plugin)
        assert plugin is not None
        namesrv = master.namesrv_address
        ours = self.printed(namesrv, master.broker_address, lambda: plugin.slaves.links)
        self.assertEqual(ours, theirs)
        self.assertIn("OK", ours)
        self.assertEqual(ours_as_slave,
                         self.printed(
            namesrv, f"127.0.0.1:{other.broker_port}", lambda: True))


class OurMasterOldSlaveTests(OurMasterTests):
    """Our master with a slave of 4.9.4."""

    version = "4.9.4"


class OurSlaveTests(PairCase):
    """Our slave of a master of 5.3.3."""

    def test_the_log_of_the_slave_is_the_masters(self) -> None:
        """It has all messages, over many files; a kill of the master loses none."""
        java = self.java_master()
        address = f"127.0.0.1:{java.broker_port}"
        theirs = java.home / "store/commitlog"
        self.assertEqual(set(self.send(address, 600)), {0})
        slave = self.our_slave(java.namesrv_address)
        ours = slave.data / "commitlog"
        end = self.same((address, theirs), (f"127.0.0.1:{slave.service.port}", ours))
        self.assertGreater(end, 2 * FILE_SIZE)
        self.assertEqual(slave.kernel.store.commit_log.min_offset, 0)
        self.assertEqual(set(self.send(address, 100)), {0})
        self.same((address, theirs), (f"127.0.0.1:{slave.service.port}", ours))
        java.stop_one("broker", kill=True)
        wait_until(lambda: not slave.plugin.follower.is_connected, "the master is gone")
        java.start_broker()
        self.assertEqual(set(self.send(address, 100)), {0})
        self.same((address, theirs), (f"127.0.0.1:{slave.service.port}", ours))

    def test_sends_wait_for_our_slave(self) -> None:
        """With the slave they are answered with 0."""
        java = self.java_master(brokerRole="SYNC_MASTER", inSyncReplicas="2")
        address = f"127.0.0.1:{java.broker_port}"
        slave = self.our_slave(java.namesrv_address)
        wait_until(lambda: slave.plugin.follower.is_connected, "the slave is there", 60)
        self.assertEqual(set(self.send(address, 100)), {0})
        self.same((address, java.home / "store/commitlog"),
                  (f"127.0.0.1:{slave.service.port}", slave.data / "commitlog"))


class OurSlaveOldMasterTests(OurSlaveTests):
    """Our slave of a master of 4.9.4."""

    version = "4.9.4"
