"""Messages that were delivered to consumers, until the broker knows that they are consumed."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.protocol.trace_records import ContextCode
from twistmq.trace.deliveries import Deliveries, Delivery

TIMEOUT_MS = 900_000


class DeliveriesTests(SynchronousTestCase):
    """The deliveries of a few messages to one group, until their acknowledgements."""

    def setUp(self) -> None:
        self.deliveries = Deliveries(100)
        #: The group's offset by topic and queue.
        self.offsets: dict[tuple[str, int], int] = {}

    def deliver(self, message_id: str, queue_offset: int, *, topic: str = "T", queue_id: int = 0,
                at_ms: int = 0, request_id: str = "q") -> bool:
        delivery = Delivery(b"host", "g", request_id, message_id, "k", at_ms)
        return self.deliveries.add(topic, queue_id, queue_offset, delivery)

    def ended(self, now_ms: int) -> list[tuple[str, int, int | None]]:
        """Return (message id, cost, code) of each delivery that has just ended."""
        found = self.deliveries.ended(
            lambda group, topic, queue_id: self.offsets.get((topic, queue_id), -1), now_ms,
            TIMEOUT_MS)
        for host, record in found:
            self.assertEqual((host, record.group, record.time_ms), (b"host", "g", now_ms))
            self.assertEqual(record.success, record.context_code == ContextCode.SUCCESS)
        return [(record.message_id, record.cost_ms, record.context_code) for _, record in found]

    def test_offset_goes_past_messages(self) -> None:
        """Messages before the committed offset are consumed, and each is reported once."""
        for offset in range(3):
            self.deliver(f"m{offset}", offset, at_ms=10 * offset)
        self.assertEqual(self.ended(30), [])
        self.offsets["T", 0] = 2
        self.assertEqual(self.ended(40), [("m0", 40, 0), ("m1", 30, 0)])
        self.assertEqual(self.ended(50), [])
        self.offsets["T", 0] = 3
        self.assertEqual(self.ended(60), [("m2", 40, 0)])
        self.assertEqual(self.deliveries.count, 0)

    def test_queues_are_apart(self) -> None:
        """An offset applies only to its own topic and queue."""
        self.deliver("a", 0)
        self.deliver("b", 0, queue_id=1)
        self.deliver("c", 0, topic="U")
        self.offsets["T", 1] = 1
        self.assertEqual(self.ended(1), [("b", 1, 0)])
        self.offsets["U", 0] = 1
        self.assertEqual(self.ended(2), [("c", 2, 0)])

    def test_sent_back(self) -> None:
        """It failed, whatever the offset says then; another message of that id is not meant."""
        self.deliver("a", 0)
        self.deliver("b", 1)
        self.deliveries.sent_back("g", "a")
        self.deliveries.sent_back("other", "b")
        self.deliveries.sent_back("g", "unknown")
        self.offsets["T", 0] = 2
        self.assertEqual(self.ended(5), [("a", 5, ContextCode.FAILED), ("b", 5, 0)])

    def test_a_message_not_consumed_in_time_times_out(self) -> None:
        """A message that the group does not acknowledge in time is reported as timed out."""
        self.deliver("a", 0, at_ms=0)
        self.deliver("b", 1, at_ms=10)
        self.assertEqual(self.ended(TIMEOUT_MS - 1), [])
        self.assertEqual(self.ended(TIMEOUT_MS), [("a", TIMEOUT_MS, ContextCode.TIME_OUT)])
        self.assertEqual(self.deliveries.count, 1)

    def test_delivered_again(self) -> None:
        """The last delivery of a place counts, also one below an offset that does not move."""
        self.deliver("a", 0, request_id="first")
        self.deliver("a", 0, at_ms=7, request_id="second")
        self.assertEqual(self.deliveries.count, 1)
        self.offsets["T", 0] = 1
        self.assertEqual(self.ended(10), [("a", 3, 0)])
        self.deliver("a", 0, at_ms=20)
        self.assertEqual(self.ended(21), [("a", 1, 0)])

    def test_deliveries_are_bounded(self) -> None:
        """No more deliveries are kept than the limit allows."""
        self.deliveries = Deliveries(2)
        self.assertEqual([self.deliver(f"m{n}", n) for n in range(3)], [True, True, False])
        self.offsets["T", 0] = 1
        self.ended(1)
        self.assertTrue(self.deliver("m3", 3))

    def test_clock_that_goes_back(self) -> None:
        """The cost is never negative, even if the clock goes back."""
        self.deliver("a", 0, at_ms=100)
        self.offsets["T", 0] = 1
        self.assertEqual(self.ended(50), [("a", 0, 0)])
