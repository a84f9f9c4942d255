"""A slave without its master."""

from __future__ import annotations

from typing import ClassVar
from unittest.mock import Mock

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionAborted
from twisted.internet.protocol import Factory
from twisted.internet.testing import StringTransport
from twisted.logger import capturedLogs, formatEvent
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from tests.plugins.ha.group_case import MASTER, GroupCase
from twistmq.broker.client.name_servers import Registered
from twistmq.broker.errors import StoreFull
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.raw_client import send_header
from twistmq.broker.testing.store import message
from twistmq.plugins import ha
from twistmq.plugins.ha.frames import encode_head, encode_report
from twistmq.plugins.ha.links import CLOSED, MasterLink
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import StoreError
from twistmq.protocol.headers.offset import UpdateConsumerOffsetRequestHeader
from twistmq.protocol.record import encode_record, record_size

PORT = "10.0.0.1:10912"
MASTER_HA, VIP, STRANGER = "127.0.0.1:10912", "127.0.0.1:10909", "127.0.0.1:10931"


class FollowerTests(SynchronousTestCase):
    """The health of a slave, by the clock of the test."""

    def test_its_health_is_bad_after_thirty_seconds(self) -> None:
        """The fault is reported after thirty seconds, and only while the broker is a slave."""
        box = KernelBox([("ha", ha.Plugin)], {"brokerRole": "SLAVE", "brokerId": "1"})
        self.addCleanup(box.stop)
        check = box.kernel.health_checks["replication"]
        follower = box.plugin(ha.Plugin).follower
        follower.tick()
        box.now_ms += 29_999
        self.assertEqual(check(), "")
        box.now_ms += 1
        self.assertIn("the master was not heard for 30 s", check())
        follower.stop()
        self.assertEqual(check(), "")


