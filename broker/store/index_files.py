"""The index by key: files of up to 20 million items. Only the newest file is written.

A flush of a file is a round of small steps, so that it never blocks the reactor for long: items,
sync, log, count, sync, slots, sync, checkpoint, header, sync. Each step is on disk before the next
one begins. After a crash, Apache's broker and this one therefore find everything that the header of
a file claims. A file is also never newer than the checkpoint, because recovery would discard such a
file, as Apache's broker does.

Source: IndexService @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from datetime import datetime

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from twistmq.broker.constants import INDEX_LOST_BYTES_MAX
from twistmq.broker.store.index_file import IndexFile
from twistmq.broker.store.index_tail import IndexTail, item_hash, unknown_time
from twistmq.broker.store.interfaces import IStoreIO
from twistmq.protocol.errors import StoreError
from twistmq.protocol.properties import java_string_hash
from twistmq.protocol.run_to_completion import run_to_completion

__all__ = ["IndexFiles", "index_file_name"]

#: The length of a file's name: yyyyMMddHHmmssSSS.
_NAME_LENGTH = 17
#: The number of items of a chain that are examined before other work gets its turn: some
#: milliseconds.
_ITEMS_AT_ONCE = 1000


def index_file_name(now_ms: int) -> str:
    """Return the name of a file by local time, to the millisecond, as Apache's broker does."""
    moment = datetime.fromtimestamp(now_ms // 1000)
    return f"{moment:%Y%m%d%H%M%S}{now_ms % 1000:03d}"


class IndexFiles:
    """All index files of a store.

    :param in_thread: runs a function on a thread.
    :param flush_log: makes the messages that have items durable; otherwise other messages may take
        their offsets after a crash.
    :param save_checkpoint: makes durable that the index is complete up to a store time and a
        commit-log offset.
    """

    log = Logger()

    def __init__(
        self,
        io: IStoreIO,
        directory: str,
        slot_count: int,
        item_max: int,
        now_ms: Callable[[], int],
        in_thread: Callable[[Callable[[], None]], Deferred[None]],
        flush_log: Callable[[], Deferred[None]],
        save_checkpoint: Callable[[int, int], Deferred[None]],
    ) -> None:
        self.directory = directory
        self.files: list[IndexFile] = []
        self._io = io
        self._slot_count = slot_count
        self._item_max = item_max
        self._now_ms = now_ms
        self._in_thread = in_thread
        self._flush_log = flush_log
        self._save_checkpoint = save_checkpoint
        self._round: IndexFile | None = None
        self._steps: list[Callable[[], bool]] = []
        self._waiting = False
        #: Whether a sync failed. Nothing is flushed after that.
        self.lost = False
        #: The error that stopped a round; the next step raises it.
        self._failure: BaseException | None = None
        #: The number of completed rounds.
        self.rounds = 0
        self._resumed: Deferred[None] | None = None

    # --- load

    def load(self, newest_ms: int | None) -> None:
        """Read the headers of all files.

        :param newest_ms: after a crash, the store time up to which the index is durable, in ms;
            files that claim a later time are removed. None after a clean stop.
        """
        self._io.make_directory(self.directory)
        is_cut = False
        for name in self._io.list_directory(self.directory):
            path = f"{self.directory}/{name}"
            if not name.isdecimal():
                self.log.warn("{path} is not an index file and is left alone", path=path)
                continue
            file = IndexFile(self._io, path, self._slot_count, self._item_max)
            if self._io.file_size(path) != file.size:
                self.log.warn(
                    "{path} was written with another maxHashSlotNum or maxIndexNum and is not used",
                    path=path,
                )
                continue
            file.load()
            if newest_ms is not None:
                file.settle()
            if newest_ms is not None and not file.is_whole():
                self.log.warn("index file {path} is incomplete and is removed", path=path)
                file.close()
                self._io.remove(path)
                continue
            if newest_ms is not None and (is_cut or file.tail.end_timestamp > newest_ms):
                # Recovery continues after the last file, so there must be no gap before it.
                is_cut = True
                self.log.warn("index file {path} is newer than the checkpoint and is removed",
                              path=path)
                file.close()
                self._io.remove(path)
                continue
            if newest_ms is not None:
                # The data of a killed process may not be durable.
                file.repair()
                file.sync()
            if file.tail.count <= 1 and self.files:
                # A crash occurred between the creation of the file and its first header.
                file.follow(self.files[-1])
            self.files.append(file)
        if newest_ms is not None and self.files:
            self._io.sync_path(self.directory)

    @property
    def end_physical(self) -> int:
        """The commit-log offset of the newest message that has items; 0 without items."""
        return self.files[-1].tail.end_physical if self.files else 0

    @property
    def end_timestamp(self) -> int:
        """The store time of that message in ms; 0 without items."""
        return self.files[-1].tail.end_timestamp if self.files else 0

    @property
    def waiting_bytes(self) -> int:
        """The size of the newest items, which are not in their file yet, in bytes."""
        return len(self.files[-1].tail.items) if self.files else 0

    @property
    def has_room(self) -> bool:
        """Whether items may be added. After a failed sync, waiting items would otherwise fill the
        memory."""
        return not self.lost or (
            sum(len(file.tail.items) for file in self.files) < INDEX_LOST_BYTES_MAX)

    # --- filling

    def current(self) -> IndexTail:
        """Return the tail that receives new items."""
        if self.files and not self.files[-1].tail.is_full():
            return self.files[-1].tail
        return self.next()

    def next(self) -> IndexTail:
        """Begin another file, which is created on disk by its first flush."""
        name = index_file_name(self._now_ms())
        if self.files:
            # Names must order the files, even when the clock is set back.
            last = self.files[-1].path[-_NAME_LENGTH:]
            name = max(name, f"{int(last) + 1:0{_NAME_LENGTH}d}")
        path = f"{self.directory}/{name}"
        file = IndexFile(self._io, path, self._slot_count, self._item_max)
        if self.files:
            file.follow(self.files[-1])
        self.files.append(file)
        return file.tail

    async def pause(self) -> None:
        """Give up the current round, as soon as no thread works on it."""
        if self._waiting:
            self._resumed = Deferred()
            await self._resumed
        self._abandon()

    def cut(self, cut_offset: int, store_time: Callable[[int], int]) -> Generator[None, None, None]:
        """Remove the items of messages at or after an offset in the log; yields in between.

        No round may be running. The files keep their contents until the next round, and until then
        the checkpoint must not claim that the index is durable beyond the offset.

        :param store_time: returns the store time in ms of the message at a commit-log offset.
        :raises OSError: when a file cannot be removed.
        """
        assert self._round is None and not self._waiting
        has_removed = False
        while self.files and self.end_physical >= cut_offset:
            file = self.files[-1]
            if file.tail.count <= 1 or file.tail.begin_physical >= cut_offset:
                self.files.pop()
                file.close()
                self._io.remove(file.path)
                has_removed = True
            else:
                while file.tail.take_back(cut_offset, _ITEMS_AT_ONCE):
                    yield
                file.tail.end_timestamp = store_time(file.tail.end_physical)
                file.is_behind()
        if has_removed:
            # Otherwise a file may reappear after a loss of power, when the checkpoint says again
            # that the index is durable. Recovery would then take the messages that follow for
            # indexed.
            self._io.sync_path(self.directory)

    def drop_expired(self, log_min_offset: int) -> IndexFile | None:
        """Take the oldest file out of the index if all its messages have left the commit log.

        :returns: the file, which the caller must close and remove; None when it is still needed, is
            the newest one, or is being flushed.
        """
        if len(self.files) < 2:
            return None
        file = self.files[0]
        if file.tail.end_physical >= log_min_offset or not file.is_flushed:
            return None
        if file is self._round:
            # A thread may be about to sync its header.
            return None
        return self.files.pop(0)

    # --- finding

    def find(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int,
        stored_ms: Callable[[int], int] = unknown_time,
    ) -> tuple[list[int], int, int]:
        """Find messages by the hash of a key without pausing; see :meth:`finding`."""
        return run_to_completion(
            self.finding(topic, key, max_count, begin_ms, end_ms, stored_ms))

    def finding(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int,
        stored_ms: Callable[[int], int] = unknown_time,
    ) -> Generator[None, None, tuple[list[int], int, int]]:
        """Find messages by the hash of a key; yields where it can pause.

        :param begin_ms: the first store time of the range; ``end_ms`` is the last one.
        :param stored_ms: returns the store time in ms of the message at a commit-log offset; -1
            when it cannot be read.
        :returns: (commit-log offsets, newest first; store time in ms and commit-log offset of the
            newest message in the index).
        """
        if not self.files:
            return [], 0, 0
        code = item_hash(java_string_hash(topic + "#"), key)
        log_offsets: list[int] = []
        for file in reversed(list(self.files)):
            if file not in self.files:
                # The file and all earlier ones were removed in the meantime, together with their
                # messages.
                break
            if file.matches_time(begin_ms, end_ms):
                number = file.tail.newest(code)
                while number and file in self.files:
                    number = file.tail.walk(
                        number, code, max_count, begin_ms, end_ms, log_offsets, _ITEMS_AT_ONCE,
                        stored_ms)
                    yield
            if file.tail.begin_timestamp < begin_ms or len(log_offsets) >= max_count:
                break
        last = self.files[-1].tail
        return log_offsets, last.end_timestamp, last.end_physical

    # --- flushing

    @property
    def is_flushed(self) -> bool:
        """Whether all files are complete on disk."""
        return self._round is None and all(file.is_flushed for file in self.files)

    @property
    def has_work(self) -> bool:
        """Whether ``step`` has work now, apart from a new round of the file being filled."""
        if self._waiting or self.lost:
            return False
        if self._failure is not None or self._round is not None:
            return True
        file = self._next_unflushed()
        return file is not None and file.tail.is_full()

    def _next_unflushed(self) -> IndexFile | None:
        """Return the oldest file that needs a round."""
        return next((file for file in self.files if not file.is_flushed), None)

    def step(self, may_begin: bool) -> bool:
        """Do a small part of a flush.

        :param may_begin: whether a round of the file that is being filled may begin.
        :returns: whether there is more to do at once.
        :raises StoreFull: when the disk is full, for the index or for the checkpoint that is
            written before the header. The round is given up and starts over later.
        :raises OSError: when the disk fails; the round is given up as well.
        """
        if self._waiting or self.lost:
            return False
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        if self._round is None:
            if not self._begin(may_begin):
                return False
        elif not self._steps:
            self._round = None
            self.rounds += 1
            return True
        try:
            if self._steps[0]() and self._steps:
                self._steps.pop(0)
        except (StoreError, OSError):
            self._abandon()
            raise
        return not self._waiting

    def _begin(self, may_begin: bool) -> bool:
        """Begin the round of the oldest file that needs one; a full file does not wait."""
        file = self._next_unflushed()
        if file is None or not (may_begin or file.tail.is_full()):
            return False
        file.begin_round()
        self._round = file
        self._steps = [
            file.write_items,
            lambda: self._wait(self._in_thread(file.sync), self._lose),
            lambda: self._wait(self._flush_log(), self._lose),
            file.write_count,
            lambda: self._wait(self._in_thread(file.sync), self._lose),
            file.write_pages,
            lambda: self._wait(self._in_thread(file.sync), self._lose),
            lambda: self._wait(self._save_checkpoint(
                file.header_timestamp, file.header_physical + 1), self._put_off),
            file.write_header,
            # The header of the next file must not be on disk before this one.
            lambda: self._wait(self._in_thread(file.sync), self._lose),
        ]
        return True

    def _wait(self, done: Deferred[None], failed: Callable[[Failure], None]) -> bool:
        """Continue when a thread has done its part.

        :param failed: called when the thread failed.
        """
        self._waiting = True
        done.addCallbacks(self._resume, failed)
        return True

    def _resume(self, _: None) -> None:
        self._waiting = False
        resumed, self._resumed = self._resumed, None
        if resumed is not None:
            resumed.callback(None)

    def _lose(self, failure: Failure) -> None:
        """A sync failed: stop flushing.

        The kernel may have dropped the data that it could not write, so a later successful sync
        proves nothing. The items of the index stay readable, and new items wait in memory as long
        as there is room. The next start counts as one after a crash and adds the missing items.
        """
        self.lost = True
        self._abandon()
        self.log.failure("the index cannot be flushed", failure=failure)
        self._resume(None)

    def _put_off(self, failure: Failure) -> None:
        """The checkpoint of a round could not be written, so the round is tried again later."""
        self._failure = failure.value
        self._abandon()
        self._resume(None)

    async def finish(self) -> None:
        """Flush everything before the stop.

        :raises StoreError, OSError: when it cannot be flushed.
        """
        self._failure = None
        while self.lost or not self.is_flushed:
            if self.lost:
                raise StoreError(f"the index cannot be flushed: {self.directory}")
            if self._waiting:
                self._resumed = Deferred()
                await self._resumed
            self.step(may_begin=True)

    def _abandon(self) -> None:
        """Give up the current round; the next one writes its pages again."""
        self._round = None
        self._steps = []

    def close(self) -> None:
        """Close every file."""
        for file in self.files:
            file.close()
