"""Headers of name server requests (100-105, 205, 216, 217, 219, 224, 322, 327, 901, 904).

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
    """Registers a broker and its topics; the body is a RegisterBrokerBody."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    #: The id of the broker; 0 is the master.
    broker_id: Int64
    #: After how long without a heartbeat the broker counts as dead, ms; absent before version 5.
    heartbeat_timeout_millis: Int64 | None = None
    enable_acting_master: bool | None = None
    #: Whether the body has the compressed form.
    compressed: bool = False
    #: The CRC-32 of the body, sign bit cleared; 0 means that it is not checked.
    body_crc32: Int32 = 0


class RegisterBrokerResponseHeader(CommandHeader):
    """The address of the master, for a slave."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnRegisterBrokerRequestHeader(CommandHeader):
    """Removes a broker."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class QueryDataVersionRequestHeader(CommandHeader):
    """Request whether a broker's topics, at the data version in the body, are already known."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class QueryDataVersionResponseHeader(CommandHeader):
    """Whether the broker must register again; the body is the known version."""

    changed: bool


class BrokerHeartbeatRequestHeader(CommandHeader):
    """The heartbeat of a broker; the last fields are for a controller."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Int64 | None = None
    epoch: Int32 | None = None
    max_offset: Int64 | None = None
    confirm_offset: Int64 | None = None
    #: Spelt as on the wire; in ms.
    heartbeat_timeout_mills: Int64 | None = None
    election_priority: Int32 | None = None


class GetBrokerMemberGroupRequestHeader(CommandHeader):
    """Request for the brokers that share a name."""

    cluster_name: str
    broker_name: str


class GetRouteInfoRequestHeader(CommandHeader):
    """Request for the route of a topic."""

    topic: str
    #: True: the response must be JSON with all keys quoted, whatever the client's version is.
    accept_standard_json_only: bool | None = None


class DeleteTopicFromNamesrvRequestHeader(CommandHeader):
    """Removes a topic, from one cluster or from all."""

    topic: str
    cluster_name: str | None = None


class RegisterTopicRequestHeader(CommandHeader):
    """Registers a topic; the body is its TopicRouteData."""

    topic: str


class GetTopicsByClusterRequestHeader(CommandHeader):
    """Request for the topics of a cluster."""

    cluster: str


class PutKVConfigRequestHeader(CommandHeader):
    """Stores a value."""

    namespace: str
    key: str
    value: str


class GetKVConfigRequestHeader(CommandHeader):
    """Requests a value."""

    namespace: str
    key: str


class GetKVConfigResponseHeader(CommandHeader):
    """The requested value."""

    value: str | None = None


class DeleteKVConfigRequestHeader(CommandHeader):
    """Deletes a value."""

    namespace: str
    key: str


class GetKVListByNamespaceRequestHeader(CommandHeader):
    """Request for all values of a namespace; the body of the response is a KVTable."""

    namespace: str


class WipeWritePermOfBrokerRequestHeader(CommandHeader):
    """Request that producers no longer choose this broker."""

    broker_name: str


class WipeWritePermOfBrokerResponseHeader(CommandHeader):
    """The number of its topics that changed."""

    wipe_topic_count: Int32


class AddWritePermOfBrokerRequestHeader(CommandHeader):
    """Request that producers may choose this broker again."""

    broker_name: str


class AddWritePermOfBrokerResponseHeader(CommandHeader):
    """The number of its topics that changed."""

    add_topic_count: Int32
