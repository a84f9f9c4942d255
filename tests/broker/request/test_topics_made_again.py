"""A start at which the configurations of all or some topics are missing."""

from __future__ import annotations

from twisted.logger import LogEvent, Logger, formatEvent

from tests.kernel_case import KernelTestCase
from twistmq.broker.request import topic_config
from twistmq.broker.request.topic_config import TopicConfigTable
from twistmq.broker.testing.raw_client import pull_header, records_of, send_header
from twistmq.broker.testing.store import inner_batch
from twistmq.protocol.codes import RequestCode, ResponseCode

CONFIG = "/store/config"


class MadeAgainTests(KernelTestCase):
    """Two topics with messages, of which one uses only its last queue."""

    plugins = ()

    def setUp(self) -> None:
        super().setUp()
        self.events: list[LogEvent] = []
        self.patch(TopicConfigTable, "log", Logger(observer=self.events.append))
        for topic, queue_id in (("orders", 0), ("orders", 3), ("other", 0)):
            self.send(topic, queue_id)

    def send(self, topic: str, queue_id: int = 0) -> None:
        reply = self.box.ask(RequestCode.SEND_MESSAGE_V2, send_header(
            topic, self.box.now_ms, queue_id=queue_id), b"x")
        self.assertEqual(reply.code, ResponseCode.SUCCESS, reply.remark)

    def warnings(self) -> list[str]:
        """Return the warnings about topics without a configuration."""
        return [text for text in map(formatEvent, self.events)
                if "no configuration" in text or "no saved topics" in text]

    def queue_nums(self, topic: str) -> tuple[int, int, int] | None:
        config = self.box.kernel.topic_config.get(topic)
        return config and (config.read_queue_nums, config.write_queue_nums, config.perm)

    def assertReadable(self, topic: str, queue_id: int) -> None:
        reply = self.box.ask(
            RequestCode.PULL_MESSAGE, pull_header(topic, 0, queue_id=queue_id))
        self.assertEqual([each.body for each in records_of(reply.body)], [b"x"])

    def test_folder_is_gone(self) -> None:
        """All are created again with the existing queues, and saved; one line names them."""
        for is_clean in (True, False):
            if is_clean:
                self.box.stop()
            else:
                self.box.kernel.store.close()
            self.disk.remove(CONFIG)
            self.events.clear()
            self.box = self.start()
            self.assertEqual((self.queue_nums("orders"), self.queue_nums("other")),
                             ((4, 4, 6), (1, 1, 6)))
            [line] = self.warnings()
            self.assertIn("2 of 2 topics are created again", line)
            self.assertIn("orders, other", line)
            self.assertReadable("orders", 3)
            self.assertReadable("other", 0)
        self.restart()
        self.assertEqual(len(self.warnings()), 1, "they are saved")
        self.assertEqual(self.queue_nums("orders"), (4, 4, 6))

    def test_some_are_not_configured(self) -> None:
        """They may have been deleted, so they are named and their queues remain."""
        self.box.kernel.topic_config.delete("orders")
        self.restart()
        [line] = self.warnings()
        self.assertIn("1 topics have queues but no configuration: orders.", line)
        self.assertIsNone(self.queue_nums("orders"))
        self.assertEqual(self.box.kernel.store.queues.ids_by_topic()["orders"], [0, 3])

    def test_nothing_to_say(self) -> None:
        """All are configured, or the broker is new."""
        self.restart()
        self.disk.remove("/store")
        self.disk.forget_locks()
        self.box.kernel.store.close()
        self.box = self.start()
        self.assertEqual(self.warnings(), [])

    def test_batch_queues(self) -> None:
        """The topic is again one with batch queues."""
        topics = self.box.kernel.topic_config
        topics.update(topics.table["other"].__class__("batches", 1, 1, 6),
                      {"+queue.type": "BatchCQ"})
        self.box.kernel.store.append([inner_batch("batches", [b"1", b"2", b"3"])])
        self.box.stop()
        self.disk.remove(CONFIG)
        self.box = self.start()
        self.assertTrue(self.box.kernel.topic_config.is_batch_topic("batches"))
        self.assertEqual(self.box.kernel.store.queues.max_offset("batches", 0), 3)

    def test_light_queues(self) -> None:
        """Light queues have no configuration."""
        self.box.kernel.store.queues.make("%LMQ%light", 0)
        topics = self.box.kernel.topic_config
        queues = self.box.kernel.store.queues
        topics.make_again(queues.ids_by_topic(), queues.has_batch_queues)
        self.assertEqual(self.warnings(), [])

    def test_topics_that_do_not_fit_are_not_created_again(self) -> None:
        """They are left out, and the start continues; the line names a limited number."""
        topics = self.box.kernel.topic_config
        self.patch(topic_config, "TOPIC_ROWS_SIZE_MAX", topics.rows_size + 5_000)
        topics._was_saved = False
        topics.make_again({f"T{number:04d}": [0] for number in range(1000)}, lambda topic: False)
        [line] = self.warnings()
        self.assertRegex(line, "no saved topics were found: [1-9][0-9]? of 1000 topics")
        self.assertIn("T0019, ...", line)
        self.assertNotIn("T0020", line)
