"""The window of a queue: messages that were read and are not finished, and the offset to commit.

A message is *waiting* until it is handed out, *running* until it is finished, and then gone. The
offset to commit is that of the first message that is not finished, or the one after the last; it
never goes back. So a member that dies has everything from its first unfinished message delivered
again, and nothing is skipped.

Consumption in order and concurrent consumption differ in how messages are handed out only: in
order, nothing is handed out while a message runs, and a failed message is put back to the front.

Source: ProcessQueue, ConsumeMessageConcurrentlyService.processConsumeResult,
RemoteBrokerOffsetStore @5.3.3. Differs from Apache: messages that time out are found among those
that run, oldest first, not only at the front of the window.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final, Generic, TypeVar

from twistmq.client.base.received_message import Read
from twistmq.protocol.bodies import MessageQueue

__all__ = ["ByteTotal", "QueueWindow"]

#: How long a broker's lock is believed in without being renewed, ms; brokers keep it for 60 s.
LOCK_MS: Final = 30_000
#: A queue that was not pulled for so long is dropped and taken again, ms.
IDLE_MS: Final = 120_000
#: Messages of a queue that one look for time-outs finds at most.
EXPIRED_MAX: Final = 16


_OFFSET: Final = attrgetter("offset")
_BEGAN: Final = attrgetter("began_ms")


class ByteTotal:
    """The bytes of the messages in all windows that share it."""

    __slots__ = ("byte_count",)

    def __init__(self) -> None:
        self.byte_count = 0


M = TypeVar("M", bound=Read)


class QueueWindow(Generic[M]):
    """The window of one queue while this member has it.

    :param queue: which.
    :param start_offset: where its first pull begins.
    :param now_ms: steady clock.
    :param total: counts the bytes of this and other windows.
    """

    __slots__ = ("_committable", "_is_dropped", "_is_lost", "_last_offset", "_lock_ms",
                 "_running_count", "_total", "_unfinished", "_waiting", "byte_count",
                 "pulled_ms", "queue")

    def __init__(
        self, queue: MessageQueue, start_offset: int, now_ms: int, total: ByteTotal | None = None
    ) -> None:
        self.queue: Final = queue
        #: When the last pull began, and the bytes of all messages in the window.
        self.pulled_ms = now_ms
        self.byte_count = 0
        #: Messages that are not finished, by offset, in order. After a drop: those that run.
        self._unfinished: dict[int, M] = {}
        self._waiting: deque[M] = deque()
        #: Those among the unfinished that were handed out: their ``began_ms`` says when.
        self._running_count = 0
        self._last_offset = -1
        self._committable = start_offset
        self._is_dropped = self._is_lost = False
        self._lock_ms: int | None = None
        self._total = ByteTotal() if total is None else total

    # --- what is in it

    @property
    def count(self) -> int:
        """Messages that are not finished."""
        return 0 if self._is_dropped else len(self._unfinished)

    @property
    def waiting_count(self) -> int:
        """Messages that can be handed out."""
        return len(self._waiting)

    @property
    def running_count(self) -> int:
        """Messages that were handed out and are not finished."""
        return self._running_count

    @property
    def bounds(self) -> tuple[int, int] | None:
        """The first and the last offset that are not finished; None when there are no such."""
        if self._is_dropped or not self._unfinished:
            return None
        return next(iter(self._unfinished)), next(reversed(self._unfinished))

    @property
    def running_bounds(self) -> tuple[int, int] | None:
        """The lowest and the highest offset that run."""
        running = [message.offset for message in self.running()]
        return (min(running), max(running)) if running else None

    @property
    def span(self) -> int:
        """The distance from the first offset that is not finished to the last such."""
        bounds = self.bounds
        return bounds[1] - bounds[0] if bounds else 0

    @property
    def committable(self) -> int:
        """The offset to commit: everything below it is finished."""
        if not self._is_dropped:
            unfinished = self._unfinished
            end = next(iter(unfinished)) if unfinished else self._last_offset + 1
            self._committable = max(self._committable, end)
        return self._committable

    @property
    def next_waiting(self) -> int | None:
        """The offset of the message that is handed out next; None without one."""
        return self._waiting[0].offset if self._waiting else None

    def waiting(self) -> list[M]:
        """Messages that can be handed out, in order."""
        return list(self._waiting)

    def running(self) -> list[M]:
        """Messages that were handed out and are not finished, those of the longest time first."""
        if not self._running_count:
            return []
        return sorted([message for message in self._unfinished.values() if message.began_ms >= 0],
                      key=_BEGAN)

    def began_ms(self, offset: int) -> int | None:
        """When a message that runs was handed out; None when it does not run."""
        message = self._unfinished.get(offset)
        return None if message is None or message.began_ms < 0 else message.began_ms

    # --- in and out

    def put(self, messages: Sequence[M]) -> int:
        """Add messages that were read; those that are in the window already are left out.

        :returns: how many were added.
        """
        if self._is_lost or not messages:
            return 0
        last = self._last_offset
        for message in messages:
            if message.offset <= last:
                return self._put_each(messages)
            last = message.offset
        unfinished = self._unfinished
        byte_count = 0
        for message in messages:
            unfinished[message.offset] = message
            message.began_ms = -1
            byte_count += message.size
        self._last_offset = last
        self._waiting.extend(messages)
        self._count_bytes(byte_count)
        return len(messages)

    def _count_bytes(self, change: int) -> None:
        self.byte_count += change
        self._total.byte_count += change

    def _put_each(self, messages: Sequence[M]) -> int:
        """Add messages that are not all behind the last: a broker went back, or repeats some."""
        added = []
        for message in messages:
            offset = message.offset
            if offset not in self._unfinished:
                self._unfinished[offset] = message
                message.began_ms = -1
                self._count_bytes(message.size)
                self._last_offset = max(self._last_offset, offset)
                added.append(message)
        self._unfinished = dict(sorted(self._unfinished.items()))
        self._wait_again(added)
        return len(added)

    def take(self, most: int, now_ms: int) -> list[M]:
        """Hand out the next messages, for concurrent consumption."""
        waiting = self._waiting
        if most >= len(waiting):
            taken = list(waiting)
            waiting.clear()
        else:
            taken = [waiting.popleft() for _ in range(most)]
        for message in taken:
            message.began_ms = now_ms
        self._running_count += len(taken)
        return taken

    def take_in_order(self, most: int, now_ms: int) -> list[M]:
        """Hand out the next messages, unless some run: for consumption in order."""
        return [] if self._running_count else self.take(most, now_ms)

    def forget(self, messages: Iterable[M]) -> None:
        """Messages that wait are not to be handed out any more."""
        gone = {message.offset for message in messages}
        if gone and not self._is_lost:
            self._waiting = deque(each for each in self._waiting if each.offset not in gone)
            self._count_bytes(-sum([self._unfinished.pop(offset).size for offset in gone]))

    def put_back(self, messages: Iterable[M]) -> None:
        """Have messages that run wait again, before those behind them: they will be retried."""
        back = []
        for message in messages:
            running = self._unfinished.get(message.offset)
            if running is not None and running.began_ms >= 0:
                running.began_ms = -1
                self._running_count -= 1
                if self._is_dropped:
                    del self._unfinished[message.offset]
                back.append(running)
        self._wait_again(back)

    def _wait_again(self, messages: list[M]) -> None:
        if not messages or self._is_lost:
            return
        messages.sort(key=_OFFSET)
        waiting = self._waiting
        if not waiting or messages[-1].offset < waiting[0].offset:
            waiting.extendleft(reversed(messages))
        else:
            self._waiting = deque(sorted((*waiting, *messages), key=_OFFSET))

    def done(self, offset: int) -> bool:
        """A message is finished: its result counts.

        :returns: False when its result comes too late: the queue is lost, the message timed out
            and was sent back, or is no longer here for another reason.
        """
        message = self._unfinished.get(offset)
        if message is None or message.began_ms < 0:
            return False
        del self._unfinished[offset]
        self._running_count -= 1
        if self._is_dropped:
            return False
        self._count_bytes(-message.size)
        return True

    def done_all(self, messages: Iterable[M]) -> int:
        """Messages are finished; how many of the results count, see :meth:`done`."""
        unfinished = self._unfinished
        count = byte_count = 0
        for message in messages:
            running = unfinished.get(message.offset)
            if running is not None and running.began_ms >= 0:
                del unfinished[message.offset]
                byte_count += running.size
                count += 1
        self._running_count -= count
        if self._is_dropped:
            return 0
        self._count_bytes(-byte_count)
        return count

    def expired(self, now_ms: int, timeout_ms: int, most: int = EXPIRED_MAX) -> list[M]:
        """The messages that have run for longer than a time-out, those of the longest time first.

        The caller sends them back and calls :meth:`done`; results that come later do not count.
        """
        return [message for message in self.running()
                if now_ms - message.began_ms > timeout_ms][:most]

    def correct_tags_offset(self, next_offset: int) -> None:
        """A pull found that nothing below an offset fits: commit it, if nothing is unfinished."""
        if not self._unfinished and not self._is_dropped:
            self._committable = max(self.committable, next_offset)

    def begin_at(self, offset: int) -> None:
        """The queue begins at another offset, also at a lower one; nothing of it was read yet."""
        self._committable = offset

    # --- whose it is

    @property
    def is_dropped(self) -> bool:
        """Whether the queue is another member's, or is to be taken again from the start."""
        return self._is_lost

    def lose(self) -> list[M]:
        """Hand out and take in nothing more; the results of what runs count until :meth:`drop`.

        :returns: the messages that run: their handlers are to be told that the queue is lost.
        """
        self._is_lost = True
        self._waiting.clear()
        return self.running()

    def drop(self) -> list[M]:
        """Forget what waits, and let nothing change the offset to commit any more.

        :returns: the messages that run: their handlers are to be told that the queue is lost.
        """
        running = self.running()
        self._committable = self.committable
        self._is_dropped = self._is_lost = True
        self._unfinished = {message.offset: message for message in running}
        self._waiting.clear()
        self._count_bytes(-self.byte_count)
        return running

    def freeze_at(self, offset: int) -> None:
        """Drop the queue because a broker moved its offset, which is to be committed, even back."""
        self.drop()
        self._committable = offset

    def locked(self, now_ms: int) -> None:
        """The broker gave or renewed the lock of the queue."""
        self._lock_ms = now_ms

    def unlocked(self) -> None:
        """The broker refused the lock, or it was given back."""
        self._lock_ms = None

    def holds_lock(self, now_ms: int) -> bool:
        """Whether the lock is held: brokers keep it for longer than it is believed in here."""
        return self._lock_ms is not None and now_ms - self._lock_ms <= LOCK_MS

    @property
    def lock_ms(self) -> int | None:
        """When the lock was given or renewed; None without a lock."""
        return self._lock_ms

    def is_idle(self, now_ms: int) -> bool:
        """Whether no pull began for so long that something must be wrong."""
        return now_ms - self.pulled_ms > IDLE_MS
