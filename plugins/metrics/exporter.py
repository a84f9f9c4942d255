"""The exporter of one server: makes the page /metrics, and serves it together with /health.

A broker's page is made in slices, and a request that arrives while it is being made gets the same
page. A name server has few numbers, so its page is made in one step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger

from twistmq.broker.api import MetricFamily, Settings, SettingsError
from twistmq.broker.api.requests import run_to_completion
from twistmq.plugins.metrics import process_families
from twistmq.plugins.metrics.coalescer import Coalescer
from twistmq.plugins.metrics.collection import APACHES, Collecting, Making, broker_labels
from twistmq.plugins.metrics.namesrv_families import PREFIX as NAMESRV_PREFIX
from twistmq.plugins.metrics.pages import HealthChecks, root_page
from twistmq.plugins.metrics.setting_checks import MISSING, interface_of, read_labels

if TYPE_CHECKING:
    from twistmq.broker.api import Broker, NameServer
    from twistmq.broker.api.observe import ServeHttp
    from twistmq.plugins.metrics.exposition import Exposition

__all__ = ["Exporter", "broker_exporter", "namesrv_exporter"]


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
        collecting: Collecting,
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


def broker_exporter(broker: Broker, collecting: Collecting) -> Exporter:
    """Make the exporter of a broker, and of the name server in the same process.

    :raises SettingsError: when a setting is not valid, or the port is not available.
    """
    exposition = _exposition(broker_labels(broker), APACHES)

    def checks() -> HealthChecks:
        if broker.host.name_server is None:
            return broker.health_checks
        # Both servers check whether they answer, so the name server's checks get a prefix.
        return broker.health_checks | {
            f"name server: {name}": check
            for name, check in broker.host.name_server.health_checks.items()}

    return Exporter(broker.settings, broker.host.serve_http, exposition, collecting,
                    broker.slices.run,
                    {"broker": lambda: broker.broker_name}, checks)


def namesrv_exporter(name_server: NameServer, serve_http: ServeHttp) -> Exporter:
    """Make the exporter of a name server that has a process to itself.

    :raises SettingsError: when a setting is not valid, or the port is not available.
    """
    exposition = _exposition(read_labels(name_server.settings, {}), NAMESRV_PREFIX)

    def collecting() -> Making[dict[str, MetricFamily]]:
        families = {family.name: family for family in process_families.collect(name_server)}
        yield
        families.update(name_server.hooks.namesrv_metrics())
        return families

    return Exporter(name_server.settings, serve_http, exposition, collecting,
                    lambda making: maybeDeferred(run_to_completion, making),
                    {"name_server": lambda: name_server.address},
                    lambda: name_server.health_checks)


def _exposition(labels: dict[str, str], labelled: str) -> Exposition:
    """Make the writer for the pages of a server.

    :param labelled: how the names of the metrics that get the labels begin.
    :raises SettingsError: when the client library is not installed.
    """
    try:
        from twistmq.plugins.metrics.exposition import Exposition
    except ImportError:
        raise SettingsError(MISSING) from None
    return Exposition(labels, labelled)
