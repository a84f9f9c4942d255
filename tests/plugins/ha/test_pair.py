"""Our master and our slave over real sockets."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.plugins.ha.pair import LOCAL, LoneBroker, identical, lone_broker, wait_until
from twistmq.broker.testing import RawClient, RunningBroker, running_broker
from twistmq.broker.testing.raw_client import send_header
from twistmq.plugins import ha
from twistmq.protocol.bodies import HARuntimeInfo
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.send import SendMessageRequestHeaderV2


class PairCase(SynchronousTestCase):
    """A test with a master beside a name server, and its slaves."""

    def setUp(self) -> None:
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.folder = Path(self.mktemp())

    def start_master(self, **settings: str) -> RunningBroker:
        """Start a master with a name server."""
        self.master = self.stack.enter_context(running_broker(
            {**LOCAL, **settings}, data=self.folder / "master"))
        return self.master

    def slave(self, broker_id: int = 1, **settings: str) -> LoneBroker:
        """Start a slave of the master."""
        return self.stack.enter_context(lone_broker(self.folder / f"slave{broker_id}", {
            "namesrvAddr": self.master.namesrv_address, "brokerRole": "SLAVE",
            "brokerId": str(broker_id), **settings}))

    @property
    def end(self) -> int:
        """Return the end of the master's log."""
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


