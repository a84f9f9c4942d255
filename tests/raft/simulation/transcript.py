"""Replays the recorded exchanges of Apache's members against the double of such a member.

A transcript has all exchanges of three members (``tests/interop/capture_transcripts.py``). For one
of the members, the double gets the requests that this member got, at the same times, and its
answers are compared with the recorded ones. What the member did of its own accord is not random in
a replay: the double raises its term, asks for votes and leads when the member did so, and gets the
answers that the member got. As a leader it has to compare, cut and append to each follower's log as
the member did. Heartbeats and commits, which depend on the time only, are those of the transcript.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.raft.simulation.disk import Disk, DiskLog
from tests.raft.simulation.java_member import JavaMember
from twistmq.plugins.dledger.translation import read_request, read_response
from twistmq.protocol.codes import DLedgerRequestCode
from twistmq.raft.actions import Action, Answer, Ask, Role, RoleChanged
from twistmq.raft.events import Answered, Asked, CallFailed, Event, Tick
from twistmq.raft.hard_state import HardState
from twistmq.raft.messages import (
    PushRequest,
    PushType,
    Request,
    Response,
    VoteRequest,
)
from twistmq.raft.settings import MemberSettings

__all__ = ["MEMBERS", "Difference", "Replay", "Row", "read_transcript", "replay"]

GROUP: Final = "G0"
MEMBERS: Final = ("n0", "n1", "n2")
_NEVER_MS: Final = 1 << 60
#: The thread of the member that counts the votes may see two answers at once.
_THREAD_MS: Final = 3
#: A request of the double that the member did not send in this time is one that it could not send.
_UNSENT_MS: Final = 200

Row = dict[str, Any]


def read_transcript(path: Path) -> list[Row]:
    """Return the rows of a transcript, in the order of time."""
    return [json.loads(line) for line in lzma.decompress(path.read_bytes()).splitlines()]


@dataclass(frozen=True, slots=True)
class Difference:
    """A request that the double answers otherwise than the member did; None: without an answer."""

    ms: float
    member: str
    request: Request
    recorded: Response
    answered: Response | None


class _GuidedMember(JavaMember):
    """A double that does nothing of its own accord but ask for votes when it is told to."""

    #: When a round of votes is judged, at the earliest.
    judge_ms = 0

    @property
    def next_tick(self) -> int:
        """See JavaMember."""
        tick = super().next_tick
        return tick if self._round is None else min(tick, max(self.judge_ms, self._now_ms + 1))

    def _judge_round(self, vote_round: Any) -> None:
        if self._now_ms >= self.judge_ms:
            super()._judge_round(vote_round)

    def _vote_ms(self, longer_ms: int = 0) -> int:
        return _NEVER_MS

    def ask_for_votes(self) -> None:
        """Begin a round with the next event."""
        if self.role is not Role.CANDIDATE:
            self._become_candidate(self.term)
        self._next_vote_ms = 0

    def _send_beat(self) -> None:
        self._next_beat_ms = _NEVER_MS


def _is_compared(request: Request) -> bool:
    return isinstance(request, PushRequest) and request.type is not PushType.COMMIT


def _sketch(request: Request) -> tuple[PushType, int, int]:
    """Return the type, the term and the first index of a push."""
    assert isinstance(request, PushRequest)
    return request.type, request.term, request.entries[0].index


def _pushes_of(rows: list[Row], member: str) -> Iterator[PushRequest]:
    """Yield the pushes of a member."""
    for row in rows:
        if row.get("from") == member and row["code"] == DLedgerRequestCode.PUSH:
            request = _request_of(row)
            assert isinstance(request, PushRequest)
            yield request


def _request_of(row: Row) -> Request:
    return read_request(row["code"], json.dumps(row["request"]).encode())


@dataclass(slots=True)
class _Pushes:
    """A leader's pushes to one follower, without commits.

    ``asked`` and ``sent`` are those of the double and of the member that have no counterpart yet;
    the list beside the latter has the answer, once there is one.
    """

    asked: list[tuple[int, Ask]] = field(default_factory=list)
    sent: list[tuple[PushRequest, list[Response]]] = field(default_factory=list)
    #: By the list for the answer, the call of the double that waits for it.
    calls: dict[int, int] = field(default_factory=dict)
    count: int = 0
    differences: list[tuple[Any, Any]] = field(default_factory=list)


class Replay:
    """The double of one member, over all its lives."""

    def __init__(self, rows: list[Row], member: str) -> None:
        self.name = member
        #: The entries that the member pushed, by the term of its lead and their index.
        self._entries = {
            (request.term, entry.index): entry for request in _pushes_of(rows, member)
            for entry in request.entries}
        self._disk = Disk()
        self._now_ms = 0
        self._member: _GuidedMember | None = None
        self._state: HardState | None = None
        self._questions = 0
        #: The answers by the number of the question.
        self.answers: dict[int, Response] = {}
        #: The requests for votes that the member did not send yet, and when the double did.
        self._asked: list[tuple[int, Ask]] = []
        #: Requests for votes that the member sent and the double did not.
        self.unasked: list[VoteRequest] = []
        #: The pushes to each peer.
        self.pushes = {peer: _Pushes() for peer in MEMBERS}
        self.start()

    def start(self) -> None:
        """Begin a life."""
        log = DiskLog(self._disk, lambda entry, previous: None, lambda index: None)
        self._member = _GuidedMember(
            MemberSettings(GROUP, self.name, MEMBERS), log, self._state, -1)
        self._member._next_vote_ms = _NEVER_MS
        self._tell(Tick())

    def end(self) -> None:
        """End a life."""
        assert self._member is not None
        self._state = self._member.hard_state
        self._member = None
        self._asked.clear()
        for pushes in self.pushes.values():
            pushes.asked.clear()

    def note_life(self, member: str, *, runs: bool) -> None:
        """Note that a member starts or ends."""
        if member == self.name:
            if runs:
                self.start()
            else:
                self.end()

    def pass_time(self, now_ms: float) -> None:
        """Let the threads of the member work until a time."""
        while self._member is not None and self._member.next_tick < now_ms:
            self._now_ms = max(self._now_ms, self._member.next_tick)
            self._tell(Tick())
        self._now_ms = max(self._now_ms, int(now_ms))
        # A request to a member that does not run is not in the transcript: it fails at once.
        for waiting in (self._asked, *(pushes.asked for pushes in self.pushes.values())):
            for asked_ms, ask in [*waiting]:
                if self._now_ms > asked_ms + _UNSENT_MS and (asked_ms, ask) in waiting:
                    waiting.remove((asked_ms, ask))
                    self._tell(CallFailed(ask.call))

    def _tell(self, event: Event) -> list[Action]:
        if self._member is None:
            return []
        actions = self._member.handle_event(event, self._now_ms, 0.5)
        for action in actions:
            if isinstance(action, Answer):
                self.answers[action.question] = action.response
            elif isinstance(action, RoleChanged):
                for pushes in self.pushes.values():
                    pushes.asked.clear()
            elif isinstance(action, Ask) and isinstance(action.request, VoteRequest):
                self._asked.append((self._now_ms, action))
            elif isinstance(action, Ask) and _is_compared(action.request):
                self.pushes[action.peer].asked.append((self._now_ms, action))
                self._pair(action.peer)
        return actions

    def _pair(self, peer: str) -> None:
        """Pair the pushes of the double with those of the member, in order."""
        pushes = self.pushes[peer]
        while pushes.asked and pushes.sent:
            (_, ask), (request, answer) = pushes.asked.pop(0), pushes.sent.pop(0)
            pushes.count += 1
            if _sketch(ask.request) != _sketch(request):
                pushes.differences.append((_sketch(ask.request), _sketch(request)))
            elif answer:
                self._tell(Answered(ask.call, answer[0]))
            else:
                pushes.calls[id(answer)] = ask.call

    def ask(self, request: Request) -> int:
        """Pass a request to the double; :returns: the number of the question."""
        self._questions += 1
        self._tell(Asked(self._questions, request))
        return self._questions

    def note_sent(self, request: Request, answer: list[Response]) -> Ask | None:
        """Note a request that the member sent.

        :param answer: gets the answer later, if there is one.
        :returns: the same request for a vote of the double, if any.
        """
        member = self._member
        assert member is not None, f"{self.name} sends {request} after its end"
        if isinstance(request, PushRequest):
            if request.entries:
                self._extend_to(member.log, request)
            if _is_compared(request):
                self.pushes[request.receiver].sent.append((request, answer))
                self._pair(request.receiver)
            self._tell(Tick())
            return None
        if not isinstance(request, VoteRequest):
            return None
        if not self._find_asked(request):
            member.ask_for_votes()
            self._tell(Tick())
        asked = self._find_asked(request)
        if asked is None:
            self.unasked.append(request)
        else:
            self._asked = [each for each in self._asked if each[1] is not asked]
        return asked

    def _extend_to(self, log: DiskLog, request: PushRequest) -> None:
        """Append what the member had in its log when it sent a push, as later pushes tell."""
        for index in range(log.end_index + 1, request.entries[-1].index + 1):
            log.append([self._entries[request.term, index]])

    def _find_asked(self, request: VoteRequest) -> Ask | None:
        return next((ask for _, ask in self._asked if _same_vote(ask.request, request)), None)

    def note_pushed(self, peer: str, answer: list[Response]) -> None:
        """Pass the answer to a push, once the double has asked for it."""
        call = self.pushes[peer].calls.pop(id(answer), None)
        if call is not None:
            self._tell(Answered(call, answer[0]))

    def note_answered(self, asked: Ask, response: Response) -> None:
        """Pass an answer that the member got."""
        if self._member is not None:
            self._member.judge_ms = self._now_ms + _THREAD_MS
        self._tell(Answered(asked.call, response))


def _same_vote(request: Request, recorded: VoteRequest) -> bool:
    assert isinstance(request, VoteRequest)
    return (request.receiver, request.term, request.end_index, request.end_term) == (
        recorded.receiver, recorded.term, recorded.end_index, recorded.end_term)


def _steps(rows: list[Row], member: str) -> Iterator[tuple[float, str, Row]]:
    """Yield what concerns a member, in the order of time."""
    found: list[tuple[float, str, Row]] = []
    for row in rows:
        if "member" in row:
            found.append((row["ms"], "life", row))
        elif row["to"] == member:
            # A vote or a heartbeat is handled just before its answer. Others may wait.
            is_quick = row["code"] in (DLedgerRequestCode.VOTE, DLedgerRequestCode.HEART_BEAT)
            found.append((row.get("answered_ms", row["ms"]) if is_quick else row["ms"],
                          "asked", row))
        elif row["from"] == member:
            found.append((row["ms"], "sent", row))
            if "answer" in row:
                found.append((row["answered_ms"], "answered", row))
    yield from sorted(found, key=lambda each: each[0])


def replay(rows: list[Row], member: str) -> tuple[Replay, list[Difference], int]:
    """Replay a transcript for one member.

    :returns: the double, the differences, and how many answers were compared.
    """
    double = Replay(rows, member)
    questions: list[tuple[int, float, Request, Response]] = []
    sent: dict[int, Ask] = {}
    pushed: dict[int, list[Response]] = {}
    for ms, kind, row in _steps(rows, member):
        double.pass_time(ms)
        if kind == "life":
            double.note_life(row["member"], runs=row["runs"])
        else:
            request = _request_of(row)
            if kind == "asked":
                question = double.ask(request)
                if "answer" in row:
                    questions.append((question, ms, request, read_response(
                        request, json.dumps(row["answer"]).encode())))
            elif kind == "sent":
                pushed[id(row)] = []
                asked = double.note_sent(request, pushed[id(row)])
                if asked is not None:
                    sent[id(row)] = asked
            else:
                response = read_response(request, json.dumps(row["answer"]).encode())
                pushed[id(row)].append(response)
                if id(row) in sent:
                    double.note_answered(sent[id(row)], response)
                elif _is_compared(request):
                    double.note_pushed(row["to"], pushed[id(row)])
    last_ms = max(row.get("answered_ms", row["ms"]) for row in rows)
    double.pass_time(last_ms + 1)
    differences = [Difference(ms, member, request, recorded, double.answers.get(question))
                   for question, ms, request, recorded in questions
                   if recorded != double.answers.get(question)]
    return double, differences, len(questions)
