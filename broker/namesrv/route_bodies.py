"""The bodies of routes and lists that may be long, written in parts.

Each function writes the same body as the class of that name in ``wire.bodies``, which does it in
one call. Long members are written in parts, and a list that does not fit into a frame is refused as
soon as this is known.

Source: none. Apache's name server builds the whole body, and the client closes the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from twistmq.broker.namesrv.route_views import LONG_COUNT, RouteViews
from twistmq.protocol import json_dialect
from twistmq.protocol.bodies import (
    ClusterInfo,
    TopicList,
    TopicQueueMappingInfo,
    TopicRouteData,
)
from twistmq.protocol.errors import ReplyTooLong
from twistmq.protocol.frame import FRAME_SIZE_MAX

__all__ = ["BODY_SIZE_MAX", "check_size", "cluster_info_body", "route_body", "topic_list_body"]

#: The number of rows that are written without a pause, in about two milliseconds, and of names.
_PART_ROWS: Final = 64
_PART_NAMES: Final = 4096
#: The number of queues of a mapping that are written without a pause.
_PART_QUEUES: Final = 1024

#: The size of the largest body that fits into a frame with its header, bytes.
BODY_SIZE_MAX: Final = FRAME_SIZE_MAX - 64 * 1024

_Body = Generator[None, None, bytes]


class _Parts:
    """The rows of one member."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._parts: list[bytes] = []
        self.size_bytes = 0

    def add(self, rows: bytes) -> None:
        """Add rows that are separated by commas.

        :raises ReplyTooLong: when they do not fit into a frame.
        """
        self._parts.append(rows)
        self.size_bytes += len(rows) + 1
        check_size(self._name, self.size_bytes)

    def insert_into(self, body: bytes, brackets: bytes) -> bytes:
        """Insert the rows into a body that was encoded with an empty member.

        The name is found as a key only, because quotes inside JSON strings are escaped.
        """
        empty = b'"%b":%b' % (self._name.encode(), brackets)
        begin, separator, end = body.partition(empty)
        assert separator, self._name
        return b"".join((begin, empty[:-1], b",".join(self._parts), brackets[1:], end))


def check_size(name: str, size_bytes: int) -> None:
    """:raises ReplyTooLong: when a member of this size does not fit into a frame."""
    if size_bytes > BODY_SIZE_MAX:
        raise ReplyTooLong(f"{name} has over {BODY_SIZE_MAX} bytes, a frame may have "
                           f"{FRAME_SIZE_MAX}: ask for less")


def _written(
    name: str, rows: Iterable[Any], body: bytes, make: Callable[[list[Any]], Any],
    brackets: bytes = b"[]", *, standard: bool = False, count: int = _PART_ROWS,
) -> _Body:
    """Write a body with rows in place of an empty member; yields after each part.

    :param make: makes the list, set or map of some rows.
    :param count: the number of rows in a part.
    """
    parts = _Parts(name)
    row_iterator = iter(rows)
    while part := list(islice(row_iterator, count)):
        parts.add(json_dialect.encode(make(part), quote_int_keys=standard)[1:-1])
        yield
    return parts.insert_into(body, brackets)


def topic_list_body(
    names: Sequence[str], broker_addr: str | None = None, chars: int = 0
) -> _Body:
    """Write a TopicList.

    :param names: the names, each of them once.
    :param chars: the least number of characters in all names.
    :raises ReplyTooLong: when it does not fit into a frame.
    """
    # Each name has two quotes and a comma.
    check_size("topicList", chars + 3 * len(names))
    return (yield from _written(
        "topicList", names, TopicList(set(), broker_addr).encode(), tuple, count=_PART_NAMES))


def cluster_info_body(views: RouteViews) -> _Body:
    """Write a ClusterInfo of all brokers.

    :raises ReplyTooLong: when it does not fit into a frame.
    """
    info = views.cluster_info()
    body = yield from _written(
        "brokerAddrTable", [(name, group) for name, group in info.broker_addr_table.items()],
        ClusterInfo().encode(), dict, b"{}")
    clusters = _Parts("clusterAddrTable")
    for cluster, names in list(info.cluster_addr_table.items()):
        key = json_dialect.encode(cluster, quote_int_keys=False)
        if len(names) <= LONG_COUNT:
            clusters.add(key + b":" + json_dialect.encode(set(names), quote_int_keys=False))
        else:
            members = yield from _written("names", list(names), b'"names":[]', tuple,
                                          count=_PART_NAMES)
            clusters.add(key + members.removeprefix(b'"names"'))
        yield
    check_size("brokerAddrTable", len(body) + clusters.size_bytes)
    return clusters.insert_into(body, b"{}")


def _mapping_row(name: str, mapping: TopicQueueMappingInfo, *, standard: bool) -> _Body:
    """Write a mapping as a member, in parts: it may have thousands of queues."""
    bare = msgspec.structs.replace(mapping, curr_id_map={})
    row = json_dialect.encode({name: bare}, quote_int_keys=standard)[1:-1]
    return (yield from _written("currIdMap", mapping.curr_id_map.items(), row, dict, b"{}",
                                standard=standard, count=_PART_QUEUES))


def route_body(route: TopicRouteData, *, standard: bool) -> _Body:
    """Write a TopicRouteData, whose ``route`` belongs to this request alone.

    :param standard: whether it is written as standard JSON.
    :raises ReplyTooLong: when it does not fit into a frame.
    """
    mappings = route.topic_queue_mapping_by_broker
    bare = TopicRouteData(route.order_topic_conf,
                          topic_queue_mapping_by_broker=None if mappings is None else {})
    body = bare.encode_standard() if standard else bare.encode()
    if mappings is not None:
        parts = _Parts("topicQueueMappingByBroker")
        for name, mapping in list(mappings.items()):
            parts.add((yield from _mapping_row(name, mapping, standard=standard)))
            yield
        body = parts.insert_into(body, b"{}")
    body = yield from _written("queueDatas", route.queue_datas, body, list, standard=standard)
    body = yield from _written("brokerDatas", route.broker_datas, body, list, standard=standard)
    body = yield from _written("filterServerTable", route.filter_server_table.items(), body, dict,
                               b"{}", standard=standard)
    check_size("brokerDatas", len(body))
    return body
