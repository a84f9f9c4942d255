"""Sends the metrics of a broker to a collector over OTLP/HTTP, at regular intervals.

The body is made in slices, as the page for Prometheus is, and the request does not block the
reactor. While the collector is away, the log has one line, and the next export has all counts.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from twistmq.broker.api import BrokerError
from twistmq.broker.api.observe import Outage
from twistmq.plugins.metrics.collection import APACHES, Collecting, Making, broker_labels
from twistmq.plugins.metrics.otlp_encoder import OtlpEncoder
from twistmq.plugins.metrics.setting_checks import read_headers

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["OtlpExporter"]

_ENDPOINT: Final = "metrics.otlp.endpoint"
_CONTENT_TYPE: Final = "application/x-protobuf"
#: The HTTP statuses of an answer that accepts the metrics.
_ACCEPTED: Final = range(200, 300)


class OtlpExporter:
    """Exports the metrics of one broker from its construction on, until :meth:`stop`.

    :param collecting: makes the families.
    :raises SettingsError: when a setting is not valid.
    """

    log = Logger()

    def __init__(self, broker: Broker, collecting: Collecting) -> None:
        settings = broker.settings
        self._broker = broker
        self._collecting = collecting
        self._endpoint = settings.text(_ENDPOINT)
        self._interval_s = settings.int("metrics.otlp.interval") / 1000
        self._timeout_ms = settings.int("metrics.otlp.timeout")
        self._headers = {**read_headers(settings), "Content-Type": _CONTENT_TYPE}
        self._encoder = OtlpEncoder(
            {"service.name": "twistmq-broker", "service.version": version("twistmq"),
             "service.instance.id": broker.broker_name},
            broker_labels(broker), APACHES, broker.started_ms)
        self._outage = Outage()
        self._exporting: Deferred[None] | None = None
        self._is_stopped = False
        self._next: IDelayedCall | None = None
        self._wait()
        self.log.info("metrics are sent to {endpoint}", endpoint=self._endpoint)

    def _wait(self) -> None:
        self._exporting = None
        if not self._is_stopped:
            self._next = self._broker.host.call_later(self._interval_s, self._begin)

    def _begin(self) -> None:
        self._next = None
        exporting = self._exporting = Deferred.fromCoroutine(self._export())
        exporting.addErrback(self._failed)
        exporting.addCallback(lambda _: self._wait())

    def _failed(self, failure: Failure) -> None:
        """Log an unexpected error; the next export is still tried."""
        if not failure.check(CancelledError) and self._outage.begins():
            self.log.failure("the metrics cannot be exported", failure)

    async def _export(self) -> None:
        broker = self._broker
        body = await broker.slices.run(self._make())
        try:
            status = await broker.host.post_http(
                self._endpoint, self._headers, body, timeout_ms=self._timeout_ms)
            fault = "" if status in _ACCEPTED else f"it answers with HTTP status {status}"
        except BrokerError as error:
            fault = str(error)
        if self._is_stopped:
            return
        if not fault:
            self._outage.ends()
        elif self._outage.begins():
            self.log.warn("the collector at {endpoint} does not take the metrics, which is tried "
                          "again: {fault}", endpoint=self._endpoint, fault=fault)

    def _make(self) -> Making[bytes]:
        families = yield from self._collecting()
        return (yield from self._encoder.encoding(families.values(), self._broker.now_ms()))

    def stop(self) -> None:
        """Stop; an export in progress is given up."""
        self._is_stopped = True
        if self._next is not None:
            self._next.cancel()
            self._next = None
        if self._exporting is not None:
            self._exporting.cancel()
