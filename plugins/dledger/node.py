"""The driver of a member: it passes events to the state machine and carries out its actions.

``twistmq.raft`` decides what a member does, and has no clock, no disk and no network. A node gives
it the time, random draws, the answers of peers and the results of syncs, one event after the other.
An event that arises while actions are carried out waits until all of them are done, because actions
depend on their order.

An exception in the state machine is a fault of this program. The node then stops for good, because
a member that goes on with a wrong state could lose messages of the whole group.

Source: design of twistmq.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from twistmq.broker.api.observe import LineRate
from twistmq.plugins.dledger.links import GroupLinks
from twistmq.plugins.dledger.storage_driver import MemberStorage, StorageDriver
from twistmq.protocol.log_rate import lines_left_out
from twistmq.raft.actions import (
    Action,
    Answer,
    Ask,
    Committed,
    Complained,
    FlushLog,
    LeadEstablished,
    Role,
    RoleChanged,
    SaveHardState,
    TransferEnded,
)
from twistmq.raft.events import (
    Answered,
    Appended,
    Asked,
    CallFailed,
    Event,
    PeerRefused,
    Started,
    StorageFailed,
    Tick,
    Transfer,
)
from twistmq.raft.log import LogError
from twistmq.raft.member import Member
from twistmq.raft.messages import (
    Request,
    Response,
    ResponseCode,
    TransferRequest,
    TransferResponse,
)

__all__ = ["GroupListener", "GroupNode", "NodeStopped", "Timers"]

#: The shortest time between two ticks, s. A tick at the exact millisecond could come just too
#: early, because timers are more exact than the member's clock.
_TICK_MIN: Final = 0.001
#: Complaints that differ in numbers only are of one kind; the number of kinds that are remembered.
_NUMBERS: Final = re.compile(r"\d+")
_KINDS_MAX: Final = 100


class NodeStopped(Exception):
    """A request came to a node that does not run."""


class GroupListener(Protocol):
    """The owner of a node. Its methods are called in the turn in which the member decides."""

    def lead_lost(self) -> None:
        """Stop accepting work at once: this member no longer leads with all committed entries.

        The method is called before the other actions of the turn.
        """

    def role_changed(self, role: Role, term: int, leader: str) -> None:
        """Note the role, the term and the leader, which is empty while it is not known."""

    def lead_established(self, term: int) -> None:
        """Accept work from now on: this member leads, and has all committed entries."""

    def entries_committed(self, index: int) -> None:
        """Use the entries up to this index.

        :raises LogError: when the log can no longer be used.
        """

    def node_failed(self) -> None:
        """Stop accepting work for good, because the node has stopped by a fault."""


class Timers(Protocol):
    """The part of a reactor that calls functions later."""

    def __call__(self, delay: float, run: Callable[[], object]) -> IDelayedCall:
        """Call a function after a delay in seconds."""


class GroupNode:
    """Drives one member.

    :param now_ms: a steady clock in ms.
    :param call_later: calls a function later, on the same clock.
    :param draw: returns a random number, 0 <= number < 1.
    """

    log = Logger()

    def __init__(
        self, member: Member, storage: MemberStorage, links: GroupLinks, listener: GroupListener,
        now_ms: Callable[[], int], call_later: Timers, draw: Callable[[], float],
    ) -> None:
        self.member = member
        self._storage = StorageDriver(storage, self.pass_event, lambda: member.storage_failure,
                                      now_ms)
        self._links = links
        self._listener = listener
        self._now_ms, self._call_later, self._draw = now_ms, call_later, draw
        self._events: deque[Event] = deque()
        self._runs = self._is_busy = False
        #: Whether the listener accepts work, and has not begun to stop.
        self._is_established = False
        self._questions: dict[int, Deferred[Response]] = {}
        self._last_question = self._last_transfer = 0
        self._transfers: dict[int, Deferred[ResponseCode]] = {}
        self._tick: IDelayedCall | None = None
        self._tick_ms = 0
        #: How often each kind of complaint may be written.
        self._rates: dict[str, LineRate] = {}
        #: How often this member has begun to lead since the start.
        self.leads = 0

    # --- life

    def start(self) -> None:
        """Begin to take part in the group."""
        self._runs = True
        self.pass_event(Started())

    def stop(self) -> None:
        """Leave the group at once, like a process that is killed."""
        self._runs = False
        self._events.clear()
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None
        self._lose_lead()
        questions, self._questions = self._questions, {}
        for waiting in questions.values():
            waiting.errback(NodeStopped("this member stops"))
        transfers, self._transfers = self._transfers, {}
        for ended in transfers.values():
            ended.callback(ResponseCode.UNKNOWN)

    @property
    def is_running(self) -> bool:
        """Whether the node takes part in the group."""
        return self._runs

    # --- events from outside

    def answer_request(self, request: Request) -> Deferred[Response]:
        """Answer a request of another member.

        :returns: fires with the response. Fails with NodeStopped when this node stops before.
        """
        waiting: Deferred[Response] = Deferred()
        if not self._runs:
            waiting.errback(NodeStopped("this member does not run"))
            return waiting
        if (isinstance(request, TransferRequest) and request.transferee == request.receiver
                and self._storage.fault()):
            # The core knows of faults that have refused entries. The disk may also be too full for
            # the messages of a leader only.
            waiting.callback(TransferResponse(
                ResponseCode.TAKE_LEADERSHIP_FAILED, self.member.term, self.member.leader))
            return waiting
        self._last_question += 1
        self._questions[self._last_question] = waiting
        self.pass_event(Asked(self._last_question, request))
        return waiting

    def note_appended(self) -> None:
        """Push the entries that were appended to the log in this turn, as the leader's."""
        self.pass_event(Appended())

    def note_peer_gone(self, peer: str) -> None:
        """Note that the process of a member has ended: its host refuses connections."""
        self.pass_event(PeerRefused(peer))

    def transfer_lead(self, peer: str) -> Deferred[ResponseCode]:
        """Give the lead to another member.

        :returns: fires with SUCCESS, or with the reason why this member still leads; with UNKNOWN
            when the node stops before.
        """
        ended: Deferred[ResponseCode] = Deferred()
        if not self._runs:
            ended.callback(ResponseCode.NOT_LEADER)
            return ended
        self._last_transfer += 1
        self._transfers[self._last_transfer] = ended
        self.pass_event(Transfer(self._last_transfer, peer))
        return ended

    # --- events and actions

    def pass_event(self, event: Event) -> None:
        """Let the member handle an event, now or after the actions that are being carried out."""
        if not self._runs:
            return
        self._events.append(event)
        if self._is_busy:
            return
        self._is_busy = True
        try:
            while self._events:
                self._handle(self._events.popleft())
        except Exception:
            self.log.failure("the member of the group fails and stops; restart the broker")
            self.stop()
            self._listener.node_failed()
        finally:
            self._is_busy = False
        if self._runs:
            self._arm()

    def _handle(self, event: Event) -> None:
        member = self.member
        if isinstance(event, Appended) and member.role is not Role.LEADER:
            # The lead was lost in the same turn. The entries stay in the log until a leader
            # confirms or replaces them.
            return
        actions = member.handle_event(event, self._now_ms(), self._draw())
        if not member.is_established:
            self._lose_lead()
        for action in actions:
            if self._runs:
                self._carry_out(action)

    def _lose_lead(self) -> None:
        if self._is_established:
            self._is_established = False
            self._listener.lead_lost()

    def _carry_out(self, action: Action) -> None:
        match action:
            case SaveHardState(number, state):
                self._storage.save(number, state)
            case FlushLog(number):
                self._storage.flush(number)
            case Ask(call, peer, request, bulk):
                self._ask(call, peer, request, bulk)
            case Answer(question, response):
                waiting = self._questions.pop(question, None)
                if waiting is not None:
                    waiting.callback(response)
            case Committed(index):
                try:
                    self._listener.entries_committed(index)
                except LogError as error:
                    self.pass_event(StorageFailed(str(error)))
            case RoleChanged(role, term, leader):
                self._listener.role_changed(role, term, leader)
            case LeadEstablished(term):
                # A later event of the same turn may have ended the lead.
                if self.member.is_established and self.member.term == term:
                    self._is_established = True
                    self.leads += 1
                    self._listener.lead_established(term)
            case TransferEnded(tag, code):
                ended = self._transfers.pop(tag, None)
                if ended is not None:
                    ended.callback(code)
            case Complained(peer, text):
                self._complain(peer, text)

    def _complain(self, peer: str, text: str) -> None:
        """Write a line, unless one that differs in numbers only was written less than a minute ago.

        An entry that does not fit is pushed again and again.
        """
        kind = _NUMBERS.sub("", text)
        if len(self._rates) >= _KINDS_MAX:
            self._rates.clear()
        left_out = self._rates.setdefault(kind, LineRate(1)).left_out(self._now_ms())
        if left_out is not None:
            self.log.warn("{text}{more}", text=text, more=lines_left_out(left_out), peer=peer)

    def _ask(self, call: int, peer: str, request: Request, bulk: bool) -> None:
        def fail(failure: Failure) -> None:
            self.pass_event(CallFailed(call))

        self._links.ask(peer, request, bulk=bulk).addCallbacks(
            lambda response: self.pass_event(Answered(call, response)), fail)

    # --- time

    def _arm(self) -> None:
        """Wait for the next tick. A tick that comes too early does no harm."""
        due_ms = min(self.member.next_tick, self._storage.next_check_ms)
        if self._tick is not None:
            if self._tick_ms <= due_ms:
                return
            self._tick.cancel()
        self._tick_ms = due_ms
        delay = max(_TICK_MIN, (due_ms - self._now_ms()) / 1000)
        self._tick = self._call_later(delay, self._run_tick)

    def _run_tick(self) -> None:
        self._tick = None
        self._storage.check()
        self.pass_event(Tick())
