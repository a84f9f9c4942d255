"""The rules by which a member votes, in DLedger's order.

The rules on logs come before those on terms, so a candidate whose log is too short raises the term
of no other member. A term of -1 is an inquiry (see ``admission.py``). These rules refuse
it, and the refusal contains the voter's term.
"""

from twistmq.raft.actions import Role
from twistmq.raft.member_state import MemberState
from twistmq.raft.messages import VoteRequest, VoteResponse, VoteResult

__all__ = ["decide_vote"]


def decide_vote(state: MemberState, request: VoteRequest) -> VoteResponse:
    """Vote for a candidate or refuse it; a higher term of a suitable candidate is adopted."""
    result = _result_by_log(state, request)
    if result is VoteResult.ACCEPT:
        result = _result_by_term(state, request)
    if result is VoteResult.ACCEPT:
        if request.term > state.term:
            state.step_down(request.term)
        state.ballot.vote(request.leader)
    return VoteResponse(term=state.term, leader=request.leader, result=result)


def _result_by_log(state: MemberState, request: VoteRequest) -> VoteResult:
    if request.leader == state.settings.member_id:
        return VoteResult.REJECT_UNEXPECTED_LEADER
    if request.leader not in state.settings.members or request.leader != request.sender:
        return VoteResult.REJECT_UNKNOWN_LEADER
    if not state.ballot.has_joined or state.storage_failure:
        # A candidate ignores this answer, so it does not raise its term because of it.
        return VoteResult.UNKNOWN
    if request.end_term < state.end_term:
        return VoteResult.REJECT_EXPIRED_LEDGER_TERM
    if request.end_term == state.end_term and request.end_index < state.log.end_index:
        return VoteResult.REJECT_SMALL_LEDGER_END_INDEX
    return VoteResult.ACCEPT


def _result_by_term(state: MemberState, request: VoteRequest) -> VoteResult:
    if request.term > state.term:
        return VoteResult.ACCEPT
    if request.term < state.term:
        return VoteResult.REJECT_EXPIRED_VOTE_TERM
    if state.ballot.voted_for in ("", request.leader):
        return VoteResult.ACCEPT
    if state.role is Role.CANDIDATE:
        return VoteResult.REJECT_ALREADY_VOTED
    return VoteResult.REJECT_ALREADY_HAS_LEADER