class ShutOutTests(SynchronousTestCase):
    """A slave whose master closes each of its connections immediately."""

    def setUp(self) -> None:
        self.box = KernelBox([("ha", ha.Plugin)], {
            "brokerRole": "SLAVE", "brokerId": "1", "haMasterAddress": PORT})
        self.addCleanup(self.box.stop)
        self.follower = self.box.plugin(ha.Plugin).follower
        self.follower.start()
        self.patch(self.box.kernel.host, "connect_stream", self.connect)

    async def connect(self, factory: Factory, address: str, **_: object) -> None:
        """Accept each connection."""
        self.link = factory.buildProtocol(None)
        assert isinstance(self.link, MasterLink)
        self.link.makeConnection(StringTransport())

    def one_try(self, heard: bytes = b"") -> tuple[list[str], int]:
        """Connect, hear that, and lose the connection; :returns: the lines, and the pause, ms."""
        with capturedLogs() as events:
            self.successResultOf(Deferred.fromCoroutine(self.follower._connect(PORT, 0)))
            if heard:
                self.link.dataReceived(heard)
                self.follower.tick()
            self.follower._ended(self.link, CLOSED)
        return [formatEvent(event) for event in events], self.follower._try_ms - self.box.now_ms

    def test_it_waits_longer_each_time_and_says_once_why(self) -> None:
        """The log line names the setting of the master that may be wrong."""
        lines, pause_ms = self.one_try()
        self.assertIn(f"connected to master {PORT}", lines[0])
        self.assertIn("closed the connection before it sent anything, as a master does if its "
                      "ha.peers do not list this host", lines[1])
        pauses = [pause_ms]
        for _ in range(5):
            self.box.now_ms += pause_ms
            lines, pause_ms = self.one_try()
            self.assertEqual(lines, [])
            pauses.append(pause_ms)
        self.assertEqual(pauses, [500, 1000, 2000, 4000, 5000, 5000])

    def test_a_master_that_is_silent_is_tried_again_soon(self) -> None:
        """The connection is closed, and the next attempt follows after the first pause."""
        self.successResultOf(Deferred.fromCoroutine(self.follower._connect(PORT, 0)))
        self.link.dataReceived(encode_head(0, 0))
        self.follower.tick()
        transport = self.link.transport
        assert isinstance(transport, StringTransport)
        self.box.now_ms += self.box.kernel.settings.int("haHousekeepingInterval")
        self.follower.tick()
        self.assertFalse(transport.disconnecting or transport.disconnected)
        self.box.now_ms += 1
        self.follower.tick()
        self.assertTrue(transport.disconnecting or transport.disconnected)
        self.link.connectionLost(Failure(ConnectionAborted()))
        self.assertFalse(self.follower.is_connected)
        self.assertEqual(self.follower._try_ms - self.box.now_ms, 500)

    def test_its_health_is_bad_though_it_connects_again_and_again(self) -> None:
        """A connection counts once it has brought something, whether it is open or not."""
        check = self.box.kernel.health_checks["replication"]
        for _ in range(5):
            self.assertEqual(check(), "")
            self.one_try()
            self.box.now_ms += 6000
        self.assertIn("ha.peers", check())
        self.successResultOf(Deferred.fromCoroutine(self.follower._connect(PORT, 0)))
        self.assertTrue(self.follower.is_connected)
        self.assertIn("ha.peers", check())
        self.link.dataReceived(b"x" * 12)
        self.assertIn("ha.peers", check())

    def test_its_health_is_bad_when_the_same_bytes_are_refused_again_and_again(self) -> None:
        """The slave connects and receives bytes each time, but they are the same
        and are refused.
        """
        check = self.box.kernel.health_checks["replication"]
        pauses = []
        with capturedLogs() as lines:
            for _ in range(7):
                self.box.now_ms += 5000
                self.successResultOf(Deferred.fromCoroutine(self.follower._connect(PORT, 0)))
                for data in (encode_head(0, 0), encode_head(0, 200) + b"x" * 200):
                    self.link.dataReceived(data)
                    self.follower.tick()
                    check()
                self.link.connectionLost(Failure(ConnectionAborted()))
                pauses.append(self.follower._try_ms - self.box.now_ms)
        self.assertIn("no record of this log can begin", check())
        self.assertEqual(pauses[-2:], [5000, 5000])
        self.assertEqual(len([line for line in lines if "no record" in formatEvent(line)]), 1)

    def test_its_health_is_good_when_the_master_has_nothing_to_send(self) -> None:
        """This happens when a wrong address, whose bytes were refused, is corrected."""
        check = self.box.kernel.health_checks["replication"]
        self.one_try()
        self.successResultOf(Deferred.fromCoroutine(self.follower._connect(PORT, 0)))
        self.link.dataReceived(encode_head(0, 200) + b"x" * 200)
        self.link.connectionLost(Failure(ConnectionAborted()))
        self.box.now_ms += 31_000
        self.assertIn("no record of this log can begin", check())
        with capturedLogs() as lines:
            self.successResultOf(Deferred.fromCoroutine(self.follower._connect(PORT, 0)))
            self.box.now_ms += 5001
            self.link.dataReceived(encode_head(0, 0))
            self.follower.tick()
        self.assertEqual(check(), "")
        self.assertIn(f"connected to master {PORT}", str(formatEvent(lines[0])))

    def test_it_says_when_the_master_is_heard_again(self) -> None:
        """The next loss of the connection counts from the beginning."""
        for _ in range(3):
            self.one_try()
            self.box.now_ms += 5000
        lines, pause_ms = self.one_try(encode_head(0, 0))
        self.assertIn(f"connected to master {PORT}", lines[0])
        self.assertTrue(lines[1].endswith("is lost: it closed the connection"), msg=lines[1])
        self.assertEqual(pause_ms, 500)
        self.box.now_ms += 29_999
        self.assertEqual(self.box.kernel.health_checks["replication"](), "")

    def test_a_record_that_no_queue_can_have_is_neither_kept_nor_reported(self) -> None:
        """Other records of the same read are dropped too; earlier ones are kept and readable."""
        store = self.box.kernel.store
        good, bad = record_at(0), record_at(record_size(record_at(0)), topic="../x", queue_id=-1)
        self.successResultOf(Deferred.fromCoroutine(self.follower._connect(PORT, 0)))
        transport = self.link.transport
        self.link.dataReceived(encode_head(0, len(good)) + good)
        self.assertEqual(transport.value()[-8:], encode_report(len(good)))
        transport.clear()
        with capturedLogs() as lines:
            self.link.dataReceived(encode_head(len(good), len(bad)) + bad)
            self.link.connectionLost(Failure(ConnectionAborted()))
        self.assertEqual((transport.value(), transport.disconnecting), (b"", True))
        self.assertEqual(store.commit_log.max_offset, len(good))
        [line] = [str(formatEvent(line)) for line in lines]
        self.assertIn(f"the record at {len(good)} of the other log cannot be stored: its queue id "
                      "-1 is negative", line)
        while store.dispatch.step():
            continue
        self.assertEqual(len(self.box.stored("T", 0)), 1)

    def test_a_log_that_takes_nothing_is_reported_as_it_was(self) -> None:
        """The report follows the append, and is omitted if the append fails."""
        good = record_at(0)
        for error in (StoreFull("the disk is full"), StoreError("the disk fails")):
            self.successResultOf(Deferred.fromCoroutine(self.follower._connect(PORT, 0)))
            transport = self.link.transport
            transport.clear()

            self.patch(self.box.kernel.store.raw, "append", Mock(side_effect=error))
            self.link.dataReceived(encode_head(0, len(good)) + good)
            self.assertEqual((transport.value(), transport.disconnecting), (b"", True))
            self.link.connectionLost(Failure(ConnectionAborted()))
            self.assertIn(str(error), self.follower.fault)
        self.assertEqual(self.box.kernel.store.commit_log.max_offset, 0)

    def test_it_is_reported_once_it_is_appended(self) -> None:
        """The log has the bytes when the report is sent."""
        good = record_at(0)
        self.successResultOf(Deferred.fromCoroutine(self.follower._connect(PORT, 0)))
        ends: list[int] = []
        report = self.link.report

        def note(offset: int) -> None:
            ends.append(self.box.kernel.store.commit_log.max_offset)
            report(offset)

        self.patch(self.link, "report", note)
        self.link.dataReceived(encode_head(0, len(good)) + good)
        self.assertEqual(ends, [len(good)])


