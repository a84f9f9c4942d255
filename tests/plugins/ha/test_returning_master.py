"""A master that returns: the permission to start, and the offsets that its slaves took."""

from __future__ import annotations

from twisted.internet.defer import Deferred, ensureDeferred
from twisted.logger import capturedLogs, formatEvent

from tests.plugins.ha.group_case import MASTER, SLAVE, GroupCase
from twistmq.broker.errors import SettingsError
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.raw_client import send_header
from twistmq.plugins import ha
from twistmq.plugins.ha.returning_master import return_as_master
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import BrokerError, RemotingTimeout

OTHER = "127.0.0.1:10931"


class ReturnTests(GroupCase):
    """A master with ten messages in a queue; its group is at 5."""

    def setUp(self) -> None:
        super().setUp()
        for _ in range(10):
            self.send()
        self.master.kernel.consumer_offset.commit("peer", "g", "T", 0, 5)
        self.copy_log()
        self.pass_time()
        self.members = {0: MASTER, 1: SLAVE}

    def taking(self, box: KernelBox | None = None) -> Deferred[None]:
        box = box or self.master
        box.host.has_name_servers = True
        box.host.find_members = self.find_members
        return ensureDeferred(return_as_master(box.kernel))

    def commit(self, offset: int) -> None:
        """Commit an offset at the slave."""
        self.slave.kernel.consumer_offset.commit("peer", "g", "T", 0, offset)

    def offset(self) -> int:
        return self.master.kernel.consumer_offset.query("g", "T", 0)

    def test_the_larger_offset_wins(self) -> None:
        """The larger offset of slave and master is kept; one line is logged."""
        self.commit(8)
        with capturedLogs() as events:
            self.successResultOf(self.taking())
        self.assertEqual(self.offset(), 8)
        self.assertIn(f"1 consumer offsets were taken back from the slave at {SLAVE}",
                      [formatEvent(event) for event in events])
        self.commit(2)
        self.successResultOf(self.taking())
        self.assertEqual(self.offset(), 8)

    def test_no_offset_is_behind_the_end_of_its_queue(self) -> None:
        """The master lost these messages; the next ones are not skipped."""
        self.commit(12)
        self.slave.kernel.consumer_offset.commit("peer", "g", "Gone", 0, 7)
        self.successResultOf(self.taking())
        self.assertEqual(self.offset(), 10)
        self.assertEqual(self.master.kernel.consumer_offset.query("g", "Gone", 0), 0)

    def test_a_slave_that_does_not_answer_holds_up_nothing(self) -> None:
        """Silent name servers or invalid tables do not delay the start; each is logged."""
        self.commit(8)
        del self.servers[SLAVE]
        with capturedLogs() as events:
            self.successResultOf(self.taking())
            self.answers[SLAVE, RequestCode.GET_ALL_CONSUMER_OFFSET] = RemotingCommand(0, body=b"x")
            self.successResultOf(self.taking())
            self.members = BrokerError("there are no name servers")
            self.successResultOf(self.taking())
        lines = [formatEvent(event) for event in events]
        self.assertEqual(sum("taken back" in line for line in lines), 3, lines)
        self.assertEqual(self.offset(), 5)

    def test_only_a_master_with_messages_asks(self) -> None:
        """A slave, or a broker with an empty log, does not ask."""
        self.asked.clear()
        self.successResultOf(self.taking(self.slave))
        self.master.stop()
        self.master_disk = type(self.master_disk)()
        self.master = self.start_master()
        self.successResultOf(self.taking())
        self.assertEqual(self.asked, [])

    def test_a_name_with_a_live_master_has_no_second_one(self) -> None:
        """The error explains how to start; an old entry at name servers does not
        prevent a start.
        """
        self.slave.kernel.set_role("ASYNC_MASTER", 0)
        self.members = {0: SLAVE}
        error = self.failureResultOf(self.taking(), SettingsError)
        name = self.master.kernel.broker_name
        self.assertIn(f": the value cannot be used: the broker name {name} has a live master, "
                      f"{SLAVE}. If you made that broker the master, start this one as its slave, "
                      "with brokerRole=SLAVE and a brokerId above 0. If you do not know that "
                      "broker, start this one with ha.other_master=true", str(error.value))
        self.slave.ask(RequestCode.SEND_MESSAGE_V2, send_header("T", self.slave.now_ms), b"after")
        self.failureResultOf(self.taking(), SettingsError)
        self.slave.kernel.set_role("SLAVE", 1)
        self.successResultOf(self.taking())
        del self.servers[SLAVE]
        self.successResultOf(self.taking())
        self.members = {0: self.master.kernel.broker_address}
        self.successResultOf(self.taking())

    def stranger(self) -> list[str]:
        """A broker that has other messages registers as the master; :returns: the lines of a start.
        """
        stranger = KernelBox(self.plugins, {"brokerName": "stranger"})
        self.addCleanup(stranger.stop)
        for _ in range(20):
            stranger.now_ms += 1
            reply = stranger.ask(RequestCode.SEND_MESSAGE_V2, send_header("T", 1), b"y")
            self.assertEqual(reply.code, 0)
        self.servers[OTHER] = stranger
        self.members = {0: OTHER, 1: SLAVE}
        with capturedLogs() as events:
            self.successResultOf(self.taking())
        return [formatEvent(event) or "" for event in events]

    def test_a_stranger_keeps_no_master_away(self) -> None:
        """Its log has other messages; the offsets of the slave are taken in spite of it."""
        self.commit(8)
        lines = self.stranger()
        self.assertIn(f"name servers know {OTHER} as the master broker-a, but its log has none of "
                      "the messages here", lines[0])
        self.assertEqual(self.offset(), 8)

    def test_a_log_that_cannot_be_compared(self) -> None:
        """The broker does not start, and joins no group blindly; a setting lets it start."""
        self.stranger()
        for code, answer, words in (
                (RequestCode.VIEW_MESSAGE_BY_ID, RemotingCommand(ResponseCode.NO_PERMISSION),
                 "it answered 16: no remark"),
                (RequestCode.VIEW_MESSAGE_BY_ID, RemotingTimeout("no reply"), "no reply"),
                (RequestCode.GET_BROKER_RUNTIME_INFO, RemotingCommand(0, body=b'{"table":{}}'),
                 "does not report where its log begins and ends"),
                (RequestCode.GET_BROKER_RUNTIME_INFO, RemotingCommand(0, body=(
                    b'{"table":{"commitLogMinOffset":"0","commitLogMaxOffset":"1'
                    + b"0" * 5000 + b'"}}')),
                 "does not report where its log begins and ends"),
                (RequestCode.GET_BROKER_RUNTIME_INFO, RemotingCommand(0, body=(
                    b'{"table":{"commitLogMinOffset":"0","commitLogMaxOffset":"0"}}')),
                 "its log reaches from 0 to 0"),
                (RequestCode.GET_BROKER_RUNTIME_INFO, RemotingCommand(0, body=(
                    b'{"table":{"commitLogMinOffset":"1048576","commitLogMaxOffset":"9999999"}}')),
                 "its log reaches from 1048576 to 9999999")):
            self.answers = {(OTHER, code): answer}
            error = self.failureResultOf(self.taking(), SettingsError)
            self.assertIn("whose log cannot be compared with the one here", str(error.value))
            self.assertIn(words, str(error.value))
            self.assertIn("If you do not know that broker, start this one with "
                          "ha.other_master=true", str(error.value))
        self.master.kernel.settings.put("ha.other_master", True)
        self.commit(8)
        with capturedLogs() as events:
            self.successResultOf(self.taking())
        self.assertIn("because of ha.other_master=true", formatEvent(events[0]) or "")
        self.assertEqual(self.offset(), 8)

    def test_a_stranger_that_says_it_is_a_slave(self) -> None:
        """The offsets of a broker with another log would skip messages, so they are not taken."""
        self.stranger()
        box = self.servers[OTHER]
        box.kernel.set_role("SLAVE", 2)
        box.kernel.consumer_offset.commit("peer", "g", "T", 0, 9)
        self.members = {0: MASTER, 1: SLAVE, 2: OTHER}
        self.asked.clear()
        with capturedLogs() as events:
            self.successResultOf(self.taking())
        self.assertEqual(self.offset(), 5)
        self.assertNotIn((OTHER, RequestCode.GET_ALL_CONSUMER_OFFSET), self.asked)
        self.assertIn(f"the consumer offsets of the slave at {OTHER} cannot be taken back: its log "
                      "has none of the messages here", [formatEvent(event) for event in events])

    def test_it_is_done_within_the_start(self) -> None:
        """Before the broker answers requests: the hook of the start waits for it."""
        self.commit(8)
        self.master.kernel.host.has_name_servers = True  # type: ignore[misc]
        found: Deferred[dict[int, str]] = Deferred()

        async def find_members(broker_name: str) -> dict[int, str]:
            return await found

        self.master.host.find_members = find_members  # type: ignore[method-assign]
        started = self.master.plugin(ha.Plugin).on_start()
        self.assertNoResult(started)
        found.callback({1: SLAVE})
        self.successResultOf(started)
        self.assertEqual(self.offset(), 8)
