"""The check of the master's log before anything is appended."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.store import message
from twistmq.plugins import admin, ha
from twistmq.plugins.ha.guard import Guard, LogsDiffer
from twistmq.protocol.bodies import KVTable
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import BrokerError, StoreError
from twistmq.protocol.header import CommandHeader

FILE_SIZE = 4096
PLUGINS = [("admin", admin.Plugin), ("ha", ha.Plugin)]


class GuardTests(SynchronousTestCase):
    """A slave whose requests are answered by a master in the same process."""

    def setUp(self) -> None:
        self.master = self.box()
        self.slave = self.box(brokerRole="SLAVE", brokerId="1")

    def box(self, **settings: str) -> KernelBox:
        box = KernelBox(PLUGINS, {"mappedFileSizeCommitLog": str(FILE_SIZE),
                                  "maxMessageSize": "2000", **settings})
        self.addCleanup(box.stop)
        return box

    def fill(self, box: KernelBox, count: int, body: bytes = b"x" * 100) -> None:
        """Append a number of messages."""
        writable, box.kernel.store.writable = box.kernel.store.writable, True
        box.kernel.append([message("T", body=body) for _ in range(count)])
        box.kernel.store.writable = writable

    def copy(self, end: int) -> None:
        """Give the slave the master's log up to a place."""
        raw, log = self.master.kernel.store.raw, self.slave.kernel.store.commit_log
        while log.max_offset < end:
            self.slave.kernel.store.raw.append(
                log.max_offset, raw.read(log.max_offset, end - log.max_offset))

    def end(self, box: KernelBox) -> int:
        return box.kernel.store.commit_log.max_offset

    def prepare(self, **settings: bool) -> Deferred[int]:
        """Check the master."""
        for name, value in settings.items():
            self.slave.settings.put(f"ha.{name}", value)

        async def ask(
            address: str, code: int, header: CommandHeader | None, body: bytes = b"", *,
            timeout_ms: int,
        ) -> RemotingCommand:
            return self.answer(code, header)

        self.patch(self.slave.host, "ask_server", ask)
        return Deferred.fromCoroutine(Guard(self.slave.kernel).prepare("m:1"))

    def answer(self, code: int, header: CommandHeader | None) -> RemotingCommand:
        return self.master.ask(code, header)

    def differs(self, **settings: bool) -> str:
        """Look at the master; :returns: why the slave does not follow it."""
        return str(self.failureResultOf(self.prepare(**settings), LogsDiffer).value)

    def drop_first(self) -> None:
        """Remove the first file of the master."""
        store = self.master.kernel.store
        store.flush.flushed(store.commit_log.max_offset)
        drop = store.commit_log.drop_first()
        assert drop is not None
        drop()

    def test_what_is_here_cannot_be_read(self) -> None:
        """The master is not asked, because none of its bytes could be kept."""
        self.fill(self.master, 2)
        self.slave.kernel.store.dispatch.damage = "the message at 0 cannot be read"
        error = self.failureResultOf(self.prepare(), StoreError).value
        self.assertEqual(str(error), "the message at 0 cannot be read")
        self.assertEqual(self.end(self.slave), 0)

    # --- an empty slave

    def test_both_are_empty(self) -> None:
        """The copy starts, also if an Apache master reports -1 as the beginning of its log."""
        self.assertEqual(self.successResultOf(self.prepare()), 0)

        def answer(code: int, header: Any) -> RemotingCommand:
            reply = self.master.ask(code, header)
            if code == RequestCode.GET_BROKER_RUNTIME_INFO:
                reply.body = KVTable(table={
                    "commitLogMinOffset": "-1", "commitLogMaxOffset": "0"}).encode()
            return reply

        self.patch(self, "answer", answer)
        self.assertEqual(self.successResultOf(self.prepare()), 0)

    def test_one_file_is_asked_for_from_its_beginning(self) -> None:
        """A slave that asks for 0 gets the last file, which is the only one."""
        self.fill(self.master, 3)
        self.assertEqual(self.successResultOf(self.prepare()), 0)

    def test_all_files_are_asked_for(self) -> None:
        """The first message is copied separately, because 0 would mean the last file."""
        self.fill(self.master, 60)
        self.assertGreater(self.end(self.master), 2 * FILE_SIZE)
        offset = self.successResultOf(self.prepare())
        self.assertGreater(offset, 91)
        self.assertEqual(self.slave.kernel.store.raw.read(0, 9999),
                         self.master.kernel.store.raw.read(0, offset))
        # The first report says that it is here.
        self.assertEqual(self.slave.kernel.store.commit_log.flushed_offset, offset)

    def test_the_oldest_file_there_is(self) -> None:
        """The master has removed some files."""
        self.fill(self.master, 60)
        self.drop_first()
        self.assertEqual(self.successResultOf(self.prepare()), FILE_SIZE)
        self.assertEqual(self.slave.kernel.store.commit_log.min_offset, FILE_SIZE)

    def test_the_last_file_alone(self) -> None:
        """The settings ask for the last file only."""
        self.fill(self.master, 60)
        end = self.end(self.master)
        self.assertEqual(self.successResultOf(self.prepare(full_copy=False)),
                         end - end % FILE_SIZE)

    # --- a slave that has something

    def test_a_log_that_is_the_beginning_goes_on(self) -> None:
        """The copy continues at the end of the last whole message; an incomplete one is cut."""
        self.fill(self.master, 20)
        self.copy(1000)
        offset = self.successResultOf(self.prepare())
        self.assertEqual(offset, self.end(self.slave))
        self.assertLessEqual(offset, 1000)
        self.copy(self.end(self.master))
        self.assertEqual(self.successResultOf(self.prepare()), self.end(self.master))

    def test_another_last_message(self) -> None:
        """Logs of equal length with other bytes are not mixed, and the position is named."""
        self.fill(self.master, 10, b"a" * 50)
        self.fill(self.slave, 10, b"b" * 50)
        end = self.end(self.slave)
        self.assertEqual(end, self.end(self.master))
        self.assertIn("differs from the master's", self.differs())
        self.assertEqual(self.end(self.slave), end)

    def test_a_longer_log(self) -> None:
        """The master has lost its end; the slave keeps its data and reports the difference."""
        self.fill(self.master, 10)
        self.copy(self.end(self.master))
        self.fill(self.slave, 5)
        end = self.end(self.slave)
        self.assertIn(f"the log ends at {end}, but the master's log at {self.end(self.master)}",
                      self.differs())
        self.assertEqual(self.end(self.slave), end)

    def test_a_longer_log_is_cut_when_allowed(self) -> None:
        """The log is cut to the end of the master's log."""
        self.fill(self.master, 10)
        self.copy(self.end(self.master))
        self.fill(self.slave, 5)
        self.assertEqual(self.successResultOf(self.prepare(resync=True)), self.end(self.master))

    def test_what_differs_is_cut_when_allowed(self) -> None:
        """The log is cut after the last message that both have, in whatever file it is."""
        for common in (1, 7, 25, 40):
            self.setUp()
            self.fill(self.master, common)
            self.copy(self.end(self.master))
            place = self.end(self.master)
            self.fill(self.master, 30, b"a" * 120)
            self.fill(self.slave, 30, b"b" * 120)
            self.assertEqual(self.successResultOf(self.prepare(resync=True)), place)

    def test_nothing_in_common(self) -> None:
        """With the permission everything is removed, and the copy starts from the beginning."""
        self.fill(self.master, 60, b"a" * 50)
        self.fill(self.slave, 20, b"b" * 60)
        offset = self.successResultOf(self.prepare(resync=True))
        self.assertEqual(self.slave.kernel.store.raw.read(0, 9999),
                         self.master.kernel.store.raw.read(0, offset))

    def test_a_slave_that_was_away_too_long(self) -> None:
        """The master no longer has this part; both positions are named, and nothing is removed."""
        self.fill(self.master, 60)
        self.copy(500)
        self.drop_first()
        kept = self.differs()
        self.assertIn("but the master's log begins later, at 4096", kept)
        self.assertGreater(self.end(self.slave), 0)
        self.assertEqual(self.successResultOf(self.prepare(resync=True)), FILE_SIZE)
        self.assertEqual(self.slave.stored("T", 0), [])

    def test_a_slave_that_ends_where_the_master_begins(self) -> None:
        """No bytes are missing between the two logs, so the slave continues with its own log."""
        self.fill(self.master, 60)
        self.copy(FILE_SIZE)
        self.assertEqual(self.end(self.slave), FILE_SIZE)
        self.drop_first()
        self.assertEqual(self.successResultOf(self.prepare()), FILE_SIZE)
        self.assertEqual(self.slave.kernel.store.commit_log.min_offset, 0)

    def test_a_master_that_does_not_say(self) -> None:
        """A response with an error code, or without the numbers, starts nothing."""
        self.patch(self, "answer", lambda code, header: self.master.ask(3, None))
        self.failureResultOf(self.prepare(), BrokerError)
