"""The metrics that a broker sends to a collector."""

from __future__ import annotations

import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.interop.servers import wait_until
from tests.kernel_case import count_put
from tests.plugins.metrics.case import NO_OTLP, samples_of
from twistmq.broker.errors import SettingsError
from twistmq.broker.testing import RunningBroker, running_broker
from twistmq.plugins.metrics import Plugin


class Collector:
    """A collector on its own thread; ``stop`` ends it."""

    def __init__(self, port: int = 0) -> None:
        #: The headers and the body of each request.
        self.requests: list[tuple[dict[str, str], Any]] = []
        self.status = 200
        #: Whether an answer may be sent.
        self.may_answer = threading.Event()
        self.may_answer.set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            """Accepts one export."""

            def do_POST(self) -> None:
                """Record the export."""
                from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2

                body = self.rfile.read(int(self.headers["Content-Length"]))
                export = metrics_service_pb2.ExportMetricsServiceRequest.FromString(body)
                collector.requests.append(({"path": self.path, **self.headers}, export))
                collector.may_answer.wait(30)
                self.send_response(collector.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *arguments: Any) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def stop(self) -> None:
        """Stop the server."""
        self.may_answer.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def metrics(self) -> dict[str, list[Any]]:
        """The metrics of the last export by name, with their parts."""
        metrics: dict[str, list[Any]] = {}
        for resource in self.requests[-1][1].resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    metrics.setdefault(metric.name, []).append(metric)
        return metrics


def labels_of(attributes: Any) -> dict[str, str]:
    """The labels of a sample, or the attributes of a server."""
    return {each.key: each.value.string_value for each in attributes}


class OtlpCase(SynchronousTestCase):
    """A broker that exports ten times a second."""

    if NO_OTLP:
        skip = NO_OTLP

    def collector(self, port: int = 0) -> Collector:
        """Start a collector."""
        collector = Collector(port)
        self.addCleanup(collector.stop)
        return collector

    def start(self, port: int, **settings: str) -> RunningBroker:
        """Start a broker for a collector."""
        running = running_broker({
            "metrics.otlp.endpoint": f"http://127.0.0.1:{port}/v1/metrics",
            "metrics.otlp.interval": "100",
            **{name.replace("__", "."): text for name, text in settings.items()}})
        broker = running.__enter__()
        self.addCleanup(running.__exit__, None, None, None)
        return broker

    def outage_lines(self) -> list[str]:
        """Return the logged lines about the collector, none of which is too long."""
        return [event["fault"] for event in self.events if "fault" in event]

    def setUp(self) -> None:
        """Record the lines of the exporter."""
        from twistmq.plugins.metrics.otlp_exporter import OtlpExporter

        self.events: list[dict[str, Any]] = []
        self.patch(OtlpExporter, "log", Noted(self.events))


