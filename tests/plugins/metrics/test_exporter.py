"""The pages of a broker after a little of everything, compared with those of Apache's broker."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Final

from twisted.trial.unittest import SynchronousTestCase

from tests.interop.metrics_workload import GROUP, POP_GROUP, TOPIC, Series, Workload, series_of
from tests.interop.servers import wait_until
from tests.kernel_case import count_put
from tests.plugins.metrics.case import MetricsTestCase
from twistmq.broker import hookimpl
from twistmq.broker.errors import SettingsError
from twistmq.broker.observe.metrics import MetricFamily
from twistmq.broker.testing import running_broker
from twistmq.plugins.metrics import Plugin
from twistmq.protocol.errors import StoreError

_GOLDEN: Final = Path(__file__).resolve().parents[2] / "golden/metrics/series.json"

#: What Apache's broker has and this one has not.
ABSENT: Final = {
    "target_info": "says which library wrote the page",
    "otel_scope_info": "says which library wrote the page",
    "rocketmq_message_size": "needs a look at each message; throughput by messages is the mean",
    "rocketmq_topic_create_execution_time_milliseconds": "rocketmq_rpc_latency has it by code",
    "rocketmq_consumer_group_create_execution_time_milliseconds":
        "rocketmq_rpc_latency has it by code",
    "rocketmq_finish_message_latency_milliseconds":
        "Apache's values are seconds, whatever the name says",
    "rocketmq_delay_message_latency_seconds": "needs a look at each timed message",
    "rocketmq_timer_message_snapshot": "each scrape would read 86,400 slots of the wheel",
}
#: Labels that Apache's have and these have not.
ABSENT_LABELS: Final = {
    "rocketmq_messages_in_total": {"message_type": "what is counted is counted by topic"},
    "rocketmq_throughput_in_total": {"message_type": "what is counted is counted by topic"},
}
#: What Apache's broker has once a timed message is due, which the workload does not wait for.
NOT_CAPTURED: Final = {"rocketmq_timer_dequeue_total"}


class WorkloadTests(MetricsTestCase):
    """The same requests as Apache's broker got when tests/golden/metrics was captured."""

    def setUp(self) -> None:
        self.start(metricsLabel="zone:a, rack:b", metrics__rpc_latency="true")
        client = self.broker.client()
        self.addCleanup(client.close)
        Workload(client).run()
        self.addCleanup(self.flushLoggedErrors)
        wait_until("the timed message is entered", lambda: self.samples().get(
            ("rocketmq_timer_enqueue_total", frozenset({
                "topic": TOPIC, "storage_type": "local", "storage_medium": "disk"}.items()))))
        wait_until("the delayed message comes", lambda: client.max_offset(TOPIC) == 7)

    def golden(self) -> Series:
        return {name: (kind, labels)
                for name, (kind, labels) in json.loads(_GOLDEN.read_text()).items()}

    def value(self, name: str, **labels: str) -> float:
        return self.samples()[name, frozenset(labels.items())]

    def test_names_kinds_and_labels(self) -> None:
        """The page has exactly Apache's metrics, except those that are documented as missing."""
        ours = {name: found for name, found in series_of(self.page()).items()
                if name.startswith("rocketmq_")}
        golden = self.golden()
        self.assertEqual(set(golden) - set(ours), set(ABSENT))
        self.assertEqual(set(ours) - set(golden) - NOT_CAPTURED, set())
        for name in set(ours) & set(golden):
            kind, labels = golden[name]
            wanted = [label for label in labels if label not in ABSENT_LABELS.get(name, ())]
            self.assertEqual(ours[name], (kind, wanted), msg=name)

    def test_five_messages_a_commits_and_a_delayed_ones(self) -> None:
        """Five messages, a commit's and a delayed one's; three are consumed, five are pulled."""
        labels = {"consumer_group": GROUP, "topic": TOPIC, "is_retry": "false",
                  "is_system": "false"}
        samples = self.samples()
        behind, in_flight, ready, latency, queueing = (
            samples[f"rocketmq_consumer_{name}", frozenset(labels.items())]
            for name in ("lag_messages", "inflight_messages", "ready_messages",
                         "lag_latency_milliseconds", "queueing_latency_milliseconds"))
        # Apache's broker says 4, 2 and 2 of the same, once the delayed one came.
        self.assertEqual((in_flight, behind), (2, ready + 2))
        self.assertGreaterEqual(ready, 1)
        self.assertTrue(0 <= queueing <= latency < 60_000, msg=f"{queueing} {latency}")

    def test_each_request_of_the_workload_is_counted_once(self) -> None:
        """Each request of the workload is counted once."""
        for name, value, labels in (
            ("rocketmq_messages_in_total", 7, {"topic": TOPIC, "is_system": "false"}),
            ("rocketmq_messages_out_total", 5,
             {"topic": TOPIC, "consumer_group": GROUP, "is_system": "false"}),
            ("rocketmq_messages_out_total", 2,
             {"topic": TOPIC, "consumer_group": POP_GROUP, "is_system": "false",
              "is_retry": "false"}),
            ("rocketmq_send_to_dlq_messages_total", 1,
             {"topic": TOPIC, "consumer_group": GROUP, "is_system": "false"}),
            ("rocketmq_commit_messages_total", 1, {"topic": TOPIC}),
            ("rocketmq_rollback_messages_total", 1, {"topic": TOPIC}),
            ("rocketmq_half_messages", 1, {"topic": TOPIC}),
            ("rocketmq_timing_messages", 1,
             {"topic": TOPIC, "storage_type": "local", "storage_medium": "disk"}),
            ("rocketmq_pop_revive_in_message_total", 1,
             {"topic": TOPIC, "consumer_group": POP_GROUP, "revive_message_type": "CK",
              "put_status": "PUT_OK"}),
            ("rocketmq_pop_checkpoint_buffer_size", 0, {}),
            ("rocketmq_processor_watermark", 0, {"processor": "send"}),
            ("rocketmq_broker_permission", 6, {}),
            ("rocketmq_producer_connections", 1,
             {"language": "python", "version": "v5_3_3", "protocol_type": "remoting"}),
            ("rocketmq_consumer_connections", 1,
             {"consumer_group": GROUP, "language": "python", "version": "v5_3_3",
              "consume_mode": "push", "protocol_type": "remoting", "is_system": "false"}),
            ("twistmq_held_pulls", 0, {}),
        ):
            self.assertEqual(self.value(name, **labels), value, msg=name)
        self.assertEqual(self.value("rocketmq_rpc_latency_milliseconds_count",
                                    protocol_type="remoting", request_code="send_message_v2",
                                    response_code="success", is_long_polling="false",
                                    result="success"), 10)
        self.assertGreater(self.value("process_resident_memory_bytes"), 1 << 20)

    def test_common_labels(self) -> None:
        """Apache's metrics have labels that name the broker; ours leave that to the scraper."""
        text = self.page()
        common = ('cluster="DefaultCluster"', 'node_type="broker"', 'zone="a"', 'rack="b"',
                  f'node_id="{self.broker.kernel.broker_name}"')
        for line in text.splitlines():
            if line.startswith("rocketmq_"):
                self.assertEqual([label for label in common if label not in line], [], msg=line)
        self.assertIn("\ntwistmq_held_pulls 0.0\n", text)


