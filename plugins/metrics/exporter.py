"""The exporter of one server: makes the page /metrics, and serves it together with /health.

A broker's page is made in slices, and a request that arrives while it is being made gets the same
page. A name server has few numbers, so its page is made in one step.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Final, TypeVar

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger

from twistmq.broker.api import MetricFamily, Settings, SettingsError
from twistmq.broker.api.requests import run_to_completion
from twistmq.plugins.metrics import broker_families, lag_families, process_families
from twistmq.plugins.metrics.coalescer import Coalescer
from twistmq.plugins.metrics.namesrv_families import PREFIX as NAMESRV_PREFIX
from twistmq.plugins.metrics.pages import HealthChecks, root_page
from twistmq.plugins.metrics.rpc_latency import RpcLatency
from twistmq.plugins.metrics.setting_checks import MISSING, interface_of, read_labels

if TYPE_CHECKING:
    from twistmq.broker.api import Broker, NameServer
    from twistmq.broker.api.observe import ServeHttp
    from twistmq.plugins.metrics.exposition import Exposition

__all__ = ["Exporter", "broker_exporter", "namesrv_exporter"]

T = TypeVar("T")

#: A generator that makes a page and yields wherever it can pause.
Making = Generator[None, None, T]

_RPC_LATENCY: Final = "metrics_rpc_latency"
#: The prefix of Apache's metric names; these metrics have the broker's labels.
_APACHES: Final = "rocketmq_"


class Exporter:
    """The metrics of one server; the pages are served from the moment it is constructed.

    :param collecting: makes the families.
    :param run: runs a generator to its end, at once or later.
    :param name: how the health page names the server: a key, and a function that gives its value.
    :param checks: the health checks by name; they are requested each time, since plugins may add
        some.
    :raises SettingsError: when the port is not available.
    """

    log = Logger()

    def __init__(
        self, settings: Settings, serve_http: ServeHttp, exposition: Exposition,
        collecting: Callable[[], Making[dict[str, MetricFamily]]],
        run: Callable[[Making[bytes]], Deferred[bytes]],
        name: dict[str, Callable[[], str]], checks: Callable[[], HealthChecks],
    ) -> None:
        self._exposition = exposition
        self._collecting = collecting
        self._run = run
        #: Makes the page with the current numbers.
        self.scrape = Coalescer(lambda: self._run(self._make()))
        interface = interface_of(settings)
        try:
            self._port = serve_http(root_page(self.scrape, name, checks),
                                    settings.int("metricsPromExporterPort"), interface)
        except OSError as error:
            raise settings.unavailable(
                "metricsPromExporterPort", f"cannot be listened on at {interface}: "
                f"{error.strerror or error}") from None
        self.log.info("metrics and health are on {interface}:{port}", interface=interface,
                      port=self.port)

    @property
    def port(self) -> int:
        """The port that is really listened on."""
        return self._port.port

    def stop(self) -> Deferred[None]:
        return self._port.stop()

    def _make(self) -> Making[bytes]:
        parts: list[bytes] = []
        for family in (yield from self._collecting()).values():
            for part in self._exposition.writing(family):
                parts.append(part)
                yield
        parts.append(self._exposition.of_process())
        return b"".join(parts)


def broker_exporter(broker: Broker, serve_http: ServeHttp) -> Exporter:
    """Make the exporter of a broker, and of the name server in the same process.

    :raises SettingsError: when a setting is not valid, or the port is not available.
    """
    labels = {"cluster": broker.cluster_name, "node_type": "broker", "node_id": broker.broker_name}
    exposition = _exposition(broker.settings, labels, _APACHES)
    latency: RpcLatency | None = None
    if broker.settings.flag("metrics.rpc_latency"):
        latency = RpcLatency(broker.now_ms)
        broker.hooks.add(_RPC_LATENCY, latency)

    def collecting() -> Making[dict[str, MetricFamily]]:
        families = {family.name: family for family in (
            *broker_families.collect(broker), *process_families.collect(broker),
            *process_families.of_store(broker))}
        yield
        for family in (yield from lag_families.collecting(broker)):
            families[family.name] = family
        if latency is not None:
            family = latency.family()
            families[family.name] = family
        if broker.host.name_server is not None:
            families.update(broker.host.name_server.hooks.namesrv_metrics())
        families.update(broker.hooks.metrics())
        return families

    def checks() -> HealthChecks:
        if broker.host.name_server is None:
            return broker.health_checks
        # Both servers check whether they answer, so the name server's checks get a prefix.
        return broker.health_checks | {
            f"name server: {name}": check
            for name, check in broker.host.name_server.health_checks.items()}

    return Exporter(broker.settings, serve_http, exposition, collecting, broker.slices.run,
                    {"broker": lambda: broker.broker_name}, checks)


def namesrv_exporter(name_server: NameServer, serve_http: ServeHttp) -> Exporter:
    """Make the exporter of a name server that has a process to itself.

    :raises SettingsError: when a setting is not valid, or the port is not available.
    """
    exposition = _exposition(name_server.settings, {}, NAMESRV_PREFIX)

    def collecting() -> Making[dict[str, MetricFamily]]:
        families = {family.name: family for family in process_families.collect(name_server)}
        yield
        families.update(name_server.hooks.namesrv_metrics())
        return families

    return Exporter(name_server.settings, serve_http, exposition, collecting,
                    lambda making: maybeDeferred(run_to_completion, making),
                    {"name_server": lambda: name_server.address},
                    lambda: name_server.health_checks)


def _exposition(settings: Settings, own: dict[str, str], labelled: str) -> Exposition:
    """Make the writer for the pages of a server.

    :param own: labels that identify the server.
    :param labelled: how the names of the metrics that get all labels begin.
    :raises SettingsError: when the client library is not installed, or a label is not valid.
    """
    try:
        from twistmq.plugins.metrics.exposition import Exposition
    except ImportError:
        raise SettingsError(MISSING) from None
    return Exposition(read_labels(settings, own), labelled)
