"""Warnings when the members of a group have different subscriptions.

All members of a group share the queues of each topic, and a broker keeps only one subscription for
a group: the newest. If members differ, the subscription of one member filters out messages that
another member wants, and if only some members read a topic, some of its queues are not read at all.
Apache's client does not report this. A member that is not alone asks a broker once a minute.

Source: ConsumerGroupInfo.updateSubscription @5.3.3.
"""

from __future__ import annotations

import logging
from typing import Final

from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.consumer.subscriptions import SubscriptionTable
from twistmq.protocol.bodies import ConsumerConnection
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import BrokerError
from twistmq.protocol.headers.client import GetConsumerConnectionListRequestHeader
from twistmq.protocol.topic_names import RETRY_GROUP_TOPIC_PREFIX

__all__ = ["SubscriptionCheck"]

log = logging.getLogger("twistmq.client")

#: The shortest interval between two requests, in ms.
INTERVAL_MS: Final = 60_000
_TIMEOUT_MS: Final = 3000


class SubscriptionCheck:
    """The differences that one member finds; each is logged once.

    :param group: the group's name at brokers.
    """

    def __init__(self, client: ClientCore, group: str, subscriptions: SubscriptionTable) -> None:
        self._client = client
        self._group = group
        self._subscriptions = subscriptions
        self._due_ms = float("-inf")
        self._reported: set[str] = set()
        #: Whether the group had other members in the last round.
        self.has_others = False

    async def run(self, broker_name: str) -> None:
        """Ask a broker for the group's subscriptions if it is time; it may not answer."""
        client = self._client
        if not self.has_others or client.tasks.now_ms < self._due_ms:
            return
        self._due_ms = client.tasks.now_ms + INTERVAL_MS
        header = GetConsumerConnectionListRequestHeader(consumer_group=self._group)
        try:
            reply = await client.engine.invoke(
                client.routes.reader(broker_name), RequestCode.GET_CONSUMER_CONNECTION_LIST, header,
                timeout_ms=_TIMEOUT_MS)
            if reply.code == ResponseCode.SUCCESS:
                self._compare(ConsumerConnection.decode_reply(reply.body))
        except BrokerError as error:
            log.debug("the subscriptions of group %s are not known now: %s",
                      self._group, error)

    def _compare(self, group_connection: ConsumerConnection) -> None:
        group = self._group
        for topic, mine in self._subscriptions.items():
            theirs = group_connection.subscription_table.get(topic)
            if topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
                continue
            if theirs is None:
                self._tell(f"another member of group {group} does not read topic {topic}: "
                           "the queues that are its share are not read")
            elif theirs.sub_version > self._subscriptions.version and (
                    theirs.sub_string, theirs.expression_type) != (mine.expression, mine.kind):
                self._tell(f"another member of group {group} reads topic {topic} by "
                           f"{theirs.expression_type} {theirs.sub_string!r}, this one by "
                           f"{mine.kind} {mine.expression!r}: messages are lost to both")

    def warn_unsubscribed(self, topic: str) -> None:
        """Warn that this member stops reading a topic that other members may still read."""
        if self.has_others:
            log.warning("this member of group %s no longer reads topic %s: as long as others do, "
                        "the queues that are its share are not read", self._group, topic)

    def _tell(self, text: str) -> None:
        if text not in self._reported:
            self._reported.add(text)
            from twistmq.protocol.printable import one_line

            # The text contains what another client has sent.
            log.warning("%s", one_line(text))
