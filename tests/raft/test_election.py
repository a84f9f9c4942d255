"""A candidate asks for votes, waits, raises its term, and wins."""

import random
from collections import defaultdict
from typing import Final

from twisted.trial.unittest import SynchronousTestCase

from tests.raft.lone import LoneMember
from twistmq.raft.actions import Ask, Role, RoleChanged
from twistmq.raft.events import HardStateSaved, StorageFailed, StorageRepaired, Tick
from twistmq.raft.hard_state import HardState
from twistmq.raft.messages import HeartbeatRequest, VoteRequest, VoteResponse, VoteResult

#: The answers of the peers in a round, in place of None a failure, and the bounds of the wait
#: until the next round, ms. The upper bound is excluded.
_ROUNDS: Final[dict[str, tuple[tuple[VoteResult | None, ...], int, int]]] = {
    "nobody answers": ((None, None), 300, 1000),
    "the votes are split": ((VoteResult.REJECT_ALREADY_VOTED,) * 2, 300, 1000),
    "a term is higher": ((VoteResult.REJECT_EXPIRED_VOTE_TERM, None), 300, 1000),
    "a leader exists": ((VoteResult.REJECT_ALREADY_HAS_LEADER, None), 2300, 3000),
    "the log is short": ((VoteResult.REJECT_SMALL_LEDGER_END_INDEX,) * 2, 1300, 2000),
    "an answer is missing": ((), 2300, 4000),
}


