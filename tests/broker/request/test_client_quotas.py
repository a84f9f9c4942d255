"""The memory that heartbeats may use."""

from __future__ import annotations

from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.constants import EXPRESSION_LENGTH_MAX, HEARTBEAT_SIZE_MAX
from twistmq.broker.request.client_quotas import (
    ClientSpace,
    consumer_key,
    consumer_size,
    producer_key,
    producer_size,
)
from twistmq.broker.testing.kernel import KernelBox
from twistmq.protocol.bodies import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import RequestRefused
from twistmq.protocol.log_rate import LINES_A_MINUTE


def heartbeat(
    *producers: str, consumers: tuple[ConsumerData, ...] = (), client_id: str = "c",
    without_sub: bool = False,
) -> HeartbeatData:
    return HeartbeatData(client_id, tuple(ProducerData(group) for group in producers), consumers,
                         without_sub=without_sub)


def consumer(group: str, topics: int, expression: str = "*") -> ConsumerData:
    """Return a group with a number of subscriptions."""
    return ConsumerData(group, subscription_data_set=tuple(
        SubscriptionData(f"T{number}", expression) for number in range(topics)))


class ClientSpaceTests(SynchronousTestCase):
    """The bytes by connection and in total."""

    def refusal(self, space: ClientSpace, channel_id: int, beat: HeartbeatData) -> RequestRefused:
        error: RequestRefused = self.assertRaises(RequestRefused, space.check, channel_id, beat, 0)
        return error

    def test_one_connection_has_its_bound_of_bytes(self) -> None:
        """One connection has a limit; data that does not grow is accepted above it."""
        size = producer_size("P1")
        space = ClientSpace(2 * size, 100 * size)
        space.check(1, heartbeat("P1", "P2"), 0)
        for group in ("P1", "P2"):
            space.set(1, producer_key(group), size)
        space.check(1, heartbeat("P1", "P2"), 0)
        error = self.refusal(space, 1, heartbeat("P3"))
        self.assertEqual(error.response_code, ResponseCode.INVALID_PARAMETER)
        self.assertIn(f"{3 * size} bytes, more than {2 * size}", str(error))
        space.check(2, heartbeat("P3"), 0)
        space.free(1, producer_key("P1"))
        space.check(1, heartbeat("P3"), 0)

    def test_a_compiled_expression_counts_as_what_it_takes(self) -> None:
        """An expression of a language is charged with its compiled form, a text of tags is not."""
        def size(kind: str) -> int:
            return consumer_size(ConsumerData("g", subscription_data_set=(
                SubscriptionData("T", "x" * 1000, expression_type=kind),)))

        self.assertGreater(size("SQL92") - size("TAG"), 10_000)
        self.assertLess(size("TAG"), 3000)

    def test_all_connections_together_have_a_bound_of_bytes(self) -> None:
        """All connections together have a limit, which is freed when they leave."""
        size = producer_size("P")
        space = ClientSpace(10 * size, 2 * size, 0)
        for channel_id in (1, 2):
            space.check(channel_id, heartbeat("P"), 0)
            space.set(channel_id, producer_key("P"), size)
        self.assertEqual(self.refusal(space, 3, heartbeat("P")).response_code,
                         ResponseCode.SYSTEM_BUSY)
        space.check(1, heartbeat("P"), 0)
        space.free(2, producer_key("P"))
        self.assertEqual(space.total_bytes, size)
        space.check(3, heartbeat("P"), 0)

    def test_lines_of_the_log(self) -> None:
        """Heartbeats that are refused, however many, fill no log."""
        space = ClientSpace(10**6, 0, 0)
        with capturedLogs() as events:
            for _ in range(50):
                self.refusal(space, 1, heartbeat("P"))
        self.assertEqual(len(events), LINES_A_MINUTE)

    def test_little_is_free(self) -> None:
        """A connection with little data is always accepted, but no more than that."""
        size = producer_size("P1")
        space = ClientSpace(10 * size, 2 * size, 2 * size)
        for group in ("P1", "P2"):
            space.check(1, heartbeat(group), 0)
            space.set(1, producer_key(group), size)
        for channel_id in (2, 3):
            space.check(channel_id, heartbeat("P1", "P2"), 0)
            self.assertEqual(self.refusal(space, channel_id, heartbeat("P1", "P2", "P3"))
                             .response_code, ResponseCode.SYSTEM_BUSY)
            space.set(channel_id, producer_key("P1"), size)
        self.assertEqual(self.refusal(space, 1, heartbeat("P3")).response_code,
                         ResponseCode.SYSTEM_BUSY)
        self.assertEqual(space.total_bytes, 4 * size)

    def test_subscriptions_left_out(self) -> None:
        """A heartbeat that stands for earlier subscriptions counts as these."""
        data = consumer("G", 5)
        space = ClientSpace(consumer_size(data) + 100, 1 << 30)
        space.set(1, consumer_key("G"), consumer_size(data))
        space.check(1, heartbeat(consumers=(ConsumerData("G"),), without_sub=True), 0)
        self.refusal(space, 1, heartbeat("P", consumers=(ConsumerData("G"),), without_sub=True))
        space.check(1, heartbeat("P", consumers=(ConsumerData("G"),)), 0)

    def test_names_and_expressions_that_nothing_in_use_needs_are_refused(self) -> None:
        """Unused names and expressions are refused by name."""
        space = ClientSpace()
        data = consumer("G", 1, "a" * (EXPRESSION_LENGTH_MAX + 1))
        for beat, word in ((heartbeat("P" * 256), "group"), (heartbeat(client_id="c" * 1025),
                                                             "clientID"),
                           (heartbeat(consumers=(ConsumerData("G" * 256),)), "group"),
                           (heartbeat(consumers=(data,)), "expression")):
            error = self.refusal(space, 1, beat)
            self.assertEqual(error.response_code, ResponseCode.INVALID_PARAMETER)
            self.assertIn(word, str(error))
        space.check(1, heartbeat("P" * 248, client_id="c" * 1024), 0)


