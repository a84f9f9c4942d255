"""The plugins that are installed and used, and the notices about the others."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any
from unittest import mock

from twisted.logger import LogEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.errors import SettingsError
from twistmq.broker.plugin.discovery import NAMESRV_GROUP, find_plugins

#: Classes that stand for plugins; the first two for stock ones.
CODES, ERRORS = "twistmq.protocol.codes:RequestCode", "twistmq.protocol.errors:BrokerError"
JSON, CSV, SHLEX = "json:JSONDecoder", "csv:Dialect", "shlex:shlex"


class FindPluginsTests(SynchronousTestCase):
    """The installed plugins, and those that are used."""

    def setUp(self) -> None:
        self.events: list[LogEvent] = []
        globalLogPublisher.addObserver(self.events.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.events.append)

    def find(
        self, points: Mapping[str, str] | list[tuple[str, str]], **arguments: Any
    ) -> list[str]:
        """Return the names that are found with these entry points, name to value."""
        rows = list(points.items()) if isinstance(points, Mapping) else points
        found = EntryPoints(EntryPoint(name, value, "twistmq") for name, value in rows)
        with mock.patch("twistmq.broker.plugin.discovery.entry_points", lambda: found):
            self.found = find_plugins(**arguments)
        return [name for name, _ in self.found.plugins]

    def test_stock_first(self) -> None:
        """Stock plugins come before those of third parties, each by name."""
        self.assertEqual(
            self.find({"a": JSON, "z": CODES, "b": CSV,
                       "y": ERRORS}),
            ["y", "z", "a", "b"])

    def test_third_party_replaces_stock(self) -> None:
        """A third party's plugin replaces the stock plugin of the same name."""
        for rows in ([("admin", JSON), ("admin", CODES)],
                     [("admin", CODES), ("admin", JSON)]):
            self.assertEqual(self.find([*rows, ("b", ERRORS)]), ["b", "admin"])
            self.assertEqual(self.found.plugins[1][1].__name__, "JSONDecoder")  # type: ignore[attr-defined]

    def test_enabled_and_disabled(self) -> None:
        """``enabled`` names all there may be; ``disabled`` wins."""
        points = {"a": JSON, "b": CSV, "c": SHLEX}
        self.assertEqual(self.find(points, enabled=["c", "a"]), ["a", "c"])
        self.assertEqual(self.find(points, enabled=[]), [])
        self.assertEqual(self.find(points, disabled=["a", "no such"]), ["b", "c"])
        self.assertEqual(self.find(points, enabled=["a", "b"], disabled=["a"]), ["b"])

    def test_those_of_a_name_server(self) -> None:
        """Each kind of server has its own; a name of the other kind is accepted and left out."""
        groups = {"twistmq": {"a": JSON, "b": CSV}, "twistmq.namesrv": {"b": CSV}}
        found = EntryPoints(EntryPoint(name, value, group) for group, rows in groups.items()
                            for name, value in rows.items())
        with mock.patch("twistmq.broker.plugin.discovery.entry_points", lambda: found):
            for enabled, disabled, wanted in (
                (None, [], ["b"]), (["a", "b"], [], ["b"]), (["a"], [], []), (None, ["b"], [])
            ):
                plugins = find_plugins(enabled, disabled, NAMESRV_GROUP)
                self.assertEqual([name for name, _ in plugins.plugins], wanted)
                self.assertEqual(plugins.notices, [], msg=enabled)
            error = self.assertRaises(SettingsError, find_plugins, ["c"], [], NAMESRV_GROUP)
            self.assertEqual(str(error), "plugins.enabled: c not installed (known: b)")
            self.assertEqual([name for name, _ in find_plugins(["a", "b"]).plugins], ["a", "b"])

    def test_enabled_that_is_not_installed(self) -> None:
        """A broker that lacks a plugin of the setting does not start."""
        error = self.assertRaises(SettingsError, self.find, {"a": JSON}, enabled=["a", "b", "c"])
        self.assertEqual(str(error), "plugins.enabled: b, c not installed (known: a)")

    def test_import_that_fails(self) -> None:
        """A plugin that cannot be imported is left out, unless the setting asks for it."""
        points = {"a": "twistmq_no_such_module", "b": JSON}
        self.assertEqual(self.find(points), ["b"])
        self.assertEqual([e["plugin"] for e in self.events if "plugin" in e], ["a"])
        self.assertEqual(len(self.flushLoggedErrors(ModuleNotFoundError)), 1)
        self.assertEqual(self.found.notices, [
            "plugin a is left out: it cannot be loaded: No module named "
            "'twistmq_no_such_module'"])
        error = self.assertRaises(SettingsError, self.find, points, enabled=["a"])
        self.assertIn("a cannot be loaded", str(error))

    def test_an_entry_point_that_names_a_module(self) -> None:
        """The notice says what to name instead; a plugin of the setting stops the start."""
        points = {"a": "json", "b": CSV}
        self.assertEqual(self.find(points), ["b"])
        self.assertEqual(len(self.flushLoggedErrors(TypeError)), 1)
        why = ("a = json names a module: make its hooks methods of a class that is called with its "
               "broker, and name that: a = json:CLASS")
        self.assertEqual(self.found.notices,
                         [f"plugin a is left out: it cannot be loaded: {why}"])
        error = self.assertRaises(SettingsError, self.find, points, enabled=["a"])
        self.assertEqual(str(error), f"plugins.enabled: a cannot be loaded: {why}")

    def test_stock_plugins_that_are_switched_off(self) -> None:
        """If the setting names only other plugins, a notice names the stock ones that are off."""
        points = {"mine": JSON, "s1": CODES, "s2": ERRORS}
        self.find(points)
        self.assertEqual(self.found.notices, [])
        self.assertEqual(self.find(points, enabled=["mine"]), ["mine"])
        self.assertEqual(self.found.notices, [
            "plugins.enabled does not name the stock plugins s1, s2: they are off"])
        self.find(points, enabled=["mine", "s1"], disabled=["s2"])
        self.assertEqual(self.found.notices, [])

    def test_disabled_that_is_not_installed(self) -> None:
        """A name that disables nothing is noticed."""
        self.find({"a": JSON}, disabled=["a", "nosuch"])
        self.assertEqual(self.found.notices,
                         ["plugins.disabled: nosuch not installed (known: a)"])
