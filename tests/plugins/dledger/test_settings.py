"""The settings of a group: those that are refused at the start, and their effects."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.edge import boot
from twistmq.broker.edge.services import load_hooks
from twistmq.broker.errors import SettingsError
from twistmq.broker.plugin.hooks import Hooks
from twistmq.broker.testing.kernel import KernelBox
from twistmq.plugins import dledger, ha
from twistmq.plugins.dledger.settings import group_notices, group_settings
from twistmq.protocol.codes import RequestCode

GROUP = {"enableDLegerCommitLog": "true", "dLegerGroup": "g", "dLegerSelfId": "n1",
         "dLegerPeers": "n0-10.0.0.1:40911;n1-10.0.0.2:40912; n2-10.0.0.3:40913;"}


def settings_of(**changes: str) -> boot.Settings:
    """The settings of a broker with the stock plugins."""
    settings = boot.broker_settings(None, {
        "brokerName": "b", "storePathRootDir": "/data", **GROUP, **changes})
    load_hooks(settings)
    return settings


def notices_of(**changes: str) -> list[str]:
    """The warnings about settings."""
    settings = settings_of(**changes)
    return group_notices(settings, group_settings(settings))


class GroupSettingsTests(SynchronousTestCase):
    """Apache's settings."""

    def test_members_and_ids(self) -> None:
        """The broker id of a slave is the number of the member plus one."""
        group = group_settings(settings_of(preferredLeaderId="n0;n2"))
        self.assertEqual(group.addresses, {
            "n0": "10.0.0.1:40911", "n1": "10.0.0.2:40912", "n2": "10.0.0.3:40913"})
        self.assertEqual((group.broker_id, group.preferred), (2, ("n0", "n2")))
        self.assertFalse(group.is_durable or group.quick_failover)
        self.assertEqual(group.of_peers().addresses, group.addresses)
        self.assertEqual(group.of_member().peers, ("n0", "n2"))

    def test_synced_entries_count_under_sync_flush(self) -> None:
        """The setting flushDiskType decides which entries a member counts as stored."""
        self.assertTrue(group_settings(settings_of(flushDiskType="SYNC_FLUSH")).of_member().durable)

    def test_the_log_is_in_the_folder_of_the_ledger(self) -> None:
        """All checks of the store read this folder."""
        self.assertEqual(settings_of().store_settings().commit_log_path, "/data/dledger-n1/data")
        self.assertEqual(settings_of(storePathDLedgerCommitLog="/fast").store_settings()
                         .commit_log_path, "/fast/dledger-n1/data")
        self.assertEqual(settings_of(enableDLegerCommitLog="false").store_settings()
                         .commit_log_path, "/data/commitlog")

    def test_wrong_settings_are_refused(self) -> None:
        """The error names the setting and the reason."""
        for changes, text in (
                ({"dLegerGroup": " "}, "dLegerGroup"),
                ({"dLegerSelfId": "n7"}, "is not in dLegerPeers"),
                ({"dLegerSelfId": "first"}, "is not a letter and a number"),
                ({"dLegerPeers": "n1-10.0.0.2"}, "is not ID-HOST:PORT"),
                ({"dLegerPeers": "n1"}, "is not ID-HOST:PORT"),
                ({"dLegerPeers": "1n-10.0.0.2:1;n1-h:2"}, "is not ID-HOST:PORT"),
                ({"dLegerPeers": "n1-h:1;n1-h:2"}, "has the member n1 twice"),
                ({"dLegerPeers": "n1-h:1;n2-h:1"}, "has the address h:1 twice"),
                ({"dLegerPeers": ""}, "is not in dLegerPeers: empty"),
                ({"preferredLeaderId": "n9"}, "names n9"),
                ({"storePathDLedgerCommitLog": "/a,/b"}, "names several folders")):
            error = self.assertRaises(SettingsError, settings_of, **changes)
            self.assertIn(text, str(error))

    def test_what_a_group_does_not_use_is_told(self) -> None:
        """A line names each such setting; a usual group of three has none."""
        self.assertEqual(notices_of(), [])
        for changes, text in (
                ({"dLegerPeers": "n0-h:1;n1-h:2"}, "dLegerPeers has 2 members"),
                ({"brokerRole": "SYNC_MASTER"}, "brokerRole=SYNC_MASTER is not used"),
                ({"enableSlaveActingMaster": "true"}, "enableSlaveActingMaster=true is not used")):
            [notice] = notices_of(**changes)
            self.assertTrue(notice.startswith(text), notice)

    def test_no_group_together_with_a_controller(self) -> None:
        """As in Apache's broker, the exit status is -4."""
        error = self.assertRaises(SettingsError, settings_of, enableControllerMode="true")
        self.assertEqual(boot.exit_status(error), boot.EXIT_CONFLICT)

    def test_without_the_plugin_a_group_is_refused(self) -> None:
        """A broker without the plugin must not pretend to be a member."""
        error = self.assertRaises(SettingsError, settings_of, **{"plugins.disabled": "dledger"})
        self.assertIn("not supported here", str(error))


class OtherPluginsTests(SynchronousTestCase):
    """A broker without a group, and the plugin ha in a group."""

    def test_without_a_group_the_plugin_has_no_hooks(self) -> None:
        """The appends and requests of an ordinary broker do not pass through the plugin."""
        box = KernelBox([("dledger", dledger.Plugin)])
        self.assertEqual(box.kernel.hooks.plugin_names, ["dledger"])
        self.assertIsNone(box.kernel.store.commit_log.framing)
        self.assertEqual(box.kernel.hooks.before_append, ())
        self.assertEqual(box.kernel.acknowledgement.stages, [])

    def test_ha_does_nothing_in_a_group(self) -> None:
        """The plugin ``ha`` opens no port and registers no requests."""
        class Member(dledger.Plugin):
            """The plugin without connections."""

            def __init__(self, broker: object) -> None:
                """Omit the hooks of a member."""

        plugins = [("ha", ha.Plugin), ("dledger", Member)]
        alone, member = KernelBox(plugins), KernelBox(plugins, GROUP)
        code = RequestCode.NOTIFY_BROKER_ROLE_CHANGED
        self.assertIn(code, alone.kernel.dispatcher.handlers)
        self.assertNotIn(code, member.kernel.dispatcher.handlers)
        self.assertNotEqual(alone.host.streams, {})
        self.assertEqual(member.host.streams, {})
        names = {task.name for task in member.kernel.periodic_tasks}
        self.assertNotIn("copy the master's tables", names)
        self.assertEqual([name for name in member.kernel.hooks.metrics() if "ha_" in name], [])
        member.stop()

    def test_an_unreadable_choice_of_the_folder_counts_as_none(self) -> None:
        """A plugin with a fault does not make a store of another kind."""
        class Faulty:
            """A plugin whose hook raises an error."""

            @staticmethod
            @dledger.hookimpl
            def choose_ledger_folder(settings: object) -> str | None:
                raise ValueError("a fault")

        hooks = Hooks([("faulty", Faulty)])
        self.assertIsNone(hooks.ledger_folder(boot.broker_settings(None, {})))
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
