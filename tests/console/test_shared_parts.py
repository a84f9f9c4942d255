"""The live parts that browsers share."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twistmq.console.shared_parts import SHARED_S, Part, SharedParts


class SharedPartsTests(SynchronousTestCase):
    """SharedParts, with a clock that stands still."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.parts = SharedParts(self.clock.seconds)
        self.made: list[Deferred[Part]] = []

    def make(self) -> Deferred[Part]:
        """Begin to make a part, which the test completes."""
        self.made.append(Deferred())
        return self.made[-1]

    def get(self, key: str = "overview") -> Deferred[Part]:
        """A browser refreshes."""
        return self.parts.get(key, self.make)

    def test_browsers_at_the_same_moment_share_one_part(self) -> None:
        """It is made once, for those that wait and for those that come a moment later."""
        first, second = self.get(), self.get()
        self.assertNoResult(second)
        self.made[0].callback((200, b"part"))
        self.clock.advance(SHARED_S)
        for each in (first, second, self.get()):
            self.assertEqual(self.successResultOf(each), (200, b"part"))
        self.assertEqual(len(self.made), 1)

    def test_the_next_refresh_is_new(self) -> None:
        """A part is not older than it may be, counted from the begin of its making."""
        self.get()
        self.clock.advance(SHARED_S + 0.01)
        self.get()
        self.made[0].callback((200, b"old"))
        self.made[1].callback((200, b"new"))
        self.assertEqual(self.successResultOf(self.get()), (200, b"new"))
        self.assertEqual(len(self.made), 2)

    def test_other_rights_share_nothing(self) -> None:
        """Each key has its own part."""
        self.get("one")
        self.get("two")
        self.assertEqual(len(self.made), 2)

    def test_a_failure_reaches_all_and_is_not_kept(self) -> None:
        """The next browser tries again."""
        waiting = [self.get(), self.get()]
        self.made[0].errback(ZeroDivisionError())
        for each in waiting:
            self.failureResultOf(each, ZeroDivisionError)
        self.get()
        self.assertEqual(len(self.made), 2)

    def test_after_a_change(self) -> None:
        """A part from before it is not shared any more, also one that is being made."""
        waiting = self.get()
        self.parts.forget()
        later = self.get()
        self.made[0].callback((200, b"before"))
        self.assertEqual(self.successResultOf(waiting), (200, b"before"))
        self.assertNoResult(later)
        self.made[1].callback((200, b"after"))
        self.assertEqual(self.successResultOf(self.get()), (200, b"after"))

    def test_very_many_pages(self) -> None:
        """They are made without being kept."""
        for at in range(200):
            self.get(str(at))
            self.made[at].callback((200, b""))
        self.assertLess(len(self.parts._entries), 100)
