"""The broker's figures: 28.

Some figures of the runtime table belong to thread pools, which this broker does not have: nothing
waits in a queue here, and the capacities are Apache's defaults, for tools that divide by them.
Other plugins add rows through ``add_runtime_info``; theirs win.

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
#: Capacities of the queues in front of Apache's thread pools. Source: BrokerConfig.
_QUEUE_CAPACITIES: Final = {
    "send": 10_000, "pull": 100_000, "litePull": 100_000, "query": 20_000, "ack": 100_000,
}
_END_TRANSACTION_CAPACITY: Final = 100_000
_UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def readable_size(size: int) -> str:
    """A number of bytes as the tools show it: ``1.5 KiB``."""
    if size < 1024:
        return f"{size} B"
    exponent = min((size.bit_length() - 1) // 10, len(_UNITS))
    return f"{size / 1024**exponent:.1f} {_UNITS[exponent - 1]}"


class RuntimeQuestions:
    """The handlers about the broker as a whole."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> list[RequestHandler[Any]]:
        return [RequestHandler(RequestCode.GET_BROKER_RUNTIME_INFO, self._runtime, EmptyHeader)]

    # --- figures

    def _runtime(self, request: Request[EmptyHeader]) -> Reply:
        broker = self._broker
        table = {**broker.store.runtime_info(), **self._broker_rows(), **self._day_rows(),
                 **self._disk_rows(), **self._faults(), **_timer_rows(), **_pool_rows(),
                 **broker.hooks.runtime_info()}
        return Reply(body=KVTable(table).encode())

    def _broker_rows(self) -> dict[str, str]:
        broker = self._broker
        return {
            # Whether what only a master does is being done.
            "brokerActive": str(not broker.is_slave or broker.identity.is_acting).lower(),
            "brokerVersionDesc": _VERSION_NAME,
            "brokerVersion": str(VERSION),
            # An append has the reactor for itself: there is no lock to wait for.
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
        """A row for each thing that is wrong, as the page /health says it; none when all is well.

        Apache's broker has no such rows.
        """
        found = {name: check() for name, check in self._broker.health_checks.items()}
        return {f"fault.{name}": text for name, text in found.items() if text}

    def _disk_rows(self) -> dict[str, str]:
        store = self._broker.store
        log = store.commit_log
        rows = {
            # As Apache's broker has it without a pool of buffers in front of the log.
            "remainTransientStoreBufferNumbs": str(2**31 - 1),
            "remainHowManyDataToFlush": readable_size(log.max_offset - log.flushed_offset),
        }
        try:
            space = shutil.disk_usage(store.settings.store_path_root_dir)
        except OSError:
            return rows  # A folder that is gone has no size; Apache leaves the row out as well.
        rows["commitLogDirCapacity"] = (
            f"Total : {readable_size(space.total)}, Free : {readable_size(space.free)}.")
        return rows


def _timer_rows() -> dict[str, str]:
    """The figures of a broker without timer messages; a plugin that has them replaces it."""
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
