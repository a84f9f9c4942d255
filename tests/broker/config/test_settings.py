"""Settings: their precedence, checks and changes at run time, and the rows themselves."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.config.apache_settings import UNREAD
from twistmq.broker.config.setting_rows import broker_rows, local_address, namesrv_rows, up_rows
from twistmq.broker.config.settings import Setting, SettingCheck, Settings, SettingValue
from twistmq.broker.errors import SettingsError
from twistmq.broker.store.settings import StoreSettings
from twistmq.tools.pages.settings_page import stock_plugin_rows

ROWS = (
    Setting("port", "int", 10911, "A port.", most=65_535, important=True),
    Setting("ratio", "float", 0.5, "A ratio.", most=1),
    Setting("switch", "flag", True, "A switch."),
    Setting("name", "text", "", "A name.", important=True),
    Setting("mode", "text", "slow", "A mode.", choices=("slow", "fast")),
    Setting("folder", "path", "~/x", "A folder."),
    Setting("plugins", "names", (), "Names."),
    Setting("computed", "text", lambda: "found", "Computed.", default_text="what is found"),
)


class LoadTests(SynchronousTestCase):
    """The sources of values."""

    def file(self, text: str) -> str:
        """Write a settings file with this text."""
        path = Path(self.mktemp())
        path.write_text(text)
        return str(path)

    def test_every_setting_has_its_default(self) -> None:
        """Without file and overrides every setting has its default."""
        settings = Settings.load(ROWS)
        self.assertEqual(settings.int("port"), 10911)
        self.assertEqual(settings.number("ratio"), 0.5)
        self.assertIs(settings.flag("switch"), True)
        self.assertEqual(settings.text("computed"), "found")
        self.assertEqual(settings.text("folder"), str(Path.home() / "x"))
        self.assertEqual(settings.names("plugins"), ())
        self.assertFalse(settings.is_given("port"))

    def test_the_command_line_wins_over_the_file(self) -> None:
        """The command line wins over the file, the file over the default."""
        file = self.file("port=1\nname=from file\nmode = fast\n")
        settings = Settings.load(ROWS, file, {"name": "given", "port": "2"})
        self.assertEqual(settings.int("port"), 2)
        self.assertEqual(settings.text("name"), "given")
        self.assertEqual(settings.text("mode"), "fast")
        self.assertTrue(settings.is_given("mode"))

    def test_texts_are_read_as_their_row_says(self) -> None:
        """Texts are converted as their rows say, without the blanks around them."""
        settings = Settings.load(ROWS, overrides={
            "port": " 0 ", "switch": "FALSE", "ratio": "1", "plugins": "a, b,,c", "folder": "~"})
        self.assertEqual(settings.int("port"), 0)
        self.assertIs(settings.flag("switch"), False)
        self.assertEqual(settings.number("ratio"), 1.0)
        self.assertEqual(settings.names("plugins"), ("a", "b", "c"))
        self.assertEqual(settings.text("folder"), str(Path.home()))

    def test_refused_values(self) -> None:
        """The error of an invalid value names the key, the value, the file and the line."""
        for line, why in [
            ("port=abc", "not a whole number"), ("port=1_0", "not a whole number"),
            ("port=", "not a whole number"), ("port=65536", "not from 0 to 65535"),
            ("port=-1", "not from 0 to 65535"), ("ratio=nan", "not from 0 to 1"),
            ("ratio=x", "not a number"), ("switch=yes", "not true or false"),
            ("mode=medium", "not one of slow, fast"),
        ]:
            file = self.file(f"# comment\n{line}\n")
            error = self.assertRaises(SettingsError, Settings.load, ROWS, file)
            for part in (line, f"{file}:2", why):
                self.assertIn(part, str(error), msg=line)

    def test_refused_override(self) -> None:
        """The error of an invalid override says that it is from the command line."""
        error = self.assertRaises(SettingsError, Settings.load, ROWS, None, {"port": "x"})
        self.assertIn("(command line)", str(error))

    def test_missing_file(self) -> None:
        """The error names the missing file."""
        error = self.assertRaises(SettingsError, Settings.load, ROWS, "/no/such.conf")
        self.assertIn("/no/such.conf", str(error))

    def test_unknown_keys(self) -> None:
        """An unknown key is kept, and is used when a row for it is added."""
        settings = Settings.load(ROWS, self.file("later=7\nnever=x\n"))
        self.assertEqual(settings.unknown, {"later": "7", "never": "x"})
        settings.add_rows([Setting("later", "int", 1, "Comes with a plugin.")])
        self.assertEqual(settings.int("later"), 7)
        self.assertEqual(settings.unknown, {"never": "x"})

    def test_unknown_key_that_turns_out_wrong(self) -> None:
        """The late meaning is checked too, and the error still knows file and line."""
        file = self.file("later=x\n")
        settings = Settings.load(ROWS, file)
        error = self.assertRaises(SettingsError, settings.add_rows,
                                  [Setting("later", "int", 1, "Comes with a plugin.")])
        self.assertIn(f"later=x ({file}:1)", str(error))

    def test_put_default(self) -> None:
        """A default for this run gives way to a value that was given."""
        settings = Settings.load(ROWS, overrides={"port": "5"})
        settings.put_default("port", 6)
        settings.put_default("name", "n")
        self.assertEqual((settings.int("port"), settings.text("name")), (5, "n"))

    def test_items_come_in_row_order_with_unknown_keys_last(self) -> None:
        """Settings are listed in the order of their rows, and unknown keys are listed last."""
        settings = Settings.load(ROWS, overrides={"zzz": "1", "plugins": "a,b"})
        self.assertEqual(settings.items(important_only=True), [("port", "10911"), ("name", "")])
        names = [name for name, _ in settings.items()]
        self.assertEqual(names, [*(row.name for row in ROWS), "zzz"])
        self.assertIn(("switch", "true"), settings.items())
        self.assertIn("plugins=a,b\n", settings.format())


class ForOthersTests(SynchronousTestCase):
    """Values in the shape their readers need."""

    def test_store_settings(self) -> None:
        """The store gets its values, paths absolute and queue files of whole entries."""
        store = Settings.load(broker_rows(), overrides={
            "storePathRootDir": "here", "mappedFileSizeConsumeQueue": "101",
            "flushDiskType": "SYNC_FLUSH", "checkCRCOnRecover": "false"}).store_settings()
        self.assertEqual(store.store_path_root_dir, str(Path.cwd() / "here"))
        self.assertEqual(store.commit_log_path, str(Path.cwd() / "here" / "commitlog"))
        self.assertEqual(store.mapped_file_size_consume_queue, 120)
        self.assertTrue(store.sync_flush)
        self.assertIs(store.check_crc_on_recover, False)

    def test_store_does_not_take_a_value(self) -> None:
        """The error has the name users know, and says where the value is from."""
        file = Path(self.mktemp())
        file.write_text("deleteWhen=99\n")
        settings = Settings.load(broker_rows(), file)
        error = self.assertRaises(SettingsError, settings.store_settings)
        self.assertEqual(str(error), f"deleteWhen=99 ({file}:1): the value must be hours of the "
                                     "day, 0 to 23, separated by semicolons")

    def test_store_defaults(self) -> None:
        """Where rows and store both have a default, it is the same."""
        store = Settings(broker_rows()).store_settings()
        self.assertEqual(store, StoreSettings(store_path_root_dir=str(Path.home() / "store")))

    def test_addresses_are_separated_by_semicolons(self) -> None:
        """Addresses are separated by semicolons; empty ones are none."""
        settings = Settings.load(broker_rows(), overrides={"namesrvAddr": "a:1; b:2;;"})
        self.assertEqual(settings.addresses("namesrvAddr"), ["a:1", "b:2"])


class UpdateTests(SynchronousTestCase):
    """Change while running, and writing back."""

    def setUp(self) -> None:
        """Settings from a file with a comment and an unknown key."""
        self.path = Path(self.mktemp())
        self.path.write_text("# my broker\nport = 1\nother=x\n")
        self.settings = Settings.load(ROWS, self.path)

    def test_an_update_returns_and_reports_the_changes(self) -> None:
        """What changed is returned and told."""
        told: list[dict[str, SettingValue]] = []
        self.settings.on_change.append(lambda changed: told.append(dict(changed)))
        changed = self.settings.update({"port": "2", "name": ""})
        self.assertEqual(changed, {"port": 2})
        self.assertEqual(told, [{"port": 2}])
        self.assertEqual(self.settings.int("port"), 2)

    def test_names_that_nobody_knows(self) -> None:
        """One with a slip, or of nothing at all, refuses the change and says which was meant."""
        for name, text in (
            ("nowhere", "nowhere: there is no such setting"),
            ("swich", "swich: there is no such setting, did you mean switch?"),
            ("PORT", "PORT: there is no such setting, did you mean port?"),
            ("", ": there is no such setting"),
        ):
            with self.assertRaises(SettingsError) as caught:
                self.settings.update({"port": "2", name: "1"})
            self.assertEqual(str(caught.exception), text)
        self.assertEqual((self.settings.int("port"), "nowhere" in self.settings.unknown),
                         (1, False))

    def test_names_that_nothing_reads(self) -> None:
        """One of Apache's broker is kept, shown and saved; so is one that the file has."""
        changes = {"sendMessageThreadPoolNums": "8", "other": "z"}
        self.assertEqual(self.settings.update(changes, save=True), {})
        again = Settings.load(ROWS, self.path)
        for settings in (self.settings, again):
            self.assertEqual(settings.unknown, changes)
            self.assertIn("sendMessageThreadPoolNums=8\n", settings.format())

    def test_unread_names(self) -> None:
        """None of them is a setting here."""
        rows = {row.name for row in (*up_rows(), *(
            row for _, plugin in stock_plugin_rows() for row in plugin))}
        self.assertEqual(UNREAD & rows, set())

    def test_update_is_all_or_nothing(self) -> None:
        """One value without meaning, and nothing changes."""
        self.assertRaises(SettingsError, self.settings.update, {"port": "2", "switch": "maybe"})
        self.assertEqual(self.settings.int("port"), 1)

    def test_read_at_the_start(self) -> None:
        """What is read at the start keeps its value; tools and the file are told the new one."""
        rows = (Setting("place", "text", "a", "Read once.", at_start=True), *ROWS)
        settings = Settings.load(rows, self.path)
        told: list[dict[str, SettingValue]] = []
        settings.on_change.append(lambda changed: told.append(dict(changed)))
        self.assertEqual(settings.update({"place": "b", "port": "2"}, save=True), {"port": 2})
        self.assertEqual((settings.text("place"), told), ("a", [{"port": 2}]))
        self.assertEqual(settings.pending(["port", "place"]), ["place"])
        self.assertIn("place=b\n", settings.format())
        self.assertEqual(Settings.load(rows, self.path).text("place"), "b")
        settings.update({"port": "3"}, save=True)
        self.assertIn("place=b\n", settings.format())
        settings.update({"place": "a"})
        self.assertEqual(settings.pending(["place"]), [])

    def test_a_check_sees_the_settings_as_the_next_start_would(self) -> None:
        """A check sees the settings as the next start would; what it refuses changes nothing."""
        def check(after: Settings) -> None:
            if after.text("place") == after.text("name"):
                raise SettingsError("place and name are the same")

        rows = (Setting("place", "text", "a", "Read once.", at_start=True), *ROWS)
        settings = Settings.load(rows, self.path)
        settings.checks.append(SettingCheck(("place", "name"), check))
        before, text = settings.format(), self.path.read_text()
        for changes in ({"place": "x", "name": "x"}, {"port": "2", "name": "a"}):
            self.assertRaises(SettingsError, settings.update, changes, save=True)
            self.assertEqual((settings.format(), self.path.read_text()), (before, text))
        settings.update({"place": "b", "name": "a"})
        self.assertRaises(SettingsError, settings.update, {"name": "b"})

    def test_checks_are_made_of_what_changes(self) -> None:
        """One that looks at nothing that changes is not made; a start makes all, in order."""
        settings = Settings.load(ROWS, self.path)
        made: list[str] = []
        for names in (("port", "name"), ("mode",), ()):
            check = SettingCheck(names, lambda after, names=names: made.append(",".join(names)))
            (settings.checks if names == ("mode",) else settings.start_checks).append(check)
        for changes, expected in (
            ({"name": "z"}, ["port,name", ""]), ({"name": "z"}, [""]),
            # A default counts as a change when it is first given, and not again.
            ({"mode": "slow", "port": "7"}, ["mode", "port,name", ""]), ({"mode": "slow"}, [""]),
            ({"mode": "fast"}, ["mode", ""]),
        ):
            made.clear()
            settings.update(changes)
            self.assertEqual(made, expected, msg=str(changes))
        made.clear()
        settings.check()
        self.assertEqual(made, ["mode", "port,name", ""])

    def test_what_is_new(self) -> None:
        """A check can tell what the running process has shown to be of use."""
        rows = (Setting("place", "text", "a", "Read once.", at_start=True), *ROWS)
        settings = Settings.load(rows, self.path)
        new: list[bool] = []
        settings.checks.append(SettingCheck((), lambda after: new.append(after.is_new("place"))))
        for place in ("a", "b", "b", "c"):
            settings.update({"place": place})
        settings.check()
        self.assertEqual(new, [False, True, False, True, True])

    def test_defaults_that_follow(self) -> None:
        """What is derived from a changed setting is what the next start would make of it."""
        def derive(settings: Settings) -> None:
            settings.put_default("folder", settings.text("name") + "/below")

        settings = Settings.load(ROWS)
        settings.derive = derive
        derive(settings)
        settings.update({"name": "/x"})
        self.assertIn("folder=/x/below\n", settings.format())
        settings.update({"folder": "/y"})
        settings.update({"name": "/z"})
        self.assertEqual(settings.text("folder"), "/y")

    def test_a_plugins_setting_is_text_until_the_plugin_is_there(self) -> None:
        """As the next start reads them: what a plugin declared is a text until it is there."""
        rate = Setting("mine.rate", "int", 5, "A rate.")
        self.settings.add_rows([rate])
        self.settings.update({"mine.rate": "7", "other": "y", "port": "9"})
        fresh = self.settings.without_plugins()
        self.assertEqual(fresh.unknown, {"mine.rate": "7", "other": "y"})
        self.assertEqual((fresh.int("port"), fresh.is_given("port"), fresh.has("mine.rate")),
                         (9, True, False))
        fresh.add_rows([rate])
        self.assertEqual((fresh.int("mine.rate"), self.settings.int("mine.rate")), (7, 7))
        self.assertRaises(SettingsError, self.settings.without_plugins().add_rows,
                          [Setting("mine.rate", "int", 5, "A rate.", most=6)])

    def test_what_cannot_be_saved_is_not_changed(self) -> None:
        """If the file cannot be written, no setting changes, and no listener is told."""
        told: list[object] = []
        self.settings.on_change.append(told.append)
        self.settings.file = f"{self.path}/below-a-file"
        self.assertRaises(SettingsError, self.settings.update, {"port": "2", "other": "y"},
                          save=True)
        self.assertEqual((self.settings.int("port"), self.settings.unknown["other"], told),
                         (1, "x", []))

    def test_the_file_gets_the_new_values_and_keeps_all_else(self) -> None:
        """The file gets the new values and keeps all else; the old one is beside it."""
        before = self.path.read_text()
        self.settings.update({"port": "2", "name": "b", "other": "y"})
        self.settings.save(["port", "name", "other"])
        self.assertEqual(self.path.read_text(), "# my broker\nport=2\nother=y\nname=b\n")
        self.assertEqual(Path(f"{self.path}.bak").read_text(), before)
        again = Settings.load(ROWS, self.path)
        self.assertEqual((again.int("port"), again.text("name")), (2, "b"))

    def test_save_without_file(self) -> None:
        """Settings that came from no file are saved to the one they are told, made with it."""
        settings = Settings.load(ROWS)
        settings.save(["port"])
        settings.file = str(Path(self.mktemp()) / "deep" / "broker.properties")
        settings.save(["port"])
        self.assertEqual(Path(settings.file).read_text(), "port=10911\n")

    def test_save_fails(self) -> None:
        """A file that cannot be written is an error that names it, and the old one stays."""
        self.settings.file = f"{self.path}/below-a-file"
        error = self.assertRaises(SettingsError, self.settings.save, ["port"])
        self.assertIn(self.settings.file, str(error))
        self.assertEqual(self.path.read_text(), "# my broker\nport = 1\nother=x\n")


