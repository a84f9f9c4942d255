"""The queues of a member, and the options by which it reads them.

Source: DefaultMQPushConsumer, ProcessQueue @5.3.3.
"""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar

import msgspec

from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.core.connection.tasks import Future, Task
from twistmq.client.core.consumer.flow_control import CACHE_BYTES_MAX, PullLimits
from twistmq.client.core.consumer.strategies import Averagely, Strategy
from twistmq.client.core.consumer.subscriptions import Subscription
from twistmq.client.core.consumer.window import ByteTotal, QueueWindow
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.topic_names import RETRY_GROUP_TOPIC_PREFIX

__all__ = ["AssignedQueue", "AssignedQueues", "Batch", "MemberOptions", "PopOptions"]

T = TypeVar("T")

#: The interval between commits, in ms. Source: ClientConfig.persistConsumerOffsetInterval.
COMMIT_MS: Final = 5_000
#: The number of attempts of concurrent consumption after the first one.
#: Source: DefaultMQPushConsumer.maxReconsumeTimes.
MAX_ATTEMPTS: Final = 16
_INT32_MAX: Final = 2**31 - 1


class MemberOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a member; times are in ms."""

    group: str
    #: Whether each member gets every message.
    is_broadcast: bool = False
    #: Whether the messages of a queue are handled one after the other, in order.
    in_order: bool = False
    #: "last", "first" or Unix ms: where a group begins that never had a queue.
    start: str | int = "last"
    strategy: Strategy = Averagely()
    #: The number of times that a failed message is tried again before it becomes a dead letter;
    #: None: 16, or unlimited for ordered consumption.
    max_attempts: int | None = None
    consume_timeout_ms: float = 15 * 60_000
    #: The wait before a failed message of an ordered queue is handed out again.
    suspend_ms: float = 1000
    cache_bytes_max: int = CACHE_BYTES_MAX
    limits: PullLimits = PullLimits()
    pull_count: int = 32
    pull_bytes: int = 256 << 10
    rebalance_ms: float = 20_000
    commit_ms: float = COMMIT_MS
    #: "skip", "stop" or "deliver": how to treat a damaged message, see ``damaged_messages.py``.
    damaged: str = "skip"

    @property
    def needs_locks(self) -> bool:
        """Whether a queue is read only under its lock at the broker."""
        return self.in_order and not self.is_broadcast

    @property
    def attempts_max(self) -> int:
        """The number of attempts after the first one before a message becomes a dead letter."""
        if self.max_attempts is not None:
            return self.max_attempts
        return _INT32_MAX if self.in_order else MAX_ATTEMPTS


class PopOptions(MemberOptions, frozen=True, kw_only=True):
    """The options of a member that pops; times are in ms."""

    #: The time for which a pop hides messages from other members.
    invisible_ms: float = 60_000
    #: The maximum number of messages that are popped and not finished.
    in_flight_max: int = 1000


class AssignedQueue(Generic[T]):
    """A queue that is assigned to this member."""

    __slots__ = (
        "begun_offset",
        "behind",
        "broker_id",
        "committed",
        "floor",
        "floor_ms",
        "in_order_until_ms",
        "is_alone",
        "is_new",
        "is_paused",
        "is_ready",
        "is_settled",
        "next_offset",
        "outcome",
        "public_queue",
        "queue",
        "stopped_at",
        "subscription",
        "taken_ms",
        "task",
        "window",
    )

    def __init__(
        self, queue: MessageQueue, public_queue: MessageQueue, subscription: Subscription,
        window: QueueWindow[ReceivedMessage[T]], next_offset: int,
    ) -> None:
        #: The queue with the topic's name at brokers, and with its name in the namespace.
        self.queue = queue
        self.public_queue = public_queue
        self.subscription = subscription
        self.window = window
        #: The offset at which the next pull begins.
        self.next_offset = next_offset
        #: The highest offset of a message that a handler got; -1: none. See ``handler_calls.py``.
        self.begun_offset = -1
        #: After a pull that returned all requested messages: how many more the queue has.
        self.behind = 0
        #: The offset that is known to be committed.
        self.committed: int | None = None
        #: The offset that was committed before the last change of members, or else the first one;
        #: and the time when it was noted, by the monotonic clock.
        self.floor = next_offset
        self.floor_ms = float("-inf")
        #: Whether the start offset of the queue is known. Until then the previous member may still
        #: commit, and a commit of this member would reset the group.
        self.is_settled = False
        #: Whether the group had no offset for the queue when it was assigned.
        self.is_new = False
        #: The id of the broker to which the next pull goes.
        self.broker_id = 0
        #: The offset of a damaged message at which the queue stops; None if it does not stop.
        self.stopped_at: int | None = None
        #: Whether the next pull requests one message, because none after it could be found.
        self.is_alone = False
        self.is_paused = False
        #: Whether the queue is in the line of queues with messages to hand out.
        self.is_ready = False
        #: For ordered consumption: nothing is handed out before this time, after a failure.
        self.in_order_until_ms = 0.0
        self.task: Task[None] | None = None
        #: When messages were last handed out or the queue was assigned, by the monotonic clock.
        self.taken_ms: float = window.pulled_ms
        #: For a message that a tool sent, instead of a queue: whether it was processed.
        self.outcome: Future[bool] | None = None

    @property
    def is_retry(self) -> bool:
        """Whether it is a queue of the group's retry topic, which programs do not see."""
        return self.queue.topic.startswith(RETRY_GROUP_TOPIC_PREFIX)

    @property
    def is_unread(self) -> bool:
        """Whether the queue is new to the group, and waits for its first pull."""
        return self.is_new and not self.is_settled and not self.window.is_dropped


class AssignedQueues(dict[MessageQueue, AssignedQueue[T]]):
    """The queues that are assigned to one member, by their names at brokers."""

    def __init__(self) -> None:
        super().__init__()
        #: The bytes of all windows.
        self.total = ByteTotal()
        #: The queues that the program assigned; None: the group's members divide the queues.
        self.fixed: frozenset[MessageQueue] | None = None

    def queue_windows(self) -> list[tuple[MessageQueue, QueueWindow[Any]]]:
        """Return the queues with their windows."""
        return [(queue, assigned.window) for queue, assigned in self.items()]


class Batch(Generic[T]):
    """Messages of one queue that were handed out."""

    __slots__ = ("assigned", "messages")

    def __init__(self, assigned: AssignedQueue[T], messages: list[ReceivedMessage[T]]) -> None:
        self.assigned = assigned
        self.messages = messages