class ElectionTests(SynchronousTestCase):
    """A candidate with a log of two entries of the term 4."""

    def _candidate(self, voted_for: str = "a", **settings: object) -> LoneMember:
        return LoneMember(terms=(4, 4), state=HardState(5, voted_for, joined=True), **settings)

    def _answer_round(self, member: LoneMember, *results: VoteResult | None,
                      term: int | None = None) -> None:
        """Answer the requests of the last round, first the one to a and then the one to c."""
        for ask, result in zip(member.asks(VoteRequest)[-2:], results, strict=False):
            member.answer(ask, result and VoteResponse(
                term=ask.request.term if term is None else term, result=result))

    def _rounds(self, member: LoneMember) -> list[int]:
        return [ask.request.term for ask in member.asks(VoteRequest, "a")]

    def test_it_first_asks_in_the_term_that_it_has(self) -> None:
        """The request contains the end of the candidate's log, and the candidate has not voted for
        itself.
        """
        member = self._candidate()
        member.wait(400)
        self.assertEqual([ask.request for ask in member.asks(VoteRequest)],
                         [VoteRequest("g", "b", peer, 5, "b", 1, 4) for peer in "ac"])
        self.assertEqual(member.member.hard_state.voted_for, "a")

    def test_it_raises_its_term_when_a_majority_would_vote_for_it(self) -> None:
        """The candidate votes for itself, and then wins."""
        member = self._candidate()
        member.wait(400)
        self._answer_round(member, VoteResult.REJECT_ALREADY_VOTED)
        self.assertEqual(self._rounds(member), [5])
        member.wait(400)
        self.assertEqual(self._rounds(member), [5, 6])
        self.assertEqual(member.member.hard_state, HardState(6, "b", joined=True))
        self._answer_round(member, VoteResult.ACCEPT)
        self.assertIs(member.member.role, Role.LEADER)
        self.assertEqual(len(member.asks(HeartbeatRequest)), 2)

    def test_a_leader_that_somebody_follows_is_not_disturbed(self) -> None:
        """The term stays, and the next round is later."""
        member = self._candidate()
        member.wait(400)
        self._answer_round(member, VoteResult.REJECT_ALREADY_VOTED,
                           VoteResult.REJECT_ALREADY_HAS_LEADER)
        member.wait(2000)
        self.assertEqual(self._rounds(member), [5])
        member.wait(1000)
        self.assertEqual(self._rounds(member), [5, 5])

    def test_a_lonely_member_does_not_raise_its_term(self) -> None:
        """The term stays the same however long the member is cut off."""
        member = self._candidate()
        member.wait(60_000)
        self.assertGreater(len(self._rounds(member)), 10)
        self.assertEqual(set(self._rounds(member)), {5})

    def test_a_member_with_too_short_a_log_does_not_raise_its_term(self) -> None:
        """The other members should stand first."""
        member = self._candidate()
        for _ in range(5):
            member.wait(3000)
            self._answer_round(member, VoteResult.REJECT_SMALL_LEDGER_END_INDEX,
                               VoteResult.REJECT_EXPIRED_LEDGER_TERM)
        self.assertEqual(set(self._rounds(member)), {5})

    def test_a_higher_term_is_adopted_and_not_exceeded(self) -> None:
        """The leader of that term may be alive."""
        member = self._candidate()
        member.wait(400)
        self._answer_round(member, VoteResult.REJECT_EXPIRED_VOTE_TERM, term=9)
        self.assertEqual(member.member.term, 9)
        member.wait(1000)
        self.assertEqual(self._rounds(member), [5, 9])

    def test_votes_of_an_earlier_round_or_term_do_not_count(self) -> None:
        """Votes in a round in which the candidate does not stand do not count either."""
        member = self._candidate()
        member.wait(400)
        old = member.asks(VoteRequest)
        self._answer_round(member, VoteResult.ACCEPT, VoteResult.ACCEPT)
        self.assertIs(member.member.role, Role.CANDIDATE)
        self.assertEqual(self._rounds(member), [5, 6])
        for ask in old:
            member.answer(ask, VoteResponse(term=6, result=VoteResult.ACCEPT))
        self.assertIs(member.member.role, Role.CANDIDATE)

    def test_a_duplicate_vote_counts_once(self) -> None:
        """One vote of five is not a majority."""
        member = LoneMember(state=HardState(5, "a", joined=True), members="abcde")
        member.wait(400)
        for ask in member.asks(VoteRequest):
            member.answer(ask, VoteResponse(term=5, result=VoteResult.REJECT_ALREADY_VOTED))
        ask = member.asks(VoteRequest)[-1]
        self.assertEqual(ask.request.term, 6)
        for _ in range(4):
            member.answer(ask, VoteResponse(term=6, result=VoteResult.ACCEPT))
        self.assertIs(member.member.role, Role.CANDIDATE)

    def test_nothing_is_asked_before_the_own_vote_is_durable(self) -> None:
        """The term of a message is on the disk before the message is sent."""
        member = self._candidate("")
        member.holds_disk = True
        member.wait(1000)
        self.assertEqual(member.asks(VoteRequest), [])
        member.tell(HardStateSaved(1))
        self.assertEqual(len(member.asks(VoteRequest)), 2)

    def test_a_term_of_an_earlier_life_is_not_led(self) -> None:
        """The member may have led the term, with entries that are lost."""
        member = self._candidate("b")
        member.wait(400)
        self._answer_round(member, VoteResult.ACCEPT, VoteResult.ACCEPT)
        self.assertEqual([change for change in member.find(RoleChanged)
                          if change.role is Role.LEADER], [])
        self.assertEqual(member.member.hard_state, HardState(6, "b", joined=True))

    def test_split_votes_are_followed_by_a_random_wait(self) -> None:
        """The wait is within the bounds of the settings."""
        for draw in (0.0, 0.999):
            member = self._candidate("", draw=draw)
            member.wait(400)
            self._answer_round(member, VoteResult.REJECT_ALREADY_VOTED,
                               VoteResult.REJECT_ALREADY_VOTED)
            waited = 0
            while self._rounds(member)[-1] == 5:
                member.wait(1)
                waited += 1
            self.assertEqual(waited, 300 if draw == 0.0 else 999, draw)

    def test_members_that_are_about_to_reach_the_term_are_asked_again(self) -> None:
        """They are asked in the same term, a moment later."""
        member = self._candidate("")
        member.wait(400)
        self._answer_round(member, VoteResult.REJECT_TERM_NOT_READY, None)
        member.wait(20)
        self.assertEqual(self._rounds(member), [5, 5])
        self._answer_round(member, VoteResult.ACCEPT)
        self.assertIs(member.member.role, Role.LEADER)

    def test_a_vote_for_another_lets_it_go_first(self) -> None:
        """The round of this member ends."""
        member = self._candidate("")
        member.wait(400)
        self.assertIsNotNone(member.vote(6))
        self._answer_round(member, VoteResult.ACCEPT, VoteResult.ACCEPT)
        self.assertIs(member.member.role, Role.CANDIDATE)
        before = len(self._rounds(member))
        member.wait(299)
        self.assertEqual(len(self._rounds(member)), before)

    def test_a_failed_disk_does_not_stand(self) -> None:
        """The member stands again after the repair."""
        member = self._candidate()
        member.tell(StorageFailed("EIO"))
        member.wait(10_000)
        self.assertEqual(self._rounds(member), [])
        member.tell(StorageRepaired())
        member.wait(1000)
        self.assertEqual(self._rounds(member), [5])

    def test_a_member_alone_leads_at_once(self) -> None:
        """Its own vote is a majority."""
        member = LoneMember(members="b")
        member.wait(400)
        self.assertIs(member.member.role, Role.LEADER)
        self.assertTrue(member.member.is_established)


