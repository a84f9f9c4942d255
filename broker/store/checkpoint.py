"""The checkpoint file: up to which store times commit log, queues and index are on disk.

4096 bytes, of which five big-endian int64 are used. Values only ever say what is durable already,
so a crash between data and checkpoint costs recovery time and no data.

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

    #: Store time in ms of the newest message whose record is durable.
    physic_msg_timestamp: int = 0
    #: The same for consume-queue entries.
    logics_msg_timestamp: int = 0
    #: The same for index items.
    index_msg_timestamp: int = 0
    #: Commit-log offset up to which the master is durable; a slave's knowledge.
    master_flushed_offset: int = 0
    #: Commit-log offset up to which replicas agreed.
    confirm_phy_offset: int = 0

    @classmethod
    def decode(cls, data: bytes, path: str) -> Checkpoint:
        """Read a checkpoint file's bytes; shorter ones of older brokers count as zeros.

        :raises StoreDamaged: when a value is negative, which none can be.
        """
        values = _VALUES.unpack(data[: _VALUES.size].ljust(_VALUES.size, b"\0"))
        checkpoint = cls(*values)
        for field in fields(checkpoint):
            if getattr(checkpoint, field.name) < 0:
                raise StoreDamaged(f"{path}: {field.name} is {getattr(checkpoint, field.name)}")
        return checkpoint

    def encode(self) -> bytes:
        """Make the file's bytes.

        A record of another broker's log may have a store time that is negative, or so late that
        the index's goes beyond an int64; the file has the nearest number that can be.
        """
        values = _VALUES.pack(*[
            min(max(0, getattr(self, field.name)), _VALUE_MAX) for field in fields(self)])
        return values.ljust(CHECKPOINT_SIZE_BYTES, b"\0")

    def min_timestamp(self) -> int:
        """Recovery must start at or before messages of this store time, in ms."""
        earliest = min(self.physic_msg_timestamp, self.logics_msg_timestamp)
        return max(0, earliest - CHECKPOINT_MARGIN_MS)

    def min_timestamp_index(self) -> int:
        """Like :meth:`min_timestamp`, if the index must be complete too."""
        return min(self.min_timestamp(), self.index_msg_timestamp)


assert _VALUES.size == 8 * len(fields(Checkpoint))
