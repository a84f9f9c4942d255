"""Subscriptions by an SQL92 expression over properties: ``price > 5 AND region IN ('a', 'b')``.

If enablePropertyFilter is set, the broker evaluates these expressions, and a consumer receives only
the messages that match the expression of its group. The expressions arrive with heartbeats and are
kept across a restart. With enableCalcFilterBitMap and enableConsumeQueueExt they are already
evaluated when a message is stored. The result is a bitmap next to the message's queue entry, so
that a pull does not have to read messages that no group wants. Everything except the language
itself also works for the languages of other plugins.

Source: the modules rocketmq-filter, ConsumerFilterManager @5.3.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from twistmq.broker.api import (
    ChangeKind,
    ClientChange,
    IConsumerFilters,
    IFilterLanguage,
    PeriodicTask,
    Setting,
    hookimpl,
)
from twistmq.broker.api.config import LONG_MAX

if TYPE_CHECKING:
    from twistmq.broker.api import Broker
    from twistmq.broker.api.store_files import PluginFiles
    from twistmq.plugins.filter_sql92.consumer_filters import ConsumerFilters

__all__ = ["Plugin"]

#: Time from the start to the first save, and between two saves, ms.
#: Source: BrokerController.initializeBrokerScheduledTasks.
_SAVE_PERIOD_MS: Final = 10_000
_DAY_MS: Final = 24 * 3600 * 1000


_SETTINGS: Final = (
    Setting("enableCalcFilterBitMap", "flag", False,
            "Whether filters are evaluated when a message is stored; the results are kept if "
            "enableConsumeQueueExt is true.", source="BrokerConfig", at_start=True),
    Setting("expectConsumerNumUseFilter", "int", 32,
            "The expected number of filters of a topic, which determines the size of a bitmap.",
            least=1, most=100_000,
            source="BrokerConfig", at_start=True),
    Setting("maxErrorRateOfBloomFilter", "int", 20,
            "The percentage of false positives that such a bitmap may have.",
            unit="%", least=1, most=99, source="BrokerConfig", at_start=True),
    Setting("filterDataCleanTimeSpan", "int", _DAY_MS,
            "The time for which the filter of a group without members is kept.", unit="ms", least=0,
            most=LONG_MAX, source="BrokerConfig"),
    Setting("filterSupportRetry", "flag", False,
            "Whether an expression on a retry topic stands for the group's expressions on the "
            "topics from which the messages came.", source="BrokerConfig", at_start=True),
)


class Plugin:
    """The language and the filters of one broker; inactive if enablePropertyFilter is off."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._filters: ConsumerFilters | None = None
        if broker.settings.flag("enablePropertyFilter"):
            from twistmq.plugins.filter_sql92.consumer_filters import ConsumerFilters

            self._filters = ConsumerFilters(broker)

    def _in_use(self) -> ConsumerFilters | None:
        """Return the filters, unless another plugin manages the filters of the broker."""
        return self._filters if self._broker.filters.consumer_filters is self._filters else None

    @staticmethod
    @hookimpl
    def register_settings() -> Sequence[Setting]:
        return _SETTINGS

    @staticmethod
    @hookimpl
    def register_store_files() -> Sequence[PluginFiles]:
        from twistmq.broker.api.store_files import PluginFiles
        from twistmq.plugins.filter_sql92.bodies import ConsumerFilterTable

        return [PluginFiles("filters", tables={
            "consumerFilter.json": ConsumerFilterTable.decode_saved})]

    @hookimpl
    def register_filter_languages(self) -> Mapping[str, IFilterLanguage]:
        if not self._broker.settings.flag("enablePropertyFilter"):
            return {}
        # Imported only here, because loading the parser takes a tenth of a second and some MiB.
        from twistmq.plugins.filter_sql92.language import Sql92

        return {"SQL92": Sql92(self._broker.now_ms)}

    @hookimpl
    def provide_consumer_filters(self) -> IConsumerFilters | None:
        if self._filters is not None:
            self._filters.load()
        return self._filters

    @hookimpl
    def register_periodic_tasks(self) -> Sequence[PeriodicTask]:
        filters = self._in_use()
        if filters is None:
            return ()
        return (PeriodicTask("save the filters of groups", _SAVE_PERIOD_MS, _SAVE_PERIOD_MS,
                             lambda now_ms: self._save(filters)),)

    @hookimpl
    def on_client_change(self, change: ClientChange) -> None:
        filters = self._in_use() if change.is_consumer else None
        if filters is None:
            return
        if change.kind is ChangeKind.REGISTER:
            group = self._broker.clients.consumer_group(change.group)
            if group is not None:
                filters.register(change.group, group.subscriptions.values())
        elif change.kind is ChangeKind.UNREGISTER:
            filters.unregister(change.group)

    def _save(self, filters: ConsumerFilters) -> None:
        self._broker.saves.save(filters)

    @hookimpl
    def on_stop(self) -> None:
        filters = self._in_use()
        if filters is not None:
            self._broker.persist((filters,))
