"""The one place that calls plugins: finds them, orders them, isolates their faults.

``Hooks`` gives each hook a typed method. The hooks on the hot path are also there as flat tuples,
bound once by :meth:`Hooks.freeze`, so that one without implementation costs a truth test.

Source: design of twistmq; pluggy 1.7's documented behaviour.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

import pluggy
from twisted.internet.defer import maybeDeferred
from twisted.logger import Logger

from twistmq.broker import hookspecs
from twistmq.broker.errors import BrokerError, SettingsError

if TYPE_CHECKING:
    import click

    from twistmq.broker.interfaces import IAccessValidator, IFilterLanguage, ITransactionService
    from twistmq.broker.kernel import Kernel
    from twistmq.broker.periodic import PeriodicTask
    from twistmq.broker.remoting import AnyHandler, Reply, Request
    from twistmq.broker.request.client_table import ClientChange
    from twistmq.broker.request.consume_context import ConsumeContext
    from twistmq.broker.request.send_context import SendBatch
    from twistmq.broker.settings import Setting
    from twistmq.broker.wire.record import MessageRecord

__all__ = ["ENTRY_POINT_GROUP", "Hooks", "find_plugins"]

ENTRY_POINT_GROUP = "twistmq"


@dataclass(frozen=True, slots=True)
class Implementation:
    """One plugin's implementation of one hook."""

    plugin: str
    call: Callable[..., Any]


def find_plugins(
    enabled: Collection[str] | None = None, disabled: Collection[str] = ()
) -> list[tuple[str, object]]:
    """Import the plugins that are installed.

    :param enabled: only these names; None means all there are.
    :param disabled: never these names; that wins.
    :returns: (name, plugin), stock plugins first, each kind by name.
    :raises SettingsError: when a name of ``enabled`` is not installed.
    """
    points = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    missing = sorted(set(enabled or ()) - set(points))
    if missing:
        known = ", ".join(sorted(points)) or "none"
        raise SettingsError(f"plugins.enabled: {', '.join(missing)} not installed (known: {known})")
    names = [n for n in points if (enabled is None or n in enabled) and n not in disabled]
    names.sort(key=lambda name: (not _is_stock(points[name]), name))
    found: list[tuple[str, object]] = []
    for name in names:
        try:
            found.append((name, points[name].load()))
        except Exception:
            if enabled is not None:
                raise
            Hooks.log.failure("plugin {plugin} cannot be imported, it is left out", plugin=name)
    return found


def _is_stock(point: EntryPoint) -> bool:
    return point.value.startswith("twistmq.")


