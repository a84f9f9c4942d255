"""The periodic tasks of the kernel.

Source: BrokerController.initializeBrokerScheduledTasks, ClientHousekeepingService @5.3.3.
"""

from __future__ import annotations

from datetime import datetime, time, timedelta

from twisted.logger import Logger

from twistmq.broker.config.settings import Settings
from twistmq.broker.observe.statistics import SAMPLE_PERIOD_MS
from twistmq.broker.request.acknowledgement import Acknowledgement
from twistmq.broker.request.host import Host
from twistmq.broker.request.persistence import SAVE_PERIOD_MS
from twistmq.broker.request.pull_hold import PullHold
from twistmq.broker.request.tables import Tables
from twistmq.broker.scheduling.periodic import PeriodicTask
from twistmq.broker.scheduling.scheduler import CONTINUE_PERIOD_MS, Scheduler
from twistmq.broker.store.message_store import MessageStore

__all__ = ["ms_to_next_midnight", "periodic_tasks"]

#: The longest time between two checks for the beginning of a day, ms.
_DAY_LOOK_MAX_MS = 60_000

_log = Logger()


def ms_to_next_midnight(now_ms: int) -> int:
    """Return the time to the next local midnight, ms; a day may have 23 or 25 hours."""
    tomorrow = datetime.fromtimestamp(now_ms / 1000).date() + timedelta(days=1)
    return round(datetime.combine(tomorrow, time()).timestamp() * 1000) - now_ms


def periodic_tasks(
    settings: Settings, host: Host, store: MessageStore, tables: Tables, pull_hold: PullHold,
    acknowledgement: Acknowledgement, background: Scheduler,
) -> list[PeriodicTask]:
    """Return the periodic tasks of the kernel."""
    steady_ms = host.steady.now_ms
    retention, trimming = store.log_retention, store.queue_retention

    def save_offsets(_: int) -> None:
        tables.saves.save_if_changed(tables.consumer_offset, *tables.unsaved)

    def expire_clients(_: int) -> None:
        tables.clients.expire(host.steady.awake_ms(), settings.int("channelExpiredTimeout"))

    today = datetime.fromtimestamp(host.now_ms() / 1000).date()

    def record_day(now_ms: int) -> None:
        nonlocal today
        before, today = today, datetime.fromtimestamp(now_ms / 1000).date()
        if today <= before:
            return
        stats = tables.stats
        stats.record_day()
        _log.info("since yesterday {put} messages came in and {got} went out",
                  put=stats.put_today_morning - stats.put_yesterday_morning,
                  got=stats.get_today_morning - stats.get_yesterday_morning)

    def next_look_ms() -> int:
        # The clock may be set in between.
        return min(ms_to_next_midnight(host.now_ms()), _DAY_LOOK_MAX_MS)

    def log_dispatch_lag(_: int) -> None:
        _log.info("dispatch is {size} bytes behind the commit log",
                  size=store.dispatch.behind_bytes)

    def log_water_marks(_: int) -> None:
        if pull_hold.count or len(tables.channels):
            _log.debug("{pulls} pulls wait, {channels} connections",
                       pulls=pull_hold.count, channels=len(tables.channels))

    return [
        PeriodicTask("flush the store", 50, 50,
                     lambda _: store.flush_step(steady_ms()),
                     lambda: store.rest_ms(steady_ms())),
        PeriodicTask("remove old commit-log files", 60_000, retention.period_ms, retention.step),
        PeriodicTask("trim queues and index", 60_000, trimming.period_ms, trimming.step),
        PeriodicTask("save consumer offsets", 10_000,
                     lambda: settings.int("flushConsumerOffsetInterval"), save_offsets),
        PeriodicTask("save topics and groups", SAVE_PERIOD_MS, tables.saves.period_ms,
                     tables.saves.step),
        PeriodicTask("continue long work", CONTINUE_PERIOD_MS, background.period_ms,
                     background.step, background.rest_ms),
        PeriodicTask("expire silent clients", 10_000, 10_000, expire_clients),
        PeriodicTask("check waiting pulls", 1000, 1000, pull_hold.check),
        PeriodicTask("give up late acknowledgements", 100, 100, acknowledgement.expire,
                     acknowledgement.rest_ms),
        PeriodicTask("sample statistics", SAMPLE_PERIOD_MS, SAMPLE_PERIOD_MS,
                     lambda _: tables.stats.sample(steady_ms())),
        PeriodicTask("record the day", 1, next_look_ms, record_day),
        PeriodicTask("log dispatch lag", 10_000, 60_000, log_dispatch_lag),
        PeriodicTask("log water marks", 10_000, 1000, log_water_marks),
    ]
