"""Checks that exclude a plugin: hooks that do not fit or never run, and conflicting settings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from types import ModuleType

import pluggy

from twistmq.broker.config.settings import Setting
from twistmq.broker.plugin.hook_kinds import KINDS

__all__ = ["misfit", "require_hooks_that_run", "require_object_or_class", "setting_fault"]


def require_object_or_class(plugin: object) -> None:
    """:raises PluginValidationError: when a plugin is a module or hides a hook."""
    if isinstance(plugin, ModuleType):
        raise pluggy.PluginValidationError(
            plugin, f"it is the module {plugin.__name__}: make its hooks methods of a class that "
            f"is called with its broker, and name that: {plugin.__name__}:CLASS")
    if not isinstance(plugin, type):
        return
    for name in dir(plugin):
        method = inspect.getattr_static(plugin, name)
        if not isinstance(method, (staticmethod, classmethod)):
            continue
        if hasattr(method, "twistmq_impl") and not hasattr(method.__func__, "twistmq_impl"):
            raise pluggy.PluginValidationError(
                plugin, f"{name} is not seen as a hook: write @{type(method).__name__} above "
                "@hookimpl")


def require_hooks_that_run(manager: pluggy.PluginManager, plugin: object) -> None:
    """:raises PluginValidationError: when a hook of the plugin would never run."""
    for caller in manager.get_hookcallers(plugin) or ():
        for impl in caller.get_hookimpls():
            if impl.plugin is not plugin:
                continue
            if impl.wrapper or impl.hookwrapper:
                raise pluggy.PluginValidationError(
                    plugin, f"{caller.name} is a wrapper: wrappers are not supported")
            if inspect.isgeneratorfunction(impl.function) or (
                    inspect.isasyncgenfunction(impl.function)):
                raise pluggy.PluginValidationError(
                    plugin, f"{caller.name} is a generator, and would never run: return the answer")
            if inspect.iscoroutinefunction(impl.function) and not KINDS[caller.name].may_wait:
                raise pluggy.PluginValidationError(
                    plugin, f"{caller.name} is async, but nothing waits for this hook")
            if (isinstance(plugin, type) and KINDS[caller.name].is_declaration
                    and inspect.isfunction(inspect.getattr_static(plugin, caller.name))):
                raise pluggy.PluginValidationError(
                    plugin, f"{caller.name} is called before there is a broker: make it a "
                    "@staticmethod or a @classmethod")


def misfit(error: BaseException) -> str:
    """Return in one line why a plugin does not fit; the text of pluggy shows objects."""
    text = " ".join(str(error).split())
    hook = re.match(r"unknown hook '\w+'", text)
    if hook is not None:
        return hook[0]
    arguments = re.search(r"for hook '(\w+)'.* Argument\(s\) \{(.+?)\} ", text)
    if arguments is not None:
        return f"hook {arguments[1]!r} has no argument {arguments[2]}"
    return text or type(error).__name__


def setting_fault(row: Setting, owners: Mapping[str, str]) -> str | None:
    """Return why a plugin may not declare a setting; None if it may.

    :param owners: the owner of each setting that is declared already, by the name of the setting.
    """
    owner = owners.get(row.name)
    if owner is not None:
        return f"the setting {row.name} is {owner}'s"
    if "." not in row.name and not row.source:
        return (f"the setting {row.name} has no dot in its name: such names are Apache's, and need "
                "the class they are from as source")
    return None