class Hooks:
    """Typed, isolated calls to every hook.

    :param plugins: (name, plugin) in the order of registration; of two with one name the later
        replaces the earlier, which is how a third party replaces a stock plugin.
    """

    log = Logger()

    def __init__(self, plugins: Iterable[tuple[str, object]] = ()) -> None:
        self.manager = pluggy.PluginManager("twistmq")
        self.manager.add_hookspecs(hookspecs)
        for name, plugin in dict(plugins).items():
            self.register(name, plugin)
        self.freeze()

    def register(self, name: str, plugin: object) -> None:
        """Add a plugin; a misspelt hook is reported and the plugin left out."""
        try:
            self.manager.register(plugin, name=name)
            self.manager.check_pending()
        except Exception:
            self.log.failure("plugin {plugin} does not fit the hooks, it is left out", plugin=name)
            if self.manager.has_plugin(name):
                self.manager.unregister(name=name)

    def freeze(self) -> None:
        """Bind the hot hooks to tuples of their implementations."""
        self.before_request = self._implementations("before_request")
        self.after_response = self._implementations("after_response")
        self.before_send = self._implementations("before_send")
        self.before_append = self._implementations("before_append")
        self.on_dispatch = self._implementations("on_dispatch")
        self.on_message_arrival = self._implementations("on_message_arrival")
        self.after_send = self._implementations("after_send")
        self.before_consume = self._implementations("before_consume")
        self.after_consume = self._implementations("after_consume")

    @property
    def plugin_names(self) -> list[str]:
        """The plugins in use, in order of registration."""
        return [name for name, plugin in self.manager.list_name_plugin() if plugin is not None]

    def _implementations(self, hook: str) -> tuple[Implementation, ...]:
        """The implementations of a hook in call order, each taking the spec's full arguments."""
        names = list(inspect.signature(getattr(hookspecs, hook)).parameters)
        caller = getattr(self.manager.hook, hook)
        return tuple(
            Implementation(impl.plugin_name, _with_all_arguments(impl.function, impl.argnames,
                                                                 names))
            for impl in reversed(caller.get_hookimpls())
        )

    def _call_each(self, hook: str, *arguments: object) -> list[Any]:
        """Call every implementation of a rare hook; what is not None, in call order."""
        return [answer for answer in (self._call_one(hook, implementation, *arguments)
                                      for implementation in self._implementations(hook))
                if answer is not None]

    def _call_one(self, hook: str, implementation: Implementation, *arguments: object) -> Any:
        try:
            return implementation.call(*arguments)
        except Exception:
            self.log.failure("plugin {plugin} raised in {hook}", plugin=implementation.plugin,
                             hook=hook)
            return None

    # --- once, at start

    def collect_settings(self) -> list[Setting]:
        return [row for rows in self._call_each("register_settings") for row in rows]

    def collect_commands(self) -> list[click.Command]:
        return [row for rows in self._call_each("register_commands") for row in rows]

    def collect_filter_languages(self, kernel: Kernel) -> dict[str, IFilterLanguage]:
        answers = self._call_each("register_filter_languages", kernel)
        return {name: language for answer in reversed(answers)
                for name, language in answer.items()}

    def transaction_service(self, kernel: Kernel) -> ITransactionService | None:
        for answer in self._call_each("provide_transaction_service", kernel):
            service: ITransactionService = answer
            return service
        return None

    def collect_access_validators(self, kernel: Kernel) -> list[IAccessValidator]:
        """All validators; a plugin that fails to supply its own fails the start."""
        return [validator
                for implementation in self._implementations("provide_access_validators")
                for validator in implementation.call(kernel) or ()]

    def collect_request_handlers(self, kernel: Kernel) -> dict[int, AnyHandler]:
        """The plugins' rows by code; the plugin called first wins."""
        answers = self._call_each("register_request_handlers", kernel)
        return {row.code: row for rows in reversed(answers) for row in rows}

    def collect_periodic_tasks(self, kernel: Kernel) -> list[PeriodicTask]:
        return [row for rows in self._call_each("register_periodic_tasks", kernel) for row in rows]

    async def start(self, kernel: Kernel) -> None:
        """Run every ``on_start`` in order; the first failure stops the start."""
        for implementation in self._implementations("on_start"):
            await maybeDeferred(implementation.call, kernel)

    async def stop(self, kernel: Kernel) -> None:
        """Run every ``on_stop``; a failure is logged and the others still run."""
        for implementation in self._implementations("on_stop"):
            try:
                await maybeDeferred(implementation.call, kernel)
            except Exception:
                self.log.failure("plugin {plugin} raised in on_stop", plugin=implementation.plugin)

    # --- each request

    def refuse_request(self, request: Request[Any]) -> Reply | BrokerError | None:
        """The first answer of ``before_request``, if any."""
        for implementation in self.before_request:
            answer = self._call_one("before_request", implementation, request)
            if answer is not None:
                refusal: Reply | BrokerError = answer
                return refusal
        return None

    def responded(self, request: Request[Any], reply: Reply) -> None:
        for implementation in self.after_response:
            self._call_one("after_response", implementation, request, reply)

    # --- each batch

    def refuse_send(self, batch: SendBatch) -> dict[int, BrokerError]:
        """The refusals of every ``before_send``, by index; the plugin called first wins."""
        return self._refusals("before_send", self.before_send, len(batch.requests), batch)

    def refuse_append(
        self, kernel: Kernel, records: Sequence[MessageRecord]
    ) -> dict[int, BrokerError]:
        return self._refusals("before_append", self.before_append, len(records), kernel, records)

    def _refusals(
        self, hook: str, implementations: tuple[Implementation, ...], count: int, *arguments: object
    ) -> dict[int, BrokerError]:
        refusals: dict[int, BrokerError] = {}
        for implementation in implementations:
            answer = self._call_one(hook, implementation, *arguments)
            if answer is None:
                continue
            if not _are_refusals(answer, count):
                self.log.error("plugin {plugin} returned {answer} from {hook}, which is no "
                               "mapping of index to error", plugin=implementation.plugin,
                               answer=repr(answer), hook=hook)
                continue
            refusals = {**answer, **refusals}
        return refusals

    def dispatched(self, kernel: Kernel, records: Sequence[MessageRecord]) -> None:
        for implementation in self.on_dispatch:
            self._call_one("on_dispatch", implementation, kernel, records)

    def arrived(self, kernel: Kernel, records: Sequence[MessageRecord]) -> None:
        for implementation in self.on_message_arrival:
            self._call_one("on_message_arrival", implementation, kernel, records)

    def sent(self, batch: SendBatch) -> None:
        for implementation in self.after_send:
            self._call_one("after_send", implementation, batch)

    def refuse_consume(self, context: ConsumeContext) -> BrokerError | None:
        for implementation in self.before_consume:
            answer = self._call_one("before_consume", implementation, context)
            if isinstance(answer, BrokerError):
                return answer
        return None

    def consumed(self, context: ConsumeContext) -> None:
        for implementation in self.after_consume:
            self._call_one("after_consume", implementation, context)

    # --- events

    def client_changed(self, kernel: Kernel, change: ClientChange) -> None:
        self._call_each("on_client_change", kernel, change)

    def role_changed(self, kernel: Kernel, role: str, broker_id: int) -> None:
        self._call_each("on_role_change", kernel, role, broker_id)

    def half_message_discarded(self, kernel: Kernel, record: bytes) -> None:
        self._call_each("on_half_message_discarded", kernel, record)

    def runtime_info(self, kernel: Kernel) -> dict[str, str]:
        answers = self._call_each("add_runtime_info", kernel)
        return {name: text for answer in reversed(answers) for name, text in answer.items()}


def _are_refusals(answer: object, count: int) -> bool:
    return isinstance(answer, Mapping) and all(
        isinstance(index, int) and 0 <= index < count and isinstance(error, BrokerError)
        for index, error in answer.items()
    )


def _with_all_arguments(
    function: Callable[..., Any], wanted: Sequence[str], given: Sequence[str]
) -> Callable[..., Any]:
    """Let a function that takes a subset of the arguments be called with all, positionally."""
    if list(wanted) == list(given):
        return function
    positions = [given.index(name) for name in wanted]

    def call(*arguments: object) -> Any:
        return function(*[arguments[position] for position in positions])

    return call

