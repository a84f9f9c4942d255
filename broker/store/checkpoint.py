"""The checkpoint file: the store times up to which commit log, queues and index are on disk.

The file has 4096 bytes, of which five big-endian int64 are used. Its values only ever state what is
already durable, so a crash between data and checkpoint costs recovery time but no data.

Source: StoreCheckpoint @5.3.3.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, fields
from typing import Final

from twistmq.broker.constants import CHECKPOINT_MARGIN_MS, CHECKPOINT_SIZE_BYTES
from twistmq.protocol.errors import StoreDamaged

__all__ = ["Checkpoint"]

_VALUES: Final = struct.Struct(">5q")
_VALUE_MAX: Final = 2**63 - 1


@dataclass(slots=True)
class Checkpoint:
    """The five values, in the order of the file."""

    #: The store time of the newest message whose record is durable, in ms.
    physic_msg_timestamp: int = 0
    #: The same for consume-queue entries.
    logics_msg_timestamp: int = 0
    #: The same for index items.
    index_msg_timestamp: int = 0
    #: The commit-log offset up to which the master is durable, as known to a slave.
    master_flushed_offset: int = 0
    #: The commit-log offset that the replicas have confirmed.
    confirm_phy_offset: int = 0

    @classmethod
    def decode(cls, data: bytes, path: str) -> Checkpoint:
        """Decode a checkpoint file; the values missing in shorter files of older brokers are zeros.

        :raises StoreDamaged: when a value is negative, which is not valid.
        """
        values = _VALUES.unpack(data[: _VALUES.size].ljust(_VALUES.size, b"\0"))
        checkpoint = cls(*values)
        for field in fields(checkpoint):
            if getattr(checkpoint, field.name) < 0:
                raise StoreDamaged(f"{path}: {field.name} is {getattr(checkpoint, field.name)}")
        return checkpoint

    def encode(self) -> bytes:
        """Encode the file.

        A record of another broker's log may have a negative store time, or one so late that the
        time of the index exceeds an int64; the file then contains the nearest valid number.
        """
        values = _VALUES.pack(*[
            min(max(0, getattr(self, field.name)), _VALUE_MAX) for field in fields(self)])
        return values.ljust(CHECKPOINT_SIZE_BYTES, b"\0")

    def min_timestamp(self) -> int:
        """Return the store time at or before which recovery must start, in ms."""
        earliest = min(self.physic_msg_timestamp, self.logics_msg_timestamp)
        return max(0, earliest - CHECKPOINT_MARGIN_MS)

    def min_timestamp_index(self) -> int:
        """Like :meth:`min_timestamp`, if the index must be complete as well."""
        return min(self.min_timestamp(), self.index_msg_timestamp)


assert _VALUES.size == 8 * len(fields(Checkpoint))
