"""Half messages that are kept in memory until they are ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace

from tests.cost import GROWTH_MAX, growth
from tests.transaction.case import COMMIT, TransactionTestCase
from tests.transaction.test_end import BatchTests, EndTests
from twistmq.broker import hookimpl
from twistmq.protocol.message_id import parse_offset_message_id
from twistmq.protocol.record import MessageRecord
from twistmq.transaction.recent import RecentHalves


def _record(place: int, size: int) -> MessageRecord:
    record = MessageRecord("T", 0, b"", "", 0, b"", b"", [])
    record.physical_offset, record.size = place, size
    return record


class RecentTests(TransactionTestCase):
    """The half messages that are kept are equal to those in the log."""

    def test_same_as_read_back(self) -> None:
        """The committed message is the same, whether the half message was kept or read."""
        self.must_end(self.half(b"kept", queue_id=2), COMMIT)
        half = self.half(b"read", queue_id=2)
        self.service.recent = RecentHalves()
        self.must_end(half, COMMIT)
        kept, read = self.stored(queue_id=2)
        self.assertEqual((kept.body, read.body), (b"kept", b"read"))
        for name in ("flag", "sys_flag", "topic", "queue_id", "born_timestamp", "store_host",
                     "reconsume_times"):
            self.assertEqual(getattr(kept, name), getattr(read, name), name)
        self.assertEqual(kept.properties.replace("kept", "read"), read.properties)
        self.assertEqual(read.prepared_transaction_offset,
                         parse_offset_message_id(half.msg_id)[2])

    def test_until_the_end(self) -> None:
        """A half message that was ended or refused is not kept."""
        half = self.half()
        self.assertEqual(len(self.service.recent), 1)
        self.must_end(half, COMMIT)
        self.disk.fail_write_in = 1
        self.send(b"not stored")
        self.disk.fail_write_in = None
        self.assertEqual(len(self.service.recent), 0)

    def test_the_oldest_make_room_for_new_ones(self) -> None:
        """The oldest half messages are dropped for new ones, and can still be ended."""
        halves = [self.half(b"0")]
        [record] = self.halves()
        self.service.recent = RecentHalves(3 * record.size)
        halves += [self.half(b"%d" % number) for number in range(1, 6)]
        self.assertEqual(len(self.service.recent), 3)
        for half in halves:
            self.must_end(half, COMMIT)
        self.assertEqual(len(self.service.recent), 0)
        self.assertEqual(self.bodies(), [b"%d" % number for number in range(6)])

    def test_cost_of_many(self) -> None:
        """The oldest one is found in constant time, however many were dropped before."""
        def prepare(count: int) -> Callable[[], object]:
            recent = RecentHalves(count)
            for place in range(count):
                recent.keep(_record(place, 1), {})
            return lambda: recent.keep(_record(count, count), {})

        self.assertLess(growth(prepare, 10_000), GROWTH_MAX)

    def test_changed_by_another_plugin(self) -> None:
        """A half message that another plugin changes is read from the log when it is ended."""
        @hookimpl
        def before_append(records: Sequence[MessageRecord]) -> None:
            for record in records:
                record.properties = record.properties.replace("REAL_QID\x011", "REAL_QID\x013")

        self.box.kernel.hooks.register("mover", SimpleNamespace(before_append=before_append))
        self.box.kernel.hooks.freeze()
        half = self.half(b"moved", queue_id=1)
        self.assertEqual(len(self.service.recent), 0)
        self.must_end(half, COMMIT)
        self.assertEqual(self.bodies(queue_id=3), [b"moved"])


class _NoneKept(TransactionTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.service.recent = RecentHalves(0)


class EndFromLogTests(_NoneKept, EndTests):
    """The tests of ends, with half messages that are read from the log."""


class BatchFromLogTests(_NoneKept, BatchTests):
    """The tests of ends in one read, with half messages that are read from the log."""
