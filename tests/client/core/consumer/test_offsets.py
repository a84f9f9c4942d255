"""The file of a broadcast member: its writes, one at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar
from unittest.mock import patch

from twisted.trial.unittest import SynchronousTestCase

from tests.client.core.box import Answer
from tests.client.core.consumer.member_case import MemberCase
from tests.client.core.group_box import BROKER, GroupBox, GroupBroker
from twistmq.client.core.connection.engine import Effect, Work
from twistmq.client.core.connection.tasks import Cancelled, Task
from twistmq.client.core.consumer.offsets import LocalOffsets, OffsetTable
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.flags import PULL_COMMIT_OFFSET
from twistmq.protocol.headers.offset import (
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from twistmq.protocol.headers.pull import PullMessageRequestHeader

R = TypeVar("R")

QUEUE = MessageQueue("T", "a", 0)


class File:
    """A file in memory."""

    def __init__(self) -> None:
        self.data: bytes | None = None
        self.reads = self.writes = 0

    name = "the file of the test"

    def read(self, parse: Callable[[bytes], R]) -> R | None:
        """Return the content."""
        self.reads += 1
        return None if self.data is None else parse(self.data)

    def written_ms(self) -> int:
        """Return a time before all messages."""
        return 0

    def write(self, data: bytes) -> None:
        """Replace the content."""
        self.data = data
        self.writes += 1

    @property
    def offset(self) -> int | None:
        """Return the offset of the queue in the content."""
        assert self.data is not None
        return OffsetTable.decode_reply(self.data).offset_table.get(QUEUE)


def failing(parse: object) -> NoReturn:
    """Raise the error of a file that cannot be read."""
    raise OSError("no disk")


class FileBox(GroupBox):
    """A member whose file operations end when the test asks for it."""

    def __init__(self, **options: Any) -> None:
        broker = GroupBroker(queues=1)
        broker.put("T", 0, b"0")
        self.file = File()
        super().__init__(broker, file=self.file, **options)
        self.offsets = LocalOffsets(self.core, self.file)
        #: The work that waits; None: it is done at once.
        self.work: list[Work] | None = None

    def _do(self, effect: Effect) -> None:
        if isinstance(effect, Work) and self.work is not None:
            self.work.append(effect)
        else:
            super()._do(effect)

    def fail(self) -> None:
        """Let the oldest work that waits raise its error."""
        assert self.work
        work = self.work.pop(0)
        try:
            work.function()
        except OSError as error:
            self.engine.worked(work.number, None, error)
        self.settle()

    def end(self) -> None:
        """End the oldest waiting operation."""
        assert self.work
        work = self.work.pop(0)
        self.engine.worked(work.number, work.function(), None)
        self.settle()


class WriteTests(SynchronousTestCase):
    """Commits at the same time."""

    def setUp(self) -> None:
        """Make a store that has read its file."""
        self.box = FileBox()
        self.assertIsNone(self.box.run(self.box.offsets.read(QUEUE)))
        self.work = self.box.work = []

    def begin(self, offset: int) -> Task[Any]:
        """Begin a write."""
        task = self.box.engine.tasks.spawn(self.box.offsets.write({QUEUE: offset}))
        self.box.settle()
        return task

    def test_writes_come_one_after_the_other_and_the_last_has_all(self) -> None:
        """The threads of two would write the same file beside it."""
        tasks = [self.begin(offset) for offset in (1, 2, 3)]
        self.assertEqual(len(self.work), 1)
        self.box.end()
        self.assertEqual([each.is_done for each in tasks], [True, False, False])
        self.assertEqual((self.box.file.offset, len(self.work)), (1, 1))
        tasks.append(self.begin(4))
        self.assertEqual(len(self.work), 1)
        self.box.end()
        self.box.end()
        self.assertEqual([each.result() for each in tasks],
                         [{QUEUE: 1}, {QUEUE: 2}, {QUEUE: 3}, {QUEUE: 4}])
        self.assertEqual((self.box.file.offset, self.work), (4, []))

    def test_a_thousand_queues_are_written_twice(self) -> None:
        """The file has all queues, so a write for each would write each of them a
        thousand times.
        """
        tasks = [self.box.engine.tasks.spawn(self.box.offsets.write(
            {MessageQueue("T", "a", number): number})) for number in range(1000)]
        self.box.settle()
        while self.work:
            self.box.end()
        self.assertTrue(all(each.is_done for each in tasks))
        self.assertLessEqual(self.box.file.writes, 2)
        assert self.box.file.data is not None
        self.assertEqual(len(OffsetTable.decode_reply(self.box.file.data).offset_table), 1000)

    def test_all_who_share_a_write_learn_that_it_failed(self) -> None:
        """One line has the reason, and the next write has everything."""
        self.begin(1)
        tasks = [self.begin(offset) for offset in (2, 3)]
        self.box.end()
        with patch.object(self.box.file, "write", failing), \
                self.assertLogs("twistmq.client", "ERROR") as logs:
            self.box.fail()
        self.assertEqual([each.result() for each in tasks], [{}, {}])
        self.assertEqual(len(logs.output), 1)
        self.begin(4)
        self.box.end()
        self.assertEqual(self.box.file.offset, 4)

    def test_a_write_has_all_queues(self) -> None:
        """The file also has the queues of earlier commits and of other topics."""
        self.box.work = None
        other = MessageQueue("U", "b", 3)
        self.box.run(self.box.offsets.write({QUEUE: 1, other: 4}))
        self.box.run(self.box.offsets.write({QUEUE: 2}))
        assert self.box.file.data is not None
        self.assertEqual(OffsetTable.decode_reply(self.box.file.data).offset_table,
                         {QUEUE: 2, other: 4})

    def test_a_write_that_is_cancelled_is_waited_for(self) -> None:
        """A close cancels the periodic commit, and commits itself."""
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



class ReadTests(SynchronousTestCase):
    """Queues whose offsets are requested together."""

    def setUp(self) -> None:
        """Create a file that was not read."""
        self.box = FileBox()
        self.box.file.data = OffsetTable(
            offset_table={MessageQueue("T", "a", number): number for number in range(100)}).encode()
        self.work = self.box.work = []

    def test_they_share_one_read(self) -> None:
        """Otherwise each would wait for the reads of all others."""
        reads = [self.box.engine.tasks.spawn(self.box.offsets.read(
            MessageQueue("T", "a", number))) for number in range(100)]
        self.box.settle()
        self.assertEqual(len(self.work), 1)
        with patch.object(OffsetTable, "decode_reply", wraps=OffsetTable.decode_reply) as decode:
            self.box.end()
        self.assertEqual([each.result() for each in reads], list(range(100)))
        self.assertEqual((self.box.file.reads, decode.call_count, self.work), (1, 1, []))

    def test_one_that_is_cancelled_takes_no_read_away(self) -> None:
        """The others wait for the same one."""
        first, second = [self.box.engine.tasks.spawn(self.box.offsets.read(QUEUE))
                         for _ in range(2)]
        self.box.settle()
        first.cancel()
        third = self.box.engine.tasks.spawn(self.box.offsets.read(QUEUE))
        self.box.settle()
        self.assertEqual(len(self.work), 1)
        self.box.end()
        self.assertEqual((second.result(), third.result()), (0, 0))

    def test_a_read_that_failed_is_made_again(self) -> None:
        """The next caller makes it."""
        reads = [self.box.engine.tasks.spawn(self.box.offsets.read(QUEUE)) for _ in range(2)]
        for each in reads:
            each.when_done(lambda _: None)
        self.box.settle()
        with patch.object(self.box.file, "read", failing):
            self.box.fail()
        for each in reads:
            self.assertIn("no disk", str(each.error))
        again = self.box.engine.tasks.spawn(self.box.offsets.read(QUEUE))
        self.box.settle()
        self.box.end()
        self.assertEqual(again.result(), 0)


class NoticeTests(SynchronousTestCase):
    """A member is notified that the members of its group changed."""

    def test_a_broadcasting_member_commits_nothing_on_a_notice(self) -> None:
        """No other member reads its offsets."""
        box = FileBox(is_broadcast=True)
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


class RemoteTests(MemberCase):
    """Commits to a broker."""

    def test_a_commit_waits_for_the_one_before(self) -> None:
        """A broker may handle the later of two first; for this reason a pull commits nothing."""
        box = GroupBox(self.broker)
        commits: list[int | None] = []
        pulls: list[int] = []

        is_slow = False

        def first_unanswered(command: RemotingCommand) -> Answer:
            if command.code == RequestCode.PULL_MESSAGE:
                pulls.append(command.header(PullMessageRequestHeader).sys_flag)
            if is_slow and command.code == RequestCode.UPDATE_CONSUMER_OFFSET and (
                    command.header(UpdateConsumerOffsetRequestHeader).queue_id
                    == first.assigned.queue.queue_id):
                commits.append(command.header(UpdateConsumerOffsetRequestHeader).commit_offset)
                if commits == [1]:
                    return None
            return self.broker(command)

        box.servers[BROKER] = first_unanswered
        box.start()
        first = self.take(box, 1)
        second = box.member.take(1)
        while second is not None and second.assigned is not first.assigned:
            second = box.member.take(1)
        assert second is not None
        is_slow = True
        box.member.succeed(first.assigned, first.messages)
        while not commits:
            box.advance(100)
        box.member.succeed(second.assigned, second.messages)
        closing = box.engine.tasks.spawn(box.member.close(1_000))
        box.advance(4_000)
        self.assertEqual((commits, closing.is_done), ([1], False))
        box.advance(2_000)
        self.assertEqual((commits, closing.is_done), ([1, 2], True))
        self.assertEqual(self.broker.offsets["g", "T", first.assigned.queue.queue_id], 2)
        self.assertTrue(pulls)
        self.assertFalse(any(flag & PULL_COMMIT_OFFSET for flag in pulls))

    def test_the_first_commit_of_a_topic_is_made_alone(self) -> None:
        """Apache's broker may lose all but one of several first ones; later ones run together.

        That of 4.9.4 says 0 of a group without an offset.
        """
        box = GroupBox(self.broker)
        commits: list[int] = []

        def unanswered(command: RemotingCommand) -> Answer:
            if command.code == RequestCode.UPDATE_CONSUMER_OFFSET and is_slow:
                commits.append(command.header(UpdateConsumerOffsetRequestHeader).queue_id)
                return None
            if command.code == RequestCode.QUERY_CONSUMER_OFFSET and not self.broker.offsets:
                return (ResponseCode.SUCCESS, QueryConsumerOffsetResponseHeader(offset=0),
                        b"", None)
            return self.broker(command)

        is_slow = False
        box.servers[BROKER] = unanswered
        box.start()
        is_slow = True
        for _ in range(4):
            batch = self.take(box, 1)
            box.member.succeed(batch.assigned, batch.messages)
        several = {assigned.queue.queue_id for assigned in box.member.assigned_queues.values()
                   if assigned.window.committable}
        self.assertGreater(len(several), 1)
        committing = box.engine.tasks.spawn(box.member.commit())
        box.advance(1_000)
        self.assertEqual(len(commits), 1)
        is_slow = False
        box.advance(20_000)
        self.assertTrue(committing.is_done)
        self.assertEqual({queue_id for _, topic, queue_id in self.broker.offsets
                          if topic == "T"}, several)
        is_slow = True
        commits.clear()
        box.engine.tasks.spawn(box.intake.committer.commit(again=True))
        box.advance(100)
        self.assertLessEqual(several, set(commits))
        is_slow = False
        box.advance(20_000)
        # With a topic the broker forgets the offsets of groups.
        box.intake.moves.topic_deleted(next(iter(box.member.assigned_queues.values())))
        is_slow = True
        commits.clear()
        box.engine.tasks.spawn(box.intake.committer.commit(again=True))
        box.advance(50)
        self.assertEqual(len(commits), 1)
