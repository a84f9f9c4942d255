"""The outcome of a round of votes by its answers."""

from twisted.trial.unittest import SynchronousTestCase

from twistmq.raft.messages import VoteResponse, VoteResult
from twistmq.raft.vote_round import Outcome, VoteRound

ACCEPT, UNKNOWN = VoteResult.ACCEPT, VoteResult.UNKNOWN
VOTED = VoteResult.REJECT_ALREADY_VOTED
LEADER = VoteResult.REJECT_ALREADY_HAS_LEADER
NOT_READY = VoteResult.REJECT_TERM_NOT_READY
SHORT, OLD = VoteResult.REJECT_SMALL_LEDGER_END_INDEX, VoteResult.REJECT_EXPIRED_LEDGER_TERM

#: (answers of the other members, outcome for a standing candidate in a group of three or five). A
#: failed call is None, and an outcome of None means that more answers are needed.
STANDING: list[tuple[str, list[VoteResult | None], Outcome | None]] = [
    ("nobody yet", [], None),
    ("one vote of three", [ACCEPT], Outcome.WON),
    ("one vote of five", [ACCEPT, VOTED, VOTED, None], Outcome.RAISE_TERM),
    ("two votes of five", [None, None, ACCEPT, ACCEPT], Outcome.WON),
    ("a leader beside a vote", [LEADER, ACCEPT], Outcome.LEADER_EXISTS),
    ("all have voted", [VOTED, VOTED], Outcome.RAISE_TERM),
    ("nobody answers", [None, None], Outcome.NO_MAJORITY),
    ("no answer is valid", [UNKNOWN, None], Outcome.NO_MAJORITY),
    ("a majority has more", [SHORT, OLD], Outcome.SHORT_LOG),
    ("one has more, one is gone", [SHORT, None], Outcome.NO_MAJORITY),
    ("one has more, one has voted", [SHORT, VOTED], Outcome.RAISE_TERM),
    ("one is not ready", [NOT_READY, None], Outcome.ASK_AGAIN),
    ("too few are not ready", [NOT_READY, VOTED, VOTED, VOTED], Outcome.RAISE_TERM),
]


class VoteRoundTests(SynchronousTestCase):
    """Rounds in the term 5."""

    def _round(self, answers: list[VoteResult | None], *, is_standing: bool,
               term: int = 5) -> VoteRound:
        others = "acdefgh"[:2 if len(answers) < 3 else 4]
        vote_round = VoteRound(5, "b" + others, "b", is_standing=is_standing, deadline_ms=100)
        for voter, result in zip(others, answers, strict=False):
            if result is None:
                vote_round.add_failure(voter)
            else:
                vote_round.add_response(voter, VoteResponse(term=term, result=result))
        return vote_round

    def test_outcomes_for_a_standing_candidate(self) -> None:
        """Each outcome follows from the answers."""
        for name, answers, expected in STANDING:
            outcome = self._round(answers, is_standing=True).find_outcome(
                own_vote=True, is_over=False)
            self.assertIs(outcome, expected, name)

    def test_a_candidate_that_does_not_stand_never_wins(self) -> None:
        """Its votes only show that it would win a new term."""
        vote_round = self._round([ACCEPT, ACCEPT], is_standing=False)
        self.assertIs(vote_round.find_outcome(own_vote=False, is_over=False), Outcome.RAISE_TERM)

    def test_a_vote_that_is_not_durable_does_not_count(self) -> None:
        """The candidate asks again."""
        vote_round = self._round([ACCEPT, None], is_standing=True)
        self.assertIs(vote_round.find_outcome(own_vote=False, is_over=False), Outcome.ASK_AGAIN)
        self.assertIs(vote_round.find_outcome(own_vote=True, is_over=False), Outcome.WON)

    def test_votes_of_others_alone_do_not_win(self) -> None:
        """The state of the candidate is being saved again while the others vote for it."""
        vote_round = self._round([ACCEPT, ACCEPT], is_standing=True)
        self.assertIs(vote_round.find_outcome(own_vote=False, is_over=False), Outcome.ASK_AGAIN)
        self.assertIs(vote_round.find_outcome(own_vote=True, is_over=False), Outcome.WON)
        vote_round = self._round([ACCEPT, ACCEPT, ACCEPT], is_standing=True)
        self.assertIsNone(vote_round.find_outcome(own_vote=False, is_over=False))

    def test_a_higher_term_comes_first(self) -> None:
        """The votes of other members do not win then."""
        vote_round = self._round([ACCEPT], is_standing=True, term=6)
        self.assertIs(vote_round.find_outcome(own_vote=True, is_over=False), Outcome.HIGHER_TERM)

    def test_a_round_ends_at_its_deadline(self) -> None:
        """The round ends with the answers that it has."""
        vote_round = self._round([VOTED], is_standing=False)
        self.assertIsNone(vote_round.find_outcome(own_vote=False, is_over=False))
        self.assertTrue(vote_round.is_likely)
        self.assertIs(vote_round.find_outcome(own_vote=False, is_over=True), Outcome.RAISE_TERM)
