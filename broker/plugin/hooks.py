"""The only module that calls plugins: a typed method for each hook, which isolates faults.

A fault in a plugin must not break the broker, and the operator must see which plugin caused it.
Therefore pluggy is only used to register hooks and to determine their order; this module calls each
implementation separately, logs an exception with the name of the plugin, checks the type of the
answer, and continues with the next implementation. The hooks on the hot path are also available as
flat tuples, which :meth:`Hooks.freeze` binds once, so that a hook without implementations costs a
truth test.

Source: design of twistmq; pluggy 1.7's documented behaviour.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from twisted.internet.defer import CancelledError, maybeDeferred
from zope.interface import implementer

from twistmq.broker.config.settings import Setting, SettingCheck, Settings
from twistmq.broker.errors import FAULTS, SettingsError
from twistmq.broker.observe.metrics import MetricFamily
from twistmq.broker.observe.supervisor_pages import SupervisorPages
from twistmq.broker.plugin.checks import setting_fault
from twistmq.broker.plugin.hook_kinds import KINDS
from twistmq.broker.plugin.registry import Implementation, PluginRegistry
from twistmq.broker.plugin.synced_table import SyncedTable
from twistmq.broker.remoting.interfaces import IAccessValidator
from twistmq.broker.remoting.messages import Reply, RequestHandler
from twistmq.broker.scheduling.periodic import PeriodicTask
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.errors import BrokerError, RequestRefused, StoreError

if TYPE_CHECKING:
    import click

    from twistmq.broker.observe.supervisor_pages import BrokerPages
    from twistmq.broker.plugin.interfaces import (
        IBroadcastOffsets,
        IConsumerFilters,
        IFilterLanguage,
        ITransactionService,
    )
    from twistmq.broker.remoting.interfaces import IFlowControl
    from twistmq.broker.remoting.messages import AnyHandler, Request
    from twistmq.broker.request.client_table import ClientChange
    from twistmq.broker.request.consume_context import ConsumeContext
    from twistmq.broker.request.send_context import SendBatch
    from twistmq.broker.store.inspect.plugin_files import PluginFiles
    from twistmq.broker.store.stored_records import TagsCode
    from twistmq.protocol.bodies import TopicConfigSerializeWrapper
    from twistmq.protocol.record import MessageRecord

__all__ = ["Hooks"]

T = TypeVar("T")


class Hooks(PluginRegistry):
    """Typed and isolated calls of every hook of the plugins in use."""

    def freeze(self) -> None:
        """Bind the hooks on the hot path to tuples of their implementations."""
        super().freeze()
        self.before_request = self._implementations("before_request")
        self.after_response = self._implementations("after_response")
        self.before_send = self._implementations("before_send")
        self.before_append = self._implementations("before_append")
        self.on_dispatch = self._implementations("on_dispatch")
        self.on_message_arrival = self._implementations("on_message_arrival")
        self.after_send = self._implementations("after_send")
        self.before_consume = self._implementations("before_consume")
        self.after_consume = self._implementations("after_consume")
        # This hook is included because one request of a client may change thousands of groups.
        self._on_client_change = self._implementations("on_client_change")

    # --- once, at start

    def collect_settings(self, kernel_rows: Iterable[Setting] = ()) -> list[Setting]:
        """Return the settings of all plugins; a plugin with a conflicting setting is left out.

        :param kernel_rows: the kernel's settings. If two plugins declare the same setting, the one
            that was registered first keeps it.
        """
        owners = {row.name: "the kernel" for row in kernel_rows}
        rows: list[Setting] = []
        for implementation in reversed(self._implementations("register_settings")):
            plugin = implementation.plugin
            own = self._rows_of("register_settings", implementation, Setting)
            fault = next(filter(None, (setting_fault(row, owners) for row in own)), None)
            if fault is not None:
                self.log.error("plugin {plugin} is left out: {why}", plugin=plugin, why=fault)
                self._leave_out(plugin, fault)
                self.freeze()
                continue
            owners |= {row.name: f"plugin {plugin}" for row in own}
            rows = own + rows
        return rows

    def collect_setting_checks(self) -> list[SettingCheck]:
        """Return the checks of all plugins; a check with a bug counts as passed."""
        return [replace(check, run=self._checked(implementation, check.run))
                for implementation in self._implementations("register_setting_checks")
                for check in self._rows_of("register_setting_checks", implementation, SettingCheck)]

    def _checked(
        self, implementation: Implementation, run: Callable[[Settings], object]
    ) -> Callable[[Settings], object]:
        def checked(settings: Settings) -> None:
            try:
                run(settings)
            except (SettingsError, BrokerError):
                raise
            except FAULTS:
                self._raised("register_setting_checks", implementation)

        return checked

    def collect_commands(self) -> list[click.Command]:
        import click  # only the command line needs it, and it is a slow import

        return self._rows("register_commands", click.Command)

    def collect_store_files(self) -> dict[str, PluginFiles]:
        """Return the plugins' files in a store, by name; the plugin called first wins."""
        from twistmq.broker.store.inspect.plugin_files import PluginFiles  # only for `store`

        return _by("name", self._rows("register_store_files", PluginFiles))

    def supervisor_pages(self, settings: Settings, brokers: BrokerPages) -> list[SupervisorPages]:
        """:raises SettingsError: when a plugin raises it."""
        return self._rows("register_supervisor_pages", SupervisorPages, settings, brokers,
                          passed=(SettingsError,))

    def ledger_folder(self, settings: Settings) -> str | None:
        """:raises SettingsError: when a plugin raises it."""
        folder: str | None = self._first("choose_ledger_folder", settings, passed=(SettingsError,))
        return folder

    def collect_filter_languages(self) -> dict[str, IFilterLanguage]:
        return self._mapping("register_filter_languages")

    def collect_tags_codes(self) -> dict[str, TagsCode]:
        """:raises SettingsError, StoreError: when a plugin raises it."""
        makers = self._mapping("register_tags_codes", (SettingsError, StoreError))
        return {topic: self._guarded(topic, make) for topic, make in makers.items()}

    def _guarded(self, topic: str, make: TagsCode) -> TagsCode:
        """Use the hash of the tag if the function of a plugin fails."""

        def make_or_keep(record: MessageRecord) -> int:
            try:
                return make(record)
            except FAULTS:
                self.log.failure("the tags code of a message of {topic} cannot be computed, the "
                                 "hash of its tag is used", topic=topic)
                return record.tags_code

        return make_or_keep

    def consumer_filters(self) -> IConsumerFilters | None:
        """:raises SettingsError, StoreError: when a plugin raises it."""
        filters: IConsumerFilters | None = self._first(
            "provide_consumer_filters", passed=(SettingsError, StoreError))
        return filters

    def claimed_properties(self) -> frozenset[str]:
        """Return the message properties whose features are provided by plugins."""
        hook = "claim_properties"
        claimed: set[str] = set()
        for implementation in self._implementations(hook):
            answer = self._call_one(hook, implementation)
            if isinstance(answer, Collection) and not isinstance(answer, (str, bytes)):
                claimed.update(answer)
            elif answer is not None:
                self._wrong_answer(hook, implementation, answer, "a set of names")
        return frozenset(claimed)

    def transaction_service(self) -> ITransactionService | None:
        service: ITransactionService | None = self._first("provide_transaction_service")
        return service

    def broadcast_offsets(self) -> IBroadcastOffsets | None:
        offsets: IBroadcastOffsets | None = self._first("provide_broadcast_offsets")
        return offsets

    def flow_control(self) -> IFlowControl | None:
        control: IFlowControl | None = self._first("provide_flow_control")
        return control

    def _first(
        self, hook: str, *arguments: object, passed: tuple[type[Exception], ...] = ()
    ) -> Any:
        """Return the answer of the first plugin that has one; later plugins are not called.

        :param passed: errors that are raised on.
        """
        assert KINDS[hook].first_answer
        for implementation in self._implementations(hook):
            answer = self._call_one(hook, implementation, *arguments, passed=passed)
            if answer is not None:
                return answer
        return None

    def has_access_validators(self, setting: str) -> bool:
        """Return whether a plugin may supply validators.

        :param setting: the setting that requests them. A plugin whose validators belong to one
            setting names it in its attribute ``access_setting``.
        """
        return any(getattr(each.plugin, "access_setting", setting) == setting
                   for each in self.manager.hook.provide_access_validators.get_hookimpls())

    def collect_access_validators(self) -> list[IAccessValidator]:
        """Return all validators; a plugin that fails to supply its own denies every request.

        :raises SettingsError: when a plugin raises it.
        """
        hook = "provide_access_validators"
        validators: list[IAccessValidator] = [
            _DenyAll(name) for name in self._unmade_validators]
        for implementation in self._implementations(hook):
            try:
                validators += implementation.call() or ()
            except SettingsError:
                raise
            except FAULTS:
                self.log.failure("plugin {plugin} raised in {hook}: every request is denied",
                                 plugin=implementation.plugin, hook=hook)
                validators.append(_DenyAll(implementation.plugin))
        return validators

    def collect_request_handlers(self) -> dict[int, AnyHandler]:
        """Return the plugins' rows by code; the plugin called first wins."""
        return _by("code", self._rows("register_request_handlers", RequestHandler))

    def wrap_request_handlers(
        self, handlers: Mapping[int, AnyHandler]
    ) -> dict[int, AnyHandler]:
        """Return the table with the wrappers of plugins; the plugin called first is outermost."""
        hook = "wrap_request_handlers"
        wrapped = dict(handlers)
        for implementation in reversed(self._implementations(hook)):
            rows = self._rows_of(hook, implementation, RequestHandler,
                                 MappingProxyType(dict(wrapped)))
            wrapped.update({row.code: row for row in rows if row.code in wrapped})
        return wrapped

    def collect_periodic_tasks(self) -> list[PeriodicTask]:
        return self._rows("register_periodic_tasks", PeriodicTask)

    def collect_synced_tables(self) -> list[SyncedTable]:
        """Return the tables of plugins that a slave copies from its master."""
        return self._rows("register_synced_tables", SyncedTable)

    def _rows(
        self, hook: str, kind: type[T], *arguments: object,
        passed: tuple[type[Exception], ...] = (),
    ) -> list[T]:
        """Return the rows of all plugins in call order; an answer of another type is left out.

        :param passed: errors that are raised on.
        """
        rows: list[T] = []
        for implementation in self._implementations(hook):
            rows += self._rows_of(hook, implementation, kind, *arguments, passed=passed)
        return rows

    def _rows_of(
        self, hook: str, implementation: Implementation, kind: type[T], *arguments: object,
        passed: tuple[type[Exception], ...] = (),
    ) -> list[T]:
        answer = self._call_one(hook, implementation, *arguments, passed=passed)
        if isinstance(answer, Sequence) and all(isinstance(row, kind) for row in answer):
            return list(answer)
        if answer is not None:
            self._wrong_answer(hook, implementation, answer, f"a list of {kind.__name__}")
        return []

    def _mapping(
        self, hook: str, passed: tuple[type[Exception], ...] = ()
    ) -> dict[str, Any]:
        """Return the joined mappings of all plugins; the plugin called first wins.

        :param passed: errors that are raised on.
        """
        joined: dict[str, Any] = {}
        for implementation in self._implementations(hook):
            answer = self._call_one(hook, implementation, passed=passed)
            if isinstance(answer, Mapping):
                joined = {**answer, **joined}
            elif answer is not None:
                self._wrong_answer(hook, implementation, answer, "a mapping")
        return joined

    async def start(self) -> None:
        """Run every ``on_start`` in order; a failure is logged and the next ones still run.

        :raises SettingsError: when a plugin raises it because its settings are not valid.
        :raises StoreError: when a plugin raises it because one of its files is not usable.
        :raises CancelledError: when the start is given up.
        """
        await self._run_each("on_start", (SettingsError, StoreError, CancelledError))

    async def stop(self) -> None:
        """Run every ``on_stop``; a failure is logged and the next ones still run."""
        await self._run_each("on_stop")

    async def start_namesrv(self) -> None:
        """Run every ``on_namesrv_start`` in the same way as :meth:`start`.

        :raises SettingsError: when a plugin raises it.
        :raises CancelledError: when the start is given up.
        """
        await self._run_each("on_namesrv_start", (SettingsError, CancelledError))

    async def stop_namesrv(self) -> None:
        """Run every ``on_namesrv_stop`` in the same way as :meth:`stop`."""
        await self._run_each("on_namesrv_stop")

    async def _run_each(
        self, hook: str, passed: tuple[type[Exception], ...] = ()
    ) -> None:
        """Run and await every implementation in order.

        :param passed: errors that are raised on.
        """
        assert KINDS[hook].may_wait
        for implementation in self._implementations(hook):
            try:
                await maybeDeferred(implementation.call)
            except passed:
                raise
            except FAULTS:
                self._raised(hook, implementation)

    # --- each request

    def refuse_request(self, request: Request[Any]) -> Reply | BrokerError | None:
        """Return the first answer of ``before_request``, or None."""
        for implementation in self.before_request:
            answer = self._call_one("before_request", implementation, request)
            if isinstance(answer, (Reply, BrokerError)):
                return answer
            if answer is not None:
                self._wrong_answer("before_request", implementation, answer, "a reply or an error")
        return None

    def responded(self, request: Request[Any], reply: Reply) -> None:
        self._notify("after_response", self.after_response, request, reply)

    # --- each batch

    def refuse_send(self, batch: SendBatch) -> dict[int, BrokerError]:
        """Return the refusals of every ``before_send``, by index; the plugin called first wins."""
        return self._refusals("before_send", self.before_send, len(batch.requests), batch)

    def refuse_append(
        self, records: Sequence[MessageRecord]
    ) -> dict[int, BrokerError]:
        return self._refusals("before_append", self.before_append, len(records), records)

    def _refusals(
        self, hook: str, implementations: tuple[Implementation, ...], count: int, *arguments: object
    ) -> dict[int, BrokerError]:
        # Every batch passes through this method, most of them with a single message, so it avoids
        # calls.
        refusals: dict[int, BrokerError] = {}
        for implementation in implementations:
            try:
                answer = implementation.call(*arguments)
            except FAULTS:
                self._raised(hook, implementation)
                continue
            if answer is None or (type(answer) is dict and not answer):
                continue
            if not _are_refusals(answer, count):
                self._wrong_answer(hook, implementation, answer, "a mapping of index to error")
                continue
            refusals = {**answer, **refusals}
        return refusals

    def dispatched(self, records: Sequence[MessageRecord]) -> None:
        self._notify("on_dispatch", self.on_dispatch, records)

    def arrived(self, records: Sequence[MessageRecord]) -> None:
        self._notify("on_message_arrival", self.on_message_arrival, records)

    def sent(self, batch: SendBatch) -> None:
        self._notify("after_send", self.after_send, batch)

    def refuse_consume(self, context: ConsumeContext) -> BrokerError | None:
        for implementation in self.before_consume:
            answer = self._call_one("before_consume", implementation, context)
            if isinstance(answer, BrokerError):
                return answer
            if answer is not None:
                self._wrong_answer("before_consume", implementation, answer, "an error")
        return None

    def consumed(self, context: ConsumeContext) -> None:
        self._notify("after_consume", self.after_consume, context)

    # --- events

    def complete_topic_tables(
        self, tables: TopicConfigSerializeWrapper, registering: bool
    ) -> None:
        self._notify_all("complete_topic_tables", tables, registering)

    def client_changed(self, change: ClientChange) -> None:
        self._notify("on_client_change", self._on_client_change, change)

    def role_changed(self, role: str, broker_id: int) -> None:
        self._notify_all("on_role_change", role, broker_id)

    def half_message_discarded(self, record: bytes) -> None:
        self._notify_all("on_half_message_discarded", record)

    def metrics(self) -> dict[str, MetricFamily]:
        """Return the families of all plugins by name; the plugin called first wins."""
        return _by("name", self._rows("collect_metrics", MetricFamily))

    def namesrv_metrics(self) -> dict[str, MetricFamily]:
        """Return the metrics that plugins add to a name server."""
        return _by("name", self._rows("collect_namesrv_metrics", MetricFamily))

    def runtime_info(self) -> dict[str, str]:
        return {name: str(text) for name, text in self._mapping("add_runtime_info").items()}


@implementer(IAccessValidator)
class _DenyAll:
    """Replaces the validators that a plugin failed to supply, and denies every request."""

    def __init__(self, plugin: str) -> None:
        self._plugin = plugin

    def validate(self, request: Request[Any]) -> None:
        raise RequestRefused(
            ResponseCode.NO_PERMISSION,
            f"the plugin {self._plugin} failed to supply its access validators")


def _by(attribute: str, rows: Sequence[T]) -> dict[Any, T]:
    """Return rows by an attribute; the first row with a value wins."""
    return {getattr(row, attribute): row for row in reversed(rows)}


def _are_refusals(answer: object, count: int) -> bool:
    return isinstance(answer, Mapping) and all(
        isinstance(index, int) and 0 <= index < count and isinstance(error, BrokerError)
        for index, error in answer.items()
    )
