"""Topics: their configuration and its version, lists of topics, and statistics.

Source: TopicConfig, DataVersion, TopicConfigSerializeWrapper,
TopicConfigAndMappingSerializeWrapper, TopicQueueMappingInfo, TopicList, CreateTopicListRequestBody,
TopicOffset, TopicStatsTable, GroupList, KVTable @5.3.3.
"""

from __future__ import annotations

from typing import Any, Final, Self

import msgspec

from twistmq.protocol import json_dialect
from twistmq.protocol.bodies.body import Body, MessageQueue, TopicFilterType
from twistmq.protocol.errors import WireError
from twistmq.protocol.header import Int32, Int64

__all__ = ["CreateTopicListRequestBody", "DataVersion", "GroupList", "KVTable", "TopicConfig",
           "TopicConfigSerializeWrapper", "TopicList", "TopicOffset", "TopicQueueMappingInfo",
           "TopicStatsTable", "next_counter"]

field: Final = msgspec.field


def next_counter(counter: int, changes: int = 1) -> int:
    """Return the counter of a version after more changes; it wraps around as Java's AtomicLong.

    A counter may come from another broker. One above an int64 could be written, but not be read.
    """
    return (counter + changes + (1 << 63)) % (1 << 64) - (1 << 63)


class DataVersion(Body):
    """The version of a table. Two tables with equal versions have equal content."""

    state_version: Int64 = 0
    #: The time of the last change, Unix ms.
    timestamp: Int64 = 0
    counter: Int64 = 0

    def next_version(self, now_ms: int, state_version: int = 0) -> None:
        """Count one more change of the table."""
        self.timestamp = now_ms
        self.state_version = state_version
        self.counter = next_counter(self.counter)

    def assign(self, other: DataVersion) -> None:
        """Become equal to ``other``."""
        self.timestamp = other.timestamp
        self.state_version = other.state_version
        self.counter = other.counter

    def is_newer_than(self, other: DataVersion) -> bool:
        """Whether this version is later than ``other``."""
        return self._order() > other._order()

    def _order(self) -> tuple[int, int, int]:
        return self.state_version, self.counter, self.timestamp


class TopicConfig(Body):
    """The configuration of a topic on one broker."""

    topic_name: str
    read_queue_nums: Int32 = 16
    write_queue_nums: Int32 = 16
    #: The permission bits: 4 read, 2 write, 1 inherit.
    perm: Int32 = 6
    topic_filter_type: TopicFilterType = TopicFilterType.SINGLE_TAG
    topic_sys_flag: Int32 = 0
    order: bool = False
    attributes: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """The topic in the form of Apache's remarks."""
        perm = "".join(letter if self.perm & bit else "-"
                       for bit, letter in ((4, "R"), (2, "W"), (1, "X")))
        attributes = ", ".join(f"{name}={value}" for name, value in self.attributes.items())
        return (
            f"TopicConfig [topicName={self.topic_name}, readQueueNums={self.read_queue_nums}, "
            f"writeQueueNums={self.write_queue_nums}, perm={perm}, "
            f"topicFilterType={self.topic_filter_type.value}, "
            f"topicSysFlag={self.topic_sys_flag}, order={str(self.order).lower()}, "
            f"attributes={{{attributes}}}]"
        )

    def encode_text(self) -> str:
        """Write the topic in the form of a compressed registration, which omits two fields."""
        attributes = json_dialect.encode(self.attributes, quote_int_keys=False).decode()
        return (
            f"{self.topic_name} {self.read_queue_nums} {self.write_queue_nums} {self.perm} "
            f"{self.topic_filter_type.value} {attributes}"
        )

    @classmethod
    def decode_text(cls, text: str) -> Self:
        """Read the output of encode_text.

        Differs from Apache: attributes that contain spaces are read and not lost, because the
        spaces are part of the last piece.

        :raises WireError: when a piece is missing or invalid.
        """
        pieces = text.split(" ", 5)
        if len(pieces) < 5:
            raise WireError(f"topic {text[:100]!r} has {len(pieces)} of at least 5 pieces")
        names = ("topicName", "readQueueNums", "writeQueueNums", "perm", "topicFilterType")
        fields: dict[str, Any] = dict(zip(names, pieces, strict=False))
        try:
            if len(pieces) == 6 and pieces[5]:
                fields["attributes"] = json_dialect.decode(pieces[5].encode("utf-8", "replace"))
            return msgspec.convert(fields, cls, strict=False)
        except (json_dialect.JsonDialectError, msgspec.MsgspecError, RecursionError) as error:
            raise WireError(f"topic {text[:100]!r}: {error}") from None


class TopicQueueMappingInfo(Body):
    """The queues of a static topic that a broker has."""

    topic: str = ""
    scope: str = "__global__"
    total_queues: Int32 = 0
    bname: str | None = None
    epoch: Int64 = 0
    dirty: bool = False
    #: The broker's queue, by logical queue.
    curr_id_map: dict[Int32, Int32] = field(default_factory=dict)


class TopicConfigSerializeWrapper(Body):
    """All topics of a broker, as in the file topics.json, in responses and in registrations.

    The last three belong to TopicConfigAndMappingSerializeWrapper and are omitted when they are
    None.
    """

    #: The topics, by name.
    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)
    #: The version of the topics.
    data_version: DataVersion = field(default_factory=DataVersion)
    #: The version of the next two tables.
    mapping_data_version: DataVersion | None = None
    #: Static topics in a registration, by name: the queues of such a topic are numbered across
    #: brokers.
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] | None = None
    #: More data about these topics, by name; it is passed on unchanged.
    topic_queue_mapping_detail_map: dict[str, Any] | None = None


class TopicList(Body):
    """A list of topic names."""

    topic_list: set[str] = field(default_factory=set)
    broker_addr: str | None = None


class CreateTopicListRequestBody(Body):
    """The topics to create."""

    topic_config_list: list[TopicConfig] = field(default_factory=list)


class GroupList(Body):
    """A list of group names."""

    group_list: set[str] = field(default_factory=set)


class KVTable(Body):
    """A table of names and values."""

    table: dict[str, str] = field(default_factory=dict)


class TopicOffset(Body):
    """The first and the last offset of one queue."""

    min_offset: Int64 = 0
    max_offset: Int64 = 0
    #: In Unix ms.
    last_update_timestamp: Int64 = 0


class TopicStatsTable(Body):
    """The offsets of all queues of a topic."""

    offset_table: dict[MessageQueue, TopicOffset] = field(default_factory=dict)
    #: Messages per second.
    topic_put_tps: float = 0.0
