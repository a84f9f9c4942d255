"""A real Prometheus scrapes a broker and answers queries; promtool reads the metrics."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.interop.metrics_workload import GROUP, TOPIC, Workload, scrape
from tests.interop.servers import Servers, free_port, wait_until
from tests.plugins.metrics.case import NO_LIBRARY
from twistmq.broker.testing import RawClient

_MONITORING = Path(__file__).resolve().parents[2] / "deploy/monitoring"
_CASES = Path(__file__).resolve().parents[1] / "deploy/alert_cases.yaml"
_CONFIG = """\
global: {{scrape_interval: 200ms}}
scrape_configs:
- job_name: twistmq
  static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


class RuleTests(SynchronousTestCase):
    """The alert rules of deploy/."""

    if not shutil.which("promtool"):
        skip = "prometheus and promtool are not installed"

    def run_promtool(self, *words: str | Path) -> None:
        done = subprocess.run(["promtool", *words], text=True, capture_output=True, timeout=120)
        self.assertEqual(done.returncode, 0, msg=done.stdout + done.stderr)

    def test_promtool_accepts_the_rules_and_the_configuration(self) -> None:
        """The functions and the templates of the texts are checked, too."""
        self.run_promtool("check", "rules", _MONITORING / "alerts.yaml")
        self.run_promtool("check", "config", _MONITORING / "prometheus.yaml")

    def test_alerts_fire_for_series_of_the_fault_and_for_no_others(self) -> None:
        """``alert_cases.yaml`` has the series."""
        self.run_promtool("test", "rules", _CASES)


class PrometheusTests(SynchronousTestCase):
    """Programs of Debian's package ``prometheus``."""

    if NO_LIBRARY:
        skip = NO_LIBRARY
    elif not (shutil.which("prometheus") and shutil.which("promtool")):
        skip = "prometheus and promtool are not installed"

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="twistmq-prometheus-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.port = free_port()
        servers = Servers(self.folder / "data", "metricsExporterType=PROM",
                          f"metricsPromExporterPort={self.port}", "metrics.rpc_latency=true")
        servers.start()
        self.addCleanup(servers.stop)
        client = RawClient(f"127.0.0.1:{servers.broker_port}")
        self.addCleanup(client.close)
        Workload(client).run()

    def test_promtool_accepts_the_page(self) -> None:
        """It has no complaints except about Apache's names."""
        page = scrape(f"http://127.0.0.1:{self.port}/metrics")
        done = subprocess.run(["promtool", "check", "metrics"], input=page, text=True,
                              capture_output=True, timeout=120)
        # The status 3 means complaints, and 1 means that the text is not a page of metrics.
        self.assertIn(done.returncode, (0, 3), msg=done.stderr)
        complaints = [line for line in done.stderr.splitlines() if line.strip()]
        unit = 'use base unit "seconds" instead of "milliseconds"'
        self.assertEqual([line for line in complaints
                          if not (line.startswith("rocketmq_") and line.endswith(unit))], [])

    def test_prometheus_scrapes_and_answers_queries(self) -> None:
        """Queries return the samples."""
        config = self.folder / "prometheus.yml"
        config.write_text(_CONFIG.format(port=self.port))
        port = free_port()
        process = subprocess.Popen(
            ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={self.folder}/tsdb",
             f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)

        def ask(query: str) -> list[dict[str, Any]]:
            url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode(
                {"query": query})
            try:
                with urllib.request.urlopen(url, timeout=5) as answer:
                    found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
            except OSError:  # it is not there yet
                return []
            return found

        def value(query: str) -> float:
            rows = ask(query)
            return float(rows[0]["value"][1]) if len(rows) == 1 else -1.0

        wait_until("it has scraped", lambda: value('up{job="twistmq"}') == 1.0)
        labels = f'topic="{TOPIC}",consumer_group="{GROUP}"'
        for query, wanted in (
            (f'rocketmq_messages_in_total{{topic="{TOPIC}"}}', lambda found: found >= 6),
            (f"rocketmq_messages_out_total{{{labels}}}", lambda found: found == 5),
            (f"rocketmq_consumer_inflight_messages{{{labels}}}", lambda found: found == 2),
            ("sum by (cluster) (rocketmq_rpc_latency_milliseconds_count)",
             lambda found: found >= 20),
            ("histogram_quantile(0.5, sum by (le) "
             "(rocketmq_rpc_latency_milliseconds_bucket))", lambda found: 0 < found <= 3000),
            ('count({__name__=~"rocketmq_.+"})', lambda found: found > 50),
        ):
            wait_until(query, lambda query=query, wanted=wanted: wanted(value(query)))
