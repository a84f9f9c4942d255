"""The index by key: files of up to 20 million items. Only the newest file is written.

A flush of a file is a round of small steps, so that the reactor is never held: items, sync, log,
count, sync, slots, sync, checkpoint, header, sync. Each is on disk before the next begins. A crash
therefore leaves a file in which Apache's broker and ours find all that its header tells of, and
never one that is newer than the checkpoint says: such files are thrown away by recovery, as
Apache's broker does it.

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

#: Letters of a file's name: yyyyMMddHHmmssSSS.
_NAME_LENGTH = 17
#: Items of a chain that are looked at before others have their turn: some milliseconds.
_ITEMS_AT_ONCE = 1000


def index_file_name(now_ms: int) -> str:
    """Name a file by local time, to the millisecond, as Apache's broker does."""
    moment = datetime.fromtimestamp(now_ms // 1000)
    return f"{moment:%Y%m%d%H%M%S}{now_ms % 1000:03d}"


class IndexFiles:
    """All index files of a store.

    :param in_thread: runs a function on a thread.
    :param flush_log: makes durable the messages that have items: others may take their places.
    :param save_checkpoint: makes durable that the index is complete up to a store time and a
        place in the log.
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
        #: Whether a sync failed: nothing is flushed any more.
        self.lost = False
        #: The error that stopped a round; raised by the next step.
        self._failure: BaseException | None = None
        #: Rounds that came to their end.
        self.rounds = 0
        self._resumed: Deferred[None] | None = None

    # --- load

    def load(self, newest_ms: int | None) -> None:
        """Read the headers of all files.

        :param newest_ms: after a crash, the store time in ms up to which the index is durable;
            files that claim more are removed. None after a clean stop.
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
                    "{path} was written with other maxHashSlotNum or maxIndexNum and is not used",
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
                # Recovery goes on behind the last file: there must be no gap before it.
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
                # A crash came between the making of the file and its first header.
                file.follow(self.files[-1])
            self.files.append(file)
        if newest_ms is not None and self.files:
            self._io.sync_path(self.directory)

    @property
    def end_physical(self) -> int:
        """Place of the newest message that has items; 0 without any."""
        return self.files[-1].tail.end_physical if self.files else 0

    @property
    def end_timestamp(self) -> int:
        """Store time in ms of that message; 0 without any."""
        return self.files[-1].tail.end_timestamp if self.files else 0

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the newest items, which are not in their file."""
        return len(self.files[-1].tail.items) if self.files else 0

    @property
    def has_room(self) -> bool:
        """Whether items may be added: those of an index that was lost would wait without end."""
        return not self.lost or (
            sum(len(file.tail.items) for file in self.files) < INDEX_LOST_BYTES_MAX)

    # --- filling

    def current(self) -> IndexTail:
        """The tail new items go to."""
        if self.files and not self.files[-1].tail.is_full():
            return self.files[-1].tail
        return self.next()

    def next(self) -> IndexTail:
        """Begin another file, which is made on disk when it is first flushed."""
        name = index_file_name(self._now_ms())
        if self.files:
            # Names order the files, whatever the clock and the season do.
            last = self.files[-1].path[-_NAME_LENGTH:]
            name = max(name, f"{int(last) + 1:0{_NAME_LENGTH}d}")
        path = f"{self.directory}/{name}"
        file = IndexFile(self._io, path, self._slot_count, self._item_max)
        if self.files:
            file.follow(self.files[-1])
        self.files.append(file)
        return file.tail

    async def pause(self) -> None:
        """Give up the round that is going on, as soon as no thread works for it."""
        if self._waiting:
            self._resumed = Deferred()
            await self._resumed
        self._abandon()

    def cut(self, place: int, store_time: Callable[[int], int]) -> Generator[None, None, None]:
        """Take back the items of messages at or behind a place in the log; yields in between.

        No round may be going on. The files are as they were until the next round: until then the
        checkpoint must say that the index is not durable beyond the place.

        :param store_time: gives the store time in ms of the message at a place.
        :raises OSError: when a file cannot be removed.
        """
        assert self._round is None and not self._waiting
        while self.files and self.end_physical >= place:
            file = self.files[-1]
            if file.tail.count <= 1 or file.tail.begin_physical >= place:
                self.files.pop()
                file.close()
                self._io.remove(file.path)
            else:
                while file.tail.take_back(place, _ITEMS_AT_ONCE):
                    yield
                file.tail.end_timestamp = store_time(file.tail.end_physical)
                file.is_behind()

    def drop_expired(self, log_min_offset: int) -> IndexFile | None:
        """Take the oldest file out of the index if no message of it is in the commit log any more.

        :returns: the file, to be closed and removed; None when it is needed, or the newest, or a
            flush is not done with it.
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
        """Find messages by the hash of a key, however long it takes; see :meth:`finding`."""
        return run_to_completion(
            self.finding(topic, key, max_count, begin_ms, end_ms, stored_ms))

    def finding(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int,
        stored_ms: Callable[[int], int] = unknown_time,
    ) -> Generator[None, None, tuple[list[int], int, int]]:
        """Find messages by the hash of a key; yields where it can pause.

        :param begin_ms: store times from here to ``end_ms`` count, both included.
        :param stored_ms: gives the store time in ms of the message at a place; -1 when it cannot
            be read.
        :returns: (places in the commit log, newest first; store time in ms and place of the
            newest message in the index).
        """
        if not self.files:
            return [], 0, 0
        code = item_hash(java_string_hash(topic + "#"), key)
        found: list[int] = []
        for file in reversed(list(self.files)):
            if file not in self.files:
                # It went meanwhile, as did those before it, with the messages they told of.
                break
            if file.matches_time(begin_ms, end_ms):
                number = file.tail.newest(code)
                while number and file in self.files:
                    number = file.tail.walk(
                        number, code, max_count, begin_ms, end_ms, found, _ITEMS_AT_ONCE,
                        stored_ms)
                    yield
            if file.tail.begin_timestamp < begin_ms or len(found) >= max_count:
                break
        last = self.files[-1].tail
        return found, last.end_timestamp, last.end_physical

    # --- flushing

    @property
    def is_flushed(self) -> bool:
        """Whether all files say all there is to say, on disk."""
        return self._round is None and all(file.is_flushed for file in self.files)

    def step(self, may_begin: bool) -> bool:
        """Do a little of a flush.

        :param may_begin: begin a round of the file that is being filled.
        :returns: whether there is more to do at once.
        :raises StoreFull: when the disk is full, for the index or the checkpoint that goes before
            its header; the round is given up and starts over later.
        :raises OSError: when the disk fails; the same.
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
        """Begin the round of the oldest file that needs one; one that is full does not wait."""
        file = next((file for file in self.files if not file.is_flushed), None)
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
            # The next file's header must not be on disk before this one is.
            lambda: self._wait(self._in_thread(file.sync), self._lose),
        ]
        return True

    def _wait(self, done: Deferred[None], failed: Callable[[Failure], None]) -> bool:
        """Go on when a thread has done its part.

        :param failed: called when it could not.
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
        """A sync failed: flush no more.

        The kernel may have dropped what it could not write: a later sync proves nothing. The items
        of the index stay readable; new items wait in memory, as long as there is room. The next
        start, after what counts as a crash, adds what is missing.
        """
        self.lost = True
        self._abandon()
        self.log.failure("the index cannot be flushed", failure=failure)
        self._resume(None)

    def _put_off(self, failure: Failure) -> None:
        """The checkpoint could not be written, which each round does: so the round is tried
        again."""
        self._failure = failure.value
        self._abandon()
        self._resume(None)

    async def finish(self) -> None:
        """Flush all there is, for the end.

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
        """Give a round up; the next one writes its pages again."""
        self._round = None
        self._steps = []

    def close(self) -> None:
        """Close every file."""
        for file in self.files:
            file.close()