class SourceTests(GroupCase):
    """A stranger registers as the master of a slave that follows another one."""

    master_settings: ClassVar[dict[str, str]] = {"brokerIP2": "127.0.0.1"}
    slave_settings: ClassVar[dict[str, str]] = {"ha.master": ""}

    def setUp(self) -> None:
        super().setUp()
        self.follower = self.slave.plugin(ha.Plugin).follower
        self.slave.host.connect_stream = self.connect  # type: ignore[method-assign]
        self.connected: list[str] = []
        self.send()
        self.tell(MASTER, MASTER_HA)

    async def connect(self, factory: Factory, address: str, **_: object) -> None:
        """Accept each connection."""
        self.connected.append(address)
        link = factory.buildProtocol(None)
        assert link is not None
        link.makeConnection(StringTransport())

    def tell(self, requests: str, replication: str) -> None:
        """Let name servers name the master; the slave connects if it has no connection."""
        self.slave.kernel.registered([Registered(requests, replication, {})])

    def lose(self) -> None:
        """Lose the connection, and wait for the next attempt."""
        link = self.follower.link
        assert link is not None
        link.connectionLost(Failure(ConnectionAborted()))
        self.slave.now_ms += 60_000

    def test_tables_come_from_the_master_that_is_followed(self) -> None:
        """Tables come from it even if name servers name another broker; without a
        connection, none.
        """
        self.assertEqual((self.connected, self.follower.source), ([MASTER_HA], MASTER))
        self.copy_log()
        self.tell(STRANGER, STRANGER)
        self.asked.clear()
        self.pass_time()
        self.assertEqual({address for address, _ in self.asked}, {MASTER, VIP})
        self.assertIn("T", self.slave.kernel.topic_config.table)
        self.lose()
        self.assertEqual(self.follower.source, "")
        self.asked.clear()
        self.pass_time()
        self.assertEqual(self.asked, [])

    def test_another_log_is_not_followed(self) -> None:
        """The slave requests no tables from that broker, only the range of its log."""
        self.copy_log()
        stranger = KernelBox(self.plugins)
        self.addCleanup(stranger.stop)
        for _ in range(9):
            stranger.now_ms += 1
            reply = stranger.ask(RequestCode.SEND_MESSAGE_V2, send_header("Evil", 1), b"y")
            self.assertEqual(reply.code, 0)
        self.servers[STRANGER] = stranger
        self.lose()
        self.asked.clear()
        self.tell(STRANGER, STRANGER)
        self.pass_time()
        self.assertEqual(set(self.asked), {(STRANGER, RequestCode.GET_BROKER_RUNTIME_INFO),
                                           (STRANGER, RequestCode.VIEW_MESSAGE_BY_ID)})
        self.assertEqual((self.connected, self.follower.is_connected), ([MASTER_HA], False))
        self.assertNotIn("Evil", self.slave.kernel.topic_config.table)
        self.lost_offset()

    def lost_offset(self) -> None:
        """A commit at the slave is not handed on to the stranger."""
        self.slave.ask(RequestCode.UPDATE_CONSUMER_OFFSET,
                       UpdateConsumerOffsetRequestHeader("g", "T", 0, 1))
        self.assertNotIn((STRANGER, RequestCode.UPDATE_CONSUMER_OFFSET), self.asked)

    def test_the_log_comes_from_where_the_master_says(self) -> None:
        """A stranger may register the master's address with its own port for replication."""
        self.lose()
        self.tell(MASTER, STRANGER)
        self.assertEqual((self.connected, self.follower.source), ([MASTER_HA, MASTER_HA], MASTER))
        # Apache's master does not say it.
        self.answers[MASTER, RequestCode.GET_BROKER_RUNTIME_INFO] = RemotingCommand(0, body=(
            b'{"table":{"commitLogMinOffset":"0","commitLogMaxOffset":"99"}}'))
        self.lose()
        self.tell(MASTER, STRANGER)
        self.assertEqual(self.connected[2:], [STRANGER])

    def test_the_address_that_the_settings_give_wins(self) -> None:
        """The master is asked for tables before its log is followed."""
        self.lose()
        self.slave.kernel.settings.put("ha.master", MASTER)
        self.slave.kernel.settings.put("haMasterAddress", PORT)
        self.assertEqual(self.follower.source, MASTER)
        self.tell(STRANGER, STRANGER)
        self.assertEqual((self.connected[-1], self.follower.source), (PORT, MASTER))


def record_at(place: int, topic: str = "T", queue_id: int = 0) -> bytes:
    """Return a record as it is in a master's log."""
    record = message(topic, queue_id=queue_id)
    record.physical_offset, record.store_timestamp = place, 1_700_000_000_000
    return encode_record(record)
