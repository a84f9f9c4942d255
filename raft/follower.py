"""A follower, which answers the heartbeats and the pushes of its leader.

The follower remembers the index up to which its log is known to be equal to the leader's log. A
comparison, a truncation or an append proves this, if the current leader has requested it in the
current term and since the follower started. The follower acknowledges and commits only that part of
its log. It never drops a committed entry, even if a leader requests this.
"""

from dataclasses import dataclass

from twistmq.raft.actions import Role
from twistmq.raft.admission import Admission
from twistmq.raft.log import LogError, LogRejected
from twistmq.raft.member_state import MemberState
from twistmq.raft.messages import (
    Entry,
    HeartbeatRequest,
    HeartbeatResponse,
    PushRequest,
    PushResponse,
    PushType,
    ResponseCode,
)
from twistmq.raft.parked_pushes import ParkedPush, ParkedPushes

__all__ = ["Follower"]


@dataclass(frozen=True, slots=True)
class _Unsynced:
    """An acknowledgement that waits until the log is durable up to an index."""

    index: int
    question: int
    request: PushRequest


class Follower:
    """The behaviour of a follower. One object serves all leaders of a life, each in its reign."""

    def __init__(self, state: MemberState, admission: Admission) -> None:
        """Begin without a leader."""
        self._state = state
        self._admission = admission
        self._reign = state.reign
        self._heard_ms = state.now_ms
        self._parked_pushes = ParkedPushes(state.settings.parked_bytes_max)
        self._unsynced: list[_Unsynced] = []
        #: The last entry that is known to be equal to the leader's.
        self._verified_index = -1
        #: The highest committed index that the leader has sent.
        self._leader_committed = -1
        #: When the entries up to this one are durable, a member that may not vote yet joins.
        self._join_index: int | None = None
        #: The highest entry that this leader has compared: its log had that entry when this member
        #: first heard of it. None: no comparison has arrived.
        self._compared_index: int | None = None

    @property
    def next_deadline(self) -> int | None:
        """When ``advance`` has something to do; None: not before the next event."""
        parked_ms = self._parked_pushes.next_deadline
        if self._state.role is not Role.FOLLOWER:
            return parked_ms
        silent_ms = self._heard_ms + self._state.settings.lead_timeout_ms + 1
        return silent_ms if parked_ms is None else min(silent_ms, parked_ms)

    def advance(self) -> None:
        """Give up parked pushes that waited too long, and a leader that was silent too long."""
        state = self._state
        for parked in self._parked_pushes.take_expired(state.now_ms):
            self._answer(parked.question, parked.request, ResponseCode.INCONSISTENT_STATE)
        if (state.role is Role.FOLLOWER
                and state.now_ms > self._heard_ms + state.settings.lead_timeout_ms):
            state.step_down()

    def start_reign(self) -> None:
        """Forget the state that belongs to an earlier leader, if a new reign has begun."""
        if self._reign == self._state.reign:
            return
        self._reign = self._state.reign
        self._heard_ms = self._state.now_ms
        self._verified_index = -1
        self._leader_committed = -1
        self._join_index = None
        self._compared_index = None
        unsynced, self._unsynced = self._unsynced, []
        for parked in self._parked_pushes.take_all():
            self._answer(parked.question, parked.request, ResponseCode.EXPIRED_TERM)
        for waiting in unsynced:
            self._answer(waiting.question, waiting.request, ResponseCode.EXPIRED_TERM)

    def lose_leader(self, peer: str) -> None:
        """Become a candidate at once if ``peer`` is the leader, because its process is gone."""
        if self._state.role is Role.FOLLOWER and self._state.leader == peer:
            self._state.step_down()

    def answer_heartbeat(self, question: int, request: HeartbeatRequest) -> None:
        """Follow the leader of this term or a later one, or answer with the code of a refusal."""
        code = self._recognize_leader(request.leader, request.term)
        term = self._state.term if code is not ResponseCode.SUCCESS else -1
        self._state.answer_question(question, HeartbeatResponse(code, term, self._state.leader))

    def answer_push(self, question: int, request: PushRequest) -> None:
        """Change or compare the log as the leader requests, or answer with a refusal."""
        code = self._recognize_leader(request.leader, request.term)
        if code is ResponseCode.SUCCESS:
            code = self._find_push_refusal(request)
        if code is not ResponseCode.SUCCESS:
            self._answer(question, request, code)
            return
        self._leader_committed = max(self._leader_committed, request.commit_index)
        try:
            self._obey(question, request)
        except LogRejected as rejection:
            self._state.add_complaint(request.leader, f"an entry does not fit: {rejection}")
            self._answer(question, request, ResponseCode.INCONSISTENT_STATE)
        except LogError as error:
            self._state.fail_storage(str(error))
            self._answer(question, request, ResponseCode.DISK_ERROR)
        self.note_durable()

    def note_durable(self) -> None:
        """Acknowledge durable entries, and commit those that the leader has committed."""
        durable_index = self._state.durability.durable_index
        if self._unsynced:
            unsynced, self._unsynced = self._unsynced, []
            for waiting in unsynced:
                if waiting.index <= durable_index:
                    self._answer(waiting.question, waiting.request, ResponseCode.SUCCESS)
                else:
                    self._unsynced.append(waiting)
        self._state.advance_committed(
            min(self._leader_committed, self._verified_index, durable_index))
        if self._join_index is not None and self._join_index <= durable_index:
            self._join_index = None
            self._admission.note_committed()

    # --- Checks ---

    def _recognize_leader(self, leader: str, term: int) -> ResponseCode:
        state = self._state
        if leader not in state.settings.members:
            return ResponseCode.UNKNOWN_MEMBER
        if leader == state.settings.member_id:
            return ResponseCode.UNEXPECTED_MEMBER
        if term < state.term:
            return ResponseCode.EXPIRED_TERM
        if term == state.term and state.leader not in ("", leader):
            state.add_complaint(leader, f"{leader} and {state.leader} both lead the term {term}")
            return ResponseCode.INCONSISTENT_LEADER
        state.follow(term, leader)
        self.start_reign()
        self._heard_ms = state.now_ms
        return ResponseCode.SUCCESS

    def _find_push_refusal(self, request: PushRequest) -> ResponseCode:
        if not _is_well_formed(request):
            return ResponseCode.UNEXPECTED_ARGUMENT
        if self._state.storage_failure:
            return ResponseCode.DISK_ERROR
        if not self._admission.knows_terms:
            # This member may have promised another leader to refuse these entries.
            return ResponseCode.LEADER_NOT_READY
        return ResponseCode.SUCCESS

    # --- Pushes ---

    def _obey(self, question: int, request: PushRequest) -> None:
        if (self._compared_index is None and not self._state.ballot.has_joined
                and request.type is not PushType.COMPARE):
            # This member has to know how far the leader's log goes, so the leader must compare.
            self._answer(question, request, ResponseCode.INCONSISTENT_STATE)
        elif request.type is PushType.APPEND:
            self._take_entries(ParkedPush(question, request,
                                      self._state.now_ms + self._state.settings.parked_ms))
        elif request.type is PushType.COMMIT:
            self._note_commit(question, request)
        else:
            for parked in self._parked_pushes.take_all():
                self._answer(parked.question, parked.request, ResponseCode.INCONSISTENT_STATE)
            if request.type is PushType.COMPARE:
                self._compare(question, request)
            else:
                self._truncate(question, request)

    def _take_entries(self, push: ParkedPush) -> None:
        """Append a push and the parked ones that follow it, or park it if there is a gap."""
        if self._verified_index < 0 or self._verified_index < self._state.log.end_index:
            # The logs were not compared yet, or this log has a tail that the leader must cut first.
            self._answer(push.question, push.request, ResponseCode.INCONSISTENT_STATE)
            return
        replaced = self._parked_pushes.add_push(push, self._verified_index + 1)
        if replaced is None:
            self._answer(push.question, push.request, ResponseCode.PUSH_REQUEST_IS_FULL)
            return
        for parked in replaced:
            self._answer(parked.question, parked.request, ResponseCode.REPEATED_PUSH)
        while (ready := self._parked_pushes.take_up_to(self._verified_index + 1)) is not None:
            self._append(ready.question, ready.request)

    def _append(self, question: int, request: PushRequest) -> None:
        log = self._state.log
        for entry in request.entries:
            if entry.index <= self._verified_index and not log.has_entry(entry):
                # The leader has lost entries and leads its term again, as Apache's leaders may do.
                self._verified_index = entry.index - 1
                self._answer(question, request, ResponseCode.INCONSISTENT_STATE)
                return
        entries = [entry for entry in request.entries if entry.index > self._verified_index]
        if entries:
            try:
                if entries[0].term < self._state.end_term:
                    raise LogRejected(f"its term {entries[0].term} is below the one before")
                log.append(entries)
            except LogRejected as rejection:
                self._state.add_complaint(request.leader, f"an entry does not fit: {rejection}")
                self._answer(question, request, ResponseCode.INCONSISTENT_STATE)
                return
            self._state.durability.log_appended()
            self._verified_index = log.end_index
        self._acknowledge(question, request, request.entries[-1].index)
        self._note_caught_up(request)

    def _note_commit(self, question: int, request: PushRequest) -> None:
        if request.commit_index > self._verified_index:
            # The leader assumes that this log is complete, but it is not.
            self._answer(question, request, ResponseCode.INCONSISTENT_STATE)
            return
        self._answer(question, request, ResponseCode.SUCCESS)
        self._note_caught_up(request)

    def _note_caught_up(self, request: PushRequest) -> None:
        """Let the member join as soon as all entries that this leader has committed are durable.

        A new leader may know too low a committed index until it has committed its own barrier. An
        Apache leader has no barrier, and may lead its term again after a restart. The committed
        index must therefore also reach the end that the leader's log had at the comparison.
        """
        index, log = request.commit_index, self._state.log
        if (log.begin_index <= index <= self._verified_index
                and log.term_at(index) == request.term
                and self._compared_index is not None and index >= self._compared_index):
            self._join_index = index

    def _compare(self, question: int, request: PushRequest) -> None:
        entry = request.entries[0]
        self._compared_index = max(entry.index, self._compared_index or 0)
        if self._has(entry):
            self._verified_index = max(self._verified_index, entry.index)
            self._acknowledge(question, request, entry.index)
            return
        if entry.index <= self._verified_index:
            self._verified_index = entry.index - 1
        self._warn_of_committed(request, entry)
        self._answer(question, request, ResponseCode.INCONSISTENT_STATE)

    def _truncate(self, question: int, request: PushRequest) -> None:
        state, entry = self._state, request.entries[0]
        index = entry.index
        if self._has(entry):
            # A late request must not drop entries that this leader has verified since.
            end_index = max(index, self._verified_index)
            if end_index < state.committed_index:
                self._refuse_cut(question, request)
                return
            self._cut(end_index)
            self._verified_index = end_index
        elif index <= state.committed_index:
            self._refuse_cut(question, request)
            return
        else:
            self._write_last(entry)
        self._acknowledge(question, request, index)

    def _write_last(self, entry: Entry) -> None:
        """Make the entry the last one: append it to an equal part, or restart the log with it."""
        state = self._state
        if 0 <= self._verified_index == entry.index - 1 and entry.term >= state.log.term_at(
                entry.index - 1):
            self._cut(entry.index - 1)
            state.log.append([entry])
        else:
            state.log.restart(entry)
            state.durability.log_cut(entry.index - 1)
        state.durability.log_appended()
        self._verified_index = entry.index

    def _cut(self, end_index: int) -> None:
        if end_index < self._state.log.end_index:
            self._state.log.truncate(end_index)
            self._state.durability.log_cut(end_index)

    def _has(self, entry: Entry) -> bool:
        log = self._state.log
        return (log.end_index >= 0 and log.begin_index <= entry.index <= log.end_index
                and log.has_entry(entry))

    # --- Answers ---

    def _refuse_cut(self, question: int, request: PushRequest) -> None:
        self._state.add_complaint(request.leader, f"{request.leader} wants to truncate at "
                             f"{request.entries[0].index}, below the committed index "
                             f"{self._state.committed_index}; refused")
        self._answer(question, request, ResponseCode.INCONSISTENT_STATE)

    def _warn_of_committed(self, request: PushRequest, entry: Entry) -> None:
        log = self._state.log
        if log.begin_index <= entry.index <= min(self._state.committed_index, log.end_index):
            self._state.add_complaint(request.leader, f"{request.leader} has another entry at the "
                                 f"committed index {entry.index}")

    def _acknowledge(self, question: int, request: PushRequest, index: int) -> None:
        if index <= self._state.durability.durable_index:
            self._answer(question, request, ResponseCode.SUCCESS)
        else:
            self._unsynced.append(_Unsynced(index, question, request))

    def _answer(self, question: int, request: PushRequest, code: ResponseCode) -> None:
        log, entries = self._state.log, request.entries
        self._state.answer_question(question, PushResponse(
            code, request.term, self._state.leader, entries[0].index if entries else -1,
            len(entries), log.begin_index, log.end_index))


def _is_well_formed(request: PushRequest) -> bool:
    """Return whether the entries of a push suit its type, and follow each other."""
    entries = request.entries
    if request.type is PushType.COMMIT or not entries:
        return request.type is PushType.COMMIT and not entries
    if len(entries) > 1 and request.type is not PushType.APPEND:
        return False
    index, term = max(entries[0].index, 0), 0
    for entry in entries:
        if entry.index != index or entry.term < term:
            return False
        index, term = index + 1, entry.term
    return term <= request.term
