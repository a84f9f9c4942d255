"""Creating the next file of the commit log, with all its pages, before the log reaches it.

The files of the log are sparse. The first write to each page allocates a page of memory, and the
next sync allocates disk space and writes an entry to the journal of the file system. With
warmMapedFileEnable the next file is created in advance, and a thread fills it with zeros, a part at
a time; under SYNC_FLUSH each part is synced. After that, a send only copies bytes, and a sync only
writes them.

When the log reaches the file before it is ready, warming ends: zeros are never written where the
log may write.

Source: AllocateMappedFileService, DefaultMappedFile.warmMappedFile @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Final

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from twistmq.broker.constants import PAGE_SIZE_BYTES
from twistmq.broker.store.commit_log import CommitLog
from twistmq.broker.store.interfaces import IStoreIO
from twistmq.broker.store.segment_files import segment_path
from twistmq.broker.store.settings import StoreSettings

__all__ = ["FileWarmer"]

#: The number of bytes written at a time. The log waits at most for one such write when it reaches a
#: file that is being warmed.
_WRITE_SIZE: Final = 1 << 20


class _WarmedFile:
    """One file that is being warmed by jobs on a thread.

    :param sync: whether each job makes its part durable.
    """

    def __init__(self, io: IStoreIO, path: str, size: int, sync: bool) -> None:
        self.path = path
        #: The number of bytes that are warm.
        self.done = 0
        self._io = io
        self._size = size
        self._sync = sync
        #: Held while zeros are written, and while ``_claimed`` is set to prevent further writes.
        self._lock = Lock()
        self._claimed = False

    @property
    def is_over(self) -> bool:
        """Whether the work is finished, or was ended by the log."""
        return self._claimed or self.done >= self._size

    def claim(self) -> None:
        """Prevent any further writing of zeros."""
        with self._lock:
            self._claimed = True

    def warm(self, size: int) -> None:
        """Warm some more bytes. Blocks: run it on a thread, one call at a time.

        :raises StoreFull: when the disk is full.
        :raises OSError: when the disk fails.
        """
        end = min(self.done + size, self._size)
        with self._lock:
            if self._claimed:
                return
            file = self._io.allocate(self.path, self._size)
        try:
            while self.done < end:
                part = min(_WRITE_SIZE, end - self.done)
                with self._lock:
                    if self._claimed:
                        return
                    file.write_at(self.done, bytes(part))
                self.done += part
            if self._sync:
                file.sync()
        finally:
            file.close()

    def remove(self) -> None:
        """Remove the file, unless the log already uses it."""
        with self._lock:
            if not self._claimed:
                self._claimed = True
                self._io.remove(self.path)


class FileWarmer:
    """Warms the next file of one log."""

    log = Logger()

    def __init__(
        self,
        settings: StoreSettings,
        io: IStoreIO,
        commit_log: CommitLog,
        in_thread: Callable[[Callable[[], None]], Deferred[None]],
    ) -> None:
        self._step_size = settings.flush_least_pages_when_warm_maped_file * PAGE_SIZE_BYTES
        self._sync = settings.sync_flush
        self._io = io
        self._log = commit_log
        self._in_thread = in_thread
        #: The file that was last begun, and its start offset.
        self._warming: _WarmedFile | None = None
        self._start = -1
        self._running: Deferred[None] | None = None

    @property
    def has_work(self) -> bool:
        """Whether ``step`` may have work: the next file is not ready, and no part of it is being
        warmed.
        """
        if self._running is not None:
            return False
        log = self._log
        start = log.next_file_start(log.max_offset - 1) if log.max_offset else 0
        if start != self._start:
            return not log.starts or start > log.starts[-1]
        return self._warming is not None and not self._warming.is_over

    def step(self) -> None:
        """Warm a part of the next file, if it is not ready. Call it about every 50 ms."""
        if self._running is not None:
            return
        log = self._log
        start = log.next_file_start(log.max_offset - 1) if log.max_offset else 0
        if start != self._start:
            if log.starts and start <= log.starts[-1]:
                # The file already existed when the store was opened.
                return
            self._start = start
            self._warming = _WarmedFile(
                self._io, segment_path(log.directory, start), log.file_size, self._sync)
        warming = self._warming
        if warming is None or warming.is_over:
            return
        job = self._in_thread(lambda: warming.warm(self._step_size))
        self._running = job
        job.addErrback(self._failed, warming).addBoth(self._ran)

    def _ran(self, result: object) -> None:
        self._running = None

    def _failed(self, failure: Failure, warming: _WarmedFile) -> Deferred[None]:
        """Remove the file to free its space for the current file of the log."""
        self.log.warn("the next commit-log file {path} cannot be prepared: {error}",
                      path=warming.path,
                      error=failure.value)
        removed = self._in_thread(warming.remove)
        return removed.addErrback(lambda other: self.log.warn(
            "{path} cannot be removed: {error}", path=warming.path, error=other.value))

    def claim(self, start: int) -> None:
        """Stop warming the file that starts here, because the log has reached it."""
        if self._warming is not None and start == self._start:
            self._warming.claim()

    async def discard(self) -> None:
        """Remove a file created in advance, because the log is being cut; the next step begins
        again.

        :raises OSError: when it cannot be removed.
        """
        warming, start = self._warming, self._start
        await self.stop()
        self._warming, self._start = None, -1
        if warming is not None and start not in self._log.starts:
            self._io.remove(warming.path)

    def stop(self) -> Deferred[None]:
        """Stop warming; fires once no thread is writing."""
        if self._warming is not None:
            self._warming.claim()
        done: Deferred[None] = Deferred()
        if self._running is None:
            return succeed(None)
        self._running.addBoth(lambda _: done.callback(None))
        return done
