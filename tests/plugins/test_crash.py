"""The process or the power fails at every change of the disk during delays and retries.

Messages are sent with delays, consumed, sent back and given up; the process ends at the nth change
of the disk, for each n, so in each of these states of a message:

- delayed: not yet written; written and not due; due and not delivered; delivered, and that not
  saved; delivered and saved;
- failed: not yet sent back; sent back and waiting at a level; on the retry topic; there and sent
  back again; a dead letter, by the broker and by the client's own send.

The next broker is left alone for hours. What was acknowledged must come, nothing may come early,
and twice comes only what was delivered when no save said so.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from tests.every_change import EveryChangeCase
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.power_loss import PowerLossDisk
from twistmq.broker.testing.raw_client import send_header
from twistmq.plugins import orderly, retry, schedule
from twistmq.plugins.schedule.levels import DelayLevels
from twistmq.protocol.bodies import DelayOffsetSerializeWrapper, SubscriptionGroupConfig
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.send import ConsumerSendMsgBackRequestHeader
from twistmq.protocol.record import StoredMessage
from twistmq.protocol.topic_names import SCHEDULE_TOPIC

OFFSETS = "/store/config/delayOffset.json"
LEVELS = DelayLevels("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h")
PLUGINS: list[tuple[str, object]] = [
    ("orderly", orderly.Plugin), ("retry", retry.Plugin), ("schedule", schedule.Plugin)]


class Come(NamedTuple):
    """A message where consumers find it."""

    topic: str
    body: bytes
    tries: int


class Delayed(NamedTuple):
    """A message that is or was in the schedule topic."""

    come: Come
    level: int
    queue_offset: int
    store_timestamp: int


class CrashTests(EveryChangeCase):
    """A failure at every change of the disk."""

    told = ("known",)

    def begin(self) -> None:
        """Create a store."""
        self.disk = PowerLossDisk()
        self.box = self.start(None)
        #: What was acknowledged, as it has to come.
        self.known: set[Come] = set()

    def start(self, now_ms: int | None) -> KernelBox:
        box = KernelBox(PLUGINS, {"flushDiskType": "SYNC_FLUSH"}, self.disk)
        if now_ms is not None:
            box.now_ms = now_ms
        box.kernel.subscription_group.update(SubscriptionGroupConfig("g"), {})
        box.kernel.subscription_group.update(SubscriptionGroupConfig("once", retry_max_times=1), {})
        return box

    # --- what clients do

    def send(self, body: bytes, level: int = 0, topic: str = "T", come: str = "",
             tries: int = 0) -> None:
        """Send a message that is acknowledged if the disk is there.

        :param come: the topic it comes to, if not ``topic``.
        """
        header = send_header(topic, self.box.now_ms, queue_id=0,
                             properties={"DELAY": str(level)} if level else None)
        if tries:
            header.reconsume_times, header.max_reconsume_times = tries, 1
        reply = self.box.ask(RequestCode.SEND_MESSAGE_V2, header, body)
        self.assertEqual(reply.code, ResponseCode.SUCCESS, reply.remark)
        self.known.add(Come(come or topic, body, tries))

    def back(self, group: str, message: StoredMessage, come: str = "") -> None:
        """Send a consumed message back."""
        reply = self.box.ask(
            RequestCode.CONSUMER_SEND_MSG_BACK, ConsumerSendMsgBackRequestHeader(
                offset=message.physical_offset, group=group, delay_level=0, origin_topic="T"))
        self.assertEqual(reply.code, ResponseCode.SUCCESS, reply.remark)
        self.known.add(Come(come or f"%RETRY%{group}", message.body, message.reconsume_times + 1))

    def let_pass(self, elapsed_ms: int) -> None:
        """Let time pass and deliver the messages that are due."""
        self.box.now_ms += elapsed_ms
        [task] = [task for task in self.box.kernel.periodic_tasks
                  if task.name == "deliver delayed messages"]
        task.run(self.box.now_ms)
        while callable(task.period_ms) and task.period_ms() == 1:
            task.run(self.box.now_ms)

    def save(self) -> None:
        """Save what a broker saves every few seconds."""
        self.box.kernel.store.flush_step(self.box.now_ms)
        self.box.kernel.persist()
        [task] = [task for task in self.box.kernel.periodic_tasks
                  if task.name == "save the progress of delayed messages"]
        task.run(self.box.now_ms)

    def live(self) -> None:
        """Run a broker through every course that delays and failures can take."""
        for number in range(3):
            self.send(b"second %d" % number, 1)
        self.send(b"fails", 0)
        self.send(b"fails for ever", 0)
        plain = {each.body: each for each in self.box.stored("T", 0)}
        self.back("g", plain[b"fails"])
        self.back("once", plain[b"fails for ever"])
        self.send(b"minute", 5)
        self.save()
        self.let_pass(1000)
        self.send(b"second late", 1)
        self.save()
        self.let_pass(999)
        self.send(b"five seconds", 2)
        self.let_pass(8001)
        self.save()
        # Both are on their retry topics now.
        [again] = self.box.stored("%RETRY%g", 0)
        self.back("g", again)
        [last] = self.box.stored("%RETRY%once", 0)
        self.back("once", last, "%DLQ%once")
        # What keeps order gives up by itself.
        self.send(b"given up", 0, "%RETRY%once", "%DLQ%once", tries=2)
        self.let_pass(30_000)
        [_, again] = self.box.stored("%RETRY%g", 0)
        self.back("g", again)
        self.save()
        self.let_pass(20_000)
        self.box.stop()

    # --- what there is

    def come(self) -> list[tuple[Come, int]]:
        """Return the messages that consumers find, with their store times."""
        return [(Come(topic, each.body, each.reconsume_times), each.store_timestamp)
                for topic in ("T", "%RETRY%g", "%RETRY%once", "%DLQ%once")
                for each in self.box.stored(topic, 0)]

    def delayed(self) -> list[Delayed]:
        """Return the messages of the schedule topic."""
        found = []
        for level in LEVELS.lengths_ms:
            for each in self.box.stored(SCHEDULE_TOPIC, level - 1):
                topic = each.properties_map()["REAL_TOPIC"]
                found.append(Delayed(Come(topic, each.body, each.reconsume_times), level,
                                     each.queue_offset, each.store_timestamp))
        return found

    def saved(self) -> dict[int, int]:
        """Return the saved progress of the delivery, by level."""
        if OFFSETS not in self.disk._files:
            return {}
        return DelayOffsetSerializeWrapper.decode_saved(self.disk.read_file(OFFSETS)).offset_table

    def look(self, message: str) -> int:
        """Open the store again, wait for hours, compare; :returns: how many came twice."""
        saved = self.saved()
        self.box = self.start(self.box.now_ms)
        before = Counter(come for come, _ in self.come())
        delayed = self.delayed()
        if self.box.stored("%DLQ%once", 0):
            self.assertIn("%DLQ%once", self.box.kernel.topic_config.table, msg=message)
        for _ in range(3):
            self.let_pass(3_600_000)
            self.save()
        after = self.come()
        counts = Counter(come for come, _ in after)
        self.assertEqual(self.known - counts.keys(), set(), msg=f"{message}: lost")
        self.assertEqual(self.delayed(), delayed, msg=f"{message}: delayed again")
        waited = {each.come: each for each in delayed}
        self.assertEqual(len(waited), len(delayed), msg=f"{message}: waits twice")
        for come, count in counts.items():
            entry = waited.get(come)
            is_unsaved = entry is not None and entry.queue_offset >= saved.get(entry.level, 0)
            most = 1 + (come in before and is_unsaved)
            self.assertLessEqual(count, most, msg=f"{message}: {come} came {count} times")
        for come, store_timestamp in after:
            if come in waited:
                due_ms = LEVELS.due_ms(waited[come].level, waited[come].store_timestamp)
                self.assertGreaterEqual(store_timestamp, due_ms, msg=f"{message}: {come} is early")
        return sum(count - 1 for count in counts.values())

    # --- the ends

    def check_life(self) -> None:
        self.assertEqual(len(self.known), 14)

    def test_the_process_ends(self) -> None:
        """The process ends; all that it wrote remains."""
        self.killed_at_every_change()

    def test_power_is_cut(self) -> None:
        """The power fails; only a part of the data that was not synced remains."""
        self.cut_at_every_change()
