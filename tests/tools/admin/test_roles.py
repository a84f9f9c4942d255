"""``promoteSlave`` and ``followMaster`` on a master and a slave with sockets."""

from __future__ import annotations

from contextlib import ExitStack

from twisted.trial.unittest import SynchronousTestCase

from tests.plugins.ha.pair import wait_until
from twistmq.broker.testing import RunningBroker, running_broker
from twistmq.protocol.errors import BrokerError, StoreError
from twistmq.tools.admin import roles
from twistmq.tools.admin.roles import follow_master, promote_slave
from twistmq.tools.admin.rows import Row
from twistmq.tools.admin.session import AdminError, Session


class CommandTests(SynchronousTestCase):
    """The commands, and their effects on two brokers of one name."""

    def setUp(self) -> None:
        stack = self.stack = ExitStack()
        self.addCleanup(stack.close)
        self.first = stack.enter_context(running_broker({"brokerName": "a"}))
        self.names = self.first.namesrv_address
        self.second = stack.enter_context(running_broker({
            "brokerName": "a", "brokerRole": "SLAVE", "brokerId": "1",
            "namesrvAddr": self.names}))

    def promote(self, broker: RunningBroker, **options: bool) -> list[Row]:
        given = {"switch": False, "force": False, "dry": False, **options}
        with Session(self.names) as session:
            return list(promote_slave(session, broker=broker.broker_address, **given))

    def follow(self, broker: RunningBroker, master: RunningBroker, slave_id: int = 2,
               *, dry: bool = False) -> list[Row]:
        with Session(self.names) as session:
            return list(follow_master(
                session, broker=broker.broker_address, master=master.broker_address,
                slave_id=slave_id, dry=dry))

    def roles(self) -> tuple[str, str]:
        return self.first.kernel.role, self.second.kernel.role

    def members(self) -> dict[int, str]:
        with Session(self.names) as session:
            return session.cluster_info().broker_addr_table["a"].broker_addrs

    def test_a_slave_whose_master_lives_is_not_promoted(self) -> None:
        """The master must become a slave, or the operator must force it."""
        self.assertIn("is running", str(self.assertRaises(AdminError, self.promote, self.second)))
        self.assertEqual(self.roles(), ("ASYNC_MASTER", "SLAVE"))
        rows = self.promote(self.second, force=True, dry=True)
        self.assertEqual([row[2] for row in rows], ["check", "check", "dry run"])
        self.assertEqual(self.roles(), ("ASYNC_MASTER", "SLAVE"))

    def test_a_slave_that_cannot_read_its_log_is_not_promoted(self) -> None:
        """The dry run reports it as well."""
        fault = "the message at 7 of the commit log cannot be read"
        self.second.kernel.store.dispatch.damage = fault
        for options in ({"dry": True}, {"force": True}, {"switch": True}):
            error = self.assertRaises(AdminError, self.promote, self.second, **options)
            self.assertEqual(str(error), fault)
        self.assertEqual(self.roles(), ("ASYNC_MASTER", "SLAVE"))
        self.second.kernel.store.dispatch.damage = ""

    def test_a_slave_whose_disk_failed_is_not_promoted(self) -> None:
        """The living master continues."""
        flush = self.second.kernel.store.flush
        flush.failure = StoreError("the commit log cannot be flushed")
        for options in ({"dry": True}, {"force": True}, {"switch": True}):
            error = self.assertRaises(AdminError, self.promote, self.second, **options)
            self.assertEqual(str(error), "the commit log cannot be flushed")
        self.assertEqual(self.roles(), ("ASYNC_MASTER", "SLAVE"))
        flush.failure = None

    def test_a_slave_that_stands_in_is_a_slave(self) -> None:
        """It can be promoted, and no broker follows it, although it is active."""
        self.second.kernel.identity.is_acting = True
        rows = self.promote(self.second, force=True, dry=True)
        self.assertEqual(rows[0][2], "check")
        error = self.assertRaises(AdminError, self.follow, self.first, self.second)
        self.assertEqual(str(error), f"{self.second.broker_address} is not a master")

    def test_master_and_slave_change_places(self) -> None:
        """Each step is a row; the name server knows both by their new ids."""
        rows = self.promote(self.second, switch=True)
        self.assertEqual([(row[1], row[2]) for row in rows], [
            (self.second.broker_address, "check"), (self.first.broker_address, "check"),
            (self.first.broker_address, "become slave"), (self.second.broker_address, "catch up"),
            (self.second.broker_address, "become master"), (self.second.broker_address, "verify")])
        self.assertIn("it is SLAVE now, and that is saved in its settings", str(rows[2][3]))
        self.assertIn("it is ASYNC_MASTER now; its settings must have", str(rows[4][3]))
        self.assertEqual(self.roles(), ("SLAVE", "ASYNC_MASTER"))
        # Each registers by itself.
        wait_until(lambda: self.members() == {
            0: self.second.broker_address, 1: self.first.broker_address}, "both are registered")
        self.assertIn("already",
                      str(self.assertRaises(AdminError, self.promote, self.second)))

    def test_a_slave_without_a_master_is_promoted(self) -> None:
        """The master was lost; it follows when it returns."""
        self.promote(self.second, force=True)
        self.assertEqual(self.roles(), ("ASYNC_MASTER", "ASYNC_MASTER"))
        self.assertRaises(AdminError, self.follow, self.first, self.first)
        self.assertRaises(AdminError, self.follow, self.first, self.second, 0)
        rows = self.follow(self.first, self.second, dry=True)
        self.assertEqual([row[2] for row in rows], ["check", "check", "dry run"])
        rows = self.follow(self.first, self.second)
        self.assertEqual([row[2] for row in rows], ["check", "check", "become slave", "verify"])
        self.assertEqual(self.roles(), ("SLAVE", "ASYNC_MASTER"))
        self.assertEqual(self.first.kernel.broker_id, 2)
        self.assertRaises(AdminError, self.follow, self.second, self.first)
        self.assertRaises(AdminError, self.follow, self.first, self.second)

    def test_a_broker_that_is_named_by_another_address(self) -> None:
        """An operator may use localhost, although the brokers use other addresses."""
        first, second = (each.broker_address.replace("127.0.0.1", "localhost")
                         for each in (self.first, self.second))
        with Session(self.names) as session:
            rows = list(promote_slave(session, broker=second, switch=True, force=False, dry=False))
            self.assertEqual([row[2] for row in rows][-2:], ["become master", "verify"])
            self.assertEqual(self.roles(), ("SLAVE", "ASYNC_MASTER"))
            list(promote_slave(session, broker=first, switch=False, force=True, dry=False))
            self.assertRaises(AdminError, list, follow_master(
                session, broker=first, master=self.first.broker_address, slave_id=2, dry=False))
            rows = list(follow_master(session, broker=first, master=second, slave_id=2, dry=False))
            self.assertEqual([row[2] for row in rows][-2:], ["become slave", "verify"])
        self.assertEqual(self.roles(), ("SLAVE", "ASYNC_MASTER"))

    def test_a_slave_that_does_not_catch_up_is_not_promoted(self) -> None:
        """The error has the possible remedies."""
        self.patch(roles, "_CATCH_UP_SECONDS", 0)
        kernel = self.first.kernel
        self.patch(kernel.store.commit_log, "max_offset", 1000)
        error = self.assertRaises(AdminError, self.promote, self.second, switch=True)
        self.assertIn("--force", str(error))
        self.assertEqual(self.roles(), ("SLAVE", "SLAVE"))

    def test_a_broker_that_does_not_answer(self) -> None:
        """The failure is shown, and nothing is changed."""
        with Session(self.names) as session:
            self.assertRaises(BrokerError, list, promote_slave(
                session, broker="127.0.0.1:1", switch=False, force=False, dry=False))
