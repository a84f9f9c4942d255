"""Slow requests, and their log lines."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import LogLevel, capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.config.setting_rows import LOG_ROWS
from twistmq.broker.config.settings import Settings
from twistmq.broker.net.slow_requests import SlowRequests
from twistmq.broker.remoting.messages import Reply, Request, RequestHandler
from twistmq.broker.testing.conversation import Conversation, make_server
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.command import encode_request
from twistmq.protocol.log_rate import LINES_A_MINUTE

SEND, PULL, ASK, STRANGE = (RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE,
                            RequestCode.GET_MAX_OFFSET, 9001)


class SlowRequestTests(SynchronousTestCase):
    """A server whose handlers take the time in their bodies, with a limit of one second."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.waiting: list[Deferred[Reply]] = []
        self.settings = Settings(LOG_ROWS)
        server = make_server([
            RequestHandler(SEND, self.take, handle_batch=lambda run: [self.take(r) for r in run]),
            RequestHandler(PULL, self.wait, waits=True),
            RequestHandler(ASK, self.wait), RequestHandler(STRANGE, self.take),
        ], clock=self.clock)
        server.slow = self.slow = SlowRequests(server.now_ms, self.settings)
        self.client = Conversation(server)

    def take(self, request: Request[Any]) -> Reply:
        self.clock.advance(float(request.body or b"0"))
        return Reply()

    def wait(self, request: Request[Any]) -> Deferred[Reply]:
        self.waiting.append(Deferred())
        return self.waiting[-1]

    def says(self, *requests: tuple[int, bytes]) -> list[str]:
        """Send requests in one piece; :returns: the lines of slow ones."""
        with capturedLogs() as events:
            self.client.says(b"".join(encode_request(code, 1, None, body)
                                      for code, body in requests))
        return self.lines(events)

    def answers(self, seconds: float) -> list[str]:
        """Answer the waiting requests after some time; :returns: the lines about slow ones."""
        self.clock.advance(seconds)
        with capturedLogs() as events:
            for waiting in self.waiting:
                waiting.callback(Reply())
        self.waiting.clear()
        return self.lines(events)

    def lines(self, events: list[Any]) -> list[str]:
        found = [event for event in events if "slow request" in event.get("log_format", "")]
        self.assertEqual({event["log_level"] for event in found} - {LogLevel.warn}, set())
        return [formatEvent(event).replace(self.peer, "PEER") for event in found]

    @property
    def peer(self) -> str:
        return self.client.protocol.remote_address

    def test_a_quick_request_is_not_logged(self) -> None:
        """A faster request causes no line."""
        self.assertEqual(self.says((SEND, b"0.5"), (STRANGE, b"0.4")), [])
        self.assertEqual(self.slow.count, 0)

    def test_a_slow_request_is_logged_with_code_peer_and_time(self) -> None:
        """The line has the number and the name of the code, the peer, and the time."""
        self.assertEqual(self.says((SEND, b"1.5")),
                         ["slow request: 310 SEND_MESSAGE_V2 of PEER took 1500 ms"])
        self.assertEqual(self.says((STRANGE, b"1")),
                         ["slow request: 9001 of PEER took 1000 ms"])
        self.assertEqual((self.slow.count, self.slow.longest_ms), (2, 1500))

    def test_requests_that_are_handled_together_are_one_line(self) -> None:
        """They are one line, together with the work that follows them."""
        self.assertEqual(self.says((STRANGE, b"0"), (SEND, b"0.5"), (SEND, b"0.6"), (SEND, b"")),
                         ["slow request: 9001, 310 SEND_MESSAGE_V2 x 3 of PEER took 1100 ms"])

    def test_what_comes_behind_a_slow_one(self) -> None:
        """The next request runs in its own turn, and does not count as slow."""
        self.assertEqual(self.says((STRANGE, b"2"), (SEND, b"")),
                         ["slow request: 9001 of PEER took 2000 ms"])
        with capturedLogs() as events:
            self.clock.advance(0)
        self.assertEqual(self.lines(events), [])
        self.assertEqual(len(self.client.hears()), 2)

    def test_an_answer_that_waited(self) -> None:
        """The line has the time of the wait; a request that waits by its nature is not slow."""
        self.says((ASK, b""), (PULL, b""))
        self.assertEqual(self.answers(3), [
            "slow request: 30 GET_MAX_OFFSET of PEER was answered after 3000 ms"])
        self.says((ASK, b""))
        self.assertEqual(self.answers(0.5), [])

    def test_limit_changes(self) -> None:
        """The setting applies from its change on; 0 disables the lines."""
        self.settings.update({"log.slow_request": "200"})
        self.assertEqual(len(self.says((STRANGE, b"0.25"))), 1)
        self.settings.update({"log.slow_request": "0"})
        self.assertEqual(self.says((STRANGE, b"1000")), [])

    def test_slow_requests_are_logged_at_a_rate(self) -> None:
        """A few lines a minute are written, and then the number of the omitted ones."""
        self.settings.update({"log.slow_request": "1"})
        lines = [line for _ in range(LINES_A_MINUTE + 5) for line in self.says((STRANGE, b"0.01"))]
        self.assertEqual(len(lines), LINES_A_MINUTE)
        self.assertEqual(self.slow.count, LINES_A_MINUTE + 5)
        self.clock.advance(60)
        [line] = self.says((STRANGE, b"0.01"))
        self.assertTrue(line.endswith("; 5 such lines were left out"), msg=line)

    def test_a_header_that_cannot_be_read_has_no_code(self) -> None:
        """The line of a header that cannot be read has no code."""
        with capturedLogs() as events:
            self.slow.turn("PEER", [(0, b"{", b"")], 2.0)
        self.assertEqual(self.lines(events),
                         ["slow request: an unreadable header of PEER took 2000 ms"])
