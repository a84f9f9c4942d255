"""Which plugins are installed, and which of them a broker uses.

A broker's plugins are entry points of the group ``twistmq``, a name server's of the group
``twistmq.namesrv``. A notice names every plugin that is left out: a name that is not installed, a
plugin that cannot be loaded, stock plugins that ``plugins.enabled`` does not name.

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

    #: (name, plugin), stock plugins first, each kind by name.
    plugins: list[tuple[str, object]] = field(default_factory=list)
    #: Notices for the operator, a line each.
    notices: list[str] = field(default_factory=list)


def find_plugins(
    enabled: Collection[str] | None = None, disabled: Collection[str] = (),
    group: str = ENTRY_POINT_GROUP,
) -> FoundPlugins:
    """Import the plugins that are installed.

    Where a third party gives a stock plugin's name to its own, that one is there and the stock one
    is not.

    :param enabled: only these names; None means all there are.
    :param disabled: never these names; that wins.
    :param group: of the kind of server that wants them. A name that only the other kind has is
        left out: one file of settings may be for both.
    :raises SettingsError: when a name of ``enabled`` is not installed or cannot be loaded.
    """
    points: dict[str, EntryPoint] = {}
    # It is asked once: each time it reads the metadata of everything that is installed.
    every = entry_points()
    for point in sorted(every.select(group=group), key=_is_stock, reverse=True):
        points[point.name] = point
    installed = {point.name for each in (ENTRY_POINT_GROUP, NAMESRV_GROUP)
                 for point in every.select(group=each)}
    known = ", ".join(sorted(points)) or "none"
    missing = sorted(set(enabled or ()) - installed)
    if missing:
        raise SettingsError(f"plugins.enabled: {', '.join(missing)} not installed (known: {known})")
    found = FoundPlugins()
    absent = sorted(set(disabled) - installed)
    if absent:
        found.notices.append(
            f"plugins.disabled: {', '.join(absent)} not installed (known: {known})")
    off = sorted(name for name, point in points.items()
                 if enabled is not None and name not in enabled and name not in disabled
                 and _is_stock(point))
    if off:
        found.notices.append(
            f"plugins.enabled does not name the stock plugins {', '.join(off)}: they are off")
    names = [n for n in points if (enabled is None or n in enabled) and n not in disabled]
    names.sort(key=lambda name: (not _is_stock(points[name]), name))
    for name in names:
        try:
            found.plugins.append((name, _loaded(points[name])))
        except FAULTS as error:
            if enabled is not None:
                raise SettingsError(
                    f"plugins.enabled: {name} cannot be loaded: {error}") from error
            _log.failure("plugin {plugin} cannot be loaded, it is left out", plugin=name)
            found.notices.append(f"plugin {name} is left out: it cannot be loaded: "
                                 f"{' '.join(str(error).split()) or type(error).__name__}")
    return found


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
