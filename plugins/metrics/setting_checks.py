"""Checks the settings of the metrics before the client library is imported."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final
from urllib.parse import urlsplit

from twistmq.broker.api import BrokerError, Settings, SettingsError
from twistmq.broker.api.config import ports_of, require_number, require_port

__all__ = ["MISSING", "interface_of", "read_headers", "read_labels", "require_library",
           "require_otlp", "require_port_of_pages"]

_LABELS: Final = "metricsLabel"
_PORT: Final = "metricsPromExporterPort"
_HOST: Final = "metricsPromExporterHost"
_ENDPOINT: Final = "metrics.otlp.endpoint"
_HEADERS: Final = "metrics.otlp.headers"
#: A name of a header, as a token of HTTP, and a value of one line.
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_HEADER_VALUE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?", re.ASCII)
#: The headers that the exporter or its HTTP client writes itself.
_WRITTEN: Final = frozenset({
    "connection", "content-length", "content-type", "host", "transfer-encoding"})
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


def read_headers(settings: Settings) -> dict[str, str]:
    """Return the headers that are sent to the collector.

    :raises SettingsError: when one is not valid; the text does not contain it, because it may be a
        secret.
    """
    headers: dict[str, str] = {}
    for number, pair in enumerate(filter(None, settings.text(_HEADERS).split(",")), 1):
        name, _, value = (part.strip() for part in pair.partition(":"))
        if not (_HEADER.fullmatch(name) and _HEADER_VALUE.fullmatch(value)):
            raise SettingsError(f"{_HEADERS}: the header {number} is not name:value")
        if name.lower() in _WRITTEN:
            raise SettingsError(f"{_HEADERS}: the header {number} is {name}, which the exporter "
                                "writes itself")
        if name.lower() in map(str.lower, headers):
            raise SettingsError(f"{_HEADERS}: the header {number} has the name of an earlier one")
        headers[name] = value
    return headers


def require_otlp(settings: Settings) -> None:
    """:raises SettingsError: when the library is missing, or a setting of the export is wrong."""
    try:
        is_missing = find_spec("opentelemetry.proto") is None
    except ModuleNotFoundError:
        is_missing = True
    if is_missing:
        raise settings.error(_ENDPOINT, "needs OpenTelemetry's protocol: pip install "
                                        "'twistmq[otlp]'")
    text = settings.text(_ENDPOINT)
    if "@" in text or "?" in text:
        # The value is not shown, because it may contain a secret.
        raise SettingsError(f"{_ENDPOINT}: the address contains a user or a query, which logs and "
                            f"tools would show; give a password or a token in {_HEADERS}")
    try:
        url = urlsplit(text)
        is_url = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        is_url = False
    if not is_url or not text.isascii() or not text.isprintable() or " " in text:
        raise settings.error(_ENDPOINT, "is not an address such as "
                                        "http://127.0.0.1:4318/v1/metrics")
    if url.scheme == "https" and find_spec("OpenSSL") is None:
        raise settings.error(_ENDPOINT, "needs TLS: pip install 'twistmq[tls]'")
    read_headers(settings)
    read_labels(settings, dict.fromkeys(_OWN, ""))
