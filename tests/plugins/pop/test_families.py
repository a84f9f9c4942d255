"""The metrics of pops."""

from __future__ import annotations

from typing import Any

from tests.plugins.pop.case import RETRY_TOPIC, PopTestCase
from twistmq.broker.observe.metrics import Histogram
from twistmq.plugins.pop.families import families
from twistmq.protocol.bodies import SubscriptionGroupConfig
from twistmq.protocol.codes import ResponseCode

Samples = dict[tuple[str, ...], Any]


class FamiliesTests(PopTestCase):
    """The numbers while messages are popped, acknowledged and revived."""

    def samples(self, name: str) -> Samples:
        """Samples of one metric, by the values of its labels."""
        made = families(self.box.kernel, self.service.state, self.service.queues)
        [found] = [family for family in made
                   if family.name == f"rocketmq_pop_{name}"]
        return dict(found.samples)

    def value(self, name: str) -> Any:
        [value] = self.samples(name).values()
        return value

    def backlog(self) -> dict[str, tuple[float, float]]:
        """Revive queues that are not done: messages, and how late the next is, ms."""
        late = self.samples("revive_latency_milliseconds")
        return {queue: (count, late[queue,])
                for (queue,), count in self.samples("revive_lag_milliseconds").items() if count}

    def test_nothing_yet(self) -> None:
        """Each revive queue has no lag, and nothing waits."""
        self.turn()
        self.assertEqual(set(self.samples("revive_lag_milliseconds").values()), {0})
        self.assertEqual(len(self.samples("revive_latency_milliseconds")), 8)
        self.assertEqual((self.value("offset_buffer_size"), self.value("checkpoint_buffer_size")),
                         (0, 0))
        for name in ("revive_in_message", "revive_out_message", "revive_retry_messages"):
            self.assertEqual(self.samples(name), {})

    def test_one_comes_again(self) -> None:
        """Two of three messages are acknowledged; the third one is stored again."""
        self.send_some(3, 1)
        popped = self.pop()
        self.assertEqual(self.value("offset_buffer_size"), 1)
        self.ack(*popped[:2])
        came = {("g", "T", "CK", "PUT_OK"): 1, ("g", "T", "ACK", "PUT_OK"): 2}
        self.assertEqual((self.samples("revive_in_message"), self.samples("revive_out_message")),
                         (came, {}))
        self.pass_time(4500)
        [[queue, (behind, late_ms)]] = self.backlog().items()
        self.assertEqual((behind, late_ms), (1, 0), msg="the check point is there a second ahead")
        self.assertEqual(self.samples("revive_retry_messages"), {})
        self.pass_time(4000)
        self.assertEqual(self.retries(), [b"2"])
        self.assertEqual(self.samples("revive_in_message"), came)
        self.assertEqual(self.samples("revive_out_message"),
                         {("g", "T", queue, "CK"): 1, ("g", "T", queue, "ACK"): 2})
        self.assertEqual(self.samples("revive_retry_messages"), {("g", "T", "PUT_OK"): 1})
        self.assertEqual((self.backlog(), self.value("offset_buffer_size")), ({}, 0))

    def test_lag_of_the_revive_queue_grows_while_retries_fail(self) -> None:
        """While retries cannot be stored, their queue is behind, and later and later."""
        self.send(b"x")
        self.pop()
        self.pass_time(4500)
        self.box.kernel.store.log_retention.disk_full = True
        self.pass_time(3000)
        [first] = self.backlog().values()
        self.pass_time(2000)
        [second] = self.backlog().values()
        self.assertEqual((first[0], second), (1, (1, first[1] + 2000)))
        self.assertGreater(first[1], 0)
        [[labels, count]] = self.samples("revive_retry_messages").items()
        self.assertEqual(labels, ("g", "T", "SERVICE_NOT_AVAILABLE"))
        self.assertGreater(count, 1)

    def test_a_check_point_that_cannot_be_stored_is_counted_with_the_reason(self) -> None:
        """A check point that cannot be stored is counted with the reason."""
        self.send(b"x")
        self.box.kernel.store.log_retention.disk_full = True
        self.turn()
        self.assertEqual(self.ask_pop().code, ResponseCode.SERVICE_NOT_AVAILABLE)
        self.assertEqual(self.samples("revive_in_message"),
                         {("g", "T", "CK", "SERVICE_NOT_AVAILABLE"): 1})

    def test_in_memory(self) -> None:
        """Check points in memory are counted, and each scan of them is timed."""
        self.restart(enablePopBufferMerge="true")
        self.send_some(2, 2)
        popped = self.pop(invisible_ms=60_000)
        self.assertEqual((self.value("checkpoint_buffer_size"), self.samples("revive_in_message")),
                         (2, {}))
        self.ack(*popped)
        self.assertEqual(self.value("checkpoint_buffer_size"), 0)
        scans = self.value("buffer_scan_time_consume_milliseconds")
        assert isinstance(scans, Histogram)
        before = sum(scans.counts)
        self.turn()
        self.assertEqual(sum(scans.counts), before + 1)

    def test_groups_and_topics_that_are_gone_are_forgotten(self) -> None:
        """Groups and topics that are gone are forgotten."""
        kernel = self.box.kernel
        kernel.subscription_group.update(SubscriptionGroupConfig(group_name="g"), {})
        self.send(b"x")
        self.pop()
        self.pass_time(9000)
        self.assertTrue(self.retries(RETRY_TOPIC))
        names = ("revive_in_message", "revive_out_message", "revive_retry_messages")
        self.run_task("forget pops of deleted topics and groups")
        self.assertEqual([len(self.samples(name)) for name in names], [1, 1, 1])
        kernel.subscription_group.delete("g")
        self.run_task("forget pops of deleted topics and groups")
        self.assertEqual([self.samples(name) for name in names], [{}, {}, {}])
