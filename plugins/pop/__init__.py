"""Pop consumption: a consumer group receives messages one by one, from any queue.

A pop gives messages out for a limited time, during which no other member of the group receives
them. A message that is acknowledged within that time is consumed. Any other message is delivered
again from the retry topic of the group. Check points and acknowledgements wait as timed messages
and meet in the revive topic, so the plugin ``timer`` is required. A consumer may also ask the
broker which queues are assigned to it, and whether it should pull or pop.

Source: PopMessageProcessor, AckMessageProcessor, ChangeInvisibleTimeProcessor, PopReviveService,
NotificationProcessor, QueryAssignmentProcessor @5.3.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred

from twistmq.broker.api import AnyHandler, MetricFamily, PeriodicTask, Setting, hookimpl
from twistmq.broker.api.requests import SyncedTable
from twistmq.plugins.pop.families import families
from twistmq.plugins.pop.service import PopService
from twistmq.plugins.pop.settings import POP_SETTINGS

if TYPE_CHECKING:
    from twistmq.broker.api import Broker, MessageRecord
    from twistmq.broker.api.store_files import PluginFiles

__all__ = ["Plugin"]

#: The interval at which waiting requests are checked, ms.
_TICK_MS = 50
#: Source: BrokerController.initializeBrokerScheduledTasks.
_SAVE_MS = 10_000
_FORGET_MS = 30_000


class Plugin:
    """Pop consumption of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.service = PopService(broker)

    @staticmethod
    @hookimpl
    def register_settings() -> Sequence[Setting]:
        return POP_SETTINGS

    @staticmethod
    @hookimpl
    def register_store_files() -> Sequence[PluginFiles]:
        from twistmq.broker.api.store_files import PluginFiles
        from twistmq.plugins.pop.order_info import OrderInfoTable
        from twistmq.plugins.pop.request_mode import ModeTable

        return [PluginFiles("pops", tables={
            "consumerOrderInfo.json": OrderInfoTable.decode_saved,
            "messageRequestMode.json": ModeTable.decode_saved})]

    @hookimpl
    def on_start(self) -> None:
        self.service.load()

    @hookimpl
    def register_request_handlers(self) -> Sequence[AnyHandler]:
        return self.service.handlers()

    @hookimpl
    def register_synced_tables(self) -> Sequence[SyncedTable]:
        return self.service.modes.tables()

    @hookimpl
    def register_periodic_tasks(self) -> Sequence[PeriodicTask]:
        service = self.service
        return (
            PeriodicTask("end waiting pops and write check points", _TICK_MS, _TICK_MS,
                         service.tick, service.rest_ms),
            PeriodicTask("revive popped messages", 1, service.revive_period_ms, service.revive),
            PeriodicTask("save the pops of ordered groups", _SAVE_MS, _SAVE_MS,
                         lambda now_ms: self._broker.saves.save_if_changed(service.state.orders)),
            PeriodicTask("forget pops of deleted topics and groups", _FORGET_MS, _FORGET_MS,
                         service.forget_gone),
        )

    @hookimpl
    def on_message_arrival(self, records: Sequence[MessageRecord]) -> None:
        service = self.service
        service.state.hold.arrived(records)
        service.state.notified.arrived(records)

    @hookimpl
    def collect_metrics(self) -> Sequence[MetricFamily]:
        return families(self._broker, self.service.state, self.service.queues)

    @hookimpl
    def on_role_change(self, role: str, broker_id: int) -> None:
        self.service.role_changed()

    @hookimpl
    def on_stop(self) -> Deferred[None] | None:
        return self.service.stop()
