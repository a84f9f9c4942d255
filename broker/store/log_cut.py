"""Cutting the end of a running store's log, together with the affected entries of queues and index.

A replica may hold the beginning of a record that never became complete, or records that the other
replicas do not have. These must be removed before it can continue. Cutting touches
several files, and a kill or a loss of power may come between any two of them. The order of the
steps makes every intermediate state one that recovery can repair. First the checkpoint is lowered,
so that a start after a crash reads the log from a file before the cut. Then index and queues are
cut, which recovery could rebuild from the log. The log itself comes last: if it came first, the
index could keep keys of messages whose offsets are already used by other messages. During a cut the
store accepts no messages and writes nothing else.

Queues and index contain nothing of records that are not dispatched. To remove such records, it is
enough to cut the log, and the wait is only for a sync that runs at the moment.

Source: DefaultMessageStore.truncateFiles, CommitLog.resetOffset @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

from twisted.internet.defer import Deferred, DeferredLock
from twisted.logger import Logger
from twisted.python.failure import Failure

from twistmq.broker.constants import LOG_OFFSET_MAX
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

__all__ = ["CUT_AT_ONCE_MAX", "LogCut"]

#: The largest cut that is made in one turn of the reactor, in bytes. A larger one takes 1 ms for
#: each of these, and its sync may take longer.
CUT_AT_ONCE_MAX: Final = 4 * 1024 * 1024


class LogCut:
    """Cuts one store.

    :param index: None when messages are not indexed.
    :param warmer: None when no file is created in advance.
    :param pause: makes the store accept no bytes and do no upkeep until its result is called.
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
        #: Whether a thread still removes what ``cut_at_once`` has cut. The log takes no bytes.
        self.is_finishing = False
        #: Called after each cut, before more is stored: saved positions in queues may be beyond the
        #: new ends.
        self.on_cut: list[Callable[[], None]] = []

    def finished(self) -> Deferred[None]:
        """Fires when no cut is running."""
        return self._lock.run(lambda: None)

    def cut_tail(self) -> Deferred[None]:
        """End the log after its last whole record, as :meth:`truncate` does."""
        return self._run(lambda: self._truncate(self._raw.whole_offset))

    def truncate(self, offset: int) -> Deferred[None]:
        """End the log at an offset, where a record must begin.

        :returns: fires when queues and index contain nothing from there on, on disk as well. Fails
            with StoreError when no record begins there, when replicas have confirmed a higher
            offset, or when the disk fails; in the last case the store accepts no more messages.
        """
        return self._run(lambda: self._truncate(offset))

    def cut_undispatched(self, offset: int) -> Deferred[None]:
        """End the log at an offset, as :meth:`truncate` does, where no later record is dispatched.

        Records that wait for their flush are removed as well.

        :returns: fires when the log ends there, on disk as well. Fails with StoreError in the same
            cases as ``truncate``, and when a later record is dispatched.
        """
        return self._run(lambda: self._cut_undispatched(offset))

    def cut_at_once(self, offset: int, size_max: int = CUT_AT_ONCE_MAX) -> None:
        """End the log at an offset up to which it is dispatched at most, in one turn.

        Queues and index have nothing from there on, so only the log is cut. The call blocks until
        the file in which the log ends is on disk. A thread does this work for a larger cut, and the
        log takes no bytes until it is done (``is_finishing``). A crash before that may undo the
        cut.

        :param size_max: the largest cut whose work on the disk is done in this turn, in bytes.
        :raises StoreError: when no record begins there, when messages after it are readable or
            confirmed, when another cut is running, or when the disk fails; in the last case the
            store accepts no more messages.
        """
        log, dispatch = self._log, self._dispatch
        if offset == log.max_offset:
            return
        if self._lock.locked:
            raise StoreError("another cut of the log is running")
        self._require_place(offset)
        if offset < dispatch.offset:
            raise StoreError(f"the messages up to {dispatch.offset} are readable: the log cannot "
                             f"end at {offset}")
        self.log.info("the commit log is cut from {end} to {offset}, nothing of that was readable",
                      end=log.max_offset, offset=offset)
        is_large = log.max_offset - offset > size_max
        try:
            if is_large:
                self._cut_later(offset)
            else:
                self._lower_checkpoint(offset)
                log.truncate(offset)
        except (StoreError, OSError) as error:
            raise self._given_up(error) from error
        dispatch.cut(offset, dispatch.timestamp)
        log.last_store_timestamp = log.newest_timestamp(dispatch.newest_timestamp)
        self._raw.forget()
        self._flush.cut(offset)
        self._tell()

    def _cut_later(self, offset: int) -> None:
        """End the log at an offset, and let a thread do the work on the disk."""
        lower = self._checkpoint.lower_job(max(1, self._file_ms(offset)), offset)
        cut = self._log.cut_later(offset)

        def job() -> None:
            lower()
            cut()

        self._finish_in_thread(job)

    def _finish_in_thread(self, job: Callable[[], None]) -> None:
        """Let a thread do the last work of a cut; the log takes no bytes until it is done."""
        self.is_finishing = True

        def finished(result: Any) -> None:
            self.is_finishing = False
            if isinstance(result, Failure):
                self.log.error("{error}", error=str(self._given_up(result.value)))

        self._lock.run(lambda: self._in_thread(job)).addBoth(finished)

    def begin_again(
        self, offset: int, begin: Callable[[], Callable[[], None]],
        size_max: int = CUT_AT_ONCE_MAX,
    ) -> None:
        """Let the log begin again at a later offset in one turn, and drop everything before it.

        Queues and index keep the entries of the dropped messages until they expire. A thread
        removes the files of a long log, and the log takes no bytes until it is done
        (``is_finishing``).

        :param offset: where a file must start, after all that is readable.
        :param begin: moves the log there, and returns the job that removes the files.
        :param size_max: the size of the longest log whose files are removed in this turn, in bytes.
        :raises StoreError: when messages after the offset are readable, when another cut is
            running, or when the disk fails; in the last case the store accepts no more messages.
        """
        log, dispatch = self._log, self._dispatch
        if offset < dispatch.offset:
            raise StoreError(f"the messages up to {dispatch.offset} are readable: the log cannot "
                             f"begin at {offset}")
        if self._lock.locked:
            raise StoreError("another cut of the log is running")
        is_large = log.max_offset - log.min_offset > size_max
        if log.max_offset > log.min_offset:
            self.log.warn("the log from {begin} to {end} is dropped, it begins again at {offset}",
                          begin=log.min_offset, end=log.max_offset, offset=offset)
        try:
            self._checkpoint.lower(1, offset)
            remove = begin()
            if not is_large:
                remove()
        except (StoreError, OSError) as error:
            raise self._given_up(error) from error
        if is_large:
            self._finish_in_thread(remove)
        self._flush.cut(offset)
        dispatch.reset(offset)
        for queue in self._queues:
            queue.next_offset = queue.max_offset
        self._raw.forget()
        self._tell()

    def start_at(self, offset: int) -> Deferred[None]:
        """Move the beginning of an empty log to an offset where a file must start, and remove all
        queues.

        :returns: fires when this is done. Fails with StoreError when the log is not empty, when no
            file can start there, or when the disk fails; in the last case the store accepts no more
            messages.
        """
        return self._run(lambda: self._start_at(offset))

    def _run(self, job: Callable[[], Coroutine[Any, Any, None]]) -> Deferred[None]:
        """Run one job after the other.

        Cancelling the result does not stop the job, because a partly cut log cannot be used.
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
            # Retention may have removed the file in the meantime.
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

    async def _cut_undispatched(self, offset: int) -> None:
        self._require_undispatched(offset)
        log = self._log
        if offset == log.max_offset:
            return
        resume = self._pause()
        try:
            while (syncing := self._flush.wait_for_sync()) is not None:
                await syncing
            if self._warmer is not None:
                await self._warmer.discard()
            # More may be confirmed in the meantime.
            self._require_undispatched(offset)
            self.log.warn("the commit log is cut from {end} to {offset}; the later messages were "
                          "not readable yet", end=log.max_offset, offset=offset)
            try:
                log.truncate(offset)
            except (StoreError, OSError) as error:
                raise self._given_up(error) from error
            self._dispatch.cut(offset, self._dispatch.timestamp)
            self._upkeep.cut(offset)
            self._raw.forget()
            self._flush.cut(offset)
            self._tell()
        finally:
            resume()

    def _require_undispatched(self, offset: int) -> None:
        """:raises StoreError: when the log cannot end here, or a later record is dispatched."""
        self._require_place(offset)
        if offset < self._dispatch.offset:
            raise StoreError(f"the log is dispatched up to {self._dispatch.offset}: more than its "
                             f"end from {offset} on has to be cut")

    async def _start_at(self, offset: int) -> None:
        log = self._log
        if log.max_offset != log.min_offset:
            raise StoreError(f"the log has bytes from {log.min_offset} to {log.max_offset}: it "
                             f"cannot begin at {offset}")
        if not 0 <= offset <= LOG_OFFSET_MAX or offset % log.file_size:
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
        """Check that the log can end at an offset.

        :raises StoreError: when the log cannot end here.
        """
        log = self._log
        if not log.min_offset <= offset <= log.max_offset:
            raise StoreError(f"the log has bytes from {log.min_offset} to {log.max_offset}: it "
                             f"cannot end at {offset}")
        if not self._dispatch.confirm_follows and offset < self._dispatch.confirm_offset:
            raise StoreError(f"replicas have confirmed up to {self._dispatch.confirm_offset}: the "
                             f"log cannot end at {offset}")
        if offset not in (self._raw.whole_offset, log.min_offset) and not log.begins_at(offset):
            raise StoreError(f"no record begins at {offset}: the log cannot end there")

    async def _settle(self) -> None:
        """Wait until no thread works on the files."""
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
        file_ms = self._lower_checkpoint(offset)
        if self._index is not None:
            for _ in self._index.cut(offset, log.store_timestamp):
                # Let the reactor do other work.
                await self._in_thread(lambda: None)
        queues.cut(offset)
        newest_ms = max(0, file_ms, self._newest_ms())
        log.truncate(offset)
        dispatch.cut(offset, newest_ms)
        log.last_store_timestamp = dispatch.timestamp
        self._upkeep.cut(offset)
        self._raw.forget()

    def _lower_checkpoint(self, offset: int) -> int:
        """Make a start after a crash read the log from a file before the cut.

        :returns: the store time of the first record of that file, in ms; not positive without one.
        """
        file_ms = self._file_ms(offset)
        self._checkpoint.lower(max(1, file_ms), offset)
        return file_ms

    def _file_ms(self, offset: int) -> int:
        """Return the store time of the first record of the file before a cut, in ms; not positive
        without one.
        """
        return self._log.file_timestamp(offset - 1) if offset > 0 else 0

    def _newest_ms(self) -> int:
        """Return the store time of the newest message of any queue, in ms; -1 without a message."""
        queue = self._queues.furthest()
        entry = None if queue is None else self._queues.files_of(queue).entry(
            queue, queue.max_offset - 1)
        return -1 if entry is None else self._log.store_timestamp(entry[0])

    def _given_up(self, error: BaseException | None) -> StoreError:
        """Give up a partial cut, which the next start, as after a crash, repairs."""
        failure = StoreError(f"the store could not be cut: {error}")
        self._flush.give_up(failure)
        return failure
