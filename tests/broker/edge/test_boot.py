"""From command-line settings to those of a start."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.config.settings import Setting
from twistmq.broker.edge import boot
from twistmq.broker.errors import SettingsError, SettingUnavailable
from twistmq.protocol.errors import BrokerError, StoreDamaged


class BrokerSettingsTests(SynchronousTestCase):
    """What makes a broker, and what does not."""

    def test_each_invalid_start_ends_with_apaches_status_and_words(self) -> None:
        """Each thing that makes no broker ends with Apache's status and words."""
        for overrides, status, text in [
            ({"namesrvAddr": "nowhere"}, 253, "The Name Server Address[nowhere] illegal"),
            ({"namesrvAddr": "a:1;b:x"}, 253, "The Name Server Address[a:1;b:x] illegal"),
            ({"namesrvAddr": "a:65536"}, 253, "illegal"),
            ({"namesrvAddr": ":1"}, 253, "illegal"),
            ({"enableDLegerCommitLog": "true", "enableControllerMode": "true"}, 252,
             "The config enableControllerMode and enableDLegerCommitLog cannot both be true."),
        ]:
            error = self.assertRaises(boot.StartRefused, boot.broker_settings, None, overrides)
            self.assertEqual(error.status, status, msg=repr(overrides))
            self.assertIn(text, str(error))

    def test_a_role_in_replication_that_no_plugin_provides_is_refused(self) -> None:
        """Once plugins are known, with Apache's status."""
        for overrides, text in [
            ({"brokerRole": "SLAVE", "brokerId": "1"}, "brokerRole=SLAVE: there is no repl"),
            ({"brokerRole": "SYNC_MASTER"}, "brokerRole=SYNC_MASTER: there is no replication"),
            ({"enableDLegerCommitLog": "true"}, "enableDLegerCommitLog=true"),
            ({"enableControllerMode": "TRUE"}, "enableControllerMode=true"),
        ]:
            settings = boot.broker_settings(None, overrides)
            error = self.assertRaises(boot.StartRefused, boot.refuse_unread, settings)
            self.assertEqual(error.status, 253)
            self.assertIn(text, str(error))

    def test_slaves_are_told_the_address_that_the_port_is_opened_at(self) -> None:
        """Unless another one is given, or it is opened at all."""
        for given, told in (({"bindAddress": "127.0.0.1"}, "127.0.0.1"),
                            ({"bindAddress": "0.0.0.0", "brokerIP2": "10.0.0.9"}, "10.0.0.9"),
                            ({"bindAddress": "127.0.0.1", "brokerIP2": "10.0.0.9"}, "10.0.0.9"),
                            ({}, boot.broker_settings(None, {}).text("brokerIP1"))):
            self.assertEqual(boot.broker_settings(None, given).text("brokerIP2"), told)

    def test_a_plugin_provides_roles(self) -> None:
        """One of its settings says so; a slave still needs an id, and keeps it."""
        row = Setting("mine.replicas", "int", 1, "Of a plugin.", provides=(
            "brokerRole=SLAVE", "brokerRole=SYNC_MASTER"))
        for role, broker_id, kept, ratio in (
                ("SLAVE", "2", 2, 30), ("SYNC_MASTER", "2", 0, 40), ("ASYNC_MASTER", "1", 0, 40)):
            settings = boot.broker_settings(None, {"brokerRole": role, "brokerId": broker_id})
            settings.add_rows([row])
            boot.refuse_unread(settings)
            self.assertEqual(settings.int("brokerId"), kept)
            self.assertEqual(settings.int("accessMessageInMemoryMaxRatio"), ratio)
        for given, ratio in (("50", 40), ("5", 1)):
            settings = boot.broker_settings(None, {
                "brokerRole": "SLAVE", "brokerId": "2", "accessMessageInMemoryMaxRatio": given})
            self.assertEqual(settings.int("accessMessageInMemoryMaxRatio"), ratio)
        settings = boot.broker_settings(None, {"brokerRole": "SLAVE", "brokerId": "0"})
        settings.add_rows([row])
        error = self.assertRaises(boot.StartRefused, boot.refuse_unread, settings)
        self.assertEqual((error.status, str(error)), (253, "Slave's brokerId must be > 0"))
        settings = boot.broker_settings(None, {"enableDLegerCommitLog": "true"})
        settings.add_rows([Setting("enableDLegerCommitLog", "flag", False, "Of a plugin.",
                                   source="MessageStoreConfig")])
        boot.refuse_unread(settings)

    def test_lists_with_blanks(self) -> None:
        """Lists with blanks, open ends and IPv6 addresses are name servers."""
        for text in ("a:1", "a:1;b:2;", "a:1; ;b:2", " a:1 ; [::1]:9876", "", " "):
            settings = boot.broker_settings(None, {"namesrvAddr": text})
            self.assertEqual(settings.text("namesrvAddr"), text.strip())

    def test_changes_while_running(self) -> None:
        """What would keep the next start from being a broker's is refused, of `up` as well."""
        folder = self.mktemp()
        for settings in (boot.broker_settings(None, {}), boot.up_settings(folder, None, {})):
            before = settings.format()
            for changes in ({"namesrvAddr": "nowhere"}, {"brokerRole": "SLAVE"},
                            {"brokerName": "a b"}):
                self.assertRaises(SettingsError, settings.update, changes)
            self.assertEqual(settings.format(), before)
            settings.update({"namesrvAddr": "a:1", "brokerName": "other"})
        self.assertRaises(SettingsError, settings.update, {"namesrv.port": "10911"})

    def test_a_master_has_id_0(self) -> None:
        """Whatever id a master is given, it is 0."""
        self.assertEqual(boot.broker_settings(None, {"brokerId": "3"}).int("brokerId"), 0)

    def test_a_broker_and_its_cluster_have_names(self) -> None:
        """A broker and its cluster have names, of which routes and topics can be made."""
        for name in ("brokerName", "brokerClusterName"):
            for text in ("", "a b", "a/b", "a:1", "a;b", "a,b"):
                error = self.assertRaises(SettingsError, boot.broker_settings, None, {name: text})
                self.assertIn(f"{name}={text} (command line): ", str(error))
            for text in ("a", "host.example.com", "A-1_b", "\u4e2d"):
                self.assertEqual(boot.broker_settings(None, {name: text}).text(name), text)

    def test_derived_settings_are_shown_as_they_hold(self) -> None:
        """What -p and tools show is what holds: the log's folder, the replication port."""
        settings = boot.broker_settings(None, {"storePathRootDir": "/s", "listenPort": "5"})
        self.assertEqual(settings.text("storePathCommitLog"), "/s/commitlog")
        self.assertEqual(settings.int("haListenPort"), 6)
        settings = boot.broker_settings(None, {"storePathCommitLog": "/l", "haListenPort": "9"})
        self.assertEqual(settings.text("storePathCommitLog"), "/l")
        self.assertEqual(settings.int("haListenPort"), 9)
        for port, expected in (("0", 0), ("65535", 65_535)):
            settings = boot.broker_settings(None, {"listenPort": port})
            self.assertEqual(settings.int("haListenPort"), expected)

    def test_what_nothing_reads_and_nobody_may_miss(self) -> None:
        """A broker that is to be guarded, or to have another store, does not start without."""
        for overrides, text in [
            ({"authorizationEnabled": "TRUE"}, "authorizationEnabled=true: the plugin auth"),
            ({"storeType": "defaultRocksDB"}, "storeType=defaultRocksDB: "),
        ]:
            settings = boot.broker_settings(None, overrides)
            error = self.assertRaises(boot.StartRefused, boot.refuse_unread, settings)
            self.assertEqual(error.status, 253)
            self.assertIn(text, str(error))
            [name] = overrides
            settings.add_rows([Setting(name, "text", "", "A plugin's.")])
            boot.refuse_unread(settings)
        boot.refuse_unread(boot.broker_settings(None, {
            "authorizationEnabled": "false", "storeType": "default"}))

    def test_where_changes_are_saved(self) -> None:
        """In the file that was read, else where brokerConfigPath says."""
        file = Path(self.mktemp())
        file.write_text("brokerName=b\n")
        self.assertEqual(boot.broker_settings(str(file), {}).file, str(file))
        settings = boot.broker_settings(None, {"brokerConfigPath": "/x/y.properties"})
        self.assertEqual(settings.file, "/x/y.properties")

    def test_whether_the_next_start_reads_what_is_saved(self) -> None:
        """Not without -c, and not what the command line gives; ``up`` has a file of its own."""
        file = Path(self.mktemp())
        file.write_text("brokerRole=ASYNC_MASTER\n")
        found = boot.broker_settings(str(file), {"brokerId": "0"})
        self.assertTrue(found.is_read_back("brokerRole"))
        self.assertFalse(found.is_read_back("brokerId"))
        self.assertFalse(found.without_plugins().is_read_back("brokerId"))
        self.assertTrue(found.without_plugins().is_read_back("brokerRole"))
        self.assertFalse(boot.broker_settings(None, {}).is_read_back("brokerRole"))
        self.assertTrue(boot.up_settings(self.mktemp(), None, {}).is_read_back("brokerRole"))


