"""Public test doubles for programs that send and consume messages.

    RecordingProducer   keeps the messages that were sent; needs no broker
    MemoryCluster       brokers and clients in memory, with a clock and faults that a test controls

The pytest fixtures ``twistmq_producer`` and ``twistmq_consumer`` use a real broker on a free port.

Names are imported when they are first used, so ``RecordingProducer`` needs no package of a broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twistmq.protocol.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from twistmq.client.testing.cluster import (
        MemoryClient,
        MemoryCluster,
        MemoryMember,
        MemoryPopMember,
        MemoryProducer,
    )
    from twistmq.client.testing.recording_producer import RecordingProducer

__all__ = ["MemoryClient", "MemoryCluster", "MemoryMember", "MemoryPopMember", "MemoryProducer",
           "RecordingProducer"]

__getattr__, __dir__ = lazy_exports(__name__, {
    name: f"{__name__}.{'recording_producer' if name == 'RecordingProducer' else 'cluster'}"
    for name in __all__})
