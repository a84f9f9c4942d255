"""Requests for values and settings."""

from __future__ import annotations

from pathlib import Path

from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.config.setting_rows import NAMESRV_OPEN
from twistmq.broker.config.settings import Setting
from twistmq.broker.edge.boot import name_server_settings, namesrv_settings, up_settings
from twistmq.broker.edge.logs import level_filter
from twistmq.broker.edge.start_checks import namesrv_host_checks
from twistmq.broker.remoting.messages import Reply
from twistmq.broker.testing.disk import FaultyDisk
from twistmq.broker.testing.name_server import PortlessNameServer
from twistmq.protocol.bodies import KVTable
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.namesrv import GetKVConfigResponseHeader

FILE = "/ns/kvConfig.json"


class ValueRequestTests(SynchronousTestCase):
    """The requests 100, 101, 102 and 219."""

    def setUp(self) -> None:
        self.disk = FaultyDisk()
        self.server = PortlessNameServer(disk=self.disk)

    def ask(self, code: int, **fields: str) -> Reply:
        """Send a request about the namespace N."""
        return self.server.ask(code, {"namespace": "N", **fields})

    def test_a_value_is_put_read_and_deleted(self) -> None:
        """The value survives a restart."""
        self.assertEqual(self.ask(RequestCode.PUT_KV_CONFIG, key="k", value="v").code,
                         ResponseCode.SUCCESS)
        self.server = PortlessNameServer(disk=self.disk)
        self.assertEqual(self.ask(RequestCode.GET_KV_CONFIG, key="k").header,
                         GetKVConfigResponseHeader(value="v"))
        reply = self.ask(RequestCode.GET_KVLIST_BY_NAMESPACE)
        self.assertEqual(KVTable.decode(reply.body).table, {"k": "v"})
        self.ask(RequestCode.DELETE_KV_CONFIG, key="k")
        self.assertEqual(self.ask(RequestCode.GET_KV_CONFIG, key="k").code,
                         ResponseCode.QUERY_NOT_FOUND)
        self.assertEqual(self.ask(RequestCode.GET_KVLIST_BY_NAMESPACE).body, b'{"table":{}}')

    def test_what_is_not_there_is_said_as_apache_does(self) -> None:
        """Tools read the code and show the remark."""
        reply = self.ask(RequestCode.GET_KV_CONFIG, key="k")
        self.assertEqual((reply.code, reply.remark), (
            ResponseCode.QUERY_NOT_FOUND, "No config item, Namespace: N Key: k"))
        reply = self.ask(RequestCode.GET_KVLIST_BY_NAMESPACE)
        self.assertEqual((reply.code, reply.remark), (
            ResponseCode.QUERY_NOT_FOUND, "No config item, Namespace: N"))
        self.assertEqual(self.ask(RequestCode.DELETE_KV_CONFIG, key="k").code,
                         ResponseCode.SUCCESS)

    def test_a_value_that_cannot_be_kept_is_refused(self) -> None:
        """It does not exist afterwards either."""
        self.disk.room_bytes = 0
        reply = self.ask(RequestCode.PUT_KV_CONFIG, key="k", value="v")
        self.assertNotEqual(reply.code, ResponseCode.SUCCESS)
        self.assertIn(FILE, reply.remark or "")
        self.assertEqual(self.ask(RequestCode.GET_KV_CONFIG, key="k").code,
                         ResponseCode.QUERY_NOT_FOUND)

    def test_a_missing_field_is_named(self) -> None:
        """A key without a value is refused."""
        reply = self.ask(RequestCode.PUT_KV_CONFIG, key="k")
        self.assertEqual(reply.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("value", reply.remark or "")

    def test_values_are_logged_now_and_then(self) -> None:
        """First after a minute, then every ten; the line has numbers and no value."""
        self.ask(RequestCode.PUT_KV_CONFIG, key="k", value="secret")
        task = self.server.periodic_tasks()[1]
        self.assertEqual((task.first_ms, task.period_ms), (60_000, 600_000))
        with capturedLogs() as events:
            task.run(0)
        event, = events
        self.assertEqual((event["namespaces"], event["keys"]), (1, 1))
        self.assertGreater(event["size"], len("Nksecret"))
        self.assertNotIn("secret", formatEvent(event))


class SettingRequestTests(SynchronousTestCase):
    """The requests 318 and 319."""

    def setUp(self) -> None:
        self.file = Path(self.mktemp())
        self.server = PortlessNameServer()
        self.settings = self.server.settings
        self.settings.file = str(self.file)

    def update(self, text: str) -> Reply:
        """Change settings by a properties text."""
        return self.server.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=text.encode())

    def test_settings_are_read_as_properties(self) -> None:
        """The response has every setting with its value."""
        body = self.server.ask(RequestCode.GET_NAMESRV_CONFIG).body.decode()
        self.assertIn("\nscanNotActiveBrokerInterval=5000\n", body)
        self.assertIn(f"kvConfigPath={FILE}\n", body)

    def test_a_change_counts_at_once_and_is_saved(self) -> None:
        """The file has the changed values."""
        reply = self.update("orderMessageEnable=true\nkv.value_size_max=7\n")
        self.assertEqual(reply.code, ResponseCode.SUCCESS)
        self.assertTrue(self.settings.flag("orderMessageEnable"))
        self.assertEqual(self.file.read_text(),
                         "orderMessageEnable=true\nkv.value_size_max=7\n")

    def test_no_text_changes_nothing(self) -> None:
        """The response is a success."""
        self.assertEqual(self.update("").code, ResponseCode.SUCCESS)

    def test_black_listed_settings_are_refused(self) -> None:
        """The black list has the names of the setting and some fixed names; nothing is changed."""
        self.settings.put("configBlackList", "bindAddress;waitSecondsForService")
        for name in ("bindAddress", "waitSecondsForService", "kvConfigPath", "configStorePath",
                     "rocketmqHome", "configBlackList"):
            reply = self.update(f"orderMessageEnable=true\n{name}=1\n")
            self.assertEqual((reply.code, reply.remark), (
                ResponseCode.NO_PERMISSION, "Can not update config in black list."), msg=name)
        self.assertFalse(self.settings.flag("orderMessageEnable"))

    def test_only_open_settings_are_changed(self) -> None:
        """No client may make a change that prevents the next start."""
        for name, value in (
            ("bindAddress", "256.1.1.1"), ("plugins.enabled", "x"), ("plugins.disabled", "metrics"),
            ("listenPort", "1"), ("log.dir", "/dev/null"), ("tls.server.mode", "enforcing"),
            ("serverChannelMaxIdleTimeSeconds", "1"), ("scanNotActiveBrokerInterval", "1"),
            ("needWaitForService", "true"), ("waitSecondsForService", "2147483647"),
            ("log.files_max", "2147483647"), ("metricsExporterType", "PROM"),
        ):
            self.settings.add_rows(() if self.settings.has(name) else [
                Setting(name, "text", "", "Of a plugin.")])
            reply = self.update(f"orderMessageEnable=true\n{name}={value}\n")
            self.assertEqual(reply.code, ResponseCode.NO_PERMISSION, msg=name)
            self.assertIn(name, reply.remark or "")
        self.assertFalse(self.settings.flag("orderMessageEnable"))
        self.assertFalse(self.file.exists())

    def test_a_key_of_the_file_that_nothing_declares_is_not_changed(self) -> None:
        """A start refuses some of these keys, such as those of a controller."""
        self.server = PortlessNameServer({"enableControllerInNamesrv": "false"})
        reply = self.update("enableControllerInNamesrv=true\n")
        self.assertEqual(reply.code, ResponseCode.NO_PERMISSION)
        self.assertEqual(self.server.settings.unknown, {"enableControllerInNamesrv": "false"})

    def test_the_open_settings_start_again(self) -> None:
        """With every accepted value the file can be read at the next start."""
        up = up_settings(self.mktemp(), None, {})
        self.settings = name_server_settings(up)
        self.settings.start_checks += namesrv_host_checks("namesrv.port")
        self.server = PortlessNameServer(settings=self.settings)
        self.file = Path(up.text("configStorePath"))
        texts = ("true", "1", "0", "-1", "debug", "a=b", "twistmq=loud", "", "x" * 9000, ";,=,;")
        for name in sorted(NAMESRV_OPEN):
            for text in texts:
                if self.update(f"{name}={text}\n").code == ResponseCode.SUCCESS:
                    again = namesrv_settings(str(self.file), {})
                    level_filter(again)
        self.assertTrue(self.file.exists())

    def test_a_value_without_meaning_refuses_the_whole(self) -> None:
        """The remark names the setting."""
        for text in ("kv.value_size_max=long", "kv.value_size_max=0", "log.level=loud",
                     "orderMessageEnable=perhaps", "a=\\u12"):
            reply = self.update(f"enableTopicList=false\n{text}\n")
            self.assertEqual(reply.code, ResponseCode.SYSTEM_ERROR, msg=text)
            self.assertTrue(reply.remark, msg=text)
        self.assertTrue(self.settings.flag("enableTopicList"))
        self.assertFalse(self.file.exists())

    def test_a_change_that_cannot_be_saved_is_undone(self) -> None:
        """The remark names the file."""
        self.file.mkdir()
        reply = self.update("orderMessageEnable=true\n")
        self.assertEqual(reply.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn(str(self.file), reply.remark or "")
        self.assertFalse(self.settings.flag("orderMessageEnable"))

    def test_who_changed_settings_is_logged(self) -> None:
        """The log has the address, before anything is changed."""
        with capturedLogs() as events:
            self.update("orderMessageEnable=true\n")
        self.assertIn("127.0.0.1:50000", [event.get("peer") for event in events])