class RowsTests(SynchronousTestCase):
    """The rows that there are."""

    def test_defaults_obey_their_rows(self) -> None:
        """Each default is a value its own row accepts, with one row for each name."""
        for rows in (broker_rows(), namesrv_rows(), up_rows()):
            self.assertEqual(len({row.name for row in rows}), len(rows))
            settings = Settings(rows)
            for name, text in settings.items():
                row = next(row for row in rows if row.name == name)
                if text or not row.default_text:
                    self.assertEqual(row.parse(text, "default"), row.default_value(), msg=name)

    def test_apache_defaults(self) -> None:
        """The settings that clients and tools notice have the defaults of Apache 5.3.3."""
        settings = Settings(broker_rows())
        for name, text in {
            "listenPort": "10911", "brokerClusterName": "DefaultCluster", "brokerPermission": "6",
            "defaultTopicQueueNums": "8", "maxMessageSize": "4194304",
            "mappedFileSizeCommitLog": "1073741824", "mappedFileSizeConsumeQueue": "6000000",
            "flushDiskType": "ASYNC_FLUSH", "brokerRole": "ASYNC_MASTER",
            "autoCreateTopicEnable": "true", "traceTopicEnable": "false",
        }.items():
            self.assertIn((name, text), settings.items(), msg=name)

    def test_apache_defaults_of_name_servers(self) -> None:
        """All that Apache's name server has, and this one reads, NettyServerConfig's among them."""
        settings = dict(Settings(namesrv_rows()).items())
        home = os.path.expanduser("~")
        for name, text in {
            "listenPort": "9876", "bindAddress": "0.0.0.0", "serverSocketBacklog": "1024",
            "serverChannelMaxIdleTimeSeconds": "120",
            "kvConfigPath": f"{home}/namesrv/kvConfig.json",
            "configStorePath": f"{home}/namesrv/namesrv.properties",
            "orderMessageEnable": "false", "returnOrderTopicConfigToBroker": "true",
            "scanNotActiveBrokerInterval": "5000", "supportActingMaster": "false",
            "notifyMinBrokerIdChanged": "false", "enableAllTopicList": "true",
            "enableTopicList": "true", "deleteTopicWithBrokerRegistration": "false",
            "needWaitForService": "false", "waitSecondsForService": "45",
            "configBlackList": "configBlackList;configStorePath;kvConfigPath",
        }.items():
            self.assertEqual(settings.pop(name), text, msg=name)
        # The others are ours, which have a dot in their names, or are of TLS.
        self.assertEqual([name for name in settings if "." not in name], [])
        connecting = dict(Settings(broker_rows()).items())
        for name, text in {"bindAddress": "0.0.0.0", "serverSocketBacklog": "1024",
                           "serverChannelMaxIdleTimeSeconds": "120",
                           "connectTimeoutMillis": "3000"}.items():
            self.assertEqual(connecting[name], text, msg=name)

    def test_apache_defaults_of_tls(self) -> None:
        """Those of TlsSystemConfig, at name servers and brokers."""
        for rows in (namesrv_rows(), broker_rows()):
            settings = dict(Settings(rows).items())
            for name, text in {
                "tls.server.mode": "permissive", "tls.test.mode.enable": "true",
                "tls.config.file": "/etc/rocketmq/tls.properties", "tls.enable": "false",
                "tls.server.need.client.auth": "none", "tls.server.authClient": "false",
                "tls.client.authServer": "false", "tls.server.certPath": "",
                "tls.server.keyPath": "", "tls.server.trustCertPath": "",
                "tls.client.certPath": "", "tls.client.keyPath": "",
                "tls.client.trustCertPath": "",
            }.items():
                self.assertEqual(settings[name], text, msg=name)

    def test_up_has_both(self) -> None:
        """``up`` knows every setting of the broker and of the name server."""
        up = {row.name for row in up_rows()}
        self.assertEqual({row.name for row in (*broker_rows(), *namesrv_rows())} - up, set())

    def test_local_address(self) -> None:
        """The host's own address is an IPv4 address."""
        self.assertEqual(len(local_address().split(".")), 4)


