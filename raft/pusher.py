"""A leader's pushes to one follower, which compare the logs, cut the follower's, and append.

The pushes are DLedger's. COMPARE sends an entry and asks whether the follower has the same one.
Where Apache's leader goes one entry back with each answer, this one halves the range, so a long
tail that differs costs few round trips. TRUNCATE makes the entry the follower's last. APPEND sends
entries, several pushes at a time. After every failure the leader begins with a comparison again.
"""

import enum
from dataclasses import dataclass

from twistmq.raft.calls import Call, Calls
from twistmq.raft.member_state import MemberState
from twistmq.raft.messages import Entry, PushRequest, PushResponse, PushType, Response, ResponseCode

__all__ = ["Pusher"]


class _Phase(enum.Enum):
    COMPARE = "compare"
    TRUNCATE = "truncate"
    APPEND = "append"


@dataclass(frozen=True, slots=True)
class _Push:
    """The contents of a push under way. ``size`` counts the bytes of the bodies."""

    type: PushType
    first: int
    last: int
    size: int


class Pusher:
    """The progress of one follower in one reign of this leader.

    ``match_index`` is the last entry that the follower certainly has; -1: not known.
    """

    def __init__(self, state: MemberState, peer: str) -> None:
        """Begin with a comparison at the end of the leader's log."""
        self._state = state
        self.peer = peer
        self.match_index = -1
        self._calls: Calls[_Push] = Calls()
        #: The bytes of the pushes in flight, and their present limit.
        self._window_bytes = self._window_max = 0
        self._resume_ms = state.now_ms
        self._last_push_ms = state.now_ms
        #: The failed pushes since the last one that succeeded at the end of the follower's log.
        self._failures = 0
        self._repeated = 0
        #: How often the follower has refused the entry that follows its last one.
        self._refused = 0
        self._start_compare()

    @property
    def next_deadline(self) -> int:
        """When ``run`` has something to do, at the earliest."""
        if self._resume_ms > self._state.now_ms:
            return self._resume_ms
        # A follower without a push in flight is idle. It gets the committed index periodically.
        return (self._calls.next_deadline
                or self._last_push_ms + self._state.settings.commit_interval_ms)

    @property
    def _is_idle(self) -> bool:
        return (self._phase is _Phase.APPEND and not self._calls
                and self._next_index > self._state.log.end_index)

    def run(self) -> None:
        """Send the pushes that may be sent now, and give up those that have expired."""
        state = self._state
        if self._calls.take_expired(state.now_ms):
            self._fail()
        if state.now_ms < self._resume_ms:
            return
        if self._phase is not _Phase.APPEND:
            if not self._calls:
                self._push_one()
            return
        if not self._calls and self._next_index != self.match_index + 1:
            # The follower did not acknowledge all of these entries, so it may lack some of them.
            self._start_compare()
            self._push_one()
        elif self._next_index < state.log.begin_index:
            self._start_compare()
            self._push_one()
        else:
            self._push_entries()

    def note_answer(self, number: int, response: Response | None) -> int | None:
        """Note the answer to a call; None: the call failed.

        Return when the call was sent if the peer has answered as a follower, and None otherwise.
        """
        call = self._calls.take_call(number)
        if call is None:
            return None
        push = call.purpose
        self._window_bytes -= push.size
        if not isinstance(response, PushResponse) or response.term != self._state.term:
            self._fail()
            return None
        if push.type is PushType.COMPARE:
            self._note_compared(push, response)
        elif push.type is PushType.TRUNCATE:
            self._note_truncated(push, response)
        elif push.type is PushType.APPEND:
            self._note_appended(push, response)
        elif response.code is ResponseCode.INCONSISTENT_STATE:
            self._start_compare()
        elif response.code is ResponseCode.SUCCESS:
            self._failures = 0
        return call.sent_ms if response.code is ResponseCode.SUCCESS else None

    def __contains__(self, number: int) -> bool:
        """Return whether a call in flight was sent to this follower."""
        return number in self._calls

    # --- Comparing ---

    def _start_compare(self, pause_ms: int = 0) -> None:
        """Compare the logs again. Answers to earlier pushes are ignored."""
        self._calls.forget_all()
        self._window_bytes = 0
        self._phase = _Phase.COMPARE
        self._resume_ms = self._state.now_ms + pause_ms
        end_index = self._state.log.end_index
        #: The index of the next comparison or of the truncation.
        self._probe_index = end_index
        #: The last entry that is known to be the same, and the first that is known to differ.
        self._same: int | None = None
        self._differs = end_index + 1
        self._next_index = end_index + 1

    def _note_compared(self, push: _Push, response: PushResponse) -> None:
        index = push.first
        if response.code not in (ResponseCode.SUCCESS, ResponseCode.INCONSISTENT_STATE):
            self._fail()
            return
        if response.end_index < self.match_index:
            # The follower has lost entries that it had acknowledged; they no longer count.
            self.match_index = -1
        if response.code is ResponseCode.SUCCESS:
            self._same = index
            if index > self.match_index:
                # The follower has more entries than before, whatever it answered to the pushes.
                self._failures = 0
                self.match_index = index
            if index + 1 < self._differs:
                self._probe_index = (index + self._differs) // 2
            elif response.end_index > index or self._refused > 1:
                # The end of the follower's last file may have been closed in a crash, so that its
                # next entry would begin a file. A cut after its last entry opens it again.
                self._truncate_at(index)
            else:
                self._append_from(index + 1)
            return
        if index <= self.match_index:
            self.match_index = -1
        self._step_back(index, response)

    def _step_back(self, index: int, response: PushResponse) -> None:
        """Choose an earlier index: the follower does not have the entry at ``index``."""
        log = self._state.log
        begin_index, end_index = response.begin_index, response.end_index
        self._differs = min(self._differs, index)
        if end_index < log.begin_index or begin_index > log.end_index:
            self._truncate_at(log.begin_index)
            return
        self._differs = min(self._differs, end_index + 1)
        same = max(log.begin_index, begin_index) - 1 if self._same is None else self._same
        if index > end_index and end_index > same:
            self._probe_index = end_index
        elif self._differs - same > 1:
            self._probe_index = (same + self._differs) // 2
        elif self._same is not None:
            self._truncate_at(self._same)
        else:
            self._truncate_at(log.begin_index)

    def _truncate_at(self, index: int) -> None:
        self._phase = _Phase.TRUNCATE
        self._probe_index = index

    def _note_truncated(self, push: _Push, response: PushResponse) -> None:
        if response.code is ResponseCode.SUCCESS:
            self.match_index = push.first
            self._append_from(push.first + 1)
        else:
            self._fail()

    # --- Appending ---

    def _append_from(self, index: int) -> None:
        self._phase = _Phase.APPEND
        self._next_index = index
        settings = self._state.settings
        self._window_max = min(settings.push_window_begin_bytes, settings.push_window_bytes)

    def _note_appended(self, push: _Push, response: PushResponse) -> None:
        if response.code is ResponseCode.SUCCESS:
            # Apache's older members answer with the last index and a count of 0.
            last = response.index + max(response.count, 1) - 1
            if push.first <= last <= push.last:
                self.match_index = max(self.match_index, last)
                self._failures = self._repeated = self._refused = 0
                # Several acknowledgements may arrive in one turn, and each allows another push.
                self._window_max = min(self._window_max + max(1, push.size // 4),
                                       self._state.settings.push_window_bytes)
            else:
                self._fail()
        elif response.code is ResponseCode.REPEATED_PUSH:
            # Apache's follower answers so while it holds the same push. It also answers so for ever
            # if its acknowledgement of that push was lost.
            self._repeated += 1
            if self._repeated > 1:
                self._fail()
        else:
            if (response.code is ResponseCode.INCONSISTENT_STATE
                    and push.first == self.match_index + 1):
                self._refused += 1
            self._fail()

    def _fail(self) -> None:
        """Compare again: the first time at once, then after a pause."""
        self._failures += 1
        self._repeated = 0
        self._start_compare(self._state.settings.push_pause_ms if self._failures > 1 else 0)

    # --- Sending ---

    def _push_one(self) -> None:
        """Send the comparison or the truncation of the current index."""
        log = self._state.log
        if self._probe_index < log.begin_index:
            # Retention has dropped the entry, so the follower must begin where this log begins.
            self._truncate_at(log.begin_index)
        kind = PushType.COMPARE if self._phase is _Phase.COMPARE else PushType.TRUNCATE
        self._push(kind, log.read(self._probe_index, 0)[:1], self._state.settings.call_timeout_ms)

    def _push_entries(self) -> None:
        state, settings = self._state, self._state.settings
        while (self._next_index <= state.log.end_index
               and len(self._calls) < settings.push_window_count
               and self._window_bytes < self._window_max):
            entries = state.log.read(self._next_index, settings.push_bytes_max)
            self._next_index = entries[-1].index + 1
            self._push(PushType.APPEND, entries, settings.push_timeout_ms)
        if (self._is_idle
                and state.now_ms >= self._last_push_ms + settings.commit_interval_ms):
            self._push(PushType.COMMIT, (), settings.call_timeout_ms)

    def _push(self, kind: PushType, entries: tuple[Entry, ...], timeout_ms: int) -> None:
        state, settings = self._state, self._state.settings
        size = sum(len(entry.body) for entry in entries)
        push = (_Push(kind, entries[0].index, entries[-1].index, size) if entries
                else _Push(kind, -1, -1, 0))
        request = PushRequest(settings.group, settings.member_id, self.peer, state.term,
                              settings.member_id, kind, state.committed_index, entries)
        number = state.ask_peer(self.peer, request, bulk=True)
        self._calls.add_call(number, Call(self.peer, state.now_ms, state.now_ms + timeout_ms, push))
        self._window_bytes += size
        self._last_push_ms = state.now_ms
