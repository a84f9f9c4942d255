"""The times at which the offsets of a member are stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from tests.client.core.consumer.member_case import MemberCase
from tests.client.core.consumer.part_case import PartCase, queue
from tests.client.core.group_box import GroupBox
from twistmq.client.core.consumer.assigned_queues import AssignedQueue, MemberOptions
from twistmq.client.core.consumer.committer import ALL_COMMITTED_EVERY, Committer
from twistmq.client.core.consumer.offsets import OffsetStore
from twistmq.protocol.bodies import MessageQueue


class _Offsets:
    """A store that keeps offsets, except those of refused queues."""

    def __init__(self) -> None:
        self.stored: dict[MessageQueue, int] = {}
        self.refused: set[MessageQueue] = set()
        self.writes: list[dict[int, int]] = []

    async def read(self, queue: MessageQueue) -> int | None:
        """See ``OffsetStore``."""
        return self.stored.get(queue)

    async def write(self, offsets: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """See ``OffsetStore``."""
        self.writes.append({queue.queue_id: offset for queue, offset in offsets.items()})
        kept = {queue: offset for queue, offset in offsets.items() if queue not in self.refused}
        self.stored.update(kept)
        return kept


class CommitterTests(PartCase):
    """The module client/core/consumer/committer.py."""

    def setUp(self) -> None:
        """Make a committer of two queues, with two finished messages in the first."""
        super().setUp()
        self.offsets = _Offsets()
        self.marks = 0
        self.committer = self.new_committer()
        self.first, self.second = self.assign(3, 0), self.assign(3, 1)
        self.finish(self.first, 2)
        self.second.committed = 0

    def new_committer(self, **options: Any) -> Committer[bytes]:
        """Create a committer."""
        async def mark() -> None:
            self.marks += 1

        return Committer(
            self.tasks, "g", MemberOptions(group="g", commit_ms=1000, **options), self.closing,
            self.queues, cast(OffsetStore, self.offsets), mark)

    def finish(self, assigned: AssignedQueue[bytes], count: int) -> None:
        """Finish messages of a queue."""
        window = assigned.window
        window.done_all(window.take(count, 0))

    def commit(self, **options: Any) -> bool:
        """Commit now."""
        done: bool = self.spawn(self.committer.commit(**options)).result()
        return done

    def test_only_offsets_that_changed_are_stored(self) -> None:
        """With ``again`` all of them are stored."""
        self.assertTrue(self.commit())
        self.assertTrue(self.commit())
        self.assertTrue(self.commit(again=True))
        self.assertEqual(self.offsets.writes, [{0: 2}, {0: 2, 1: 0}])

    def test_some_queues_can_be_committed_alone(self) -> None:
        """These may be lost ones, which the member no longer has."""
        del self.queues[queue(0)]
        self.commit(queues=[self.first])
        self.assertEqual((self.offsets.writes, self.first.committed), ([{0: 2}], 2))

    def test_a_queue_without_a_known_start_is_left_out(self) -> None:
        """Its commit could set the group back."""
        self.first.is_settled = False
        self.assertTrue(self.commit(again=True))
        self.assertEqual(self.offsets.writes, [{1: 0}])

    def test_a_refused_offset_is_stored_the_next_time(self) -> None:
        """The caller learns that an offset is missing."""
        self.offsets.refused.add(queue(0))
        self.assertFalse(self.commit())
        self.offsets.refused.clear()
        self.assertTrue(self.commit())
        self.assertEqual(self.offsets.writes, [{0: 2}, {0: 2}])

    def test_a_queue_that_leaves_unread_has_its_start_stored_once(self) -> None:
        """An offset that the group has in it remains."""
        self.offsets.stored[queue(1)] = 9
        self.spawn(self.committer.commit_beginnings([self.first, self.second]))
        self.assertEqual(self.offsets.stored, {queue(0): 2, queue(1): 9})

    def test_starts_of_new_queues_are_stored_soon_and_together(self) -> None:
        """The group is marked then; a queue that the group knew waits for its time."""
        self.first.is_new = self.second.is_new = True
        self.first.committed = self.second.committed = None
        for assigned in (self.first, self.second):
            self.committer.settled(assigned)
        self.advance(49)
        self.assertEqual((self.offsets.writes, self.marks), ([], 0))
        self.advance(1)
        self.assertEqual((self.offsets.writes, self.marks), ([{0: 2, 1: 0}], 1))

    def test_a_close_leaves_the_starts_to_its_own_commit(self) -> None:
        """Nothing is stored after the close began."""
        self.first.is_new = True
        self.committer.settled(self.first)
        self.closing.set()
        self.advance(1000)
        self.assertEqual(self.offsets.writes, [])

    def test_each_third_commit_has_all_queues(self) -> None:
        """A late commit of another member may have set one back; broadcast members
        have no others.
        """
        for broadcast, expected in ((False, [{0: 2}, {0: 2, 1: 0}, {0: 2, 1: 0}]),
                                    (True, [{0: 2}])):
            self.offsets.writes.clear()
            self.first.committed = None
            loop = self.spawn(self.new_committer(is_broadcast=broadcast).commit_always())
            self.advance(2 * ALL_COMMITTED_EVERY * 1000)
            loop.cancel()
            self.advance(1000)
            self.assertEqual(self.offsets.writes, expected)


class MemberCommitTests(MemberCase):
    """The commits of a whole member."""

    def test_a_new_queue_is_not_committed_before_it_is_pulled(self) -> None:
        """The group would be set back to where it was before."""
        box = self.new_member()
        box.run(box.intake.committer.commit(again=True))
        self.assertEqual(self.broker.offsets, {("g", "T", 1): 7})
        box.advance(300)
        box.run(box.intake.committer.commit(again=True))
        self.assertEqual([self.broker.offsets["g", "T", number] for number in range(4)],
                         [0, 7, 0, 0])

    def test_what_is_finished_is_committed_and_nothing_beyond(self) -> None:
        """The member commits the offset of the first message that is not finished.

        A new member commits as often as later: another one may have its queues at any time.
        """
        box = GroupBox(self.broker)
        box.start()
        batch = self.take(box, 4)
        box.member.succeed(batch.assigned, batch.messages[:2])
        box.advance(box.member.options.commit_ms)
        number = batch.assigned.queue.queue_id
        self.assertEqual(self.broker.offsets["g", "T", number], 2)
        box.member.succeed(batch.assigned, batch.messages[3:])
        box.advance(6_000)
        self.assertEqual(self.broker.offsets["g", "T", number], 2)
        box.member.succeed(batch.assigned, batch.messages[2:3])
        box.advance(6_000)
        self.assertEqual(self.broker.offsets["g", "T", number], 4)

    def test_a_queue_that_was_set_back_is_committed_again(self) -> None:
        """A late commit of the previous member is corrected within three commits."""
        box = GroupBox(self.broker)
        box.start()
        batch = self.take(box, 3)
        box.member.succeed(batch.assigned, batch.messages)
        box.advance(12_000)
        key = "g", "T", batch.assigned.queue.queue_id
        self.assertEqual(self.broker.offsets[key], 3)
        self.broker.offsets[key] = 1
        box.advance(16_000)
        self.assertEqual(self.broker.offsets[key], 3)
