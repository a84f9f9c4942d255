"""The state that the parts of a member share, and the changes of its role."""

from twistmq.raft.actions import Answer, Ask, Committed, Complained, Role, RoleChanged
from twistmq.raft.ballot import Ballot
from twistmq.raft.durability import Durability
from twistmq.raft.hard_state import HardState
from twistmq.raft.log import Log
from twistmq.raft.messages import Request, Response
from twistmq.raft.outbox import Outbox
from twistmq.raft.settings import MemberSettings

__all__ = ["MemberState"]


class MemberState:
    """Role, leader, term, log and committed index of a member, and the actions of the turn.

    ``reign`` rises at each change of role, term or leader; a part that was made for an earlier
    reign is finished.
    """

    def __init__(self, settings: MemberSettings, log: Log, hard_state: HardState,
                 committed_index: int) -> None:
        """Begin as a candidate without a leader."""
        self.settings = settings
        self.log = log
        self.outbox = Outbox()
        self.ballot = Ballot(settings.member_id, hard_state, self.outbox)
        self.durability = Durability(log, self.outbox, is_needed=settings.durable)
        self.role = Role.CANDIDATE
        self.leader = ""
        self.committed_index = committed_index
        self.storage_failure = ""
        self.reign = 0
        self.now_ms = 0
        self.draw = 0.0
        self._calls = 0

    @property
    def term(self) -> int:
        """The current term."""
        return self.ballot.term

    @property
    def end_term(self) -> int:
        """The term of the last entry; -1 if the log is empty."""
        return self.log.term_at(self.log.end_index) if self.log.end_index >= 0 else -1

    def draw_between(self, minimum_ms: int, maximum_ms: int) -> int:
        """Return a duration within these bounds, by the draw of this event."""
        return minimum_ms + int(self.draw * (maximum_ms - minimum_ms))

    def stand_in_term(self, term: int) -> None:
        """Become a candidate in a term, and vote for this member itself."""
        self.step_down(term)
        self.ballot.stand_in_term(term)

    def lead_term(self) -> None:
        """Become the leader of the current term."""
        assert self.ballot.is_standing and self.ballot.is_saved, "a leader without its own vote"
        self.ballot.end_standing()
        self._change(Role.LEADER, self.settings.member_id)

    def follow(self, term: int, leader: str) -> None:
        """Follow the leader of a term that is not below the current one."""
        assert term >= self.term, "an old leader is followed"
        if self.role is Role.FOLLOWER and self.term == term and self.leader == leader:
            return
        self.ballot.raise_term(term)
        if not self.ballot.voted_for:
            # The term has its leader. A vote for it keeps this member from standing in the term.
            self.ballot.vote(leader)
        self.ballot.end_standing()
        self._change(Role.FOLLOWER, leader)

    def step_down(self, term: int = -1) -> None:
        """Become a candidate without a leader, in ``term`` if that is above the current one."""
        is_new = term > self.term
        self.ballot.raise_term(term)
        if is_new or self.role is not Role.CANDIDATE:
            self._change(Role.CANDIDATE, "")

    def fail_storage(self, reason: str) -> None:
        """Stop leading and acknowledging: the log or the hard state is not reliable."""
        if not self.storage_failure:
            self.storage_failure = reason
            self.add_complaint("", f"the storage of this member has failed: {reason}")
        if self.role is Role.LEADER:
            self.step_down()

    def ask_peer(self, peer: str, request: Request, *, bulk: bool = False) -> int:
        """Send a request and return the number of the call."""
        self._calls += 1
        self.outbox.add_message(Ask(self._calls, peer, request, bulk))
        return self._calls

    def answer_question(self, question: int, response: Response) -> None:
        """Send the response to a request of a peer."""
        self.outbox.add_message(Answer(question, response))

    def add_complaint(self, peer: str, text: str) -> None:
        """Report a problem to the operator."""
        self.outbox.add(Complained(peer, text))

    def advance_committed(self, index: int) -> None:
        """Commit up to an index. An index that is lower, or before the log, changes nothing."""
        if index > self.committed_index and index >= self.log.begin_index:
            assert index <= self.log.end_index, "an entry is committed that is not in the log"
            self.committed_index = index
            self.outbox.add(Committed(index))

    def _change(self, role: Role, leader: str) -> None:
        self.role, self.leader = role, leader
        self.reign += 1
        self.outbox.add(RoleChanged(role, self.term, leader))
