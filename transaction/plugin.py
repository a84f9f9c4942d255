"""Transactions: a producer sends a hidden half message, and commits or rolls it back later.

A half message is stored in RMQ_SYS_TRANS_HALF_TOPIC until its producer commits it or rolls it back.
If the producer does not report the outcome, the broker asks it, or another producer of its group,
repeatedly. If that does not help either, the message is moved to TRANS_CHECK_MAX_TIME_TOPIC. The
topics, the op messages and the offsets of the checks are compatible with Apache's store, so either
broker can continue the work of the other. The plugin is inactive if another plugin provides the
transaction service.

Source: EndTransactionProcessor, TransactionalMessageServiceImpl @5.3.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from twisted.internet.defer import Deferred

from twistmq.broker.api import (
    AnyHandler,
    ITransactionService,
    MetricFamily,
    PeriodicTask,
    RequestCode,
    RequestHandler,
    Setting,
    hookimpl,
)
from twistmq.broker.api.headers import (
    EndTransactionRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
)
from twistmq.broker.api.wire import SYS_TRANSACTION_COMMIT, SYS_TRANSACTION_ROLLBACK
from twistmq.transaction.end import EndTransaction
from twistmq.transaction.half_message_requeue import ResumeCheck
from twistmq.transaction.service import TransactionService

if TYPE_CHECKING:
    from twistmq.broker.api import Broker, SendBatch

__all__ = ["Plugin"]


#: How often waiting questions to producers are checked: whether their messages are readable, ms.
_ASK_PERIOD_MS: Final = 200

_SETTINGS: Final = (
    Setting("transactionTimeOut", "int", 6000,
            "The age at which the producer of a half message is first asked for the outcome, "
            "unless the message sets another age.", unit="ms", least=0, source="BrokerConfig"),
    Setting("transactionCheckInterval", "int", 30_000,
            "The interval of checks of half messages.", unit="ms", least=1, source="BrokerConfig"),
    Setting("transactionCheckMax", "int", 15,
            "The number of checks after which an open half message is given up.", least=0,
            source="BrokerConfig"),
    Setting("transactionOpMsgMaxSize", "int", 4096,
            "Ends of half messages are written at once when their offsets take this many bytes.",
            unit="bytes",
            least=1, source="BrokerConfig"),
    Setting("transactionOpBatchInterval", "int", 3000,
            "The interval at which fewer bytes are written.", unit="ms", least=1,
            source="BrokerConfig"),
    Setting("transactionMetricFlushInterval", "int", 3000,
            "The interval at which the number of open half messages is saved.", unit="ms", least=1,
            source="BrokerConfig"),
)


class Plugin:
    """The transactions of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._service = TransactionService(broker)

    def _in_use(self) -> TransactionService | None:
        """Return the service, unless another plugin provides the service of the broker."""
        service = self._service
        return service if self._broker.transaction_service is service else None

    @staticmethod
    @hookimpl
    def register_settings() -> Sequence[Setting]:
        return _SETTINGS

    @hookimpl
    def provide_transaction_service(self) -> ITransactionService:
        return self._service

    @hookimpl
    def register_request_handlers(self) -> Sequence[AnyHandler]:
        service = self._in_use()
        if service is None:
            return ()
        ends = EndTransaction(self._broker, service)
        return (
            RequestHandler(RequestCode.END_TRANSACTION, ends.handle, EndTransactionRequestHeader,
                           handle_batch=ends.handle_batch),
            RequestHandler(RequestCode.RESUME_CHECK_HALF_MESSAGE,
                           ResumeCheck(self._broker, service.metrics).handle,
                           ResumeCheckHalfMessageRequestHeader),
        )

    @hookimpl
    def register_periodic_tasks(self) -> Sequence[PeriodicTask]:
        service = self._in_use()
        if service is None:
            return ()
        service.metrics.load()
        settings = self._broker.settings
        return (
            PeriodicTask("check half messages", settings.int("transactionCheckInterval"),
                         service.period_ms, service.step),
            PeriodicTask("ask producers about confirmed half messages", _ASK_PERIOD_MS,
                         _ASK_PERIOD_MS, service.questions.ask_readable,
                         service.questions.rest_ms),
            PeriodicTask("write ends of half messages", settings.int("transactionOpBatchInterval"),
                         lambda: settings.int("transactionOpBatchInterval"), service.write_ends),
            PeriodicTask("save the counts of open half messages",
                         settings.int("transactionMetricFlushInterval"),
                         lambda: settings.int("transactionMetricFlushInterval"),
                         lambda now_ms: service.metrics.save()),
        )

    @hookimpl
    def after_send(self, batch: SendBatch) -> None:
        service = self._in_use()
        if service is not None:
            service.sends_handled(batch)

    @hookimpl
    def on_role_change(self, role: str, broker_id: int) -> None:
        self._service.role_changed()

    @hookimpl
    def collect_metrics(self) -> Sequence[MetricFamily] | None:
        """Source: BrokerMetricsManager.initTransactionMetrics @5.3.3."""
        service = self._in_use()
        if service is None:
            return None
        half = MetricFamily("rocketmq_half_messages", "gauge", "Open half messages.", ("topic",))
        for topic, metric in service.metrics.saved.transaction_count.items():
            half.add(metric.count, topic)
        ended = {
            SYS_TRANSACTION_COMMIT: MetricFamily(
                "rocketmq_commit_messages", "counter", "Half messages committed.", ("topic",)),
            SYS_TRANSACTION_ROLLBACK: MetricFamily(
                "rocketmq_rollback_messages", "counter", "Half messages rolled back.", ("topic",)),
        }
        for (topic, how), count in service.metrics.ends.items():
            if how in ended:
                ended[how].add(count, topic)
        return half, *ended.values()

    @hookimpl
    def on_stop(self) -> Deferred[None] | None:
        service = self._in_use()
        return None if service is None else service.stop()
