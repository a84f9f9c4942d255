"""The core of a consumer that pops: it gets messages one by one, from whichever queues they are in.

    assignments    which queues of which brokers are popped      assignments.py
    pop            one task per source, while a caller waits     pop_loop.py
    lines          popped messages by queue                      popped_lines.py
    take           passes messages to handlers                   pop_delivery.py
    receive        passes messages to the program                receiver.py
    succeed, fail  acknowledges messages, or hides them again    pop_results.py, acknowledger.py
    extend         hides messages longer during their handlers   invisible_time.py

In pop consumption, no queue belongs to a member, and the broker keeps track of each message. A pop
returns messages and hides them from all other members for ``invisible_ms``. If the member
acknowledges a message within this time, it is finished; otherwise it becomes visible again, and the
next pop of any member returns it. While a handler has a message, the member hides it again and
again, until ``consume_timeout_ms`` have passed. A message that the program received is hidden
longer only when the program asks for it.

Source: ConsumeMessagePopConcurrentlyService, DefaultMQPushConsumerImpl.processPopResult @5.3.3.
Differs from Apache: its client never hides a message for longer, and does not pop in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.consumer.assigned_queues import PopOptions
from twistmq.client.core.consumer.failures import OrderedFailures
from twistmq.client.core.consumer.flow_control import PullFlow
from twistmq.client.core.consumer.member import Member, MemberKind
from twistmq.client.core.consumer.member_parts import MemberParts
from twistmq.client.core.consumer.results import Failures, Results
from twistmq.client.core.consumer.rounds import Rounds
from twistmq.client.core.consumer.subscriber import Subscriber
from twistmq.client.core.consumer.subscriptions import Subscription
from twistmq.client.core.pop.acknowledger import Acknowledger
from twistmq.client.core.pop.assignments import PopAssignments
from twistmq.client.core.pop.invisible_time import InvisibilityExtender
from twistmq.client.core.pop.lost_messages import LostMessages, release_kept
from twistmq.client.core.pop.pop_delivery import PopDelivery
from twistmq.client.core.pop.pop_intake import PopIntake
from twistmq.client.core.pop.pop_loop import PopLoop
from twistmq.client.core.pop.pop_results import PopDeadLetters, PopFailures, PopResults
from twistmq.client.core.pop.popped_lines import PoppedLines
from twistmq.client.core.pop.receiver import Receiver
from twistmq.client.core.pop.retries import PopRetries
from twistmq.client.core.producer.sender import Sender
from twistmq.protocol.bodies import ConsumeType

if TYPE_CHECKING:
    from twistmq.client.core.producer.tracer import Trace

__all__ = ["PopMember"]

T = TypeVar("T")

_KIND: Final = MemberKind("PopMember", ConsumeType.CONSUME_PASSIVELY)


class PopMember(Generic[T]):
    """A member that pops, and the parts that only such a member has.

    :param subscriptions: the subscriptions by topic, with the names at brokers. They do not include
        the retry topic, because brokers know the topics of the group's retries.
    :param sender: sends the replies to requests.
    :param decode: returns the value of a message; with None, the value is the body.
    :param trace: records the consumed messages; None: the consumer is not traced.
    :raises OptionError: when the group has no valid name.
    """

    def __init__(
        self, client: ClientCore, options: PopOptions, subscriptions: Mapping[str, Subscription],
        sender: Sender, *, decode: Callable[[ReceivedMessage[T]], T] | None = None,
        trace: Trace | None = None,
    ) -> None:
        # The broker keeps the order, so no queue is locked.
        parts: MemberParts[T] = MemberParts(
            client, options, subscriptions, sender, decode=decode, needs_locks=False, trace=trace)
        tasks, group, closing, delivery = client.tasks, parts.group, parts.closing, parts.delivery
        self.acks = Acknowledger(client, group)
        retries = PopRetries(parts.retries, self.acks)
        losses: LostMessages[T] = LostMessages(options, parts.queues, delivery, parts.reports)
        lines: PoppedLines[T] = PoppedLines(
            client, options, closing, parts.subscriptions, parts.queues, delivery, parts.stats,
            self.acks, losses)
        flow = PullFlow(parts.queues.total, options.limits, options.cache_bytes_max)
        self.popping: PopLoop[T] = PopLoop(
            client, group, options, closing, parts.subscriptions, parts.queues, flow, delivery,
            parts.damage, self.acks, lines.put, decode)
        delivery.on_finished.append(self.popping.wake)
        source = PopDelivery(tasks, group, options, delivery, self.popping)
        self.receiver: Receiver[T] = Receiver(
            client, options, closing, parts.queues, delivery, source, self.popping, self.acks,
            retries, parts.reports)
        self.popping.on_end.append(self.receiver.pop_ended)
        rounds = Rounds(
            client, group, options.rebalance_ms, closing, parts.subscriptions, parts.queues)
        assignments: PopAssignments[T] = PopAssignments(
            client, group, options.strategy.name, parts.subscriptions, self.popping,
            parts.listeners, lines.forget_unused)
        intake: PopIntake[T] = PopIntake(
            client, group, parts.subscriptions, rounds, assignments, self.popping, lines,
            self.acks)
        failures = _failures(parts, options, self.acks, retries)
        results = PopResults(delivery, Results(delivery, parts.reports, failures), self.acks)
        extender: InvisibilityExtender[T] = InvisibilityExtender(
            tasks, options, parts.queues, self.acks, losses.mark_lost)
        subscriber = Subscriber(client, parts.subscriptions, parts.queues, rounds.wake)
        self.member: Member[T] = Member(
            _KIND, parts, source, results, intake, subscriber,
            {"times of popped messages": extender.watch_always})


def _failures(
    parts: MemberParts[T], options: PopOptions, acks: Acknowledger, retries: PopRetries
) -> Failures[T]:
    """Return the part that handles failed messages."""
    tasks, delivery = parts.client.tasks, parts.delivery
    if options.in_order:
        dead_letters = PopDeadLetters(tasks, delivery, retries)
        return OrderedFailures(tasks, options, delivery, options.attempts_max, dead_letters.bury,
                               partial(release_kept, delivery))
    return PopFailures(tasks, delivery, acks, retries, options.attempts_max)
