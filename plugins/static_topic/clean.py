"""Removes parts of logical queues that hold no messages, and queues that moved on.

The cleanup runs in the hours of ``deleteWhen``. For a queue that this broker leads, the first part
is removed when its broker reports that it is empty. A queue that is led elsewhere stays in the
table while its leader is the broker to which this one handed it. It is removed when that broker has
handed it on.

Source: TopicQueueMappingCleanService @5.3.3.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from twistmq.broker.api import BrokerError, PeriodicTask, RequestCode
from twistmq.broker.api.bodies import MessageQueue, TopicRouteData, TopicStatsTable
from twistmq.broker.api.headers import GetTopicConfigRequestHeader, GetTopicStatsInfoRequestHeader
from twistmq.broker.api.requests import forwarded
from twistmq.plugins.static_topic.mapping import (
    LogicQueueMappingItem,
    TopicConfigAndQueueMapping,
    TopicQueueMappingDetail,
)
from twistmq.plugins.static_topic.remote import OtherBrokers
from twistmq.plugins.static_topic.table import QueueMappings

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["CleanService", "route_leaders"]

#: Source: TopicQueueMappingCleanService.run.
_PERIOD_MS: Final = 5 * 60_000


class CleanService:
    """Cleans the mappings of one broker."""

    log = Logger()

    def __init__(self, broker: Broker, mappings: QueueMappings, others: OtherBrokers) -> None:
        self._broker = broker
        self._mappings = mappings
        self._others = others

    def tasks(self) -> list[PeriodicTask]:
        return [PeriodicTask("clean static topics", _PERIOD_MS, _PERIOD_MS, self._step)]

    def _step(self, now_ms: int) -> Deferred[None] | None:
        hours = self._broker.store.settings.delete_hours
        if not self._mappings.table or datetime.fromtimestamp(now_ms / 1000).hour not in hours:
            return None
        return Deferred.fromCoroutine(self.clean())

    async def clean(self) -> None:
        """Check all static topics once; topics that cannot be checked stay unchanged."""
        for topic in list(self._mappings.table):
            for one in (self._without_empty, self._without_led_on):
                detail = self._mappings.table.get(topic)
                if detail is None:
                    break
                try:
                    queues = await one(detail)
                except BrokerError as error:
                    self.log.warn("static topic {topic} cannot be cleaned: {error}", topic=topic,
                                  error=str(error))
                    continue
                # The topic may have been changed or deleted while other brokers were asked.
                if queues != detail.hosted_queues and self._mappings.table.get(topic) is detail:
                    self._mappings.put(replace(detail, hosted_queues=queues))
        if self._mappings.dirty:
            self._broker.saves.save(self._mappings)

    # --- empty parts

    async def _without_empty(
        self, detail: TopicQueueMappingDetail
    ) -> dict[int, list[LogicQueueMappingItem]]:
        """Return the queues without empty first parts."""
        queues = dict(detail.hosted_queues)
        bounds: dict[str, TopicStatsTable] = {}
        for number, items in detail.hosted_queues.items():
            if len(items) < 2 or not items[1].is_decided or not detail.leads(items):
                continue
            first = items[0]
            if first.bname not in bounds:
                bounds[first.bname] = await self._bounds(detail.topic, first.bname)
            offsets = bounds[first.bname].offset_table.get(
                MessageQueue(detail.topic, first.bname, first.queue_id))
            if offsets is not None and offsets.max_offset in (0, offsets.min_offset):
                self.log.info("static topic {topic}, queue {number}: the empty part {item} is "
                              "removed",
                              topic=detail.topic, number=number, item=first)
                queues[number] = items[1:]
        return queues

    async def _bounds(self, topic: str, broker_name: str) -> TopicStatsTable:
        header = GetTopicStatsInfoRequestHeader(topic=topic)
        reply = await self._others.ask(
            broker_name, RequestCode.GET_TOPIC_STATS_INFO, forwarded(header, broker_name))
        return TopicStatsTable.decode(reply.body)

    # --- queues that moved on

    async def _without_led_on(
        self, detail: TopicQueueMappingDetail
    ) -> dict[int, list[LogicQueueMappingItem]]:
        """Return the queues without those that their new leader has handed to another broker."""
        successors = {number: items[-1].bname for number, items in detail.hosted_queues.items()
                      if items and not detail.leads(items)}
        if not successors or not self._broker.host.has_name_servers:
            return detail.hosted_queues
        route = await self._broker.host.find_route(detail.topic)
        leaders = {} if route is None else route_leaders(route, detail.scope)
        details: dict[str, TopicQueueMappingDetail | None] = {}
        queues = dict(detail.hosted_queues)
        for number, successor in successors.items():
            leader = leaders.get(number)
            if leader is None or leader == successor:
                continue
            if leader not in details:
                details[leader] = await self._detail(detail.topic, leader)
            leader_detail = details[leader]
            if leader_detail is not None and (
                    leader_detail.leads(leader_detail.hosted_queues.get(number))) and (
                    (leader_detail.total_queues, leader_detail.epoch)
                    == (detail.total_queues, detail.epoch)):
                self.log.info("static topic {topic}, queue {number}: moved to {leader} and removed "
                              "here",
                              topic=detail.topic, number=number, leader=leader)
                del queues[number]
        return queues

    async def _detail(self, topic: str, broker_name: str) -> TopicQueueMappingDetail | None:
        """Return the mapping of a topic on another broker."""
        header = forwarded(GetTopicConfigRequestHeader(topic=topic), broker_name, logical=True)
        reply = await self._others.ask(broker_name, RequestCode.GET_TOPIC_CONFIG, header)
        detail = TopicConfigAndQueueMapping.decode(reply.body).mapping_detail
        return detail if detail is not None and detail.bname == broker_name else None


def route_leaders(route: TopicRouteData, scope: str) -> dict[int, str]:
    """Return the leader of each logical queue according to the newest mapping of the route.

    Source: ClientMetadata.topicRouteData2EndpointsForStaticTopic @5.3.3.
    """
    infos = [info for info in (route.topic_queue_mapping_by_broker or {}).values()
             if info.scope == scope and info.bname is not None]
    return {number: info.bname or "" for info in sorted(infos, key=lambda info: info.epoch)
            for number in info.curr_id_map}
