"""The settings of the broker, and changes of them."""

from __future__ import annotations

from pathlib import Path

from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.config.settings import Settings
from twistmq.broker.constants import SETTINGS_SIZE_MAX
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.store import message
from twistmq.plugins import admin
from twistmq.protocol.bodies import DataVersion, RegisterBrokerBody, TopicConfig
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.headers.admin import GetBrokerConfigResponseHeader
from twistmq.protocol.headers.pull import PullMessageRequestHeader
from twistmq.protocol.headers.send import SendMessageRequestHeaderV2


class SettingsCase(SynchronousTestCase):
    """A broker whose settings were read from a file."""

    def setUp(self) -> None:
        self.box = KernelBox([("admin", admin.Plugin)], {"unknownToUs": "kept"})
        self.addCleanup(self.box.stop)
        self.kernel, self.settings = self.box.kernel, self.box.settings
        self.file = Path(self.mktemp())
        self.file.write_text("# mine\ntraceOn = true\n")
        self.settings.file = str(self.file)

    def update(self, text: str) -> RemotingCommand:
        return self.box.ask(RequestCode.UPDATE_BROKER_CONFIG, body=text.encode())

    def change(self, text: str) -> None:
        """Make a change that takes effect immediately."""
        reply = self.update(text)
        self.assertEqual((reply.code, reply.remark), (ResponseCode.SUCCESS, None))

    def shown(self) -> list[str]:
        return self.box.ask(RequestCode.GET_BROKER_CONFIG).body.decode().splitlines()

    def version(self) -> DataVersion:
        header = self.box.ask(RequestCode.GET_BROKER_CONFIG).header(GetBrokerConfigResponseHeader)
        return DataVersion.decode(header.version.encode())


class ReadTests(SettingsCase):
    """The request 26."""

    def test_a_properties_text_with_every_setting(self) -> None:
        """A properties text with every setting, unknown ones too."""
        lines = self.shown()
        self.assertIn("brokerName=broker-a", lines)
        self.assertIn("unknownToUs=kept", lines)
        self.assertEqual(len(lines), len(self.settings.items()))

    def test_the_header_says_how_often_the_settings_were_changed(self) -> None:
        """The header has the number of changes and the time of the last one."""
        self.assertEqual(self.version(), DataVersion(timestamp=self.box.now_ms))
        self.box.now_ms += 5
        self.change("traceOn=false")
        self.assertEqual(self.version(), DataVersion(timestamp=self.box.now_ms, counter=1))


