"""Removing what is old at an administrator's word."""

from __future__ import annotations

from datetime import datetime

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.codes import RequestCode, ResponseCode
from twistmq.broker.testing.disk import MemoryDisk
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.store import message
from twistmq.plugins import admin

DAY_MS = 86_400_000


class RetentionRequestsTests(SynchronousTestCase):
    """306 and 329."""

    def setUp(self) -> None:
        self.disk = MemoryDisk()
        self.box = KernelBox([("admin", admin)], {"mappedFileSizeCommitLog": "65536"}, self.disk)
        self.addCleanup(self.box.stop)
        self.store = self.box.kernel.store
        self.box.kernel.append([message("Idle"), message("SCHEDULE_TOPIC_XXXX")])
        self.box.kernel.append([message("Busy", bytes(30_000)) for _ in range(5)])
        for _ in range(2):
            self.box.now_ms += 60_000
            self.store.flush_step(self.box.now_ms)

    def clean(self) -> None:
        """Let a round of retention pass, at an hour that is not deleteWhen's."""
        other = datetime.fromtimestamp(self.box.now_ms / 1000 + 12 * 3600).hour
        self.box.settings.update({"deleteWhen": str(other)})
        for _ in range(10):
            self.store.log_retention.step(self.box.now_ms)

    def test_delete_expired_commit_log(self) -> None:
        """Expired files go, whatever the hour; without the request they stay."""
        self.box.now_ms += 4 * DAY_MS
        self.clean()
        self.assertEqual(self.store.min_offset, 0)
        reply = self.box.ask(RequestCode.DELETE_EXPIRED_COMMITLOG)
        self.assertEqual((reply.code, reply.remark, reply.body), (ResponseCode.SUCCESS, None, b""))
        self.clean()
        self.assertEqual(self.store.min_offset, 2 * 65536)

    def test_clean_expired_queues(self) -> None:
        """Queues without a message go, but not those of system topics."""
        self.disk.used_ratio = 0.86
        self.clean()
        reply = self.box.ask(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
        self.assertEqual((reply.code, reply.remark, reply.body), (ResponseCode.SUCCESS, None, b""))
        self.assertEqual(sorted(self.store.queues()), ["Busy", "SCHEDULE_TOPIC_XXXX"])
        self.assertEqual(self.store.max_offset_in_queue("Busy", 0), 5)
