"""The removal of old data on request of an administrator."""

from __future__ import annotations

from datetime import datetime
from itertools import count

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.testing.disk import MemoryDisk
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.store import message
from twistmq.plugins import admin
from twistmq.protocol.bodies import TopicConfig
from twistmq.protocol.codes import RequestCode, ResponseCode

DAY_MS = 86_400_000


class RetentionRequestsTests(SynchronousTestCase):
    """The requests 306, 316 and 329."""

    def setUp(self) -> None:
        self.disk = MemoryDisk()
        self.box = KernelBox(
            [("admin", admin.Plugin)], {"mappedFileSizeCommitLog": "65536"}, self.disk)
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
        """The request deletes expired files at any hour; without it they remain."""
        self.box.now_ms += 4 * DAY_MS
        self.clean()
        self.assertEqual(self.store.commit_log.min_offset, 0)
        reply = self.box.ask(RequestCode.DELETE_EXPIRED_COMMITLOG)
        self.assertEqual((reply.code, reply.remark, reply.body), (ResponseCode.SUCCESS, None, b""))
        self.clean()
        self.assertEqual(self.store.commit_log.min_offset, 2 * 65536)

    def test_clean_expired_queues(self) -> None:
        """Queues without messages are deleted, except those of system topics."""
        self.disk.used_ratio = 0.86
        self.clean()
        reply = self.box.ask(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
        self.assertEqual((reply.code, reply.remark, reply.body), (ResponseCode.SUCCESS, None, b""))
        self.assertEqual(sorted(self.store.queues.ids_by_topic()), ["Busy", "SCHEDULE_TOPIC_XXXX"])
        self.assertEqual(self.store.queues.max_offset("Busy", 0), 5)

    def test_clean_unused_topics(self) -> None:
        """Queues of topics without a configuration are deleted; system topics and light queues
        remain.
        """
        kernel = self.box.kernel
        kernel.topic_config.update(TopicConfig("Busy"), {})
        kept = ["%LMQ%light", "BenchmarkTest", "Busy", "SCHEDULE_TOPIC_XXXX", kernel.cluster_name,
                "rmq_sys_mine"]
        kernel.append([message(topic, queue_id=queue_id) for topic in (*kept, "Idle", "Waiting")
                       for queue_id in (0, 3)])
        reply = self.box.ask(RequestCode.CLEAN_UNUSED_TOPIC)
        self.assertEqual((reply.code, reply.remark, reply.body), (ResponseCode.SUCCESS, None, b""))
        self.assertEqual(sorted(self.store.queues.ids_by_topic()), sorted(kept))
        root = self.store.settings.store_path_root_dir
        self.assertNotIn("Idle", self.disk.list_directory(f"{root}/consumequeue"))
        # What was in memory alone does not come back with the next flush.
        for _ in range(2):
            self.box.now_ms += 60_000
            self.store.flush_step(self.box.now_ms)
        self.assertEqual(sorted(self.disk.list_directory(f"{root}/consumequeue")), sorted(kept))
        kernel.append([again := message("Idle")])
        self.assertEqual((again.queue_offset, self.store.queues.ids_by_topic()["Idle"]), (0, [0]))

    def test_clean_many_unused_topics(self) -> None:
        """Other clients are served between the deletions."""
        kernel = self.box.kernel
        kernel.append([message(f"T{number}") for number in range(50)])
        clock = count(self.box.now_ms)
        self.box.clock = lambda: next(clock)
        peer = self.box.peer()
        self.assertIsNone(self.box.send(peer, RequestCode.CLEAN_UNUSED_TOPIC))
        self.assertGreater(len(self.store.queues.ids_by_topic()), 40)
        task, = (task for task in kernel.periodic_tasks if task.name == "continue long work")
        for _ in range(50):
            task.run(0)
        self.assertEqual([reply.code for reply in self.box.late_replies(peer)],
                         [ResponseCode.SUCCESS])
        self.assertEqual(sorted(self.store.queues.ids_by_topic()), ["SCHEDULE_TOPIC_XXXX"])
