"""Quotas of the data that the broker keeps because of heartbeats, in bytes.

The share of a connection is the size of its heartbeats, where only the last one counts for each
group. When the connection leaves a group, its share of that group is released. Sizes are generous
estimates of the objects, so that the count is never too small.

Apache has no such bound: any sender of heartbeats can fill its memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from twisted.logger import Logger

from twistmq.broker.constants import (
    CLIENT_ID_LENGTH_MAX,
    CLIENTS_BYTES_TOTAL_MAX,
    CONNECTION_CLIENT_BYTES_FREE,
    CONNECTION_CLIENT_BYTES_MAX,
    EXPRESSION_LENGTH_MAX,
)
from twistmq.broker.request.filters import is_tag_type
from twistmq.protocol.bodies import ConsumerData, HeartbeatData, SubscriptionData
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.errors import RequestRefused
from twistmq.protocol.log_rate import LimitedLog
from twistmq.protocol.topic_names import GROUP_LENGTH_MAX

__all__ = ["ClientSpace", "GroupKey", "consumer_key", "consumer_size", "producer_key",
           "producer_size"]

#: The size of one client of one group: the client, its entries in the tables, and a group.
_MEMBER_BYTES: Final = 1024
_SUBSCRIPTION_BYTES: Final = 512
#: One tag or one code in a set.
_ITEM_BYTES: Final = 100
#: A character of an expression that is compiled. A measurement with SQL92 gave 18.
_COMPILED_CHARACTER_BYTES: Final = 16
#: A character of a text that is not pure ASCII.
_CHARACTER_BYTES: Final = 4

#: Whether the group is a consumer group, and its name.
GroupKey = tuple[bool, str]


def _text_size(text: str) -> int:
    return len(text) if text.isascii() else _CHARACTER_BYTES * len(text)


def consumer_key(group: str) -> GroupKey:
    return True, group


def producer_key(group: str) -> GroupKey:
    return False, group


def producer_size(group: str) -> int:
    return _MEMBER_BYTES + _text_size(group)


def consumer_size(data: ConsumerData) -> int:
    """Return the size of a consumer's part of a heartbeat in bytes."""
    return _MEMBER_BYTES + _text_size(data.group_name) + sum(
        map(_subscription_size, data.subscription_data_set))


def _subscription_size(data: SubscriptionData) -> int:
    compiled = 0 if is_tag_type(data.expression_type) else (
        _COMPILED_CHARACTER_BYTES * len(data.sub_string))
    return (_SUBSCRIPTION_BYTES + _text_size(data.topic) + _text_size(data.sub_string) + compiled
            + _ITEM_BYTES * (len(data.tags_set) + len(data.code_set))
            + sum(map(_text_size, data.tags_set)))


class ClientSpace:
    """The bytes that the clients of all connections use."""

    log = Logger()

    def __init__(
        self, connection_max: int = CONNECTION_CLIENT_BYTES_MAX,
        total_max: int = CLIENTS_BYTES_TOTAL_MAX,
        connection_free: int = CONNECTION_CLIENT_BYTES_FREE,
    ) -> None:
        self._connection_free = connection_free
        self._connection_max = connection_max
        self._total_max = total_max
        self._lines = LimitedLog(self.log)
        self.total_bytes = 0
        #: The bytes by channel id and group.
        self._sizes: dict[int, dict[GroupKey, int]] = {}
        self._connection_bytes: dict[int, int] = {}

    def check(self, channel_id: int, heartbeat: HeartbeatData, now_ms: int) -> None:
        """Check whether there is room for the content of a heartbeat.

        A heartbeat that does not need additional space always passes, and a small heartbeat is not
        refused because of other connections.

        :raises RequestRefused: INVALID_PARAMETER when a name or an expression is too long, or when
            the size is too much for one connection; SYSTEM_BUSY when all connections together would
            take too much.
        """
        _check_lengths(heartbeat)
        current_sizes = self._sizes.get(channel_id, {})
        new_sizes = {producer_key(data.group_name): producer_size(data.group_name)
                     for data in heartbeat.producer_data_set}
        for data in heartbeat.consumer_data_set:
            key = consumer_key(data.group_name)
            # If a heartbeat names a group several times, the last entry is kept.
            new_sizes[key] = (
                max(consumer_size(data), current_sizes.get(key, 0)) if heartbeat.without_sub
                else consumer_size(data))
        growth = sum(size - current_sizes.get(key, 0) for key, size in new_sizes.items())
        if growth <= 0:
            return
        size = self._connection_bytes.get(channel_id, 0) + growth
        if size > self._connection_max:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"the groups and subscriptions of this connection would take {size} bytes, more "
                f"than {self._connection_max}")
        if size > self._connection_free and self.total_bytes + growth > self._total_max:
            self._lines.warn(now_ms, "a heartbeat is refused: all clients together have {size} "
                             "bytes of groups and subscriptions", size=self.total_bytes)
            raise RequestRefused(
                ResponseCode.SYSTEM_BUSY,
                "the groups and subscriptions of all clients have used up this broker's space for "
                "them")

    def set(self, channel_id: int, key: GroupKey, size: int) -> None:
        """Record the size of one group of a connection."""
        sizes = self._sizes.setdefault(channel_id, {})
        self._add(channel_id, size - sizes.get(key, 0))
        sizes[key] = size

    def size(self, channel_id: int, key: GroupKey) -> int:
        return self._sizes.get(channel_id, {}).get(key, 0)

    def free(self, channel_id: int, key: GroupKey) -> None:
        """Release the size of a group that a connection left."""
        sizes = self._sizes.get(channel_id)
        if sizes is None or key not in sizes:
            return
        self._add(channel_id, -sizes.pop(key))
        if not sizes:
            del self._sizes[channel_id]
            assert not self._connection_bytes.pop(channel_id)

    def groups(self, channel_id: int) -> Mapping[GroupKey, int]:
        """Return the groups of a connection, in the order in which they were added."""
        return self._sizes.get(channel_id, {})

    def _add(self, channel_id: int, growth: int) -> None:
        self._connection_bytes[channel_id] = self._connection_bytes.get(channel_id, 0) + growth
        self.total_bytes += growth
        assert self.total_bytes >= 0


def _check_lengths(heartbeat: HeartbeatData) -> None:
    """:raises RequestRefused: when a name or an expression is longer than any real client uses."""
    if len(heartbeat.client_id) > CLIENT_ID_LENGTH_MAX:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER,
                             f"the clientID is longer than {CLIENT_ID_LENGTH_MAX}")
    groups = [*(producer.group_name for producer in heartbeat.producer_data_set),
              *(consumer.group_name for consumer in heartbeat.consumer_data_set)]
    for group in groups:
        if len(group) > GROUP_LENGTH_MAX:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER,
                                 f"a group's name is longer than {GROUP_LENGTH_MAX}")
    for data in heartbeat.consumer_data_set:
        for subscription in data.subscription_data_set:
            if len(subscription.sub_string) > EXPRESSION_LENGTH_MAX:
                raise RequestRefused(
                    ResponseCode.INVALID_PARAMETER,
                    f"a subscription's expression is longer than {EXPRESSION_LENGTH_MAX}")
