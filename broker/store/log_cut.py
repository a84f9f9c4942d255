"""Cutting the end of a running store's log, with all that queues and index have of it.

A replica whose log ends with half a record, or with records that others do not have, is cut before
it goes on. Meanwhile the store takes no message and writes nothing else. The order is such that a
kill or a loss of power at any moment leaves what recovery can bring to agree: first the checkpoint
says less, so that a start after a crash reads the log from a file before the cut on; then index and
queues are cut, which the log could make again; the log comes last.

Source: DefaultMessageStore.truncateFiles, CommitLog.resetOffset @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from twisted.internet.defer import Deferred, DeferredLock
from twisted.logger import Logger

from twistmq.broker.store.checkpoint_file import CheckpointFile
from twistmq.broker.store.commit_flush import CommitFlush
from twistmq.broker.store.commit_log import CommitLog
from twistmq.broker.store.dispatch import Dispatch
from twistmq.broker.store.file_warmer import FileWarmer
from twistmq.broker.store.index_files import IndexFiles
from twistmq.broker.store.queue_table import QueueTable
from twistmq.broker.store.raw_log import RawLog
from twistmq.broker.store.upkeep import Upkeep
from twistmq.protocol.errors import StoreError

__all__ = ["LogCut"]


class LogCut:
    """Cuts one store.

    :param index: None when messages are not indexed.
    :param warmer: None when no file is made ahead.
    :param pause: lets the store take no bytes and do no upkeep until its result is called.
    """

    log = Logger()

    def __init__(
        self, commit_log: CommitLog, raw: RawLog, dispatch: Dispatch, queues: QueueTable,
        index: IndexFiles | None, flush: CommitFlush, upkeep: Upkeep, checkpoint: CheckpointFile,
        warmer: FileWarmer | None, in_thread: Callable[[Callable[[], None]], Deferred[None]],
        pause: Callable[[], Callable[[], None]],
    ) -> None:
        self._log = commit_log
        self._raw = raw
        self._dispatch = dispatch
        self._queues = queues
        self._index = index
        self._flush = flush
        self._upkeep = upkeep
        self._checkpoint = checkpoint
        self._warmer = warmer
        self._in_thread = in_thread
        self._pause = pause
        self._lock = DeferredLock()
        #: Called after each cut, before more is stored: positions in queues may be beyond them.
        self.on_cut: list[Callable[[], None]] = []

    def finished(self) -> Deferred[None]:
        """Fires when no cut is under way."""
        return self._lock.run(lambda: None)

    def cut_tail(self) -> Deferred[None]:
        """End the log with its last whole record, as :meth:`truncate` does."""
        return self._run(lambda: self._truncate(self._raw.whole_offset))

    def truncate(self, offset: int) -> Deferred[None]:
        """End the log at a place, where a record must begin.

        :returns: fires when queues and index, on disk too, have nothing from there on. Fails with
            StoreError when no record begins there, when replicas agreed to more, or when the disk
            fails; in the last case the store takes no more messages.
        """
        return self._run(lambda: self._truncate(offset))

    def start_at(self, offset: int) -> Deferred[None]:
        """Let an empty log begin at a place, where a file must start; queues are removed.

        :returns: fires when that is so. Fails with StoreError when the log is not empty, when no
            file can start there, or when the disk fails; in the last case the store takes no more
            messages.
        """
        return self._run(lambda: self._start_at(offset))

    def _run(self, job: Callable[[], Coroutine[Any, Any, None]]) -> Deferred[None]:
        """Run one job after the other.

        To cancel the result does not end the job: a log that is cut in part cannot be used.
        """
        done: Deferred[None] = Deferred()
        self._lock.run(lambda: Deferred.fromCoroutine(job())).chainDeferred(done)
        return done

    async def _truncate(self, offset: int) -> None:
        self._require_place(offset)
        if offset == self._log.max_offset:
            return
        resume = self._pause()
        try:
            await self._settle()
            # Retention may have removed its file meanwhile.
            self._require_place(offset)
            self.log.warn("the commit log is cut from {end} to {offset}",
                          end=self._log.max_offset, offset=offset)
            try:
                await self._cut(offset)
            except (StoreError, OSError) as error:
                raise self._given_up(error) from error
            self._tell()
        finally:
            resume()

    async def _start_at(self, offset: int) -> None:
        log = self._log
        if log.max_offset != log.min_offset:
            raise StoreError(f"the log has bytes from {log.min_offset} to {log.max_offset}: it "
                             f"cannot begin at {offset}")
        if offset < 0 or offset % log.file_size:
            raise StoreError(f"no file of {log.file_size} bytes can start at {offset}")
        resume = self._pause()
        try:
            await self._settle()
            try:
                for topic in list(self._queues.by_topic):
                    self._queues.destroy(topic)
                await self._in_thread(self._queues.sync_job())
                log.start_at(offset)
            except (StoreError, OSError) as error:
                raise self._given_up(error) from error
            self._dispatch.reset(offset)
            self._raw.forget()
            self._tell()
        finally:
            resume()

    def _tell(self) -> None:
        for call in self.on_cut:
            call()

    def _require_place(self, offset: int) -> None:
        """:raises StoreError: when the log cannot end here."""
        log = self._log
        if not log.min_offset <= offset <= log.max_offset:
            raise StoreError(f"the log has bytes from {log.min_offset} to {log.max_offset}: it "
                             f"cannot end at {offset}")
        if not self._dispatch.confirm_follows and offset < self._dispatch.confirm_offset:
            raise StoreError(f"replicas agreed up to {self._dispatch.confirm_offset}: the log "
                             f"cannot end at {offset}")
        if offset not in (self._raw.whole_offset, log.min_offset) and not log.begins_at(offset):
            raise StoreError(f"no record begins at {offset}: the log cannot end there")

    async def _settle(self) -> None:
        """Wait for all that threads do with the files."""
        flushed = self._flush.flushed(self._log.max_offset)
        if flushed is not None:
            await flushed
        if self._index is not None:
            await self._index.pause()
        await self._upkeep.settle()
        if self._warmer is not None:
            await self._warmer.discard()

    async def _cut(self, offset: int) -> None:
        """Cut all parts, in the order that the module describes.

        :raises StoreError, OSError: when the disk fails.
        """
        log, queues, dispatch = self._log, self._queues, self._dispatch
        before = offset - 1
        file_ms = log.store_timestamp(before - before % log.file_size) if before >= 0 else 0
        self._checkpoint.lower(max(1, file_ms), offset)
        if self._index is not None:
            for _ in self._index.cut(offset, log.store_timestamp):
                # Others have their turn.
                await self._in_thread(lambda: None)
        queues.cut(offset)
        newest_ms = max(0, file_ms, self._newest_ms())
        log.truncate(offset)
        dispatch.cut(offset, newest_ms)
        for queue in queues:
            queue.next_offset = queue.max_offset
        log.last_store_timestamp = dispatch.timestamp
        self._upkeep.cut(offset)
        self._raw.forget()

    def _newest_ms(self) -> int:
        """Store time of the newest message of any queue, ms; -1 without one."""
        queue = self._queues.furthest()
        entry = None if queue is None else self._queues.files_of(queue).entry(
            queue, queue.max_offset - 1)
        return -1 if entry is None else self._log.store_timestamp(entry[0])

    def _given_up(self, error: StoreError | OSError) -> StoreError:
        """A cut was done in part: the next start, after what counts as a crash, repairs it."""
        failure = StoreError(f"the store could not be cut: {error}")
        self._flush.give_up(failure)
        return failure
