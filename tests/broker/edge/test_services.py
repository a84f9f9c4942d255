"""The services of a process: their plugins and their name servers."""

from __future__ import annotations

import types
from typing import ClassVar

from twisted.trial.unittest import SynchronousTestCase

from tests.interop.ports import free_port
from twistmq.broker import hookimpl
from twistmq.broker.config.settings import Setting
from twistmq.broker.edge import boot
from twistmq.broker.edge.services import load_hooks, load_namesrv_hooks
from twistmq.broker.errors import SettingsError
from twistmq.broker.testing import BrokerTestCase, running_broker
from twistmq.protocol.codes import RequestCode


class LoadHooksTests(SynchronousTestCase):
    """The plugins and their settings."""

    def test_setting_of_the_kernel(self) -> None:
        """A plugin that declares one is left out with a log line, and the start succeeds."""
        settings = boot.broker_settings(None, {"flushDiskType": "SYNC_FLUSH"})
        bad = types.SimpleNamespace(register_settings=hookimpl(
            lambda: [Setting("flushDiskType", "text", "x", "Mine.")]))
        hooks = load_hooks(settings, [("cmdp", bad)])
        self.assertEqual(hooks.notices,
                         ["plugin cmdp is left out: the setting flushDiskType is the kernel's"])
        self.assertNotIn("cmdp", hooks.plugin_names)
        self.assertTrue(settings.store_settings().sync_flush)

    def test_what_nothing_reads(self) -> None:
        """Policies are refused, but not where a plugin reads their setting."""
        overrides = {"authorizationEnabled": "true", "plugins.disabled": "auth"}
        self.assertRaises(boot.StartRefused, load_hooks, boot.broker_settings(None, overrides))
        acl = types.SimpleNamespace(register_settings=hookimpl(
            lambda: [Setting("authorizationEnabled", "flag", False, "How.", source="AuthConfig")]))
        settings = boot.broker_settings(None, overrides)
        self.assertIn("acl_2", load_hooks(settings, [("acl_2", acl)]).plugin_names)
        self.assertTrue(settings.flag("authorizationEnabled"))


class NamesrvHooksTests(SynchronousTestCase):
    """The plugins of a name server."""

    def test_alone_it_reads_its_own(self) -> None:
        """Alone it reads its own; beside a broker what the process was given, also what it alone
        declares, and a value without a meaning stops either."""
        rows = [Setting("mine.rate", "int", 1, "How fast.", most=9)]
        mine = types.SimpleNamespace(register_settings=hookimpl(lambda: rows))
        given = {"mine.rate": "7", "metricsExporterType": "PROM"}
        alone = boot.namesrv_settings(None, given)
        self.assertEqual(load_namesrv_hooks(alone, [("mine", mine)]).plugin_names,
                         ["metrics", "mine"])
        up = boot.up_settings(self.mktemp(), None, given)
        load_hooks(up)
        beside = boot.name_server_settings(up)
        load_namesrv_hooks(beside, [("mine", mine)], up=up)
        for settings in (alone, beside, up):
            self.assertEqual(settings.int("mine.rate"), 7)
            self.assertEqual(settings.text("metricsExporterType"), "PROM")
            self.assertEqual(settings.unknown, {})
        wrong = boot.namesrv_settings(None, {"mine.rate": "10"})
        self.assertRaises(SettingsError, load_namesrv_hooks, wrong, [("mine", mine)])

    def test_which_requests(self) -> None:
        """A plugin of a name server sees its requests, one of a broker sees the broker's."""
        seen: dict[str, set[int]] = {"broker": set(), "name server": set()}

        def plugin(name: str) -> types.SimpleNamespace:
            return types.SimpleNamespace(before_request=hookimpl(
                lambda request: seen[name].add(request.command.code)))

        with running_broker(plugins=[("mine", plugin("broker"))],
                            namesrv_plugins=[("mine", plugin("name server"))]) as broker, \
                broker.client() as client:
            client.send("T", b"x")
        self.assertIn(RequestCode.REGISTER_BROKER, seen["name server"])
        self.assertEqual(seen["broker"], {RequestCode.SEND_MESSAGE_V2})


class OwnNameServerTests(BrokerTestCase):
    """A broker whose settings also name its own name server."""

    settings: ClassVar[dict[str, str]] = {}

    def setUp(self) -> object:  # type: ignore[override]
        """Choose a free port for the settings."""
        port = free_port()
        self.settings = {"namesrv.port": str(port),  # type: ignore[misc]
                         "namesrvAddr": f"127.0.0.1:{port};localhost:{port};127.0.0.1:1"}
        return super().setUp()

    async def test_the_own_name_server_is_registered_with_once(self) -> None:
        """The broker registers with it once; other name servers remain."""
        self.assertEqual(self.service.broker.name_servers.addresses,
                         [self.namesrv_address, "127.0.0.1:1"])

    async def test_others_change(self) -> None:
        """A change of namesrvAddr leaves this process's own name server in its place."""
        broker = self.service.broker
        broker.settings.update({"namesrvAddr": "127.0.0.1:2;127.0.0.1:3"})
        self.assertEqual(broker.name_servers.addresses,
                         [self.namesrv_address, "127.0.0.1:2", "127.0.0.1:3"])
