"""Messages wait, in order, for the hard state that they depend on."""

from twisted.trial.unittest import SynchronousTestCase

from twistmq.raft.actions import Answer, Committed, SaveHardState
from twistmq.raft.hard_state import HardState
from twistmq.raft.messages import HeartbeatResponse
from twistmq.raft.outbox import Outbox


def _answer(number: int) -> Answer:
    return Answer(number, HeartbeatResponse())


class OutboxTests(SynchronousTestCase):
    """An outbox over several turns."""

    def test_a_message_waits_for_the_hard_state_before_it(self) -> None:
        """Only messages wait; other actions do not."""
        outbox = Outbox()
        outbox.add_message(_answer(1))
        outbox.save_hard_state(HardState(1))
        outbox.add_message(_answer(2))
        outbox.add(Committed(5))
        self.assertEqual(outbox.take_actions(),
                         [_answer(1), SaveHardState(1, HardState(1)), Committed(5)])
        outbox.hard_state_saved(1)
        outbox.add_message(_answer(3))
        self.assertEqual(outbox.take_actions(), [_answer(2), _answer(3)])

    def test_each_message_waits_for_its_own_state(self) -> None:
        """A message does not wait for a state that was requested after it."""
        outbox = Outbox()
        outbox.save_hard_state(HardState(1))
        outbox.add_message(_answer(1))
        outbox.save_hard_state(HardState(2))
        outbox.add_message(_answer(2))
        outbox.take_actions()
        outbox.hard_state_saved(1)
        self.assertEqual(outbox.take_actions(), [_answer(1)])
        outbox.hard_state_saved(2)
        self.assertEqual(outbox.take_actions(), [_answer(2)])

    def test_a_later_state_covers_an_earlier_one(self) -> None:
        """A driver may save only the last of several states."""
        outbox = Outbox()
        outbox.save_hard_state(HardState(1))
        outbox.add_message(_answer(1))
        outbox.save_hard_state(HardState(2))
        outbox.take_actions()
        outbox.hard_state_saved(2)
        self.assertEqual(outbox.take_actions(), [_answer(1)])
        self.assertTrue(outbox.is_saved(1))
