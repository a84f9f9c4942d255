"""The hooks of static topics; see the package.

Source: BrokerController, as far as it is about static topics @5.3.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from twistmq.broker import hookimpl
from twistmq.broker.codes import RequestCode
from twistmq.broker.config.settings import Setting
from twistmq.broker.remoting.messages import AnyHandler
from twistmq.broker.scheduling.periodic import PeriodicTask
from twistmq.plugins.static_topic.clean import CleanService
from twistmq.plugins.static_topic.offsets import wrapped_offset_rows
from twistmq.plugins.static_topic.pulls import PULL_CODES, wrapped_pull
from twistmq.plugins.static_topic.remote import OtherBrokers
from twistmq.plugins.static_topic.sends import SEND_CODES, wrapped_send
from twistmq.plugins.static_topic.table import QueueMappings
from twistmq.plugins.static_topic.topics import StaticTopicRequests

if TYPE_CHECKING:
    from twistmq.broker.kernel import Kernel
    from twistmq.broker.wire.bodies import TopicConfigSerializeWrapper

__all__: list[str] = []

_SAVE_PERIOD_MS: Final = 10_000


class _Service:
    """What a broker has of static topics."""

    def __init__(self, kernel: Kernel) -> None:
        self.mappings = QueueMappings(
            kernel.store.config_file("topicQueueMapping.json"), kernel.broker_name, kernel.now_ms)
        self.others = OtherBrokers(kernel)
        self.requests = StaticTopicRequests(kernel, self.mappings)
        self.clean = CleanService(kernel, self.mappings, self.others)


#: A process may run several brokers: a test does.
_services: WeakKeyDictionary[Kernel, _Service] = WeakKeyDictionary()


def _service(kernel: Kernel) -> _Service:
    if kernel not in _services:
        _services[kernel] = _Service(kernel)
    return _services[kernel]


@hookimpl
def register_settings() -> Sequence[Setting]:
    return (
        Setting("forwardTimeout", "int", 3000,
                "How long another broker may take to answer for a part of a static topic's queue.",
                unit="ms", least=1, source="BrokerConfig"),
    )


@hookimpl
def register_request_handlers(kernel: Kernel) -> Sequence[AnyHandler]:
    return _service(kernel).requests.handlers()


@hookimpl(tryfirst=True)
def wrap_request_handlers(
    kernel: Kernel, handlers: Mapping[int, AnyHandler]
) -> Sequence[AnyHandler]:
    """Stand before the rows of requests that may be about a static topic."""
    service = _service(kernel)
    mappings, requests = service.mappings, service.requests
    one_by_one: dict[int, Any] = {
        RequestCode.DELETE_TOPIC_IN_BROKER: requests.wrapped_delete,
        RequestCode.GET_TOPIC_CONFIG: requests.wrapped_config,
        RequestCode.GET_CONSUME_STATS: requests.wrapped_progress,
    }
    return [
        *[wrapped_send(handlers[code], mappings) for code in SEND_CODES if code in handlers],
        *[wrapped_pull(handlers[code], mappings, service.others)
          for code in PULL_CODES if code in handlers],
        *wrapped_offset_rows(kernel, handlers, mappings, service.others),
        *[wrap(handlers[code]) for code, wrap in one_by_one.items() if code in handlers],
    ]


@hookimpl
def complete_topic_tables(
    kernel: Kernel, tables: TopicConfigSerializeWrapper, registering: bool
) -> None:
    """Tell which logical queues are led here; who asks for all topics is told all of them."""
    mappings = _service(kernel).mappings
    if registering:
        tables.topic_queue_mapping_info_map = {
            topic: detail.info() for topic, detail in mappings.table.items()}
    else:
        tables.mapping_data_version = mappings.data_version
        tables.topic_queue_mapping_detail_map = dict(mappings.table)


@hookimpl
def register_periodic_tasks(kernel: Kernel) -> Sequence[PeriodicTask]:
    service = _service(kernel)
    return [
        *service.clean.tasks(),
        # What could not be saved when it was changed is tried again.
        PeriodicTask("save static topics", _SAVE_PERIOD_MS, _SAVE_PERIOD_MS,
                     lambda now_ms: kernel.saves.save_if_changed(service.mappings)),
    ]


@hookimpl
def on_start(kernel: Kernel) -> None:
    """Load the file; :raises StoreDamaged: when it cannot be read."""
    _service(kernel).mappings.load()


@hookimpl
def on_stop(kernel: Kernel) -> None:
    service = _services.get(kernel)
    if service is not None and service.mappings.dirty:
        kernel.persist((service.mappings,))
