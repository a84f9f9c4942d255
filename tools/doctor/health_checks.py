"""The faults that a running broker reports itself, which its page ``/health`` also shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from twistmq.broker.config.settings import Settings
from twistmq.broker.edge.boot import WILDCARDS
from twistmq.broker.errors import SettingsError
from twistmq.protocol.errors import BrokerError
from twistmq.tools.doctor.findings import Finding, broken, fine
from twistmq.tools.doctor.server_queries import runtime_table_at

__all__ = ["health_findings"]

_CHECK: Final = "health"


def health_findings(settings: Settings) -> Iterator[Finding]:
    """Ask the broker; a broker that does not answer this client is not judged here."""
    port, interface = settings.int("listenPort"), settings.text("bindAddress")
    host = "127.0.0.1" if interface in WILDCARDS else interface
    try:
        table = runtime_table_at(f"{host}:{port}", settings)
    except (BrokerError, SettingsError, ValueError, OSError):
        return
    if table is None:
        return
    faults = [(name.partition(".")[2], text) for name, text in sorted(table.items())
              if name.startswith("fault.")]
    for name, text in faults:
        yield broken(_CHECK, f"{name}: {text}", "see its log")
    if not faults:
        yield fine(_CHECK, f"the broker at {host}:{port} finds nothing wrong")
