"""The transferee's part in a transfer: it waits for missing entries, then stands for election."""

from dataclasses import dataclass

from twistmq.raft.actions import Role
from twistmq.raft.election import Election
from twistmq.raft.member_state import MemberState
from twistmq.raft.messages import ResponseCode, TransferRequest, TransferResponse

__all__ = ["LeadTakeover"]


@dataclass(slots=True)
class _Wish:
    question: int
    take_index: int
    term: int
    #: The deadline for the missing entries, and the deadline for the election.
    wait_until_ms: int
    until_ms: int
    is_standing: bool = False


class LeadTakeover:
    """Handles requests that this member takes the lead, at most one at a time."""

    def __init__(self, state: MemberState, election: Election) -> None:
        """Begin without a request."""
        self._state = state
        self._election = election
        self._wish: _Wish | None = None

    @property
    def next_deadline(self) -> int | None:
        """When ``advance`` has something to do; None: not before the next event."""
        if self._wish is None:
            return None
        return self._wish.until_ms if self._wish.is_standing else self._wish.wait_until_ms

    def start(self, question: int, request: TransferRequest) -> None:
        """Handle the request of a leader that this member takes the lead."""
        state = self._state
        if request.term != state.term:
            code = ResponseCode.INCONSISTENT_TERM
        elif state.role is not Role.FOLLOWER:
            code = ResponseCode.NOT_FOLLOWER
        elif request.transferor != state.leader:
            code = ResponseCode.INCONSISTENT_LEADER
        elif not state.ballot.has_joined or state.storage_failure or self._wish is not None:
            code = ResponseCode.TAKE_LEADERSHIP_FAILED
        else:
            self._wish = _Wish(question, request.take_index, state.term,
                               state.now_ms + state.settings.transfer_wait_ms,
                               state.now_ms + state.settings.call_timeout_ms)
            self.advance()
            return
        state.answer_question(question, TransferResponse(code, state.term, state.leader))

    def advance(self) -> None:
        """Stand when no entry is missing, and answer when the election has a result."""
        state, wish = self._state, self._wish
        if wish is None:
            return
        if wish.is_standing:
            if state.role is Role.LEADER:
                self._end(wish, ResponseCode.SUCCESS)
            elif state.role is Role.FOLLOWER:
                self._end(wish, ResponseCode.EXPIRED_TERM)
            elif state.now_ms >= wish.until_ms:
                self._end(wish, ResponseCode.TAKE_LEADERSHIP_FAILED)
        elif state.term != wish.term or state.role is not Role.FOLLOWER:
            self._end(wish, ResponseCode.EXPIRED_TERM)
        elif state.log.end_index >= wish.take_index:
            wish.is_standing = True
            self._election.take_lead(wish.until_ms)
        elif state.now_ms >= wish.wait_until_ms:
            self._end(wish, ResponseCode.TAKE_LEADERSHIP_FAILED)

    def _end(self, wish: _Wish, code: ResponseCode) -> None:
        self._wish = None
        self._state.answer_question(
            wish.question, TransferResponse(code, self._state.term, self._state.leader))
