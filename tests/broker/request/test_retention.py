"""The removal of old messages, as clients see it."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.errors import SettingsError
from twistmq.broker.scheduling.periodic import PeriodicTask
from twistmq.broker.testing.disk import MemoryDisk
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.raw_client import pull_header, records_of, send_header
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.headers.pull import PullMessageResponseHeader


class RetentionTests(SynchronousTestCase):
    """A broker whose log has four files, and whose disk becomes full."""

    def setUp(self) -> None:
        self.disk = MemoryDisk()
        self.box = KernelBox(disk=self.disk, settings={"mappedFileSizeCommitLog": "65536"})
        self.addCleanup(self.box.stop)
        for number in range(7):
            self.assertEqual(self.send(bytes([number]) * 30_000).code, ResponseCode.SUCCESS)
        for _ in range(2):
            self.box.now_ms += 60_000
            self.box.kernel.store.flush_step(self.box.now_ms)

    def send(self, body: bytes = b"x") -> RemotingCommand:
        return self.box.ask(RequestCode.SEND_MESSAGE_V2, send_header("T", self.box.now_ms), body)

    def pull(self, offset: int) -> RemotingCommand:
        return self.box.ask(RequestCode.PULL_MESSAGE, pull_header("T", offset))

    def task(self, name: str) -> PeriodicTask:
        [task] = [each for each in self.box.kernel.periodic_tasks if each.name == name]
        return task

    def clean(self) -> None:
        """Let a minute of periodic work pass."""
        for name in ("remove old commit-log files", "trim queues and index"):
            task = self.task(name)
            self.assertEqual(task.first_ms, 60_000)
            task.run(self.box.now_ms)
            assert callable(task.period_ms)
            while task.period_ms() < 10_000:
                task.run(self.box.now_ms)

    def test_pull_below_the_minimum(self) -> None:
        """The code is 21, with the next offset, at which messages are returned."""
        self.disk.used_ratio = 0.86
        self.clean()
        reply = self.pull(0)
        header = reply.header(PullMessageResponseHeader)
        self.assertEqual((reply.code, header.next_begin_offset, header.min_offset,
                          header.max_offset), (ResponseCode.PULL_OFFSET_MOVED, 6, 6, 7))
        [record] = records_of(self.pull(6).body)
        self.assertEqual(record.body[:1], b"\6")

    def test_send_to_a_full_disk(self) -> None:
        """The code is 14 above the highest threshold; pulls are served, and later sends as well."""
        self.disk.used_ratio = 0.95
        self.clean()
        reply = self.send()
        self.assertEqual(reply.code, ResponseCode.SERVICE_NOT_AVAILABLE)
        self.assertIn("the broker's disk is full [CL:  0.95", reply.remark or "")
        self.assertEqual(self.pull(6).code, ResponseCode.SUCCESS)
        self.disk.used_ratio = 0.5
        self.clean()
        self.assertEqual(self.send().code, ResponseCode.SUCCESS)

    def test_settings_change_while_running(self) -> None:
        """The next round uses them; an invalid value is refused."""
        self.disk.used_ratio = 0.7
        self.clean()
        store = self.box.kernel.store
        self.assertEqual(store.commit_log.min_offset, 0)
        error = self.assertRaises(SettingsError, self.box.settings.update, {"deleteWhen": "noon"})
        self.assertIn("deleteWhen=noon (update): the value must be hours", str(error))
        self.assertEqual(store.log_retention.settings.delete_when, "04")
        error = self.assertRaises(
            SettingsError, self.box.settings.update, {"storePathCommitLog": "/a,/b"})
        self.assertIn("names several folders", str(error))
        self.box.settings.update({"deleteWhen": "05", "diskSpaceCleanForciblyRatio": "60"})
        self.assertEqual(store.queue_retention.settings.delete_when, "05")
        self.clean()
        self.assertEqual(store.commit_log.min_offset, 3 * 65536)
