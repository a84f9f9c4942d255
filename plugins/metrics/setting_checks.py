"""Checks the settings of the metrics before the client library is imported."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

from twistmq.broker.api import BrokerError, Settings, SettingsError
from twistmq.broker.api.config import ports_of, require_number, require_port

__all__ = ["MISSING", "interface_of", "read_labels", "require_library", "require_port_of_pages"]

_LABELS: Final = "metricsLabel"
_PORT: Final = "metricsPromExporterPort"
_HOST: Final = "metricsPromExporterHost"
_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
#: The labels that a broker sets itself.
_OWN: Final = ("cluster", "node_type", "node_id")
MISSING: Final = ("metricsExporterType=PROM needs Prometheus's client library: pip install "
                  "'twistmq[metrics]'")


def interface_of(settings: Settings) -> str:
    """Return the address that the port is bound to."""
    return settings.text(_HOST).strip() or settings.text("bindAddress")


def read_labels(settings: Settings, own: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of all metrics.

    :param own: the labels that identify the server.
    :raises SettingsError: when a label is not valid.
    """
    labels = dict(own)
    for pair in filter(None, settings.text(_LABELS).split(",")):
        name, colon, value = (part.strip() for part in pair.partition(":"))
        if not (colon and _LABEL.fullmatch(name)) or name.startswith("__") or name in labels:
            raise settings.error(_LABELS, f"contains {pair!r}, which is not name:value, or has "
                                          "a name that a label cannot have here")
        labels[name] = value
    return labels


def require_library(settings: Settings) -> None:
    """:raises SettingsError: when the library is missing, or a label is not valid."""
    if find_spec("prometheus_client") is None:
        raise SettingsError(MISSING)
    read_labels(settings, dict.fromkeys(_OWN, "") if settings.has("brokerName") else {})


def require_port_of_pages(settings: Settings) -> None:
    """:raises SettingsError: when the port cannot be listened on."""
    require_number(settings, _HOST)
    port = settings.int(_PORT)
    owner = ports_of(settings).get(port)
    if port and settings.has("namesrv.port") and port == settings.int("namesrv.port"):
        owner = f"the name server's: namesrv.port={port}"
    if owner is not None:
        raise settings.error(_PORT, f"is {owner}; choose another for one of them")
    interface = interface_of(settings)
    try:
        require_port(settings, port, "metrics", interface)
    except BrokerError as error:
        reason = str(error).rpartition(": ")[2]
        raise settings.error(
            _PORT, f"cannot be listened on at {interface}: {reason}") from None
