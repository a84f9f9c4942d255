"""What the kernel does again and again.

Source: BrokerController.initializeBrokerScheduledTasks, ClientHousekeepingService @5.3.3.
"""

from __future__ import annotations

from datetime import datetime, time, timedelta
from typing import TYPE_CHECKING

from twisted.logger import Logger

from twistmq.broker.observe.statistics import SAMPLE_PERIOD_MS
from twistmq.broker.request.long_answers import IDLE_PERIOD_MS
from twistmq.broker.request.persistence import SAVE_PERIOD_MS
from twistmq.broker.request.sliced_work import CONTINUE_PERIOD_MS
from twistmq.broker.scheduling.periodic import PeriodicTask

if TYPE_CHECKING:
    from twistmq.broker.kernel import Kernel

__all__ = ["ms_to_next_midnight", "periodic_tasks"]

#: How often it is looked whether another day began, ms.
_DAY_LOOK_MAX_MS = 60_000

_log = Logger()


def ms_to_next_midnight(now_ms: int) -> int:
    """How long it is to the next local midnight, ms; a day may have 23 or 25 hours."""
    tomorrow = datetime.fromtimestamp(now_ms / 1000).date() + timedelta(days=1)
    return round(datetime.combine(tomorrow, time()).timestamp() * 1000) - now_ms


def periodic_tasks(kernel: Kernel) -> list[PeriodicTask]:
    """The kernel's rows."""
    settings, steady_ms = kernel.settings, kernel.steady.now_ms
    retention, trimming = kernel.store.log_retention, kernel.store.queue_retention

    def save_offsets(_: int) -> None:
        kernel.saves.save_if_changed(kernel.consumer_offset, *kernel.unsaved)

    def expire_clients(_: int) -> None:
        kernel.clients.expire(kernel.steady.awake_ms(), settings.int("channelExpiredTimeout"))

    today = datetime.fromtimestamp(kernel.now_ms() / 1000).date()

    def record_day(now_ms: int) -> None:
        nonlocal today
        before, today = today, datetime.fromtimestamp(now_ms / 1000).date()
        if today <= before:
            return
        stats = kernel.stats
        stats.record_day()
        _log.info("since yesterday {put} messages came in and {got} went out",
                  put=stats.put_today_morning - stats.put_yesterday_morning,
                  got=stats.get_today_morning - stats.get_yesterday_morning)

    def next_look_ms() -> int:
        # The clock may be set meanwhile.
        return min(ms_to_next_midnight(kernel.now_ms()), _DAY_LOOK_MAX_MS)

    def log_dispatch_lag(_: int) -> None:
        _log.info("dispatch is {size} bytes behind the commit log",
                  size=kernel.store.dispatch_behind_bytes())

    def log_water_marks(_: int) -> None:
        if kernel.pull_hold.count or len(kernel.channels):
            _log.debug("{pulls} pulls wait, {channels} connections",
                       pulls=kernel.pull_hold.count, channels=len(kernel.channels))

    return [
        PeriodicTask("flush the store", 50, 50,
                     lambda _: kernel.store.flush_step(steady_ms())),
        PeriodicTask("remove old commit-log files", 60_000, retention.period_ms, retention.step),
        PeriodicTask("trim queues and index", 60_000, trimming.period_ms, trimming.step),
        PeriodicTask("save consumer offsets", 10_000,
                     lambda: settings.int("flushConsumerOffsetInterval"), save_offsets),
        PeriodicTask("save topics and groups", SAVE_PERIOD_MS, kernel.saves.period_ms,
                     kernel.saves.step),
        PeriodicTask("go on with long work", CONTINUE_PERIOD_MS, kernel.slices.period_ms,
                     kernel.slices.step),
        PeriodicTask("go on with long answers", IDLE_PERIOD_MS, kernel.long_answers.period_ms,
                     kernel.long_answers.step),
        PeriodicTask("expire silent clients", 10_000, 10_000, expire_clients),
        PeriodicTask("check waiting pulls", 1000, 1000, kernel.pull_hold.check),
        PeriodicTask("give up late flushes", 500, 500, kernel.acknowledgement.expire),
        PeriodicTask("sample statistics", SAMPLE_PERIOD_MS, SAMPLE_PERIOD_MS,
                     lambda _: kernel.stats.sample(steady_ms())),
        PeriodicTask("record the day", 1, next_look_ms, record_day),
        PeriodicTask("log dispatch lag", 10_000, 60_000, log_dispatch_lag),
        PeriodicTask("log water marks", 10_000, 1000, log_water_marks),
    ]
