"""The exports that brokers advertise in their runtime tables, as the export job reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from twistmq.client.blocking.client import Client
from twistmq.protocol.errors import RemotingError, RequestRefused

__all__ = ["EXPORT_TOPICS", "EXPORT_TRACES", "Advertised", "ask_brokers"]

#: The rows of the runtime table: the names of topics with commas, and "true" for traces.
EXPORT_TOPICS: Final = "sparkExportTopics"
EXPORT_TRACES: Final = "sparkExportTraces"


@dataclass(frozen=True, slots=True)
class Advertised:
    """The exports that the brokers of a name server advertise together."""

    #: The topics in order, each once.
    topics: tuple[str, ...]
    traces: bool
    #: The brokers that did not answer, each with the reason.
    silent: tuple[str, ...] = ()


def ask_brokers(client: Client) -> Advertised:
    """Ask all brokers of a name server, and combine the exports that they advertise.

    :raises RemotingError: when no name server answers.
    """
    topics: set[str] = set()
    traces = False
    silent = []
    for name, address in sorted(client.broker_addresses().items()):
        try:
            table = client.runtime_info(address)
        except (RemotingError, RequestRefused) as error:
            silent.append(f"{name}: {error}")
            continue
        topics |= {topic.strip() for topic in table.get(EXPORT_TOPICS, "").split(",")} - {""}
        traces |= table.get(EXPORT_TRACES) == "true"
    return Advertised(tuple(sorted(topics)), traces, tuple(silent))
