"""The runtime table of the broker: 28.

Some values of the table belong to thread pools, which this broker does not have. Their queues are
reported as empty, with Apache's default capacities for tools that divide by them. Other plugins add
rows through ``add_runtime_info``, and their rows take precedence.

Source: AdminBrokerProcessor.prepareRuntimeInfo @5.3.3.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any, Final

from twistmq.broker.api import EmptyHeader, Reply, Request, RequestCode, RequestHandler
from twistmq.broker.api.bodies import KVTable
from twistmq.broker.api.wire import VERSION

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["RuntimeQuestions", "readable_size"]

#: The name of ``VERSION``. Source: MQVersion.
_VERSION_NAME: Final = "V5_3_3"
#: Capacities of the queues of Apache's thread pools. Source: BrokerConfig.
_QUEUE_CAPACITIES: Final = {
    "send": 10_000, "pull": 100_000, "litePull": 100_000, "query": 20_000, "ack": 100_000,
}
_END_TRANSACTION_CAPACITY: Final = 100_000
_UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def readable_size(size: int) -> str:
    """Format a number of bytes like the tools do: ``1.5 KiB``."""
    if size < 1024:
        return f"{size} B"
    exponent = min((size.bit_length() - 1) // 10, len(_UNITS))
    return f"{size / 1024**exponent:.1f} {_UNITS[exponent - 1]}"


class RuntimeQuestions:
    """The handlers of requests about the broker as a whole."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> list[RequestHandler[Any]]:
        return [RequestHandler(RequestCode.GET_BROKER_RUNTIME_INFO, self._runtime, EmptyHeader)]

    # --- values

    def _runtime(self, request: Request[EmptyHeader]) -> Reply:
        broker = self._broker
        table = {**broker.store.runtime_info(), **self._broker_rows(), **self._day_rows(),
                 **self._disk_rows(), **self._faults(), **_timer_rows(), **_pool_rows(),
                 **broker.hooks.runtime_info()}
        return Reply(body=KVTable(table).encode())

    def _broker_rows(self) -> dict[str, str]:
        broker = self._broker
        return {
            # Whether the work of a master is being done.
            "brokerActive": str(not broker.is_slave or broker.identity.is_acting).lower(),
            "brokerVersionDesc": _VERSION_NAME,
            "brokerVersion": str(VERSION),
            # An append has the reactor for itself, so it never waits for a lock.
            "pageCacheLockTimeMills": "0",
            "earliestMessageTimeStamp": str(broker.store.reader.earliest_store_time()),
            "startAcceptSendRequestTimeStamp": "0",
        }

    def _day_rows(self) -> dict[str, str]:
        stats = self._broker.stats
        return {
            "msgPutTotalYesterdayMorning": str(stats.put_yesterday_morning),
            "msgPutTotalTodayMorning": str(stats.put_today_morning),
            "msgPutTotalTodayNow": str(stats.put_total),
            "msgGetTotalYesterdayMorning": str(stats.get_yesterday_morning),
            "msgGetTotalTodayMorning": str(stats.get_today_morning),
            "msgGetTotalTodayNow": str(stats.get_total),
        }

    def _faults(self) -> dict[str, str]:
        """Return a row for each fault that is reported on the page /health.

        Apache's broker has no such rows.
        """
        faults = {name: check() for name, check in self._broker.health_checks.items()}
        return {f"fault.{name}": text for name, text in faults.items() if text}

    def _disk_rows(self) -> dict[str, str]:
        store = self._broker.store
        log = store.commit_log
        rows = {
            # The value of Apache's broker without a pool of buffers for the log.
            "remainTransientStoreBufferNumbs": str(2**31 - 1),
            "remainHowManyDataToFlush": readable_size(log.max_offset - log.flushed_offset),
        }
        try:
            space = shutil.disk_usage(store.settings.store_path_root_dir)
        except OSError:
            return rows  # A missing folder has no size; Apache leaves the row out as well.
        rows["commitLogDirCapacity"] = (
            f"Total : {readable_size(space.total)}, Free : {readable_size(space.free)}.")
        return rows


def _timer_rows() -> dict[str, str]:
    """Return the values of a broker without timer messages; a timer plugin replaces them."""
    return {"timerReadBehind": "0", "timerOffsetBehind": "0", "timerCongestNum": "0",
            "timerEnqueueTps": "0.0", "timerDequeueTps": "0.0"}


def _pool_rows() -> dict[str, str]:
    rows: dict[str, str] = {}
    for name, capacity in _QUEUE_CAPACITIES.items():
        rows[f"{name}ThreadPoolQueueSize"] = "0"
        rows[f"{name}ThreadPoolQueueCapacity"] = str(capacity)
        rows[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = "0"
    rows["EndTransactionQueueSize"] = "0"
    rows["EndTransactionThreadPoolQueueCapacity"] = str(_END_TRANSACTION_CAPACITY)
    return rows
