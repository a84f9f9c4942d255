"""Subscriptions by an SQL92 expression over properties: ``price > 5 AND region IN ('a', 'b')``.

With enablePropertyFilter the broker evaluates them: a consumer gets only what its group's
expression is true of. Groups' expressions come with heartbeats, survive a restart, and with
enableCalcFilterBitMap and enableConsumeQueueExt are evaluated when a message is stored; a bitmap
beside its queue entry then spares pulls the reading of what nobody wants. All but the language
holds for other plugins' languages too.

Source: the modules rocketmq-filter, ConsumerFilterManager @5.3.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from twistmq.broker import hookimpl
from twistmq.broker.config.settings import LONG_MAX, Setting
from twistmq.broker.interfaces import IConsumerFilters, IFilterLanguage
from twistmq.broker.request.client_table import ChangeKind, ClientChange
from twistmq.broker.scheduling.periodic import PeriodicTask

if TYPE_CHECKING:
    from twistmq.broker.kernel import Kernel
    from twistmq.plugins.filter_sql92.consumer_filters import ConsumerFilters

__all__: list[str] = []

#: From the start to the first save, and from one to the next, ms.
#: Source: BrokerController.initializeBrokerScheduledTasks.
_SAVE_PERIOD_MS: Final = 10_000
_DAY_MS: Final = 24 * 3600 * 1000


@hookimpl
def register_settings() -> Sequence[Setting]:
    source = "BrokerConfig"
    return (
        Setting("enableCalcFilterBitMap", "flag", False,
                "Whether filters are evaluated when a message is stored, and enableConsumeQueueExt "
                "keeps what they say.", source=source, at_start=True),
        Setting("expectConsumerNumUseFilter", "int", 32,
                "How many filters of one topic bitmaps are made for.", least=1, most=100_000,
                source=source, at_start=True),
        Setting("maxErrorRateOfBloomFilter", "int", 20,
                "How often a bitmap of so many may say that a filter wants what it does not want.",
                unit="%", least=1, most=99, source=source, at_start=True),
        Setting("filterDataCleanTimeSpan", "int", _DAY_MS,
                "How long the filter of a group without members is kept.", unit="ms", least=0,
                most=LONG_MAX, source=source),
        Setting("filterSupportRetry", "flag", False,
                "Whether an expression on a retry topic means the expressions of the topics the "
                "messages came from.", source=source, at_start=True),
    )


@hookimpl
def register_filter_languages(kernel: Kernel) -> Mapping[str, IFilterLanguage]:
    if not kernel.settings.flag("enablePropertyFilter"):
        return {}
    # Only here: the parser takes a tenth of a second and some MiB.
    from twistmq.plugins.filter_sql92.language import Sql92

    return {"SQL92": Sql92()}


@hookimpl
def provide_consumer_filters(kernel: Kernel) -> IConsumerFilters | None:
    if not kernel.settings.flag("enablePropertyFilter"):
        return None
    from twistmq.plugins.filter_sql92.consumer_filters import ConsumerFilters

    return ConsumerFilters(kernel)


def _find(kernel: Kernel) -> ConsumerFilters | None:
    """The filters of a broker; None where there are none, or another plugin keeps them."""
    if not kernel.settings.flag("enablePropertyFilter"):
        return None
    from twistmq.plugins.filter_sql92.consumer_filters import ConsumerFilters

    filters = kernel.filters.consumer_filters
    return filters if isinstance(filters, ConsumerFilters) else None


@hookimpl
def register_periodic_tasks(kernel: Kernel) -> Sequence[PeriodicTask]:
    filters = _find(kernel)
    if filters is None:
        return ()
    return (PeriodicTask("save what groups filter by", _SAVE_PERIOD_MS, _SAVE_PERIOD_MS,
                         lambda now_ms: kernel.persist((filters,))),)


@hookimpl
def on_client_change(kernel: Kernel, change: ClientChange) -> None:
    filters = _find(kernel) if change.is_consumer else None
    if filters is None:
        return
    if change.kind is ChangeKind.REGISTER:
        group = kernel.clients.consumer_group(change.group)
        if group is not None:
            filters.register(change.group, group.subscriptions.values())
    elif change.kind is ChangeKind.UNREGISTER:
        filters.unregister(change.group)


@hookimpl
def on_stop(kernel: Kernel) -> None:
    filters = _find(kernel)
    if filters is not None:
        kernel.persist((filters,))
