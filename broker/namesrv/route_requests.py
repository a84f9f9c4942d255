"""Requests with which clients and tools read tables: 105, 106, 206, 224, 304, 311, 312, 313, 901.

Source: ClientRequestProcessor, DefaultRequestProcessor, ZoneRouteRPCHook @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import msgspec

from twistmq.broker.config.settings import Settings
from twistmq.broker.namesrv.kv_config import ORDER_TOPIC_NAMESPACE, KVConfig
from twistmq.broker.namesrv.route_bodies import (
    check_size,
    cluster_info_body,
    route_body,
    topic_list_body,
)
from twistmq.broker.namesrv.route_views import (
    LONG_COUNT,
    RouteViews,
    filter_by_zone,
)
from twistmq.broker.remoting.long_answers import LongAnswers, Work
from twistmq.broker.remoting.messages import AnyHandler, Handled, Reply, Request, RequestHandler
from twistmq.protocol.bodies import (
    GetBrokerMemberGroupResponseBody,
    TopicList,
    wants_standard_json,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import RequestRefused
from twistmq.protocol.flags import UNIT, UNIT_SUB
from twistmq.protocol.header import EmptyHeader
from twistmq.protocol.headers.namesrv import (
    GetBrokerMemberGroupRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
)
from twistmq.protocol.run_to_completion import run_to_completion
from twistmq.protocol.topic_names import APPLY_TOPIC_SUGGESTION

__all__ = ["RouteRequests", "ZonedGetRouteInfoRequestHeader"]

AnyRequest = Request[Any]


class ZonedGetRouteInfoRequestHeader(GetRouteInfoRequestHeader):
    """A query for a route, with the additional fields of a client's hook."""

    zone_mode: str | None = msgspec.field(default=None, name="__ZONE_MODE")
    zone_name: str | None = msgspec.field(default=None, name="__ZONE_NAME")


class RouteRequests:
    """Handlers of these requests.

    :param long_lists: makes lists of many rows.
    :param long_routes: makes routes of many brokers.
    :param steady_ms: the clock for durations, ms.
    """

    def __init__(
        self, views: RouteViews, kv_config: KVConfig, settings: Settings,
        long_lists: LongAnswers, long_routes: LongAnswers, steady_ms: Callable[[], int],
    ) -> None:
        self._steady_ms = steady_ms
        self._views = views
        self._kv_config = kv_config
        self._settings = settings
        #: The start of the name server, by the clock for durations, ms.
        self.started_ms = 0
        self._long_lists = long_lists
        self._long_routes = long_routes

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

    def route(self, request: Request[ZonedGetRouteInfoRequestHeader]) -> Handled:
        """Return the route of a topic.

        Differs from Apache: a route that is reduced to a zone has the JSON form that the client
        reads.
        """
        if self._settings.flag("needWaitForService"):
            ready_ms = self.started_ms + self._settings.int("waitSecondsForService") * 1000
            if self._steady_ms() < ready_ms:
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, "name server not ready")
        is_long = self._views.is_long(request.header.topic)
        work = self._route(request, is_long)
        if not is_long:
            return run_to_completion(work)
        return self._long_routes.answer(work, request.channel)

    def _route(
        self, request: Request[ZonedGetRouteInfoRequestHeader], is_long: bool
    ) -> Work:
        header = request.header
        route = yield from self._views.routing(header.topic)
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
        standard = wants_standard_json(request.command.version, header)
        if is_long:
            return Reply(body=(yield from route_body(route, standard=standard)))
        return Reply(body=route.encode_standard() if standard else route.encode())

    def cluster_info(self, request: Request[EmptyHeader]) -> Handled:
        if self._views.broker_count <= LONG_COUNT:
            return Reply(body=self._views.cluster_info().encode())

        def work() -> Work:
            return Reply(body=(yield from cluster_info_body(self._views)))

        return self._long_lists.answer(work(), request.channel)

    def member_group(self, request: Request[GetBrokerMemberGroupRequestHeader]) -> Reply:
        group = self._views.member_group(request.header.cluster_name, request.header.broker_name)
        return Reply(body=GetBrokerMemberGroupResponseBody(group).encode())

    def all_topics(self, request: Request[EmptyHeader]) -> Handled:
        self._check_enabled("enableAllTopicList")
        # The count includes some topics whose broker is gone, but few, and only for a short time.
        return self._topic_list(request, self._views.all_topics(), self._views.topic_chars)

    def topics_of_cluster(self, request: Request[GetTopicsByClusterRequestHeader]) -> Handled:
        self._check_enabled("enableTopicList")
        return self._topic_list(request, self._views.topics_of_cluster(request.header.cluster))

    def system_topics(self, request: Request[EmptyHeader]) -> Handled:
        names, address = self._views.system_topics()
        if len(names) <= LONG_COUNT:
            return Reply(body=TopicList(set(names), address).encode())

        def work() -> Work:
            return Reply(body=(yield from topic_list_body(names, address)))

        return self._long_lists.answer(work(), request.channel)

    def unit_topics(self, request: Request[EmptyHeader]) -> Handled:
        return self._topics_with_flags(request, UNIT)

    def unit_sub_topics(self, request: Request[EmptyHeader]) -> Handled:
        return self._topics_with_flags(request, UNIT_SUB)

    def unit_sub_no_unit_topics(self, request: Request[EmptyHeader]) -> Handled:
        return self._topics_with_flags(request, UNIT_SUB, UNIT)

    def _topics_with_flags(
        self, request: Request[EmptyHeader], required: int, excluded: int = 0
    ) -> Handled:
        self._check_enabled("enableTopicList")
        return self._topic_list(request, self._views.topics_with_flags(required, excluded))

    def _topic_list(
        self, request: AnyRequest, choosing: Generator[None, None, list[str]], chars: int = 0
    ) -> Handled:
        """Make a list of topics.

        :param chars: the least number of characters in all names.
        """
        def work() -> Work:
            # A list that is too long is refused before any work is done.
            check_size("topicList", chars)
            names = yield from choosing
            if len(names) <= LONG_COUNT:
                return Reply(body=TopicList(set(names)).encode())
            return Reply(body=(yield from topic_list_body(names)))

        # A short list does not wait for a long one.
        if self._views.topic_count <= LONG_COUNT:
            return run_to_completion(work())
        return self._long_lists.answer(work(), request.channel)

    def _check_enabled(self, setting: str) -> None:
        if not self._settings.flag(setting):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "disable")