class PairTests(PairCase):
    """Slaves that connect and disconnect."""

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

    def test_four_slaves(self) -> None:
        """Each slave has all messages, and the master reports the position of each."""
        self.start_master()
        self.send(50)
        slaves = [self.slave(broker_id) for broker_id in (1, 2, 3, 4)]
        wait_until(lambda: len(self.plugin().slaves.links) == 4, "all are connected")
        self.send(50, first=50)
        for slave in slaves:
            self.caught_up(slave)
        wait_until(lambda: {link.sender.acked for link in self.plugin().slaves.links} == {self.end},
                   "all reports have come")
        with self.master.client() as client:
            reply = client.request(RequestCode.GET_BROKER_HA_STATUS, None)
        status = HARuntimeInfo.decode(reply.body)
        self.assertEqual((status.in_sync_slave_nums, status.master_commit_log_max_offset),
                         (4, self.end))
        self.assertEqual([each.slave_ack_offset for each in status.ha_connection_info],
                         [self.end] * 4)

    def test_a_slave_refuses_sends(self) -> None:
        """Its log contains only bytes of the master."""
        self.start_master()
        slave = self.slave()
        with slave.client() as client:
            reply = client.request(RequestCode.SEND_MESSAGE_V2, send_header("T", 1), b"body")
        self.assertNotEqual(reply.code, ResponseCode.SUCCESS)
        self.assertEqual(slave.end, 0)

    def test_a_slave_that_was_away_goes_on(self) -> None:
        """It gets the missing messages once, and the master reports its position."""
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

    def test_a_master_that_restarts(self) -> None:
        """The slave finds the master again, on another port, and has all messages."""
        stack = ExitStack()
        namesrv = stack.enter_context(running_broker(
            {**LOCAL, "brokerName": "other"}, data=self.folder / "other"))
        self.addCleanup(stack.close)
        self.master = namesrv
        slave = self.slave()
        told = {"namesrvAddr": namesrv.namesrv_address}
        for number in range(3):
            with lone_broker(self.folder / "alone", told) as master:
                with master.client() as client:
                    client.send("T", b"%d" % number)
                wait_until(lambda master=master: slave.end == master.end, "the slave has all")
                self.assertTrue(identical(
                    master.data / "commitlog", slave.data / "commitlog", slave.end))
            wait_until(lambda: not slave.plugin.follower.is_connected, "the master is gone")

    def test_a_fault_of_the_masters_disk(self) -> None:
        """The slave stops at the message, reports the reason, and does not count as a copy."""
        self.start_master()
        self.send(300)
        path = min((self.folder / "master/store/commitlog").glob("0*"))
        with path.open("r+b") as file:
            data = file.read()
            # A bit of the length of the body of the eleventh message.
            at = data.index(b"%06d" % 10 + b"x") - 3
            file.seek(at)
            file.write(bytes([data[at] ^ 0x10]))
        slave = self.slave()
        follower, check = slave.plugin.follower, slave.kernel.health_checks["replication"]
        wait_until(lambda: "does not fit" in follower.fault and not follower.is_connected,
                   "the slave follows no longer")
        self.assertIn("of the other log cannot be stored: its body of", follower.fault)
        wait_until(lambda: sum(queue.max_offset for queue in slave.kernel.store.queues) == 10,
                   "what came before is readable")
        self.assertLess(slave.end, at)
        wait_until(lambda: not self.plugin().slaves.links, "the master counts it no longer")
        # As if it had lasted for half a minute.
        slave.thread.call(setattr, follower, "_heard_ms", follower._heard_ms - 30_000)
        self.assertIn("does not fit", slave.thread.call(check))

    def test_a_slave_with_files_of_another_size_stops(self) -> None:
        """It stops before the first byte that would be misplaced, and names the
        differing setting.
        """
        self.start_master()
        self.send(300)
        for broker_id, size in ((1, 128 * 1024), (2, 48 * 1024)):
            slave = self.slave(broker_id, mappedFileSizeCommitLog=str(size))
            wait_until(lambda slave=slave: "mappedFileSizeCommitLog" in slave.plugin.follower.fault,
                       "it says which setting differs")
            wait_until(lambda slave=slave: not slave.plugin.follower.is_connected, "it stops")
            self.assertLessEqual(slave.end, 64 * 1024)
            self.assertGreater(slave.end, 0)
            self.assertTrue(identical(self.folder / "master/store/commitlog",
                                      slave.data / "commitlog", slave.end))

    def test_sends_wait_for_a_slave_that_flushes(self) -> None:
        """The slave reports the bytes that are on its disk."""
        self.start_master(brokerRole="SYNC_MASTER", inSyncReplicas="2")
        slave = self.slave(**{"ha.report_flushed": "true"})
        wait_until(lambda: self.plugin().slaves.links, "the slave is there")
        with self.master.client() as client:
            for _ in range(20):
                reply = client.request(RequestCode.SEND_MESSAGE_V2, send_header("T", 1), b"body")
                self.assertEqual(reply.code, ResponseCode.SUCCESS)
                self.assertEqual(slave.kernel.store.commit_log.flushed_offset, self.end)

    def test_a_sender_that_does_not_wait(self) -> None:
        """With WAIT=false no send waits for the slave, whether it is connected or not."""
        self.start_master(brokerRole="SYNC_MASTER", inSyncReplicas="2", slaveTimeout="500")
        waits = self.plugin().slaves.waits
        hasty = send_header("T", 1, properties={"WAIT": "false"})
        with RawClient(self.master.broker_address, 30) as client:
            def code(header: SendMessageRequestHeaderV2) -> int:
                return client.request(RequestCode.SEND_MESSAGE_V2, header, b"body").code

            self.assertEqual(code(send_header("T", 1)), ResponseCode.FLUSH_SLAVE_TIMEOUT)
            self.assertEqual((code(hasty), waits.waits), (ResponseCode.SUCCESS, 1))
            # The slave acknowledges what waits for it, however busy the machine is.
            self.master.call(self.master.kernel.settings.put, "slaveTimeout", 20_000)
            slave = self.slave()
            wait_until(lambda: self.plugin().slaves.links, "the slave is there")
            self.assertEqual((code(hasty), waits.waits), (ResponseCode.SUCCESS, 1))
            self.caught_up(slave)
            self.assertEqual((code(send_header("T", 1)), waits.waits), (ResponseCode.SUCCESS, 2))

    def test_figures_of_a_pair(self) -> None:
        """haStatus, metrics and health of both sides; the health is bad when they differ."""
        self.start_master()
        slave = self.slave()
        self.send(50)
        wait_until(lambda: self.plugin().slaves.links, "the slave is there")
        [link] = self.plugin().slaves.links
        wait_until(lambda: link.sender.acked == self.end, "all is reported")
        with self.master.client() as client:
            status = HARuntimeInfo.decode(client.request(RequestCode.GET_BROKER_HA_STATUS).body)
        [row] = status.ha_connection_info
        self.assertEqual((status.master, status.in_sync_slave_nums, row.diff, row.in_sync,
                          row.slave_ack_offset), (True, 1, 0, True, self.end))
        with slave.client() as client:
            status = HARuntimeInfo.decode(client.request(RequestCode.GET_BROKER_HA_STATUS).body)
        own = status.ha_client_runtime_info
        self.assertEqual((status.master, own.max_offset, own.activated, own.master_addr),
                         (False, self.end, True, slave.plugin.master.replication))
        self.assertGreater(own.last_read_timestamp, 0)
        for plugin, names in ((self.plugin(), {"ha_slave_behind_bytes", "ha_slaves"}),
                              (slave.plugin, {"ha_master_connected", "ha_received_bytes"})):
            self.assertLessEqual(names, {each.name for each in plugin.collect_metrics()})
        self.assertEqual(slave.kernel.health_checks["replication"](), "")
        slave.thread.call(slave.plugin.follower.stop)
        wait_until(lambda: not self.plugin().slaves.links, "the slave is gone")
        self.master.call(self.master.kernel.store.log_cut.truncate, 0)
        slave.thread.call(slave.plugin.follower.start)
        check = slave.kernel.health_checks["replication"]
        wait_until(lambda: "the master's log at 0" in check(), "the health tells it")
        self.assertEqual(self.plugin().slaves.links, [])