class PagesTests(MetricsTestCase):
    """The requests for pages and their responses."""

    def test_scrapes_at_once(self) -> None:
        """Simultaneous requests share one page, or a few pages."""
        self.start()
        pages: list[str] = []
        threads = [threading.Thread(target=lambda: pages.append(self.page())) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(pages), 20)
        self.assertTrue(all("rocketmq_topic_number" in page for page in pages))

    def test_many_topics(self) -> None:
        """Thousands of topics are written in parts, with each family name and each sample once."""
        self.start()

        def count() -> None:
            count_put(self.broker.kernel.stats, {
                f"topic-{number}": (number, number * 10) for number in range(3000)})

        self.broker.call(count)
        text = self.page()
        self.assertEqual(text.count("# TYPE rocketmq_messages_in_total "), 1)
        lines = [line for line in text.splitlines()
                 if line.startswith("rocketmq_messages_in_total{")]
        for number in (0, 99, 100, 2999):
            [line] = [line for line in lines if f'topic="topic-{number}"' in line]
            self.assertTrue(line.endswith(f"}} {float(number)}"), msg=line)

    def test_other_pages(self) -> None:
        """No other pages exist, and no method but GET is served."""
        self.start()
        for path, data, code in (("/", None, 404), ("/metrics", b"x" * 200_000, 405),
                                 ("/metricsx", None, 404)):
            error = self.assertRaises(urllib.error.HTTPError, self.request, path, data)
            self.assertEqual(error.code, code, msg=path)
            error.close()

    def request(self, path: str, data: bytes | None) -> None:
        urllib.request.urlopen(self.url + path, data, timeout=10).close()

    def test_200_while_all_is_well(self) -> None:
        """200 while all is well; else 503, and the reasons."""
        self.start()
        status, page = self.health()
        self.assertEqual(status, 200)
        self.assertEqual((page["status"], page["reasons"]), ("ok", []))
        self.assertEqual(set(page["checks"]), {
            "store", "tables", "answers", "name servers", "registration", "replication",
            "name server: answers", "name server: key-value configuration"})
        kernel, service = self.broker.kernel, self.broker.service.broker
        self.broker.call(setattr, kernel.store.flush, "failure", StoreError("the disk is gone"))
        self.broker.call(setattr, service.name_servers, "unreached",
                         dict.fromkeys(service.name_servers.addresses, "refused"))
        status, page = self.health()
        self.assertEqual(status, 503)
        [address] = service.name_servers.addresses
        self.assertEqual(page["reasons"], [
            "store: the disk is gone", f"name servers: {address}: refused"])
        self.broker.call(setattr, kernel.store.flush, "failure", None)
        self.broker.call(setattr, service.name_servers, "unreached", {})
        self.assertEqual(self.health()[0], 200)

    def test_checks_that_are_added_later(self) -> None:
        """A plugin may add checks to either server when the exporter already runs."""
        self.start()
        kernel = self.broker.kernel
        assert kernel.host.name_server is not None
        self.broker.call(kernel.health_checks.update, {"disk": lambda: "is slow"})
        self.broker.call(
            kernel.host.name_server.health_checks.update, {"quorum": lambda: "is lost"})
        status, page = self.health()
        self.assertEqual(status, 503)
        self.assertEqual(page["reasons"], ["disk: is slow", "name server: quorum: is lost"])

    def test_a_plugin_that_raises(self) -> None:
        """Its metrics are missing, and the others are complete."""
        @hookimpl
        def collect_metrics() -> list[MetricFamily]:
            raise ZeroDivisionError

        self.start()
        kernel = self.broker.kernel
        self.broker.call(kernel.hooks.register, "broken",
                         SimpleNamespace(collect_metrics=collect_metrics))
        self.assertIn("rocketmq_topic_number", self.page())
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)


