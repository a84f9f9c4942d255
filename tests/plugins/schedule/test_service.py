"""Delayed messages in the schedule topic, and their delivery over restarts and faults."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace

from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests.kernel_case import DAMAGED_PARTS, error_lines, flip
from twistmq.broker import hookimpl
from twistmq.broker.errors import SettingsError, StoreFull
from twistmq.broker.testing.disk import FaultyDisk
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.raw_client import send_header
from twistmq.broker.testing.store import message
from twistmq.plugins import schedule
from twistmq.plugins.schedule.service import BATCH_COUNT
from twistmq.protocol.bodies import DataVersion, DelayOffsetSerializeWrapper, TopicConfig
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import BrokerError, StoreDamaged, WireError
from twistmq.protocol.headers.send import SendMessageResponseHeader
from twistmq.protocol.message_id import parse_offset_message_id
from twistmq.protocol.record import (
    SYS_TRANSACTION_PREPARED,
    MessageRecord,
    StoredMessage,
    decode_record,
)
from twistmq.protocol.topic_names import SCHEDULE_TOPIC

OFFSETS = "/store/config/delayOffset.json"


class DelayTestCase(SynchronousTestCase):
    """A test with a kernel that has only the plugin."""

    def setUp(self) -> None:
        self.disk = FaultyDisk()
        self.box = self.start()
        self.addCleanup(lambda: self.box.stop())

    def start(self, settings: Mapping[str, str] | None = None) -> KernelBox:
        """A kernel on the disk, as late as the last one was."""
        now_ms = self.box.now_ms if hasattr(self, "box") else None
        box = KernelBox([("schedule", schedule.Plugin)], settings, self.disk)
        if now_ms is not None:
            box.now_ms = now_ms
        return box

    def restart(self) -> None:
        """Stop cleanly and start again."""
        self.box.stop()
        self.box = self.start()

    def send(self, body: bytes, level: object = None, queue_id: int = 1, topic: str = "T",
             tag: str = "red") -> SendMessageResponseHeader:
        """Send a message that must be stored."""
        header = send_header(topic, self.box.now_ms, queue_id=queue_id, tag=tag, keys="k",
                             properties={} if level is None else {"DELAY": str(level)})
        reply = self.box.ask(RequestCode.SEND_MESSAGE_V2, header, body)
        self.assertEqual(reply.code, ResponseCode.SUCCESS, reply.remark)
        return reply.header(SendMessageResponseHeader)

    def let_pass(self, elapsed_ms: int) -> None:
        """Let time pass and deliver the messages that are due."""
        self.box.now_ms += elapsed_ms
        for task in self.box.kernel.periodic_tasks:
            if task.name == "deliver delayed messages":
                task.run(self.box.now_ms)
                while callable(task.period_ms) and task.period_ms() == 1:
                    task.run(self.box.now_ms)

    def save(self) -> None:
        [task] = [task for task in self.box.kernel.periodic_tasks
                  if task.name == "save the progress of delayed messages"]
        task.run(self.box.now_ms)

    def stored(self, topic: str = "T", queue_id: int = 1) -> list[StoredMessage]:
        """Return all messages of a queue."""
        return self.box.stored(topic, queue_id)

    def bodies(self, topic: str = "T", queue_id: int = 1) -> list[bytes]:
        return [each.body for each in self.stored(topic, queue_id)]


class DeliveryTests(DelayTestCase):
    """The time and the form of the delivery."""

    def test_a_topic_that_lost_queues(self) -> None:
        """A message whose queue no longer exists goes to another one; the others keep theirs."""
        topics = self.box.kernel.topic_config
        topics.update(TopicConfig("T", 8, 8, 6), {})
        for queue_id in (1, 3, 6, 7):
            self.send(b"%d" % queue_id, 1, queue_id)
        for reads, writes in ((4, 4), (4, 2), (4, 0), (0, 4)):
            topics.update(TopicConfig("T", reads, writes, 6), {})
            self.assertEqual([topics.shown_queue("T", each) for each in (3, 6)],
                             [3, 6 % (min(reads, writes) or 4) if reads else 6])
        topics.update(TopicConfig("T", 4, 4, 6), {})
        self.let_pass(1000)
        self.assertEqual([self.bodies(queue_id=each) for each in range(8)],
                         [[], [b"1"], [b"6"], [b"3", b"7"], [], [], [], []])

    def test_deleted_topic(self) -> None:
        """Its messages do not create a queue, and do not block those of other topics."""
        self.send(b"gone", 1)
        self.send(b"late", 1, topic="U")
        self.box.kernel.tables.delete_topic("T")
        self.let_pass(1000)
        self.assertNotIn("T", self.box.kernel.store.queues.ids_by_topic())
        self.assertEqual(self.bodies("U"), [b"late"])
        # One of the same name is another topic.
        self.send(b"new", 1)
        self.let_pass(1000)
        self.assertEqual(self.bodies(), [b"new"])

    def test_not_before_its_time(self) -> None:
        """A level of one second is a second, to the millisecond; others do not wait for it."""
        self.send(b"late", 1)
        self.send(b"at once")
        for elapsed_ms in (0, 1, 998):
            self.let_pass(elapsed_ms)
            self.assertEqual(self.bodies(), [b"at once"])
        self.let_pass(1)
        self.assertEqual(self.bodies(), [b"at once", b"late"])
        self.let_pass(60_000)
        self.assertEqual(self.bodies(), [b"at once", b"late"])

    def test_levels_do_not_wait_for_each_other(self) -> None:
        """An earlier message with a high level is delivered after a later one with a low level."""
        self.send(b"5 s", 2)
        self.send(b"1 s", 1)
        self.let_pass(1000)
        self.assertEqual(self.bodies(), [b"1 s"])
        self.let_pass(4000)
        self.assertEqual(self.bodies(), [b"1 s", b"5 s"])

    def test_levels_outside(self) -> None:
        """A level above the highest one is limited, and a level of 0 or less means no delay."""
        self.send(b"highest", 99)
        self.send(b"zero", 0)
        self.send(b"negative", -1)
        self.assertEqual(self.bodies(), [b"zero", b"negative"])
        self.assertEqual(self.bodies(SCHEDULE_TOPIC, 17), [b"highest"])
        self.let_pass(2 * 3_600_000 - 1)
        self.assertEqual(len(self.bodies()), 2)
        self.let_pass(1)
        self.assertEqual(self.bodies()[2:], [b"highest"])

    def test_a_delivered_record_equals_the_message_sent(self) -> None:
        """The record has the sent queue, tag, key and times; the response names the queue."""
        sent_ms = self.box.now_ms
        reply = self.send(b"body", 1, queue_id=3)
        self.assertEqual((reply.queue_id, reply.queue_offset), (3, 0))
        [waiting] = self.stored(SCHEDULE_TOPIC, 0)
        self.assertEqual(parse_offset_message_id(reply.msg_id)[2], waiting.physical_offset)
        self.let_pass(1000)
        [come] = self.stored(queue_id=3)
        for name in ("body", "born_timestamp", "born_host", "store_host", "flag", "sys_flag"):
            self.assertEqual(getattr(come, name), getattr(waiting, name), msg=name)
        properties = come.properties_map()
        self.assertEqual([properties[name] for name in ("REAL_TOPIC", "REAL_QID", "DELAY", "TAGS")],
                         ["T", "3", "1", "red"])
        self.assertEqual((come.born_timestamp, come.store_timestamp), (sent_ms, sent_ms + 1000))
        found, *_ = self.box.kernel.store.reader.query("T", "k", 10, 0, 2**62)
        self.assertEqual([decode_record(data).body for data in found], [b"body"])
        [entry] = self.box.kernel.store.queues.entries("T", 3, 0, 1)
        self.assertEqual(entry[2], message(tag="red").tags_code)

    def test_more_than_one_batch_is_delivered_in_order(self) -> None:
        """More messages than one batch are delivered in one step, in order."""
        bodies = [b"%d" % number for number in range(3 * BATCH_COUNT + 1)]
        for body in bodies:
            self.send(body, 1)
        self.let_pass(1000)
        self.assertEqual(self.bodies(), bodies)

    def test_clock_set_back(self) -> None:
        """Messages stored by a clock that was an hour ahead do not wait for that hour."""
        self.box.now_ms += 3_600_000
        self.send(b"ahead", 1)
        self.box.now_ms -= 3_600_000
        self.let_pass(0)
        self.assertEqual(self.bodies(), [b"ahead"])

    def test_bad_level(self) -> None:
        """An invalid level is refused, and another message of the same read is stored."""
        header = send_header("T", 0, properties={"DELAY": "soon"})
        reply = self.box.ask(RequestCode.SEND_MESSAGE_V2, header, b"x")
        self.assertEqual(reply.code, ResponseCode.MESSAGE_ILLEGAL)
        self.assertIn("soon", str(reply.remark))
        self.send(b"fine")
        self.assertEqual(self.bodies(), [b"fine"])

    def test_half_messages_do_not_wait(self) -> None:
        """A half message with a level is stored as a half message."""
        record = message("T", b"half", 1, sys_flag=SYS_TRANSACTION_PREPARED,
                         properties="DELAY\x011\x02")
        self.assertEqual(self.box.kernel.append([record]), {})
        self.assertEqual(record.topic, "T")

    def test_name_that_ends_alike(self) -> None:
        """A property whose name only ends with DELAY has no effect."""
        record = message("T", b"x", 1, properties="MYDELAY\x013\x02")
        self.assertEqual(self.box.kernel.append([record]), {})
        self.assertEqual(self.bodies(), [b"x"])

    def test_a_slave_delivers_nothing_until_it_is_the_master(self) -> None:
        """A slave delivers nothing until it is the master."""
        self.send(b"late", 1)
        self.box.kernel.set_role("SLAVE", 1)
        with capturedLogs() as events:
            self.let_pass(5000)
        # It does not even try, which would be refused and said.
        self.assertEqual((self.bodies(), [*events]), ([], []))
        self.box.kernel.set_role("ASYNC_MASTER", 0)
        self.let_pass(0)
        self.assertEqual(self.bodies(), [b"late"])


class EscapeTests(DelayTestCase):
    """A slave that acts as master lets other brokers store the messages that are due."""

    def setUp(self) -> None:
        super().setUp()
        self.escaped: list[Sequence[MessageRecord]] = []
        self.answers: list[Deferred[dict[int, BrokerError]]] = []
        for body in (b"first", b"second"):
            self.send(body, 1)
        self.box.kernel.set_role("SLAVE", 1)
        self.box.kernel.use_escape(self.escape)

    def escape(self, records: Sequence[MessageRecord]) -> Deferred[dict[int, BrokerError]]:
        self.escaped.append(records)
        self.answers.append(Deferred())
        return self.answers[-1]

    @property
    def offset(self) -> int:
        return self.box.plugin(schedule.Plugin)._service.offsets.get(1, 0)

    def test_only_while_it_stands_in(self) -> None:
        """Each message is sent once; another round waits for the response."""
        self.let_pass(5000)
        self.assertEqual(self.escaped, [])
        self.box.kernel.identity.is_acting = True
        self.let_pass(1000)
        [records] = self.escaped
        self.assertEqual([(each.topic, each.body) for each in records],
                         [("T", b"first"), ("T", b"second")])
        self.assertTrue(all("DELAY\x01" not in each.properties for each in records))
        self.assertEqual(self.offset, 0)
        self.answers[0].callback({})
        self.let_pass(5000)
        self.assertEqual((self.offset, len(self.escaped), self.bodies()), (2, 1, []))

    def test_what_is_refused_is_tried_again_alone(self) -> None:
        """It is tried again after a second at the earliest."""
        self.box.kernel.identity.is_acting = True
        self.let_pass(2000)
        self.answers[0].callback({0: BrokerError("no other broker accepts messages of T")})
        self.let_pass(900)
        self.assertEqual((self.offset, len(self.escaped)), (0, 1))
        self.let_pass(1000)
        self.assertEqual([each.body for each in self.escaped[1]], [b"first"])
        self.answers[1].callback({})
        self.assertEqual(self.offset, 2)

    def test_an_answer_after_a_copy_of_the_masters_offsets_moves_none(self) -> None:
        self.box.kernel.identity.is_acting = True
        self.let_pass(2000)
        self.box.plugin(schedule.Plugin)._service.take(
            DelayOffsetSerializeWrapper({1: 1}).encode())
        self.answers[0].callback({})
        self.assertEqual(self.offset, 1)

    def test_without_an_escape_they_wait_for_the_master(self) -> None:
        """They wait as on a master that is not registered yet."""
        self.box.kernel.use_escape(None)
        self.box.kernel.identity.is_acting = True
        self.let_pass(5000)
        self.assertEqual(self.offset, 0)
        self.box.kernel.set_role("ASYNC_MASTER", 0)
        self.box.kernel.identity.registers = False
        self.let_pass(1000)
        self.assertEqual(self.bodies(), [])
        self.box.kernel.identity.registers = True
        self.let_pass(1000)
        self.assertEqual(self.bodies(), [b"first", b"second"])

    def test_a_master_that_returns_takes_larger_offsets(self) -> None:
        service = self.box.plugin(schedule.Plugin)._service
        service.offsets = {1: 1, 2: 5}
        service.take_back(DelayOffsetSerializeWrapper({1: 2, 2: 3, 4: 7}).encode())
        self.assertEqual(service.offsets, {1: 2, 2: 5, 4: 7})


class ProgressTests(DelayTestCase):
    """The progress of the delivery."""

    def test_a_slave_is_as_far_as_its_master(self) -> None:
        """A promoted slave delivers exactly the messages that the master has not delivered."""
        for body in (b"1", b"2", b"3"):
            self.send(body, 1)
        self.box.kernel.set_role("SLAVE", 1)
        [table] = self.box.kernel.hooks.collect_synced_tables()
        self.assertEqual(table.code, RequestCode.GET_ALL_DELAY_OFFSET)
        version = DataVersion(0, 5, 6)
        table.take(DelayOffsetSerializeWrapper({1: 2}, version).encode())
        answer = DelayOffsetSerializeWrapper.decode(self.box.ask(table.code).body)
        self.assertEqual((answer.offset_table, answer.data_version), ({1: 2}, version))
        for bad in (b"", b"[]", b'{"offsetTable":{"a":1}}'):
            self.assertRaises(WireError, table.take, bad)
        # 4.9.4 has no version.
        table.take(b'{"offsetTable":{1:2}}')
        self.box.kernel.set_role("ASYNC_MASTER", 0)
        self.let_pass(5000)
        self.assertEqual(self.bodies(), [b"3"])

    def test_what_a_lost_master_delivered_last_does_not_come_again(self) -> None:
        """The slave finds the deliveries in its log, although the last copied offsets lack them."""
        self.send(b"before", 1)
        self.let_pass(500)
        for number in range(150):
            self.send(b"%d" % number, 1 + number % 2, queue_id=number % 3)
        # Twice the same message: each of them comes.
        same = send_header("T", self.box.now_ms, queue_id=1, properties={
            "DELAY": "1", "UNIQ_KEY": "same"})
        for _ in range(2):
            self.box.ask(RequestCode.SEND_MESSAGE_V2, same, b"same")
        self.let_pass(600)
        [table] = self.box.kernel.hooks.collect_synced_tables()
        copied = self.box.ask(table.code).body
        self.assertEqual(self.bodies(), [b"before"])
        self.let_pass(500)
        delivered = self.all_bodies()
        self.assertEqual((len(delivered), delivered.count(b"same")), (78, 2))
        self.box.kernel.set_role("SLAVE", 1)
        table.take(copied)
        self.box.kernel.set_role("ASYNC_MASTER", 0)
        self.send(b"after", 1)
        with capturedLogs() as events:
            self.let_pass(500)
            self.assertEqual(self.all_bodies(), delivered)
        self.assertIn("77 delayed messages were delivered by the master after its last copied "
                      "offsets", [formatEvent(event) for event in events])
        self.let_pass(5000)
        self.assertEqual(sorted(self.all_bodies()), sorted(
            [b"before", b"same", b"same", b"after"] + [b"%d" % number for number in range(150)]))

    def test_of_a_message_that_was_sent_twice_the_second_comes(self) -> None:
        """The master had delivered the first one, and its offset may or may not
        have been copied.
        """
        for is_told in (False, True):
            begin = len(self.stored())
            same = send_header("T", self.box.now_ms, queue_id=1, properties={
                "DELAY": "1", "UNIQ_KEY": f"same {is_told}"})
            self.box.ask(RequestCode.SEND_MESSAGE_V2, same, b"same")
            for number in range(BATCH_COUNT):
                self.send(b"%d" % number, 1)
            self.box.ask(RequestCode.SEND_MESSAGE_V2, same, b"same")
            [table] = self.box.kernel.hooks.collect_synced_tables()
            copied = self.box.ask(table.code).body
            self.box.now_ms += 1000
            [task] = [task for task in self.box.kernel.periodic_tasks
                      if task.name == "deliver delayed messages"]
            task.run(self.box.now_ms)
            self.assertEqual(len(self.stored()), begin + BATCH_COUNT)
            if is_told:
                copied = self.box.ask(table.code).body
            self.box.kernel.set_role("SLAVE", 1)
            table.take(copied)
            self.box.kernel.set_role("ASYNC_MASTER", 0)
            self.let_pass(100)
            self.assertEqual(sorted(self.bodies()[begin:]), sorted(
                [b"same", b"same"] + [b"%d" % number for number in range(BATCH_COUNT)]))

    def all_bodies(self) -> list[bytes]:
        """Return the bodies of the messages in three queues."""
        return [each.body for queue_id in range(3) for each in self.stored(queue_id=queue_id)]

    def saved(self) -> dict[int, int]:
        return DelayOffsetSerializeWrapper.decode_saved(self.disk.read_file(OFFSETS)).offset_table

    def test_stop_between(self) -> None:
        """Waiting messages are delivered after the next start, and delivered ones are not."""
        self.send(b"first", 1)
        self.send(b"second", 2)
        self.let_pass(1000)
        version = DataVersion(3, 5, 6)
        self.box.plugin(schedule.Plugin)._service.data_version.assign(version)
        self.restart()
        self.assertEqual(self.saved(), {1: 1})
        self.assertEqual(self.box.plugin(schedule.Plugin)._service.wrapper(),
                         DelayOffsetSerializeWrapper({1: 1}, version))
        self.let_pass(4000)
        self.assertEqual(self.bodies(), [b"first", b"second"])
        self.restart()
        self.assertEqual(self.saved(), {1: 1, 2: 1})
        self.let_pass(4000)
        self.assertEqual(self.bodies(), [b"first", b"second"])

    def test_it_is_saved_as_often_as_the_setting_says(self) -> None:
        """The progress is saved periodically, so a kill loses at most one period of it."""
        for interval_ms, first_ms in ((500, 500), (70_000, 10_000)):
            self.box.stop()
            self.box = self.start({"flushDelayOffsetInterval": str(interval_ms)})
            [task] = [task for task in self.box.kernel.periodic_tasks
                      if task.name == "save the progress of delayed messages"]
            assert callable(task.period_ms)
            self.assertEqual((task.first_ms, task.period_ms()), (first_ms, interval_ms))

    def test_it_is_saved_once_the_deliveries_are_on_disk(self) -> None:
        """Otherwise a loss of power could remove a delivery that the saved offset counts."""
        syncs: list[Callable[[None], None]] = []

        def run_sync(job: Callable[[], object], done: Callable[[None], None]) -> None:
            job()
            syncs.append(done)

        self.send(b"first", 1)
        self.let_pass(1000)
        self.patch(self.box.kernel.store.flush, "_run_sync", run_sync)
        self.save()
        self.assertFalse(self.disk.exists(OFFSETS))
        syncs.pop()(None)
        self.assertEqual(self.saved(), {1: 1})

    def test_it_is_saved_and_copied_once_replicas_have_the_deliveries(self) -> None:
        """Until then another master may lack them, and after a cut they are repeated."""
        store = self.box.kernel.store
        self.send(b"first", 1)
        self.confirm()
        self.let_pass(1000)
        self.save()
        self.assertEqual((self.saved(), self.copied()), ({}, {}))
        self.confirm()
        self.assertEqual(self.copied(), {1: 1})
        self.save()
        self.assertEqual(self.saved(), {1: 1})
        self.send(b"second", 1)
        self.send(b"third", 1)
        self.confirm()
        end = store.commit_log.max_offset
        self.let_pass(1000)
        self.box.kernel.step_down(1)
        self.save()
        self.assertEqual((self.saved(), self.copied()), ({1: 1}, {1: 1}))
        delivered = next(itertools.islice(store.raw.messages(end), 1, None))[0]
        self.successResultOf(store.log_cut.cut_undispatched(delivered))
        self.box.kernel.set_role("ASYNC_MASTER", 0)
        self.confirm()
        self.let_pass(1000)
        self.confirm()
        self.assertEqual(self.bodies(), [b"first", b"second", b"third"])

    def confirm(self) -> None:
        """Let the replicas have all of the log."""
        dispatch = self.box.kernel.store.dispatch
        dispatch.advance_confirm_offset(self.box.kernel.store.commit_log.max_offset)

    def copied(self) -> dict[int, int]:
        """Return the offsets that another broker of the group gets."""
        reply = self.box.ask(RequestCode.GET_ALL_DELAY_OFFSET)
        return DelayOffsetSerializeWrapper.decode(reply.body).offset_table

    def test_after_a_kill_everything_comes(self) -> None:
        """After a kill every message is delivered, and none twice whose progress was saved."""
        self.send(b"first", 1)
        self.let_pass(1000)
        self.save()
        self.send(b"second", 1)
        self.box.kernel.store.close()
        self.disk.forget_locks()
        self.box = self.start()
        self.let_pass(1000)
        self.assertEqual(self.bodies(), [b"first", b"second"])

    def test_recovered_entries(self) -> None:
        """A queue that is made again from the log delivers at the same time as the lost one."""
        self.send(b"late", 2)
        before = self.box.kernel.store.queues.entries(SCHEDULE_TOPIC, 1, 0, 1)
        self.box.kernel.store.close()
        self.disk.forget_locks()
        for path in list(self.disk.list_directory(f"/store/consumequeue/{SCHEDULE_TOPIC}/1")):
            self.disk.remove(f"/store/consumequeue/{SCHEDULE_TOPIC}/1/{path}")
        self.box = self.start()
        self.assertEqual(
            self.box.kernel.store.queues.entries(SCHEDULE_TOPIC, 1, 0, 1), before)
        self.assertEqual(before[0][2], self.box.now_ms + 5000)

    def test_offset_below(self) -> None:
        """A saved offset before the queue is moved to its beginning, and this is logged."""
        self.send(b"gone", 1)
        self.send(b"there", 1)
        queue = self.box.kernel.store.queues.find(SCHEDULE_TOPIC, 0)
        assert queue is not None
        queue.min_offset = 1
        with capturedLogs() as events:
            self.let_pass(1000)
        self.assertEqual(self.bodies(), [b"there"])
        [line] = [formatEvent(event) for event in events if event["log_level"].name == "error"]
        self.assertEqual(line, "delay level 1 continues at 1: the saved offset was 0, its queue "
                               "has 1 to 2; 1 messages are removed before they were due")
        self.restart()
        self.assertEqual(self.saved()[1], 2)

    def test_offset_outside(self) -> None:
        """A saved offset beyond the queue is moved to its end, and the next message
        is delivered.
        """
        for level, (beyond, tag) in enumerate(((7, "far"), (1, "near")), 1):
            self.box.stop()
            self.disk.write_file(OFFSETS, b'{"offsetTable":{%d:%d}}' % (level, beyond))
            self.box = self.start()
            self.let_pass(0)
            self.send(tag.encode(), level, topic=tag)
            self.let_pass(5000)
            self.assertEqual(self.bodies(tag), [tag.encode()])

    def test_offset_beyond_messages_that_wait(self) -> None:
        """It is moved to the first message that is not due, which cannot have been delivered."""
        self.send(b"due", 2)
        self.let_pass(4000)
        self.send(b"waits", 2)
        self.box.stop()
        self.disk.write_file(OFFSETS, b'{"offsetTable":{2:3}}')
        self.box = self.start()
        self.let_pass(1000)
        self.assertEqual(self.box.plugin(schedule.Plugin)._service.offsets, {2: 1})
        self.let_pass(4000)
        self.assertEqual(self.bodies(), [b"waits"])

    def test_a_file_that_cannot_be_read_stops_the_start(self) -> None:
        """With offset 0 all messages would be delivered again."""
        self.save()
        self.box.stop()
        for path in (OFFSETS, OFFSETS + ".bak"):
            self.disk.write_file(path, b"{")
        error = self.assertRaises(StoreDamaged, self.start)
        self.assertIn("delayOffset.json", str(error))
        self.disk.remove(OFFSETS)
        self.disk.remove(OFFSETS + ".bak")
        self.box = self.start()

    def test_bad_setting(self) -> None:
        """So does a messageDelayLevel without meaning; no tool can leave one behind."""
        self.box.stop()
        self.assertRaises(SettingsError, self.start, {"messageDelayLevel": "1 second"})
        self.box = self.start()
        update = self.box.settings.update
        self.assertRaises(SettingsError, update, {"messageDelayLevel": "1 second"})
        update({"messageDelayLevel": "1s 2s"})

    def test_a_slave_and_an_operator_get_the_delay_progress(self) -> None:
        """A slave and an operator get the progress of each level."""
        self.send(b"1", 1)
        self.send(b"2", 1)
        self.let_pass(1000)
        self.send(b"3", 1)
        reply = self.box.ask(RequestCode.GET_ALL_DELAY_OFFSET)
        self.assertIn(b'"offsetTable":{', reply.body)
        self.assertEqual(self.box.kernel.hooks.runtime_info(),
                         {f"scheduleMessageOffset_{level}": value for level, value in
                          ((1, "2,3"),)})


class FaultTests(DelayTestCase):
    """Messages that cannot be delivered now, or never."""

    def test_full_disk(self) -> None:
        """While the disk is full, nothing is delivered; afterwards everything is, once and in
        order.
        """
        for number in range(3):
            self.send(b"%d" % number, 1)
        self.disk.room_bytes = 0
        self.let_pass(1000)
        self.let_pass(100)
        self.assertEqual(self.bodies(), [])
        self.disk.room_bytes = None
        self.let_pass(100)
        self.assertEqual(self.bodies(), [b"0", b"1", b"2"])

    def test_one_refused(self) -> None:
        """A message that is refused for a while delays the later ones, which are delivered once.

        Here, and on a slave that takes over.
        """
        refuse = False

        @hookimpl
        def before_append(records: list[MessageRecord]) -> dict[int, StoreFull]:
            return {index: StoreFull("no room") for index, record in enumerate(records)
                    if refuse and record.topic == "T" and record.body == b"1"}

        self.box.stop()
        self.box = KernelBox(
            [("schedule", schedule.Plugin),
             ("picky", SimpleNamespace(before_append=before_append))],
            None, self.disk)
        for number in range(4):
            self.send(b"%d" % number, 1, topic="T" if number else "U")
        refuse = True
        self.let_pass(1000)
        self.assertEqual((self.bodies("U"), self.bodies()), ([b"0"], [b"2", b"3"]))
        [table] = self.box.kernel.hooks.collect_synced_tables()
        self.box.kernel.set_role("SLAVE", 1)
        table.take(self.box.ask(table.code).body)
        self.box.kernel.set_role("ASYNC_MASTER", 0)
        self.let_pass(100)
        self.let_pass(100)
        self.assertEqual((self.bodies("U"), self.bodies()), ([b"0"], [b"2", b"3"]))
        refuse = False
        self.let_pass(100)
        self.let_pass(100)
        self.assertEqual((self.bodies("U"), self.bodies()), ([b"0"], [b"2", b"3", b"1"]))

    def test_one_damaged(self) -> None:
        """One error names the record that is skipped; later ones are delivered once."""
        for number, part in enumerate(DAMAGED_PARTS):
            for body in (b"one", b"two", b"three"):
                self.send(body, 1, topic=f"T{number}")
            place = flip(self.box, SCHEDULE_TOPIC, 0, 3 * number + 1, part)
            with capturedLogs() as events:
                self.let_pass(1000)
                self.let_pass(1000)
            self.assertEqual(self.bodies(f"T{number}"), [b"one", b"three"])
            [line] = error_lines(events)
            self.assertIn(f"message {3 * number + 1} of {SCHEDULE_TOPIC}-0, of delay level 1, at "
                          f"{place} of the commit log, cannot be delivered: ", line)

    def test_a_promoted_slave_passes_a_damaged_delivery(self) -> None:
        """It still finds the other deliveries of the lost master, before it and after it."""
        for number in range(4):
            self.send(b"%d" % number, 1)
        [table] = self.box.kernel.hooks.collect_synced_tables()
        copied = self.box.ask(table.code).body
        self.let_pass(1000)
        place = flip(self.box, "T", 1, 1, "body")
        self.box.kernel.set_role("SLAVE", 1)
        table.take(copied)
        self.box.kernel.set_role("ASYNC_MASTER", 0)
        with capturedLogs() as events:
            self.let_pass(1000)
        reader = self.box.kernel.store
        bodies = [decode_record(data, 0, False).body[:1]
                  for data in reader.get_message("T", 1, 0, 32).messages]
        self.assertEqual((len(bodies), bodies[2:]), (5, [b"2", b"3", b"1"]))
        [line] = error_lines(events)
        self.assertIn(f"a message of T-1, at {place} of the commit log, cannot be read", line)

    def test_a_promoted_slave_counts_past_a_damaged_delayed_message(self) -> None:
        """Deliveries that the offsets count are not mistaken for those of the same message sent
        again.

        Otherwise the second of two equal messages would never be delivered.
        """
        same = send_header("T", self.box.now_ms, queue_id=1, properties={
            "DELAY": "1", "UNIQ_KEY": "same"})
        self.box.ask(RequestCode.SEND_MESSAGE_V2, same, b"same")
        for number in range(BATCH_COUNT - 1):
            self.send(b"%d" % number, 1)
        self.box.ask(RequestCode.SEND_MESSAGE_V2, same, b"same")
        self.box.now_ms += 1000
        [task] = [task for task in self.box.kernel.periodic_tasks
                  if task.name == "deliver delayed messages"]
        task.run(self.box.now_ms)
        self.assertEqual(len(self.stored()), BATCH_COUNT)
        [table] = self.box.kernel.hooks.collect_synced_tables()
        copied = self.box.ask(table.code).body
        flip(self.box, SCHEDULE_TOPIC, 0, 1, "magic")
        self.box.kernel.set_role("SLAVE", 1)
        table.take(copied)
        self.box.kernel.set_role("ASYNC_MASTER", 0)
        self.let_pass(1000)
        self.assertEqual(self.bodies().count(b"same"), 2)

    def test_not_a_delayed_message(self) -> None:
        """A message in the schedule topic without its real topic is skipped."""
        self.assertEqual(self.box.kernel.append([message(SCHEDULE_TOPIC, b"stray", 0)]), {})
        self.send(b"late", 1)
        self.let_pass(1000)
        self.assertEqual(self.bodies(), [b"late"])
