"""Timed messages: a producer chooses a time to the millisecond, and the message is delivered then.

A message that asks for a delay (TIMER_DELAY_SEC, TIMER_DELAY_MS) or a time (TIMER_DELIVER_MS) is
stored in the topic rmq_sys_wheel_timer. From there it is entered into the timer log and the timer
wheel, which are files in Apache's formats. When it is due, it is stored again in its own topic:
never earlier, and, while the broker keeps up, later by less than a tick (timerPrecisionMs) and a
twentieth of a second. Until then its producer can recall it (request 370).

Source: TimerMessageStore, HookUtils.handleScheduleMessage, RecallMessageProcessor @5.3.3.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from zope.interface import implementer

from twistmq.broker.api import (
    AnyHandler,
    BrokerError,
    EmptyHeader,
    Handled,
    ITimedDelivery,
    PeriodicTask,
    Reply,
    Request,
    RequestCode,
    RequestHandler,
    Setting,
    SettingCheck,
    hookimpl,
)
from twistmq.broker.api.headers import RecallMessageRequestHeader
from twistmq.broker.api.requests import SyncedTable, now_or_later
from twistmq.plugins.timer.families import families
from twistmq.plugins.timer.recall import RecallMessage, add_recall_handles
from twistmq.plugins.timer.records import TIMER_NAMES
from twistmq.plugins.timer.service import TimerService
from twistmq.plugins.timer.settings import TIMER_SETTINGS, TimerSettings, require_log_size

if TYPE_CHECKING:
    from twistmq.broker.api import Broker, MessageRecord, MetricFamily, SendBatch
    from twistmq.broker.api.store_files import PluginFiles

__all__ = ["Plugin"]

#: Source: TimerMessageStore.start, BrokerController.initializeBrokerScheduledTasks.
_DROP_FILES_MS = 30_000
_FORGET_TOPICS_MS = 180_000
#: The time between two copies of the master's check point, and of its counts, ms. A slave that
#: becomes master repeats the deliveries since the last copy. Apache's slaves copy both every 3 s.
_CHECKPOINT_COPY_MS, _COUNTS_COPY_MS = 250, 3000


@implementer(ITimedDelivery)
class Plugin:
    """The plugin for timed messages of one broker; without timerWheelEnable it has no service."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        settings = TimerSettings.read(broker.settings)
        self.service = TimerService(broker, settings) if settings.enabled else None

    def delivered_ms(self) -> int | None:
        """See ITimedDelivery."""
        return None if self.service is None else self.service.delivered_ms

    @staticmethod
    @hookimpl
    def register_settings() -> Sequence[Setting]:
        return TIMER_SETTINGS

    @staticmethod
    @hookimpl
    def register_setting_checks() -> Sequence[SettingCheck]:
        return [SettingCheck(("timerWheelEnable", "mappedFileSizeTimerLog", "storePathRootDir"),
                             require_log_size)]

    @staticmethod
    @hookimpl
    def register_store_files() -> Sequence[PluginFiles]:
        from twistmq.broker.api.store_files import PluginFiles
        from twistmq.plugins.timer.store_check import TimerCheck
        from twistmq.plugins.timer.store_rows import timer_rows, timer_text

        return [PluginFiles("timers", TimerCheck, timer_rows, timer_text)]

    @hookimpl
    def claim_properties(self) -> Collection[str]:
        return TIMER_NAMES if self.service is not None else ()

    @hookimpl
    def on_start(self) -> None:
        service = self.service
        if service is not None:
            service.load()

    @hookimpl
    def on_role_change(self, role: str, broker_id: int) -> None:
        service = self.service
        if service is not None:
            service.role_changed()

    @hookimpl
    def before_append(self, records: Sequence[MessageRecord]) -> Mapping[int, BrokerError] | None:
        service = self.service
        return None if service is None else service.before_append(records)

    @hookimpl
    def after_send(self, batch: SendBatch) -> None:
        service = self.service
        if service is not None and service.has_timed:
            service.has_timed = False
            add_recall_handles(batch, self._broker.broker_name)

    @hookimpl
    def register_periodic_tasks(self) -> Sequence[PeriodicTask]:
        service = self.service
        if service is None:
            return ()
        settings = self._broker.settings
        return (
            PeriodicTask("enter and deliver timed messages", 1, service.period_ms, service.turn,
                         service.rest_ms),
            PeriodicTask("save the progress of timed messages",
                         settings.int("timerFlushIntervalMs"),
                         lambda: settings.int("timerFlushIntervalMs"), service.save_if_due),
            PeriodicTask("remove old timer log files", _DROP_FILES_MS, _DROP_FILES_MS,
                         service.drop_old_files),
            PeriodicTask("forget the counts of deleted topics", _FORGET_TOPICS_MS,
                         _FORGET_TOPICS_MS,
                         lambda now_ms: service.metrics.forget()),
            PeriodicTask("log the lag of timed messages",
                         settings.int("timerProgressLogIntervalMs"),
                         lambda: settings.int("timerProgressLogIntervalMs"), service.log_progress),
        )

    @hookimpl
    def register_request_handlers(self) -> Sequence[AnyHandler]:
        """RECALL_MESSAGE (370), and the requests of slaves, GET_TIMER_CHECK_POINT and
        GET_TIMER_METRICS.
        """

        def get_check_point(request: Request[Any]) -> Handled:
            service = self.service
            if service is None:
                raise BrokerError("The checkpoint is null")
            timers = service
            return now_or_later(timers.settled().addCallback(
                lambda _: Reply(body=timers.current.encode())))

        def get_metrics(request: Request[Any]) -> Reply:
            service = self.service
            if service is None:
                raise BrokerError("The timer message store is null")
            return Reply(body=service.metrics.answer())

        return (
            RequestHandler(RequestCode.RECALL_MESSAGE, RecallMessage(
                self._broker, self.service is not None).handle, RecallMessageRequestHeader),
            RequestHandler(RequestCode.GET_TIMER_CHECK_POINT, get_check_point, EmptyHeader),
            RequestHandler(RequestCode.GET_TIMER_METRICS, get_metrics, EmptyHeader),
        )

    @hookimpl
    def register_synced_tables(self) -> Sequence[SyncedTable]:
        """The check point and the counts that a slave copies from its master."""
        service = self.service
        if service is None:
            return ()
        return (
            SyncedTable("timer check point", RequestCode.GET_TIMER_CHECK_POINT,
                        service.following.take, _CHECKPOINT_COPY_MS, vip=True, follows_log=True,
                        take_back=service.following.take_back),
            SyncedTable("counts of timed messages", RequestCode.GET_TIMER_METRICS,
                        service.metrics.take, _COUNTS_COPY_MS, vip=True),
        )

    @hookimpl
    def add_runtime_info(self) -> Mapping[str, str] | None:
        service = self.service
        return None if service is None else service.runtime_info()

    @hookimpl
    def collect_metrics(self) -> Sequence[MetricFamily] | None:
        service = self.service
        return None if service is None else families(self._broker, service)

    @hookimpl
    def on_stop(self) -> Deferred[None] | None:
        service = self.service
        return None if service is None else service.stop()
