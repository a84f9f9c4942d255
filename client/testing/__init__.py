"""Public test doubles for programs that send and consume.

    RecordingProducer   keeps what was sent; needs no broker
    MemoryCluster       brokers and clients in memory, a clock that is set by hand, faults by seed

The pytest fixtures ``twistmq_producer`` and ``twistmq_consumer`` use a real broker on a free port.

Names are imported when they are first used: ``RecordingProducer`` needs no package of a broker.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from twistmq.client.testing.cluster import (
        MemoryClient,
        MemoryCluster,
        MemoryMember,
        MemoryPopMember,
        MemoryProducer,
    )
    from twistmq.client.testing.recording import RecordingProducer

__all__ = ["MemoryClient", "MemoryCluster", "MemoryMember", "MemoryPopMember", "MemoryProducer",
           "RecordingProducer"]

_MODULES: Final = {
    "MemoryClient": "cluster", "MemoryCluster": "cluster", "MemoryMember": "cluster",
    "MemoryPopMember": "cluster", "MemoryProducer": "cluster", "RecordingProducer": "recording",
}


def __getattr__(name: str) -> object:
    """Import a name when it is first used."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)
