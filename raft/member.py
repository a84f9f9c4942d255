"""One member of a group: events in, actions out.

Raft is hard to get right in the order of things: a vote must be on the disk before it is sent, an
answer may arrive after the term to which it belongs, and a disk may fail between two entries. All
of this is decided here and in the parts that ``Member`` connects, by plain functions of their
state. A driver turns everything that happens (a request, an answer, the end of a sync, the passing
of time) into one event, and carries out the returned actions in order. The member has no clock, no
disk and no network, so a simulation can run the same code through millions of orders of events.

Each part (``election``, ``follower``, ``leader``, ``admission``, the two parts of a transfer) does
the work of one role. After each event, every part does the work that has become possible, until
none of them changes the role. Only ``ballot`` changes the term and the vote, and only the parts of
the current reign act: a part that was made for an earlier one is dropped.
"""

from collections.abc import Callable

from twistmq.raft.actions import Action, Role, TransferEnded
from twistmq.raft.actions import Refused as ProposeRefused
from twistmq.raft.admission import Admission
from twistmq.raft.election import Election
from twistmq.raft.events import (
    Answered,
    Appended,
    Asked,
    CallFailed,
    Event,
    Flushed,
    HardStateSaved,
    PeerRefused,
    Propose,
    Started,
    StorageFailed,
    StorageRepaired,
    Tick,
    Transfer,
)
from twistmq.raft.follower import Follower
from twistmq.raft.hard_state import HardState
from twistmq.raft.lead_takeover import LeadTakeover
from twistmq.raft.lead_transfer import LeadTransfer, choose_preferred, choose_successor
from twistmq.raft.leader import Leader, PeerProgress
from twistmq.raft.log import Log
from twistmq.raft.member_state import MemberState
from twistmq.raft.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    PushRequest,
    PushResponse,
    Request,
    Response,
    ResponseCode,
    TransferRequest,
    TransferResponse,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from twistmq.raft.settings import MemberSettings
from twistmq.raft.voter import decide_vote

__all__ = ["TERM_STEP_MAX", "Member"]

#: By how much the term of a message may be above the member's own. A group elects a leader a few
#: times a second at most, so no term of its own is that far ahead.
TERM_STEP_MAX = 1 << 32


