"""Headers of looking after a broker (26, 315, 317, 353, 905, 906, 908, 1008).

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
    """Which version of the settings the body shows."""

    #: A DataVersion as JSON.
    version: str


class ViewBrokerStatsDataRequestHeader(CommandHeader):
    """How much was counted of something in the last minute, hour and day?"""

    #: The table of counts: TOPIC_PUT_NUMS, GROUP_GET_SIZE, ...
    stats_name: str
    #: Of what: "topic", "topic@group", or the cluster's name.
    stats_key: str


class GetConsumeStatsInBrokerHeader(CommandHeader):
    """How far have all groups come?"""

    #: True: in ordered topics only.
    is_order: bool = False


class UpdateGroupForbiddenRequestHeader(CommandHeader):
    """May a group consume a topic?"""

    group: str
    topic: str
    #: The new value; None: it is only asked.
    readable: bool | None = None


class NotifyMinBrokerIdChangeRequestHeader(CommandHeader):
    """A broker is told which of its group now has the lowest id."""

    min_broker_id: Int64 | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None


class ExchangeHAInfoRequestHeader(CommandHeader):
    """A master tells a broker of its group where it is; without addresses it is asked."""

    #: "host:port" of the replication port.
    master_ha_address: str | None = None
    #: Where the log ended when the master started, bytes.
    master_flush_offset: Int64 | None = None
    #: "host:port" for requests.
    master_address: str | None = None


class ExchangeHAInfoResponseHeader(ExchangeHAInfoRequestHeader):
    """A master says where it is; nothing when it was told."""


class NotifyBrokerRoleChangedRequestHeader(CommandHeader):
    """Which broker of a name is its master now?"""

    #: "host:port" of the master.
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None
    #: From twistmq's command: the id that a master which becomes a slave is to have.
    master_broker_id: Int64 | None = None


class ResetMasterFlushOffsetHeader(CommandHeader):
    """How far a master is flushed, told to a slave."""

    #: Bytes of the commit log; None: nothing is told.
    master_flush_offset: Int64 | None = None