class UpdateTests(SettingsCase):
    """The request 25."""

    def test_at_once_and_saved(self) -> None:
        """A change takes effect, is shown, and is written to the file, which keeps
        all other lines.
        """
        self.change("traceOn=false\nfileReservedTime=48\nunknownToUs=new\n")
        self.assertFalse(self.settings.flag("traceOn"))
        for line in ("traceOn=false", "fileReservedTime=48", "unknownToUs=new"):
            self.assertIn(line, self.shown())
        self.assertEqual(self.file.read_text(),
                         "# mine\ntraceOn=false\nfileReservedTime=48\nunknownToUs=new\n")

    def test_from_the_next_start_on(self) -> None:
        """A setting that is read only at the start is saved and shown, and the remark says so."""
        reply = self.update("flushDiskType=SYNC_FLUSH\ntraceOn=false\nbrokerName=other\n")
        self.assertEqual((reply.code, reply.remark), (
            ResponseCode.SUCCESS, "from the next start on: brokerName, flushDiskType"))
        self.assertEqual(self.settings.text("flushDiskType"), "ASYNC_FLUSH")
        self.assertIn("flushDiskType=SYNC_FLUSH", self.shown())
        again = Settings.load(self.settings.own_rows, self.file)
        self.assertEqual((again.text("flushDiskType"), again.text("brokerName")),
                         ("SYNC_FLUSH", "other"))

    def test_bad_values(self) -> None:
        """A bad value refuses the whole change with the reason; nothing is changed or written."""
        before, text = self.shown(), self.file.read_text()
        for bad, reason in (
            ("nowhere=1", "nowhere: there is no such setting"),
            ("fileReservedTime=soon", "is not a whole number"),
            ("fileReservedTime=-1", "is not from 0 to 2147483647"),
            ("traceOn=perhaps", "is not true or false"),
            ("flushDiskType=NEVER", "is not one of ASYNC_FLUSH, SYNC_FLUSH"),
            ("deleteWhen=25", "must be hours of the day"),
            ("storePathRootDir=\\u12", "four hexadecimal digits"),
        ):
            reply = self.update(f"autoCreateTopicEnable=false\n{bad}\n")
            self.assertEqual(reply.code, ResponseCode.SYSTEM_ERROR, bad)
            self.assertIn(reason, reply.remark or "")
        self.assertEqual((self.shown(), self.file.read_text()), (before, text))
        self.assertTrue(self.settings.flag("autoCreateTopicEnable"))
        self.assertEqual(self.version().counter, 0)

    def test_black_list(self) -> None:
        """A setting that no tool may change refuses the whole change."""
        self.settings.put("configBlackList", "brokerName;traceOn")
        for name in ("brokerName", "traceOn", "brokerConfigPath", "configBlackList",
                     "rocketmqHome"):
            reply = self.update(f"fileReservedTime=1\n{name}=x\n")
            self.assertEqual((reply.code, reply.remark), (
                ResponseCode.NO_PERMISSION, "Can not update config in black list."), name)
        self.assertEqual(self.settings.int("fileReservedTime"), 72)

    def test_file_that_cannot_be_written(self) -> None:
        """The remark names the file, and nothing is changed."""
        self.settings.file = f"{self.file}/below-a-file"
        reply = self.update("traceOn=false")
        self.assertEqual(reply.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn(self.settings.file, reply.remark or "")
        self.assertTrue(self.settings.flag("traceOn"))

    def test_a_change_that_is_too_long_is_not_parsed(self) -> None:
        """A change whose parsing would take too long is refused."""
        reply = self.update("traceOn=false\n" + "#" * SETTINGS_SIZE_MAX)
        self.assertEqual(reply.code, ResponseCode.INVALID_PARAMETER)
        self.assertIn(f"over the limit of {SETTINGS_SIZE_MAX}", reply.remark or "")
        self.assertTrue(self.settings.flag("traceOn"))

    def test_an_empty_text_changes_nothing(self) -> None:
        """An empty text changes nothing."""
        self.change("")
        self.assertEqual(self.file.read_text(), "# mine\ntraceOn = true\n")

    def test_values_are_not_logged(self) -> None:
        """The log names the tool and the settings, but no values, which may be secret."""
        with capturedLogs() as events:
            self.change("unknownToUs=secret-7")
        self.assertEqual([event["names"] for event in events if "names" in event],
                         ["unknownToUs"])
        self.assertNotIn("secret-7", repr(events))


class LiveTests(SettingsCase):
    """Changes that take effect immediately in parts of the broker that keep a copy."""

    def send(self, topic: str = "T", body: bytes = b"x") -> RemotingCommand:
        return self.box.ask(RequestCode.SEND_MESSAGE_V2, SendMessageRequestHeaderV2(
            producer_group="P", topic=topic, default_topic="TBW102", default_topic_queue_nums=1,
            queue_id=0, sys_flag=0, born_timestamp=1, flag=0, properties=""), body)

    def pull(self, group: str = "G") -> RemotingCommand:
        return self.box.ask(RequestCode.PULL_MESSAGE, PullMessageRequestHeader(
            consumer_group=group, topic="T", queue_id=0, queue_offset=0, max_msg_nums=32,
            sys_flag=4, commit_offset=0, suspend_timeout_millis=0, subscription="*",
            sub_version=0))

    def test_a_changed_broker_permission_reaches_clients_and_name_servers(self) -> None:
        """Clients and name servers get the new permission."""
        self.kernel.topic_config.update(TopicConfig("T", 1, 1, order=True), {})
        self.assertEqual(self.send().code, ResponseCode.SUCCESS)
        version = self.kernel.topic_config.data_version.counter
        self.change("brokerPermission=4")
        self.assertEqual(self.send().code, ResponseCode.NO_PERMISSION)
        self.assertEqual(self.pull().code, ResponseCode.SUCCESS)
        self.assertGreater(self.kernel.topic_config.data_version.counter, version)
        told = RegisterBrokerBody.decode(self.kernel.topic_config.registration(False)())
        self.assertEqual(
            told.topic_config_serialize_wrapper.topic_config_table["T"].perm, 4)
        self.change("brokerPermission=2")
        self.assertEqual(self.send().code, ResponseCode.SUCCESS)
        self.assertEqual(self.pull().code, ResponseCode.NO_PERMISSION)

    def test_permission_is_told_first(self) -> None:
        """The response is sent when the name servers have the permission."""
        told: Deferred[None] = Deferred()
        self.box.host.on_topic_change.append(lambda: told)
        tool = self.box.peer()
        self.assertIsNone(
            self.box.send(tool, RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4"))
        told.callback(None)
        self.assertEqual([reply.code for reply in self.box.late_replies(tool)], [0])

    def test_creation_on_demand(self) -> None:
        """Topics and groups are created automatically, or not."""
        self.change("autoCreateTopicEnable=false\nautoCreateSubscriptionGroup=false")
        self.assertEqual(self.send("New").code, ResponseCode.TOPIC_NOT_EXIST)
        self.kernel.topic_config.update(TopicConfig("T", 1, 1), {})
        self.assertEqual(self.pull("New").code, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
        self.change("autoCreateSubscriptionGroup=true")
        self.assertNotEqual(self.pull("New").code, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)

    def test_message_size(self) -> None:
        """The maximum body length applies in the handler and in the store."""
        self.change("maxMessageSize=10")
        self.assertEqual(self.send(body=bytes(11)).code, ResponseCode.MESSAGE_ILLEGAL)
        self.change("maxMessageSize=20")
        self.assertEqual(self.send(body=bytes(11)).code, ResponseCode.SUCCESS)

    def test_how_much_one_pull_brings(self) -> None:
        """The settings limit the messages of a pull."""
        for _ in range(8):
            self.kernel.append([message("T")])

        def count() -> int:
            return self.kernel.store.get_message("T", 0, 0, 32).message_count

        self.assertEqual(count(), 8)
        self.change("maxTransferCountOnMessageInMemory=3")
        self.assertEqual(count(), 3)
        self.change("maxTransferCountOnMessageInMemory=32\nmaxTransferBytesOnMessageInMemory=1")
        self.assertEqual(count(), 1)

    def test_the_setting_of_traces_is_live(self) -> None:
        """The setting tells clients whether to trace."""
        self.kernel.topic_config.update(TopicConfig("T", 1, 1), {})
        for on in ("false", "true"):
            self.change(f"traceOn={on}")
            self.assertEqual(self.send().fields()["TRACE_ON"], on)

    def test_store_keeps_its_place(self) -> None:
        """A setting that the store read at the start stays unchanged."""
        self.assertIsNotNone(self.update("storePathRootDir=/elsewhere").remark)
        self.change("fileReservedTime=1")
        store = self.kernel.store
        self.assertEqual((store.settings.store_path_root_dir, store.settings.file_reserved_time),
                         ("/store", 1))
        self.assertEqual(store.log_retention.settings.file_reserved_time, 1)
