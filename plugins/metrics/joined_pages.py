"""One page of metrics and one of health over all brokers of a supervisor.

Each sample says by ``node_id`` of which broker it is: Apache's metrics have this label already,
those of the process get it here. A broker that does not answer makes the health page red; the
others' metrics are served without it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from twisted.internet.defer import Deferred
from twisted.web.resource import Resource

from twistmq.broker.api.observe import BrokerPages, PageAnswer
from twistmq.plugins.metrics.exposition import GivenFamilies
from twistmq.plugins.metrics.pages import joined_root_page

__all__ = ["join_health", "join_metrics", "joined_pages"]

_PORT: Final = "metricsPromExporterPort"
_BROKER_LABEL: Final = "node_id"


def joined_pages(brokers: BrokerPages) -> Resource:
    """The pages; :param brokers: gives a page of each broker."""
    def metrics() -> Deferred[tuple[int, bytes]]:
        made: Deferred[tuple[int, bytes]] = brokers.ask(_PORT, "/metrics").addCallback(join_metrics)
        return made

    def health() -> Deferred[tuple[int, bytes]]:
        made: Deferred[tuple[int, bytes]] = brokers.ask(_PORT, "/health").addCallback(join_health)
        return made

    return joined_root_page(metrics, health)


def join_metrics(answers: Mapping[str, PageAnswer]) -> tuple[int, bytes]:
    """Join pages of metrics.

    :param answers: by the broker's name.
    :returns: the status, 503 when there is no answer at all, and the text.
    """
    families: dict[str, Any] = {}
    answered = {name: answer for name, answer in answers.items() if answer.status == 200}
    for name, answer in answered.items():
        for family in text_string_to_metric_families(answer.body.decode()):
            joined = families.setdefault(family.name, family)
            samples = [sample._replace(labels={_BROKER_LABEL: name, **sample.labels})
                       for sample in family.samples]
            joined.samples = samples if joined is family else [*joined.samples, *samples]
    text: bytes = generate_latest(GivenFamilies(families.values()))
    return (200 if answered else 503), text


def join_health(answers: Mapping[str, PageAnswer]) -> tuple[int, bytes]:
    """Join pages of health.

    :param answers: by the broker's name.
    :returns: the status, 200 when all are well, and the text.
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
        found = json.loads(answer.body)
        return {"status": str(found["status"]), "reasons": [*map(str, found["reasons"])],
                "checks": found["checks"]}
    except (ValueError, KeyError, TypeError):
        return {"status": "broken", "checks": {},
                "reasons": [f"it does not answer: {answer.fault or answer.status}"]}