class UpSettingsTests(SynchronousTestCase):
    """One folder and one host for everything."""

    def test_everything_is_below_the_folder(self) -> None:
        """Everything is below the folder, on the loopback address, with no other name server."""
        data = Path(self.mktemp()).absolute()
        settings = boot.up_settings(str(data), None, {})
        self.assertEqual(settings.text("storePathRootDir"), str(data / "store"))
        self.assertEqual(boot.log_folder(settings), str(data / "logs"))
        for name in ("bindAddress", "brokerIP1", "brokerIP2"):
            self.assertEqual(settings.text(name), "127.0.0.1")
        self.assertEqual(settings.text("namesrvAddr"), "")
        self.assertEqual(settings.text("brokerConfigPath"), str(data / "broker.conf"))
        self.assertFalse(data.exists())

    def test_given_values_win(self) -> None:
        """What the command line gives is used."""
        settings = boot.up_settings("d", None, {"bindAddress": "0.0.0.0", "log.dir": "/l",
                                                "storePathRootDir": "/s"})
        self.assertEqual(settings.text("bindAddress"), "0.0.0.0")
        self.assertEqual(settings.text("brokerIP1"), "127.0.0.1")
        self.assertEqual(settings.text("storePathRootDir"), "/s")
        self.assertEqual(boot.log_folder(settings), "/l")

    def test_log_folder_of_one_broker(self) -> None:
        """Brokers that share a folder for logs have one each in it when a setting says so."""
        for given, folder in (({}, "/d/logs"), ({"log.dir": "/l"}, "/l")):
            settings = boot.up_settings("/d", None, {
                **given, "isolateLogEnable": "true", "brokerName": "broker-a"})
            self.assertEqual(boot.log_folder(settings), f"{folder}/broker-a_0")

    def test_ports_of_one_process(self) -> None:
        """The name server's port cannot be one of the broker's two."""
        for port in ("5000", "4998"):
            error = self.assertRaises(SettingsError, boot.up_settings, "d", None,
                                      {"listenPort": "5000", "namesrv.port": port})
            self.assertIn(f"namesrv.port={port} (command line): ", str(error))
            self.assertIn("listenPort=5000", str(error))
        for ports in (("0", "0"), ("5000", "5001"), ("5000", "4999"), ("2", "0")):
            settings = boot.up_settings("d", None, dict(zip(
                ("listenPort", "namesrv.port"), ports, strict=True)))
            self.assertEqual(settings.int("namesrv.port"), int(ports[1]))

    def test_its_own_file(self) -> None:
        """Settings a tool changed are read again, unless another file is given."""
        data = Path(self.mktemp())
        first = boot.up_settings(str(data), None, {})
        first.update({"maxMessageSize": "100"})
        first.save(["maxMessageSize"])
        self.assertEqual(boot.up_settings(str(data), None, {}).int("maxMessageSize"), 100)
        other = Path(self.mktemp())
        other.write_text("")
        settings = boot.up_settings(str(data), str(other), {})
        self.assertEqual(settings.int("maxMessageSize"), 4 * 1024**2)
        self.assertEqual(settings.file, str(other))

    def test_name_server_part(self) -> None:
        """The name server has its port, its folder, and what both are told."""
        data = Path(self.mktemp()).absolute()
        up = boot.up_settings(str(data), None, {"namesrv.port": "0", "listenPort": "5",
                                                "scanNotActiveBrokerInterval": "7"})
        settings = boot.name_server_settings(up)
        self.assertEqual(settings.int("listenPort"), 0)
        self.assertEqual(settings.int("scanNotActiveBrokerInterval"), 7)
        self.assertEqual(settings.text("bindAddress"), "127.0.0.1")
        self.assertEqual(settings.text("kvConfigPath"), str(data / "namesrv/kvConfig.json"))
        self.assertIn("kvConfigPath", settings.text("configBlackList"))
        self.assertEqual(settings.file, str(data / "namesrv/namesrv.properties"))

    def test_name_server_reads_its_own_file(self) -> None:
        """What a tool changed in the name server is there after a restart."""
        up = boot.up_settings(str(Path(self.mktemp())), None, {})
        first = boot.name_server_settings(up)
        first.update({"waitSecondsForService": "9"})
        first.save(["waitSecondsForService"])
        self.assertEqual(boot.name_server_settings(up).int("waitSecondsForService"), 9)


