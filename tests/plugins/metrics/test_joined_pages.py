"""One page of metrics and one of health, made of those of several brokers."""

from __future__ import annotations

import json

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.observe.supervisor_pages import PageAnswer
from twistmq.plugins.metrics.joined_pages import join_health, join_metrics

PAGE = """\
# HELP rocketmq_messages_in_total Messages.
# TYPE rocketmq_messages_in_total counter
rocketmq_messages_in_total{{node_id="{name}",topic="t"}} {count}
# HELP twistmq_dispatch_seconds How long.
# TYPE twistmq_dispatch_seconds histogram
twistmq_dispatch_seconds_bucket{{le="1.0"}} 2.0
twistmq_dispatch_seconds_bucket{{le="+Inf"}} 3.0
twistmq_dispatch_seconds_count 3.0
twistmq_dispatch_seconds_sum 4.5
# HELP process_open_fds Files.
# TYPE process_open_fds gauge
process_open_fds 12.0
"""


def page(name: str, count: float) -> PageAnswer:
    """The metrics of a broker."""
    return PageAnswer(200, PAGE.format(name=name, count=count).encode())


def health(status: int, *reasons: str) -> PageAnswer:
    """The health of a broker."""
    return PageAnswer(status, json.dumps({
        "status": "broken" if reasons else "ok", "broker": "b", "reasons": reasons,
        "checks": {"store": "ok"}}).encode())


class JoinedMetricsTests(SynchronousTestCase):
    """/metrics."""

    def test_each_family_is_there_once_with_the_samples_of_all(self) -> None:
        """A family has one type and all samples; those without a broker's name get it."""
        status, body = join_metrics({"b-0": page("b-0", 1.0), "b-1": page("b-1", 5.0)})
        self.assertEqual((status, body.decode()), (200, """\
# HELP rocketmq_messages_in_total Messages.
# TYPE rocketmq_messages_in_total counter
rocketmq_messages_in_total{node_id="b-0",topic="t"} 1.0
rocketmq_messages_in_total{node_id="b-1",topic="t"} 5.0
# HELP twistmq_dispatch_seconds How long.
# TYPE twistmq_dispatch_seconds histogram
twistmq_dispatch_seconds_bucket{le="1.0",node_id="b-0"} 2.0
twistmq_dispatch_seconds_bucket{le="+Inf",node_id="b-0"} 3.0
twistmq_dispatch_seconds_count{node_id="b-0"} 3.0
twistmq_dispatch_seconds_sum{node_id="b-0"} 4.5
twistmq_dispatch_seconds_bucket{le="1.0",node_id="b-1"} 2.0
twistmq_dispatch_seconds_bucket{le="+Inf",node_id="b-1"} 3.0
twistmq_dispatch_seconds_count{node_id="b-1"} 3.0
twistmq_dispatch_seconds_sum{node_id="b-1"} 4.5
# HELP process_open_fds Files.
# TYPE process_open_fds gauge
process_open_fds{node_id="b-0"} 12.0
process_open_fds{node_id="b-1"} 12.0
"""))

    def test_a_broker_without_an_answer_is_left_out(self) -> None:
        """The metrics of the others are served; without any the status is 503."""
        gone = PageAnswer(0, b"", "Connection refused")
        status, body = join_metrics({"b-0": gone, "b-1": page("b-1", 5.0)})
        self.assertEqual(status, 200)
        self.assertNotIn(b"b-0", body)
        self.assertIn(b"process_open_fds{node_id=\"b-1\"} 12.0", body)
        self.assertEqual(join_metrics({"b-0": gone}), (503, b""))


class JoinedHealthTests(SynchronousTestCase):
    """/health."""

    def test_all_are_well(self) -> None:
        """The status is 200 when all brokers are well."""
        status, body = join_health({"b-0": health(200), "b-1": health(200)})
        found = json.loads(body)
        self.assertEqual((status, found["status"], found["reasons"]), (200, "ok", []))
        self.assertEqual(found["servers"]["b-1"]["checks"], {"store": "ok"})

    def test_one_that_is_ill_is_named(self) -> None:
        """The reasons name the broker; so does the reason of one that does not answer."""
        status, body = join_health({
            "b-0": health(200), "b-1": health(503, "store: full"),
            "b-2": PageAnswer(0, b"", "timed out"), "b-3": PageAnswer(404, b"<html>")})
        found = json.loads(body)
        self.assertEqual((status, found["status"]), (503, "broken"))
        self.assertEqual(found["reasons"], [
            "b-1: store: full", "b-2: it does not answer: timed out",
            "b-3: it does not answer: 404"])
