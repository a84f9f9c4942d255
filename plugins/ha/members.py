"""The brokers of a group, as name servers know them, and the heartbeats of this broker.

Name servers before version 5 know neither of these requests. For them the group is the route of a
topic that each of its brokers has, and a broker that queries the version of its topics is alive.

Source: BrokerOuterAPI.syncBrokerMemberGroup, sendHeartbeat, sendHeartbeatViaDataVersion @5.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twisted.internet.defer import Deferred

from twistmq.broker.api import BrokerError, RequestCode, RequestRefused, ResponseCode
from twistmq.broker.api.bodies import GetBrokerMemberGroupResponseBody
from twistmq.broker.api.headers import (
    BrokerHeartbeatRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    QueryDataVersionRequestHeader,
)
from twistmq.plugins.replica.ask import TIMEOUT_MS

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["Members"]

#: Source: TopicValidator.SYNC_BROKER_MEMBER_GROUP_PREFIX.
_TOPIC_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"


class Members:
    """The group of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @property
    def _is_old(self) -> bool:
        return self._broker.settings.flag("compatibleWithOldNameSrv")

    async def ask(self) -> dict[int, str]:
        """Ask name servers for the group; :returns: addresses by id, empty if it is not known.

        :raises BrokerError: when no name server answers.
        """
        return await (self._by_route() if self._is_old else self._by_group())

    async def _by_route(self) -> dict[int, str]:
        broker = self._broker
        route = await broker.host.find_route(_TOPIC_PREFIX + broker.broker_name)
        for group in route.broker_datas if route is not None else ():
            if (group.broker_name, group.cluster) == (broker.broker_name, broker.cluster_name):
                return dict(group.broker_addrs)
        return {}

    async def _by_group(self) -> dict[int, str]:
        broker = self._broker
        reply = await broker.host.ask_name_server(
            RequestCode.GET_BROKER_MEMBER_GROUP, GetBrokerMemberGroupRequestHeader(
                cluster_name=broker.cluster_name, broker_name=broker.broker_name),
            timeout_ms=TIMEOUT_MS)
        if reply.code != ResponseCode.SUCCESS:
            raise RequestRefused(reply.code, f"a name server answered {reply.code}: "
                                             f"{reply.remark or 'no remark'}")
        group = GetBrokerMemberGroupResponseBody.decode(reply.body).broker_member_group
        if group is None:
            raise BrokerError("a name server answered without a group")
        return dict(group.broker_addrs)

    def heartbeat(self, _: int = 0) -> None:
        """Send a heartbeat to name servers, once this broker registers; periodic."""
        broker = self._broker
        if broker.identity.registers:
            # Not awaited, so that a name server that hangs cannot delay later heartbeats.
            Deferred.fromCoroutine(self._heartbeat())

    async def _heartbeat(self) -> None:
        broker, host = self._broker, self._broker.host
        timeout_ms = broker.settings.int("sendHeartbeatTimeoutMillis")
        if self._is_old:
            await host.tell_name_servers(
                RequestCode.QUERY_DATA_VERSION, QueryDataVersionRequestHeader(
                    broker_name=broker.broker_name, broker_addr=broker.broker_address,
                    cluster_name=broker.cluster_name, broker_id=broker.broker_id),
                broker.topic_config.data_version.encode(), timeout_ms=timeout_ms)
            return
        await host.tell_name_servers(
            RequestCode.BROKER_HEARTBEAT, BrokerHeartbeatRequestHeader(
                cluster_name=broker.cluster_name, broker_addr=broker.broker_address,
                broker_name=broker.broker_name, broker_id=broker.broker_id),
            timeout_ms=timeout_ms)