class HeartbeatTests(SynchronousTestCase):
    """The heartbeats of a broker."""

    def setUp(self) -> None:
        self.box = KernelBox()
        self.addCleanup(self.box.stop)
        self.peer = self.box.peer()

    def ask(self, beat: HeartbeatData) -> int:
        return self.box.ask(RequestCode.HEART_BEAT, body=beat.encode_standard(),
                            peer=self.peer).code

    def test_too_much(self) -> None:
        """Nothing of a refused heartbeat is kept; the next one may be smaller."""
        clients = self.box.kernel.clients
        self.assertEqual(self.ask(heartbeat("P", consumers=(consumer("G", 5000),))),
                         ResponseCode.INVALID_PARAMETER)
        self.assertEqual((clients.consumers, clients.producers, clients.space.total_bytes),
                         ({}, {}, 0))
        self.assertEqual(self.ask(heartbeat("P" * HEARTBEAT_SIZE_MAX)),
                         ResponseCode.INVALID_PARAMETER)
        self.assertEqual(self.ask(heartbeat("P", consumers=(consumer("G", 500),))),
                         ResponseCode.SUCCESS)
        clients.connection_lost(self.peer)
        self.assertEqual((clients.consumers, clients.producers, clients.space.total_bytes),
                         ({}, {}, 0))

    def test_one_line(self) -> None:
        """One line is logged when a client of many groups registers, and none when
        it repeats it.
        """
        groups = [f"P{number}" for number in range(100)]
        with capturedLogs() as events:
            for _ in range(2):
                self.assertEqual(self.ask(heartbeat(*groups)), ResponseCode.SUCCESS)
            self.box.kernel.clients.connection_lost(self.peer)
        lines = [event for event in events if "groups" in event]
        self.assertEqual([line["groups"].split(", ")[0] for line in lines],
                         ["producer group P0"] * 2)
        self.assertEqual([line["groups"].endswith("and 95 more") for line in lines], [True] * 2)
