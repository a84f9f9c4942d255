"""The links to other members, over connections in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests.plugins.dledger.peer_network import GROUP, PeerNetwork
from twistmq.plugins.dledger import outgoing_link
from twistmq.protocol.command import decode_command, encode_reply
from twistmq.protocol.errors import RemotingError, WireError
from twistmq.protocol.frame import FRAME_SIZE_MAX, FrameDecoder, encode_frame
from twistmq.raft.messages import (
    Entry,
    HeartbeatRequest,
    HeartbeatResponse,
    PushRequest,
    PushResponse,
    PushType,
    Response,
    VoteRequest,
    VoteResponse,
    VoteResult,
)

HEARTBEAT = HeartbeatRequest(GROUP, "n0", "n1", 3, "n0")
VOTE = VoteRequest(GROUP, "n0", "n1", 3, "n0", 8, 2)
PUSH = PushRequest(GROUP, "n0", "n1", 3, "n0", PushType.APPEND, 7, (Entry(8, 3, b"body", 96),))


class OutgoingLinkTests(SynchronousTestCase):
    """The requests of n0 to n1."""

    def setUp(self) -> None:
        self.network = PeerNetwork()
        self.addCleanup(self.network.stop)
        self.here, self.there = self.network.members["n0"], self.network.members["n1"]
        self.answers: list[Deferred[Response]] = []

    def tearDown(self) -> None:
        for answer in self.answers:
            # The test is not about this answer, or has looked at it.
            answer.addErrback(lambda _: None)

    def ask(self, request: Any = HEARTBEAT, *, bulk: bool = False) -> Deferred[Response]:
        answer = self.here.peers.ask("n1", request, bulk=bulk)
        self.answers.append(answer)
        return answer

    def lines(self, events: Any) -> list[str]:
        return [str(formatEvent(event)) for event in events
                if "member" in str(event.get("log_format"))]

    def connected(self) -> None:
        """Make the connection, over which a heartbeat is answered."""
        answer = self.ask()
        self.network.pump()
        self.there.asked.pop()[1].callback(HeartbeatResponse())
        self.network.pump()
        self.successResultOf(answer)

    def test_requests_and_their_responses(self) -> None:
        """The other member gets the same message, and its response is returned."""
        for request, response in (
            (HEARTBEAT, HeartbeatResponse()),
            (VOTE, VoteResponse(term=4, leader="n0", result=VoteResult.REJECT_ALREADY_VOTED)),
            (PUSH, PushResponse(term=3, index=8, count=1, begin_index=0, end_index=8)),
        ):
            answer = self.ask(request)
            self.network.pump()
            asked, waiting = self.there.asked.pop()
            self.assertEqual(asked, request)
            self.assertNoResult(answer)
            waiting.callback(response)
            self.network.pump()
            self.assertEqual(self.successResultOf(answer), response)

    def test_rests(self) -> None:
        """The links have nothing to check until the first request is late."""
        self.assertIs(self.here.peers.rest_ms(), None)
        self.ask()
        self.network.pass_ms(100)
        self.ask(PUSH, bulk=True)
        self.assertEqual(self.here.peers.rest_ms(), outgoing_link.ANSWER_MS - 100)
        self.network.pump()
        next(waiting for asked, waiting in self.there.asked if asked == HEARTBEAT).callback(
            HeartbeatResponse())
        self.network.pump()
        self.assertEqual(self.here.peers.rest_ms(), outgoing_link.ANSWER_MS)

    def test_responses_in_another_order(self) -> None:
        """Each response is passed to the request that it answers."""
        answers = [self.ask(), self.ask(VOTE), self.ask()]
        self.network.pump()
        for number in (2, 0, 1):
            response: Response = HeartbeatResponse(term=number)
            if number == 1:
                response = VoteResponse(term=number)
            self.there.asked[number][1].callback(response)
        self.network.pump()
        self.assertEqual([self.successResultOf(answer).term for answer in answers], [0, 1, 2])

    def test_pushes_have_a_connection_of_their_own(self) -> None:
        """A vote does not wait for a push that the network is still busy with."""
        self.ask(PUSH, bulk=True)
        self.network.pump()
        self.network.pipes[0].is_cut = True
        self.ask(PUSH, bulk=True)
        self.ask(VOTE)
        self.network.pump()
        self.assertEqual([asked for asked, _ in self.there.asked], [PUSH, VOTE])
        self.assertEqual(len(self.network.pipes), 2)

    def test_a_member_whose_host_refuses_connections(self) -> None:
        """The link reports the refusal, logs one line, and pauses between two attempts."""
        self.network.refusing.add("n1")
        self.network.pass_ms(outgoing_link.START_MS)
        with capturedLogs() as events:
            for _ in range(5):
                self.failureResultOf(self.pumped(self.ask()), RemotingError)
        self.assertEqual(self.here.gone, ["n1"])
        with capturedLogs() as later:
            self.network.pass_ms(outgoing_link.RETRY_MS)
            self.failureResultOf(self.pumped(self.ask()), RemotingError)
            self.network.pass_ms(outgoing_link.RETRY_MS)
            self.network.refusing.clear()
            self.connected()
        self.assertEqual(self.here.gone, ["n1", "n1"])
        self.assertEqual(self.lines(events), [
            "the member n1 at 10.0.0.2:40912 cannot be reached: cannot connect to 10.0.0.2:40912: "
            f"{self.refusal()}"])
        self.assertEqual(self.lines(later), [
            "the member n1 at 10.0.0.2:40912 can be reached again"])

    def test_members_that_start_together_cost_no_line(self) -> None:
        """The first of them cannot reach the others for a moment."""
        self.network.refusing.add("n1")
        with capturedLogs() as events:
            self.failureResultOf(self.pumped(self.ask()), RemotingError)
            self.network.pass_ms(outgoing_link.RETRY_MS)
            self.network.refusing.clear()
            self.connected()
        self.assertEqual(self.lines(events), [])

    def test_a_member_that_asks_is_asked_at_once(self) -> None:
        """A member that has just started may be asked before the pause after a refusal is over."""
        self.network.refusing.add("n1")
        self.failureResultOf(self.pumped(self.ask()), RemotingError)
        self.network.refusing.clear()
        self.failureResultOf(self.pumped(self.ask()), RemotingError)
        self.there.peers.ask("n0", HeartbeatRequest(GROUP, "n1", "n0", 3, "n1"),
                             bulk=False).addErrback(lambda _: None)
        self.network.pump()
        self.connected()

    def refusal(self) -> str:
        return "Connection was refused by other side."

    def pumped(self, answer: Deferred[Response]) -> Deferred[Response]:
        self.network.pump()
        return answer

    def test_a_host_that_cannot_be_reached_says_nothing_about_the_process(self) -> None:
        """The requests fail, but the member is not reported as gone."""
        self.network.unreachable.add("n1")
        self.failureResultOf(self.pumped(self.ask()), RemotingError)
        self.assertEqual(self.here.gone, [])

    def test_requests_wait_while_the_connection_is_made(self) -> None:
        """They are sent in their order when the connection is made."""
        for request in (HEARTBEAT, VOTE):
            self.ask(request)
        self.assertEqual(len(self.here.box.host.connecting), 1)
        self.network.pump()
        self.assertEqual([asked for asked, _ in self.there.asked], [HEARTBEAT, VOTE])

    def test_a_lost_connection(self) -> None:
        """Open requests fail immediately, and the link finds out whether the member is alive."""
        self.connected()
        answer = self.ask()
        self.network.pump()
        self.network.refusing.add("n1")
        self.network.pipes[0].lose()
        self.failureResultOf(answer, RemotingError)
        self.network.pump()
        self.assertEqual(self.here.gone, ["n1"])

    def test_a_connection_that_is_lost_before_any_answer(self) -> None:
        """A member that closes every connection is not connected to in a circle."""
        answer = self.ask()
        self.network.pump()
        self.network.pipes[0].lose()
        self.failureResultOf(answer, RemotingError)
        self.assertEqual(self.here.box.host.connecting, [])

    def test_a_port_that_closes_after_the_connections(self) -> None:
        """A process that ends may accept one more connection; the next one is refused."""
        self.network.refusing.add("n0")
        self.connected()
        self.network.pipes[0].lose()
        self.network.pump()
        self.network.refusing.add("n1")
        self.network.pipes[1].lose()
        self.assertEqual(self.here.gone, [])
        self.network.pass_ms(outgoing_link.RETRY_MS)
        self.network.pump()
        self.assertEqual(self.here.gone, ["n1"])

    def test_an_attempt_that_is_reset_before_the_port_is_closed(self) -> None:
        """A process that ends may reset one more attempt; the next one is refused."""
        self.network.refusing.add("n0")
        self.connected()
        self.network.unreachable.add("n1")
        self.network.pipes[0].lose()
        self.network.pump()
        self.assertEqual(self.here.gone, [])
        self.network.unreachable.clear()
        self.network.refusing.add("n1")
        self.network.pass_ms(outgoing_link.RETRY_MS)
        self.network.pump()
        self.assertEqual(self.here.gone, ["n1"])

    def test_a_member_that_closes_each_connection(self) -> None:
        """The link makes few connections, with a pause between two of them."""
        self.network.refusing.add("n0")
        self.connected()
        for count in range(1, 9):
            self.network.pipes[-1].lose()
            self.network.pump()
            self.network.pass_ms(outgoing_link.RETRY_MS)
            self.network.pump()
            self.assertEqual(len(self.network.pipes), 1 + min(count, 1 + outgoing_link.LOOKS_MAX))
        self.assertEqual(self.here.gone, [])

    def test_a_member_that_does_not_answer(self) -> None:
        """The request fails, and a connection that is silent since then is closed."""
        self.connected()
        answer = self.ask()
        self.network.pipes[0].is_cut = True
        self.network.pass_ms(outgoing_link.ANSWER_MS - 1)
        self.assertNoResult(answer)
        with capturedLogs() as events:
            self.network.pass_ms(1)
        self.failureResultOf(answer, RemotingError)
        self.assertIn("it has not answered for 4 s", self.lines(events)[0])
        self.assertTrue(self.network.pipes[0].wires[0].disconnecting)
        self.connected()

    def test_a_request_that_alone_is_not_answered(self) -> None:
        """The connection remains, because other answers arrived; the late one is ignored."""
        self.connected()
        answer = self.ask()
        self.network.pump()
        self.network.pass_ms(2000)
        self.connected_again()
        self.network.pass_ms(2000)
        self.failureResultOf(answer, RemotingError)
        self.there.asked[0][1].callback(HeartbeatResponse())
        self.network.pump()
        self.assertFalse(self.network.pipes[0].wires[0].disconnecting)

    def connected_again(self) -> None:
        """A heartbeat is answered over the present connection."""
        answer = self.ask()
        self.network.pump()
        self.there.asked[-1][1].callback(HeartbeatResponse())
        self.network.pump()
        self.successResultOf(answer)

    def test_the_number_of_unanswered_requests_is_limited(self) -> None:
        """Another request fails immediately, until earlier ones have timed out."""
        self.connected()
        for _ in range(outgoing_link.UNANSWERED_MAX):
            self.ask()
        self.failureResultOf(self.ask(), RemotingError)
        self.network.pass_ms(outgoing_link.ANSWER_MS)
        self.assertNoResult(self.ask())

    def test_their_bytes_are_limited(self) -> None:
        """The limit also applies while the connection is being made."""
        large = PushRequest(GROUP, "n0", "n1", 3, "n0", PushType.APPEND, 7,
                            (Entry(8, 3, b"x" * (4 * 1024**2), 96),))
        sent = 0
        while not (answer := self.ask(large, bulk=True)).called:
            sent += 1
        self.failureResultOf(answer, RemotingError)
        self.assertEqual(sent, 3)

    def test_a_request_that_is_too_long(self) -> None:
        """The request fails, one line is logged, and the connection remains."""
        entry = Entry(8, 3, b"x" * FRAME_SIZE_MAX, 96)
        request = PushRequest(GROUP, "n0", "n1", 3, "n0", PushType.COMPARE, 7, (entry,))
        with capturedLogs() as events:
            self.failureResultOf(self.ask(request), RemotingError)
        self.assertEqual(len(self.lines(events)), 1)
        self.connected()

    def reply(self, data: bytes) -> Deferred[Response]:
        """Send a request, and answer it by these bytes with ``OPAQUE`` replaced."""
        self.connected()
        answer = self.ask()
        wire = self.network.pipes[-1].wires
        (frame,) = FrameDecoder().feed(wire[0].take())
        opaque = decode_command(frame).opaque
        end = self.network.pipes[-1].ends[0]
        end.dataReceived(data if data[:1] == b"!" else encode_reply(
            int(data[:3]), opaque, None, data[3:], None))
        return answer

    def test_answers_of_something_else(self) -> None:
        """Invalid data is not used as an answer; one log line names the member and the reason."""
        for data, text in ((b"200", "HeartBeatResponse"), (b"200null", "HeartBeatResponse"),
                           (b"200[1]", "HeartBeatResponse"), (b"003", "the code 3"),
                           (b"001{}", "the code 1")):
            with capturedLogs() as events:
                self.failureResultOf(self.reply(data), WireError)
            self.assertIn(text, self.lines(events)[0])
            self.assertIn("the member n1 at 10.0.0.2:40912", self.lines(events)[0])

    def test_bytes_that_are_no_frames(self) -> None:
        """The connection is closed, and made again for the next request."""
        for data in (b"!" * 100, encode_frame(0, b"no JSON", b"")):
            self.connected()
            answer = self.ask()
            with capturedLogs() as events:
                self.network.pipes[-1].ends[0].dataReceived(data)
            self.failureResultOf(answer, RemotingError)
            self.assertEqual(len(self.lines(events)), 1)
            self.network.pump()

    def ask_large(self, commit_index: int = 7) -> Deferred[Response]:
        """Send the largest push that the core makes of small entries, from 8 to 263."""
        return self.ask(PushRequest(
            GROUP, "n0", "n1", 3, "n0", PushType.APPEND, commit_index, tuple(
                Entry(8 + number, 3, bytes(1024), 96) for number in range(256))), bulk=True)

    def answer_all(self, first: int) -> None:
        """Let the other member answer pushes that it got, in one turn."""
        self.network.pump()
        for _, waiting in self.there.asked[first:]:
            waiting.callback(PushResponse(term=3))
        self.network.pump()

    def test_answers_wait_after_a_large_push(self) -> None:
        """Each of them may lead to another one, which is sent in a turn of its own."""
        turns: list[Callable[[], object]] = []
        self.patch(self.here.box.host, "call_later", lambda _, run: turns.append(run))
        answers = [self.ask_large() for _ in range(3)]
        further: list[Deferred[Response]] = []
        for answer in answers[:2]:
            answer.addCallback(lambda _: further.append(self.ask_large()))
        self.answer_all(0)
        self.assertEqual(self.called(answers), [False, False, False])
        for count in (1, 2, 3):
            turns.pop(0)()
            self.network.pump()
            self.assertEqual(self.called(answers), [number < count for number in range(3)])
            self.assertEqual(len(self.there.asked), 3 + min(count, 2))
            self.assertEqual(len(turns), int(count < 3))
        self.answer_all(3)
        self.assertEqual(self.called(further), [True, True])

    def test_answers_wait_longer_after_a_push_of_committed_entries(self) -> None:
        """No send waits for such a push, so it leaves time to the sends."""
        turns: list[tuple[float, Callable[[], object]]] = []
        self.patch(self.here.box.host, "call_later", lambda *turn: turns.append(turn))
        for commit_index, rest_ms in ((262, 0), (263, outgoing_link.CATCH_UP_REST_MS)):
            self.ask_large(commit_index)
            pause, run = turns.pop()
            self.assertEqual(pause, rest_ms / 1000)
            run()

    def called(self, answers: list[Deferred[Response]]) -> list[bool]:
        return [bool(answer.called) for answer in answers]

    def test_answers_of_small_pushes_do_not_wait(self) -> None:
        """The answers of another link do not wait for a large push, either."""
        small, other = self.ask(PUSH, bulk=True), self.ask()
        self.answer_all(0)
        self.assertEqual(self.called([small, other]), [True, True])
        self.ask_large()
        other = self.ask()
        self.network.pump()
        self.there.asked[-1][1].callback(HeartbeatResponse())
        self.network.pump()
        self.successResultOf(other)

    def test_a_large_push_waits_for_the_one_before(self) -> None:
        """The transport holds the bytes of one push at a time, and is given the next one when it is
        empty.
        """
        for _ in range(3):
            self.ask_large()
            if not self.network.pipes:
                self.network.pump()
        self.ask_large()
        (pipe,) = self.network.pipes
        sizes = [len(pipe.wires[0].take()) for _ in range(4)]
        self.assertEqual(sizes, [sizes[0]] * 3 + [0])
        self.assertGreater(sizes[0], outgoing_link.LARGE_BYTES)

    def test_a_lost_connection_takes_the_answers_that_wait(self) -> None:
        """The core compares the logs again in any case."""
        answers = [self.ask_large(), self.ask_large()]
        self.network.pump()
        self.there.asked[0][1].callback(PushResponse(term=3))
        self.network.pump()
        self.network.pipes[0].lose()
        for answer in answers:
            self.failureResultOf(answer, RemotingError)
        self.network.pass_ms(0)

    def test_what_waits_fails_at_the_end(self) -> None:
        """Afterwards no connection is made, and one that is being made is not used."""
        self.connected()
        answers = [self.ask(), self.ask(PUSH, bulk=True)]
        self.here.peers.close()
        self.network.refusing.add("n0")
        for answer in answers:
            self.failureResultOf(answer, RemotingError)
        self.failureResultOf(self.ask(), RemotingError)
        self.network.pump()
        self.assertTrue(all(pipe.is_lost for pipe in self.network.pipes))
        self.assertEqual(len(self.network.pipes), 1)
        self.assertEqual(self.there.gone, ["n0"])
