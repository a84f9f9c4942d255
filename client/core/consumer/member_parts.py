"""The parts that members of all kinds have, with the objects that the parts share.

The makers of members (``push_consumer.py``, ``pull_consumer.py``, ``core/pop/pop_consumer.py``)
give these parts to the other ones. Each part gets only the parts and options that it uses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

from twistmq.client.base.errors import OptionError
from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.consumer.assigned_queues import AssignedQueues, MemberOptions
from twistmq.client.core.consumer.close_signal import CloseSignal
from twistmq.client.core.consumer.damaged_messages import DamageLog
from twistmq.client.core.consumer.delivery import Delivery
from twistmq.client.core.consumer.outcome_reports import OutcomeReports
from twistmq.client.core.consumer.queue_listeners import QueueListeners
from twistmq.client.core.consumer.retries import Retries
from twistmq.client.core.consumer.stats import MemberStats
from twistmq.client.core.consumer.subscriptions import Subscription, SubscriptionTable
from twistmq.client.core.consumer.tool_messages import ToolMessages
from twistmq.client.core.producer.sender import Sender
from twistmq.protocol.topic_names import group_fault

if TYPE_CHECKING:
    from twistmq.client.core.producer.tracer import Trace

__all__ = ["MemberParts"]

T = TypeVar("T")


class MemberParts(Generic[T]):
    """The parts of one member that do not depend on its kind.

    :param client: the client, perhaps shared.
    :param subscriptions: the subscriptions by topic, with the names at brokers.
    :param sender: sends a failed message again when its broker does not accept it back.
    :param decode: returns the value of a message; with None, the value is the body.
    :param needs_locks: whether queues are read only under their locks.
    :param trace: records the consumed messages; None: the consumer is not traced.
    :raises OptionError: when the group has no valid name.
    """

    def __init__(
        self, client: ClientCore, options: MemberOptions, subscriptions: Mapping[str, Subscription],
        sender: Sender, *, decode: Callable[[ReceivedMessage[T]], T] | None, needs_locks: bool,
        trace: Trace | None,
    ) -> None:
        fault = group_fault(options.group)
        if fault is not None:
            raise OptionError(f"group {options.group!r}: {fault}")
        tasks = client.tasks
        self.client = client
        self.options = options
        #: The group's name at brokers.
        self.group = client.namespace.group(options.group)
        self.sender = sender
        self.decode = decode
        self.trace = trace
        self.subscriptions = SubscriptionTable(tasks.clock, subscriptions)
        self.closing = CloseSignal(tasks)
        self.queues: AssignedQueues[T] = AssignedQueues()
        self.listeners = QueueListeners()
        self.stats = MemberStats()
        self.damage = DamageLog(tasks)
        self.delivery: Delivery[T] = Delivery(
            client, options, self.closing, needs_locks=needs_locks, trace=trace)
        self.reports = OutcomeReports(client, options, self.stats, trace)
        self.retries = Retries(client, self.group, sender, options.attempts_max)
        self.tool_messages: ToolMessages[T] = ToolMessages(
            tasks, self.closing, self.delivery, self.queues.total)
