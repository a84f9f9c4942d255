"""Warnings when the members of a group do not subscribe to the same.

All members of a group share the queues of each topic, and a broker keeps one subscription of a
group: the newest. When members differ, messages that one of them wants are filtered out by the
subscription of another, and queues of a topic that only some read are not read at all. Apache's
client does not tell. A member that is not alone asks a broker once a minute.

Source: ConsumerGroupInfo.updateSubscription @5.3.3.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol

from twistmq.broker.codes import RequestCode, ResponseCode
from twistmq.broker.errors import BrokerError
from twistmq.broker.topic_names import RETRY_GROUP_TOPIC_PREFIX
from twistmq.broker.wire.bodies import ConsumerConnection
from twistmq.broker.wire.headers.client import GetConsumerConnectionListRequestHeader

if TYPE_CHECKING:
    from twistmq.client.core.client import ClientCore
    from twistmq.client.core.subscriptions import Subscription

__all__ = ["Differences"]

log = logging.getLogger("twistmq.client")

#: The shortest time between two questions, ms.
INTERVAL_MS: Final = 60_000
_TIMEOUT_MS: Final = 3000


class Subscriber(Protocol):
    """A member, as far as its subscriptions are compared."""

    @property
    def client(self) -> ClientCore:
        """By it the brokers are asked."""

    @property
    def group(self) -> str:
        """Its group, as brokers know it."""

    @property
    def subscriptions(self) -> Mapping[str, Subscription]:
        """By topic."""

    @property
    def sub_version(self) -> int:
        """The version of its newest subscription."""


class Differences:
    """The differences that one member finds; each is told once."""

    def __init__(self, member: Subscriber) -> None:
        self._member = member
        self._due_ms = float("-inf")
        self._told: set[str] = set()
        #: Whether the group had other members in the last round.
        self.has_others = False

    async def look(self, broker_name: str) -> None:
        """Ask a broker for the group's subscriptions when it is time; it may not answer."""
        client = self._member.client
        if not self.has_others or client.tasks.now_ms < self._due_ms:
            return
        self._due_ms = client.tasks.now_ms + INTERVAL_MS
        header = GetConsumerConnectionListRequestHeader(consumer_group=self._member.group)
        try:
            reply = await client.engine.invoke(
                client.routes.reader(broker_name), RequestCode.GET_CONSUMER_CONNECTION_LIST, header,
                timeout_ms=_TIMEOUT_MS)
            if reply.code == ResponseCode.SUCCESS:
                self._compare(ConsumerConnection.decode_reply(reply.body))
        except BrokerError as error:
            log.debug("the subscriptions of group %s are not known now: %s",
                      self._member.group, error)

    def _compare(self, found: ConsumerConnection) -> None:
        member = self._member
        for topic, mine in member.subscriptions.items():
            theirs = found.subscription_table.get(topic)
            if topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
                continue
            if theirs is None:
                self._tell(f"another member of group {member.group} does not read topic {topic}: "
                           "the queues that are its share are not read")
            elif theirs.sub_version > member.sub_version and (
                    theirs.sub_string, theirs.expression_type) != (mine.expression, mine.kind):
                self._tell(f"another member of group {member.group} reads topic {topic} by "
                           f"{theirs.expression_type} {theirs.sub_string!r}, this one by "
                           f"{mine.kind} {mine.expression!r}: messages are lost to both")

    def left(self, topic: str) -> None:
        """This member reads a topic no more, and the others do perhaps."""
        if self.has_others:
            log.warning("this member of group %s reads topic %s no more: as long as others do, "
                        "the queues that are its share are not read", self._member.group, topic)

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            from twistmq.broker.printable import one_line

            # It names what another client has sent.
            log.warning("%s", one_line(text))
