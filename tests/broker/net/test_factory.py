"""The common state of the connections of one port."""

from __future__ import annotations

from twisted.logger import LogEvent, LogLevel, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.constants import STALL_SECONDS, STALL_WARN_SECONDS
from twistmq.broker.net.factory import InFlight, StallWatch
from twistmq.broker.remoting.messages import Reply, Request, RequestHandler
from twistmq.broker.testing.conversation import Conversation, make_server
from twistmq.protocol.command import encode_request


class InFlightTests(SynchronousTestCase):
    """Bytes of requests that wait, over all connections."""

    def test_the_limit_itself_is_not_over_it(self) -> None:
        """The limit itself is not over it; half of it lets all paused connections read."""
        in_flight = InFlight(100)
        self.assertFalse(in_flight.add(100))
        self.assertTrue(in_flight.add(1))
        client = Conversation(make_server()).protocol
        in_flight.paused.add(client)
        self.assertEqual(list(in_flight.remove(50)), [])
        self.assertEqual(list(in_flight.remove(1)), [client])
        self.assertEqual(list(in_flight.remove(1)), [])
        self.assertEqual(in_flight.total_bytes, 49)


class StallWatchTests(SynchronousTestCase):
    """Work that held the reactor for too long is counted and logged."""

    def setUp(self) -> None:
        self.events: list[LogEvent] = []
        globalLogPublisher.addObserver(self.events.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.events.append)

    def counts(self) -> list[int]:
        """Return the numbers of the stalls that were logged."""
        return [event["count"] for event in self.events
                if event.get("log_level") is LogLevel.warn and "milliseconds" in event]

    def test_short_work_is_not_counted_and_stalls_are_logged_at_a_rate(self) -> None:
        """Short work is not counted; many stalls do not flood the log."""
        watch = StallWatch()
        watch.observe("requests", STALL_SECONDS * 0.99)
        self.assertEqual(watch.count, 0)
        watch.observe("requests", STALL_SECONDS)
        for number in range(10):
            watch.observe("requests", STALL_WARN_SECONDS + number)
        self.assertEqual(watch.count, 11)
        self.assertAlmostEqual(watch.longest_seconds, STALL_WARN_SECONDS + 9)
        self.assertEqual(self.counts(), [1, 2, 4, 8])

    def test_what_a_busy_machine_makes(self) -> None:
        """A stall of a few milliseconds is counted, and logged at debug only."""
        StallWatch().observe("requests", STALL_WARN_SECONDS * 0.9)
        [event] = [event for event in self.events if "milliseconds" in event]
        self.assertEqual(event["log_level"], LogLevel.debug)

    def test_a_slow_handler_is_seen(self) -> None:
        """The time of a read is observed, whatever its handlers did."""
        server = make_server()

        def slow(request: Request[object]) -> Reply:
            server.reactor.advance(0.020)  # type: ignore[attr-defined]
            raise ZeroDivisionError("slow and broken")

        server.dispatcher.handlers[901] = RequestHandler(901, slow)
        client = Conversation(server)
        client.says(encode_request(900, 1))
        self.assertEqual(server.stalls.count, 0)
        client.says(encode_request(901, 1))
        self.assertEqual(server.stalls.count, 1)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
