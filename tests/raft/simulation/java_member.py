"""A double of Apache's member: DLedger 0.2.6 to 0.3.2, as brokers of 4.9.4 to 5.5.0 have it.

It has the interface of ``twistmq.raft.member.Member``, and behaves as DLedger does where that
differs from ours, its faults included:

| fault | behaviour |
| --- | --- |
| J1 | a candidate asks again in its term after a restart, so it may lead a term twice |
| J2 | a leader counts entries of older terms as committed, and writes no barrier |
| J3 | a leader looks at higher terms only when it has no majority |
| J4 | a follower that has a pushed entry already keeps the push, and answers the next ones 413 |
| J5 | entries are acknowledged without a sync |
| J6 | a leader that is deposed answers no client that waits |
| J7 | comparisons are answered in any term, and committed entries are dropped by a request |
| J8 | a leader that looks for the place where logs part goes back one entry with each answer |

Source: DLedgerLeaderElector, DLedgerEntryPusher, DLedgerMmapFileStore, MemberState @0.3.2, written
from their behaviour. Fields that the simulator reads have the same names as in ``Member``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tests.raft.simulation.disk import DiskLog
from twistmq.raft.actions import (
    Action,
    Answer,
    Ask,
    Committed,
    Proposed,
    Refused,
    Role,
    RoleChanged,
    SaveHardState,
    TransferEnded,
)
from twistmq.raft.events import Answered, Asked, CallFailed, Event, Propose, Started, Transfer
from twistmq.raft.hard_state import HardState
from twistmq.raft.log import LogRejected
from twistmq.raft.messages import (
    Entry,
    HeartbeatRequest,
    HeartbeatResponse,
    PushRequest,
    PushResponse,
    PushType,
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

__all__ = ["JavaMember"]

_HEARTBEAT_MS: Final = 2000
_LEAD_MS: Final = 3 * _HEARTBEAT_MS
_CALL_MS: Final = 3000
_PUSH_MS: Final = 1000
_PAUSE_MS: Final = 500
_WINDOW: Final = 1000
#: How often the thread that keeps the state looks around.
_TURN_MS: Final = 10
_NEVER_MS: Final = 1 << 60
_BIGGER_LOG: Final = (
    VoteResult.REJECT_EXPIRED_LEDGER_TERM, VoteResult.REJECT_SMALL_LEDGER_END_INDEX)


@dataclass(slots=True)
class _Round:
    """The answers to a round of votes or of heartbeats; None: no answer."""

    term: int
    deadline_ms: int
    answers: dict[str, Response | None] = field(default_factory=dict)


@dataclass(slots=True)
class _Pusher:
    """A leader's pushes to one follower. ``match_index`` is DLedger's watermark."""

    peer: str
    term: int
    match_index: int = -1
    is_appending: bool = False
    #: The entry to compare or, if ``is_truncating``, to cut at; -1: the last one.
    probe_index: int = -1
    is_truncating: bool = False
    next_index: int = -1
    resume_ms: int = 0
    committed_ms: int = 0
    #: The call of the comparison or truncation, and its end.
    call: int = 0
    call_ms: int = 0
    #: By index, when the entry was pushed last.
    pending: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Lead:
    """What ``Machine.take_counted`` reads of a leader."""

    _pushers: dict[str, _Pusher]


class JavaMember:
    """A member of Apache's in one life of its process."""

    def __init__(self, settings: MemberSettings, log: DiskLog, hard_state: HardState | None,
                 committed_index: int) -> None:
        self.settings = settings
        self.log = log
        self.name = settings.member_id
        state = hard_state or HardState(joined=True)
        self.term, self._voted_for = state.term, state.voted_for
        self.role = Role.CANDIDATE
        self.leader = ""
        self.committed_index = min(committed_index, log.end_index)
        self.is_appendable = False
        self.is_established = False
        self._lead: _Lead | None = None
        self._now_ms = 0
        self._draw = 0.0
        self._actions: list[Action] = []
        self._number = 0
        self._calls: dict[int, Callable[[Response | None], None]] = {}
        self._known_term = self.term
        # election
        self._raises_at_once = False
        self._raise_ms = 0
        self._raises_next = False
        self._next_vote_ms = 0
        self._round: _Round | None = None
        self._taking_until_ms = 0
        self._wish: tuple[int, TransferRequest, int] | None = None
        # leader
        self._beat: _Round | None = None
        self._next_beat_ms = 0
        self._beaten_ms = 0
        self._own_index = -1
        self._own_ms = 0
        self._transfer_until_ms = 0
        self._tell: Callable[[ResponseCode], None] | None = None
        # follower
        self._heard_ms = 0
        self._parked: dict[int, tuple[int, PushRequest, int]] = {}
        #: Comparisons, truncations and commits, which wait until it follows a leader.
        self._changes: list[tuple[int, PushRequest]] = []

    @property
    def hard_state(self) -> HardState:
        """The term and the vote."""
        return HardState(self.term, self._voted_for, joined=True)

    @property
    def _leader(self) -> _Lead | None:
        return self._lead

    @property
    def next_tick(self) -> int:
        """When the threads of this member have something to do."""
        times = [self._now_ms + _HEARTBEAT_MS]
        if self.role is Role.CANDIDATE:
            times.append(self._round.deadline_ms if self._round else self._raise_ms
                         if self._raises_at_once else self._next_vote_ms)
        elif self.role is Role.FOLLOWER:
            times.append(self._heard_ms + _LEAD_MS + 1)
            times += [parked_ms + _PUSH_MS for first, (_, _, parked_ms) in self._parked.items()
                      if first > self.log.end_index + 1]
        else:
            times.append(self._beat.deadline_ms if self._beat else self._next_beat_ms)
            if self._own_index < self.log.end_index:
                times.append(self._own_ms + _PUSH_MS)
            if self._tell is not None:
                times.append(self._transfer_until_ms)
            for pusher in self._pushers.values():
                times.append(self._pusher_ms(pusher))
        if self._wish is not None:
            times.append(self._wish[2])
        return max(min(times), self._now_ms + 1)

    def _pusher_ms(self, pusher: _Pusher) -> int:
        if pusher.resume_ms > self._now_ms:
            return pusher.resume_ms
        if not pusher.is_appending:
            return pusher.call_ms if pusher.call else _NEVER_MS
        if pusher.pending:
            return pusher.pending.get(pusher.match_index + 1, self._now_ms) + _PUSH_MS
        return pusher.committed_ms + _PUSH_MS + 1

    def handle_event(self, event: Event, now_ms: int, draw: float) -> list[Action]:
        """Handle an event as ``Member`` does."""
        self._now_ms, self._draw = now_ms, draw
        match event:
            case Asked(question, request):
                self._answer(question, request)
            case Answered(call, response):
                self._calls.pop(call, lambda _: None)(response)
            case CallFailed(call):
                self._calls.pop(call, lambda _: None)(None)
            case Propose(tag, bodies):
                self._propose(tag, bodies)
            case Transfer(tag, transferee):
                self._give_lead(transferee, lambda code: self._add(TransferEnded(tag, code)))
            case Started():
                self._next_vote_ms = self._now_ms + int(draw * 300)
            case _:
                pass
        self._work()
        actions, self._actions = self._actions, []
        return actions

    # --- Helpers ---

    @property
    def _quorum(self) -> int:
        return self.settings.quorum

    @property
    def _pushers(self) -> dict[str, _Pusher]:
        return self._lead._pushers if self._lead is not None else {}

    @property
    def _end_term(self) -> int:
        return self.log.term_at(self.log.end_index) if self.log.end_index >= 0 else -1

    def _add(self, action: Action) -> None:
        self._actions.append(action)

    def _ask(self, peer: str, request: Request, note: Callable[[Response | None], None]) -> int:
        self._number += 1
        self._calls[self._number] = note
        self._add(Ask(self._number, peer, request))
        return self._number

    def _persist(self) -> None:
        self._number += 1
        self._add(SaveHardState(self._number, self.hard_state))

    def _change(self, role: Role, leader: str) -> None:
        self.role, self.leader = role, leader
        self._lead = self._beat = self._round = None
        self.is_appendable = role is Role.LEADER
        self._end_transfer(ResponseCode.UNKNOWN)
        self._add(RoleChanged(role, self.term, leader))

    def _become_candidate(self, term: int) -> None:
        if term < self.term:
            return
        self._known_term = max(self._known_term, term)
        self._change(Role.CANDIDATE, "")
        self._next_vote_ms = self._vote_ms()

    def _follow(self, term: int, leader: str) -> None:
        if term > self.term:
            self._voted_for = ""
        self.term = term
        self._persist()
        self._change(Role.FOLLOWER, leader)
        self._heard_ms = self._now_ms
        self._parked.clear()
        if self._wish is not None:
            self._end_wish(ResponseCode.EXPIRED_TERM)

    def _raise_soon(self) -> None:
        """Raise the term when the thread that keeps the state looks around."""
        self._raises_at_once = True
        self._raise_ms = self._now_ms + _TURN_MS

    def _vote_ms(self, longer_ms: int = 0) -> int:
        if self._now_ms < self._taking_until_ms:
            return self._now_ms + 30 + int(self._draw * 70)
        return self._now_ms + longer_ms + 300 + int(self._draw * 700)

    def _work(self) -> None:
        """Do what the threads of Apache's member do each few milliseconds."""
        if self._wish is not None:
            self._work_on_wish(*self._wish)
        if self.role is Role.CANDIDATE:
            self._work_as_candidate()
        if self.role is Role.FOLLOWER:
            self._work_as_follower()
        if self.role is Role.LEADER:
            self._work_as_leader()

    # --- Votes ---

    def _work_as_candidate(self) -> None:
        if self._round is not None:
            self._judge_round(self._round)
        elif self._now_ms >= (
                self._raise_ms if self._raises_at_once else self._next_vote_ms):
            if self._raises_next or self._raises_at_once:
                self.term = max(self._known_term, self.term + 1)
                self._known_term = self.term
                self._voted_for = ""
                self._persist()
                self._raises_next = False
            if self._raises_at_once:
                self._raises_at_once = False
                self._next_vote_ms = self._vote_ms()
                return
            self._begin_round()

    def _begin_round(self) -> None:
        self._round = _Round(self.term, self._now_ms + 2000 + int(self._draw * 1000))
        vote_round, end = self._round, self.log.end_index
        for peer in self.settings.peers:
            request = VoteRequest(self.settings.group, self.name, peer, self.term, self.name, end,
                                  self._end_term)
            self._ask(peer, request, lambda response, peer=peer: self._note_vote(
                vote_round, peer, response))
        own = VoteRequest(self.settings.group, self.name, self.name, self.term, self.name, end,
                          self._end_term)
        vote_round.answers[self.name] = self._vote(own)
        if self._round is vote_round:
            self._judge_round(vote_round)

    def _note_vote(self, vote_round: _Round, peer: str, response: Response | None) -> None:
        vote_round.answers[peer] = response

    def _judge_round(self, vote_round: _Round) -> None:
        answers = [answer for answer in vote_round.answers.values()
                   if isinstance(answer, VoteResponse) and answer.result is not VoteResult.UNKNOWN]
        count = {result: sum(answer.result is result for answer in answers)
                 for result in VoteResult}
        accepted, not_ready = count[VoteResult.ACCEPT], count[VoteResult.REJECT_TERM_NOT_READY]
        leads = count[VoteResult.REJECT_ALREADY_HAS_LEADER]
        is_over = (len(vote_round.answers) == len(self.settings.members)
                   or self._now_ms >= vote_round.deadline_ms)
        if not (is_over or leads or accepted + not_ready >= self._quorum):
            return
        self._round = None
        highest = max((answer.term for answer in answers
                       if answer.result is VoteResult.REJECT_EXPIRED_VOTE_TERM), default=-1)
        if highest > self.term:
            self._raises_next = True
            self._become_candidate(highest)
        elif leads:
            self._next_vote_ms = self._vote_ms(_LEAD_MS)
        elif len(answers) < self._quorum:
            self._next_vote_ms = self._vote_ms()
        elif len(answers) - sum(count[result] for result in _BIGGER_LOG) < self._quorum:
            self._next_vote_ms = self._vote_ms(1000)
        elif accepted >= self._quorum:
            self._lead_term()
        elif accepted + not_ready >= self._quorum:
            self._next_vote_ms = self._now_ms + 10
        else:
            self._raises_next = True
            self._next_vote_ms = self._vote_ms()

    def _vote(self, request: VoteRequest) -> VoteResponse:
        result = self._result(request)
        return VoteResponse(ResponseCode.SUCCESS, self.term, request.leader, result)

    def _result(self, request: VoteRequest) -> VoteResult:
        is_own = request.sender == self.name
        if request.leader not in self.settings.members:
            return VoteResult.REJECT_UNKNOWN_LEADER
        if not is_own and request.leader == self.name:
            return VoteResult.REJECT_UNEXPECTED_LEADER
        if request.end_term < self._end_term:
            return VoteResult.REJECT_EXPIRED_LEDGER_TERM
        if request.end_term == self._end_term and request.end_index < self.log.end_index:
            return VoteResult.REJECT_SMALL_LEDGER_END_INDEX
        if request.term < self.term:
            return VoteResult.REJECT_EXPIRED_VOTE_TERM
        if request.term > self.term:
            self._become_candidate(request.term)
            self._raise_soon()
            return VoteResult.REJECT_TERM_NOT_READY
        if self._voted_for not in ("", request.leader):
            return (VoteResult.REJECT_ALREADY_HAS_LEADER if self.leader
                    else VoteResult.REJECT_ALREADY_VOTED)
        if request.term < self._end_term:
            return VoteResult.REJECT_TERM_SMALL_THAN_LEDGER
        self._voted_for = request.leader
        self._persist()
        return VoteResult.ACCEPT

    # --- Requests ---

    def _answer(self, question: int, request: Request) -> None:
        settings = self.settings
        code = ResponseCode.SUCCESS
        if request.receiver != self.name:
            code = ResponseCode.UNKNOWN_MEMBER
        elif request.group != settings.group:
            code = ResponseCode.UNKNOWN_GROUP
        match request:
            case VoteRequest():
                response = (self._vote(request) if code is ResponseCode.SUCCESS
                            else VoteResponse(code, self.term, request.leader))
                self._add(Answer(question, response))
            case HeartbeatRequest():
                if code is ResponseCode.SUCCESS:
                    code = self._note_heartbeat(request)
                term = self.term if code is ResponseCode.EXPIRED_TERM else -1
                self._add(Answer(question, HeartbeatResponse(code, term)))
            case PushRequest():
                if code is ResponseCode.SUCCESS:
                    self._take_push(question, request)
                else:
                    self._end_push(question, request, code)
            case TransferRequest():
                self._take_transfer(question, request, code)

    def _note_heartbeat(self, request: HeartbeatRequest) -> ResponseCode:
        if request.leader not in self.settings.members:
            return ResponseCode.UNKNOWN_MEMBER
        if request.leader == self.name:
            return ResponseCode.UNEXPECTED_MEMBER
        if request.term < self.term:
            return ResponseCode.EXPIRED_TERM
        if request.term > self.term:
            self._become_candidate(request.term)
            self._raise_soon()
            return ResponseCode.TERM_NOT_READY
        if not self.leader:
            self._follow(request.term, request.leader)
        elif self.leader != request.leader:
            return ResponseCode.INCONSISTENT_LEADER
        self._heard_ms = self._now_ms
        return ResponseCode.SUCCESS

    # --- A follower's log ---

    def _take_push(self, question: int, request: PushRequest) -> None:
        if request.leader not in self.settings.members:
            self._end_push(question, request, ResponseCode.UNKNOWN_MEMBER)
        elif request.type is PushType.APPEND:
            first = request.entries[0].index
            if first in self._parked:
                self._end_push(question, request, ResponseCode.REPEATED_PUSH)
            else:
                self._parked[first] = question, request, self._now_ms
        else:
            if request.type is not PushType.COMMIT:
                self._parked.clear()
            self._changes.append((question, request))

    def _change_log(self, question: int, request: PushRequest) -> None:
        code = ResponseCode.SUCCESS
        if request.type is PushType.COMPARE:
            if not self.log.has_entry(request.entries[0]):
                code = ResponseCode.INCONSISTENT_STATE
        elif request.type is PushType.TRUNCATE:
            if request.term == self.term and request.leader == self.leader:
                self._truncate(request.entries[0])
            else:
                code = ResponseCode.INCONSISTENT_STATE
        if code is ResponseCode.SUCCESS and request.type is not PushType.COMPARE:
            self._take_committed(request)
        self._end_push(question, request, code)

    def _truncate(self, entry: Entry) -> None:
        log = self.log
        if log.has_entry(entry):
            log.truncate(entry.index)
        elif (log.end_index >= 0 and log.begin_index < entry.index <= log.end_index + 1
              and log.entry_at(entry.index - 1).position < entry.position):
            log.truncate(entry.index - 1)
            try:
                log.append([entry])
            except LogRejected:
                log.restart(entry)
        else:
            log.restart(entry)

    def _take_committed(self, request: PushRequest) -> None:
        if request.term >= self.term:
            self._commit(min(request.commit_index, self.log.end_index))

    def _commit(self, index: int) -> None:
        if index > self.committed_index and index >= self.log.begin_index:
            self.committed_index = index
            self._add(Committed(index))

    def _work_as_follower(self) -> None:
        if self._now_ms - self._heard_ms > _LEAD_MS:
            self._become_candidate(self.term)
            return
        while self._changes:
            self._change_log(*self._changes.pop(0))
        while (parked := self._parked.pop(self.log.end_index + 1, None)) is not None:
            question, request, _ = parked
            code = ResponseCode.INCONSISTENT_STATE
            if (request.term == self.term and request.leader == self.leader
                    and request.entries[0].term >= self._end_term):
                try:
                    self.log.append(request.entries)
                    code = ResponseCode.SUCCESS
                    self._take_committed(request)
                except LogRejected:
                    pass
            self._end_push(question, request, code)
            if code is not ResponseCode.SUCCESS:
                break
        for first, (question, request, parked_ms) in list(self._parked.items()):
            if first > self.log.end_index + 1 and self._now_ms >= parked_ms + _PUSH_MS:
                del self._parked[first]
                self._end_push(question, request, ResponseCode.INCONSISTENT_STATE)

    def _end_push(self, question: int, request: PushRequest, code: ResponseCode) -> None:
        entries = request.entries
        self._add(Answer(question, PushResponse(
            code, request.term, "", entries[0].index if entries else -1, len(entries),
            self.log.begin_index, self.log.end_index)))

    # --- A leader ---

    def _lead_term(self) -> None:
        self._taking_until_ms = 0
        self._change(Role.LEADER, self.name)
        self._lead = _Lead({peer: _Pusher(peer, self.term, resume_ms=self._now_ms,
                                          committed_ms=self._now_ms)
                            for peer in self.settings.peers})
        self._next_beat_ms = self._now_ms
        self._beaten_ms = self._now_ms
        self._own_index = -1
        self._own_ms = self._now_ms
        if self._wish is not None:
            self._end_wish(ResponseCode.SUCCESS)

    def _work_as_leader(self) -> None:
        if self._beat is not None:
            self._judge_beat(self._beat)
        elif self._now_ms >= self._next_beat_ms:
            self._send_beat()
        if self._lead is None:
            return
        if self._now_ms >= self._own_ms + _PUSH_MS:
            self._own_index, self._own_ms = self.log.end_index, self._now_ms
        for pusher in self._pushers.values():
            self._push(pusher)
        matches = [self._own_index, *(pusher.match_index for pusher in self._pushers.values())]
        self._commit(sorted(matches, reverse=True)[self._quorum - 1])
        if self._tell is not None and self._now_ms >= self._transfer_until_ms:
            self._end_transfer(ResponseCode.TIMEOUT)
        self.is_appendable = self._tell is None

    def _send_beat(self) -> None:
        self._next_beat_ms = self._now_ms + _HEARTBEAT_MS
        self._beat = beat = _Round(self.term, self._now_ms + _HEARTBEAT_MS)
        beat.answers[self.name] = HeartbeatResponse()
        for peer in self.settings.peers:
            request = HeartbeatRequest(self.settings.group, self.name, peer, self.term, self.name)
            self._ask(peer, request, lambda response, peer=peer: beat.answers.__setitem__(
                peer, response))

    def _judge_beat(self, beat: _Round) -> None:
        codes = [answer.code for answer in beat.answers.values() if answer is not None]
        good = codes.count(ResponseCode.SUCCESS)
        not_ready = codes.count(ResponseCode.TERM_NOT_READY)
        is_over = (len(beat.answers) == len(self.settings.members)
                   or self._now_ms >= beat.deadline_ms)
        if not (is_over or good + not_ready >= self._quorum):
            return
        self._beat = None
        highest = max((answer.term for answer in beat.answers.values() if answer is not None),
                      default=-1)
        if good >= self._quorum:
            self._beaten_ms = self._now_ms
        elif good + not_ready >= self._quorum:
            self._next_beat_ms = self._now_ms + 10
        elif highest > self.term:
            self._become_candidate(highest)
        elif (ResponseCode.INCONSISTENT_LEADER in codes
              or self._now_ms - self._beaten_ms > _LEAD_MS):
            self._become_candidate(self.term)

    def _propose(self, tag: int, bodies: tuple[bytes, ...]) -> None:
        if self.role is not Role.LEADER:
            self._add(Refused(tag, ResponseCode.NOT_LEADER))
        elif not self.is_appendable:
            self._add(Refused(tag, ResponseCode.LEADER_TRANSFERRING))
        else:
            first = self.log.end_index + 1
            self.log.extend(self.term, bodies)
            self._own_index = self.log.end_index
            self._add(Proposed(tag, self.term, first, self.log.end_index))

    # --- Pushes ---

    def _push(self, pusher: _Pusher) -> None:
        log = self.log
        if self._now_ms < pusher.resume_ms or log.end_index < 0:
            return
        if not pusher.is_appending:
            if pusher.call and self._now_ms >= pusher.call_ms:
                self._compare_again(pusher)
            elif not pusher.call:
                self._probe(pusher)
            return
        if pusher.next_index <= log.end_index and len(pusher.pending) < _WINDOW:
            while pusher.next_index <= log.end_index and len(pusher.pending) < _WINDOW:
                if pusher.next_index < log.begin_index:
                    self._compare_again(pusher)
                    return
                self._append(pusher, pusher.next_index)
                pusher.next_index += 1
        elif pusher.pending:
            first = pusher.match_index + 1
            for index in [index for index in pusher.pending if index < first]:
                del pusher.pending[index]
            if self._now_ms >= pusher.pending.get(first, self._now_ms) + _PUSH_MS:
                if first < log.begin_index:
                    self._compare_again(pusher)
                else:
                    self._append(pusher, first)
        elif self._now_ms > pusher.committed_ms + _PUSH_MS:
            pusher.committed_ms = self._now_ms
            self._send_push(pusher, PushType.COMMIT, (), lambda response: None)

    def _send_push(self, pusher: _Pusher, kind: PushType, entries: tuple[Entry, ...],
                   note: Callable[[PushResponse | None], None]) -> int:
        request = PushRequest(self.settings.group, self.name, pusher.peer, self.term, self.name,
                              kind, self.committed_index, entries)

        def take(response: Response | None) -> None:
            if self._pushers.get(pusher.peer) is pusher:
                note(response if isinstance(response, PushResponse) else None)
        return self._ask(pusher.peer, request, take)

    def _compare_again(self, pusher: _Pusher, pause_ms: int = _PAUSE_MS) -> None:
        if pusher.is_appending or pusher.is_truncating:
            # A comparison that failed is made again at the same index.
            pusher.probe_index = -1
        pusher.is_appending = pusher.is_truncating = False
        pusher.call = 0
        pusher.pending.clear()
        pusher.resume_ms = self._now_ms + pause_ms

    def _probe(self, pusher: _Pusher) -> None:
        log = self.log
        if not log.begin_index <= pusher.probe_index <= log.end_index:
            pusher.probe_index, pusher.is_truncating = log.end_index, False
        kind = PushType.TRUNCATE if pusher.is_truncating else PushType.COMPARE
        index = pusher.probe_index

        def note(response: PushResponse | None) -> None:
            if pusher.call == number:
                pusher.call = 0
                self._note_probed(pusher, index, response)
        number = pusher.call = self._send_push(pusher, kind, (log.entry_at(index),), note)
        pusher.call_ms = self._now_ms + _CALL_MS

    def _note_probed(self, pusher: _Pusher, index: int, response: PushResponse | None) -> None:
        log = self.log
        if response is None or response.code not in (
                ResponseCode.SUCCESS, ResponseCode.INCONSISTENT_STATE):
            self._compare_again(pusher)
        elif pusher.is_truncating:
            if response.code is ResponseCode.SUCCESS:
                self._append_from(pusher, index)
            else:
                self._compare_again(pusher)
        elif response.code is ResponseCode.SUCCESS:
            if response.end_index == index:
                self._append_from(pusher, index)
            else:
                pusher.is_truncating = True
        elif (response.end_index < log.begin_index or response.begin_index > log.end_index
              or index < response.begin_index):
            pusher.probe_index, pusher.is_truncating = log.begin_index, True
        elif index > response.end_index:
            pusher.probe_index = response.end_index
        elif index - 1 < log.begin_index:
            pusher.probe_index, pusher.is_truncating = log.begin_index, True
        else:
            pusher.probe_index = index - 1

    def _append_from(self, pusher: _Pusher, index: int) -> None:
        pusher.is_appending, pusher.is_truncating = True, False
        pusher.match_index = max(pusher.match_index, index)
        pusher.next_index = index + 1
        pusher.pending.clear()

    def _append(self, pusher: _Pusher, index: int) -> None:
        pusher.pending[index] = self._now_ms

        def note(response: PushResponse | None) -> None:
            if response is None or not pusher.is_appending:
                return
            if response.code is ResponseCode.SUCCESS:
                pusher.pending.pop(index, None)
                pusher.match_index = max(
                    pusher.match_index, response.index + max(response.count, 1) - 1)
            elif response.code is ResponseCode.INCONSISTENT_STATE:
                self._compare_again(pusher, 0)
        self._send_push(pusher, PushType.APPEND, (self.log.entry_at(index),), note)

    # --- Transfers ---

    def _give_lead(self, transferee: str, tell: Callable[[ResponseCode], None]) -> None:
        if self.role is not Role.LEADER or self._tell is not None:
            tell(ResponseCode.NOT_LEADER)
            return
        if transferee not in self.settings.peers:
            tell(ResponseCode.UNEXPECTED_ARGUMENT)
            return
        self._transfer_until_ms, self._tell = self._now_ms + _CALL_MS, tell
        self.is_appendable = False
        request = TransferRequest(self.settings.group, self.name, transferee, self.term, self.name,
                                  self.name, transferee, self.log.end_index)

        def note(response: Response | None) -> None:
            if self._tell is tell:
                self._end_transfer(
                    ResponseCode.NETWORK_ERROR if response is None else response.code)
        self._ask(transferee, request, note)

    def _end_transfer(self, code: ResponseCode) -> None:
        tell, self._tell = self._tell, None
        if tell is not None:
            tell(code)

    def _take_transfer(self, question: int, request: TransferRequest, code: ResponseCode) -> None:
        if code is ResponseCode.SUCCESS:
            if request.transferee != self.name:
                code = ResponseCode.UNEXPECTED_ARGUMENT
            elif request.term != self.term:
                code = ResponseCode.INCONSISTENT_TERM
            elif self.role is not Role.FOLLOWER:
                code = ResponseCode.NOT_FOLLOWER
            elif self.leader != request.leader:
                code = ResponseCode.INCONSISTENT_LEADER
            elif self._wish is not None:
                code = ResponseCode.TAKE_LEADERSHIP_FAILED
        if code is ResponseCode.SUCCESS:
            self._wish = question, request, self._now_ms + 1000
        else:
            self._add(Answer(question, TransferResponse(code, self.term)))

    def _work_on_wish(self, question: int, request: TransferRequest, until_ms: int) -> None:
        if self.role is Role.FOLLOWER and self.log.end_index >= request.take_index:
            self._taking_until_ms = self._now_ms + 1000
            self._known_term = max(self._known_term, self.term + 1)
            self._become_candidate(self.term + 1)
            self._raise_soon()
            self._wish = question, request, self._now_ms + _CALL_MS
        elif self._now_ms >= until_ms:
            self._end_wish(ResponseCode.TAKE_LEADERSHIP_FAILED)

    def _end_wish(self, code: ResponseCode) -> None:
        assert self._wish is not None
        question, self._wish = self._wish[0], None
        self._add(Answer(question, TransferResponse(code, self.term)))
