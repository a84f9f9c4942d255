"""A third party's plugin: every hook of twistmq once, each with something to do.

Each broker makes an object of the class ``Sample``; its methods marked with ``hookimpl`` are hooks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from twisted.logger import Logger

from twistmq.broker.api import (
    AnyHandler,
    Broker,
    BrokerError,
    ClientChange,
    ConsumeContext,
    Handled,
    IAccessValidator,
    IBroadcastOffsets,
    IConsumerFilters,
    IFilterLanguage,
    IFlowControl,
    ITransactionService,
    MessageRecord,
    MetricFamily,
    PeriodicTask,
    Reply,
    Request,
    RequestCode,
    RequestHandler,
    RequestRefused,
    ResponseCode,
    SendBatch,
    Setting,
    SettingCheck,
    Settings,
    SettingsError,
    hookimpl,
)
from twistmq.broker.api.headers import EndTransactionRequestHeader
from twistmq.broker.api.requests import SyncedTable
from twistmq_sample_plugin.access import TokenValidator
from twistmq_sample_plugin.counts import Counts
from twistmq_sample_plugin.languages import OneForAll, Prefix
from twistmq_sample_plugin.news import OnlyNews
from twistmq_sample_plugin.patience import Patience
from twistmq_sample_plugin.transactions import Transactions

if TYPE_CHECKING:
    import click

    from twistmq.broker.api.bodies import TopicConfigSerializeWrapper
    from twistmq.broker.api.observe import BrokerPages, SupervisorPages
    from twistmq.broker.api.store_files import PluginFiles

__all__ = ["COUNTS_CODE", "Sample"]

#: A request code that no other plugin uses.
COUNTS_CODE: Final = 31_001
#: A topic whose queue entries hold sizes.
SIZES_TOPIC: Final = "SampleSizes"
#: What producers ask for a time of delivery by.
TIMERS: Final = ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS")
#: What each message is marked with.
MARK: Final = "SAMPLE_MARK\x01seen\x02"

_log = Logger()


class Sample:
    """The plugin of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._counts = Counts()

    @staticmethod
    @hookimpl
    def register_settings() -> Sequence[Setting]:
        return [
            Setting("sample.forbidden_word", "text", "", "Messages with this word are refused."),
            Setting("sample.paused_groups", "names", (), "Consumer groups that get nothing."),
            Setting("sample.prefix_for_all", "text", "",
                    "A PREFIX expression that holds instead of what groups filter by."),
            Setting("sample.token", "text", "", "What each request must bring as sampleToken."),
            Setting("sample.news_topic", "text", "",
                    "Of this topic clients of broadcast groups that come behind a proxy get what "
                    "is new, whatever they got before."),
            Setting("sample.waiting_max", "int", 0,
                    "Requests that may wait for their turn; 0: the stock flow control decides.",
                    unit="requests"),
            Setting("sample.transactions", "flag", False, "Whether half messages are taken."),
            Setting("sample.timers_at_once", "flag", False,
                    "Whether messages that ask for a time of delivery are taken, and come at "
                    "once."),
            Setting("sample.pages_port", "int", 0,
                    "The port of a page that tells which of several brokers answer; 0: none.",
                    most=65_535, of_each="inner_port"),
            Setting("sample.tick_ms", "int", 60_000, "How often the counts are logged.",
                    unit="ms", least=1),
        ]

    @staticmethod
    @hookimpl
    def register_setting_checks() -> Sequence[SettingCheck]:
        def check(settings: Settings) -> None:
            if settings.text("sample.prefix_for_all").startswith("="):
                raise settings.error("sample.prefix_for_all", "names no property")

        return [SettingCheck(("sample.prefix_for_all",), check)]

    @staticmethod
    @hookimpl
    def register_commands() -> Sequence[click.Command]:
        from twistmq_sample_plugin.commands import sample_counts  # only when commands are asked for

        return [sample_counts]

    @staticmethod
    @hookimpl
    def choose_ledger_folder(settings: Settings) -> str | None:
        """Leave the log of the store as it is."""
        return None

    @staticmethod
    @hookimpl
    def register_store_files() -> Sequence[PluginFiles]:
        from twistmq_sample_plugin.files import COUNTS_FILES  # only when a store is looked at

        return [COUNTS_FILES]

    @staticmethod
    @hookimpl
    def register_supervisor_pages(
        settings: Settings, brokers: BrokerPages
    ) -> Sequence[SupervisorPages] | None:
        if not settings.int("sample.pages_port"):
            return None
        from twistmq_sample_plugin.pages import who_answers  # twisted.web takes megabytes

        return [who_answers(settings.int("sample.pages_port"), brokers)]

    @hookimpl
    def register_filter_languages(self) -> Mapping[str, IFilterLanguage]:
        return {"PREFIX": Prefix()}

    @hookimpl
    def provide_consumer_filters(self) -> IConsumerFilters | None:
        expression = self._broker.settings.text("sample.prefix_for_all")
        return OneForAll(self._broker, expression) if expression else None

    @hookimpl
    def register_tags_codes(self) -> Mapping[str, Callable[[MessageRecord], int]]:
        """Who reads the queue entries of this topic (code 321) sees how large each body is."""
        return {SIZES_TOPIC: lambda record: len(record.body)}

    @hookimpl
    def provide_transaction_service(self) -> ITransactionService | None:
        if not self._broker.settings.flag("sample.transactions"):
            return None
        return Transactions(self._broker)

    @hookimpl
    def provide_broadcast_offsets(self) -> IBroadcastOffsets | None:
        topic = self._broker.settings.text("sample.news_topic")
        return OnlyNews(self._broker, topic) if topic else None

    @hookimpl
    def provide_flow_control(self) -> IFlowControl | None:
        maximum = self._broker.settings.int("sample.waiting_max")
        return Patience(maximum) if maximum else None

    @hookimpl
    def claim_properties(self) -> Collection[str]:
        return TIMERS if self._broker.settings.flag("sample.timers_at_once") else ()

    @hookimpl
    def provide_access_validators(self) -> Sequence[IAccessValidator]:
        token = self._broker.settings.text("sample.token")
        return [TokenValidator(token)] if token else []

    @hookimpl
    def register_request_handlers(self) -> Sequence[AnyHandler]:
        def answer_counts(request: Request[Any]) -> Reply:
            return Reply(body=self._counts.encode())

        rows: list[AnyHandler] = [RequestHandler(COUNTS_CODE, answer_counts)]
        service = self._broker.transaction_service
        if isinstance(service, Transactions):
            rows.append(RequestHandler(
                RequestCode.END_TRANSACTION, service.end, EndTransactionRequestHeader))
        return rows

    @hookimpl
    def wrap_request_handlers(self, handlers: Mapping[int, AnyHandler]) -> Sequence[AnyHandler]:
        """Whoever serves the request, each one is counted."""
        row = handlers[RequestCode.GET_MAX_OFFSET]

        def count(request: Request[Any]) -> Handled:
            self._counts.ends_asked += 1
            return row.handle(request)

        return [replace(row, handle=count)]

    @hookimpl
    def register_synced_tables(self) -> Sequence[SyncedTable]:
        def take(body: bytes) -> None:
            # A slave tells of the messages that its master stored.
            self._counts.stored = int(json.loads(body)["stored"])

        return [SyncedTable("counts of the sample", COUNTS_CODE, take, 60_000)]

    @hookimpl
    def register_periodic_tasks(self) -> Sequence[PeriodicTask]:
        period_ms = self._broker.settings.int("sample.tick_ms")

        def tick(now_ms: int) -> None:
            counts = self._counts
            counts.ticks += 1
            _log.info("sample: {counts}", counts=counts)

        return [PeriodicTask("sample counts", period_ms, period_ms, tick)]

    @hookimpl
    async def on_start(self) -> None:
        if self._broker.settings.text("sample.forbidden_word").isspace():
            raise SettingsError("sample.forbidden_word: a word is expected, not blanks")
        self._counts.started = True

    @hookimpl
    def before_request(self, request: Request[Any]) -> None:
        self._counts.requests[request.command.code] += 1

    @hookimpl
    def after_response(self, request: Request[Any], reply: Reply) -> None:
        if reply.code not in (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND):
            self._counts.refusals[request.command.code] += 1

    @hookimpl
    def before_send(self, batch: SendBatch) -> Mapping[int, BrokerError] | None:
        word = self._broker.settings.text("sample.forbidden_word").encode()
        if not word:
            return None
        return {
            index: RequestRefused(ResponseCode.MESSAGE_ILLEGAL, "the message has a forbidden word")
            for index, request in enumerate(batch.requests) if word in request.body
        }

    @hookimpl
    def before_append(self, records: Sequence[MessageRecord]) -> None:
        for record in records:
            record.properties += MARK

    @hookimpl
    def on_dispatch(self, records: Sequence[MessageRecord]) -> None:
        self._counts.stored += len(records)

    @hookimpl
    def on_message_arrival(self, records: Sequence[MessageRecord]) -> None:
        self._counts.arrived += len(records)

    @hookimpl
    def after_send(self, batch: SendBatch) -> None:
        counts = self._counts
        for reply in batch.replies:
            # A reply that waits for the disk is a Deferred: the message is stored.
            if isinstance(reply, Reply) and reply.code != ResponseCode.SUCCESS:
                counts.refused += 1
            else:
                counts.sent += 1

    @hookimpl
    def before_consume(self, context: ConsumeContext) -> BrokerError | None:
        if context.group in self._broker.settings.names("sample.paused_groups"):
            return RequestRefused(ResponseCode.SYSTEM_BUSY, f"the group {context.group} is paused")
        return None

    @hookimpl
    def after_consume(self, context: ConsumeContext) -> None:
        counts = self._counts
        counts.consumed[f"{context.topic}@{context.group}"] += context.message_count

    @hookimpl
    def on_client_change(self, change: ClientChange) -> None:
        self._counts.client_changes += 1

    @hookimpl
    def on_role_change(self, role: str) -> None:
        self._counts.role = role

    @hookimpl
    def complete_topic_tables(self, tables: TopicConfigSerializeWrapper, registering: bool) -> None:
        self._counts.registrations += registering

    @hookimpl
    def on_half_message_discarded(self, record: bytes) -> None:
        self._counts.discarded_half_messages += 1

    @hookimpl
    def add_runtime_info(self) -> Mapping[str, str]:
        counts = self._counts
        return {"sampleSent": str(counts.sent), "sampleConsumed": str(counts.consumed.total())}

    @hookimpl
    def collect_metrics(self) -> Sequence[MetricFamily]:
        sent = MetricFamily("sample_sent", "counter", "Messages sent, as sample counts them.")
        sent.add(self._counts.sent)
        return (sent,)

    @hookimpl
    def on_stop(self) -> None:
        counts = self._counts
        _log.info("sample stops: {counts}", counts=counts)
        self._broker.store.config_file("sampleCounts").save_bytes(counts.encode())
