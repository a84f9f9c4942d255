"""Groups of members under elections, losses, cuts and wiped disks; each event is followed by
checks.
"""

from twisted.trial.unittest import SynchronousTestCase

from tests.raft.group import Group
from tests.raft.lone import LoneMember
from twistmq.raft.actions import Ask, Role
from twistmq.raft.events import Answered
from twistmq.raft.hard_state import HardState
from twistmq.raft.member import TERM_STEP_MAX
from twistmq.raft.messages import (
    HeartbeatRequest,
    PushRequest,
    PushType,
    Request,
    ResponseCode,
    TransferRequest,
    VoteRequest,
    VoteResponse,
    VoteResult,
)


class RequestTests(SynchronousTestCase):
    """Requests that are meant for another member or group."""

    def test_they_change_nothing(self) -> None:
        """Each kind of request is answered with the code of the mistake."""
        for group, receiver, expected in (("g", "x", ResponseCode.UNKNOWN_MEMBER),
                                          ("h", "b", ResponseCode.UNKNOWN_GROUP)):
            member = LoneMember(state=HardState(5, "", joined=True))
            requests: list[Request] = [
                VoteRequest(group, "a", receiver, 9, "a", 9, 9),
                HeartbeatRequest(group, "a", receiver, 9, "a"),
                PushRequest(group, "a", receiver, 9, "a", PushType.COMMIT),
                TransferRequest(group, "a", receiver, 5, "a", "a", "b")]
            for request in requests:
                [answer] = member.ask(request)
                self.assertIs(answer.code, expected, request)
            self.assertEqual(member.member.hard_state, HardState(5, "", joined=True))
            self.assertEqual(member.member.role, Role.CANDIDATE)


    def test_a_term_that_is_far_ahead_is_refused(self) -> None:
        """A member keeps its term, so one message would end all elections of its group."""
        for far in (5 + TERM_STEP_MAX + 1, 2**63 - 1):
            member = LoneMember(state=HardState(5, "", joined=True))
            requests: list[Request] = [
                VoteRequest("g", "a", "b", far, "a", 9, 9),
                HeartbeatRequest("g", "a", "b", far, "a"),
                PushRequest("g", "a", "b", far, "a", PushType.COMMIT)]
            for request in requests:
                [answer] = member.ask(request)
                self.assertIs(answer.code, ResponseCode.UNEXPECTED_ARGUMENT, request)
            self.assertEqual(member.member.hard_state, HardState(5, "", joined=True))
        near = 5 + TERM_STEP_MAX
        [answer] = member.ask(HeartbeatRequest("g", "a", "b", near, "a"))
        self.assertEqual((answer.code, member.member.term), (ResponseCode.SUCCESS, near))

    def test_an_answer_with_a_term_that_is_far_ahead_is_none(self) -> None:
        """The candidate goes on in its own term."""
        member = LoneMember(state=HardState(5, "", joined=True))
        count = 0
        for _ in range(300):
            for ask in [each for each in member.wait(100) if isinstance(each, Ask)]:
                count += 1
                member.tell(Answered(ask.call, VoteResponse(
                    ResponseCode.SUCCESS, 2**62, "a", VoteResult.REJECT_EXPIRED_VOTE_TERM)))
        self.assertGreater(count, 4)
        self.assertLess(member.member.term, 100)


