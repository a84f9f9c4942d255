"""The leader's part in a transfer of the lead, to a preferred leader or for an operator."""

from collections.abc import Callable

from twistmq.raft.calls import Call, Calls
from twistmq.raft.leader import Leader
from twistmq.raft.member_state import MemberState
from twistmq.raft.messages import Response, ResponseCode, TransferRequest

__all__ = ["LeadTransfer", "choose_preferred", "choose_successor"]


class LeadTransfer:
    """Transfers the lead, one transfer at a time. The leader refuses new entries until it ends."""

    def __init__(self, state: MemberState) -> None:
        """Begin without a transfer."""
        self._state = state
        self._calls: Calls[Callable[[ResponseCode], None]] = Calls()
        self._leader: Leader | None = None

    @property
    def next_deadline(self) -> int | None:
        """When ``advance`` has something to do; None: not before the next event."""
        return self._calls.next_deadline

    def start(self, leader: Leader | None, transferee: str,
              tell: Callable[[ResponseCode], None]) -> None:
        """Ask a member to take the lead. ``tell`` is called once, with the result."""
        code = self._find_refusal(leader, transferee)
        if leader is None or code is not None:
            tell(code or ResponseCode.NOT_LEADER)
            return
        state, settings = self._state, self._state.settings
        request = TransferRequest(settings.group, settings.member_id, transferee, state.term,
                                  settings.member_id, settings.member_id, transferee,
                                  state.log.end_index)
        self._calls.add_call(state.ask_peer(transferee, request), Call(
            transferee, state.now_ms, state.now_ms + settings.call_timeout_ms, tell))
        self._leader = leader
        leader.is_transferring = True

    def advance(self) -> None:
        """Give up a transfer whose time is over."""
        for call in self._calls.take_expired(self._state.now_ms):
            self._end(call, ResponseCode.TIMEOUT)

    def note_answer(self, number: int, response: Response | None) -> bool:
        """Note the answer to a call (None: it failed) and return whether the call is known."""
        call = self._calls.take_call(number)
        if call is None:
            return False
        if response is not None and response.term > self._state.term:
            self._state.step_down(response.term)
        self._end(call, ResponseCode.NETWORK_ERROR if response is None else response.code)
        return True

    def _end(self, call: Call[Callable[[ResponseCode], None]], code: ResponseCode) -> None:
        if self._leader is not None:
            self._leader.is_transferring = False
            self._leader = None
        call.purpose(code)

    def _find_refusal(self, leader: Leader | None, transferee: str) -> ResponseCode | None:
        state, settings = self._state, self._state.settings
        if transferee not in settings.peers:
            return ResponseCode.UNEXPECTED_ARGUMENT
        if leader is None:
            return ResponseCode.NOT_LEADER
        if len(self._calls):
            return ResponseCode.LEADER_TRANSFERRING
        if not leader.is_established:
            return ResponseCode.LEADER_NOT_READY
        if not _is_able(state, leader, transferee):
            return ResponseCode.FALL_BEHIND_TOO_MUCH
        return None


def choose_preferred(state: MemberState, leader: Leader) -> str | None:
    """Return the preferred leader to which this one should give the lead; None: stay."""
    settings = state.settings
    if settings.member_id in settings.preferred_leaders or not leader.is_established:
        return None
    able = [peer for peer in settings.preferred_leaders
            if peer in settings.peers and _is_able(state, leader, peer)]
    return min(able, key=leader.find_lag, default=None)


def choose_successor(state: MemberState, leader: Leader) -> str | None:
    """Return the member to which a leader that stops should give the lead; None: to no member."""
    if not leader.is_established:
        return None
    preferred = state.settings.preferred_leaders
    able = [peer for peer in state.settings.peers if _is_able(state, leader, peer)]
    return min(able, key=lambda peer: (peer not in preferred, leader.find_lag(peer)), default=None)


def _is_able(state: MemberState, leader: Leader, peer: str) -> bool:
    """Return whether a peer has answered lately and lacks few entries.

    During a transfer to a dead member, the leader would refuse entries for nothing.
    """
    return (leader.was_heard_lately(peer)
            and leader.find_lag(peer) < state.settings.transfer_lag_max)
