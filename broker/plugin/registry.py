"""The plugins of a broker or a name server: their checks, their objects and their hooks.

Source: design of twistmq; pluggy 1.7's documented behaviour.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pluggy
from twisted.logger import Logger

from twistmq.broker.errors import FAULTS, SettingsError
from twistmq.broker.plugin import hookspecs
from twistmq.broker.plugin.checks import (
    misfit,
    require_hooks_that_run,
    require_object_or_class,
)
from twistmq.broker.plugin.hook_kinds import KINDS
from twistmq.protocol.errors import StoreError

__all__ = ["Implementation", "PluginRegistry"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Implementation:
    """One plugin's implementation of one hook."""

    plugin: str
    call: Callable[..., Any]


class _Manager(pluggy.PluginManager):
    """Finds hooks only among the names that a plugin itself defines.

    Before version 1.7, pluggy reads every attribute, and ``__provides__`` of zope.interface raises
    if it is read on a class that implements an interface.
    """

    def parse_hookimpl_opts(self, plugin: object, name: str) -> pluggy.HookimplOpts | None:
        return None if name.startswith("__") else super().parse_hookimpl_opts(plugin, name)


class PluginRegistry:
    """The plugins of one server, in order.

    :param plugins: pairs of (name, plugin) in the order of registration. Of two plugins with the
        same name, the later one replaces the earlier one; a third party replaces a stock plugin in
        this way. A plugin is a class, from which :meth:`make_plugins` creates an object for its
        broker, or such an object.
    :param notices: notices of the discovery, for the operator.
    """

    log = Logger()

    def __init__(
        self, plugins: Iterable[tuple[str, object]] = (), notices: Iterable[str] = ()
    ) -> None:
        #: Notices for the operator: the plugins that are left out, and the reasons.
        self.notices = list(notices)
        self.manager = _Manager("twistmq")
        self.manager.add_hookspecs(hookspecs)
        #: The plugins with validators that could not be created; they make the server deny every
        #: request.
        self._unmade_validators: list[str] = []
        for name, plugin in dict(plugins).items():
            self.register(name, plugin)
        self.freeze()

    def register(self, name: str, plugin: object) -> None:
        """Add a plugin; if its hooks do not fit, it is reported and left out.

        Hooks do not fit if a hook or an argument is misspelt, or if an implementation is of a kind
        that would never run: a wrapper, or ``async`` where nothing waits for it.
        """
        try:
            require_object_or_class(plugin)
            self.manager.register(plugin, name=name)
            self.manager.check_pending()
            require_hooks_that_run(self.manager, plugin)
        except pluggy.PluginValidationError as error:
            self.log.error("plugin {plugin} is left out: {why}", plugin=name, why=misfit(error))
            self._leave_out(name, misfit(error))
        except FAULTS as error:
            self.log.failure("plugin {plugin} has invalid hooks, it is left out", plugin=name)
            self._leave_out(name, misfit(error))

    def _leave_out(self, name: str, why: str) -> None:
        self.notices.append(f"plugin {name} is left out: {why}")
        if self.manager.has_plugin(name):
            self.manager.unregister(name=name)

    def add(self, name: str, plugin: object) -> None:
        """Register an object whose hooks are called from now on, until :meth:`remove`."""
        self.register(name, plugin)
        self.freeze()

    def remove(self, name: str) -> None:
        """Stop calling the hooks of an object that :meth:`add` registered."""
        if self.manager.has_plugin(name):
            self.manager.unregister(name=name)
            self.freeze()

    def make_plugins(self, server: object) -> None:
        """Create the object of each class, in the order of registration.

        :param server: the argument of the constructors: the broker or the name server.
        :raises SettingsError, StoreError: when a constructor raises it.
        """
        registered = [(name, plugin) for name, plugin in self.manager.list_name_plugin()
                      if plugin is not None]
        for name, plugin in registered:
            self.manager.unregister(name=name)
            if not isinstance(plugin, type):
                self.manager.register(plugin, name=name)
                continue
            try:
                self.manager.register(_made(plugin, server), name=name)
            except (SettingsError, StoreError):
                raise
            except FAULTS as error:
                self.log.failure("plugin {plugin} raised when it was created, it is left out",
                                 plugin=name)
                self.notices.append(f"plugin {name} is left out: its constructor raised "
                                    f"{type(error).__name__}: {' '.join(str(error).split())}")
                if hasattr(plugin, "provide_access_validators"):
                    self._unmade_validators.append(name)
        self.freeze()

    def find(self, kind: type[T]) -> T | None:
        """Return the object of a plugin's class, once it is created; None if it is not in use."""
        for _, plugin in self.manager.list_name_plugin():
            if isinstance(plugin, kind):
                return plugin
        return None

    def provider(self, interface: Any) -> Any:
        """Return the plugin that provides an interface; of several the one that is called first.

        :returns: None if no plugin provides it.
        """
        if interface not in self._providers:
            self._providers[interface] = next(
                (plugin for _, plugin in reversed(self.manager.list_name_plugin())
                 if plugin is not None and interface.providedBy(plugin)), None)
        return self._providers[interface]

    def freeze(self) -> None:
        """Discard the bindings for the previous plugins; called when the plugins change."""
        #: The plugin that provides each interface, once it was looked up.
        self._providers: dict[Any, Any] = {}

    @property
    def plugin_names(self) -> list[str]:
        """Return the plugins in use, in the order of registration."""
        return [name for name, plugin in self.manager.list_name_plugin() if plugin is not None]

    def _implementations(self, hook: str) -> tuple[Implementation, ...]:
        """Return a hook's implementations in call order; each takes all arguments of the hook."""
        names = list(inspect.signature(getattr(hookspecs, hook)).parameters)
        caller = getattr(self.manager.hook, hook)
        is_declaration = KINDS[hook].is_declaration
        return tuple(
            Implementation(impl.plugin_name, _with_all_arguments(impl.function, impl.argnames,
                                                                 names))
            for impl in reversed(caller.get_hookimpls())
            # The methods of a class become hooks once its object is created.
            if is_declaration or not isinstance(impl.plugin, type)
        )

    def _call_one(
        self, hook: str, implementation: Implementation, *arguments: object,
        passed: tuple[type[Exception], ...] = (),
    ) -> Any:
        try:
            return implementation.call(*arguments)
        except passed:
            raise
        except FAULTS:
            self._raised(hook, implementation)
            return None

    def _notify(
        self, hook: str, implementations: tuple[Implementation, ...], *arguments: object
    ) -> None:
        """Call every implementation of a hook that has no answer, not even a Deferred."""
        for implementation in implementations:
            try:
                answer = implementation.call(*arguments)
            except FAULTS:
                self._raised(hook, implementation)
            else:
                if answer is not None:
                    self._wrong_answer(hook, implementation, answer, "None")

    def _notify_all(self, hook: str, *arguments: object) -> None:
        """Do the same for a rare hook, whose implementations are not kept."""
        self._notify(hook, self._implementations(hook), *arguments)

    def _raised(self, hook: str, implementation: Implementation) -> None:
        self.log.failure("plugin {plugin} raised in {hook}", plugin=implementation.plugin,
                         hook=hook)

    def _wrong_answer(
        self, hook: str, implementation: Implementation, answer: object, expected: str
    ) -> None:
        self.log.error("plugin {plugin} returned {answer} from {hook}, which is not {expected}",
                       plugin=implementation.plugin, answer=repr(answer), hook=hook,
                       expected=expected)


def _made(plugin: type[Any], server: object) -> object:
    """Create the object of a plugin; a class without a constructor gets no argument."""
    has_constructor = any("__init__" in vars(each) or "__new__" in vars(each)
                          for each in plugin.__mro__ if each is not object)
    instance: object = plugin(server) if has_constructor else plugin()
    return instance


def _with_all_arguments(
    function: Callable[..., Any], parameters: Sequence[str], given: Sequence[str]
) -> Callable[..., Any]:
    """Wrap a function that takes a subset of the arguments, so that it accepts all of them."""
    if list(parameters) == list(given):
        return function
    positions = [given.index(name) for name in parameters]

    def call(*arguments: object) -> Any:
        return function(*[arguments[position] for position in positions])

    return call
