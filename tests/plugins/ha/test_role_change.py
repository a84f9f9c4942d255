"""An operator makes a slave the master, and a master a slave."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tests.plugins.ha.group_case import MASTER, SLAVE, GroupCase
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.raw_client import send_header
from twistmq.plugins.ha import Plugin
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.headers.admin import NotifyBrokerRoleChangedRequestHeader

BY_HAND = ("it is ASYNC_MASTER now; its settings must have brokerRole=ASYNC_MASTER and brokerId=0 "
           "before it starts again")


class RoleChangeTests(GroupCase):
    """The request NOTIFY_BROKER_ROLE_CHANGED (1008)."""

    def change(self, box: KernelBox, master: str | None, slave_id: int | None = None
               ) -> RemotingCommand:
        """Tell a broker which one is the master."""
        return box.ask(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, NotifyBrokerRoleChangedRequestHeader(
            master_address=master, master_broker_id=slave_id))

    def with_file(self, box: KernelBox) -> Path:
        """Give a broker a file of settings."""
        handle, path = tempfile.mkstemp()
        os.close(handle)
        self.addCleanup(os.remove, path)
        self.addCleanup(lambda: Path(path + ".bak").unlink(missing_ok=True))
        Path(path).write_text("brokerName=broker-a\nbrokerRole=SLAVE\n")
        box.settings.file = path
        box.settings.is_file_read = True
        box.settings._overridden = frozenset()
        return Path(path)

    def test_a_slave_becomes_master(self) -> None:
        """It handles the rest of its log, stores messages, and is a master after the next start."""
        for _ in range(3):
            self.send()
        self.master.kernel.consumer_offset.commit("peer", "g", "T", 0, 3)
        self.pass_time()
        self.copy_log()
        path = self.with_file(self.slave)
        reply = self.change(self.slave, SLAVE)
        self.assertEqual((reply.code, reply.remark), (
            ResponseCode.SUCCESS, "it is ASYNC_MASTER now, and that is saved in its settings"))
        kernel = self.slave.kernel
        self.assertEqual((kernel.role, kernel.broker_id), ("ASYNC_MASTER", 0))
        self.assertEqual(kernel.consumer_offset.query("g", "T", 0), 3)
        reply = self.slave.ask(RequestCode.SEND_MESSAGE_V2,
                               send_header("T", self.slave.now_ms, queue_id=0), b"new")
        self.assertEqual(reply.code, ResponseCode.SUCCESS)
        self.assertEqual([each.body for each in self.slave.stored("T", 0)],
                         [b"x", b"x", b"x", b"new"])
        self.assertEqual(path.read_text().split(),
                         ["brokerName=broker-a", "brokerRole=ASYNC_MASTER", "brokerId=0"])

    def test_a_topic_that_was_not_copied_is_made_from_its_queues(self) -> None:
        """The master is lost within three seconds, and its acknowledged messages can be read.

        One that was deleted is not made, though a message of it came last, unless its master made
        it again.
        """
        for topic in ("Gone", "Again"):
            self.send(topic)
        self.pass_time()
        for topic in ("Gone", "Again"):
            self.master.kernel.tables.delete_topic(topic)
        self.pass_time()
        self.send("New", queue_id=2)
        self.send("Again")
        self.copy_log()
        self.assertIn("Gone", self.slave.kernel.store.queues.ids_by_topic())
        self.servers.clear()
        self.change(self.slave, SLAVE)
        topics = self.slave.kernel.topic_config
        made = topics.get("New")
        assert made is not None
        self.assertEqual((made.read_queue_nums, made.write_queue_nums, made.perm), (3, 3, 6))
        self.assertEqual([each.body for each in self.slave.stored("New", 2)], [b"x"])
        self.assertIsNone(topics.get("Gone"))
        self.assertIsNotNone(topics.get("Again"))

    def test_a_master_becomes_a_slave(self) -> None:
        """It refuses messages, has the given id, and copies tables."""
        path = self.with_file(self.master)
        reply = self.change(self.master, SLAVE, 3)
        self.assertEqual((reply.code, reply.remark), (
            ResponseCode.SUCCESS, "it is SLAVE now, and that is saved in its settings"))
        kernel = self.master.kernel
        self.assertEqual((kernel.role, kernel.broker_id), ("SLAVE", 3))
        reply = self.master.ask(RequestCode.SEND_MESSAGE_V2,
                                send_header("T", self.master.now_ms, queue_id=0), b"new")
        self.assertNotEqual(reply.code, ResponseCode.SUCCESS)
        self.assertIn("brokerRole=SLAVE", path.read_text())
        self.assertIn("brokerId=3", path.read_text())

    def test_roles_are_exchanged(self) -> None:
        """The old master copies the tables of the new one."""
        self.send()
        self.copy_log()
        self.pass_time()
        self.change(self.master, SLAVE, 1)
        self.change(self.slave, SLAVE)
        self.master.kernel.settings.put("ha.master", SLAVE)
        self.slave.kernel.consumer_offset.commit("peer", "g", "T", 0, 1)
        self.slave, self.master = self.master, self.slave
        self.pass_time()
        self.assertEqual(self.slave.kernel.consumer_offset.query("g", "T", 0), 1)

    def test_a_role_that_it_has_already(self) -> None:
        """Nothing is changed, and the response says so."""
        reply = self.change(self.master, MASTER)
        self.assertEqual((reply.code, reply.remark), (0, "it is ASYNC_MASTER already"))
        reply = self.change(self.slave, MASTER, 7)
        self.assertEqual((reply.code, reply.remark), (0, "it is SLAVE already"))
        self.assertEqual(self.slave.kernel.broker_id, 1)

    def test_settings_that_are_in_no_file_are_changed_by_hand(self) -> None:
        """The response asks for it, also if the file cannot be written."""
        self.assertEqual(self.change(self.slave, SLAVE).remark, BY_HAND)
        self.slave.settings.file = f"{self.with_file(self.slave)}/below"
        self.change(self.slave, MASTER, 1)
        self.assertEqual(self.change(self.slave, SLAVE).remark, BY_HAND)

    def test_a_file_that_the_next_start_does_not_read(self) -> None:
        """The same is true if the command line gives the role or the id."""
        text = f"{BY_HAND}: change the command that starts it"
        path = self.with_file(self.slave)
        settings = self.slave.settings
        for is_read, given in ((False, ()), (True, ("brokerRole",)), (True, ("brokerId",))):
            settings.is_file_read, settings._overridden = is_read, frozenset(given)
            self.assertEqual(self.change(self.slave, SLAVE).remark, text, msg=(is_read, given))
            self.assertIn("brokerRole=ASYNC_MASTER", path.read_text())
            self.change(self.slave, MASTER, 1)

    def test_a_request_that_cannot_be_meant(self) -> None:
        """Without the master's address, or without an id for the slave."""
        for master, slave_id in ((None, 1), ("", 1), (SLAVE, None), (SLAVE, 0), (SLAVE, -1)):
            reply = self.change(self.master, master, slave_id)
            self.assertEqual(reply.code, ResponseCode.INVALID_PARAMETER)
        self.assertEqual(self.master.kernel.role, "ASYNC_MASTER")

    def test_a_slave_that_no_master_could_have_is_refused(self) -> None:
        """The id and the address would be saved, and each later connection would fail."""
        for address, slave_id, word in (
                (SLAVE, 1 << 62, "masterBrokerId"), (SLAVE, (1 << 63) - 1, "masterBrokerId"),
                (SLAVE, -1, "masterBrokerId"), ("nowhere", 1, "masterAddress"),
                ("a\x1b[2J:1", 1, "masterAddress"), ("host:99999", 1, "masterAddress")):
            reply = self.change(self.master, address, slave_id)
            self.assertEqual(reply.code, ResponseCode.INVALID_PARAMETER, address)
            self.assertIn(word, str(reply.remark))
            self.assertFalse(self.master.kernel.is_slave)

    def test_half_a_record_is_cut(self) -> None:
        """A message that is stored after the cut survives a kill."""
        self.send()
        self.copy_log()
        self.send()
        ours, theirs = self.slave.kernel.store, self.master.kernel.store
        end = ours.commit_log.max_offset
        ours.raw.append(end, theirs.raw.read(end, 50))
        self.assertEqual(self.change(self.slave, SLAVE).code, ResponseCode.SUCCESS)
        self.slave.ask(RequestCode.SEND_MESSAGE_V2,
                       send_header("T", self.slave.now_ms, queue_id=0), b"new")
        self.slave.kernel.store.close()
        self.slave_disk.forget_locks()
        self.slave = self.start_slave()
        self.assertEqual([each.body for each in self.slave.stored("T", 0)], [b"x", b"new"])

    def test_the_log_of_the_master_is_left_first(self) -> None:
        """No byte of it is appended after the first message of the new master."""
        roles: list[str] = []
        plugin = self.slave.plugin(Plugin)
        self.patch(plugin._role_change, "_leave_master",
                   lambda: roles.append(self.slave.kernel.role))
        self.change(self.slave, SLAVE)
        self.assertEqual(roles, ["SLAVE"])
