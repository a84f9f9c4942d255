"""Topics: their configuration, its version, lists and statistics.

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
           "TopicStatsTable"]

field: Final = msgspec.field


class DataVersion(Body):
    """How new a table is. Two tables with equal versions are equal."""

    state_version: Int64 = 0
    #: Unix ms of the last change.
    timestamp: Int64 = 0
    counter: Int64 = 0

    def next_version(self, now_ms: int, state_version: int = 0) -> None:
        """Count one more change."""
        self.timestamp = now_ms
        self.state_version = state_version
        self.counter += 1

    def assign(self, other: DataVersion) -> None:
        """Become equal to ``other``."""
        self.timestamp = other.timestamp
        self.state_version = other.state_version
        self.counter = other.counter

    def is_newer_than(self, other: DataVersion) -> bool:
        """Say whether this version comes after ``other``."""
        return self._order() > other._order()

    def _order(self) -> tuple[int, int, int]:
        return self.state_version, self.counter, self.timestamp


class TopicConfig(Body):
    """How a topic is set up on one broker."""

    topic_name: str
    read_queue_nums: Int32 = 16
    write_queue_nums: Int32 = 16
    #: Bits: 4 read, 2 write, 1 inherit.
    perm: Int32 = 6
    topic_filter_type: TopicFilterType = TopicFilterType.SINGLE_TAG
    topic_sys_flag: Int32 = 0
    order: bool = False
    attributes: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """The topic as Apache's remarks tell it."""
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
        """Write the topic as a compressed registration holds it; two fields are lost."""
        attributes = json_dialect.encode(self.attributes, quote_int_keys=False).decode()
        return (
            f"{self.topic_name} {self.read_queue_nums} {self.write_queue_nums} {self.perm} "
            f"{self.topic_filter_type.value} {attributes}"
        )

    @classmethod
    def decode_text(cls, text: str) -> Self:
        """Read what encode_text wrote.

        Differs from Apache: attributes with spaces in them are read and not lost, because the
        spaces are part of the last piece.

        :raises WireError: when a piece is missing or wrong.
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
    """Which queues of a static topic a broker has."""

    topic: str = ""
    scope: str = "__global__"
    total_queues: Int32 = 0
    bname: str | None = None
    epoch: Int64 = 0
    dirty: bool = False
    #: Logical queue to queue of the broker.
    curr_id_map: dict[Int32, Int32] = field(default_factory=dict)


class TopicConfigSerializeWrapper(Body):
    """All topics of a broker; the file topics.json, answers and registrations hold it.

    The last three are TopicConfigAndMappingSerializeWrapper's, and left out when they are None.
    """

    #: Topics by name.
    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)
    #: How new the topics are.
    data_version: DataVersion = field(default_factory=DataVersion)
    #: How new the next two are.
    mapping_data_version: DataVersion | None = None
    #: Static topics in a registration: topics whose queues are numbered over all brokers, by name.
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] | None = None
    #: More data of these topics, by name; passed on unchanged.
    topic_queue_mapping_detail_map: dict[str, Any] | None = None


class TopicList(Body):
    """Names of topics."""

    topic_list: set[str] = field(default_factory=set)
    broker_addr: str | None = None


class CreateTopicListRequestBody(Body):
    """Topics to create."""

    topic_config_list: list[TopicConfig] = field(default_factory=list)


class GroupList(Body):
    """Names of groups."""

    group_list: set[str] = field(default_factory=set)


class KVTable(Body):
    """Names and values."""

    table: dict[str, str] = field(default_factory=dict)


class TopicOffset(Body):
    """The bounds of one queue."""

    min_offset: Int64 = 0
    max_offset: Int64 = 0
    #: Unix ms.
    last_update_timestamp: Int64 = 0


class TopicStatsTable(Body):
    """The bounds of a topic's queues."""

    offset_table: dict[MessageQueue, TopicOffset] = field(default_factory=dict)
    #: Messages a second.
    topic_put_tps: float = 0.0
