"""One round of votes: the members that a candidate asks, and the outcome of their answers."""

import enum
from collections.abc import Iterable

from twistmq.raft.messages import VoteResponse, VoteResult

__all__ = ["Outcome", "VoteRound"]

_BIGGER_LOG = (VoteResult.REJECT_EXPIRED_LEDGER_TERM, VoteResult.REJECT_SMALL_LEDGER_END_INDEX)


class Outcome(enum.Enum):
    """The outcome of a round."""

    #: A majority votes for the candidate.
    WON = "won"
    #: A voter is in a higher term.
    HIGHER_TERM = "higher term"
    #: A voter follows a leader.
    LEADER_EXISTS = "leader exists"
    #: Too many members have a log that is more up to date.
    SHORT_LOG = "short log"
    #: Too few members have answered.
    NO_MAJORITY = "no majority"
    #: A majority votes for the candidate or is about to reach its term.
    ASK_AGAIN = "ask again"
    #: A majority would vote for the candidate in a new term.
    RAISE_TERM = "raise term"


class VoteRound:
    """The answers of one round.

    A standing candidate has voted for itself and wins by a majority. Otherwise the round finds out
    whether a majority would vote for the candidate in a new term while no member knows a leader.
    """

    def __init__(self, term: int, members: Iterable[str], member_id: str, *, is_standing: bool,
                 deadline_ms: int) -> None:
        """Begin a round in ``term`` that waits for answers until ``deadline_ms``."""
        self.term = term
        self.is_standing = is_standing
        self.deadline_ms = deadline_ms
        self._members = frozenset(members)
        self._quorum = len(self._members) // 2 + 1
        self._waiting = set(self._members) - {member_id}
        self._responses: dict[str, VoteResponse] = {}

    @property
    def highest_term(self) -> int:
        """The highest term of a voter; -1 before the first answer."""
        return max((response.term for response in self._responses.values()), default=-1)

    @property
    def is_likely(self) -> bool:
        """Whether the answers so far show that a majority would vote for the candidate."""
        return self._count_able() >= self._quorum

    def add_response(self, voter: str, response: VoteResponse) -> None:
        """Note an answer."""
        self._waiting.discard(voter)
        self._responses[voter] = response

    def add_failure(self, voter: str) -> None:
        """Note that a member does not answer."""
        self._waiting.discard(voter)

    def find_outcome(self, *, own_vote: bool, is_over: bool) -> Outcome | None:
        """Return the outcome of the round; None while more answers are needed.

        :param own_vote: whether the candidate has voted for itself, and this vote is durable.
        :param is_over: whether the time of the round is over.
        """
        if self.highest_term > self.term:
            return Outcome.HIGHER_TERM
        if self._count(VoteResult.REJECT_ALREADY_HAS_LEADER):
            return Outcome.LEADER_EXISTS
        accepted = self._count(VoteResult.ACCEPT) + own_vote
        if own_vote and self.is_standing and accepted >= self._quorum:
            # Votes of others alone do not win, because a candidate that crashes now may forget
            # that it has stood in this term.
            return Outcome.WON
        if self._waiting and not is_over:
            return None
        if len(self._members) - self._count(*_BIGGER_LOG) < self._quorum:
            return Outcome.SHORT_LOG
        if not self.is_likely:
            return Outcome.NO_MAJORITY
        not_ready = self._count(VoteResult.REJECT_TERM_NOT_READY)
        if self.is_standing and not_ready and accepted + not_ready >= self._quorum:
            return Outcome.ASK_AGAIN
        if self.is_standing and not own_vote:
            return Outcome.ASK_AGAIN
        return Outcome.RAISE_TERM

    def _count(self, *results: VoteResult) -> int:
        return sum(response.result in results for response in self._responses.values())

    def _count_able(self) -> int:
        """Return how many members would vote for the candidate if its term were new enough."""
        return 1 + len(self._responses) - self._count(VoteResult.UNKNOWN, *_BIGGER_LOG)
