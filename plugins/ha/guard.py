"""Checks, before anything is appended, whether the local log is the beginning of the master's log.

The replication stream has no greeting. A master sends the bytes that follow any requested offset,
whether or not the bytes before it are the same on both sides. If a slave appended them blindly, it
could mix two different histories in one log, and offsets would point into the middle of messages.

A slave therefore asks its master first, on the port for requests, where the master's log begins and
ends (28), and compares its own last message with the one at the same place (33). Equal messages
prove that the logs agree up to there, since logs that have a message in common also have all
earlier ones in common. When the logs differ, the slave copies nothing, unless ``ha.resync`` lets it
cut its log after the last common message, which a binary search finds.

Source: none; Apache's slave appends the bytes that it receives.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from twisted.logger import Logger

from twistmq.broker.api import BrokerError, RequestCode, RequestRefused, ResponseCode, StoreError
from twistmq.broker.api.headers import ViewMessageRequestHeader
from twistmq.broker.api.wire import split_address
from twistmq.plugins.replica.ask import HA_ADDRESS, HEARS_IDS, TIMEOUT_MS, range_in, runtime_info

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["Guard", "LogsDiffer"]

_ALLOW: Final = "ha.resync=true removes the part that differs here"


class LogsDiffer(StoreError):
    """The local log is not the beginning of the master's log, and must not be changed."""