class SettingsTests(MetricsTestCase):
    """The settings and their errors."""

    def refused(self, **settings: str) -> str:
        def start() -> None:
            with running_broker({"metricsExporterType": "PROM", "metricsPromExporterPort": "0",
                                 **settings}):
                raise AssertionError("it started")

        return str(self.assertRaises(SettingsError, start))

    def test_exporters_that_are_not_there(self) -> None:
        """OTLP and logs are refused at the start, instead of being forgotten."""
        for kind in ("OTLP_GRPC", "LOG", "prom"):
            self.assertIn(f"metricsExporterType={kind}", self.refused(metricsExporterType=kind))

    def test_an_invalid_or_reserved_label_is_refused(self) -> None:
        """A label that is invalid, or that every sample has already, is refused."""
        for label in ("zone", "zone=a", "my-zone:a", "cluster:c", "__x:y", ":a"):
            self.assertIn("metricsLabel=", self.refused(metricsLabel=label), msg=label)

    def test_port_in_use(self) -> None:
        """It stops the start, and the error names the setting."""
        self.start()
        port = self.url.rpartition(":")[2]
        self.assertIn(f"metricsPromExporterPort={port} ", self.refused(
            metricsPromExporterPort=port))

    def test_the_port_is_free_again(self) -> None:
        """After a stop the port is free, and a connection without a request is closed."""
        with running_broker({"metricsExporterType": "PROM", "metricsPromExporterPort": "0"}) as (
                broker):
            plugin = broker.kernel.hooks.find(Plugin)
            exporter = plugin and plugin.exporter
            assert exporter is not None
            silent = socket.create_connection(("127.0.0.1", exporter.port), 10)
            self.addCleanup(silent.close)
            silent.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            self.assertTrue(silent.recv(1 << 16))
        with contextlib.suppress(ConnectionResetError):
            while silent.recv(1 << 16):
                pass
        with socket.socket() as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(("127.0.0.1", exporter.port))


class OffTests(SynchronousTestCase):
    """A broker without the setting or without the library."""

    def test_nothing_is_imported(self) -> None:
        """Neither the client library nor twisted.web is imported, which would cost
        memory and time.
        """
        code = ("import sys\n"
                "from twistmq.broker.testing import running_broker\n"
                "with running_broker() as broker:\n"
                "    assert 'metrics' in broker.kernel.hooks.plugin_names\n"
                "    assert not broker.kernel.hooks.after_response\n"
                "print(sorted({name for name in sys.modules if name.split('.')[0] == "
                "'prometheus_client' or name.startswith(('twisted.web', 'twistmq.plugins.metrics.'"
                "))}))")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                              timeout=60)
        self.assertEqual((done.stdout, done.stderr), ("[]\n", ""))

    def test_library_is_missing(self) -> None:
        """The error names the package to install."""
        code = ("import sys\n"
                "sys.modules['prometheus_client'] = None\n"
                "from twistmq.broker.testing import running_broker\n"
                "try:\n"
                "    with running_broker({'metricsExporterType': 'PROM'}): pass\n"
                "except Exception as error: print(error)")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                              timeout=60)
        self.assertIn("pip install 'twistmq[metrics]'", done.stdout)
