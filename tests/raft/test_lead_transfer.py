"""The leader's part in a transfer of the lead."""

from twisted.trial.unittest import SynchronousTestCase

from tests.raft.group import Group
from tests.raft.lone import LoneMember
from twistmq.raft.actions import Answer, Refused, Role, TransferEnded
from twistmq.raft.events import Propose, Transfer
from twistmq.raft.hard_state import HardState
from twistmq.raft.messages import ResponseCode, TransferRequest, TransferResponse


class TransferTests(SynchronousTestCase):
    """A leader in the term 6, and an operator."""

    def leading(self, *acknowledging: str, **settings: object) -> LoneMember:
        """Make the leader, with these followers caught up."""
        leader = LoneMember(terms=(5, 5), state=HardState(5, "c", joined=True), **settings).elect()
        for peer in acknowledging:
            leader.acknowledge(peer)
        return leader

    def codes(self, leader: LoneMember) -> list[ResponseCode]:
        """Return the codes with which transfers have ended."""
        return [ended.code for ended in leader.find(TransferEnded)]

    def test_a_transfer(self) -> None:
        """Entries are refused during the transfer."""
        leader = self.leading("a")
        leader.tell(Transfer(1, "a"))
        self.assertEqual([ask.request for ask in leader.asks(TransferRequest)],
                         [TransferRequest("g", "b", "a", 6, "b", "b", "a", 2)])
        leader.tell(Propose(1, (b"x",)))
        self.assertEqual(leader.find(Refused), [Refused(1, ResponseCode.LEADER_TRANSFERRING)])
        leader.answer(leader.asks(TransferRequest)[0],
                      TransferResponse(ResponseCode.SUCCESS, 7, "a"))
        self.assertEqual(self.codes(leader), [ResponseCode.SUCCESS])
        self.assertEqual((leader.member.role, leader.member.term), (Role.CANDIDATE, 7))

    def test_transfers_that_are_refused(self) -> None:
        """Each refusal has its own code."""
        leader = self.leading("a")
        for transferee in ("z", "b"):
            leader.tell(Transfer(1, transferee))
        leader.tell(Transfer(2, "a"))
        leader.tell(Transfer(3, "a"))
        self.assertEqual(self.codes(leader), [ResponseCode.UNEXPECTED_ARGUMENT] * 2
                         + [ResponseCode.LEADER_TRANSFERRING])
        leader = self.leading()
        leader.tell(Transfer(4, "a"))
        self.assertEqual(self.codes(leader), [ResponseCode.LEADER_NOT_READY])
        follower = LoneMember(state=HardState(5, "c", joined=True))
        follower.tell(Transfer(5, "a"))
        self.assertEqual(self.codes(follower), [ResponseCode.NOT_LEADER])

    def test_the_lead_is_not_given_to_a_member_that_lags_or_is_silent(self) -> None:
        """Otherwise entries would be refused for nothing."""
        leader = self.leading("a", transfer_lag_max=3)
        leader.tell(Transfer(1, "c"))
        self.assertEqual(self.codes(leader), [ResponseCode.FALL_BEHIND_TOO_MUCH])
        leader.wait(3001)
        leader.acknowledge("c")
        leader.tell(Transfer(2, "a"))
        self.assertEqual(self.codes(leader)[1:], [ResponseCode.FALL_BEHIND_TOO_MUCH])

    def test_a_transfer_that_fails(self) -> None:
        """The leader continues to lead."""
        for response, expected in (
                (TransferResponse(ResponseCode.TAKE_LEADERSHIP_FAILED, 6),
                 ResponseCode.TAKE_LEADERSHIP_FAILED), (None, ResponseCode.NETWORK_ERROR)):
            leader = self.leading("a")
            leader.tell(Transfer(1, "a"))
            self.assertFalse(leader.member.is_appendable)
            leader.answer(leader.asks(TransferRequest)[0], response)
            self.assertEqual(self.codes(leader), [expected])
            self.assertTrue(leader.member.is_appendable)

    def test_a_transferee_that_does_not_answer(self) -> None:
        """The leader continues after three seconds."""
        leader = self.leading("a")
        leader.tell(Transfer(1, "a"))
        leader.wait(3000)
        self.assertEqual(self.codes(leader), [ResponseCode.TIMEOUT])
        self.assertTrue(leader.member.is_appendable)

    def test_an_operators_request(self) -> None:
        """The request is answered when the transfer has ended, and at once if it is wrong."""
        leader = self.leading("a")
        for term, transferor, expected in ((6, "c", ResponseCode.UNEXPECTED_ARGUMENT),
                                           (5, "b", ResponseCode.INCONSISTENT_TERM)):
            [answer] = leader.ask(TransferRequest("g", "tool", "b", term, "b", transferor, "a"))
            self.assertIs(answer.code, expected)
        self.assertEqual(leader.ask(TransferRequest("g", "tool", "b", 6, "b", "b", "a")), [])
        actions = leader.answer(leader.asks(TransferRequest)[0],
                                TransferResponse(ResponseCode.SUCCESS, 7, "a"))
        self.assertEqual([action.response.code for action in actions
                          if isinstance(action, Answer)], [ResponseCode.SUCCESS])


class SuccessorTests(SynchronousTestCase):
    """A leader that is about to stop."""

    def test_the_member_with_the_most_entries_is_chosen(self) -> None:
        """A preferred leader comes first. Neither a follower nor a leader that no member has
        acknowledged has a successor.
        """
        state = HardState(5, "c", joined=True)
        leader = LoneMember(terms=(5, 5), state=state).elect()
        self.assertIsNone(leader.member.find_successor())
        leader.acknowledge("a")
        self.assertEqual(leader.member.find_successor(), "a")
        leader = LoneMember(terms=(5, 5), state=state, preferred_leaders=("c",)).elect()
        leader.acknowledge("a")
        leader.acknowledge("c")
        self.assertEqual(leader.member.find_successor(), "c")
        self.assertIsNone(LoneMember(state=state).member.find_successor())


class PreferredTests(SynchronousTestCase):
    """Groups with a preferred leader."""

    def test_the_preferred_leader_leads_when_it_can(self) -> None:
        """It also leads again after it has been away."""
        group = Group("abc", seed=3, preferred_leaders=("b",))
        group.run_until(lambda: group.leader and group.leader_name == "b")
        group.kill("b")
        group.run_until(lambda: group.leader and group.leader_name != "b")
        group.start("b")
        group.run_until(lambda: group.leader and group.leader_name == "b", 20_000)
        term = group["b"].term
        group.run(30_000)
        self.assertEqual(group["b"].term, term)

    def test_a_group_without_its_preferred_leader_works(self) -> None:
        """No entry is refused because of a dead member."""
        group = Group("abc", seed=3, preferred_leaders=("b",))
        group.run_until(lambda: group.leader and group.leader_name == "b")
        group.kill("b")
        leader = group.elect()
        group.run(5000)
        for _ in range(50):
            group.run(100)
            group.propose(leader, b"x")
        group.run(1000)
        self.assertEqual((len(group.acknowledged), group.refused), (50, {}))
