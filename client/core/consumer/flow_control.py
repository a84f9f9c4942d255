"""Flow control: decides when a queue may be pulled.

A consumer has limits for each queue, like Java's consumer, and a limit on the bytes of all queues
together, which Java does not have. A pull that has just begun counts with the bytes that it may
return; a pull that the broker holds, because the queue has no messages, will return only a few
messages and no longer counts. A queue may use as much as is free at that time. Therefore the
largest queues stop first, and an empty queue finds room at once, however slow the handlers of
other queues are.

Source: DefaultMQPushConsumerImpl.pullMessage, RebalancePushImpl.messageQueueChanged, ClientConfig
@5.3.3; client notes 2.4.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from twistmq.client.core.consumer.window import ByteTotal, QueueWindow
from twistmq.protocol.codes import ResponseCode

__all__ = ["BROKER_BUSY_MS", "FAILED_MS", "FULL_MS", "NEW_QUEUE_MS", "PAUSED_MS", "PullFlow",
           "PullLimits", "PullUnderWay", "delay_after_refusal"]

#: How long a queue waits until it is checked again, in ms: it has enough messages; the broker
#: limits pulls; the consumer is paused; the pull failed or the lock is missing; the queue is new,
#: and its previous member may still commit.
FULL_MS: Final = 50
BROKER_BUSY_MS: Final = 20
PAUSED_MS: Final = 1000
FAILED_MS: Final = 1000
NEW_QUEUE_MS: Final = 500

#: The approximate maximum size of a pull's result. Source: DefaultMQPushConsumer
#: .pullBatchSizeInBytes.
PULL_BYTES: Final = 256 << 10
#: A pull without an answer after this time is held by the broker, in ms.
HELD_MS: Final = 1000
#: The limit on the bytes of all queues.
CACHE_BYTES_MAX: Final = 64 << 20


def delay_after_refusal(code: int) -> int:
    """Return how long a queue waits after its pull was refused, in ms."""
    return BROKER_BUSY_MS if code == ResponseCode.FLOW_CONTROL else FAILED_MS


@dataclass(frozen=True, slots=True)
class PullLimits:
    """Limits on the messages of a queue that are read and not finished; the option ``limits``.

    A queue that has reached one of them is not pulled until handlers finish some of its messages.
    One pull may exceed a limit. ``Consumer(..., limits=PullLimits(count=100))`` replaces one limit
    and keeps the others. Each limit is at least 1.

    :param count: the number of messages.
    :param byte_count: the number of bytes.
    :param span: the distance from the first offset to the last, for concurrent consumption.
    :param topic_count: the number of messages of a topic, divided among its queues; it replaces
        ``count``. -1: no limit for the topic.
    :param topic_byte_count: the same for bytes.
    """

    count: int = 1000
    byte_count: int = 100 << 20
    span: int = 2000
    topic_count: int = -1
    topic_byte_count: int = -1

    def __reduce__(self) -> tuple[object, ...]:
        # A compiled dataclass sets the attributes of a copy one by one, which a frozen one refuses.
        return PullLimits, (self.count, self.byte_count, self.span, self.topic_count,
                            self.topic_byte_count)

    def excess(
        self, window: QueueWindow[Any], queues_of_topic: int = 1, *, in_order: bool = False,
        under_way: int = 0,
    ) -> str:
        """Return the limit that a queue exceeds, for a log; "" when it may be pulled.

        :param queues_of_topic: the number of queues of its topic that this member has.
        :param under_way: the number of messages that its pulls in flight may return.
        """
        count_max = _part(self.topic_count, queues_of_topic, self.count)
        if window.count + under_way > count_max:
            return f"{window.count + under_way} messages of at most {count_max}"
        byte_count_max = _part(self.topic_byte_count, queues_of_topic, self.byte_count)
        if window.byte_count > byte_count_max:
            return f"{window.byte_count} bytes of at most {byte_count_max}"
        if not in_order and window.span + under_way > self.span:
            return f"offsets over {window.span + under_way} of at most {self.span}"
        return ""


def _part(of_topic: int, queues: int, of_queue: int) -> int:
    return of_queue if of_topic < 0 else max(1, of_topic // max(queues, 1))


class PullUnderWay:
    """A pull that has begun and has no response yet."""

    __slots__ = ("begin_ms", "is_counted")

    def __init__(self, begin_ms: float) -> None:
        self.begin_ms = begin_ms
        #: Whether it counts with PULL_BYTES.
        self.is_counted = True


class PullFlow:
    """The flow control of a consumer.

    :param total: the bytes of all its windows.
    :param bytes_max: the limit on these bytes plus the bytes that pulls in flight may return.
    """

    def __init__(
        self, total: ByteTotal, limits: PullLimits | None = None, bytes_max: int = CACHE_BYTES_MAX
    ) -> None:
        self._total = total
        self._limits = limits or PullLimits()
        self._bytes_max = bytes_max
        #: The pulls that began within HELD_MS, of which some have ended, and how many still count.
        self._recent: deque[PullUnderWay] = deque()
        self._counted = 0

    def excess(
        self, window: QueueWindow[Any], now_ms: float, queues_of_topic: int = 1, *,
        in_order: bool = False, under_way: int = 0,
    ) -> str:
        """Return why a queue has to wait for ``FULL_MS``, for a log; "" when it may be pulled now.

        :param under_way: the number of messages that its pulls in flight may return: another pull
            has to leave half of the room to other queues.
        """
        return (self._limits.excess(window, queues_of_topic, in_order=in_order,
                                    under_way=under_way)
                or self._excess_of_all(window, now_ms, self._bytes_max // 2 if under_way else 0))

    def is_full(self, now_ms: float) -> bool:
        """Whether all queues together have no room for the result of another request."""
        self._note_held(now_ms)
        used_bytes = self._total.byte_count + self._counted * PULL_BYTES
        return bool(used_bytes) and used_bytes + PULL_BYTES > self._bytes_max

    def _excess_of_all(self, window: QueueWindow[Any], now_ms: float, reserved_bytes: int) -> str:
        self._note_held(now_ms)
        used_bytes = self._total.byte_count + self._counted * PULL_BYTES
        # The very first pull is allowed under any limit.
        if not used_bytes or window.byte_count <= (
                self._bytes_max - reserved_bytes - used_bytes - PULL_BYTES):
            return ""
        return (f"{window.byte_count} bytes, while all queues have {self._total.byte_count} and "
                f"{self._counted} pulls in flight, of at most {self._bytes_max}")

    def begin(self, now_ms: float) -> PullUnderWay:
        """Begin a pull."""
        pull = PullUnderWay(now_ms)
        self._recent.append(pull)
        self._counted += 1
        return pull

    def end(self, pull: PullUnderWay) -> None:
        """End a pull that was answered or given up, once its messages are in the window."""
        if pull.is_counted:
            pull.is_counted = False
            self._counted -= 1

    def _note_held(self, now_ms: float) -> None:
        recent = self._recent
        while recent and (not recent[0].is_counted or now_ms - recent[0].begin_ms >= HELD_MS):
            self.end(recent.popleft())
