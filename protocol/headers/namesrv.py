"""Headers of the name server's requests (100-105, 205, 216, 217, 219, 224, 322, 327, 901, 904).

Source: the classes of these names in remoting/protocol/header/namesrv @5.3.3, and
GetBrokerMemberGroupRequestHeader, GetTopicsByClusterRequestHeader.
"""

from __future__ import annotations

from twistmq.protocol.header import CommandHeader, Int32, Int64

__all__ = ["AddWritePermOfBrokerRequestHeader", "AddWritePermOfBrokerResponseHeader",
           "BrokerHeartbeatRequestHeader", "DeleteKVConfigRequestHeader",
           "DeleteTopicFromNamesrvRequestHeader", "GetBrokerMemberGroupRequestHeader",
           "GetKVConfigRequestHeader", "GetKVConfigResponseHeader",
           "GetKVListByNamespaceRequestHeader", "GetRouteInfoRequestHeader",
           "GetTopicsByClusterRequestHeader", "PutKVConfigRequestHeader",
           "QueryDataVersionRequestHeader", "QueryDataVersionResponseHeader",
           "RegisterBrokerRequestHeader", "RegisterBrokerResponseHeader",
           "RegisterTopicRequestHeader", "UnRegisterBrokerRequestHeader",
           "WipeWritePermOfBrokerRequestHeader", "WipeWritePermOfBrokerResponseHeader"]


class RegisterBrokerRequestHeader(CommandHeader):
    """A broker makes itself and its topics known; the body is a RegisterBrokerBody."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    #: 0 is the master.
    broker_id: Int64
    #: How long silence means death, ms; absent from brokers before 5.
    heartbeat_timeout_millis: Int64 | None = None
    enable_acting_master: bool | None = None
    #: Whether the body has the compressed form.
    compressed: bool = False
    #: CRC-32 of the body, sign bit cleared; 0: not to be checked.
    body_crc32: Int32 = 0


class RegisterBrokerResponseHeader(CommandHeader):
    """The master, told to a slave."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnRegisterBrokerRequestHeader(CommandHeader):
    """A broker goes."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class QueryDataVersionRequestHeader(CommandHeader):
    """Are the topics of a broker, at the data version in the body, known already?"""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class QueryDataVersionResponseHeader(CommandHeader):
    """Whether the broker must register again; the body is the version that is known."""

    changed: bool


class BrokerHeartbeatRequestHeader(CommandHeader):
    """A broker lives; the last fields are for a controller."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Int64 | None = None
    epoch: Int32 | None = None
    max_offset: Int64 | None = None
    confirm_offset: Int64 | None = None
    #: Spelt as on the wire; ms.
    heartbeat_timeout_mills: Int64 | None = None
    election_priority: Int32 | None = None


class GetBrokerMemberGroupRequestHeader(CommandHeader):
    """Which brokers share a name?"""

    cluster_name: str
    broker_name: str


class GetRouteInfoRequestHeader(CommandHeader):
    """Which brokers have a topic?"""

    topic: str
    #: True: the answer must be JSON with every key quoted, whatever the client's version.
    accept_standard_json_only: bool | None = None


class DeleteTopicFromNamesrvRequestHeader(CommandHeader):
    """Forget a topic, in one cluster or in all."""

    topic: str
    cluster_name: str | None = None


class RegisterTopicRequestHeader(CommandHeader):
    """Make a topic known; the body is its TopicRouteData."""

    topic: str


class GetTopicsByClusterRequestHeader(CommandHeader):
    """Which topics has a cluster?"""

    cluster: str


class PutKVConfigRequestHeader(CommandHeader):
    """Keep a value."""

    namespace: str
    key: str
    value: str


class GetKVConfigRequestHeader(CommandHeader):
    """Read a value."""

    namespace: str
    key: str


class GetKVConfigResponseHeader(CommandHeader):
    """The value read."""

    value: str | None = None


class DeleteKVConfigRequestHeader(CommandHeader):
    """Forget a value."""

    namespace: str
    key: str


class GetKVListByNamespaceRequestHeader(CommandHeader):
    """Read every value of a namespace; the answer's body is a KVTable."""

    namespace: str


class WipeWritePermOfBrokerRequestHeader(CommandHeader):
    """No producer shall choose this broker any more."""

    broker_name: str


class WipeWritePermOfBrokerResponseHeader(CommandHeader):
    """How many of its topics changed."""

    wipe_topic_count: Int32


class AddWritePermOfBrokerRequestHeader(CommandHeader):
    """Producers may choose this broker again."""

    broker_name: str


class AddWritePermOfBrokerResponseHeader(CommandHeader):
    """How many of its topics changed."""

    add_topic_count: Int32