class WaitTests(SynchronousTestCase):
    """The random waits of a candidate in many rounds, with new draws at each event."""

    def setUp(self) -> None:
        """Begin without waits."""
        self.chance = random.Random(24)
        self.waits: defaultdict[str, list[int]] = defaultdict(list)

    def _tick(self, member: LoneMember) -> None:
        member.now_ms = member.member.next_tick
        member.draw = self.chance.random()
        member.tell(Tick())

    def _next_round(self, member: LoneMember) -> list[Ask]:
        """Let time pass until a round begins, and return its requests."""
        while not member.asks(VoteRequest):
            self._tick(member)
        return member.asks(VoteRequest)

    def _answer(self, member: LoneMember, asks: list[Ask], kind: str) -> None:
        """Answer the requests of a round, and forget all actions so far."""
        member.actions.clear()
        for ask, result in zip(asks, _ROUNDS[kind][0], strict=False):
            member.draw = self.chance.random()
            assert isinstance(ask.request, VoteRequest)
            member.answer(ask, result and VoteResponse(
                term=ask.request.term + (kind == "a term is higher"), result=result))

    def _assert_waits(self, name: str, minimum_ms: int, end_ms: int) -> None:
        """Check that the waits are within their bounds, and come near both of them."""
        waits, margin_ms = self.waits[name], (end_ms - minimum_ms) / 10
        self.assertTrue(minimum_ms <= min(waits) <= minimum_ms + margin_ms, (name, min(waits)))
        self.assertTrue(end_ms - margin_ms <= max(waits) < end_ms, (name, max(waits)))

    def test_ten_thousand_rounds(self) -> None:
        """The wait after each outcome is within the bounds, and uses the whole range."""
        member = LoneMember(terms=(4, 4), state=HardState(5, "", joined=True))
        kinds = list(_ROUNDS)
        asks = self._next_round(member)
        for _ in range(10_000):
            kind, begin_ms = self.chance.choice(kinds), member.now_ms
            self._answer(member, asks, kind)
            asks = self._next_round(member)
            self.waits[kind].append(member.now_ms - begin_ms)
        for kind, (_, minimum_ms, end_ms) in _ROUNDS.items():
            self._assert_waits(kind, minimum_ms, end_ms)

    def test_the_first_round_of_a_candidate(self) -> None:
        """Members that are started together do not all ask at once."""
        for _ in range(200):
            member = LoneMember(terms=(4, 4), state=HardState(5, "", joined=True),
                                draw=self.chance.random())
            self._next_round(member)
            self.waits["first"].append(member.now_ms)
        self._assert_waits("first", 0, 300)

    def test_the_rounds_of_a_transferee(self) -> None:
        """It asks again soon, because all other members wait for it."""
        for _ in range(200):
            member = LoneMember(terms=(4, 4), state=HardState(5, "a", joined=True))
            member.heartbeat(5)
            member.take_lead(5, 1)
            asks = member.asks(VoteRequest)
            begin_ms = member.now_ms
            self._answer(member, asks, "the votes are split")
            self._next_round(member)
            self.waits["transferee"].append(member.now_ms - begin_ms)
        self._assert_waits("transferee", 30, 100)
