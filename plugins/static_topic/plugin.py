"""The hooks of static topics; see the package for an overview.

Source: the parts of BrokerController that are about static topics @5.3.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from twistmq.broker.api import AnyHandler, PeriodicTask, RequestCode, Setting, hookimpl
from twistmq.broker.api.requests import SyncedTable
from twistmq.plugins.static_topic.clean import CleanService
from twistmq.plugins.static_topic.offsets import wrapped_offset_rows
from twistmq.plugins.static_topic.pulls import PULL_CODES, wrapped_pull
from twistmq.plugins.static_topic.remote import OtherBrokers
from twistmq.plugins.static_topic.sends import SEND_CODES, wrapped_send
from twistmq.plugins.static_topic.table import QueueMappings, decode_mappings
from twistmq.plugins.static_topic.topics import StaticTopicRequests

if TYPE_CHECKING:
    from twistmq.broker.api import Broker
    from twistmq.broker.api.bodies import TopicConfigSerializeWrapper
    from twistmq.broker.api.store_files import PluginFiles

__all__ = ["Plugin"]

_SAVE_PERIOD_MS: Final = 10_000
#: Time between two copies of the master's mappings, ms.
_COPY_PERIOD_MS: Final = 3000


_SETTINGS: Final = (
    Setting("forwardTimeout", "int", 3000,
            "The longest time for another broker's answer about a part of a static topic's queue.",
            unit="ms", least=1, source="BrokerConfig"),
)


class Plugin:
    """The static topics of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.mappings = QueueMappings(
            broker.store.config_file("topicQueueMapping.json"), broker.broker_name, broker.now_ms)
        self._others = OtherBrokers(broker)
        self._requests = StaticTopicRequests(broker, self.mappings)
        self.clean = CleanService(broker, self.mappings, self._others)

    @staticmethod
    @hookimpl
    def register_settings() -> Sequence[Setting]:
        return _SETTINGS

    @staticmethod
    @hookimpl
    def register_store_files() -> Sequence[PluginFiles]:
        from twistmq.broker.api.store_files import PluginFiles

        return [PluginFiles("static topics", tables={"topicQueueMapping.json": decode_mappings})]

    @hookimpl
    def register_request_handlers(self) -> Sequence[AnyHandler]:
        return self._requests.handlers()

    @hookimpl(tryfirst=True)
    def wrap_request_handlers(self, handlers: Mapping[int, AnyHandler]) -> Sequence[AnyHandler]:
        """Wrap the handlers of requests that may refer to a static topic."""
        mappings, requests = self.mappings, self._requests
        one_by_one: dict[int, Any] = {
            RequestCode.DELETE_TOPIC_IN_BROKER: requests.wrapped_delete,
            RequestCode.GET_TOPIC_CONFIG: requests.wrapped_config,
            RequestCode.GET_CONSUME_STATS: requests.wrapped_progress,
        }
        return [
            *[wrapped_send(handlers[code], mappings) for code in SEND_CODES if code in handlers],
            *[wrapped_pull(handlers[code], mappings, self._others)
              for code in PULL_CODES if code in handlers],
            *wrapped_offset_rows(self._broker, handlers, mappings, self._others),
            *[wrap(handlers[code]) for code, wrap in one_by_one.items() if code in handlers],
        ]

    @hookimpl
    def complete_topic_tables(self, tables: TopicConfigSerializeWrapper, registering: bool) -> None:
        """Add the logical queues led here, or all of them for a request for all topics."""
        mappings = self.mappings
        if registering:
            tables.topic_queue_mapping_info_map = mappings.infos
        else:
            tables.mapping_data_version = mappings.data_version
            tables.topic_queue_mapping_detail_map = dict(mappings.table)

    @hookimpl
    def register_synced_tables(self) -> Sequence[SyncedTable]:
        """Copy mappings with the list of all topics. Apache's slaves never copy them."""
        return [SyncedTable("static topics", RequestCode.GET_ALL_TOPIC_CONFIG, self._take,
                            _COPY_PERIOD_MS, vip=True)]

    def _take(self, body: bytes) -> None:
        self.mappings.take(body)
        if self.mappings.dirty:
            self._broker.saves.save_if_changed(self.mappings)

    @hookimpl
    def register_periodic_tasks(self) -> Sequence[PeriodicTask]:
        return [
            *self.clean.tasks(),
            # A table that could not be saved is saved again later.
            PeriodicTask("save static topics", _SAVE_PERIOD_MS, _SAVE_PERIOD_MS,
                         lambda now_ms: self._broker.saves.save_if_changed(self.mappings)),
        ]

    @hookimpl
    def on_start(self) -> None:
        """Load the file; :raises StoreDamaged: when it cannot be read."""
        self.mappings.load()

    @hookimpl
    def on_stop(self) -> None:
        if self.mappings.dirty:
            self._broker.persist((self.mappings,))
