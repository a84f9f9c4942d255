"""Finds the installed plugins and selects the ones that a server uses.

The plugins of a broker are entry points of the group ``twistmq``, and the plugins of a name server
are entry points of the group ``twistmq.namesrv``. A notice names every plugin that is left out: a
name that is not installed, a plugin that cannot be loaded, and stock plugins that
``plugins.enabled`` does not name.

Source: design of twistmq.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Final

from twisted.logger import Logger

from twistmq.broker.errors import FAULTS, SettingsError

__all__ = ["ENTRY_POINT_GROUP", "NAMESRV_GROUP", "FoundPlugins", "find_plugins"]

ENTRY_POINT_GROUP: Final = "twistmq"
NAMESRV_GROUP: Final = "twistmq.namesrv"

_log = Logger()


@dataclass(slots=True)
class FoundPlugins:
    """The result of :func:`find_plugins`."""

    #: Pairs of (name, plugin), stock plugins first, each kind sorted by name.
    plugins: list[tuple[str, object]] = field(default_factory=list)
    #: Notices for the operator, one line each.
    notices: list[str] = field(default_factory=list)


def find_plugins(
    enabled: Collection[str] | None = None, disabled: Collection[str] = (),
    group: str = ENTRY_POINT_GROUP,
) -> FoundPlugins:
    """Import the installed plugins.

    If a third party uses the name of a stock plugin for its own plugin, that plugin replaces the
    stock plugin.

    :param enabled: use only these names; None means all installed plugins.
    :param disabled: never use these names; this takes precedence.
    :param group: the group for the kind of server. A name that exists only for the other kind is
        ignored, because both kinds may share a settings file.
    :raises SettingsError: when a name of ``enabled`` is not installed or cannot be loaded.
    """
    points: dict[str, EntryPoint] = {}
    # The function is called only once, because it reads the metadata of all installed packages.
    every = entry_points()
    for point in sorted(every.select(group=group), key=_is_stock, reverse=True):
        points[point.name] = point
    installed = {point.name for each in (ENTRY_POINT_GROUP, NAMESRV_GROUP)
                 for point in every.select(group=each)}
    known_names = ", ".join(sorted(points)) or "none"
    missing = sorted(set(enabled or ()) - installed)
    if missing:
        raise SettingsError(
            f"plugins.enabled: {', '.join(missing)} not installed (known: {known_names})")
    result = FoundPlugins()
    absent = sorted(set(disabled) - installed)
    if absent:
        result.notices.append(
            f"plugins.disabled: {', '.join(absent)} not installed (known: {known_names})")
    off = sorted(name for name, point in points.items()
                 if enabled is not None and name not in enabled and name not in disabled
                 and _is_stock(point))
    if off:
        result.notices.append(
            f"plugins.enabled does not name the stock plugins {', '.join(off)}: they are off")
    names = [n for n in points if (enabled is None or n in enabled) and n not in disabled]
    names.sort(key=lambda name: (not _is_stock(points[name]), name))
    for name in names:
        try:
            result.plugins.append((name, _loaded(points[name])))
        except FAULTS as error:
            if enabled is not None:
                raise SettingsError(
                    f"plugins.enabled: {name} cannot be loaded: {error}") from error
            _log.failure("plugin {plugin} cannot be loaded, it is left out", plugin=name)
            result.notices.append(f"plugin {name} is left out: it cannot be loaded: "
                                  f"{' '.join(str(error).split()) or type(error).__name__}")
    return result


def _loaded(point: EntryPoint) -> object:
    """:raises TypeError: when the entry point names a module."""
    plugin: object = point.load()
    if isinstance(plugin, ModuleType):
        raise TypeError(
            f"{point.name} = {point.value} names a module: make its hooks methods of a class that "
            f"is called with its broker, and name that: {point.name} = {point.value}:CLASS")
    return plugin


def _is_stock(point: EntryPoint) -> bool:
    return point.value.startswith("twistmq.")
