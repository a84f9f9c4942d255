"""The settings in which the brokers of one command differ."""

from __future__ import annotations

import os
from collections.abc import Mapping

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.config.setting_rows import broker_rows, up_rows
from twistmq.broker.config.settings import Setting, Settings
from twistmq.broker.edge import boot
from twistmq.broker.edge.services import declare_plugins
from twistmq.broker.errors import SettingsError
from twistmq.broker.supervisor import members
from twistmq.broker.supervisor.child_command import ChildCommand, child_command
from twistmq.broker.supervisor.members import (
    BROKERS_MAX,
    broker_count,
    inner_values,
    members_of,
)


def settings_of(**overrides: str) -> Settings:
    """Return the settings of a command ``twistmq broker``."""
    return boot.broker_settings(None, {
        "brokerName": "b", "storePathRootDir": "/data", **overrides})


class CountTests(SynchronousTestCase):
    """The option ``--brokers``."""

    def test_a_number_is_taken(self) -> None:
        """A number is used as the number of brokers."""
        self.assertEqual([broker_count("1"), broker_count(str(BROKERS_MAX))], [1, BROKERS_MAX])

    def test_auto_leaves_a_core(self) -> None:
        """auto is one broker a core but one, and one on a machine of one core."""
        for cores, count in ((1, 1), (2, 1), (8, 7), (256, BROKERS_MAX)):
            self.patch(members, "usable_cores", lambda cores=cores: cores)
            self.assertEqual(broker_count("auto"), count)

    def test_everything_else_is_a_bad_command_line(self) -> None:
        """Zero, too many, a sign and a word are refused with status 1."""
        for text in ("0", str(BROKERS_MAX + 1), "-1", "two", "", "1.5"):
            error = self.assertRaises(SettingsError, broker_count, text)
            self.assertEqual(boot.exit_status(error), 1)
            self.assertIn(f"--brokers {text}", str(error))


