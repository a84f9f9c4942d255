"""The election of a leader: rounds of votes, with random waits between them.

A candidate first asks for votes in its current term. These requests raise no term, and the refusal
of a member that follows a leader states this reason. The candidate raises its term only if a
majority would vote for it and no member knows a leader. A member that was cut off, or that alone
does not hear the leader, therefore does not disturb the group. Apache's members elect a leader in
the same way, so both kinds of members can form a group.
"""

from twistmq.raft.actions import Role
from twistmq.raft.calls import Call, Calls
from twistmq.raft.member_state import MemberState
from twistmq.raft.messages import Response, VoteRequest, VoteResponse
from twistmq.raft.vote_round import Outcome, VoteRound

__all__ = ["Election"]

#: When a majority is about to reach the candidate's term, it is asked again after this time.
_ASK_AGAIN_MS = 10
#: A candidate with too short a log waits longer by this time, so that other members stand first.
_SHORT_LOG_MS = 1000


class Election:
    """The rounds of votes of one member. It is idle unless the member is a candidate."""

    def __init__(self, state: MemberState) -> None:
        """Begin without a round."""
        self._state = state
        self._round: VoteRound | None = None
        self._calls: Calls[VoteRound] = Calls()
        self._next_round_ms: int | None = None
        #: Whether the member was a candidate when this object last looked.
        self._is_active = False
        #: A round in this term has shown that the next one needs a higher term.
        self._used_term: int | None = None
        #: Until this time the waits are short: leadership is being transferred to this member.
        self._taking_until_ms = 0

    @property
    def next_deadline(self) -> int | None:
        """When ``advance`` has something to do; None: not before the next event."""
        if self._state.role is not Role.CANDIDATE:
            return None
        return self._round.deadline_ms if self._round is not None else self._next_round_ms

    def wait_for_winner(self) -> None:
        """Give the candidate that this member has voted for some time to begin to lead."""
        self._is_active = True
        self._round = None
        self._schedule()

    def take_lead(self, until_ms: int) -> None:
        """Stand in a new term at once, and repeat this with short waits until a time."""
        self._is_active = True
        self._taking_until_ms = until_ms
        self._state.stand_in_term(self._state.term + 1)
        self._begin_round()

    def advance(self) -> None:
        """Begin a round that is due, or end the current one."""
        state = self._state
        if state.role is not Role.CANDIDATE:
            self._is_active = False
            self._round = None
            return
        if not self._is_active:
            self._is_active = True
            self._next_round_ms = state.now_ms + state.draw_between(
                0, state.settings.vote_wait_min_ms)
        if self._round is not None and self._round.term != state.term:
            self._round = None
            self._schedule()
        if self._round is not None:
            self._judge_round()
        elif self._next_round_ms is not None and self._next_round_ms <= state.now_ms:
            self._begin_round()

    def note_answer(self, number: int, response: Response | None) -> bool:
        """Note the answer to a call (None: it failed) and return whether the call is known."""
        call = self._calls.take_call(number)
        if call is None:
            return False
        if isinstance(response, VoteResponse):
            call.purpose.add_response(call.peer, response)
        else:
            call.purpose.add_failure(call.peer)
        if (call.purpose is self._round and self._round.is_likely
                and not self._round.is_standing):
            # The remaining answers matter only if one of these members knows a leader.
            self._round.deadline_ms = min(
                self._round.deadline_ms,
                self._state.now_ms + self._state.settings.vote_wait_min_ms)
        self.advance()
        return True

    def _begin_round(self) -> None:
        state, settings, ballot = self._state, self._state.settings, self._state.ballot
        self._calls.forget_all()
        if not ballot.has_joined or state.storage_failure:
            self._schedule()
            return
        if self._used_term == ballot.term:
            state.stand_in_term(ballot.term + 1)
        elif not ballot.voted_for:
            state.stand_in_term(ballot.term)
        deadline_ms = state.now_ms + settings.vote_round_ms + state.draw_between(0, 1000)
        self._round = VoteRound(ballot.term, settings.members, settings.member_id,
                                is_standing=ballot.is_standing, deadline_ms=deadline_ms)
        for peer in settings.peers:
            request = VoteRequest(settings.group, settings.member_id, peer, ballot.term,
                                  settings.member_id, state.log.end_index, state.end_term)
            self._calls.add_call(state.ask_peer(peer, request),
                                 Call(peer, state.now_ms, deadline_ms, self._round))
        self._judge_round()

    def _judge_round(self) -> None:
        state, vote_round = self._state, self._round
        assert vote_round is not None
        outcome = vote_round.find_outcome(
            own_vote=vote_round.is_standing and state.ballot.is_saved,
            is_over=vote_round.deadline_ms <= state.now_ms)
        if outcome is None:
            return
        self._round = None
        if outcome is Outcome.WON:
            self._taking_until_ms = 0
            state.lead_term()
        elif outcome is Outcome.HIGHER_TERM:
            state.step_down(vote_round.highest_term)
            self._schedule()
        elif outcome is Outcome.LEADER_EXISTS:
            self._schedule(state.settings.heartbeat_interval_ms)
        elif outcome is Outcome.SHORT_LOG:
            self._schedule(_SHORT_LOG_MS)
        elif outcome is Outcome.NO_MAJORITY:
            self._schedule()
        elif outcome is Outcome.ASK_AGAIN:
            self._next_round_ms = state.now_ms + _ASK_AGAIN_MS
        else:
            self._used_term = vote_round.term
            if vote_round.is_standing:
                self._schedule()
            else:
                self._begin_round()

    def _schedule(self, longer_ms: int = 0) -> None:
        """Begin the next round after a random time."""
        state, settings = self._state, self._state.settings
        if state.now_ms < self._taking_until_ms:
            wait_ms = state.draw_between(settings.take_lead_wait_min_ms,
                                         settings.take_lead_wait_max_ms)
        else:
            wait_ms = longer_ms + state.draw_between(settings.vote_wait_min_ms,
                                                     settings.vote_wait_max_ms)
        self._next_round_ms = state.now_ms + wait_ms