class GetterTests(SynchronousTestCase):
    """``settings.int("name")`` and its like in the product: mypy cannot check the name."""

    ROOT = Path(__file__).resolve().parents[3]
    #: The getters, and the kinds of settings that each may read.
    GETTERS = MappingProxyType({
        "int": {"int"}, "text": {"text", "path"}, "flag": {"flag"}, "names": {"names"},
        "number": {"int", "float"}, "addresses": {"text"}})

    def calls(self) -> Iterator[tuple[str, str, str]]:
        """Yield place, getter and name of each call with a literal name; options do not count."""
        for folder in ("broker", "plugins", "acl", "trace", "transaction"):
            for path in sorted((self.ROOT / folder).rglob("*.py")):
                for node in ast.walk(ast.parse(path.read_text())):
                    if (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
                            and node.func.attr in self.GETTERS and len(node.args) == 1
                            and isinstance(node.args[0], ast.Constant)
                            and isinstance(node.args[0].value, str)):
                        yield (f"{path.relative_to(self.ROOT)}:{node.lineno}", node.func.attr,
                               node.args[0].value)

    def test_each_getter_reads_a_setting_of_its_kind(self) -> None:
        """A name that no row declares, or of another kind, would raise when it is read."""
        kinds = {row.name: row.kind for row in (*broker_rows(), *namesrv_rows(), *up_rows())}
        kinds |= {row.name: row.kind for _, rows in stock_plugin_rows() for row in rows}
        calls = list(self.calls())
        self.assertGreater(len(calls), 200)
        self.assertEqual([call for call in calls
                          if kinds.get(call[2]) not in self.GETTERS[call[1]]], [])