class NamesrvSettingsTests(SynchronousTestCase):
    """The name server alone."""

    def test_the_c_file_is_where_changes_are_saved(self) -> None:
        """The -c file is where changes are saved."""
        file = Path(self.mktemp())
        file.write_text("listenPort=1\n")
        settings = boot.namesrv_settings(str(file), {"listenPort": "2"})
        self.assertEqual(settings.int("listenPort"), 2)
        self.assertEqual(settings.text("configStorePath"), str(file))
        self.assertEqual(settings.file, str(file))

    def test_under_up_the_name_server_gets_its_settings(self) -> None:
        """Under `up` it has what was given, with its place, and knows what was not."""
        given = boot.up_settings(self.mktemp(), None, {"tls.server.mode": "enforcing"})
        settings = boot.name_server_settings(given)
        self.assertEqual(settings.text("tls.server.mode"), "enforcing")
        self.assertFalse(settings.is_given("tls.test.mode.enable"))
        self.assertIn("tls.server.mode=enforcing (command line)",
                      str(settings.error("tls.server.mode", "is x")))

    def test_other_name_servers_are_refused(self) -> None:
        """What only Apache's name server can be is not left out in silence."""
        for name in ("clusterTest", "enableControllerInNamesrv"):
            for make in (lambda pairs: boot.namesrv_settings(None, pairs),
                         lambda pairs: boot.up_settings(self.mktemp(), None, pairs)):
                error = self.assertRaises(boot.StartRefused, make, {name: "TRUE"})
                self.assertEqual(error.status, 253)
                self.assertIn(f"{name}=true: ", str(error))
        settings = boot.namesrv_settings(None, {"clusterTest": "false"})
        self.assertEqual(settings.unknown, {"clusterTest": "false"})

    def test_log_folder(self) -> None:
        """Logs are beside the key-value file."""
        settings = boot.namesrv_settings(None, {"kvConfigPath": "/n/kv.json"})
        self.assertEqual(boot.log_folder(settings), "/n/logs")


