"""A broker with metrics, and the samples of a scrape."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from importlib.util import find_spec
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.testing import RunningBroker, running_broker
from twistmq.plugins.metrics import Plugin

__all__ = ["NO_LIBRARY", "NO_OTLP", "MetricsTestCase", "Samples", "samples_of"]

#: Why tests are skipped; empty: they are not.
NO_LIBRARY = "" if find_spec("prometheus_client") else "prometheus_client is an extra: [metrics]"

try:
    NO_OTLP = "" if find_spec("opentelemetry.proto") else "opentelemetry-proto is an extra: [otlp]"
except ModuleNotFoundError:
    NO_OTLP = "opentelemetry-proto is an extra: [otlp]"
#: By name and labels, those that all of them have left out.
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
_COMMON = {"cluster", "node_type", "node_id", "zone", "rack"}


def samples_of(text: str) -> Samples:
    """Return the samples of a page as the client library reads them."""
    from prometheus_client.parser import text_string_to_metric_families

    return {
        (sample.name, frozenset((name, value) for name, value in sample.labels.items()
                                if name not in _COMMON)): sample.value
        for family in text_string_to_metric_families(text) for sample in family.samples}


class MetricsTestCase(SynchronousTestCase):
    """A test starts ``broker`` by ``start``; it is stopped at the end."""

    if NO_LIBRARY:
        skip = NO_LIBRARY

    def start(self, **settings: str) -> RunningBroker:
        """Start a broker whose exporter is on."""
        running = running_broker({
            "metricsExporterType": "PROM", "metricsPromExporterPort": "0",
            **{name.replace("__", "."): text for name, text in settings.items()}})
        self.broker = running.__enter__()
        self.addCleanup(running.__exit__, None, None, None)
        plugin = self.broker.kernel.hooks.find(Plugin)
        exporter = plugin and plugin.exporter
        assert exporter is not None
        self.url = f"http://127.0.0.1:{exporter.port}"
        return self.broker

    def page(self, path: str = "/metrics") -> str:
        with urllib.request.urlopen(self.url + path, timeout=20) as answer:
            text: str = answer.read().decode()
        return text

    def samples(self) -> Samples:
        return samples_of(self.page())

    def health(self) -> tuple[int, dict[str, Any]]:
        """Return the status and the text of /health."""
        try:
            with urllib.request.urlopen(self.url + "/health", timeout=20) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)
