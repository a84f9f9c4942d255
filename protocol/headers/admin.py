"""Headers for administering a broker (26, 315, 317, 353, 905, 906, 908, 1008).

Source: GetBrokerConfigResponseHeader, ViewBrokerStatsDataRequestHeader,
GetConsumeStatsInBrokerHeader, UpdateGroupForbiddenRequestHeader,
NotifyMinBrokerIdChangeRequestHeader, ExchangeHAInfoRequestHeader, ExchangeHAInfoResponseHeader,
NotifyBrokerRoleChangedRequestHeader, ResetMasterFlushOffsetHeader @5.3.3.
"""

from __future__ import annotations

from twistmq.protocol.header import CommandHeader, Int32, Int64

__all__ = ["ExchangeHAInfoRequestHeader", "ExchangeHAInfoResponseHeader",
           "GetBrokerConfigResponseHeader", "GetConsumeStatsInBrokerHeader",
           "NotifyBrokerRoleChangedRequestHeader",
           "NotifyMinBrokerIdChangeRequestHeader", "ResetMasterFlushOffsetHeader",
           "UpdateGroupForbiddenRequestHeader", "ViewBrokerStatsDataRequestHeader"]


class GetBrokerConfigResponseHeader(CommandHeader):
    """The version of the settings in the body."""

    #: A DataVersion in JSON.
    version: str


class ViewBrokerStatsDataRequestHeader(CommandHeader):
    """Request for the counts of a statistic in the last minute, hour and day."""

    #: The name of the statistic: TOPIC_PUT_NUMS, GROUP_GET_SIZE, ...
    stats_name: str
    #: The counted object: "topic", "topic@group", or the name of the cluster.
    stats_key: str


class GetConsumeStatsInBrokerHeader(CommandHeader):
    """Request for the progress of all groups, or of those in a body ``GroupList``.

    A broker of Apache ignores the body and all fields but the first, and reports everything.
    """

    #: True: only in ordered topics.
    is_order: bool = False
    #: False: the times of the last consumed messages are not needed, and their queues need not be
    #: read from the store.
    with_times: bool | None = None
    #: The only topic that is included; None: all topics.
    topic: str | None = None


class UpdateGroupForbiddenRequestHeader(CommandHeader):
    """Request whether a group may consume a topic, or to change that."""

    group: str
    topic: str
    #: The new value; None only reads the current one.
    readable: bool | None = None


class NotifyMinBrokerIdChangeRequestHeader(CommandHeader):
    """Notifies a broker which member of its group now has the lowest id."""

    min_broker_id: Int64 | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None


class ExchangeHAInfoRequestHeader(CommandHeader):
    """A master sends its addresses to a broker of its group; without addresses it is a request."""

    #: "host:port" of the replication port.
    master_ha_address: str | None = None
    #: The end of the log when the master started, bytes.
    master_flush_offset: Int64 | None = None
    #: "host:port" of the port for requests.
    master_address: str | None = None


class ExchangeHAInfoResponseHeader(ExchangeHAInfoRequestHeader):
    """A master's addresses; empty when the request contained addresses."""


class NotifyBrokerRoleChangedRequestHeader(CommandHeader):
    """Notifies a broker which member of its group is now the master."""

    #: "host:port" of the master.
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None
    #: Set by twistmq's command: the new id of a master that becomes a slave.
    master_broker_id: Int64 | None = None


class ResetMasterFlushOffsetHeader(CommandHeader):
    """Notifies a slave how far the master has flushed its log."""

    #: In bytes of the commit log; None when it is not reported.
    master_flush_offset: Int64 | None = None
