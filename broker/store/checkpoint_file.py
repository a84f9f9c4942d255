"""The file of the checkpoint, which one thread at a time writes.

It is written on a thread when more data has become durable. When store times go back, the append
itself writes it at once.

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
    """Writes a checkpoint on a thread, one write at a time."""

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
        #: Held during a write. Values that were queued before they were lowered are not written.
        self._writing = Lock()
        self._lowered = 0
        #: The last clock change: a commit-log offset, and the lowest store time in ms, from which
        #: store times went back.
        self._clock_change = -1, 0
        self._saved = b""

    def load(self) -> None:
        """Read the file if it exists.

        :raises StoreDamaged: when it contains a value that is not valid.
        """
        if self._io.exists(self.path):
            self._saved = self._io.read_file(self.path)
            self.values = Checkpoint.decode(self._saved, self.path)

    def save(self) -> Deferred[None]:
        """Make the current values durable; fires when they are."""
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
        """Note that the commit log is durable up to an offset, with the store time there, in ms."""
        if timestamp > 0:
            self.values.physic_msg_timestamp = self._limited(timestamp, end)

    def queues_are_durable(self, timestamp: int, end: int) -> None:
        """Note the same for the entries of queues."""
        if timestamp > 0:
            self.values.logics_msg_timestamp = self._limited(timestamp, end)

    def index_is_durable(self, timestamp: int, end: int) -> None:
        """Note the same for the index."""
        self.values.index_msg_timestamp = max(
            self.values.index_msg_timestamp, self._limited(timestamp, end))

    def _limited(self, timestamp: int, end: int) -> int:
        """Limit a store time to one that is less than every later time after a clock change."""
        log_offset, min_ms = self._clock_change
        return min(timestamp, min_ms) if end <= log_offset else timestamp

    def lower(self, now_ms: int, log_offset: int) -> None:
        """Lower the values now: store times after this commit-log offset go back to ``now_ms``.

        Recovery starts from these values. It would not add a message to queues and index that was
        stored with an earlier time than theirs and is not durable in them.

        :raises StoreError: when the file cannot be written.
        """
        self.lower_job(now_ms, log_offset)()

    def lower_job(self, now_ms: int, log_offset: int) -> Callable[[], None]:
        """Lower the values as ``lower`` does, but leave the write of the file to a job.

        :returns: the job, for any thread; it raises StoreError when the file cannot be written.
        """
        values, before_ms = self.values, now_ms - 1
        _, min_ms = self._clock_change
        self._clock_change = log_offset, min(before_ms, min_ms or before_ms)
        values.physic_msg_timestamp = min(values.physic_msg_timestamp, before_ms)
        values.logics_msg_timestamp = min(values.logics_msg_timestamp, before_ms)
        values.index_msg_timestamp = min(values.index_msg_timestamp, before_ms)
        self._lowered += 1

        def write() -> None:
            with self._writing:
                data = values.encode()
                if data == self._saved:
                    return
                try:
                    self._io.write_file_atomically(self.path, data)
                except OSError as error:
                    raise StoreError(f"{self.path} cannot be written: {error}") from error
                self._saved = data

        return write