class Noted:
    """A logger that records the values of each line."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        self._events = events

    def __getattr__(self, level: str) -> Any:
        return lambda text, *arguments, **values: self._events.append({"text": text, **values})


class ExportTests(OtlpCase):
    """The exports that a collector gets."""

    def test_the_samples_are_those_of_the_page_for_prometheus(self) -> None:
        """A broker that does both gives the same names, labels and values."""
        collector = self.collector()
        broker = self.start(collector.port, metricsExporterType="PROM", metricsLabel="zone:a",
                            metricsPromExporterPort="0", metrics__rpc_latency="true",
                            metrics__otlp__headers="Authorization: Bearer x, X-Scope:team")
        with broker.client() as client:
            client.send("orders", b"paid")
            broker.call(count_put, broker.kernel.stats,
                        {f"topic-{number}": (number, number * 10) for number in range(250)})
            seen = len(collector.requests)
            wait_until("an export", lambda: len(collector.requests) > seen + 1)
        plugin = broker.kernel.hooks.find(Plugin)
        assert plugin is not None and plugin.exporter is not None
        with urllib.request.urlopen(f"http://127.0.0.1:{plugin.exporter.port}/metrics") as page:
            served = samples_of(page.read().decode())
        headers, export = collector.requests[-1]
        self.assertEqual(
            {name: headers[name] for name in ("path", "Content-Type", "Authorization", "X-Scope")},
            {"path": "/v1/metrics", "Content-Type": "application/x-protobuf",
             "Authorization": "Bearer x", "X-Scope": "team"})
        resource = labels_of(export.resource_metrics[0].resource.attributes)
        self.assertEqual((resource["service.name"], resource["service.instance.id"]),
                         ("twistmq-broker", broker.kernel.broker_name))
        metrics = collector.metrics()
        self.assertEqual(
            {name.removesuffix("_total").removesuffix("_bucket").removesuffix("_sum")
             .removesuffix("_count") for name, _ in served if not name.startswith("process_")},
            set(metrics))
        counts = {
            labels["topic"]: (point.as_double, labels)
            for part in metrics["rocketmq_messages_in"] for point in part.sum.data_points
            for labels in [labels_of(point.attributes)]}
        self.assertEqual(len(metrics["rocketmq_messages_in"]), 3)
        self.assertEqual(counts["topic-249"][0], 249)
        self.assertEqual(counts["orders"], (1, {
            "topic": "orders", "is_system": "false", "cluster": "DefaultCluster",
            "node_type": "broker", "node_id": broker.kernel.broker_name, "zone": "a"}))
        total = metrics["rocketmq_messages_in"][0].sum
        self.assertTrue(total.is_monotonic)
        self.assertEqual(total.aggregation_temporality, 2)
        self.assertEqual(total.data_points[0].start_time_unix_nano // 1_000_000,
                         broker.kernel.started_ms)
        connections, = metrics["twistmq_connections"]
        self.assertEqual(labels_of(connections.gauge.data_points[0].attributes), {})
        latency = metrics["rocketmq_rpc_latency_milliseconds"][0].histogram.data_points[0]
        self.assertEqual(sum(latency.bucket_counts), latency.count)
        self.assertEqual(len(latency.bucket_counts), len(latency.explicit_bounds) + 1)

    def test_nothing_is_served_for_prometheus_by_the_export_alone(self) -> None:
        """Nothing is exported after the broker has stopped."""
        collector = self.collector()
        with running_broker({"metrics.otlp.interval": "100", "metrics.otlp.endpoint":
                             f"http://127.0.0.1:{collector.port}/v1/metrics"}) as broker:
            wait_until("an export", lambda: collector.requests)
            plugin = broker.kernel.hooks.find(Plugin)
            assert plugin is not None
            self.assertIsNone(plugin.exporter)
            collector.may_answer.clear()
            seen = len(collector.requests)
            wait_until("an export in progress", lambda: len(collector.requests) > seen)
        self.assertEqual(self.outage_lines(), [])


class OutageTests(OtlpCase):
    """A collector that does not accept the metrics."""

    def test_a_collector_that_is_away_costs_one_line(self) -> None:
        """When it returns, it gets all counts; when it fails again, another line is logged."""
        first = Collector()
        first.stop()
        broker = self.start(first.port)
        with broker.client() as client:
            client.send("orders", b"paid")
        wait_until("the line", self.outage_lines)
        exporter = broker.kernel.hooks.find(Plugin).otlp  # type: ignore[union-attr]
        assert exporter is not None
        begun: list[float] = []
        self.patch(exporter, "_collecting", _counted(exporter._collecting, begun))
        wait_until("further exports", lambda: len(begun) > 3)
        self.assertEqual(len(self.outage_lines()), 1)
        collector = self.collector(first.port)
        wait_until("an export", lambda: collector.requests)
        self.assertIn("rocketmq_messages_in", collector.metrics())
        collector.status = 503
        wait_until("another line", lambda: len(self.outage_lines()) == 2)
        self.assertIn("it answers with HTTP status 503", self.outage_lines()[1])

    def test_a_collector_that_does_not_answer_holds_nothing_up(self) -> None:
        """The broker serves clients meanwhile, and gives up after the time-out."""
        collector = self.collector()
        collector.may_answer.clear()
        broker = self.start(collector.port, metrics__otlp__timeout="200")
        wait_until("an export", lambda: collector.requests)
        with broker.client() as client:
            client.send("orders", b"paid")
        wait_until("the line", self.outage_lines)
        self.assertEqual(self.outage_lines(), ["no answer within 0.2 s"])


def _counted(collecting: Any, begun: list[float]) -> Any:
    def count() -> Any:
        begun.append(0)
        return collecting()

    return count


class SettingTests(SynchronousTestCase):
    """Settings that are refused at the start."""

    if NO_OTLP:
        skip = NO_OTLP

    def refused(self, **settings: str) -> str:
        """Start a broker; :returns: why it does not start."""
        def start() -> None:
            with running_broker({"metrics.otlp.endpoint": "http://127.0.0.1:4318/v1/metrics",
                                 **{name.replace("__", "."): text
                                    for name, text in settings.items()}}):
                raise AssertionError("it started")

        return str(self.assertRaises(SettingsError, start))

    def test_an_address_that_is_none_is_refused(self) -> None:
        """The error names the address."""
        for text in ("127.0.0.1:4318", "grpc://127.0.0.1:4317", "http://", "http://a:x/",
                     "http://a b/", "http://a\u00e9/"):
            self.assertIn(f"metrics.otlp.endpoint={text}",
                          self.refused(metrics__otlp__endpoint=text))

    def test_an_address_with_a_secret_is_refused_without_it(self) -> None:
        """Logs, doctor and getBrokerConfig show the address."""
        for text in ("http://user:secret@127.0.0.1:4318/", "http://secret@a/", "http://a/?k=secret",
                     "user:secret@127.0.0.1:4318"):
            why = self.refused(metrics__otlp__endpoint=text)
            self.assertIn("give a password or a token in metrics.otlp.headers", why)
            self.assertNotIn("secret", why)

    def test_a_header_that_the_exporter_writes_is_refused(self) -> None:
        """A collector could not read a request with two of them, or with one header twice."""
        for text in ("content-length:0", "Transfer-Encoding:chunked", "a:b,Host:c"):
            self.assertIn("the exporter writes itself", self.refused(metrics__otlp__headers=text))
        self.assertIn("the header 2 has the name of an earlier one",
                      self.refused(metrics__otlp__headers="X-Key:secret,x-key:secret"))

    def test_a_header_that_is_none_is_refused_without_its_value(self) -> None:
        """The value may be a secret."""
        for text in ("secret", "a b:secret", "a:", "a:b,secret"):
            why = self.refused(metrics__otlp__headers=text)
            self.assertIn("metrics.otlp.headers: the header", why)
            self.assertNotIn("secret", why)

    def test_a_label_is_checked_without_prometheus(self) -> None:
        """The check is the same as with Prometheus."""
        self.assertIn("metricsLabel=zone", self.refused(metricsLabel="zone"))

    def test_headers_are_secret(self) -> None:
        """No tool shows them."""
        row, = (row for row in Plugin.register_settings() if row.name == "metrics.otlp.headers")
        self.assertTrue(row.is_secret)
