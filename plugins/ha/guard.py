"""A look at the master before anything is appended: is this log the beginning of its log?

The stream has no greeting: a slave that asks for bytes behind its end gets some, whether the bytes
before are the same or not. So a slave first asks its master, on the port for requests, where its
log begins and ends (28), and compares its own last message with the one at that place (33).

Source: none; Apache's slave appends what it gets.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from twisted.logger import Logger

from twistmq.broker.api import BrokerError, RequestCode, RequestRefused, ResponseCode, StoreError
from twistmq.broker.api.headers import ViewMessageRequestHeader
from twistmq.plugins.ha.ask import HA_ADDRESS, HEARS_IDS, TIMEOUT_MS, range_in, runtime_info

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["Guard", "LogsDiffer"]

_ALLOW: Final = "ha.resync=true removes what differs here"


class LogsDiffer(StoreError):
    """This log is not the beginning of the master's, and may not be changed to be."""


class Guard:
    """Looks at the master of one slave."""

    log = Logger()

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._settings = broker.settings
        self._store = broker.store
        self._lane = broker.background.lane()
        #: Whether the master that was asked last hears which broker a slave is.
        self.hears_ids = False
        #: Where it said that it is replicated from; empty: it did not say so, as Apache's do not.
        self.replication = ""

    async def prepare(self, address: str) -> int:
        """Make this log the beginning of the master's.

        :param address: the master's port for requests.
        :returns: where it ends, which is where the master's goes on.
        :raises LogsDiffer: when it is not, and must not be changed.
        :raises BrokerError: when the master cannot be asked, the disk fails, or what is here
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
                f"the log ends at {log.max_offset}, but the master has none of it: its log begins "
                f"at {begin}", begin, end, address)
        else:
            await self._compare(address, begin, end)
        # The first report acknowledges it, to a master that may take that for what is on disk.
        flushed = store.flush.flushed(log.max_offset)
        if flushed is not None:
            await flushed
        return log.max_offset

    def _dispatching(self) -> Generator[None, None, None]:
        """Make readable what came, so that the last message is soon found."""
        while self._store.dispatch.step():
            yield

    # --- questions to the master

    async def _range(self, address: str) -> tuple[int, int]:
        """Where the master's log begins and ends."""
        try:
            table = await runtime_info(self._broker, address)
            self.hears_ids = table.get(HEARS_IDS) == "true"
            self.replication = _address(table.get(HA_ADDRESS, ""))
            return range_in(table, address)
        except RequestRefused as error:
            raise BrokerError(f"{address} does not say where its log ends: {error}") from None

    async def _message(self, address: str, offset: int) -> bytes | None:
        """The master's message at a place; None when there is not any."""
        reply = await self._broker.host.ask_server(
            address, RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=offset),
            timeout_ms=TIMEOUT_MS)
        return reply.body if reply.code == ResponseCode.SUCCESS else None

    async def _is_same(self, address: str, offset: int, size: int) -> bool:
        """Whether the master has the message that is here."""
        return await self._message(address, offset) == self._store.raw.read(offset, size)

    # --- decisions

    async def _begin_at(self, address: str, begin: int, end: int) -> None:
        """Let an empty log begin where the master's does, or with its last file."""
        log = self._store.commit_log
        first = begin
        if not self._settings.flag("ha.full_copy"):
            begin = max(begin, end - end % log.file_size)
        if begin != log.max_offset:
            self.log.info("the log here is empty and begins at {begin}, the master's is from "
                          "{first} to {end}", begin=begin, first=first, end=end)
            await self._store.log_cut.start_at(begin)
        if begin == 0 and end > log.file_size:
            # A request for 0 is answered with the last file: ask from the second message on.
            message = await self._message(address, 0)
            if not message:
                raise BrokerError(f"{address} does not give the first message of its log")
            self._store.raw.append(0, message)

    async def _restart(self, why: str, begin: int, end: int, address: str) -> None:
        """Remove this log and begin with the master's.

        :raises LogsDiffer: when the settings do not allow it.
        """
        if not self._settings.flag("ha.resync"):
            raise LogsDiffer(f"{why}; {_ALLOW}")
        self.log.warn("{why}; ha.resync=true: all messages here are removed", why=why)
        await self._store.log_cut.truncate(self._store.commit_log.min_offset)
        await self._begin_at(address, begin, end)

    async def _compare(self, address: str, begin: int, end: int) -> None:
        """Compare the last message that both have."""
        log = self._store.commit_log
        last = self._last_message(begin, end)
        is_same = last is None or await self._is_same(address, *last)
        if is_same and log.max_offset <= end:
            return
        why = (f"the log ends at {log.max_offset}, the master's at {end} already" if is_same else
               f"the message at {last and last[0]} is another one than the master's")
        if not self._settings.flag("ha.resync"):
            raise LogsDiffer(f"{why}; {_ALLOW}")
        place = sum(last) if last is not None and is_same else (
            await self._last_common(address, begin, end))
        if place is None:
            await self._restart(f"{why}, and no message is the same", begin, end, address)
            return
        self.log.warn("{why}; ha.resync=true: what is here from {place} on is removed", why=why,
                      place=place)
        await self._store.log_cut.truncate(place)

    def _last_message(self, begin: int, end: int) -> tuple[int, int] | None:
        """Place and size of the last message here that ends at ``end`` at most."""
        log, queues = self._store.commit_log, self._store.queues
        at = log.min_offset
        queue = queues.furthest()
        if queue is not None and end >= log.max_offset:
            entry = queues.files_of(queue).entry(queue, queue.max_offset - 1)
            at = entry[0] if entry is not None else at
        elif end < log.max_offset:
            at = max(at, end - end % log.file_size)
        last = None
        for place, size in self._store.raw.messages(at):
            if place + size > end:
                break
            if place >= begin:
                last = place, size
        return last

    async def _last_common(self, address: str, begin: int, end: int) -> int | None:
        """Where the last message ends that both have; None when there is no such message.

        Logs that have a message in common have all those before it, too.
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
        places = await self._lane.run(self._listing(start, min(end, log.next_file_start(start))))
        low, high = 0, len(places) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if await self._is_same(address, *places[middle]):
                low = middle
            else:
                high = middle - 1
        return sum(places[low])

    def _listing(self, start: int, end: int) -> Generator[None, None, list[tuple[int, int]]]:
        """List the messages of one file, a slice at a time."""
        places = []
        for place, size in self._store.raw.messages(start):
            if place + size > end:
                break
            places.append((place, size))
            yield
        return places


def _address(text: str) -> str:
    """A text that is HOST:PORT; else nothing."""
    host, _, port = text.rpartition(":")
    return text if host and port.isascii() and port.isdecimal() and len(port) <= 5 else ""
