"""Offsets that consumers commit at a slave."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from twisted.logger import capturedLogs

from tests.plugins.ha.group_case import MASTER, GroupCase
from twistmq.broker.testing.kernel import KernelBox
from twistmq.plugins import ha
from twistmq.plugins.ha.follower import Follower
from twistmq.protocol.bodies import SubscriptionGroupConfig
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import RemotingConnectError
from twistmq.protocol.headers.offset import UpdateConsumerOffsetRequestHeader

CODE = RequestCode.UPDATE_CONSUMER_OFFSET


class CommitTests(GroupCase):
    """A consumer that uses the slave as its master, as after a change of roles."""

    def setUp(self) -> None:
        super().setUp()
        for _ in range(5):
            self.send()
        self.master.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None,
                        SubscriptionGroupConfig("g").encode())
        self.copy_log()
        self.pass_time()
        self.asked.clear()

    def commit(self, offset: int, *, master_lives: bool) -> RemotingCommand:
        """Commit an offset at the slave."""
        follower = self.slave.plugin(ha.Plugin).follower
        with patch.object(Follower, "hears_master", master_lives):
            assert follower.hears_master == master_lives
            return self.slave.ask(CODE, UpdateConsumerOffsetRequestHeader("g", "T", 0, offset))

    def offset(self, box: KernelBox) -> int:
        return box.kernel.consumer_offset.query("g", "T", 0)

    def test_the_master_has_it(self) -> None:
        """The next copy of the master's table therefore keeps the offset."""
        self.assertEqual(self.commit(3, master_lives=True).code, ResponseCode.SUCCESS)
        self.assertEqual((self.offset(self.master), self.offset(self.slave)), (3, 3))
        self.pass_time()
        self.assertEqual(self.offset(self.slave), 3)

    def test_the_master_refuses_it(self) -> None:
        """The consumer gets the refusal, and the slave does not keep the offset."""
        reply = self.commit(99, master_lives=True)
        self.assertEqual(reply.code, ResponseCode.INVALID_PARAMETER)
        self.assertIn("beyond the end", reply.remark or "")
        self.assertEqual(self.offset(self.slave), -1)

    def test_the_master_has_more_than_the_slave(self) -> None:
        """Consumers may have read messages that the slave does not have yet."""
        self.send()
        self.assertEqual(self.commit(6, master_lives=True).code, ResponseCode.SUCCESS)
        self.assertEqual((self.offset(self.master), self.offset(self.slave)), (6, -1))

    def test_a_master_that_does_not_take_requests_of_the_slave(self) -> None:
        """The consumer gets no refusal, and the slave keeps the offset."""
        self.answers[MASTER, CODE] = RemotingCommand(code=ResponseCode.NO_PERMISSION)
        self.assertEqual(self.commit(2, master_lives=True).code, ResponseCode.SUCCESS)
        self.assertEqual((self.offset(self.master), self.offset(self.slave)), (-1, 2))

    def test_the_offset_is_that_of_a_part_of_a_static_topic(self) -> None:
        """The slave has already mapped the logical queue; the master must not map it again."""
        headers = []

        async def ask(address: str, code: int, header: Any, body: bytes = b"", **_: Any
                      ) -> RemotingCommand:
            headers.append(header)
            return RemotingCommand(code=ResponseCode.SUCCESS)

        self.patch(self.slave.host, "ask_server", ask)
        self.commit(2, master_lives=True)
        self.assertEqual([header.lo for header in headers], [False])

    def test_a_slave_without_its_master_keeps_it(self) -> None:
        """No master is asked."""
        self.assertEqual(self.commit(2, master_lives=False).code, ResponseCode.SUCCESS)
        self.assertEqual((self.offset(self.master), self.offset(self.slave)), (-1, 2))
        self.assertNotIn((MASTER, CODE), self.asked)

    def test_a_master_is_told_what_was_kept_before_it_was_heard(self) -> None:
        """Otherwise the copy of its table would replace the offset by the old one."""
        self.commit(3, master_lives=False)
        self.pass_time()
        self.assertEqual((self.offset(self.master), self.offset(self.slave)), (3, 3))
        self.asked.clear()
        self.pass_time()
        self.assertNotIn((MASTER, CODE), self.asked)

    def test_a_master_that_has_more_is_told_nothing(self) -> None:
        """Its consumers have advanced further in the meantime."""
        self.commit(2, master_lives=False)
        self.master.ask(CODE, UpdateConsumerOffsetRequestHeader("g", "T", 0, 4))
        self.pass_time()
        self.assertEqual((self.offset(self.master), self.offset(self.slave)), (4, 4))
        self.assertNotIn((MASTER, CODE), self.asked)

    def test_what_was_kept_is_kept_until_the_master_has_it(self) -> None:
        """A master that only sends its table can accept the offset later."""
        self.commit(2, master_lives=False)
        self.answers[MASTER, CODE] = RemotingConnectError(f"cannot connect to {MASTER}")
        self.pass_time()
        self.assertEqual((self.offset(self.master), self.offset(self.slave)), (-1, 2))
        del self.answers[MASTER, CODE]
        self.pass_time()
        self.assertEqual((self.offset(self.master), self.offset(self.slave)), (2, 2))

    def test_a_broker_that_was_master_meanwhile_tells_nothing_of_before(self) -> None:
        """Those offsets were committed to the broker's own table."""
        self.commit(2, master_lives=False)
        for role, broker_id in (("ASYNC_MASTER", 0), ("SLAVE", 1)):
            self.slave.kernel.set_role(role, broker_id)
        self.pass_time()
        self.assertNotIn((MASTER, CODE), self.asked)

    def test_an_offset_that_a_tool_has_reset_at_the_master(self) -> None:
        """The slave does not keep the old offset; the next copy contains the new one."""
        self.commit(4, master_lives=True)
        self.master.kernel.consumer_offset.reset("g", "T", 0, 1)
        reply = self.commit(5, master_lives=True)
        self.assertIn("previously reset", reply.remark or "")
        self.assertEqual(self.offset(self.slave), 4)
        self.pass_time()
        self.assertEqual((self.offset(self.master), self.offset(self.slave)), (1, 1))

    def test_a_reset_at_the_master_wins_over_what_was_kept(self) -> None:
        """The group was reset before the master got the offset."""
        self.commit(4, master_lives=False)
        self.master.kernel.consumer_offset.reset("g", "T", 0, 1)
        self.pass_time()
        self.assertIn((MASTER, CODE), self.asked)
        self.assertEqual((self.offset(self.master), self.offset(self.slave)), (1, 1))

    def test_what_a_reset_refuses_is_not_kept(self) -> None:
        """The slave was a master when a tool reset the group."""
        self.slave.kernel.consumer_offset.reset("g", "T", 0, 1)
        self.assertIn("previously reset", self.commit(4, master_lives=False).remark or "")
        self.pass_time()
        self.assertNotIn((MASTER, CODE), self.asked)

    def test_a_broker_that_becomes_master_while_it_tells_the_old_one(self) -> None:
        """The old table arrives too late."""
        self.commit(4, master_lives=False)
        ask = self.slave.host.ask_server

        async def slowly(address: str, code: int, header: Any, body: bytes = b"", **more: Any
                         ) -> RemotingCommand:
            if code == CODE:
                self.slave.kernel.set_role("ASYNC_MASTER", 0)
                self.slave.ask(CODE, UpdateConsumerOffsetRequestHeader("g", "T", 0, 5))
                raise RemotingConnectError(f"cannot connect to {MASTER}")
            return await ask(address, code, header, body, **more)

        self.patch(self.slave.host, "ask_server", slowly)
        self.pass_time()
        self.assertEqual(self.offset(self.slave), 5)
        self.slave.kernel.set_role("SLAVE", 1)
        self.assertFalse(self.slave.plugin(ha.Plugin)._commits.has_kept)

    def test_a_master_that_does_not_answer(self) -> None:
        """The offset is kept as without a master, and one line is logged."""
        self.answers[MASTER, CODE] = RemotingConnectError(f"cannot connect to {MASTER}")
        with capturedLogs() as lines:
            for offset in (1, 2):
                reply = self.commit(offset, master_lives=True)
                self.assertEqual(reply.code, ResponseCode.SUCCESS)
        self.assertEqual(self.offset(self.slave), 2)
        self.assertEqual(len([line for line in lines if "does not accept offsets" in str(line)]), 1)

    def test_a_master_keeps_it(self) -> None:
        """A broker that has become master keeps the offset."""
        self.slave.kernel.set_role("ASYNC_MASTER", 0)
        self.assertEqual(self.commit(2, master_lives=True).code, ResponseCode.SUCCESS)
        self.assertNotIn((MASTER, CODE), self.asked)
        self.assertEqual(self.offset(self.slave), 2)
