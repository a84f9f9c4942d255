"""Pushes that wait for earlier ones."""

from twisted.trial.unittest import SynchronousTestCase

from tests.raft.lone import entries_of
from twistmq.raft.messages import Entry, PushRequest, PushType
from twistmq.raft.parked_pushes import ParkedPush, ParkedPushes


def _parked(question: int, first: int, *, deadline_ms: int = 100, size: int = 1) -> ParkedPush:
    entries = (Entry(first, 1, b"x" * size), *entries_of(1, first=first + 1))
    return ParkedPush(question, PushRequest("g", "a", "b", 1, "a", PushType.APPEND, -1, entries),
                  deadline_ms)


class ParkingTests(SynchronousTestCase):
    """A store of parked pushes with room for 10 bytes."""

    def setUp(self) -> None:
        """Make the store."""
        self.pushes = ParkedPushes(10)

    def test_pushes_leave_in_the_order_of_their_indexes(self) -> None:
        """Each push leaves when the log has reached it."""
        for question, first in ((1, 8), (2, 5)):
            self.assertEqual(self.pushes.add_push(_parked(question, first), 0), [])
        self.assertIsNone(self.pushes.take_up_to(4))
        taken = [self.pushes.take_up_to(8) for _ in range(3)]
        self.assertEqual([parked and parked.question for parked in taken], [2, 1, None])

    def test_a_repeated_push_replaces_the_first(self) -> None:
        """The first push is returned, so that it is answered."""
        self.pushes.add_push(_parked(1, 5), 0)
        self.assertEqual(self.pushes.add_push(_parked(2, 5), 0), [_parked(1, 5)])
        self.assertEqual(self.pushes.take_all(), [_parked(2, 5)])

    def test_there_is_room_for_so_many_bytes(self) -> None:
        """A push without room changes nothing, even if it would replace another one."""
        self.pushes.add_push(_parked(1, 5, size=4), 0)
        self.assertIsNone(self.pushes.add_push(_parked(2, 7, size=5), 0))
        self.assertIsNone(self.pushes.add_push(_parked(3, 5, size=10), 0))
        self.assertEqual(self.pushes.take_all(), [_parked(1, 5, size=4)])
        self.assertEqual(self.pushes.add_push(_parked(2, 7, size=9), 0), [])

    def test_the_next_push_has_room(self) -> None:
        """Pushes that have overtaken it take all the room, and it is taken nevertheless."""
        self.assertEqual(self.pushes.add_push(_parked(1, 7, size=9), 5), [])
        self.assertIsNone(self.pushes.add_push(_parked(2, 6, size=9), 5))
        self.assertEqual(self.pushes.add_push(_parked(3, 5, size=9), 5), [])
        self.assertEqual(self.pushes.take_up_to(5), _parked(3, 5, size=9))

    def test_all_pushes_are_given_up_when_the_first_has_waited_too_long(self) -> None:
        """All of them wait for the same gap."""
        self.pushes.add_push(_parked(1, 5, deadline_ms=50), 0)
        self.pushes.add_push(_parked(2, 7, deadline_ms=60), 0)
        self.assertEqual(self.pushes.next_deadline, 50)
        self.assertEqual(self.pushes.take_expired(49), [])
        self.assertEqual([parked.question for parked in self.pushes.take_expired(50)], [1, 2])
        self.assertIsNone(self.pushes.next_deadline)
