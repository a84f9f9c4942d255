"""The procedure by which a member without a hard state obtains the right to vote.

A member without a hard state is new, or its disk was wiped. A wiped member has forgotten its votes
and its acknowledgements, so it must not vote, and must not acknowledge anything to a leader whose
term it may have voted against. It therefore

1. asks all other members for their terms, and refuses all terms that are lower than the highest.
   A majority of answers is not enough, because the one member that does not answer may be a
   candidate that is about to lead with the forgotten vote;
2. acknowledges the entries of a leader, but grants no vote until it has all entries that the
   leader has committed, with at least one entry from the current term among them, and with all
   entries that the leader's log had when it first compared the logs.

If all the answers say that the term is 0 and that the log is empty, no majority has ever elected a
leader: the group is new, and the member may vote at once. Apache's members may lead in term 0.
"""

from twistmq.raft.calls import Call, Calls
from twistmq.raft.member_state import MemberState
from twistmq.raft.messages import Response, VoteRequest, VoteResponse, VoteResult

__all__ = ["Admission"]

#: The term of an inquiry. No vote is granted in it, as every member's term is higher.
_INQUIRY_TERM = -1
#: The results of a voter whose log is longer than the empty log of the inquiry.
_LONGER_LOG = (VoteResult.REJECT_EXPIRED_LEDGER_TERM, VoteResult.REJECT_SMALL_LEDGER_END_INDEX)


class Admission:
    """Asks the peers for their terms until this member may vote, and is idle afterwards."""

    def __init__(self, state: MemberState) -> None:
        """Begin idle; ``begin`` starts the procedure."""
        self._state = state
        self._calls: Calls[None] = Calls()
        self._next_inquiry_ms: int | None = None
        #: The term that each peer has reported.
        self._terms: dict[str, int] = {}
        #: Whether a peer has entries.
        self._has_entries = False

    @property
    def knows_terms(self) -> bool:
        """Whether this member may acknowledge entries of a leader of its term."""
        return (self._state.ballot.has_joined
                or len(self._terms) == len(self._state.settings.peers))

    @property
    def next_deadline(self) -> int | None:
        """When ``advance`` has something to do; None: not before the next event."""
        return self._next_inquiry_ms

    def begin(self) -> None:
        """Ask the peers; a member without peers joins at once."""
        if not self._state.ballot.has_joined:
            self._next_inquiry_ms = self._state.now_ms
            self._judge_terms()

    def advance(self) -> None:
        """Ask the peers that have not answered yet."""
        state, settings = self._state, self._state.settings
        self._calls.take_expired(state.now_ms)
        if self._next_inquiry_ms is None or self._next_inquiry_ms > state.now_ms:
            return
        for peer in settings.peers:
            self._ask_once(peer)
        self._next_inquiry_ms = state.now_ms + settings.inquiry_interval_ms

    def note_request(self, sender: str) -> None:
        """Ask a peer that has sent a request at once, unless it is being asked already.

        The peer may have started after the last inquiry. The members of a new group that start
        one after the other thus all join before their first election. A member that waited for its
        next inquiry would find the term of that election, and join only with the leader's entries:
        if the leader died before, the group had no majority.
        """
        if self._next_inquiry_ms is not None and sender in self._state.settings.peers:
            self._ask_once(sender)

    def _ask_once(self, peer: str) -> None:
        """Ask a peer, unless it has answered or is being asked."""
        state, settings = self._state, self._state.settings
        if peer in self._terms or self._calls.has_call_to(peer):
            return
        request = VoteRequest(settings.group, settings.member_id, peer, _INQUIRY_TERM,
                              settings.member_id)
        self._calls.add_call(state.ask_peer(peer, request), Call(
            peer, state.now_ms, state.now_ms + settings.call_timeout_ms, None))

    def note_answer(self, number: int, response: Response | None) -> bool:
        """Note the answer to a call (None: it failed) and return whether the call is known."""
        call = self._calls.take_call(number)
        if call is None:
            return False
        if isinstance(response, VoteResponse) and response.term >= 0 and not self.knows_terms:
            self._terms[call.peer] = max(response.term, self._terms.get(call.peer, 0))
            self._has_entries |= response.result in _LONGER_LOG
            self._judge_terms()
        return True

    def note_committed(self) -> None:
        """Join: the log has all entries that its leader knows to be committed."""
        if not self._state.ballot.has_joined and self.knows_terms:
            self._state.ballot.join()

    def _judge_terms(self) -> None:
        state = self._state
        if not self.knows_terms:
            return
        self._next_inquiry_ms = None
        highest = max(self._terms.values(), default=0)
        if highest > state.term:
            state.step_down(highest)
        is_new_group = (highest == 0 and not self._has_entries and state.term == 0
                        and state.log.end_index < 0 and state.committed_index < 0)
        if is_new_group or not state.settings.peers:
            state.ballot.join()
