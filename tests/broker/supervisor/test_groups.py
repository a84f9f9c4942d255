"""The brokers of ``--group N``."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.edge import boot
from twistmq.broker.edge.services import load_hooks
from twistmq.broker.errors import SettingsError
from twistmq.broker.supervisor.child_command import ChildCommand, child_command
from twistmq.broker.supervisor.groups import members_of_command
from twistmq.broker.supervisor.members import GROUP_MAX, Member, member_count


def settings_of(**overrides: str) -> boot.Settings:
    """Return the settings of a command, which include the settings of plugins."""
    settings = boot.broker_settings(None, {
        "brokerName": "b", "storePathRootDir": "/data", "listenPort": "20911",
        "bindAddress": "127.0.0.1", **overrides})
    load_hooks(settings)
    return settings


def members(**overrides: str) -> list[Member]:
    """Return the members of a group of three."""
    return members_of_command(settings_of(**overrides), ChildCommand(3, None, {}, is_group=True))


class GroupTests(SynchronousTestCase):
    """Several brokers with one name."""

    def test_members_share_a_name_and_know_each_other(self) -> None:
        """Each member has its own store, ports and logs."""
        second = members()[1]
        self.assertEqual(second.name, "b-1")
        own = {
            "brokerName": "b", "listenPort": "20921", "haListenPort": "20922",
            "storePathRootDir": "/data/b-1", "log.dir": "/data/logs/b-1",
            "isolateLogEnable": "false", "settings.own_file": "/data/b-1/config/broker.conf",
            "enableDLegerCommitLog": "true", "dLegerGroup": "b", "dLegerSelfId": "n1",
            "dLegerPeers": "n0-127.0.0.1:20912;n1-127.0.0.1:20922;n2-127.0.0.1:20932",
            "dledger.quick_failover": "true"}
        self.assertEqual({name: second.values.get(name) for name in own}, own)

    def test_the_settings_are_those_of_a_member(self) -> None:
        """A broker can start with these settings."""
        command = ChildCommand(3, None, {"listenPort": "20911"}, is_group=True)
        for member in members():
            own = command.settings(member.values)
            load_hooks(own)
            own.check()
            self.assertEqual(own.text("brokerName"), "b")

    def test_a_given_fail_over_is_kept(self) -> None:
        """The user may choose Apache's fail-over."""
        self.assertNotIn("dledger.quick_failover",
                         members(**{"dledger.quick_failover": "false"})[0].values)

    def test_members_connect_to_an_address_and_not_to_all(self) -> None:
        """Brokers that listen everywhere reach each other at the loopback address."""
        self.assertIn("n0-127.0.0.1:20912", members(bindAddress="0.0.0.0")[0].values["dLegerPeers"])

    def test_brokers_that_are_no_group_stay_apart(self) -> None:
        """``--brokers`` gives each broker its own name."""
        apart = members_of_command(settings_of(), ChildCommand(3, None, {}))
        self.assertEqual([each.values["brokerName"] for each in apart], ["b-0", "b-1", "b-2"])
        self.assertNotIn("dLegerSelfId", apart[0].values)

    def test_what_cannot_be_a_group_is_refused(self) -> None:
        """An unknown port, one member id for all brokers, and a missing plugin are refused."""
        for overrides, text in (({"listenPort": "0"}, "leaves the ports of the brokers open"),
                                ({"dLegerSelfId": "n1"}, "dLegerSelfId"),
                                ({"plugins.disabled": "dledger"}, "needs the plugin dledger")):
            error = self.assertRaises(SettingsError, members, **overrides)
            self.assertIn(text, str(error))

    def test_the_number_is_odd(self) -> None:
        """An even number is a wrong command line."""
        self.assertEqual([member_count("1"), member_count("3"), member_count(str(GROUP_MAX))],
                         [1, 3, GROUP_MAX])
        for text in ("0", "2", "4", "auto", "-3", "", str(GROUP_MAX + 2)):
            error = self.assertRaises(SettingsError, member_count, text)
            self.assertEqual(boot.exit_status(error), boot.EXIT_USAGE)

    def test_a_command_has_brokers_or_a_group(self) -> None:
        """A command with both options is refused."""
        settings = settings_of()
        command = child_command(None, "broker", settings, None, {}, "3")
        assert command is not None
        self.assertEqual((command.count, command.is_group), (3, True))
        error = self.assertRaises(
            SettingsError, child_command, "3", "broker", settings, None, {}, "3")
        self.assertIn("cannot both", str(error))
