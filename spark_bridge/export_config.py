"""The exports that brokers name: rows of their runtime tables, asked for by the export job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from twistmq.client.blocking.client import Client
from twistmq.protocol.errors import RemotingError, RequestRefused

__all__ = ["EXPORT_TOPICS", "EXPORT_TRACES", "Advertised", "ask_brokers"]

#: Rows of the runtime table: names of topics with commas; "true" for traces.
EXPORT_TOPICS: Final = "sparkExportTopics"
EXPORT_TRACES: Final = "sparkExportTraces"


@dataclass(frozen=True, slots=True)
class Advertised:
    """One export."""

    #: In order, each once.
    topics: tuple[str, ...]
    traces: bool
    #: Brokers that could not be asked, with the reason.
    silent: tuple[str, ...] = ()


def ask_brokers(client: Client) -> Advertised:
    """Ask every broker its name server knows; what one of them says counts for all.

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
