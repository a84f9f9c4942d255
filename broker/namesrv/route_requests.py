"""What clients and tools read: 105, 106, 206, 224, 304, 311, 312, 313, 901.

Source: ClientRequestProcessor, DefaultRequestProcessor, ZoneRouteRPCHook @5.3.3.
"""

from __future__ import annotations

import msgspec

from twistmq.broker.codes import RequestCode, ResponseCode
from twistmq.broker.errors import RequestRefused
from twistmq.broker.namesrv.kv_config import ORDER_TOPIC_NAMESPACE, KVConfig
from twistmq.broker.namesrv.route_views import (
    UNIT_FLAG,
    UNIT_SUB_FLAG,
    RouteViews,
    filter_by_zone,
)
from twistmq.broker.remoting import AnyHandler, Reply, Request, RequestHandler
from twistmq.broker.settings import Settings
from twistmq.broker.topic_names import APPLY_TOPIC_SUGGESTION
from twistmq.broker.wire.bodies import (
    GetBrokerMemberGroupResponseBody,
    TopicList,
    wants_standard_json,
)
from twistmq.broker.wire.header import EmptyHeader
from twistmq.broker.wire.headers.namesrv import (
    GetBrokerMemberGroupRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
)

__all__ = ["RouteRequests", "ZonedGetRouteInfoRequestHeader"]


class ZonedGetRouteInfoRequestHeader(GetRouteInfoRequestHeader):
    """A question for a route with the fields that a client's hook adds."""

    zone_mode: str | None = msgspec.field(default=None, name="__ZONE_MODE")
    zone_name: str | None = msgspec.field(default=None, name="__ZONE_NAME")


class RouteRequests:
    """Handlers of these requests."""

    def __init__(self, views: RouteViews, kv_config: KVConfig, settings: Settings) -> None:
        self._views = views
        self._kv_config = kv_config
        self._settings = settings
        #: When the name server started, Unix ms.
        self.started_ms = 0

    def handlers(self) -> list[AnyHandler]:
        code = RequestCode
        return [
            RequestHandler(code.GET_ROUTEINFO_BY_TOPIC, self.route,
                           ZonedGetRouteInfoRequestHeader),
            RequestHandler(code.GET_BROKER_CLUSTER_INFO, self.cluster_info),
            RequestHandler(code.GET_BROKER_MEMBER_GROUP, self.member_group,
                           GetBrokerMemberGroupRequestHeader),
            RequestHandler(code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, self.all_topics),
            RequestHandler(code.GET_TOPICS_BY_CLUSTER, self.topics_of_cluster,
                           GetTopicsByClusterRequestHeader),
            RequestHandler(code.GET_SYSTEM_TOPIC_LIST_FROM_NS, self.system_topics),
            RequestHandler(code.GET_UNIT_TOPIC_LIST, self.unit_topics),
            RequestHandler(code.GET_HAS_UNIT_SUB_TOPIC_LIST, self.unit_sub_topics),
            RequestHandler(code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, self.unit_sub_no_unit_topics),
        ]

    def route(self, request: Request[ZonedGetRouteInfoRequestHeader]) -> Reply:
        """Where is a topic?

        Differs from Apache: a route cut down to a zone keeps the JSON form its asker reads.
        """
        header = request.header
        if self._settings.flag("needWaitForService"):
            ready_ms = self.started_ms + self._settings.int("waitSecondsForService") * 1000
            if request.now_ms < ready_ms:
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, "name server not ready")
        route = self._views.route(header.topic)
        if route is None:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {header.topic}"
                f"{APPLY_TOPIC_SUGGESTION}")
        if self._settings.flag("orderMessageEnable"):
            route.order_topic_conf = self._kv_config.get(ORDER_TOPIC_NAMESPACE, header.topic)
        zone_name = (header.zone_name or "").strip()
        if zone_name and (header.zone_mode or "").lower() == "true":
            route = filter_by_zone(route, zone_name)
        if wants_standard_json(request.command.version, header):
            return Reply(body=route.encode_standard())
        return Reply(body=route.encode())

    def cluster_info(self, request: Request[EmptyHeader]) -> Reply:
        return Reply(body=self._views.cluster_info().encode())

    def member_group(self, request: Request[GetBrokerMemberGroupRequestHeader]) -> Reply:
        group = self._views.member_group(request.header.cluster_name, request.header.broker_name)
        return Reply(body=GetBrokerMemberGroupResponseBody(group).encode())

    def all_topics(self, request: Request[EmptyHeader]) -> Reply:
        self._check_enabled("enableAllTopicList")
        return Reply(body=self._views.all_topics().encode())

    def topics_of_cluster(self, request: Request[GetTopicsByClusterRequestHeader]) -> Reply:
        return self._topic_list(self._views.topics_of_cluster(request.header.cluster))

    def system_topics(self, request: Request[EmptyHeader]) -> Reply:
        return Reply(body=self._views.system_topics().encode())

    def unit_topics(self, request: Request[EmptyHeader]) -> Reply:
        return self._topic_list(self._views.topics_with_flags(UNIT_FLAG))

    def unit_sub_topics(self, request: Request[EmptyHeader]) -> Reply:
        return self._topic_list(self._views.topics_with_flags(UNIT_SUB_FLAG))

    def unit_sub_no_unit_topics(self, request: Request[EmptyHeader]) -> Reply:
        return self._topic_list(self._views.topics_with_flags(UNIT_SUB_FLAG, UNIT_FLAG))

    def _topic_list(self, topics: TopicList) -> Reply:
        self._check_enabled("enableTopicList")
        return Reply(body=topics.encode())

    def _check_enabled(self, setting: str) -> None:
        if not self._settings.flag(setting):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "disable")