class MembersTests(SynchronousTestCase):
    """The names, ports and folders of the brokers."""

    def test_names_ports_and_folders_follow_from_the_number(self) -> None:
        """Each broker has its own name, ports and store; its logs have its name."""
        members = members_of(settings_of(listenPort="20911"), 3)
        self.assertEqual([member.name for member in members], ["b-0", "b-1", "b-2"])
        self.assertEqual(members[2].values, {
            "brokerName": "b-2", "listenPort": "20931", "haListenPort": "20932",
            "storePathRootDir": "/data/b-2", "log.dir": "/data/logs", "log.output": "file",
            "isolateLogEnable": "true",
            "settings.own_file": "/data/b-2/config/broker.conf"})

    def test_the_port_0_stays(self) -> None:
        """The port 0 means a free port for each broker."""
        members = members_of(settings_of(listenPort="0", haListenPort="0"), 2)
        self.assertEqual([member.values["listenPort"] for member in members], ["0", "0"])

    def test_a_given_folder_of_the_commit_log_is_divided_too(self) -> None:
        """A commit log on another disk is in a folder by the broker's name."""
        members = members_of(settings_of(storePathCommitLog="/fast"), 2)
        self.assertEqual(members[1].values["storePathCommitLog"], "/fast/b-1")

    def test_the_row_of_a_plugin_says_how_its_values_differ(self) -> None:
        """A plugin's port differs between the brokers; the pages' ports follow the supervisor's
        port.
        """
        settings = settings_of()
        settings.add_rows([
            Setting("mine.port", "int", 7000, "", of_each="port"),
            Setting("mine.pages", "int", 8000, "", of_each="inner_port"),
            Setting("mine.host", "text", "0.0.0.0", "", of_each="inner_host"),
            Setting("mine.rate", "int", 5, "")])
        found = members_of(settings, 2)[1].values
        self.assertEqual({name: found.get(name) for name in (
            "mine.port", "mine.pages", "mine.host", "mine.rate")}, {
            "mine.port": "7010", "mine.pages": "8020", "mine.host": "127.0.0.1",
            "mine.rate": None})
        self.assertEqual(inner_values(settings, 2), {"mine.pages": 8030, "mine.host": "127.0.0.1"})

    def test_ports_that_meet_are_refused(self) -> None:
        """The VIP port of one is the port of another server; the error names both."""
        settings = Settings.load(up_rows(), None, {
            "brokerName": "b", "namesrv.port": "20919", "listenPort": "20911"})
        error = self.assertRaises(SettingsError, members_of, settings, 2)
        self.assertIn("listenPort=20911 (command line): the value gives the broker b-1 the port "
                      "20919, which the name server", str(error))
        self.assertEqual(len(members_of(settings, 1)), 1)

    def test_ports_of_pages_that_meet_are_refused(self) -> None:
        """Equal ports of brokers, supervisor and name server are refused if the
        pages are enabled.
        """
        rows = (Setting("mine.pages", "int", 0, "", of_each="inner_port", only_with="mine.on=true"),
                Setting("mine.on", "flag", True, ""))
        for pages, text in (
                (20921, "gives the broker b-1 the port 20921, which the supervisor"),
                (20901, "gives the broker b-0 the port 20911, which the broker b-0"),
                (20891, "gives the broker b-1 the port 20911, which the broker b-0"),
                (20881, "gives the name server the port 20911, which the broker b-0"),
                (20000, "gives the supervisor the port 20000, which the name server")):
            settings = Settings.load([*up_rows(), *rows], None, {
                "brokerName": "b", "listenPort": "20911", "namesrv.port": "20000",
                "mine.pages": str(pages)})
            settings.derive = boot._derive
            boot._derive(settings)
            error = self.assertRaises(SettingsError, members_of, settings, 2)
            self.assertIn(text, str(error))
            settings.put("mine.on", False)
            self.assertEqual(len(members_of(settings, 2)), 2)

    def test_folders_are_absolute(self) -> None:
        """A broker may start in another working directory than the command."""
        values = members_of(settings_of(storePathRootDir="d"), 1)[0].values
        self.assertEqual(values["storePathRootDir"], os.path.abspath("d/b-0"))
        self.assertEqual(values["settings.own_file"], os.path.abspath("d/b-0/config/broker.conf"))

    def test_all_have_the_folder_above_the_stores(self) -> None:
        """Each broker gets the folder above the stores, unless the settings name another one."""
        settings = settings_of()
        settings.add_rows([Setting("mine.home", "path", "", "", of_each="above_store")])
        self.assertEqual(members_of(settings, 2)[1].values["mine.home"], "/")
        settings.put("mine.home", "/home/mq")
        self.assertNotIn("mine.home", members_of(settings, 2)[1].values)

    def test_what_one_broker_can_have_is_refused(self) -> None:
        """Settings that only one broker can have, such as a master's address, are refused."""
        settings = settings_of(**{"mine.master": "h:1"})
        settings.add_rows([Setting("mine.master", "text", "", "", of_each="one_broker")])
        error = self.assertRaises(SettingsError, members_of, settings, 2)
        self.assertEqual(str(error), "mine.master=h:1 (command line): the value would apply to "
                                     "all 2 brokers, but may apply to only one")
        self.assertEqual(len(members_of(settings, 1)), 1)
        error = self.assertRaises(
            SettingsError, members_of, settings_of(**{"settings.own_file": "/f"}), 1)
        self.assertIn("settings.own_file=/f (command line): the value can apply to a "
                      "single broker only",
                      str(error))

    def test_masters_are_those_of_one_broker(self) -> None:
        """The settings of replication that name a master are refused with several brokers."""
        for name in ("haMasterAddress", "ha.master"):
            settings = settings_of(**{name: "10.0.0.1:10912"})
            declare_plugins("broker", settings)
            error = self.assertRaises(SettingsError, members_of, settings, 2)
            self.assertIn(f"{name}=10.0.0.1:10912", str(error))

    def test_ports_beyond_the_last_are_refused(self) -> None:
        """No port remains for the second broker."""
        error = self.assertRaises(
            SettingsError, members_of, settings_of(listenPort="65530", haListenPort="1"), 2)
        self.assertIn("leaves no port for the broker b-1", str(error))


def command_of(
    kind: str, settings: Settings, file: str | None, overrides: Mapping[str, str]
) -> ChildCommand:
    """Return the command of two brokers."""
    command = child_command("2", kind, settings, file, overrides)
    assert command is not None
    return command


