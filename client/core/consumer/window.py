"""The window of a queue: the messages that were read but are not finished, and the commit offset.

A consumer group stores only one number for each queue, the offset from which the group continues.
Handlers may run concurrently, though, and finish in any order. If the member committed the offset
of the latest finished message, a crash would lose every earlier message that was still running.
The window therefore keeps all messages that were read and are not finished, in the order of their
offsets, and derives the commit offset from the first of them.

A message is *waiting* until it is handed out, *running* until it is finished, and is then removed.
The commit offset is the offset of the first unfinished message, or the offset after the last
message if all are finished; it never goes back. If a member dies, everything from its first
unfinished message is delivered again, and nothing is skipped.

Ordered and concurrent consumption differ only in how messages are handed out: in ordered
consumption, nothing is handed out while a message runs, and a failed message is put back to the
front.

Source: ProcessQueue, ConsumeMessageConcurrentlyService.processConsumeResult,
RemoteBrokerOffsetStore @5.3.3. Differs from Apache: messages that time out are found among all
running messages, oldest first, and not only at the front of the window.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final, Generic, TypeVar

from twistmq.client.base.received_message import Read
from twistmq.protocol.bodies import MessageQueue

__all__ = ["ByteTotal", "QueueWindow"]

#: How long a lock is considered held without renewal, in ms; brokers keep it for 60 s.
LOCK_MS: Final = 30_000
#: A queue that was not pulled for this time is dropped and assigned again, in ms.
IDLE_MS: Final = 120_000
#: The maximum number of messages of a queue that one search for time-outs finds.
EXPIRED_MAX: Final = 16


_OFFSET: Final = attrgetter("offset")
_BEGAN: Final = attrgetter("began_ms")


class ByteTotal:
    """The total size of the messages in all windows that share it."""

    __slots__ = ("byte_count",)

    def __init__(self) -> None:
        self.byte_count = 0


M = TypeVar("M", bound=Read)


class QueueWindow(Generic[M]):
    """The window of one queue while it is assigned to this member.

    :param queue: the queue.
    :param start_offset: the offset of its first pull.
    :param now_ms: the time by the monotonic clock.
    :param total: counts the bytes of this and other windows.
    """

    __slots__ = ("_committable", "_is_dropped", "_is_lost", "_last_offset", "_lock_ms",
                 "_running_count", "_total", "_unfinished", "_waiting", "byte_count",
                 "pulled_ms", "queue")

    def __init__(
        self, queue: MessageQueue, start_offset: int, now_ms: int, total: ByteTotal | None = None
    ) -> None:
        self.queue: Final = queue
        #: The start of the last pull, and the size of all messages in the window.
        self.pulled_ms = now_ms
        self.byte_count = 0
        #: The unfinished messages by offset, in order. After a drop: only the running messages.
        self._unfinished: dict[int, M] = {}
        self._waiting: deque[M] = deque()
        #: The number of unfinished messages that were handed out; ``began_ms`` is their start.
        self._running_count = 0
        self._last_offset = -1
        self._committable = start_offset
        self._is_dropped = self._is_lost = False
        self._lock_ms: int | None = None
        self._total = ByteTotal() if total is None else total

    # --- the content of the window

    @property
    def count(self) -> int:
        """The number of messages that are not finished."""
        return 0 if self._is_dropped else len(self._unfinished)

    @property
    def waiting_count(self) -> int:
        """The number of messages that can be handed out."""
        return len(self._waiting)

    @property
    def running_count(self) -> int:
        """The number of messages that were handed out and are not finished."""
        return self._running_count

    @property
    def bounds(self) -> tuple[int, int] | None:
        """The first and the last unfinished offset; None when all messages are finished."""
        if self._is_dropped or not self._unfinished:
            return None
        return next(iter(self._unfinished)), next(reversed(self._unfinished))

    @property
    def running_bounds(self) -> tuple[int, int] | None:
        """The lowest and the highest offset of the running messages."""
        running = [message.offset for message in self.running()]
        return (min(running), max(running)) if running else None

    @property
    def span(self) -> int:
        """The distance from the first unfinished offset to the last."""
        bounds = self.bounds
        return bounds[1] - bounds[0] if bounds else 0

    @property
    def committable(self) -> int:
        """The offset to commit: all messages below it are finished."""
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
        """Return the messages that can be handed out, in order."""
        return list(self._waiting)

    def running(self) -> list[M]:
        """Return the messages that were handed out and are not finished, the oldest call first."""
        if not self._running_count:
            return []
        return sorted([message for message in self._unfinished.values() if message.began_ms >= 0],
                      key=_BEGAN)

    def began_ms(self, offset: int) -> int | None:
        """Return when a running message was handed out; None when it is not running."""
        message = self._unfinished.get(offset)
        return None if message is None or message.began_ms < 0 else message.began_ms

    # --- in and out

    def put(self, messages: Sequence[M]) -> int:
        """Add messages that were read; messages that are already in the window are ignored.

        :returns: the number of added messages.
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
        """Add messages that do not all follow the last one: a broker went back or repeats some."""
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

    def take(self, max_count: int, now_ms: int) -> list[M]:
        """Hand out the next messages, for concurrent consumption."""
        waiting = self._waiting
        if max_count >= len(waiting):
            messages = list(waiting)
            waiting.clear()
        else:
            messages = [waiting.popleft() for _ in range(max_count)]
        for message in messages:
            message.began_ms = now_ms
        self._running_count += len(messages)
        return messages

    def take_in_order(self, max_count: int, now_ms: int) -> list[M]:
        """Hand out the next messages for ordered consumption, unless some are running."""
        return [] if self._running_count else self.take(max_count, now_ms)

    def forget(self, messages: Iterable[M]) -> None:
        """Remove waiting messages that should not be handed out."""
        offsets = {message.offset for message in messages}
        if offsets and not self._is_lost:
            self._waiting = deque(each for each in self._waiting if each.offset not in offsets)
            self._count_bytes(-sum([self._unfinished.pop(offset).size for offset in offsets]))

    def put_back(self, messages: Iterable[M]) -> None:
        """Put running messages back before all later messages, because they will be retried."""
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
        """Finish a message, so that its result counts.

        :returns: False when the result comes too late: the queue is lost, the message timed out
            and was sent back, or the message has left the window for another reason.
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
        """Finish messages; :returns: how many of the results count, see :meth:`done`."""
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

    def expired(self, now_ms: int, timeout_ms: int, max_count: int = EXPIRED_MAX) -> list[M]:
        """Return the messages that have run for longer than a time-out, the oldest call first.

        The caller sends them back and calls :meth:`done`; later results do not count.
        """
        return [message for message in self.running()
                if now_ms - message.began_ms > timeout_ms][:max_count]

    def correct_tags_offset(self, next_offset: int) -> None:
        """Commit an offset below which a pull found no match, if all messages are finished."""
        if not self._unfinished and not self._is_dropped:
            self._committable = max(self.committable, next_offset)

    def begin_at(self, offset: int) -> None:
        """Set the start offset, also to a lower one; no message of the queue was read yet."""
        self._committable = offset

    # --- the assignment of the queue

    @property
    def is_dropped(self) -> bool:
        """Whether the queue belongs to another member, or will be assigned again from the start."""
        return self._is_lost

    def stop_handing_out(self) -> list[M]:
        """Hand out and accept nothing more; results of running messages count until :meth:`drop`.

        :returns: the running messages, whose handlers have to learn that the queue is lost.
        """
        self._is_lost = True
        self._waiting.clear()
        return self.running()

    def drop(self) -> list[M]:
        """Forget the waiting messages, and make the offset to commit final.

        :returns: the running messages, whose handlers have to learn that the queue is lost.
        """
        running = self.running()
        self._committable = self.committable
        self._is_dropped = self._is_lost = True
        self._unfinished = {message.offset: message for message in running}
        self._waiting.clear()
        self._count_bytes(-self.byte_count)
        return running

    def freeze_at(self, offset: int) -> None:
        """Drop the queue, and commit the offset to which a broker moved it, even a lower one."""
        self.drop()
        self._committable = offset

    def locked(self, now_ms: int) -> None:
        """Note that the broker granted or renewed the lock of the queue."""
        self._lock_ms = now_ms

    def unlocked(self) -> None:
        """Note that the broker refused the lock, or that it was given back."""
        self._lock_ms = None

    def holds_lock(self, now_ms: int) -> bool:
        """Whether the lock is held: brokers keep it for longer than this member relies on it."""
        return self._lock_ms is not None and now_ms - self._lock_ms <= LOCK_MS

    @property
    def lock_ms(self) -> int | None:
        """The time when the lock was granted or renewed; None without a lock."""
        return self._lock_ms

    def is_idle(self, now_ms: int) -> bool:
        """Whether the last pull began so long ago that something must be wrong."""
        return now_ms - self.pulled_ms > IDLE_MS
