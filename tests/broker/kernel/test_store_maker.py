"""The store, to which a plugin may give a ledger."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker import hookimpl
from twistmq.broker.api import Settings, SettingsError
from twistmq.broker.api.ledger import EntryLog
from twistmq.broker.plugin.hooks import Hooks
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.store import message


class Ledgers:
    """A plugin that chooses a folder by the name of the broker."""

    @staticmethod
    @hookimpl
    def choose_ledger_folder(settings: Settings) -> str | None:
        """Choose the folder."""
        if settings.text("brokerName") == "refused":
            raise SettingsError("no ledger for this name")
        if settings.text("brokerName") == "faulty":
            raise ValueError("a fault")
        return "/store/dledger-n0" if settings.text("brokerName") == "member" else None


class StoreMakerTests(SynchronousTestCase):
    """The hook ``choose_ledger_folder``."""

    def box(self, name: str) -> KernelBox:
        return KernelBox([("ledgers", Ledgers)], {"brokerName": name})

    def test_a_store_without_a_folder_has_an_ordinary_log(self) -> None:
        """Records are readable immediately."""
        box = self.box("b")
        self.assertNotIsInstance(box.kernel.store.commit_log, EntryLog)
        box.kernel.append([message("T", b"1")])
        self.assertEqual([each.body for each in box.stored("T", 0)], [b"1"])

    def test_a_store_with_a_folder_has_a_ledger(self) -> None:
        """Records are not readable before they are confirmed; the settings have the folder."""
        box = self.box("member")
        store = box.kernel.store
        assert isinstance(store.commit_log, EntryLog)
        self.assertEqual(store.commit_log.folder, "/store/dledger-n0")
        self.assertEqual(store.settings.commit_log_path, "/store/dledger-n0/data")
        box.kernel.append([message("T", b"1")])
        self.assertEqual(box.stored("T", 0), [])
        store.dispatch.advance_confirm_offset(store.commit_log.max_offset)
        self.assertEqual([each.body for each in box.stored("T", 0)], [b"1"])
        box.settings.update({"maxMessageSize": "2000"})
        self.assertEqual(store.settings.commit_log_path, "/store/dledger-n0/data")

    def test_a_refusal_stops_the_start(self) -> None:
        """The error contains the reason that the plugin gives."""
        self.assertIn("no ledger", str(self.assertRaises(SettingsError, self.box, "refused")))

    def test_a_fault_of_the_plugin_makes_no_other_store(self) -> None:
        """The fault is logged, and counts as no answer."""
        hooks = Hooks([("ledgers", Ledgers)])
        settings = KernelBox(settings={"brokerName": "faulty"}).settings
        self.assertIsNone(hooks.ledger_folder(settings))
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