class Guard:
    """Checks the master of one slave."""

    log = Logger()

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._settings = broker.settings
        self._store = broker.store
        self._lane = broker.background.lane()
        #: Whether the last master that was asked accepts the broker id of a slave.
        self.hears_ids = False
        #: The master's address for replication as it reported it; empty if not, as for Apache's.
        self.replication = ""

    async def prepare(self, address: str) -> int:
        """Make the local log match the beginning of the log on the master.

        :param address: the master's port for requests.
        :returns: the end of the local log, at which the master's log continues.
        :raises LogsDiffer: when the logs differ, and the local one must not be changed.
        :raises BrokerError: when the master cannot be asked, the disk fails, or the local log
            cannot be read.
        """
        store, log = self._store, self._store.commit_log
        await self._lane.run(self._dispatching())
        store.require_sound()
        await store.log_cut.cut_tail()
        begin, end = await self._range(address)
        if log.max_offset == log.min_offset:
            await self._begin_at(address, begin, end)
        elif log.max_offset < begin:
            await self._restart(
                f"the log ends at {log.max_offset}, but the master's log begins later, at "
                f"{begin}", begin, end, address)
        else:
            await self._compare(address, begin, end)
        # The first report acknowledges this offset, and the master may take it as being on disk.
        flushed = store.flush.flushed(log.max_offset)
        if flushed is not None:
            await flushed
        return log.max_offset

    def _dispatching(self) -> Generator[None, None, None]:
        """Make received messages readable, so that the last message is found quickly."""
        while self._store.dispatch.step():
            yield

    # --- questions to the master

    async def _range(self, address: str) -> tuple[int, int]:
        """Return where the master's log begins and ends."""
        try:
            table = await runtime_info(self._broker, address)
            self.hears_ids = table.get(HEARS_IDS) == "true"
            self.replication = _address(table.get(HA_ADDRESS, ""))
            return range_in(table, address)
        except RequestRefused as error:
            raise BrokerError(f"{address} does not report where its log ends: {error}") from None

    async def _message(self, address: str, offset: int) -> bytes | None:
        """Return the master's message at an offset; None if no message begins there."""
        reply = await self._broker.host.ask_server(
            address, RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=offset),
            timeout_ms=TIMEOUT_MS)
        return reply.body if reply.code == ResponseCode.SUCCESS else None

    async def _is_same(self, address: str, offset: int, size: int) -> bool:
        """Whether the master has the same message as the local log."""
        return await self._message(address, offset) == self._store.raw.read(offset, size)

    # --- decisions

    async def _begin_at(self, address: str, begin: int, end: int) -> None:
        """Let an empty log begin where the master's does, or with the master's last file."""
        log = self._store.commit_log
        first = begin
        if not self._settings.flag("ha.full_copy"):
            begin = max(begin, end - end % log.file_size)
        if begin != log.max_offset:
            self.log.info("the local log is empty and begins at {begin}; the master's log reaches "
                          "from {first} to {end}", begin=begin, first=first, end=end)
            await self._store.log_cut.start_at(begin)
        if begin == 0 and end > log.file_size:
            # A master answers a request for 0 with its last file, so ask from the second message.
            message = await self._message(address, 0)
            if not message:
                raise BrokerError(f"{address} does not give the first message of its log")
            self._store.raw.append(0, message)

    async def _restart(self, why: str, begin: int, end: int, address: str) -> None:
        """Remove the local log and begin with the master's.

        :raises LogsDiffer: when the settings do not allow it.
        """
        if not self._settings.flag("ha.resync"):
            raise LogsDiffer(f"{why}; {_ALLOW}")
        self.log.warn("{why}; ha.resync=true: all messages here are removed", why=why)
        await self._store.log_cut.truncate(self._store.commit_log.min_offset)
        await self._begin_at(address, begin, end)

    async def _compare(self, address: str, begin: int, end: int) -> None:
        """Compare the last message that both logs have."""
        log = self._store.commit_log
        last = self._last_message(begin, end)
        is_same = last is None or await self._is_same(address, *last)
        if is_same and log.max_offset <= end:
            return
        why = (f"the log ends at {log.max_offset}, but the master's log at {end}" if is_same else
               f"the message at {last and last[0]} differs from the master's")
        if not self._settings.flag("ha.resync"):
            raise LogsDiffer(f"{why}; {_ALLOW}")
        cut_offset = sum(last) if last is not None and is_same else (
            await self._last_common(address, begin, end))
        if cut_offset is None:
            await self._restart(
                f"{why}, and the logs have no message in common", begin, end, address)
            return
        self.log.warn("{why}; ha.resync=true: the local messages from {place} on are removed",
                      why=why, place=cut_offset)
        await self._store.log_cut.truncate(cut_offset)

    def _last_message(self, begin: int, end: int) -> tuple[int, int] | None:
        """Return offset and size of the last local message that ends at or before ``end``."""
        log, queues = self._store.commit_log, self._store.queues
        at = log.min_offset
        queue = queues.furthest()
        if queue is not None and end >= log.max_offset:
            entry = queues.files_of(queue).entry(queue, queue.max_offset - 1)
            at = entry[0] if entry is not None else at
        elif end < log.max_offset:
            at = max(at, end - end % log.file_size)
        last = None
        for log_offset, size in self._store.raw.messages(at):
            if log_offset + size > end:
                break
            if log_offset >= begin:
                last = log_offset, size
        return last

    async def _last_common(self, address: str, begin: int, end: int) -> int | None:
        """Return the end of the last message that both logs have; None without such a message.

        Logs that have a message in common also have all earlier messages in common.
        """
        log = self._store.commit_log
        start: int | None = None
        for each in reversed(log.starts):
            if begin <= each < min(end, log.max_offset):
                first = next(self._store.raw.messages(each), None)
                if first is not None and await self._is_same(address, *first):
                    start = each
                    break
        if start is None:
            return None
        messages = await self._lane.run(self._listing(start, min(end, log.next_file_start(start))))
        low, high = 0, len(messages) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if await self._is_same(address, *messages[middle]):
                low = middle
            else:
                high = middle - 1
        return sum(messages[low])

    def _listing(self, start: int, end: int) -> Generator[None, None, list[tuple[int, int]]]:
        """List the messages of one file, one slice at a time."""
        messages = []
        for log_offset, size in self._store.raw.messages(start):
            if log_offset + size > end:
                break
            messages.append((log_offset, size))
            yield
        return messages


def _address(text: str) -> str:
    """Return a text that is HOST:PORT; an empty text for any other."""
    try:
        split_address(text)
    except ValueError:
        return ""
    return text
