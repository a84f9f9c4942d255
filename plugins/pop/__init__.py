"""Pop consumption: a group gets messages one by one, whatever queue they are in.

A pop gives messages out for a time in which nobody else of the group sees them. What is
acknowledged by then is consumed; what is not comes again, from the group's topic of retries. Check
points and acknowledgements wait as timed messages and meet in the revive topic, so that the plugin
``timer`` has to be there. Consumers may ask the broker which queues are theirs, and whether to pull
or to pop.

Source: PopMessageProcessor, AckMessageProcessor, ChangeInvisibleTimeProcessor, PopReviveService,
NotificationProcessor, QueryAssignmentProcessor @5.3.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from twisted.internet.defer import Deferred

from twistmq.broker import hookimpl
from twistmq.broker.config.settings import Setting
from twistmq.broker.observe.metrics import MetricFamily
from twistmq.broker.remoting.messages import AnyHandler
from twistmq.broker.scheduling.periodic import PeriodicTask
from twistmq.plugins.pop.families import families
from twistmq.plugins.pop.service import PopService
from twistmq.plugins.pop.settings import POP_SETTINGS

if TYPE_CHECKING:
    from twistmq.broker.kernel import Kernel
    from twistmq.broker.wire.record import MessageRecord

__all__: list[str] = []

#: How often waits are looked at, ms.
_TICK_MS = 50
#: Source: BrokerController.initializeBrokerScheduledTasks.
_SAVE_MS = 10_000
_FORGET_MS = 30_000

#: A process may run several brokers: a test does.
_services: WeakKeyDictionary[Kernel, PopService] = WeakKeyDictionary()


def _service(kernel: Kernel) -> PopService:
    """The broker's service, made when it is first asked for."""
    service = _services.get(kernel)
    if service is None:
        service = _services[kernel] = PopService(kernel)
    return service


@hookimpl
def register_settings() -> Sequence[Setting]:
    return POP_SETTINGS


@hookimpl
def on_start(kernel: Kernel) -> None:
    _service(kernel).load()


@hookimpl
def register_request_handlers(kernel: Kernel) -> Sequence[AnyHandler]:
    return _service(kernel).handlers()


@hookimpl
def register_periodic_tasks(kernel: Kernel) -> Sequence[PeriodicTask]:
    service = _service(kernel)
    return (
        PeriodicTask("end waits of pops", _TICK_MS, _TICK_MS, service.tick),
        PeriodicTask("revive popped messages", 1, service.revive_period_ms, service.revive),
        PeriodicTask("save what groups in order have popped", _SAVE_MS, _SAVE_MS,
                     lambda now_ms: kernel.saves.save_if_changed(service.orders)),
        PeriodicTask("forget pops of what is gone", _FORGET_MS, _FORGET_MS,
                     service.forget_gone),
    )


@hookimpl
def on_message_arrival(kernel: Kernel, records: Sequence[MessageRecord]) -> None:
    service = _service(kernel)
    service.hold.arrived(records)
    service.notified.arrived(records)


@hookimpl
def collect_metrics(kernel: Kernel) -> Sequence[MetricFamily]:
    return families(kernel, _service(kernel))


@hookimpl
def on_stop(kernel: Kernel) -> Deferred[None] | None:
    return _service(kernel).stop()
