"""From command-line settings to those of a start."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.edge import boot
from twistmq.broker.errors import BrokerError, SettingsError, StoreDamaged


class BrokerSettingsTests(SynchronousTestCase):
    """What makes a broker, and what does not."""

    def test_refused(self) -> None:
        """Each thing that makes no broker ends with Apache's status and words."""
        for overrides, status, text in [
            ({"brokerRole": "SLAVE"}, 253, "Slave's brokerId must be > 0"),
            ({"namesrvAddr": "nowhere"}, 253, "The Name Server Address[nowhere] illegal"),
            ({"namesrvAddr": "a:1;b:x"}, 253, "The Name Server Address[a:1;b:x] illegal"),
            ({"namesrvAddr": "a:65536"}, 253, "illegal"),
            ({"namesrvAddr": ":1"}, 253, "illegal"),
            ({"enableDLegerCommitLog": "true"}, 253, "enableDLegerCommitLog=true"),
            ({"enableControllerMode": "TRUE"}, 253, "enableControllerMode=true"),
            ({"enableDLegerCommitLog": "true", "enableControllerMode": "true"}, 252,
             "The config enableControllerMode and enableDLegerCommitLog cannot both be true."),
        ]:
            error = self.assertRaises(boot.StartRefused, boot.broker_settings, None, overrides)
            self.assertEqual(error.status, status, msg=repr(overrides))
            self.assertIn(text, str(error))

    def test_accepted(self) -> None:
        """Lists with blanks, open ends and IPv6 addresses are name servers."""
        for text in ("a:1", "a:1;b:2;", " a:1 ; [::1]:9876", "", " "):
            settings = boot.broker_settings(None, {"namesrvAddr": text})
            self.assertEqual(settings.text("namesrvAddr"), text.strip())

    def test_a_master_has_id_0(self) -> None:
        """Whatever id a master is given, it is 0; a slave keeps its own."""
        self.assertEqual(boot.broker_settings(None, {"brokerId": "3"}).int("brokerId"), 0)
        slave = boot.broker_settings(None, {"brokerId": "3", "brokerRole": "SLAVE"})
        self.assertEqual(slave.int("brokerId"), 3)
        self.assertEqual(slave.int("accessMessageInMemoryMaxRatio"), 30)

    def test_where_changes_are_saved(self) -> None:
        """In the file that was read, else where brokerConfigPath says."""
        file = Path(self.mktemp())
        file.write_text("brokerName=b\n")
        self.assertEqual(boot.broker_settings(str(file), {}).file, str(file))
        settings = boot.broker_settings(None, {"brokerConfigPath": "/x/y.properties"})
        self.assertEqual(settings.file, "/x/y.properties")


class UpSettingsTests(SynchronousTestCase):
    """One folder and one host for everything."""

    def test_defaults(self) -> None:
        """Everything is below the folder, on the loopback address, with no other name server."""
        data = Path(self.mktemp()).absolute()
        settings = boot.up_settings(str(data), None, {})
        self.assertEqual(settings.text("storePathRootDir"), str(data / "store"))
        self.assertEqual(boot.log_folder(settings), str(data / "logs"))
        for name in ("bindAddress", "brokerIP1", "brokerIP2"):
            self.assertEqual(settings.text(name), "127.0.0.1")
        self.assertEqual(settings.text("namesrvAddr"), "")
        self.assertFalse(data.exists())

    def test_given_values_win(self) -> None:
        """What the command line gives is used."""
        settings = boot.up_settings("d", None, {"bindAddress": "0.0.0.0", "log.dir": "/l",
                                                "storePathRootDir": "/s"})
        self.assertEqual(settings.text("bindAddress"), "0.0.0.0")
        self.assertEqual(settings.text("brokerIP1"), "127.0.0.1")
        self.assertEqual(settings.text("storePathRootDir"), "/s")
        self.assertEqual(boot.log_folder(settings), "/l")

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

    def test_file(self) -> None:
        """The -c file is where changes are saved."""
        file = Path(self.mktemp())
        file.write_text("listenPort=1\n")
        settings = boot.namesrv_settings(str(file), {"listenPort": "2"})
        self.assertEqual(settings.int("listenPort"), 2)
        self.assertEqual(settings.text("configStorePath"), str(file))
        self.assertEqual(settings.file, str(file))

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


class ExitStatusTests(SynchronousTestCase):
    """What a process ends with."""

    def test_statuses(self) -> None:
        """A store that cannot be loaded is told from what else can fail."""
        for error, status in [(StoreDamaged("x"), 253), (BrokerError("port"), 255),
                              (SettingsError("x"), 255), (ZeroDivisionError(), 255),
                              (boot.StartRefused(252, "x"), 252)]:
            self.assertEqual(boot.exit_status(error), status, msg=repr(error))

    def test_texts(self) -> None:
        """Our own errors speak for themselves; others are named."""
        self.assertEqual(boot.failure_text(StoreDamaged("the file x")), "the file x")
        self.assertEqual(boot.failure_text(ValueError("y")), "ValueError: y")
