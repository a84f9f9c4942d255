"""The checkpoint in its file, which one thread at a time writes.

It is written on a thread when more is durable, and at once, by the append itself, when store times
go back.

Source: StoreCheckpoint @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from twisted.internet.defer import Deferred, DeferredLock, succeed

from twistmq.broker.store.checkpoint import Checkpoint
from twistmq.broker.store.interfaces import IStoreIO
from twistmq.protocol.errors import StoreError

__all__ = ["CheckpointFile"]


class CheckpointFile:
    """Writes a checkpoint, on a thread and one write at a time."""

    def __init__(
        self,
        io: IStoreIO,
        path: str,
        in_thread: Callable[[Callable[[], None]], Deferred[None]],
    ) -> None:
        self.path = path
        self.values = Checkpoint()
        self._io = io
        self._in_thread = in_thread
        self._lock = DeferredLock()
        #: Held during a write; values queued before they were lowered are not written.
        self._writing = Lock()
        self._lowered = 0
        #: A place of the log, and the least store time from there on of those that went back, ms.
        self._went_back = -1, 0
        self._saved = b""

    def load(self) -> None:
        """Read the file if there is one.

        :raises StoreDamaged: when it holds what no checkpoint can.
        """
        if self._io.exists(self.path):
            self._saved = self._io.read_file(self.path)
            self.values = Checkpoint.decode(self._saved, self.path)

    def save(self) -> Deferred[None]:
        """Make the values durable; fires when those of now are."""
        return self._lock.run(self._write)

    def _write(self) -> Deferred[None]:
        data = self.values.encode()
        if data == self._saved:
            return succeed(None)
        lowered = self._lowered

        def write() -> None:
            with self._writing:
                if lowered == self._lowered:
                    self._io.write_file_atomically(self.path, data)
                    self._saved = data

        return self._in_thread(write)

    # --- what is durable

    def log_is_durable(self, timestamp: int, end: int) -> None:
        """Note that the commit log is durable up to a place, and the store time there, ms."""
        if timestamp > 0:
            self.values.physic_msg_timestamp = self._known(timestamp, end)

    def queues_are_durable(self, timestamp: int, end: int) -> None:
        """Note the same of the entries of queues."""
        if timestamp > 0:
            self.values.logics_msg_timestamp = self._known(timestamp, end)

    def index_is_durable(self, timestamp: int, end: int) -> None:
        """Note the same of the index."""
        self.values.index_msg_timestamp = max(
            self.values.index_msg_timestamp, self._known(timestamp, end))

    def _known(self, timestamp: int, end: int) -> int:
        """Behind a place where store times went back all are later than this."""
        place, least_ms = self._went_back
        return min(timestamp, least_ms) if end <= place else timestamp

    def lower(self, now_ms: int, place: int) -> None:
        """Store times go back to ``now_ms`` behind a place of the log: say nothing beyond, now.

        Recovery starts by these values. A message stored with an earlier time than theirs, and not
        durable, would be left out of queues and index.

        :raises StoreError: when it cannot be written.
        """
        values, before_ms = self.values, now_ms - 1
        _, least_ms = self._went_back
        self._went_back = place, min(before_ms, least_ms or before_ms)
        values.physic_msg_timestamp = min(values.physic_msg_timestamp, before_ms)
        values.logics_msg_timestamp = min(values.logics_msg_timestamp, before_ms)
        values.index_msg_timestamp = min(values.index_msg_timestamp, before_ms)
        self._lowered += 1
        with self._writing:
            data = values.encode()
            if data == self._saved:
                return
            try:
                self._io.write_file_atomically(self.path, data)
            except OSError as error:
                raise StoreError(f"{self.path} cannot be written: {error}") from error
            self._saved = data
