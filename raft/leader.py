"""A leader in one reign: its barrier, heartbeats, pushes, and the committed index."""

from dataclasses import dataclass

from twistmq.raft.actions import LeadEstablished, Proposed, Refused, Role
from twistmq.raft.calls import Call, Calls
from twistmq.raft.commit import find_quorum_index
from twistmq.raft.events import Propose
from twistmq.raft.log import LogError, LogRejected
from twistmq.raft.member_state import MemberState
from twistmq.raft.messages import HeartbeatRequest, Response, ResponseCode
from twistmq.raft.pusher import Pusher

__all__ = ["Leader", "PeerProgress"]

#: A follower that is about to reach the leader's term is asked again after this time.
_ASK_AGAIN_MS = 50
#: The deadline of a leader without peers, which cannot lose its majority.
_NEVER_MS = 1 << 62


@dataclass(frozen=True, slots=True)
class PeerProgress:
    """What a leader knows about another member.

    :param lag: the number of entries that the member lacks; None before their logs are compared.
    :param is_reachable: whether the member has answered lately.
    """

    peer: str
    lag: int | None
    is_reachable: bool


class Leader:
    """The behaviour of a leader. An object is made for each reign and dropped at its end.

    The leader first appends an entry without content, the barrier. Entries of earlier terms are
    committed only together with the barrier, and not as soon as a majority has them: a later leader
    may still replace such an entry.
    """

    def __init__(self, state: MemberState) -> None:
        """Append the barrier; a failing log ends the lead at once."""
        self._state = state
        self.reign = state.reign
        self.is_established = False
        #: Appends are refused while the lead is being transferred.
        self.is_transferring = False
        self._calls: Calls[None] = Calls()
        self._next_heartbeat_ms = state.now_ms
        #: When the last request was sent that each peer has answered as a follower.
        self._heard_ms = dict.fromkeys(state.settings.peers, state.now_ms)
        self._quorum_loss_ms = self._find_quorum_loss()
        self._complaints: dict[str, ResponseCode] = {}
        self._barrier_index = -1
        self._pushers: dict[str, Pusher] = {}
        try:
            state.log.append_barrier(state.term)
        except LogError as error:
            state.fail_storage(str(error))
            return
        state.durability.log_appended()
        self._barrier_index = state.log.end_index
        self._pushers = {peer: Pusher(state, peer) for peer in state.settings.peers}

    @property
    def is_current(self) -> bool:
        """Whether this reign continues."""
        return self._state.role is Role.LEADER and self._state.reign == self.reign

    @property
    def next_deadline(self) -> int:
        """When ``advance`` has something to do."""
        deadline_ms = min(self._next_heartbeat_ms, self._quorum_loss_ms)
        for pusher in self._pushers.values():
            deadline_ms = min(deadline_ms, pusher.next_deadline)
        return deadline_ms

    def advance(self) -> None:
        """Send heartbeats and pushes, commit entries, and step down without a majority."""
        state = self._state
        self._calls.take_expired(state.now_ms)
        if state.now_ms >= self._quorum_loss_ms:
            state.add_complaint("", "no majority answers this leader, so it steps down")
            state.step_down()
            return
        if state.now_ms >= self._next_heartbeat_ms:
            self._send_heartbeats()
        try:
            for pusher in self._pushers.values():
                pusher.run()
        except LogError as error:
            state.fail_storage(str(error))
            return
        self.advance_committed()

    def advance_committed(self) -> None:
        """Commit the entries that this leader and a majority have, if the barrier is among them."""
        state = self._state
        own_index = state.durability.durable_index
        matches = [pusher.match_index for pusher in self._pushers.values()]
        matches.append(own_index)
        # The leader itself could lose entries after its last durable one in a crash.
        index = min(own_index, find_quorum_index(matches, state.settings.quorum))
        if index < self._barrier_index:
            return
        state.advance_committed(index)
        if not self.is_established:
            self.is_established = True
            state.outbox.add(LeadEstablished(state.term, self._barrier_index))

    def find_refusal(self, count: int = 1) -> ResponseCode | None:
        """Return the code by which ``count`` more entries are refused at present, or None."""
        state = self._state
        if self.is_transferring:
            return ResponseCode.LEADER_TRANSFERRING
        if not self.is_established:
            return ResponseCode.LEADER_NOT_READY
        waiting = state.log.end_index - state.committed_index
        if waiting and waiting + count > state.settings.pending_entries_max:
            return ResponseCode.LEADER_PENDING_FULL
        return None

    def propose(self, event: Propose) -> None:
        """Append a driver's bodies, or refuse them."""
        state = self._state
        code = self.find_refusal(len(event.bodies))
        if not event.bodies:
            code = ResponseCode.UNEXPECTED_ARGUMENT
        first = state.log.end_index + 1
        if code is None:
            try:
                state.log.extend(state.term, event.bodies)
            except LogRejected:
                code = ResponseCode.UNEXPECTED_ARGUMENT
            except LogError as error:
                state.outbox.add(Refused(event.tag, ResponseCode.DISK_ERROR))
                state.fail_storage(str(error))
                return
        if code is not None:
            state.outbox.add(Refused(event.tag, code))
            return
        state.outbox.add(Proposed(event.tag, state.term, first, state.log.end_index))
        self.log_appended()

    def log_appended(self) -> None:
        """Sync and push the entries of this term that were appended to the log."""
        self._state.durability.log_appended()

    def note_answer(self, number: int, response: Response | None) -> bool:
        """Note the answer to a call (None: it failed) and return whether the call is known."""
        call = self._calls.take_call(number)
        if call is not None:
            if response is not None:
                self._note_heartbeat_answer(call, response)
            return True
        for peer, pusher in self._pushers.items():
            if number in pusher:
                sent_ms = pusher.note_answer(number, response)
                if sent_ms is not None:
                    self._note_heard(peer, sent_ms)
                return True
        return False

    def find_lag(self, peer: str) -> int:
        """Return how many entries a peer lacks, as far as is known."""
        return self._state.log.end_index - self._pushers[peer].match_index

    def was_heard_lately(self, peer: str) -> bool:
        """Return whether a peer has answered the last heartbeat but one, or a later request."""
        settings = self._state.settings
        return self._heard_ms[peer] >= (self._state.now_ms - settings.heartbeat_interval_ms
                                        - settings.push_timeout_ms)

    def list_progress(self) -> list[PeerProgress]:
        """Return the progress of all other members."""
        return [PeerProgress(peer, self.find_lag(peer) if pusher.match_index >= 0 else None,
                             self.was_heard_lately(peer))
                for peer, pusher in self._pushers.items()]

    def _note_heartbeat_answer(self, call: Call[None], response: Response) -> None:
        state = self._state
        if response.term > state.term:
            # The peer cannot follow this leader, although a majority may, so a new term is needed.
            state.add_complaint(call.peer, f"{call.peer} is in the higher term {response.term}")
            state.step_down(response.term)
        elif response.code is ResponseCode.SUCCESS:
            self._note_heard(call.peer, call.sent_ms)
            self._complaints.pop(call.peer, None)
        elif response.code is ResponseCode.TERM_NOT_READY:
            self._next_heartbeat_ms = min(self._next_heartbeat_ms, state.now_ms + _ASK_AGAIN_MS)
        elif self._complaints.get(call.peer) is not response.code:
            self._complaints[call.peer] = response.code
            state.add_complaint(call.peer, f"{call.peer} refuses heartbeats: {response.code.name}")

    def _send_heartbeats(self) -> None:
        state, settings = self._state, self._state.settings
        for peer in settings.peers:
            request = HeartbeatRequest(settings.group, settings.member_id, peer, state.term,
                                       settings.member_id)
            self._calls.add_call(state.ask_peer(peer, request), Call(
                peer, state.now_ms, state.now_ms + settings.call_timeout_ms, None))
        self._next_heartbeat_ms = state.now_ms + settings.heartbeat_interval_ms

    def _note_heard(self, peer: str, sent_ms: int) -> None:
        """Note that a peer has answered, as a follower, a request of that time."""
        if sent_ms > self._heard_ms[peer]:
            self._heard_ms[peer] = sent_ms
            self._quorum_loss_ms = self._find_quorum_loss()

    def _find_quorum_loss(self) -> int:
        """Return when a majority, this leader among it, will have been silent for too long."""
        settings = self._state.settings
        if settings.quorum == 1:
            return _NEVER_MS
        times = sorted(self._heard_ms.values(), reverse=True)
        return times[settings.quorum - 2] + settings.lead_timeout_ms + 1
