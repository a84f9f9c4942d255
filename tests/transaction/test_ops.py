"""Op messages: how ends are written and read."""

from __future__ import annotations

from twisted.logger import capturedLogs

from tests.kernel_case import error_lines
from tests.transaction.case import COMMIT, ROLLBACK, TransactionTestCase
from twistmq.protocol.record import StoredMessage
from twistmq.protocol.topic_names import OP_HALF_TOPIC
from twistmq.transaction.ops import KnownOps, op_record


class BatchTests(TransactionTestCase):
    """The ends that wait are written in one message."""

    def test_written_together(self) -> None:
        """Ends wait for the interval and are written in one op message of Apache's form."""
        halves = [self.half(b"%d" % number) for number in range(3)]
        for half, how in zip(halves, (COMMIT, ROLLBACK, COMMIT), strict=True):
            self.must_end(half, how)
        self.assertEqual(self.ops(), [])
        self.write_ends()
        [op] = self.ops()
        self.assertEqual((op.body, op.properties_map(), op.sys_flag, op.queue_id),
                         (b"0,1,2,", {"TAGS": "d", "WAIT": "true"}, 0, 0))
        self.write_ends()
        self.assertEqual(len(self.ops()), 1)

    def test_task_runs_as_often_as_set(self) -> None:
        """The interval is the setting's, also when it changes."""
        [task] = [task for task in self.box.kernel.periodic_tasks
                  if task.name == "write ends of half messages"]
        assert callable(task.period_ms)
        self.assertEqual((task.first_ms, task.period_ms()), (3000, 3000))
        self.box.settings.update({"transactionOpBatchInterval": "70"})
        self.assertEqual(task.period_ms(), 70)

    def test_written_at_stop(self) -> None:
        """A stop writes the ends that wait, and nothing is asked about afterwards."""
        self.must_end(self.half(), COMMIT)
        self.restart()
        self.assertEqual([op.body for op in self.ops()], [b"0,"])
        self.assertEqual(self.asked(60_000), [])

    def test_ends_that_cannot_be_written_wait(self) -> None:
        """Ends that cannot be written wait; their half messages are not asked about."""
        self.must_end(self.half(), COMMIT)
        self.disk.fail_write_in = 1
        self.write_ends()
        self.assertEqual(self.asked(60_000), [])
        self.disk.fail_write_in = None
        self.write_ends()
        self.assertEqual([op.body for op in self.ops()], [b"0,"])


class SizeTests(TransactionTestCase):
    """The size of an op message is limited."""

    settings = {"transactionOpMsgMaxSize": "10"}  # noqa: RUF012

    def test_written_when_large(self) -> None:
        """More ends than fit into one op message are written immediately, in several messages."""
        for number in range(12):
            self.must_end(self.half(b"%d" % number), ROLLBACK)
        self.assertEqual([op.body for op in self.ops()], [b"0,1,2,3,4,", b"5,", b"6,7,8,9,10,"])
        self.write_ends()
        self.assertEqual(self.ops()[-1].body, b"11,")


class KnownTests(TransactionTestCase):
    """The contents of op messages."""

    def op(self, body: bytes, *, tag: str = "d") -> None:
        """Store an op message."""
        record = op_record(self.box.kernel, 0, [])
        record.body = body
        record.properties = record.properties.replace("TAGS\x01d", f"TAGS\x01{tag}")
        self.assertEqual(self.box.kernel.append([record]), {})

    def known(self, *bodies: bytes, half_offset: int = 0) -> KnownOps:
        for body in bodies:
            self.op(body)
        known = KnownOps(self.box.kernel, 0, 0)
        while not known.all_read:
            known.read(half_offset)
        return known

    def test_taken_once(self) -> None:
        """Each half message is returned once; an op message is consumed after its last one."""
        known = self.known(b"0,1,", b"2,")
        self.assertEqual([known.take(offset) for offset in (0, 0, 3)], [True, False, False])
        self.assertEqual(known.consume(1), 0)
        self.assertTrue(known.take(2))
        self.assertEqual(known.consume(1), 0)
        self.assertTrue(known.take(1))
        self.assertEqual(known.consume(3), 2)

    def test_named_twice(self) -> None:
        """The later op message counts; both are consumed."""
        known = self.known(b"0,0,", b"0,")
        self.assertTrue(known.take(0))
        self.assertEqual(known.consume(1), 2)

    def test_4_9s_has_one_number(self) -> None:
        """An op message of 4.9 has one number; invalid numbers and unknown tags are skipped."""
        known = self.known(b"7", b"", b",,x,-3,8,")
        self.op(b"9,", tag="x")
        known.read(0)
        self.assertEqual([known.take(offset) for offset in (7, 8, 9)], [True, True, False])
        self.assertEqual(known.consume(10), 4)

    def test_an_op_before_its_half_message_is_remembered(self) -> None:
        """An end that is read after its half message is remembered until the copy is read."""
        for number in range(4):
            self.half(b"%d" % number)
        known = self.known(b"0,3,", half_offset=2)
        self.assertEqual(known.late, {0})
        self.assertTrue(known.take(3))
        self.assertEqual((known.consume(3), known.late), (0, {0}))
        self.assertEqual((known.consume(4), known.late), (1, set()))

    def test_half_messages_that_are_gone_hold_nothing_up(self) -> None:
        """Half messages that no longer exist do not block the op queue."""
        known = self.known(b"0,1,5,")
        known.skip_to(5)
        self.assertEqual([known.take(1), known.take(5), known.consume(6)], [False, True, 1])

    def test_op_messages_that_are_gone(self) -> None:
        """Op messages that no longer exist are counted, and the others are read."""
        self.op(b"0,")
        self.op(b"1,")
        queue = self.box.kernel.store.queues.find(OP_HALF_TOPIC, 0)
        assert queue is not None
        queue.min_offset = 1
        with capturedLogs() as events:
            known = self.known()
        self.assertEqual([known.take(0), known.take(1)], [False, True])
        [line] = error_lines(events)
        self.assertTrue(line.startswith(f"1 op messages of {OP_HALF_TOPIC}-0 were removed"),
                        msg=line)

    def test_more_than_one_read_of_op_messages_is_processed(self) -> None:
        """More op messages than one read returns are processed by several reads."""
        for number in range(70):
            self.op(b"%d," % number)
        known = self.known()
        self.assertEqual([known.take(number) for number in range(71)], [True] * 70 + [False])
        self.assertEqual(known.consume(70), 70)

    def test_an_op_message_that_is_gone_is_logged_and_passed(self) -> None:
        """An op message that no longer exists is logged and skipped."""
        self.op(b"0,")
        store = self.box.kernel.store
        look = store.look_message
        self.patch(store, "look_message", lambda place, size=None: None)
        known = self.known()
        self.patch(store, "look_message", look)
        self.assertEqual((known.take(0), known.consume(0)), (False, 1))

    def test_stored_as_others_are(self) -> None:
        """An op message is stored in the op topic as any other message."""
        self.op(b"1,")
        [found] = self.stored(OP_HALF_TOPIC, 0)
        self.assertIsInstance(found, StoredMessage)
        self.assertEqual(found.born_host, self.box.kernel.store_host)
