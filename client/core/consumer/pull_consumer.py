"""The core of a consumer that a program polls, instead of passing messages to handlers.

A poll acknowledges the messages of the previous poll. Only acknowledged messages are committed:
every five seconds, by ``commit`` and at the close. The messages of the last poll are therefore
delivered again.

Queues are assigned by subscription, divided among the members of the group, or they are assigned
by the program. The rounds of ``rebalance.py`` take and drop them in both cases.

Source: DefaultLitePullConsumerImpl, AssignedMessageQueue @5.3.3. Differs from Apache: a close
commits; and Apache's client commits messages that were polled and not yet processed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Generic, TypeVar

from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.consumer.assigned_queues import MemberOptions
from twistmq.client.core.consumer.failures import ConcurrentFailures
from twistmq.client.core.consumer.member import Member, MemberKind
from twistmq.client.core.consumer.member_parts import MemberParts
from twistmq.client.core.consumer.offsets import OffsetStore, RemoteOffsets
from twistmq.client.core.consumer.polls import Poller
from twistmq.client.core.consumer.positions import Positions
from twistmq.client.core.consumer.program_assignment import ProgramAssignment
from twistmq.client.core.consumer.queue_intake import QueueIntake
from twistmq.client.core.consumer.results import Results
from twistmq.client.core.consumer.subscriptions import Subscription
from twistmq.client.core.producer.sender import Sender
from twistmq.protocol.bodies import ConsumeType, MessageQueue
from twistmq.protocol.errors import BrokerError
from twistmq.protocol.topic_names import retry_topic

__all__ = ["PullMember"]

T = TypeVar("T")

log = logging.getLogger("twistmq.client")

_KIND: Final = MemberKind("PullMember", ConsumeType.CONSUME_ACTIVELY)


class PullMember(Generic[T]):
    """A member that is polled, and the parts that only such a member has.

    The messages of a poll have no time-out: a program may take as long as it likes.

    :param subscriptions: the subscriptions by topic, with the names at brokers. They do not include
        the retry topic, because no message is sent back.
    :param sender: every member has a sender, but this one sends nothing.
    :param decode: returns the value of a message; with None, the value is the body.
    :raises OptionError: when the group has no valid name.
    """

    def __init__(
        self, client: ClientCore, options: MemberOptions, subscriptions: Mapping[str, Subscription],
        sender: Sender, *, decode: Callable[[ReceivedMessage[T]], T] | None = None,
    ) -> None:
        parts: MemberParts[T] = MemberParts(
            client, options, subscriptions, sender, decode=decode, needs_locks=False, trace=None)
        offsets = RemoteOffsets(client, parts.group)
        mark = GroupMark(client, parts.group, parts.queues, offsets)
        intake: QueueIntake[T] = QueueIntake(
            client, parts.group, options, parts.closing, parts.subscriptions, parts.queues,
            parts.delivery, parts.listeners, parts.stats, parts.damage, offsets, decode,
            mark.write)
        results: Results[T] = Results(parts.delivery, parts.reports, ConcurrentFailures(
            client.tasks, parts.closing, parts.delivery, parts.retries, intake.rounds.wake))
        self.member: Member[T] = Member(
            _KIND, parts, parts.delivery, results, intake, intake.subscriber, {})
        self.poller = Poller(client.tasks, parts.closing, parts.delivery, results)
        self.positions = Positions(client, parts.queues, offsets, intake.takeover)
        self.assignment = ProgramAssignment(
            client, parts.subscriptions, parts.queues, intake.subscriber, intake.rounds.wake)

    async def leave(self) -> None:
        """Commit the acknowledged messages, and leave the group.

        The messages of the last poll are not acknowledged: another member gets them.
        """
        if not self.member.is_closing:
            self.poller.release_all()
        await self.member.close(0)


class GroupMark:
    """The mark of a group that reads a single topic: an offset in its retry topic.

    The retry topic is the only topic that is deleted together with the group only. The mark makes
    the group known if its topic is created again while the group is away.

    :param group: the group's name at brokers.
    :param queues: the queues whose brokers keep the mark.
    """

    def __init__(
        self, client: ClientCore, group: str, queues: Iterable[MessageQueue], offsets: OffsetStore
    ) -> None:
        self._client = client
        self._group = group
        self._queues = queues
        self._offsets = offsets

    async def write(self) -> None:
        """Write the mark at the brokers that do not have it."""
        for name in sorted({self._client.routes.broker_of(queue) for queue in self._queues}):
            retries = MessageQueue(retry_topic(self._group), name, 0)
            try:
                if await self._offsets.read(retries) is None:
                    await self._offsets.write({retries: 0})
            except BrokerError as error:
                log.debug("broker %s keeps no mark of the group: %s", name, error)
