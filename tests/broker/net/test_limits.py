"""The shares of the process that connections may use together."""

from __future__ import annotations

import resource
from collections.abc import Callable

from twisted.logger import LogEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from tests.cost import GROWTH_MAX, growth
from twistmq.broker.constants import OPEN_QUEUE_FILES_MAX
from twistmq.broker.edge.clock import connections_max
from twistmq.broker.net.limits import ConnectionCount, KeptBytes
from twistmq.broker.testing.conversation import Conversation, make_server


class KeptBytesTests(SynchronousTestCase):
    """The memory for peers that do not finish."""

    class _Connection:
        def __init__(self) -> None:
            self.aborted: list[str] = []

        def abort(self, why: str) -> None:
            self.aborted.append(why)

    def test_the_longest_goes_first(self) -> None:
        """The oldest are closed, as many as needed, in their order; growth keeps the order."""
        kept = KeptBytes(100)
        a, b, c = self._Connection(), self._Connection(), self._Connection()
        for connection, size in ((a, 30), (b, 30), (a, 40), (c, 30)):
            kept.set(connection, size)
        self.assertEqual(kept.total_bytes, 100)
        kept.set(c, 80)
        self.assertEqual([len(each.aborted) for each in (a, b, c)], [1, 1, 0])
        self.assertEqual(kept.total_bytes, 80)

    def test_a_finished_peer_is_forgotten_and_a_new_one_comes_last(self) -> None:
        """A finished peer no longer counts, and a peer that begins again is the newest."""
        kept = KeptBytes(100)
        a, b = self._Connection(), self._Connection()
        kept.set(a, 50)
        kept.set(b, 50)
        kept.set(a, 0)
        kept.set(a, 51)
        self.assertEqual([len(each.aborted) for each in (a, b)], [0, 1])

    def test_one_alone(self) -> None:
        """A peer that exceeds the limit alone is closed itself, once."""
        kept = KeptBytes(100)
        a = self._Connection()
        kept.set(a, 101)
        kept.set(a, 0)
        self.assertEqual((len(a.aborted), kept.total_bytes), (1, 0))

    def test_cost_of_many(self) -> None:
        """Each is found in constant time, however many were closed before."""
        def prepare(count: int) -> Callable[[], object]:
            kept = KeptBytes(count)
            for _ in range(count):
                kept.set(self._Connection(), 1)
            whole = self._Connection()
            return lambda: kept.set(whole, count)

        self.assertLess(growth(prepare, 10_000), GROWTH_MAX)


class ConnectionCountTests(SynchronousTestCase):
    """The file descriptors for connections."""

    def test_a_connection_too_many_is_not_made(self) -> None:
        """A connection above the limit is closed; one that ends makes room; the log is limited."""
        events: list[LogEvent] = []
        globalLogPublisher.addObserver(events.append)
        self.addCleanup(globalLogPublisher.removeObserver, events.append)
        server = make_server(connections=ConnectionCount(lambda: 2))
        first = Conversation(server)
        Conversation(server)
        for _ in range(10):
            self.assertIsNone(server.buildProtocol(None))
        self.assertEqual([event["refused"] for event in events if "refused" in event],
                         [1, 2, 4, 8])
        first.connection.drop()
        Conversation(server)
        self.assertEqual(server.connections.count, 2)

    def test_room_for_the_store(self) -> None:
        """A store can open its queue files, whatever the number of connections is."""
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        left = limit - connections_max()
        self.assertGreater(left, min(OPEN_QUEUE_FILES_MAX, limit // 2))
        self.assertGreater(connections_max(), 0)
