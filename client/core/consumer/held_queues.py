"""The queues that a member has, and the options it reads them by.

Source: DefaultMQPushConsumer, ProcessQueue @5.3.3.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

import msgspec

from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.core.connection.tasks import Future, Task
from twistmq.client.core.consumer.flow_control import CACHE_BYTES_MAX, PullLimits
from twistmq.client.core.consumer.strategies import Averagely, Strategy
from twistmq.client.core.consumer.subscriptions import Subscription
from twistmq.client.core.consumer.window import QueueWindow
from twistmq.protocol.bodies import MessageQueue

__all__ = ["Batch", "Held", "MemberOptions", "PopOptions"]

T = TypeVar("T")

#: The time between commits, ms. Source: ClientConfig.persistConsumerOffsetInterval.
COMMIT_MS: Final = 5_000


class MemberOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a member; times in ms."""

    group: str
    #: Whether each member gets every message.
    is_broadcast: bool = False
    #: Whether the messages of a queue are handled one after the other, in order.
    in_order: bool = False
    #: "last", "first" or Unix ms: where a group begins that never had a queue.
    start: str | int = "last"
    strategy: Strategy = Averagely()
    #: A message that failed is tried again so often at most; None: 16, or without end in order.
    max_attempts: int | None = None
    consume_timeout_ms: float = 15 * 60_000
    #: The wait before a failed message of an order is handed out again.
    suspend_ms: float = 1000
    cache_bytes_max: int = CACHE_BYTES_MAX
    limits: PullLimits = PullLimits()
    pull_count: int = 32
    pull_bytes: int = 256 << 10
    rebalance_ms: float = 20_000
    commit_ms: float = COMMIT_MS
    #: "skip", "stop" or "deliver": what becomes of a damaged message, see ``damaged.py``.
    damaged: str = "skip"


class PopOptions(MemberOptions, frozen=True, kw_only=True):
    """The options of a member that pops; times in ms."""

    #: For how long a pop hides messages from the other members.
    invisible_ms: float = 60_000
    #: Messages that are popped and not finished.
    in_flight_max: int = 1000


class Held(Generic[T]):
    """A queue of this member."""

    __slots__ = ("behind", "broker_id", "committed", "floor", "floor_ms", "in_order_until_ms",
                 "is_alone", "is_new", "is_paused", "is_ready", "is_settled", "named",
                 "next_offset", "outcome", "queue", "stopped_at", "subscription", "taken_ms",
                 "task", "window")

    def __init__(
        self, queue: MessageQueue, named: MessageQueue, subscription: Subscription,
        window: QueueWindow[ReceivedMessage[T]], next_offset: int,
    ) -> None:
        #: With the topic's name at brokers, and with that in the namespace.
        self.queue = queue
        self.named = named
        self.subscription = subscription
        self.window = window
        #: Where the next pull begins.
        self.next_offset = next_offset
        #: After a pull that brought all it asked for: how many messages the queue has more.
        self.behind = 0
        #: The offset that is committed for sure.
        self.committed: int | None = None
        #: The offset that was committed before the members changed last, or else the first one;
        #: and when it was noted, by the steady clock.
        self.floor = next_offset
        self.floor_ms = float("-inf")
        #: Whether it is known where the queue begins. Until then the member before may commit how
        #: far it came, and a commit of this one would set the group back.
        self.is_settled = False
        #: Whether the group had no offset of the queue when it came.
        self.is_new = False
        #: The broker that the next pull goes to.
        self.broker_id = 0
        #: The offset of a damaged message that the queue stops at; None: it does not.
        self.stopped_at: int | None = None
        #: Whether the next pull asks for one message, because nothing behind it could be found.
        self.is_alone = False
        self.is_paused = False
        #: Whether the queue is in the line of those with messages to hand out.
        self.is_ready = False
        #: In order: nothing is handed out before this, after a failure.
        self.in_order_until_ms = 0.0
        self.task: Task[None] | None = None
        #: When messages were handed out last, or the queue came; steady clock.
        self.taken_ms: float = window.pulled_ms
        #: Of a message that a tool sent, instead of a queue: whether it is processed.
        self.outcome: Future[bool] | None = None

    @property
    def is_unread(self) -> bool:
        """Whether the queue is new to the group, and waits for its first pull."""
        return self.is_new and not self.is_settled and not self.window.is_dropped


class Batch(Generic[T]):
    """Messages of one queue that were handed out."""

    __slots__ = ("held", "messages")

    def __init__(self, held: Held[T], messages: list[ReceivedMessage[T]]) -> None:
        self.held = held
        self.messages = messages
