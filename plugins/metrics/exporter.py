"""The exporter of one server: makes what /metrics says, and serves it with /health.

A broker's scrape is made in slices, and a request that comes meanwhile gets the same page. A name
server has few numbers, which are made at once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Final, TypeVar

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger

from twistmq.broker.api import MetricFamily, Settings, SettingsError
from twistmq.broker.api.requests import run_to_completion
from twistmq.plugins.metrics import broker_families, lag_families, process_families
from twistmq.plugins.metrics.namesrv_families import PREFIX as NAMESRV_PREFIX
from twistmq.plugins.metrics.pages import HealthChecks, root_page
from twistmq.plugins.metrics.rpc_latency import RpcLatency
from twistmq.plugins.metrics.setting_checks import MISSING, interface_of, read_labels
from twistmq.plugins.metrics.shared_making import SharedMaking

if TYPE_CHECKING:
    from twistmq.broker.api import Broker, NameServer
    from twistmq.broker.api.observe import ServeHttp
    from twistmq.plugins.metrics.exposition import Exposition

__all__ = ["Exporter", "broker_exporter", "namesrv_exporter"]

T = TypeVar("T")

#: A page is made by a generator, which yields where it can pause.
Making = Generator[None, None, T]

_RPC_LATENCY: Final = "metrics_rpc_latency"
#: The metrics of a broker as others know them; they have its labels.
_APACHES: Final = "rocketmq_"


class Exporter:
    """The metrics of one server; it serves them when it is made.

    :param collecting: makes the families.
    :param run: does what a generator does, at once or later.
    :param name: what the health page calls the server: a key, and what gives its value.
    :param checks: what must hold, by name; asked each time, since plugins may add to it.
    :raises SettingsError: when the port cannot be had.
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
        #: The page of the numbers as they are now.
        self.scrape = SharedMaking(lambda: self._run(self._make()))
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
        """The real one."""
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
    """That of a broker, and of the name server in its process.

    :raises SettingsError: when a setting has no meaning, or the port cannot be had.
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
        # They are told under names of their own: both servers have one of whether they answer.
        return broker.health_checks | {
            f"name server: {name}": check
            for name, check in broker.host.name_server.health_checks.items()}

    return Exporter(broker.settings, serve_http, exposition, collecting, broker.slices.run,
                    {"broker": lambda: broker.broker_name}, checks)


def namesrv_exporter(name_server: NameServer, serve_http: ServeHttp) -> Exporter:
    """That of a name server that has its process to itself.

    :raises SettingsError: when a setting has no meaning, or the port cannot be had.
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
    """The writer of the pages of a server.

    :param own: labels that say which one it is.
    :param labelled: how the names begin of metrics that have labels of all.
    :raises SettingsError: when the client library is not there, or a label has no meaning.
    """
    try:
        from twistmq.plugins.metrics.exposition import Exposition
    except ImportError:
        raise SettingsError(MISSING) from None
    return Exposition(read_labels(settings, own), labelled)
