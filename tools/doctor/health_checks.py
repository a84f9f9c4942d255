"""The faults that a running broker reports itself, which its page ``/health`` also shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from twistmq.broker.config.inner_credentials import inner_credentials
from twistmq.broker.config.settings import Settings
from twistmq.broker.edge.boot import WILDCARDS
from twistmq.broker.errors import SettingsError
from twistmq.client.blocking.connection import Connection
from twistmq.protocol.bodies import KVTable
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import BrokerError
from twistmq.tools.doctor.findings import Finding, broken, fine
from twistmq.tools.doctor.tls_checks import client_context

__all__ = ["health_findings"]

_TIMEOUT_SECONDS: Final = 3.0
_CHECK: Final = "health"


def health_findings(settings: Settings) -> Iterator[Finding]:
    """Ask the broker; a broker that does not answer this client is not judged here."""
    port, interface = settings.int("listenPort"), settings.text("bindAddress")
    host = "127.0.0.1" if interface in WILDCARDS else interface
    try:
        with Connection(f"{host}:{port}", _TIMEOUT_SECONDS,
                        credentials=inner_credentials(settings),
                        tls=client_context(settings)) as connection:
            reply = connection.request(RequestCode.GET_BROKER_RUNTIME_INFO)
        if reply.code != ResponseCode.SUCCESS:
            return
        table = KVTable.decode_reply(reply.body).table
    except (BrokerError, SettingsError, ValueError, OSError):
        return
    faults = [(name.partition(".")[2], text) for name, text in sorted(table.items())
              if name.startswith("fault.")]
    for name, text in faults:
        yield broken(_CHECK, f"{name}: {text}", "see its log")
    if not faults:
        yield fine(_CHECK, f"the broker at {host}:{port} finds nothing wrong")