class NoticeTests(SynchronousTestCase):
    """What is said before a server answers."""

    def up(self, **overrides: str) -> list[str]:
        """The notices of ``up``."""
        return boot.notices("up", boot.up_settings("d", None, overrides), ["of a plugin"])

    def test_the_defaults_give_no_notice(self) -> None:
        """Nothing is amiss with the defaults."""
        self.assertEqual(self.up(), ["of a plugin"])
        self.assertEqual(boot.notices("namesrv", boot.namesrv_settings(None, {})), [])

    def test_settings_that_nothing_reads_are_named(self) -> None:
        """Settings that nothing reads are named, and what was meant by a slip."""
        self.assertEqual(self.up(diskmaxusedspaceratio="5", flushDiskTyp="x", alpha="1")[1], (
            "settings that nothing here reads are kept: alpha, diskmaxusedspaceratio (did you "
            "mean diskMaxUsedSpaceRatio?), flushDiskTyp (did you mean flushDiskType?)"))

    def test_an_advertised_address_that_is_not_the_brokers_is_noticed(self) -> None:
        """Clients that are told an address at which the broker is not."""
        for listens, told, text in [
            ("0.0.0.0", "127.0.0.1", "clients on other hosts will not find the broker"),
            ("::", "localhost", "clients on other hosts will not find the broker"),
            ("127.0.0.1", "192.0.2.2", "the broker listens on bindAddress=127.0.0.1 only"),
            ("0.0.0.0", "0.0.0.0", "brokerIP1=0.0.0.0 is an address that no client can connect"),
        ]:
            [_, notice] = self.up(bindAddress=listens, brokerIP1=told)
            self.assertIn(text, notice)
        for listens, told in (("0.0.0.0", "192.0.2.2"), ("192.0.2.2", "192.0.2.2"),
                              ("127.0.0.1", "localhost")):
            self.assertEqual(self.up(bindAddress=listens, brokerIP1=told), ["of a plugin"])

    def test_when_a_send_is_acknowledged(self) -> None:
        """One line names the setting; there is none where the disk is waited for, or no send."""
        text = boot.durability_notice(boot.broker_settings(None, {"flushIntervalCommitLog": "77"}))
        for words in ("acknowledged before", "77 ms", "set flushDiskType=SYNC_FLUSH"):
            self.assertIn(words, text)
        self.assertNotIn("\n", text)
        self.assertEqual(boot.durability_notice(boot.up_settings("d", None, {
            "flushDiskType": "SYNC_FLUSH"})), "")
        self.assertEqual(boot.durability_notice(boot.broker_settings(None, {
            "brokerRole": "SLAVE", "brokerId": "1"})), "")

    def test_no_name_server(self) -> None:
        """A notice says that a single broker has no name server, so clients cannot find it."""
        alone = {"bindAddress": "127.0.0.1", "brokerIP1": "127.0.0.1", "namesrvAddr": ""}
        [notice] = boot.notices("broker", boot.broker_settings(None, alone))
        self.assertIn("no name server is given (-n HOST:PORT)", notice)
        settings = boot.broker_settings(None, {**alone, "namesrvAddr": "h:1"})
        self.assertEqual(boot.notices("broker", settings), [])


class ExitStatusTests(SynchronousTestCase):
    """What a process ends with."""

    def test_a_store_that_cannot_load_has_its_own_exit_status(self) -> None:
        """A store that cannot be loaded is told from what else can fail."""
        for error, status in [(StoreDamaged("x"), 253), (BrokerError("port"), 255),
                              (SettingsError("x"), 253),
                              (SettingUnavailable("x"), 255), (ZeroDivisionError(), 255),
                              (boot.StartRefused(252, "x"), 252)]:
            self.assertEqual(boot.exit_status(error), status, msg=repr(error))

    def test_our_own_errors_speak_for_themselves(self) -> None:
        """Our own errors speak for themselves; others are named."""
        self.assertEqual(boot.failure_text(StoreDamaged("the file x")), "the file x")
        self.assertEqual(boot.failure_text(ValueError("y")), "ValueError: y")
