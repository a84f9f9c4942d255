"""The file of a broadcasting member: writes, one at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.client.core.group_box import GroupBox, GroupBroker
from twistmq.client.core.connection.engine import Effect, Work
from twistmq.client.core.connection.tasks import Cancelled
from twistmq.client.core.consumer.offsets import LocalOffsets, OffsetTable
from twistmq.protocol.bodies import MessageQueue

QUEUE = MessageQueue("T", "a", 0)


class File:
    """A file in memory."""

    def __init__(self) -> None:
        self.data: bytes | None = None
        self.writes = 0

    name = "the file of the test"

    def read(self, check: Callable[[bytes], object]) -> bytes | None:
        """The content."""
        if self.data is not None:
            check(self.data)
        return self.data

    def written_ms(self) -> int:
        """When it was written: before all messages."""
        return 0

    def write(self, data: bytes) -> None:
        """Replace the content."""
        self.data = data
        self.writes += 1

    @property
    def offset(self) -> int | None:
        """The offset of the queue in the content."""
        assert self.data is not None
        return OffsetTable.decode_reply(self.data).offset_table.get(QUEUE)


class FileBox(GroupBox):
    """A member whose work on the file ends when the test says so."""

    def __init__(self, **options: Any) -> None:
        broker = GroupBroker(queues=1)
        broker.put("T", 0, b"0")
        super().__init__(broker, **options)
        self.file = File()
        self.offsets = LocalOffsets(self.core, self.file)
        #: The work that waits; None: it is done at once.
        self.work: list[Work] | None = None

    def _do(self, effect: Effect) -> None:
        if isinstance(effect, Work) and self.work is not None:
            self.work.append(effect)
        else:
            super()._do(effect)

    def end(self) -> None:
        """End the oldest work that waits."""
        assert self.work
        work = self.work.pop(0)
        self.engine.worked(work.number, work.function(), None)
        self.settle()


class WriteTests(SynchronousTestCase):
    """Commits that come together."""

    def setUp(self) -> None:
        """Make a store that has read its file."""
        self.box = FileBox()
        self.assertIsNone(self.box.run(self.box.offsets.read(QUEUE)))
        self.work = self.box.work = []

    def test_writes_come_one_after_the_other_and_the_last_has_all(self) -> None:
        """The threads of two would write the same file beside it."""
        tasks = [self.box.engine.tasks.spawn(self.box.offsets.write({QUEUE: offset}))
                 for offset in (1, 2, 3)]
        for left in (2, 1, 0):
            self.box.settle()
            self.assertEqual(len(self.work), 1)
            self.box.end()
            self.assertEqual([each.is_done for each in tasks].count(False), left)
        self.assertEqual([each.result() for each in tasks],
                         [{QUEUE: 1}, {QUEUE: 2}, {QUEUE: 3}])
        self.assertEqual((self.box.file.offset, self.box.file.writes), (3, 3))

    def test_a_write_has_all_queues(self) -> None:
        """Also those that were committed earlier, and those of other topics."""
        self.box.work = None
        other = MessageQueue("U", "b", 3)
        self.box.run(self.box.offsets.write({QUEUE: 1, other: 4}))
        self.box.run(self.box.offsets.write({QUEUE: 2}))
        assert self.box.file.data is not None
        self.assertEqual(OffsetTable.decode_reply(self.box.file.data).offset_table,
                         {QUEUE: 2, other: 4})

    def test_a_write_that_is_cancelled_is_waited_for(self) -> None:
        """A close cancels the commits that come each five seconds, and commits itself."""
        first = self.box.engine.tasks.spawn(self.box.offsets.write({QUEUE: 1}))
        self.box.settle()
        first.cancel()
        second = self.box.engine.tasks.spawn(self.box.offsets.write({QUEUE: 2}))
        self.box.settle()
        self.assertEqual(len(self.work), 1)
        self.box.end()
        self.assertEqual((self.box.file.offset, len(self.work)), (1, 1))
        self.box.end()
        self.assertRaises(Cancelled, first.result)
        self.assertEqual((second.result(), self.box.file.offset), ({QUEUE: 2}, 2))

    def test_a_read_that_comes_late_takes_nothing_back(self) -> None:
        """Two queues are looked for together; one is committed before the other has its answer."""
        box = FileBox()
        box.work = []
        reads = [box.engine.tasks.spawn(box.offsets.read(QUEUE)) for _ in range(2)]
        box.settle()
        box.end()
        self.assertTrue(reads[0].is_done)
        writing = box.engine.tasks.spawn(box.offsets.write({QUEUE: 1}))
        box.settle()
        box.end()
        self.assertEqual(reads[1].result(), 1)
        box.end()
        self.assertEqual((writing.result(), box.file.offset), ({QUEUE: 1}, 1))
        self.assertEqual(box.run(box.offsets.read(QUEUE)), 1)


class NoticeTests(SynchronousTestCase):
    """A member hears that the members of its group changed."""

    def test_a_broadcasting_member_commits_nothing_on_a_notice(self) -> None:
        """No other one reads its offsets."""
        box = FileBox(is_broadcast=True)
        box.member.offsets = box.offsets
        box.start()
        batch = box.member.take(1)
        assert batch is not None
        box.member.succeed(batch.assigned, batch.messages)
        writes = box.file.writes
        box.notify()
        box.advance(100)
        self.assertEqual(box.file.writes, writes)
        box.advance(6_000)
        self.assertEqual((box.file.offset, box.file.writes > writes), (1, True))
