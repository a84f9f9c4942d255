"""Requests with which brokers and tools change tables: 103, 104, 205, 216, 217, 322, 327, 904.

Source: DefaultRequestProcessor @5.3.3.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator
from typing import Final

import msgspec
from twisted.logger import Logger

from twistmq.broker.config.settings import Settings
from twistmq.broker.constants import KV_REPLY_SIZE_MAX, SINGLE_TOPIC_SIZE_MAX
from twistmq.broker.namesrv.changes import Changes
from twistmq.broker.namesrv.kv_config import ORDER_TOPIC_NAMESPACE, KVConfig
from twistmq.broker.namesrv.registration import Registration
from twistmq.broker.namesrv.room import host_of
from twistmq.broker.namesrv.route_info import RouteInfoManager
from twistmq.broker.remoting.messages import AnyHandler, Handled, Reply, Request, RequestHandler
from twistmq.protocol.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfigSerializeWrapper,
    TopicRouteData,
)
from twistmq.protocol.bodies.registration import decoding_topics
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import RequestRefused
from twistmq.protocol.frame import FRAME_SIZE_MAX
from twistmq.protocol.headers.namesrv import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    BrokerHeartbeatRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    RegisterTopicRequestHeader,
    UnRegisterBrokerRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from twistmq.protocol.limits import DATA_VERSION_SIZE_MAX

__all__ = ["FILTER_SERVERS_VERSION_MIN", "BrokerRequests", "ZonedRegisterBrokerRequestHeader"]

#: The ordinal of MQVersion V3_0_11: older brokers register with the topics alone.
FILTER_SERVERS_VERSION_MIN: Final = 37
#: CRCs are sent without the sign bit.
_CRC_MASK: Final = 0x7FFF_FFFF


class ZonedRegisterBrokerRequestHeader(RegisterBrokerRequestHeader):
    """A registration with the additional field of a broker's hook."""

    zone_name: str | None = msgspec.field(default=None, name="__ZONE_NAME")


