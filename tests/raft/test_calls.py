"""Calls that are answered, that expire, or that are forgotten."""

from twisted.trial.unittest import SynchronousTestCase

from twistmq.raft.calls import Call, Calls


class CallsTests(SynchronousTestCase):
    """Two calls with the deadlines 30 and 10."""

    def setUp(self) -> None:
        """Make the calls."""
        self.calls: Calls[str] = Calls()
        self.calls.add_call(1, Call("a", 0, 30, "first"))
        self.calls.add_call(2, Call("c", 0, 10, "second"))

    def test_a_call_is_taken_once(self) -> None:
        """A second answer to the call is ignored."""
        call = self.calls.take_call(1)
        assert call is not None
        self.assertEqual(call.purpose, "first")
        self.assertIsNone(self.calls.take_call(1))
        self.assertEqual((1 in self.calls, 2 in self.calls, len(self.calls)), (False, True, 1))

    def test_calls_expire_at_their_deadlines(self) -> None:
        """The earliest deadline comes first."""
        self.assertEqual(self.calls.next_deadline, 10)
        self.assertEqual(self.calls.take_expired(9), [])
        self.assertEqual([call.purpose for call in self.calls.take_expired(10)], ["second"])
        self.assertEqual(self.calls.next_deadline, 30)

    def test_a_forgotten_call_has_no_answer(self) -> None:
        """A forgotten call does not expire either."""
        self.calls.forget_all()
        self.assertIsNone(self.calls.take_call(1))
        self.assertIsNone(self.calls.next_deadline)
