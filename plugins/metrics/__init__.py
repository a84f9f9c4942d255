"""Metrics for Prometheus, and the state that a health check needs, on a port of their own.

    GET /metrics   the numbers, in Prometheus's text format
    GET /health    200, or 503 with the reasons, as JSON

The setting ``metricsExporterType=PROM`` turns the pages on. A broker also sends its metrics to a
collector over OTLP/HTTP if ``metrics.otlp.endpoint`` names one. Without both, none of this code is
imported. The numbers are read when they are requested, from counters that the broker keeps anyway.
Names and labels are Apache's, with the units of its exporter: ``tests/plugins/metrics`` lists the
metrics that exist and explains why others do not. Names that begin with ``twistmq_`` are specific
to this project, and names that begin with ``process_`` come from the client library.

A name server has metrics too, with the same settings. Their names are listed in
``namesrv_families`` and are specific to this project, because Apache's name server has no metrics.
Under ``twistmq up`` they are on the broker's page.

Source: BrokerMetricsManager, DefaultStoreMetricsManager, RemotingMetricsManager @5.3.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from twisted.internet.defer import Deferred

from twistmq.broker.api import Setting, SettingCheck, Settings, hookimpl

if TYPE_CHECKING:
    from twistmq.broker.api import Broker, MetricFamily, NameServer
    from twistmq.broker.api.observe import BrokerPages, SupervisorPages
    from twistmq.plugins.metrics.exporter import Exporter
    from twistmq.plugins.metrics.namesrv_families import RequestCounts
    from twistmq.plugins.metrics.otlp_exporter import OtlpExporter
    from twistmq.plugins.metrics.rpc_latency import RpcLatency

__all__ = ["NameServerPlugin", "Plugin"]


def _require_library(settings: Settings) -> None:
    """:raises SettingsError: when the library is missing, or a label is not valid."""
    if settings.text("metricsExporterType") == "PROM":
        from twistmq.plugins.metrics.setting_checks import require_library

        require_library(settings)


def _require_port(settings: Settings) -> None:
    """:raises SettingsError: when the port cannot be listened on."""
    if settings.text("metricsExporterType") == "PROM":
        from twistmq.plugins.metrics.setting_checks import require_port_of_pages

        require_port_of_pages(settings)


def _require_otlp(settings: Settings) -> None:
    """:raises SettingsError: when the library is missing, or a setting of the export is wrong."""
    if settings.text("metrics.otlp.endpoint"):
        from twistmq.plugins.metrics.setting_checks import require_otlp

        require_otlp(settings)


_PORT_SETTINGS: Final = ("metricsExporterType", "metricsPromExporterPort",
                         "metricsPromExporterHost", "bindAddress", "listenPort", "namesrv.port")
_SETTINGS: Final = (
    Setting("metricsExporterType", "text", "DISABLE",
            "PROM: metrics are served for Prometheus. Needs `pip install 'twistmq[metrics]'`.",
            choices=("DISABLE", "PROM"), source="BrokerConfig", at_start=True),
    Setting("metricsPromExporterPort", "int", 5557,
            "The port of /metrics and /health; 0 chooses a free port.",
            most=65_535, source="BrokerConfig", at_start=True, of_each="inner_port",
            only_with="metricsExporterType=PROM"),
    Setting("metricsPromExporterHost", "text", "",
            "The address that this port is bound to. Every client that can connect to it sees the "
            "names of topics and groups.", source="BrokerConfig", default_text="bindAddress",
            at_start=True, of_each="inner_host"),
    Setting("metricsLabel", "text", "",
            "Labels that are added to all of Apache's metrics and to a name server's own metrics: "
            "name:value, separated by commas.",
            source="BrokerConfig", default_text="none", at_start=True),
    Setting("metrics.rpc_latency", "flag", False,
            "Whether rocketmq_rpc_latency_milliseconds is served too, or for a name server "
            "twistmq_namesrv_rpc_latency_seconds. No other metric of a broker has a cost for "
            "each request.", at_start=True),
)


_CHECKS: Final = (
    SettingCheck(("metricsExporterType", "metricsLabel"), _require_library),
    SettingCheck(_PORT_SETTINGS, _require_port, "port"),
)
#: The settings of a broker's own metrics.
_BROKER_SETTINGS: Final = (
    Setting("metrics.queue_lag_max", "int", 10_000,
            "The number of queues, over all groups, for which "
            "twistmq_consumer_queue_lag_messages has a sample; 0: none. The queues with the "
            "largest lag are kept.", unit="queues", most=1_000_000),
)
_OTLP_SETTINGS: Final = (
    Setting("metrics.otlp.endpoint", "text", "",
            "The address of a collector to which the broker sends its metrics over OTLP/HTTP, such "
            "as http://127.0.0.1:4318/v1/metrics; independent of metricsExporterType. Needs `pip "
            "install 'twistmq[otlp]'`.", default_text="none", at_start=True),
    Setting("metrics.otlp.interval", "int", 60_000,
            "The time between two exports, as Apache's metricGrpcExporterIntervalInMills.",
            unit="ms", least=100, at_start=True),
    Setting("metrics.otlp.timeout", "int", 10_000,
            "The time that the collector may take to answer.",
            unit="ms", least=1, at_start=True),
    Setting("metrics.otlp.headers", "text", "",
            "HTTP headers that are sent to the collector, such as a token: name:value, separated "
            "by commas.", default_text="none", at_start=True, is_secret=True),
)


class _WithSettings:
    """Registers the settings, which are the same for both kinds of server."""

    @staticmethod
    @hookimpl
    def register_settings() -> Sequence[Setting]:
        return _SETTINGS

    @staticmethod
    @hookimpl
    def register_setting_checks() -> Sequence[SettingCheck]:
        return _CHECKS


class Plugin(_WithSettings):
    """The metrics plugin of one broker."""

    @staticmethod
    @hookimpl
    def register_settings() -> Sequence[Setting]:
        return (*_SETTINGS, *_BROKER_SETTINGS, *_OTLP_SETTINGS)

    @staticmethod
    @hookimpl
    def register_setting_checks() -> Sequence[SettingCheck]:
        names = [row.name for row in _OTLP_SETTINGS]
        return (*_CHECKS, SettingCheck((*names, "metricsLabel"), _require_otlp))

    @staticmethod
    @hookimpl
    def register_supervisor_pages(
        settings: Settings, brokers: BrokerPages
    ) -> Sequence[SupervisorPages] | None:
        """:raises SettingsError: when the ports of the brokers cannot be known."""
        if settings.text("metricsExporterType") != "PROM":
            return None
        from twistmq.broker.api.observe import SupervisorPages
        from twistmq.plugins.metrics.joined_pages import joined_pages
        from twistmq.plugins.metrics.setting_checks import interface_of

        name = "metricsPromExporterPort"
        if not settings.int(name):
            raise settings.error(name, "must be a port if --brokers is used: the ports of the "
                                       "brokers are derived from it")
        return [SupervisorPages(joined_pages(brokers), name, settings.int(name),
                                interface_of(settings))]

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        #: The exporter, while the pages are served.
        self.exporter: Exporter | None = None
        #: Sends the metrics to a collector; None: no collector is named.
        self.otlp: OtlpExporter | None = None

    @hookimpl
    def on_start(self) -> None:
        """:raises SettingsError: when a setting is not valid, or the port is not available."""
        broker = self._broker
        is_served = broker.settings.text("metricsExporterType") == "PROM"
        endpoint = broker.settings.text("metrics.otlp.endpoint")
        if not is_served and not endpoint:
            return
        # It needs some megabytes.
        from twistmq.plugins.metrics.collection import broker_collecting

        collecting = broker_collecting(broker)
        if is_served:
            from twistmq.plugins.metrics.exporter import broker_exporter

            self.exporter = broker_exporter(broker, collecting)
        if endpoint:
            from twistmq.plugins.metrics.otlp_exporter import OtlpExporter

            self.otlp = OtlpExporter(broker, collecting)

    @hookimpl
    def on_stop(self) -> Deferred[None] | None:
        otlp, self.otlp = self.otlp, None
        if otlp is not None:
            otlp.stop()
        exporter, self.exporter = self.exporter, None
        return None if exporter is None else exporter.stop()


class NameServerPlugin(_WithSettings):
    """The metrics plugin of one name server."""

    def __init__(self, name_server: NameServer) -> None:
        self._name_server = name_server
        #: The exporter, while the pages are served.
        self.exporter: Exporter | None = None
        #: The objects that count requests; None if metrics are off.
        self._counted: list[RequestCounts | RpcLatency] | None = None

    @hookimpl
    def on_namesrv_start(self) -> None:
        """:raises SettingsError: when a setting has no meaning, or the port cannot be had."""
        name_server = self._name_server
        if name_server.settings.text("metricsExporterType") != "PROM":
            return
        from twistmq.plugins.metrics.exporter import namesrv_exporter
        from twistmq.plugins.metrics.namesrv_families import PREFIX, RequestCounts
        from twistmq.plugins.metrics.rpc_latency import RpcLatency

        counted: list[RequestCounts | RpcLatency] = [RequestCounts()]
        if name_server.settings.flag("metrics.rpc_latency"):
            counted.append(RpcLatency(name_server.now_ms, f"{PREFIX}rpc_latency_seconds", 1000))
        if name_server.serve_http is not None:
            self.exporter = namesrv_exporter(name_server, name_server.serve_http)
        for each in counted:
            name_server.hooks.add(f"metrics_{type(each).__name__}", each)
        self._counted = counted

    @hookimpl
    def collect_namesrv_metrics(self) -> Sequence[MetricFamily] | None:
        if self._counted is None:
            return None
        from twistmq.plugins.metrics.namesrv_families import collect

        return [*collect(self._name_server), *(each.family() for each in self._counted)]

    @hookimpl
    def on_namesrv_stop(self) -> Deferred[None] | None:
        self._counted = None
        exporter, self.exporter = self.exporter, None
        return None if exporter is None else exporter.stop()