class GroupTests(SynchronousTestCase):
    """Groups of three or five members."""

    def test_a_new_group_elects_a_leader_and_agrees(self) -> None:
        """All logs have everything that was proposed."""
        group = Group()
        leader = group.elect(3000)
        for number in range(20):
            group.propose(leader, b"%d" % number)
        group.run(3000)
        self.assertEqual(len(group.acknowledged), 20)
        self.assertTrue(group.are_equal())

    def test_a_new_group_of_one(self) -> None:
        """The member needs no other one."""
        group = Group("a")
        group.propose(group.elect(1000), b"x")
        group.run(10)
        self.assertEqual(len(group.acknowledged), 1)

    def test_the_loss_of_the_leader(self) -> None:
        """No acknowledged entry is lost, and the old leader follows when it returns."""
        group = Group(seed=5)
        old = group.elect()
        group.propose(old, b"x")
        group.run(100)
        group.kill(old)
        took_ms = group.run_until(lambda: group.leader)
        self.assertLess(took_ms, 8000)
        group.start(old)
        group.run(5000)
        self.assertNotEqual(group.leader_name, old)
        self.assertTrue(group.are_equal())

    def test_quick_failover(self) -> None:
        """The refusals of the leader's host start the election."""
        from twistmq.raft.events import PeerRefused
        group = Group(seed=5, quick_failover=True)
        old = group.elect()
        group.run(1000)
        others = group.followers()
        group.kill(old)
        for name in others:
            group.tell(name, PeerRefused(old))
        self.assertLess(group.run_until(lambda: group.leader), 2000)

    def test_a_leader_cut_off(self) -> None:
        """The leader steps down, and its tail is replaced when it is back."""
        group = Group(seed=2)
        old = group.elect()
        group.run(1000)
        group.isolate(old)
        group.propose(old, b"lost")
        group.run_until(lambda: group.leader and group.leader_name != old)
        group.propose(group.leader_name, b"kept")
        group.run(8000)
        self.assertIsNot(group[old].role, Role.LEADER)
        term = group.leader.term if group.leader else 0
        group.heal()
        group.run(10_000)
        self.assertTrue(group.are_equal())
        self.assertEqual(group[old].term, term)
        self.assertNotIn(b"lost", [entry.body for entry in group.machines[old].log.entries])

    def test_each_cut_of_one_direction(self) -> None:
        """A member that alone does not hear the leader does not disturb the group."""
        for pair in ("ab", "ac", "ba", "bc", "ca", "cb"):
            group = Group(seed=7)
            group.elect()
            group.run(3000)
            elections = len(group.leaders)
            group.cut(pair)
            group.run(60_000)
            self.assertLessEqual(len(group.leaders), elections + 2, pair)
            self.assertIsNotNone(group.leader, pair)
            group.heal()
            group.run(10_000)
            group.propose(group.leader_name, b"x")
            group.run(2000)
            self.assertTrue(group.are_equal(), pair)

    def test_a_minority_that_comes_back(self) -> None:
        """The minority has not raised its term, so nothing changes."""
        group = Group("abcde", seed=4)
        leader = group.elect()
        group.run(3000)
        for name in group.followers()[:2]:
            group.isolate(name)
        group.run(120_000)
        term = group[leader].term
        group.heal()
        group.run(20_000)
        self.assertEqual((group[leader].term, group.leader_name), (term, leader))

    def test_a_wiped_member_catches_up_and_votes_again(self) -> None:
        """Before that, it cannot take part in the election of a leader."""
        group = Group(seed=6)
        leader = group.elect()
        group.propose(leader, b"x")
        group.run(2000)
        wiped, other = group.followers()
        group.wipe(wiped)
        group.kill(leader)
        group.start(wiped)
        group.run(60_000)
        self.assertIsNone(group.leader)
        self.assertFalse(group[wiped].has_joined)
        group.start(leader)
        group.elect()
        group.run(10_000)
        self.assertTrue(group[wiped].has_joined)
        self.assertTrue(group.are_equal())
        group.kill(next(name for name in (leader, other) if name == group.leader_name))
        group.elect()

    def test_an_idle_leader_notices_a_wiped_follower(self) -> None:
        """No message has to be sent first."""
        group = Group(seed=6)
        leader = group.elect()
        group.propose(leader, b"x")
        group.run(3000)
        wiped = group.followers()[0]
        group.wipe(wiped)
        group.start(wiped)
        group.run(5000)
        self.assertEqual(group.leader_name, leader)
        self.assertTrue(group.are_equal())

    def test_a_transfer_in_a_group(self) -> None:
        """The transfer takes less than a second."""
        group = Group(seed=8)
        leader = group.elect()
        group.run(3000)
        target = group.followers()[1]
        tag = group.transfer(leader, target)
        group.run_until(lambda: group.leader and group.leader_name == target, 1000)
        group.run(10)
        self.assertIs(group.transfers[tag], ResponseCode.SUCCESS)

    def test_a_slow_disk_of_a_follower_does_not_hold_the_group(self) -> None:
        """The other members are a majority."""
        group = Group(seed=9)
        leader = group.elect()
        group.run(1000)
        group.machines[group.followers()[0]].slow_disk_ms = 5000
        group.propose(leader, b"x")
        group.run(100)
        self.assertEqual(len(group.acknowledged), 1)

    def test_entries_that_retention_has_dropped(self) -> None:
        """A member that was away for a long time begins where the others' logs begin."""
        group = Group(seed=10)
        leader = group.elect()
        away = group.followers()[0]
        group.kill(away)
        for _ in range(30):
            group.propose(leader, b"x")
        group.run(1000)
        for name in group.names:
            group.machines[name].log.drop_before(20)
        group.start(away)
        group.run(5000)
        log = group.machines[away].log
        self.assertEqual((log.begin_index, log.end_index), (20, 30))
        self.assertEqual(group[away].committed_index, 30)
