"""One page of metrics and one of health over all brokers of a supervisor.

The label ``node_id`` of each sample names the broker that it comes from. Apache's metrics have this
label already; metrics of the process get it here. The members of a group share a broker name, so
the label has the number of the member too. A broker that does not answer makes the health
page report a fault, and a page that cannot be read is logged. In both cases the metrics of all
other brokers are still served. Pages have megabytes with many topics, so they are joined on a
thread, once for all requests that come at the same time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.parser import text_string_to_metric_families
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.web.resource import Resource

from twistmq.broker.api.observe import BrokerPages, PageAnswer
from twistmq.plugins.metrics.coalescer import Coalescer
from twistmq.plugins.metrics.exposition import GivenFamilies
from twistmq.plugins.metrics.pages import joined_root_page

__all__ = ["JoinedMetrics", "join_health", "join_metrics", "joined_pages"]

_PORT: Final = "metricsPromExporterPort"
_BROKER_LABEL: Final = "node_id"
_RESTARTS: Final = "twistmq_broker_restarts"


@dataclass(frozen=True, slots=True)
class JoinedMetrics:
    """A page of metrics that was joined from the pages of several brokers.

    :param status: 200, or 503 when no page could be read.
    :param text: the page.
    :param unread: why a page could not be read, by the broker's name.
    """

    status: int
    text: bytes
    unread: dict[str, str]


class _JoinedMetrics:
    """Makes the page of metrics.

    :param brokers: requests a page from each broker.
    """

    log = Logger()

    def __init__(self, brokers: BrokerPages) -> None:
        self._brokers = brokers
        #: The pages that could not be read the last time.
        self._unread: dict[str, str] = {}

    async def make(self) -> tuple[int, bytes]:
        """Request the pages and join them."""
        answers = await self._brokers.ask(_PORT, "/metrics")
        restarts = dict(self._brokers.restarts)
        metrics = await self._brokers.on_thread(lambda: join_metrics(answers, restarts))
        for name, why in metrics.unread.items():
            if self._unread.get(name) != why:
                self.log.error("the metrics of the broker {name} cannot be read: {why}",
                               name=name, why=why)
        self._unread = metrics.unread
        return metrics.status, metrics.text


def joined_pages(brokers: BrokerPages) -> Resource:
    """Make the pages; :param brokers: requests a page from each broker."""
    joined = _JoinedMetrics(brokers)

    def health() -> Deferred[tuple[int, bytes]]:
        page: Deferred[tuple[int, bytes]] = brokers.ask(_PORT, "/health").addCallback(join_health)
        return page

    return joined_root_page(Coalescer(lambda: Deferred.fromCoroutine(joined.make())),
                            Coalescer(health))


def join_metrics(
    answers: Mapping[str, PageAnswer], restarts: Mapping[str, int] | None = None
) -> JoinedMetrics:
    """Join pages of metrics.

    :param answers: the answers, by the broker's name.
    :param restarts: how often each broker was restarted; None leaves this metric out.
    """
    families: dict[str, Any] = {}
    unread: dict[str, str] = {}
    joined_count = 0
    for name, answer in answers.items():
        if answer.status != 200:
            continue
        try:
            page_families = list(text_string_to_metric_families(answer.body.decode()))
        except ValueError as error:
            unread[name] = str(error)
            continue
        joined_count += 1
        for family in page_families:
            joined = families.setdefault(family.name, family)
            samples = [sample._replace(labels={**sample.labels, _BROKER_LABEL: name})
                       for sample in family.samples]
            joined.samples = samples if joined is family else [*joined.samples, *samples]
    if restarts is not None:
        families[_RESTARTS] = _restarts_family(restarts)
    text: bytes = generate_latest(GivenFamilies(families.values()))
    return JoinedMetrics(200 if joined_count else 503, text, unread)


def _restarts_family(restarts: Mapping[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(
        _RESTARTS, "How often the process of a broker ended and was started again.",
        labels=(_BROKER_LABEL,))
    for name, count in restarts.items():
        family.add_metric((name,), count)
    return family


def join_health(answers: Mapping[str, PageAnswer]) -> tuple[int, bytes]:
    """Join pages of health.

    :param answers: the answers, by the broker's name.
    :returns: the status, which is 200 when all brokers are well, and the text.
    """
    servers = {name: _health(answer) for name, answer in answers.items()}
    is_well = all(answer.status == 200 for answer in answers.values())
    return (200 if is_well else 503), json.dumps({
        "status": "ok" if is_well else "broken",
        "reasons": [f"{name}: {reason}" for name, server in servers.items()
                    for reason in server["reasons"]],
        "servers": servers,
    }).encode() + b"\n"


def _health(answer: PageAnswer) -> dict[str, Any]:
    """The health of one server."""
    try:
        health = json.loads(answer.body)
        return {"status": str(health["status"]), "reasons": [*map(str, health["reasons"])],
                "checks": health["checks"]}
    except (ValueError, KeyError, TypeError):
        return {"status": "broken", "checks": {},
                "reasons": [f"it does not answer: {answer.fault or answer.status}"]}
