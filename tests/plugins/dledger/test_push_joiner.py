"""Pushes that arrive together are one push for the core, and each of them gets its answer."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.trial.unittest import SynchronousTestCase

from tests.plugins.dledger.peer_network import GROUP, Collector, PeerNetwork
from twistmq.plugins.dledger import push_joiner
from twistmq.plugins.dledger.translation import read_response, write_request
from twistmq.protocol.command import decode_command, encode_request
from twistmq.protocol.frame import FrameDecoder
from twistmq.raft.messages import (
    Entry,
    HeartbeatRequest,
    PushRequest,
    PushResponse,
    PushType,
    Request,
    ResponseCode,
)


def push(*indexes: int, term: int = 3, entry_term: int = 3, commit: int = 7, size: int = 4,
         kind: PushType = PushType.APPEND) -> PushRequest:
    """Return a push of n1 for n0."""
    entries = tuple(Entry(index, entry_term, bytes(size), 96) for index in indexes)
    return PushRequest(GROUP, "n1", "n0", term, "n1", kind, commit, entries)


class JoinerTests(SynchronousTestCase):
    """The pushes of a leader to n0."""

    def setUp(self) -> None:
        self.network = PeerNetwork()
        self.addCleanup(self.network.stop)
        self.member = self.network.members["n0"]
        self.client = Collector()
        pipe = self.network.join(self.client, self.member, "10.0.0.2")
        assert pipe is not None
        self.pipe = pipe
        self.requests: list[Request] = []

    def send(self, *requests: Request, oneway: bool = False) -> None:
        """Send requests that arrive together."""
        for request in requests:
            code, body = write_request(request)
            self.requests.append(request)
            self.pipe.wires[0].write(
                encode_request(code, len(self.requests), None, body, oneway=oneway))
        self.network.pump()

    def indexes(self) -> list[list[int]]:
        """Return the entries of each push that the core got."""
        return [[entry.index for entry in request.entries] for request, _ in self.member.asked
                if isinstance(request, PushRequest)]

    def answers(self) -> dict[int, tuple[int, int, ResponseCode]]:
        """Return index, count and code of the answers since the last call, by the requests."""
        self.network.pump()
        data, self.client.data = self.client.data, b""
        found = {}
        for command in map(decode_command, FrameDecoder().feed(data)):
            answer = read_response(self.requests[command.opaque - 1], command.body)
            assert isinstance(answer, PushResponse)
            found[command.opaque] = (answer.index, answer.count, answer.code)
        return found

    def test_each_push_has_its_answer(self) -> None:
        """The core gets all entries at once, and the newest committed index."""
        self.send(push(8, commit=5), push(9, 10, commit=6), push(11, commit=7))
        self.assertEqual(self.indexes(), [[8, 9, 10, 11]])
        request, waiting = self.member.asked[0]
        assert isinstance(request, PushRequest)
        self.assertEqual(request.commit_index, 7)
        waiting.callback(PushResponse(term=3, index=8, count=4, begin_index=0, end_index=11))
        ok = ResponseCode.SUCCESS
        self.assertEqual(self.answers(), {1: (8, 1, ok), 2: (9, 2, ok), 3: (11, 1, ok)})

    def test_what_is_not_joined(self) -> None:
        """A gap, another term, a lower term of an entry, and other requests begin anew."""
        beat = HeartbeatRequest(GROUP, "n1", "n0", 3, "n1")
        cases: Sequence[tuple[Sequence[Request], list[list[int]]]] = (
            ((push(8), push(10)), [[8], [10]]),
            ((push(8), push(8)), [[8], [8]]),
            ((push(8), push(9, term=4)), [[8], [9]]),
            ((push(8), push(9, entry_term=2)), [[8], [9]]),
            ((push(8), push(9, entry_term=4)), [[8], [9]]),
            ((push(8), push(kind=PushType.COMMIT), push(9)), [[8], [], [9]]),
            ((push(8), push(9, kind=PushType.COMPARE), push(9)), [[8], [9], [9]]),
            ((push(8), beat, push(9)), [[8], [9]]),
            ((push(8, size=120_000), push(9, size=120_000)), [[8], [9]]),
        )
        for requests, expected in cases:
            self.member.asked.clear()
            self.send(*requests)
            self.assertEqual(self.indexes(), expected)
            self.assertEqual(len(self.member.asked), len(requests))

    def test_pushes_of_two_connections_are_not_joined(self) -> None:
        """Neither are those that arrive later."""
        self.send(push(8))
        self.send(push(9))
        self.assertEqual(self.indexes(), [[8], [9]])

    def test_a_refusal_hits_those_that_deserve_it(self) -> None:
        """The core gets each push of a joined one alone if it refuses that at once."""
        answers = {8: ResponseCode.SUCCESS, 9: ResponseCode.INCONSISTENT_STATE}
        ask = self.member.answer

        def answer(request: Request) -> object:
            waiting = ask(request)
            assert isinstance(request, PushRequest)
            first, last = request.entries[0].index, request.entries[-1].index
            waiting.callback(PushResponse(answers[last], 3, index=first, count=last - first + 1))
            return waiting

        self.patch(self.member, "answer", answer)
        self.send(push(8), push(9))
        self.assertEqual(self.indexes(), [[8, 9], [8], [9]])
        self.assertEqual(self.answers(), {1: (8, 1, answers[8]), 2: (9, 1, answers[9])})

    def test_a_refusal_that_comes_later(self) -> None:
        """It is the answer to each of them."""
        self.send(push(8), push(9))
        late = ResponseCode.EXPIRED_TERM
        self.member.asked[0][1].callback(PushResponse(late, 3, index=8, count=2))
        self.assertEqual(self.answers(), {1: (8, 1, late), 2: (9, 1, late)})
        self.assertEqual(self.indexes(), [[8, 9]])

    def test_no_answer(self) -> None:
        """The core answers nothing when it stops, and a leader may want no answer."""
        self.send(push(8), push(9))
        self.member.asked[0][1].errback(RuntimeError())
        self.send(push(10), push(11), oneway=True)
        self.member.asked[1][1].callback(PushResponse(term=3, index=10, count=2))
        self.assertEqual(self.answers(), {})

    def test_requests_that_wait_are_counted(self) -> None:
        """A connection is read from again when joined pushes are answered."""
        count = push_joiner.JOINED_BYTES_MAX // 2048
        for first in range(0, 40 * count, count):
            self.send(*(push(first + number, size=1024) for number in range(count)))
        self.assertEqual(self.pipe.wires[1].producerState, "paused")
        for _, waiting in self.member.asked:
            waiting.callback(PushResponse(term=3))
        self.assertEqual(self.pipe.wires[1].producerState, "producing")
        self.network.pump()

    def test_pushes_before_bytes_that_are_no_frame(self) -> None:
        """They reach the core, although the connection is closed."""
        for request in (push(8), push(9)):
            code, body = write_request(request)
            self.pipe.wires[0].write(encode_request(code, 1, None, body))
        self.pipe.wires[0].write(b"!" * 100)
        self.network.pump()
        self.assertEqual(self.indexes(), [[8, 9]])
