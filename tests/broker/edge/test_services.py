"""The services a process can be: which plugins they have, which name servers they know."""

from __future__ import annotations

import types
from typing import ClassVar

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker import hookimpl
from twistmq.broker.edge import boot
from twistmq.broker.edge.services import load_hooks
from twistmq.broker.settings import Setting
from twistmq.broker.testing import BrokerTestCase


class LoadHooksTests(SynchronousTestCase):
    """Plugins and their settings."""

    def test_setting_of_the_kernel(self) -> None:
        """A plugin that takes one breaks no start: it is left out, and said to be."""
        settings = boot.broker_settings(None, {"flushDiskType": "SYNC_FLUSH"})
        bad = types.SimpleNamespace(register_settings=hookimpl(
            lambda: [Setting("flushDiskType", "text", "x", "Mine.")]))
        hooks = load_hooks(settings, [("cmdp", bad)])
        self.assertEqual(hooks.notices,
                         ["plugin cmdp is left out: the setting flushDiskType is the kernel's"])
        self.assertNotIn("cmdp", hooks.plugin_names)
        self.assertTrue(settings.store_settings().sync_flush)

    def test_what_nothing_reads(self) -> None:
        """TLS is refused, but not where a plugin reads its setting."""
        overrides = {"tls.server.mode": "enforcing"}
        self.assertRaises(boot.StartRefused, load_hooks, boot.broker_settings(None, overrides))
        tls = types.SimpleNamespace(register_settings=hookimpl(
            lambda: [Setting("tls.server.mode", "text", "permissive", "How.")]))
        settings = boot.broker_settings(None, overrides)
        self.assertIn("tls", load_hooks(settings, [("tls", tls)]).plugin_names)
        self.assertEqual(settings.text("tls.server.mode"), "enforcing")


class OwnNameServerTests(BrokerTestCase):
    """A broker that is also told its own name server's address."""

    settings: ClassVar[dict[str, str]] = {}

    def setUp(self) -> object:  # type: ignore[override]
        """The settings name a port that is free now."""
        from tests.broker.edge.test_namesrv_service import free_port

        port = free_port()
        self.settings = {"namesrv.port": str(port),  # type: ignore[misc]
                         "namesrvAddr": f"127.0.0.1:{port};localhost:{port};127.0.0.1:1"}
        return super().setUp()

    async def test_once(self) -> None:
        """It is registered with once; others stay."""
        self.assertEqual(self.service.broker.name_servers.addresses,
                         [self.namesrv_address, "127.0.0.1:1"])
