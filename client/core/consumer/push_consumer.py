"""The core of a consumer that passes messages to handlers or iterations."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.consumer.assigned_queues import MemberOptions
from twistmq.client.core.consumer.failures import (
    BroadcastFailures,
    ConcurrentFailures,
    OrderedDeadLetters,
    OrderedFailures,
)
from twistmq.client.core.consumer.handler_timeouts import HandlerTimeouts
from twistmq.client.core.consumer.member import Member, MemberKind
from twistmq.client.core.consumer.member_parts import MemberParts
from twistmq.client.core.consumer.offsets import (
    FileAccess,
    LocalOffsets,
    OffsetStore,
    RemoteOffsets,
)
from twistmq.client.core.consumer.queue_intake import QueueIntake
from twistmq.client.core.consumer.results import Failures, Results
from twistmq.client.core.consumer.rounds import Rounds
from twistmq.client.core.consumer.subscriptions import Subscription
from twistmq.client.core.producer.sender import Sender
from twistmq.protocol.bodies import ConsumeType
from twistmq.protocol.topic_names import retry_topic

if TYPE_CHECKING:
    from twistmq.client.core.producer.tracer import Trace

__all__ = ["push_member"]

T = TypeVar("T")

_KIND: Final = MemberKind("Member", ConsumeType.CONSUME_PASSIVELY)


def push_member(
    client: ClientCore, options: MemberOptions, subscriptions: Mapping[str, Subscription],
    sender: Sender, *, decode: Callable[[ReceivedMessage[T]], T] | None = None,
    file: FileAccess | None = None, trace: Trace | None = None,
) -> Member[T]:
    """Make a member whose messages are passed to handlers.

    :param client: the client, perhaps shared.
    :param subscriptions: the subscriptions by topic, with the names at brokers.
    :param sender: sends a failed message again when its broker does not accept it back.
    :param decode: returns the value of a message; with None, the value is the body.
    :param file: the file in which a broadcasting member keeps its offsets.
    :param trace: records the consumed messages; None: the consumer is not traced.
    :raises OptionError: when the group has no valid name.
    """
    parts: MemberParts[T] = MemberParts(
        client, options, subscriptions, sender, decode=decode, needs_locks=options.needs_locks,
        trace=trace)
    if not options.is_broadcast:
        topic = retry_topic(parts.group)
        parts.subscriptions[topic] = Subscription(topic)
    offsets: OffsetStore = (LocalOffsets(client, file) if options.is_broadcast
                            else RemoteOffsets(client, parts.group))
    intake: QueueIntake[T] = QueueIntake(
        client, parts.group, options, parts.closing, parts.subscriptions, parts.queues,
        parts.delivery, parts.listeners, parts.stats, parts.damage, offsets, decode)
    results = Results(parts.delivery, parts.reports, _failures(parts, intake.rounds))
    loops: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {}
    if not options.in_order and not options.is_broadcast:
        loops["time-outs of handlers"] = HandlerTimeouts(
            client.tasks, parts.group, options, parts.queues, parts.retries,
            parts.reports).search_always
    return Member(_KIND, parts, parts.delivery, results, intake, intake.subscriber, loops)


def _failures(parts: MemberParts[T], rounds: Rounds) -> Failures[T]:
    """Return the part that handles failed messages."""
    tasks, delivery, closing = parts.client.tasks, parts.delivery, parts.closing
    if parts.options.is_broadcast:
        return BroadcastFailures(delivery)
    if parts.options.in_order:
        dead_letters = OrderedDeadLetters(closing, delivery, parts.retries)
        return OrderedFailures(
            tasks, parts.options, delivery, parts.options.attempts_max, dead_letters.bury,
            delivery.release)
    # The first message that is sent back creates the retry topic.
    return ConcurrentFailures(tasks, closing, delivery, parts.retries,
                              partial(rounds.expect_topic, retry_topic(parts.group)))
