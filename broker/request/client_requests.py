"""Requests of clients: heartbeats (34), leaving a group (35), members of a group (38), checks of a
subscription (46). The broker sends 40 to the members of a group that changed.

Source: ClientManageProcessor, ConsumerManageProcessor, DefaultConsumerIdsChangeListener,
ClientHousekeepingService @5.3.3.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from twisted.logger import Logger

from twistmq.broker.config.settings import Settings
from twistmq.broker.constants import HEARTBEAT_SIZE_MAX, SUBSCRIPTION_BODY_SIZE_MAX
from twistmq.broker.remoting.dispatcher import Dispatcher
from twistmq.broker.remoting.messages import Handled, Reply, Request, RequestHandler, now_or_later
from twistmq.broker.request.client_table import Client
from twistmq.broker.request.filters import FilterLanguages, is_tag_type
from twistmq.broker.request.host import Host
from twistmq.broker.request.tables import Tables
from twistmq.broker.scheduling.scheduler import Lane
from twistmq.protocol.bodies import (
    CheckClientRequestBody,
    ConsumerData,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import RequestRefused
from twistmq.protocol.flags import PERM_READ, PERM_WRITE, UNIT_SUB
from twistmq.protocol.header import EmptyHeader
from twistmq.protocol.headers.client import (
    GetConsumerListByGroupRequestHeader,
    HeartbeatResponseHeader,
    UnregisterClientRequestHeader,
)
from twistmq.protocol.topic_names import retry_topic

__all__ = ["ClientRequests"]


class ClientRequests:
    """The handlers of client management."""

    log = Logger()

    def __init__(
        self, settings: Settings, host: Host, tables: Tables, filters: FilterLanguages,
        slices: Lane, dispatcher: Dispatcher,
    ) -> None:
        self._host = host
        self._dispatcher = dispatcher
        self._tables = tables
        self._filters = filters
        self._slices = slices
        self._property_filter = settings.flag("enablePropertyFilter")
        #: The connections with a heartbeat in progress.
        self._unfinished: set[int] = set()

    def handlers(self) -> list[RequestHandler[Any]]:
        return [
            RequestHandler(RequestCode.HEART_BEAT, self._heartbeat, EmptyHeader,
                           body_size_max=HEARTBEAT_SIZE_MAX, decodes_body=True),
            RequestHandler(RequestCode.UNREGISTER_CLIENT, self._unregister,
                           UnregisterClientRequestHeader),
            RequestHandler(RequestCode.CHECK_CLIENT_CONFIG, self._check, EmptyHeader,
                           body_size_max=SUBSCRIPTION_BODY_SIZE_MAX),
            RequestHandler(RequestCode.GET_CONSUMER_LIST_BY_GROUP, self._members,
                           GetConsumerListByGroupRequestHeader),
        ]

    def _heartbeat(self, request: Request[EmptyHeader]) -> Handled:
        """Process a heartbeat. A heartbeat with many groups is processed in slices."""
        if request.channel.channel_id in self._unfinished:
            raise RequestRefused(ResponseCode.SYSTEM_BUSY,
                                 "the connection's last heartbeat is still being processed")
        self._unfinished.add(request.channel.channel_id)

        def finished(result: Any) -> Any:
            self._unfinished.discard(request.channel.channel_id)
            return result

        processing = self._slices.run(self._take_heartbeat(request), at_once=True)
        return now_or_later(processing.addBoth(finished))

    def _take_heartbeat(self, request: Request[EmptyHeader]) -> Generator[None, None, Reply]:
        """Register the groups of a heartbeat one by one, as long as its connection lives."""
        heartbeat = HeartbeatData.decode(request.body)
        clients = self._tables.clients
        clients.space.check(request.channel.channel_id, heartbeat, request.now_ms)
        language = request.command.language
        client = Client(heartbeat.client_id, request.channel, str(language or "OTHER"),
                        request.command.version, request.now_ms,
                        self._host.steady.awake_ms(), self._dispatcher.owner_of(request))
        sub_change = heartbeat.heartbeat_fingerprint == 0
        topics_before = self._tables.topic_config.data_version.counter
        groups_before = clients.group_count(request.channel)
        for data in heartbeat.consumer_data_set:
            if self._register_consumer(data, client, heartbeat):
                sub_change = True
            yield
            if not request.channel.active:
                # The groups that were registered before the loss are removed already.
                break
        else:
            for producer in heartbeat.producer_data_set:
                clients.register_producer(producer.group_name, client)
                yield
                if not request.channel.active:
                    break
        clients.log_new(client, groups_before)
        if self._tables.topic_config.data_version.counter != topics_before:
            self._tables.topics_changed()
        return Reply(header=HeartbeatResponseHeader(
            support_heart_beat_v2=True, sub_change=sub_change))

    def _register_consumer(
        self, data: ConsumerData, client: Client, heartbeat: HeartbeatData
    ) -> bool:
        """Register one group of a heartbeat, and make sure that its retry topic exists.

        :returns: whether the client must send the group's subscriptions with its next heartbeat.
        """
        config = self._tables.subscription_group.find(data.group_name)
        if config is None:
            return False
        order = any(self._tables.topic_config.is_order_topic(subscription.topic)
                    for subscription in data.subscription_data_set)
        self._tables.topic_config.create_in_send_back(
            retry_topic(data.group_name), config.retry_queue_nums, PERM_READ | PERM_WRITE,
            UNIT_SUB if data.unit_mode else 0, order)
        group = self._tables.clients.consumer_group(data.group_name)
        if group is not None:
            sub_change = group.fingerprint != heartbeat.heartbeat_fingerprint
        else:
            # Differs from Apache: after a restart, its broker never asks for the subscriptions that
            # such a heartbeat leaves out, and refuses the group's pulls.
            sub_change = heartbeat.without_sub
        self._tables.clients.register_consumer(
            data, client, notify=config.notify_consumer_ids_changed_enable,
            keep_subscriptions=heartbeat.without_sub)
        group = self._tables.clients.consumers[data.group_name]
        group.fingerprint = heartbeat.heartbeat_fingerprint
        return sub_change

    def _unregister(self, request: Request[UnregisterClientRequestHeader]) -> Reply:
        clients = self._tables.clients
        if request.header.producer_group is not None:
            clients.unregister_producer(request.header.producer_group, request.channel)
        group = request.header.consumer_group
        if group is not None:
            # Differs from Apache: leaving a group that does not exist does not create it.
            config = self._tables.subscription_group.table.get(group)
            notify = config is None or config.notify_consumer_ids_changed_enable
            clients.unregister_consumer(group, request.channel, notify=notify)
        return Reply()

    def _check(self, request: Request[EmptyHeader]) -> Reply:
        """Check whether this broker can serve a client's subscription."""
        if not request.body:
            return Reply()
        subscription = CheckClientRequestBody.decode(request.body).subscription_data
        if subscription is None or is_tag_type(subscription.expression_type):
            return Reply()
        if not self._property_filter:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, "The broker does not support consumer to filter "
                f"message by {subscription.expression_type}")
        self._filters.check(subscription.expression_type, subscription.sub_string)
        return Reply()

    def _members(self, request: Request[GetConsumerListByGroupRequestHeader]) -> Reply:
        group = self._tables.clients.consumer_group(request.header.consumer_group)
        if group is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR,
                                 f"no consumer for this group, {request.header.consumer_group}")
        return Reply(body=GetConsumerListByGroupResponseBody(group.client_ids).encode())