class Member:
    """A member in one life, from the start of a process to its end.

    It does no input or output, has no clock and draws no random numbers: see ``handle_event``.
    """

    def __init__(self, settings: MemberSettings, log: Log, hard_state: HardState | None,
                 committed_index: int) -> None:
        """Begin with the state on the disk.

        :param log: the recovered log, after a sync.
        :param hard_state: the last saved state; None if the disk has no such file.
        :param committed_index: the last index that the driver has saved, however old; -1: none.
        """
        state = hard_state or HardState()
        end_term = log.term_at(log.end_index) if log.end_index >= 0 else -1
        if state.term < end_term:
            # The file of the hard state is older than the log, or was lost.
            state = HardState(end_term, "", joined=False)
        self._has_lost_entries = committed_index > log.end_index
        self._state = MemberState(settings, log, state, min(committed_index, log.end_index))
        self._admission = Admission(self._state)
        self._election = Election(self._state)
        self._follower = Follower(self._state, self._admission)
        self._leader: Leader | None = None
        self._transfer = LeadTransfer(self._state)
        self._lead_takeover = LeadTakeover(self._state, self._election)
        self._next_preferred_ms: int | None = None
        self._parts = (self._follower, self._admission, self._transfer, self._election,
                       self._lead_takeover)

    @property
    def role(self) -> Role:
        """The current role."""
        return self._state.role

    @property
    def term(self) -> int:
        """The current term."""
        return self._state.term

    @property
    def leader(self) -> str:
        """The id of the leader of the current term; empty: not known."""
        return self._state.leader

    @property
    def committed_index(self) -> int:
        """The last entry that is known to be committed; -1: none is."""
        return self._state.committed_index

    @property
    def hard_state(self) -> HardState:
        """The current hard state, which may not be durable yet."""
        ballot = self._state.ballot
        return HardState(ballot.term, ballot.voted_for, ballot.has_joined)

    @property
    def has_joined(self) -> bool:
        """Whether this member may vote and lead."""
        return self._state.ballot.has_joined

    @property
    def storage_failure(self) -> str:
        """Why this member neither leads nor acknowledges; empty while its storage works."""
        return self._state.storage_failure

    @property
    def is_established(self) -> bool:
        """Whether this member leads and its log has all committed entries."""
        return self._leader is not None and self._leader.is_established

    @property
    def is_appendable(self) -> bool:
        """Whether the driver may append entries of the current term to the log at present."""
        return self._leader is not None and self._leader.find_refusal() is None

    def list_progress(self) -> list[PeerProgress]:
        """Return what this leader knows about the other members; nothing at other members."""
        return [] if self._leader is None else self._leader.list_progress()

    def find_successor(self) -> str | None:
        """Return the member to which this leader should give the lead before it stops, if any."""
        return None if self._leader is None else choose_successor(self._state, self._leader)

    @property
    def next_tick(self) -> int:
        """The latest time of the next ``Tick``, in ms of the steady clock."""
        tick_ms = self._state.now_ms + self._state.settings.heartbeat_interval_ms
        for part in self._parts:
            deadline_ms = part.next_deadline
            if deadline_ms is not None and deadline_ms < tick_ms:
                tick_ms = deadline_ms
        if self._leader is not None:
            tick_ms = min(tick_ms, self._leader.next_deadline)
        if self._next_preferred_ms is not None:
            tick_ms = min(tick_ms, self._next_preferred_ms)
        return tick_ms

    def handle_event(self, event: Event, now_ms: int, draw: float) -> list[Action]:
        """Handle an event, and return the actions that the driver carries out in this order.

        :param now_ms: the time of a steady clock, in milliseconds; it never goes back.
        :param draw: a random number, 0 <= draw < 1, a new one for each event.
        """
        state = self._state
        assert now_ms >= state.now_ms, "the clock of a member goes back"
        state.now_ms, state.draw = now_ms, draw
        self._dispatch(event)
        self._advance()
        state.durability.request_sync()
        return state.outbox.take_actions()

    # --- Events ---

    def _dispatch(self, event: Event) -> None:
        state = self._state
        match event:
            case Asked(question, request):
                self._answer_request(question, request)
            case Answered(call, response):
                self._note_answer(call, response)
            case Tick():
                pass
            case CallFailed(call):
                self._note_answer(call, None)
            case HardStateSaved(number):
                state.outbox.hard_state_saved(number)
            case Flushed(number):
                state.durability.sync_ended(number)
                self._follower.note_durable()
            case Propose(tag):
                if self._leader is None:
                    state.outbox.add(ProposeRefused(tag, ResponseCode.NOT_LEADER))
                else:
                    self._leader.propose(event)
            case Appended():
                assert self._leader is not None, "a driver has appended without the lead"
                self._leader.log_appended()
            case Transfer(tag, transferee):
                self._transfer.start(self._leader, transferee, self._transfer_teller(tag))
            case PeerRefused(peer):
                if state.settings.quick_failover:
                    self._follower.lose_leader(peer)
            case StorageFailed(reason):
                state.fail_storage(reason)
            case StorageRepaired():
                state.storage_failure = ""
                state.ballot.save_again()
                state.durability.log_appended()
            case Started():
                self._start()

    def _start(self) -> None:
        if self._has_lost_entries:
            self._state.add_complaint("", "the log ends before the committed index that was "
                                      "noted; this member votes when it has caught up")
            self._state.ballot.leave()
        self._admission.begin()

    def _is_far(self, term: int) -> bool:
        """Whether a term cannot come from this group.

        If it were adopted, it would stay, and one close to the largest number would leave no
        higher term for an election.
        """
        return term > self._state.term + TERM_STEP_MAX

    def _note_answer(self, call: int, response: Response | None) -> None:
        if response is not None and self._is_far(response.term):
            response = None
        if self._leader is not None and self._leader.note_answer(call, response):
            return
        for part in (self._election, self._admission, self._transfer):
            if part.note_answer(call, response):
                return

    def _advance(self) -> None:
        """Let each part do its pending work, until no part changes the role."""
        state = self._state
        reign = -1
        while reign != state.reign:
            reign = state.reign
            self._follower.start_reign()
            if self._leader is not None and not self._leader.is_current:
                self._leader = None
            if state.role is Role.LEADER and self._leader is None:
                self._leader = Leader(state)
                self._next_preferred_ms = None
            if self._leader is not None and self._leader.is_current:
                self._leader.advance()
            for part in self._parts:
                part.advance()
            self._prefer()

    def _prefer(self) -> None:
        """From time to time, give the lead to a preferred leader."""
        state, settings = self._state, self._state.settings
        if self._leader is None or not self._leader.is_current or not settings.preferred_leaders:
            self._next_preferred_ms = None
            return
        if self._next_preferred_ms is not None and self._next_preferred_ms <= state.now_ms:
            peer = choose_preferred(state, self._leader)
            if peer is not None:
                self._transfer.start(self._leader, peer, lambda code: None)
            self._next_preferred_ms = None
        if self._next_preferred_ms is None:
            self._next_preferred_ms = state.now_ms + settings.preferred_check_ms

    # --- Requests ---

    def _answer_request(self, question: int, request: Request) -> None:
        state, settings = self._state, self._state.settings
        if request.receiver != settings.member_id:
            self._refuse(question, request, ResponseCode.UNKNOWN_MEMBER)
        elif request.group != settings.group:
            self._refuse(question, request, ResponseCode.UNKNOWN_GROUP)
        elif self._is_far(request.term):
            state.add_complaint(request.sender, f"{request.sender} sends the term {request.term}, "
                                f"and the term here is {state.term}; refused")
            self._refuse(question, request, ResponseCode.UNEXPECTED_ARGUMENT)
        elif isinstance(request, VoteRequest):
            self._admission.note_request(request.sender)
            response = decide_vote(state, request)
            if response.result is VoteResult.ACCEPT:
                self._election.wait_for_winner()
            state.answer_question(question, response)
        elif isinstance(request, TransferRequest):
            self._answer_transfer(question, request)
        elif request.sender != request.leader:
            self._refuse(question, request, ResponseCode.UNEXPECTED_MEMBER)
        elif isinstance(request, HeartbeatRequest):
            self._follower.answer_heartbeat(question, request)
        elif isinstance(request, PushRequest):
            self._follower.answer_push(question, request)
        else:
            raise TypeError(f"{type(request).__name__} is not a request of a group")

    def _answer_transfer(self, question: int, request: TransferRequest) -> None:
        state = self._state
        if state.settings.member_id == request.transferee:
            self._lead_takeover.start(question, request)
        elif state.settings.member_id != request.transferor:
            self._refuse(question, request, ResponseCode.UNEXPECTED_ARGUMENT)
        elif request.term != state.term:
            self._refuse(question, request, ResponseCode.INCONSISTENT_TERM)
        else:
            self._transfer.start(self._leader, request.transferee,
                                 lambda code: self._refuse(question, request, code))

    def _refuse(self, question: int, request: Request, code: ResponseCode) -> None:
        """Answer a request with nothing but a code."""
        state = self._state
        response: Response
        match request:
            case VoteRequest():
                response = VoteResponse(code, state.term, request.leader, VoteResult.UNKNOWN)
            case HeartbeatRequest():
                response = HeartbeatResponse(code, state.term, state.leader)
            case PushRequest():
                response = PushResponse(code, request.term, state.leader)
            case _:
                response = TransferResponse(code, state.term, state.leader)
        state.answer_question(question, response)

    def _transfer_teller(self, tag: int) -> Callable[[ResponseCode], None]:
        return lambda code: self._state.outbox.add(TransferEnded(tag, code))
