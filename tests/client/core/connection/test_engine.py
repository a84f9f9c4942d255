"""The connections and requests of the client's core."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.client.core.box import Box
from twistmq.client.core.connection.engine import IDLE_MS
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand, encode_request
from twistmq.protocol.errors import RemotingConnectError, RemotingSendError, RemotingTimeout

A = "10.0.0.2:10911"
CODE = RequestCode.GET_BROKER_RUNTIME_INFO


class RequestTests(SynchronousTestCase):
    """One request, from its begin to its end."""

    def setUp(self) -> None:
        """Create a core."""
        self.box = Box()

    def ask(self, timeout_ms: float = 3000) -> RemotingCommand:
        """Send a request to the address."""
        async def invoke() -> RemotingCommand:
            return await self.box.engine.invoke(A, CODE, timeout_ms=timeout_ms)

        return self.box.run(invoke())

    def test_a_reply_is_matched_and_one_connection_serves_all(self) -> None:
        """Two requests to an address use one connection."""
        self.box.servers[A] = lambda command: (0, None, b"%d" % command.code, None)
        self.assertEqual(self.ask().body, b"28")
        self.assertEqual(self.ask().body, b"28")
        self.assertEqual(self.box.connects, [A])

    def test_a_refused_connection_is_a_connect_error_that_names_the_address(self) -> None:
        """No request was sent, so the error is not that of a lost connection."""
        error = self.assertRaises(RemotingConnectError, self.ask)
        self.assertIn(A, str(error))

    def test_a_silent_address_fails_within_the_time_of_the_request(self) -> None:
        """The time-out covers connecting, and the request is never sent later."""
        self.box.silent.add(A)
        begin = self.box.clock.now_ms
        self.assertRaises(RemotingConnectError, self.ask, 500)
        self.assertLessEqual(self.box.clock.now_ms - begin, 550)
        link = self.box.engine.connection(A).link
        link.opened()
        self.assertEqual(link.take_output(), b"")

    def test_a_connection_that_does_not_open_in_time_is_given_up(self) -> None:
        """The request fails after the time for connecting, and the shell closes the connection."""
        self.box.silent.add(A)
        begin = self.box.clock.now_ms
        error = self.assertRaises(RemotingConnectError, self.ask, 60_000)
        self.assertIn("it takes too long", str(error))
        self.assertEqual(self.box.clock.now_ms - begin, self.box.engine.connect_timeout_ms)
        self.assertEqual(len(self.box.closed), 1)

    def test_an_open_connection_has_no_bound_on_connecting(self) -> None:
        """A request that takes longer is answered."""
        self.box.servers[A] = lambda command: None
        self.assertRaises(RemotingTimeout, self.ask, 10_000)
        self.assertEqual(self.box.closed, [])

    def test_a_request_without_a_reply_times_out_and_the_connection_stays(self) -> None:
        """The next request uses the same connection; the third time-out closes it."""
        self.box.servers[A] = lambda command: None
        begin = self.box.clock.now_ms
        self.assertRaises(RemotingTimeout, self.ask, 500)
        self.assertLessEqual(self.box.clock.now_ms - begin, 550)
        self.assertRaises(RemotingTimeout, self.ask, 500)
        self.assertEqual(self.box.closed, [])
        self.assertRaises(RemotingTimeout, self.ask, 500)
        self.box.settle()
        self.assertEqual(self.box.closed, [A])

    def test_a_lost_connection_fails_its_requests_and_the_next_opens_another(self) -> None:
        """The error says that the connection was lost."""
        self.box.servers[A] = lambda command: None
        future = self.box.engine.invoke(A, CODE)
        self.box.settle()
        self.box.cut(A)
        self.assertIsInstance(future.error, RemotingSendError)
        self.box.servers[A] = lambda command: (0, None, b"", None)
        self.assertEqual(self.ask().code, 0)
        self.assertEqual(self.box.connects, [A, A])

    def test_go_away_costs_no_request(self) -> None:
        """The same request is sent once more, on a new connection."""
        answers = [ResponseCode.GO_AWAY, ResponseCode.SUCCESS]
        self.box.servers[A] = lambda command: (answers.pop(0), None, b"", None)
        self.assertEqual(self.ask().code, ResponseCode.SUCCESS)
        self.assertEqual(self.box.connects, [A, A])
        self.assertEqual(self.box.closed, [A])

    def test_go_away_twice_is_a_send_error(self) -> None:
        """A server that always sends clients away gets each request twice."""
        self.box.servers[A] = lambda command: (ResponseCode.GO_AWAY, None, b"", None)
        self.assertRaises(RemotingSendError, self.ask)
        self.assertEqual(len(self.box.requests), 2)

    def test_an_idle_connection_is_closed(self) -> None:
        """A connection without traffic for two minutes is closed."""
        self.box.servers[A] = lambda command: (0, None, b"", None)
        self.ask()
        self.box.advance(IDLE_MS - 1)
        self.assertEqual(self.box.closed, [])
        self.box.advance(IDLE_MS / 2)
        self.assertEqual(self.box.closed, [A])

    def test_bytes_that_are_no_frames_end_the_connection_and_name_the_address(self) -> None:
        """The open requests fail at once."""
        self.box.servers[A] = lambda command: None
        future = self.box.engine.invoke(A, CODE)
        self.box.settle()
        self.box.push(A, b"HTTP/1.1 400 Bad Request\r\n\r\n")
        self.box.settle()
        self.assertIn(A, str(future.error))
        self.assertEqual(self.box.closed, [A])

    def test_a_request_of_the_server_with_an_unknown_code_is_answered(self) -> None:
        """The answer is REQUEST_CODE_NOT_SUPPORTED, however many arrive."""
        self.box.servers[A] = lambda command: (0, None, b"", None)
        self.ask()
        self.box.requests.clear()
        for opaque in range(2000):
            self.box.push(A, encode_request(9999, opaque))
        self.box.settle()
        self.assertEqual({command.code for _, command in self.box.requests},
                         {ResponseCode.REQUEST_CODE_NOT_SUPPORTED})
        self.assertEqual(len(self.box.requests), 2000)

    def test_requests_after_the_end_fail_and_nothing_is_kept(self) -> None:
        """A closed engine keeps no connection, timer or task."""
        self.box.servers[A] = lambda command: (0, None, b"", None)
        self.ask()
        self.box.engine.close()
        self.assertRaises(RemotingConnectError, self.ask)
        counts = self.box.engine.debug_counts()
        self.assertEqual((counts["connections"], counts["waiting"], counts["tasks"]), (0, 0, 0))