class BrokerRequests:
    """Handlers of these requests.

    :param changes: makes all changes of the tables.
    :param awake_ms: the clock for the silence of brokers, ms.
    """

    log = Logger()

    def __init__(
        self, routes: RouteInfoManager, kv_config: KVConfig, settings: Settings, changes: Changes,
        awake_ms: Callable[[], int],
    ) -> None:
        self._awake_ms = awake_ms
        self._routes = routes
        self._changes = changes
        self._kv_config = kv_config
        self._settings = settings
        #: Whether it was logged that the ordered topics are too long.
        self._is_too_long = False

    def handlers(self) -> list[AnyHandler]:
        code = RequestCode
        return [
            RequestHandler(code.REGISTER_BROKER, self.register, ZonedRegisterBrokerRequestHeader,
                           body_size_max=FRAME_SIZE_MAX, decodes_body=True),
            RequestHandler(code.UNREGISTER_BROKER, self.unregister, UnRegisterBrokerRequestHeader),
            RequestHandler(code.QUERY_DATA_VERSION, self.query_data_version,
                           QueryDataVersionRequestHeader, body_size_max=DATA_VERSION_SIZE_MAX),
            RequestHandler(code.BROKER_HEARTBEAT, self.heartbeat, BrokerHeartbeatRequestHeader),
            RequestHandler(code.REGISTER_TOPIC_IN_NAMESRV, self.register_topic,
                           RegisterTopicRequestHeader, body_size_max=SINGLE_TOPIC_SIZE_MAX),
            RequestHandler(code.DELETE_TOPIC_IN_NAMESRV, self.delete_topic,
                           DeleteTopicFromNamesrvRequestHeader),
            RequestHandler(code.WIPE_WRITE_PERM_OF_BROKER, self.wipe_write_permission,
                           WipeWritePermOfBrokerRequestHeader),
            RequestHandler(code.ADD_WRITE_PERM_OF_BROKER, self.add_write_permission,
                           AddWritePermOfBrokerRequestHeader),
        ]

    def register(self, request: Request[ZonedRegisterBrokerRequestHeader]) -> Handled:
        """Register a broker, or take its registration as a sign of life."""
        header = request.header
        if header.body_crc32 and zlib.crc32(request.body) & _CRC_MASK != header.body_crc32:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        return self._changes.work(self._register(request), request.channel, ends_with_it=True,
                                  size_bytes=len(request.body))

    def _register(
        self, request: Request[ZonedRegisterBrokerRequestHeader]
    ) -> Generator[None, None, Reply]:
        header = request.header
        reading = _registered(request)
        while True:
            if not request.channel.active:
                # Its loss has been reported already, and would not be reported again.
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, "register broker failed")
            try:
                next(reading)
            except StopIteration as done:
                topics, filter_servers = done.value
                break
            yield
        master = yield from self._routes.registering(Registration(
            cluster=header.cluster_name, address=header.broker_addr,
            broker_name=header.broker_name, broker_id=header.broker_id,
            ha_address=header.ha_server_addr, zone_name=header.zone_name,
            timeout_ms=header.heartbeat_timeout_millis,
            acting_master=header.enable_acting_master, topics=topics,
            filter_servers=filter_servers, channel=request.channel), self._awake_ms())
        if master is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "register broker failed")
        return Reply(header=RegisterBrokerResponseHeader(
            ha_server_addr=master.ha_address, master_addr=master.address),
            body=self._order_topics())

    def _order_topics(self) -> bytes:
        """Return the ordered topics for the reply to a registration.

        The result is empty when they are too long, which is possible if they were saved before
        there was a limit: the broker would close the connection because of such a frame, and would
        be forgotten as a consequence.
        """
        if not self._settings.flag("returnOrderTopicConfigToBroker"):
            return b""
        table = self._kv_config.table(ORDER_TOPIC_NAMESPACE)
        body = table.encode() if table else b""
        is_too_long = len(body) > KV_REPLY_SIZE_MAX
        if is_too_long and not self._is_too_long:
            self.log.warn("registering brokers do not get the namespace {namespace}: its values "
                          "take {size} bytes, too many for a reply",
                          namespace=ORDER_TOPIC_NAMESPACE, size=len(body))
        self._is_too_long = is_too_long
        return b"" if is_too_long else body

    def unregister(self, request: Request[UnRegisterBrokerRequestHeader]) -> Handled:
        """Forget a broker that leaves; an unknown broker may leave too."""
        header = request.header

        def change() -> Reply:
            self._routes.unregister(header.cluster_name, header.broker_addr, header.broker_name)
            return Reply()

        return self._changes.do(change, request.channel)

    def query_data_version(self, request: Request[QueryDataVersionRequestHeader]) -> Reply:
        """Check whether a broker must register again. The request is a sign of life."""
        header = request.header
        theirs = DataVersion.decode(request.body) if request.body else None
        whose = header.cluster_name, header.broker_addr, header.broker_name
        data_version = self._routes.data_version(*whose)
        self._routes.heartbeat(*whose, self._awake_ms())
        return Reply(header=QueryDataVersionResponseHeader(
            changed=data_version is None or data_version != theirs),
            body=data_version.encode() if data_version else b"")

    def heartbeat(self, request: Request[BrokerHeartbeatRequestHeader]) -> Reply:
        header = request.header
        self._routes.heartbeat(header.cluster_name, header.broker_addr, header.broker_name,
                               self._awake_ms())
        return Reply()

    def register_topic(self, request: Request[RegisterTopicRequestHeader]) -> Handled:
        """Register one topic; it also succeeds when a broker of the topic is unknown."""
        queues = TopicRouteData.decode(request.body).queue_datas if request.body else []
        host = host_of(request.channel.charged_address)

        def change() -> Reply:
            if queues:
                self._routes.register_topic(request.header.topic, queues, host)
            return Reply()

        return self._changes.do(change, request.channel)

    def delete_topic(self, request: Request[DeleteTopicFromNamesrvRequestHeader]) -> Handled:
        def change() -> Reply:
            self._routes.delete_topic(request.header.topic, request.header.cluster_name)
            return Reply()

        return self._changes.do(change, request.channel)

    def wipe_write_permission(
        self, request: Request[WipeWritePermOfBrokerRequestHeader]
    ) -> Handled:
        def change() -> Generator[None, None, Reply]:
            count = yield from self._routes.tables.wiping_write_permission(
                request.header.broker_name)
            return Reply(header=WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count))

        return self._changes.work(change(), request.channel)

    def add_write_permission(self, request: Request[AddWritePermOfBrokerRequestHeader]) -> Handled:
        def change() -> Generator[None, None, Reply]:
            count = yield from self._routes.tables.adding_write_permission(
                request.header.broker_name)
            return Reply(header=AddWritePermOfBrokerResponseHeader(add_topic_count=count))

        return self._changes.work(change(), request.channel)


def _registered(
    request: Request[ZonedRegisterBrokerRequestHeader],
) -> Generator[None, None, tuple[TopicConfigSerializeWrapper, list[str] | None]]:
    """Return the topics and filter servers of a registration; None if old and without the latter.

    :raises WireError: when the body cannot be decoded.
    """
    version = request.command.version
    if version < FILTER_SERVERS_VERSION_MIN:
        if not request.body:
            return TopicConfigSerializeWrapper(), None
        return (yield from decoding_topics(request.body)), None
    if not request.body:
        return TopicConfigSerializeWrapper(), []
    body = yield from RegisterBrokerBody.decoding(
        request.body, request.header.compressed, version)
    return body.topic_config_serialize_wrapper, body.filter_server_list