class CommandTests(SynchronousTestCase):
    """The command line of a broker."""

    def test_one_broker_has_no_command_of_its_own(self) -> None:
        """Without --brokers the broker is in the process of the command."""
        self.assertIsNone(child_command(None, "broker", settings_of(), None, {}))
        self.assertEqual(command_of("broker", settings_of(), None, {}).count, 2)

    def test_own_settings_win_over_those_of_the_command(self) -> None:
        """A broker gets the settings of the command, followed by its own."""
        command = command_of("broker", settings_of(), None, {"brokerName": "b", "a": "1"})
        self.assertEqual(command.arguments({"brokerName": "b-0"}),
                         ["broker", "brokerName=b-0", "a=1"])

    def test_the_file_is_read_by_all(self) -> None:
        """The file of settings is given to each; secrets in it are on no command line."""
        file = os.path.abspath(self.mktemp())
        with open(file, "w") as stream:
            stream.write("tls.server.keyPassword=secret\nbrokerName=of-file\n")
        settings = boot.broker_settings(file, {})
        command = command_of("broker", settings, file, {})
        self.assertEqual(command.arguments({"listenPort": "1"}),
                         ["broker", "-c", file, "listenPort=1"])
        self.assertEqual(command.settings({"listenPort": "1"}).text("brokerName"), "of-file")

    def test_the_file_is_absolute(self) -> None:
        """twistd changes its working directory between the reading and the brokers' start."""
        with open("rel.conf", "w") as stream:
            stream.write("")
        command = command_of("broker", settings_of(), "rel.conf", {})
        self.assertEqual(command.file, os.path.abspath("rel.conf"))

    def test_a_file_that_is_gone_is_still_asked_for(self) -> None:
        """A missing file is an error at a restart, too; only DATA/broker.conf may be absent."""
        data, file = self.mktemp(), os.path.abspath(self.mktemp())
        for found in (command_of("broker", settings_of(), file, {}),
                      command_of("up", boot.up_settings(data, os.devnull, {}), file, {})):
            self.assertIn("-c", found.arguments({}))
        found = command_of("up", boot.up_settings(data, None, {}), None, {})
        self.assertNotIn("-c", found.arguments({}))
        os.mkdir(data)
        with open(f"{data}/broker.conf", "w") as stream:
            stream.write("")
        self.assertEqual(found.arguments({})[1:3], ["-c", f"{os.path.abspath(data)}/broker.conf"])

    def test_each_broker_saves_its_changes_in_its_own_file(self) -> None:
        """A setting that a tool changes in one broker is read only by the next start of that
        broker.
        """
        folder = os.path.abspath(self.mktemp())
        os.makedirs(folder)
        file = f"{folder}/broker.conf"
        with open(file, "w") as stream:
            stream.write("maxMessageSize=200\nbrokerRole=ASYNC_MASTER\n")
        overrides = {"brokerName": "b", "storePathRootDir": f"{folder}/store"}
        settings = boot.broker_settings(file, overrides)
        command = command_of("broker", settings, file, overrides)
        first, second = members_of(settings, 2)
        running = command.settings(first.values)
        self.assertTrue(running.is_read_back("brokerRole"))
        running.update({"maxMessageSize": "300"}, save=True)
        self.assertEqual(command.settings(first.values).int("maxMessageSize"), 300)
        self.assertEqual(command.settings(second.values).int("maxMessageSize"), 200)
        with open(file) as stream:
            self.assertIn("maxMessageSize=200", stream.read())
        given = command_of("broker", settings, file, {**overrides, "maxMessageSize": "100"})
        self.assertEqual(given.settings(first.values).int("maxMessageSize"), 100)

    def test_under_up_brokers_listen_where_up_does(self) -> None:
        """Brokers of ``up`` listen on the loopback address, and save settings in its file."""
        data = self.mktemp()
        overrides = {"namesrv.port": "1234", "defaultTopicQueueNums": "3"}
        settings = boot.up_settings(data, None, overrides)
        found = command_of("up", settings, None, overrides).arguments({})
        self.assertIn("bindAddress=127.0.0.1", found)
        self.assertIn("defaultTopicQueueNums=3", found)
        self.assertIn(f"brokerConfigPath={os.path.abspath(data)}/broker.conf", found)
        self.assertNotIn("namesrv.port=1234", found)
        names = {row.name for row in broker_rows()}
        for pair in found[1:]:
            self.assertIn(pair.partition("=")[0], names)
