"""The term and the vote of a member. Only this module changes them, and the term never falls."""

from twistmq.raft.hard_state import HardState
from twistmq.raft.outbox import Outbox

__all__ = ["Ballot"]


class Ballot:
    """The hard state of a member. Each change requests that the new state is saved."""

    def __init__(self, member_id: str, state: HardState, outbox: Outbox) -> None:
        """Begin with the state that was read from the disk."""
        self._member_id = member_id
        self._state = state
        self._outbox = outbox
        self._number = 0
        #: The term in which this member stands for election: it has voted for itself since the
        #: process started, and the term has no leader yet.
        self._standing: int | None = None

    @property
    def term(self) -> int:
        """The current term."""
        return self._state.term

    @property
    def voted_for(self) -> str:
        """The member that this member voted for in the current term; empty: no vote yet."""
        return self._state.voted_for

    @property
    def has_joined(self) -> bool:
        """Whether this member may vote and stand for election."""
        return self._state.joined

    @property
    def is_standing(self) -> bool:
        """Whether this member may lead the current term when a majority votes for it.

        A vote for itself from an earlier life does not count: in that life the member may have led
        the term, with entries that its log has lost since.
        """
        return self._standing == self._state.term

    @property
    def is_saved(self) -> bool:
        """Whether the state is durable, so that the member's own vote counts."""
        return self._outbox.is_saved(self._number)

    def raise_term(self, term: int) -> None:
        """Adopt a term, without a vote. A term that is not higher changes nothing."""
        if term > self._state.term:
            self._change(HardState(term, "", self._state.joined))

    def vote(self, member: str) -> None:
        """Vote for a member in the current term; no other member may have this vote already."""
        assert self._state.voted_for in ("", member), "the vote of this term is given already"
        if self._state.voted_for != member:
            self._change(HardState(self._state.term, member, self._state.joined))

    def stand_in_term(self, term: int) -> None:
        """Stand for election in a term: adopt the term, and vote for this member itself."""
        assert self._state.joined, "a member stands for election before it has joined"
        self.raise_term(term)
        self.vote(self._member_id)
        self._standing = term

    def end_standing(self) -> None:
        """Stop standing, because the current term has its leader and is not led a second time."""
        self._standing = None

    def join(self) -> None:
        """Permit votes from the next term on; the member may have voted in the current one."""
        if not self._state.joined:
            self._change(HardState(self._state.term, self._state.voted_for or self._member_id,
                                   joined=True))

    def leave(self) -> None:
        """Forbid votes until the member joins again, because its log has lost entries."""
        if self._state.joined:
            self._change(HardState(self._state.term, self._state.voted_for, joined=False))

    def save_again(self) -> None:
        """Request once more that the state is made durable, after a failure of the storage."""
        self._number = self._outbox.save_hard_state(self._state)

    def _change(self, state: HardState) -> None:
        assert state.term >= self._state.term, "a term falls"
        self._state = state
        self._number = self._outbox.save_hard_state(state)
