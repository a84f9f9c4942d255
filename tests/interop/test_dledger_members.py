"""Our port, links and core as a follower in a DLedger group of Apache's, with a log in memory."""

from __future__ import annotations

import base64
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from twisted.internet.defer import Deferred

from tests.interop.capture_store import wait_for
from tests.interop.clients import JavaTestCase
from tests.interop.ledger_members import GROUP, LedgerMembers
from tests.interop.ports import free_port
from twistmq.broker.api import Broker
from twistmq.broker.testing.in_process_broker import running_broker
from twistmq.plugins.dledger.peer_group import PeerGroup
from twistmq.plugins.dledger.peers import Peers, connect_group
from twistmq.raft.actions import Action, Answer, Ask, FlushLog, SaveHardState
from twistmq.raft.events import (
    Answered,
    Asked,
    CallFailed,
    Event,
    Flushed,
    HardStateSaved,
    Started,
    Tick,
)
from twistmq.raft.hard_state import HardState
from twistmq.raft.member import Member
from twistmq.raft.memory_log import MemoryLog
from twistmq.raft.messages import Request, Response
from twistmq.raft.settings import MemberSettings

#: Our member never stands, because a log in memory gives its own entries no positions.
_NEVER_MS: Final = 10**9
#: How long the members may take to agree, on a busy machine, seconds.
_PATIENCE_SECONDS: Final = 60


class FollowerPlugin:
    """A member whose log and hard state are in memory, in a broker with a network.

    The port has the settings of the installed plugin.
    """

    def __init__(self, ports: dict[str, int]) -> None:
        addresses = {member: f"127.0.0.1:{port}" for member, port in ports.items()}
        self.group = PeerGroup(GROUP, "n2", addresses)
        self.log = MemoryLog()
        settings = MemberSettings(GROUP, "n2", tuple(addresses), vote_wait_min_ms=_NEVER_MS,
                                  vote_wait_max_ms=_NEVER_MS)
        self.member = Member(settings, self.log, HardState(0, "", joined=True), -1)
        self.questions: dict[int, Deferred[Response]] = {}
        self.peers: Peers | None = None
        self._events: list[Event] = []
        self._is_busy = False
        self._is_over = False

    def join(self, broker: Broker) -> None:
        """Open the port; called on the reactor."""
        self.broker = broker
        self.peers = connect_group(broker, self.group, self.answer, lambda peer: None,
                                   lambda: self.member.leader)
        self.handle(Started())

    def leave(self) -> None:
        """Close the port; called on the reactor."""
        self._is_over = True
        if self.peers is not None:
            self.peers.close()

    def tick(self) -> None:
        """Let the member look at its clock; called on the reactor."""
        if self.peers is not None:
            self.peers.tick()
            self.handle(Tick())

    def answer(self, request: Request) -> Deferred[Response]:
        response: Deferred[Response] = Deferred()
        number = len(self.questions)
        self.questions[number] = response
        self.handle(Asked(number, request))
        return response

    def handle(self, event: Event) -> None:
        self._events.append(event)
        if self._is_busy or self._is_over:
            return
        self._is_busy = True
        while self._events:
            now_ms = self.broker.steady.now_ms()
            for action in self.member.handle_event(self._events.pop(0), now_ms, 0.5):
                self.carry_out(action)
        self._is_busy = False

    def carry_out(self, action: Action) -> None:
        match action:
            case Ask(call, peer, request, bulk):
                assert self.peers is not None
                self.peers.ask(peer, request, bulk=bulk).addCallbacks(
                    lambda response: self.handle(Answered(call, response)),
                    lambda _: self.handle(CallFailed(call)))
            case Answer(question, response):
                self.questions[question].callback(response)
            case SaveHardState(number):
                self.handle(HardStateSaved(number))
            case FlushLog(number):
                self.handle(Flushed(number))
            case _:
                pass


class FollowerTests(JavaTestCase):
    """Our member n2 beside n0 and n1 of Apache's."""

    version = "5.5.0"

    def follow(self, version: str, *, batches: bool) -> None:
        """Elect, replicate, agree with the help of our member, and transfer the lead."""
        ports = {member: free_port() for member in ("n0", "n1", "n2")}
        plugin = FollowerPlugin(ports)
        with ExitStack() as stack:
            broker = stack.enter_context(running_broker(plugins=[("follower", plugin)]))
            broker.call(plugin.join, broker.kernel)
            stack.callback(broker.call, plugin.leave)
            members = LedgerMembers(
                version, self.folder, dict.fromkeys(("n0", "n1"), ports), batches=batches)
            stack.callback(members.close)

            def reach(what: str, condition: Callable[[], bool]) -> None:
                def is_reached() -> bool:
                    broker.call(plugin.tick)
                    return condition()

                wait_for(what, is_reached, _PATIENCE_SECONDS)

            leader, last = members.append(30, 200)
            reach("our member has all entries", lambda: plugin.member.committed_index >= last)
            self.assertEqual(plugin.member.leader, leader)
            other = "n1" if leader == "n0" else "n0"
            # The leader and our member are a majority, so our acknowledgements count.
            members.stop_member(other)
            _, last = members.append(10, 50)
            reach("our member has the entries of two", lambda: (
                plugin.member.committed_index >= last))
            members.start_member(other)
            members.wait_for_equal_logs()
            members.transfer(members.wait_for_leader(), other)
            leader, last = members.append(5, 10)
            reach("our member follows the next leader", lambda: (
                plugin.member.committed_index >= last and plugin.member.leader == leader))
            for index in (0, 29, last):
                _, _, _, term, body = members.ask(f"body {leader} {index}", "entry")
                entry = plugin.log.read(index, 0)[0]
                self.assertEqual((entry.term, entry.body), (int(term), base64.b64decode(body)))
            members.leave()

    def test_members_of_5_5_0_push_batches(self) -> None:
        """The version of dledger is 0.3.2."""
        self.follow("5.5.0", batches=True)

    def test_members_of_4_9_4_push_single_entries(self) -> None:
        """The version of dledger is 0.2.6."""
        self.follow("4.9.4", batches=False)

    def long_members_of_5_3_3_push_batches(self) -> None:
        """The version of dledger is 0.3.1.2."""
        self.follow("5.3.3", batches=True)
