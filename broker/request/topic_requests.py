"""Requests that create, change, delete and list topics and groups: 17, 18, 21, 200, 207, 215, 225.

A change is answered once the name servers know it, so that the next request of a tool sees it.

Source: AdminBrokerProcessor @5.3.3.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred

from twistmq.broker.config.identity import Identity
from twistmq.broker.constants import (
    TABLE_BODY_SIZE_MAX,
    TOPIC_QUEUES_MAX,
)
from twistmq.broker.plugin.hooks import Hooks
from twistmq.broker.remoting.messages import Handled, Reply, Request, RequestHandler, now_or_later
from twistmq.broker.request.attributes import parse_attribute_changes
from twistmq.broker.request.tables import Tables
from twistmq.broker.scheduling.scheduler import Lane
from twistmq.protocol.bodies import (
    CreateTopicListRequestBody,
    DataVersion,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    TopicConfig,
    TopicFilterType,
)
from twistmq.protocol.bodies.rows import encode_with_rows
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import RequestRefused
from twistmq.protocol.header import EmptyHeader
from twistmq.protocol.headers.topic import (
    CreateTopicRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader,
)
from twistmq.protocol.topic_names import (
    group_fault,
    is_system_topic,
    retry_topic,
    topic_fault,
)

__all__ = ["TopicRequests"]

#: The number of topics or groups that are processed between two checks of the clock.
_TOPICS_AT_ONCE: Final = 10


class TopicRequests:
    """The handlers of topics and groups."""

    def __init__(
        self, identity: Identity, tables: Tables, hooks: Hooks, slices: Lane
    ) -> None:
        self._tables = tables
        self._hooks = hooks
        self._slices = slices
        #: The version of tables that are empty and never change, unless a plugin provides them.
        self._mapping_version = DataVersion(timestamp=identity.started_ms)

    def handlers(self) -> list[RequestHandler[Any]]:
        return [
            RequestHandler(RequestCode.UPDATE_AND_CREATE_TOPIC, self._create_topic,
                           CreateTopicRequestHeader),
            RequestHandler(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, self._create_topics,
                           EmptyHeader, body_size_max=TABLE_BODY_SIZE_MAX, decodes_body=True),
            RequestHandler(RequestCode.DELETE_TOPIC_IN_BROKER, self._delete_topic,
                           DeleteTopicRequestHeader),
            RequestHandler(RequestCode.GET_ALL_TOPIC_CONFIG, self._all_topics, EmptyHeader),
            RequestHandler(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, self._create_group,
                           EmptyHeader),
            RequestHandler(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
                           self._create_groups, EmptyHeader,
                           body_size_max=TABLE_BODY_SIZE_MAX, decodes_body=True),
            RequestHandler(RequestCode.DELETE_SUBSCRIPTIONGROUP, self._delete_group,
                           DeleteSubscriptionGroupRequestHeader),
        ]

    # --- topics

    def _create_topic(self, request: Request[CreateTopicRequestHeader]) -> Handled:
        header = request.header
        config = TopicConfig(
            header.topic, header.read_queue_nums, header.write_queue_nums, header.perm,
            TopicFilterType(header.topic_filter_type), header.topic_sys_flag or 0, header.order)
        self._check_topic(config)
        changes = parse_attribute_changes(header.attributes)
        _check_message_type(changes)
        self._tables.topic_config.require_room((config,))
        return self._when_registered() if self._update_topic(config, changes) else Reply()

    def _create_topics(self, request: Request[EmptyHeader]) -> Handled:
        """Create or change several topics.

        Differs from Apache, which ignores all other topics if one of them is unchanged.
        """
        configs = CreateTopicListRequestBody.decode(request.body).topic_config_list
        updated = self._slices.run(self._update_topics(configs))
        return now_or_later(updated.addCallback(
            lambda changed: self._when_registered() if changed else Reply()))

    def _update_topics(self, configs: Sequence[TopicConfig]) -> Generator[None, None, bool]:
        """Create or change topics, in steps; :returns: whether this changed anything."""
        for number, config in enumerate(configs):
            self._check_topic(config)
            _check_message_type(config.attributes)
            if not number % _TOPICS_AT_ONCE:
                yield
        self._tables.topic_config.require_room(configs)
        changed = False
        try:
            for number, config in enumerate(configs):
                changes, config.attributes = config.attributes, {}
                changed |= self._update_topic(config, changes)
                if not number % _TOPICS_AT_ONCE:
                    yield
        except RequestRefused:
            # The topics before the refused one exist.
            self._tables.topics_saved_and_registered()
            raise
        return changed

    def _check_topic(self, config: TopicConfig) -> None:
        """:raises RequestRefused: when it is not a valid topic."""
        fault = topic_fault(config.topic_name)
        if fault is not None:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, fault)
        self._require_user_topic(config.topic_name)
        for number in (config.read_queue_nums, config.write_queue_nums):
            _check_queue_nums(number)

    def _update_topic(self, config: TopicConfig, changes: Mapping[str, str]) -> bool:
        """Create or replace a topic; :returns: whether this changed anything."""
        table = self._tables.topic_config
        old = table.get(config.topic_name)
        if old is not None and not changes:
            config.attributes = old.attributes
            if config == old:
                return False
        table.update(config, changes)
        return True

    def _delete_topic(self, request: Request[DeleteTopicRequestHeader]) -> Handled:
        topic = request.header.topic
        if not topic or topic.isspace():
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
        self._require_user_topic(topic)
        self._tables.delete_topic(topic)
        return self._when_registered()

    def _require_user_topic(self, topic: str) -> None:
        if is_system_topic(topic) or self._tables.topic_config.is_system_topic(topic):
            raise RequestRefused(ResponseCode.INVALID_PARAMETER,
                                 f"The topic[{topic}] is conflict with system topic.")

    def _all_topics(self, request: Request[EmptyHeader]) -> Reply:
        table = self._tables.topic_config
        wrapper = table.topic_tables()
        wrapper.mapping_data_version = self._mapping_version
        wrapper.topic_queue_mapping_detail_map = {}
        self._hooks.complete_topic_tables(wrapper, registering=False)
        return Reply(body=encode_with_rows(
            wrapper, b'"topicConfigTable":{}', table.rows.values()))

    def _when_registered(self) -> Handled:
        """Answer once the topics are saved and the name servers know them."""
        registered = self._tables.topics_saved_and_registered()
        if registered is None:
            return Reply()
        answer: Deferred[Reply] = registered.addCallback(lambda _: Reply())
        return answer

    # --- groups

    def _create_group(self, request: Request[EmptyHeader]) -> Handled:
        config = SubscriptionGroupConfig.decode(request.body)
        _check_group(config)
        self._update_group(config)
        return self._when_groups_saved()

    def _create_groups(self, request: Request[EmptyHeader]) -> Handled:
        configs = SubscriptionGroupList.decode(request.body).group_config_list
        updated = self._slices.run(self._update_groups(configs))
        return now_or_later(updated.addCallback(lambda _: self._when_groups_saved()))

    def _update_groups(
        self, configs: Sequence[SubscriptionGroupConfig]
    ) -> Generator[None, None, None]:
        for number, config in enumerate(configs):
            _check_group(config)
            if not number % _TOPICS_AT_ONCE:
                yield
        # If a group is refused, the groups before it exist, and are saved soon.
        for number, config in enumerate(configs):
            self._update_group(config)
            if not number % _TOPICS_AT_ONCE:
                yield

    def _when_groups_saved(self) -> Handled:
        saved = self._tables.saves.save(self._tables.subscription_group)
        return now_or_later(saved.addCallback(lambda _: Reply()))

    def _update_group(self, config: SubscriptionGroupConfig) -> None:
        changes, config.attributes = config.attributes, {}
        self._tables.subscription_group.update(config, changes)
        # Differs from Apache, where retries go to queues that no route shows.
        if self._tables.topic_config.give_queues(
            retry_topic(config.group_name), config.retry_queue_nums
        ):
            self._tables.topics_changed()

    def _delete_group(self, request: Request[DeleteSubscriptionGroupRequestHeader]) -> Handled:
        self._tables.delete_group(request.header.group_name, request.header.clean_offset)
        return self._when_groups_saved()


def _check_message_type(changes: Mapping[str, str]) -> None:
    """:raises RequestRefused: when a topic would hold messages of every type."""
    if changes.get("+message.type") == "MIXED":
        raise RequestRefused(ResponseCode.INVALID_PARAMETER,
                             "MIXED message type is not supported.")


def _check_group(config: SubscriptionGroupConfig) -> None:
    """:raises RequestRefused: when it is not a valid group."""
    fault = group_fault(config.group_name)
    if fault is not None:
        # Differs from Apache, which creates a group that every client refuses.
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, fault)
    # The number of queues of its retry topic.
    _check_queue_nums(config.retry_queue_nums)


def _check_queue_nums(number: int) -> None:
    """:raises RequestRefused: when a topic cannot have this number of queues."""
    if number < 0:
        # Differs from Apache, which creates a topic that no client can use or find.
        raise RequestRefused(ResponseCode.INVALID_PARAMETER,
                             "The numbers of queues must not be negative.")
    if number > TOPIC_QUEUES_MAX:
        # Differs from Apache, where a topic may have as many queues as its clients can handle.
        raise RequestRefused(ResponseCode.INVALID_PARAMETER,
                             f"The numbers of queues must not be over {TOPIC_QUEUES_MAX}.")
