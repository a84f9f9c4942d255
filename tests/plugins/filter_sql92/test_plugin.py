"""The plugin in a broker: heartbeats, pulls, checks, restarts, and languages of other plugins."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.broker.request.test_filters import Equals
from tests.interop.capture_filter import heartbeat
from twistmq.broker import hookimpl
from twistmq.broker.testing.disk import MemoryDisk
from twistmq.broker.testing.kernel import KernelBox, Peer
from twistmq.broker.testing.raw_client import pull_header, records_of, send_header
from twistmq.plugins import filter_sql92, orderly, retry, schedule
from twistmq.plugins.filter_sql92 import consumer_filters, message_filters
from twistmq.protocol.bodies import CheckClientRequestBody, SubscriptionData
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.flags import PULL_SUSPEND
from twistmq.protocol.headers.client import UnregisterClientRequestHeader
from twistmq.protocol.headers.pull import PullMessageRequestHeader
from twistmq.protocol.properties import java_string_hash

BITMAPS = {"enableConsumeQueueExt": "true", "enableCalcFilterBitMap": "true"}


class EqualsPlugin:
    """A filter language of another plugin."""

    @hookimpl
    def register_filter_languages(self) -> Mapping[str, Any]:
        return {"EQUALS": Equals()}


class PluginTestCase(SynchronousTestCase):
    """A broker with the plugin, and a connection of a consumer."""

    settings: Mapping[str, str] = {}
    plugins: list[tuple[str, object]] = [  # noqa: RUF012
        ("filter_sql92", filter_sql92.Plugin), ("orderly", orderly.Plugin), ("retry", retry.Plugin),
        ("schedule", schedule.Plugin)]

    def setUp(self) -> None:
        self.disk = MemoryDisk()
        self.start()
        self.addCleanup(lambda: self.box.stop())

    def start(self) -> None:
        self.box = KernelBox(self.plugins, {"enablePropertyFilter": "true", **self.settings},
                             self.disk)
        self.consumer = self.box.peer()

    def subscribe(self, expression: str, version: int = 1, kind: str = "SQL92",
                  topic: str = "T", group: str = "g") -> None:
        reply = self.box.ask(RequestCode.HEART_BEAT, None, heartbeat("c", group, [
            {"topic": topic, "subString": expression, "subVersion": version,
             "expressionType": kind}]), self.consumer)
        self.assertEqual(reply.code, ResponseCode.SUCCESS)

    def send(self, body: bytes, topic: str = "T", **properties: str) -> None:
        self.box.now_ms += 1
        reply = self.box.ask(RequestCode.SEND_MESSAGE_V2, send_header(
            topic, self.box.now_ms, properties=properties), body)
        self.assertEqual(reply.code, ResponseCode.SUCCESS)

    def pull(self, offset: int = 0, version: int = 1, topic: str = "T",
             group: str = "g") -> tuple[int, list[bytes]]:
        """Pull the subscription of the group; :returns: the code and the bodies."""
        return self.answer(self.group_header(offset, version, topic, group))

    def group_header(
        self, offset: int, version: int = 1, topic: str = "T", group: str = "g", hold_ms: int = 0
    ) -> PullMessageRequestHeader:
        header = pull_header(topic, offset, group=group, hold_ms=hold_ms)
        header.sys_flag &= PULL_SUSPEND
        header.sub_version = version
        return header

    def answer(self, header: PullMessageRequestHeader) -> tuple[int, list[bytes]]:
        reply = self.box.ask(RequestCode.PULL_MESSAGE, header)
        return reply.code, [message.body for message in records_of(reply.body)]


class PullTests(PluginTestCase):
    """Pulls of groups that subscribed by heartbeats."""

    def test_a_group_gets_only_matching_messages(self) -> None:
        """A group gets the messages for which its expression is true; the others are skipped."""
        self.subscribe("n BETWEEN 2 AND 3")
        for number in range(5):
            self.send(b"%d" % number, n=str(number))
        self.send(b"none")
        self.assertEqual(self.pull(), (ResponseCode.SUCCESS, [b"2", b"3"]))
        self.assertEqual(self.pull(4), (ResponseCode.PULL_RETRY_IMMEDIATELY, []))

    def test_a_wrong_expression_has_no_filter(self) -> None:
        """A wrong expression has no filter; a version that has not arrived has another error."""
        self.send(b"1")
        self.subscribe("n >")
        self.assertEqual(self.pull()[0], ResponseCode.FILTER_DATA_NOT_EXIST)
        self.subscribe("n > 1", 2)
        self.assertEqual(self.pull(version=2)[0], ResponseCode.PULL_RETRY_IMMEDIATELY)
        self.assertEqual(self.pull(version=3)[0], ResponseCode.SUBSCRIPTION_NOT_LATEST)
        self.subscribe("red", 4, "TAG")
        self.subscribe("n > 3", 3)
        group = self.box.kernel.clients.consumer_group("g")
        assert group is not None
        group.subscriptions["T"].expression_type = "SQL92"
        self.assertEqual(self.pull(version=4)[0], ResponseCode.FILTER_DATA_NOT_LATEST)

    def test_own_expression(self) -> None:
        """A pull may contain its own expression; a wrong or missing one is refused."""
        self.send(b"1", n="1")
        self.send(b"2", n="2")
        for expression, found in (
            ("n = 2", (ResponseCode.SUCCESS, [b"2"])),
            ("n = 3", (ResponseCode.PULL_RETRY_IMMEDIATELY, [])),
            ("n =", (ResponseCode.SUBSCRIPTION_PARSE_FAILED, [])),
            ("", (ResponseCode.SUBSCRIPTION_PARSE_FAILED, [])),
        ):
            self.assertEqual(self.answer(pull_header(
                "T", group="g", expression=expression, expression_type="SQL92")), found,
                msg=expression)

    def test_a_waiting_pull_is_woken_only_by_a_matching_message(self) -> None:
        """A waiting pull is woken only by a message for which its expression is true."""
        self.subscribe("n > 1")
        self.send(b"0", n="0")
        waiting: Peer = self.box.peer()
        self.assertIsNone(self.box.send(waiting, RequestCode.PULL_MESSAGE, self.group_header(
            1, hold_ms=15_000)))
        for properties in ({"n": "1"}, {"n": "many"}, {}):
            self.send(b"unwanted", **properties)
        self.assertEqual(self.box.late_replies(waiting), [])
        self.send(b"wanted", n="2")
        [reply] = self.box.late_replies(waiting)
        self.assertEqual([message.body for message in records_of(reply.body)], [b"wanted"])

    def test_group_that_leaves(self) -> None:
        """Its filter is marked as dead when the group leaves, and is used again when it returns."""
        self.subscribe("n > 1")
        filters: Any = self.box.kernel.filters.consumer_filters
        self.assertFalse(json_of(filters)["dead"])
        self.box.now_ms += 5
        self.box.ask(RequestCode.UNREGISTER_CLIENT, UnregisterClientRequestHeader(
            client_id="c", consumer_group="g"), b"", self.consumer)
        self.assertEqual(json_of(filters)["deadTime"], self.box.now_ms)
        self.subscribe("n > 1")
        self.assertFalse(json_of(filters)["dead"])

    def test_heartbeat_without_subscriptions(self) -> None:
        """A heartbeat without subscriptions changes nothing."""
        self.subscribe("n > 1")
        body = heartbeat("c", "g", []).replace(
            b'"clientID"', b'"heartbeatFingerprint": 7, "withoutSub": true, "clientID"')
        self.box.ask(RequestCode.HEART_BEAT, None, body, self.consumer)
        self.assertFalse(json_of(self.box.kernel.filters.consumer_filters)["dead"])

    def test_filters_are_there_before_the_first_heartbeat(self) -> None:
        """Filters are there before the first heartbeat, with the file of the stop."""
        self.subscribe("n > 1")
        self.box.stop()
        self.start()
        self.assertEqual(json_of(self.box.kernel.filters.consumer_filters)["expression"], "n > 1")

    def test_filters_are_saved_every_ten_seconds(self) -> None:
        """The filters are saved every ten seconds."""
        self.subscribe("n > 1")
        [task] = [each for each in self.box.kernel.periodic_tasks
                  if each.name == "save the filters of groups"]
        self.assertEqual((task.first_ms, task.period_ms), (10_000, 10_000))
        task.run(self.box.now_ms)
        self.assertIn(b"n > 1", self.disk.read_file("/store/config/consumerFilter.json"))


def json_of(filters: Any) -> Any:
    """Return the saved filter of the group g for the topic T."""
    return json.loads(filters.describe("g", "T"))


class RetryTopicTests(PluginTestCase):
    """Retries with filterSupportRetry."""

    settings = {"filterSupportRetry": "true"}  # noqa: RUF012

    def test_expression_of_the_real_topic(self) -> None:
        """A retry is delivered when the expression for its real topic is true."""
        reply = self.box.ask(RequestCode.HEART_BEAT, None, heartbeat("c", "g", [
            {"topic": topic, "subString": expression, "subVersion": 1}
            for topic, expression in (("T", "n > 1"), ("%RETRY%g", "n > 100"))]), self.consumer)
        self.assertEqual(reply.code, ResponseCode.SUCCESS)
        for body, properties in ((b"1", {"n": "1", "RETRY_TOPIC": "T"}),
                                 (b"2", {"n": "2", "RETRY_TOPIC": "T"}),
                                 (b"other", {"n": "1", "RETRY_TOPIC": "U"})):
            self.send(body, "%RETRY%g", **properties)
        self.assertEqual(self.pull(topic="%RETRY%g"), (ResponseCode.SUCCESS, [b"2", b"other"]))


class BitmapTests(PluginTestCase):
    """The bitmaps of entries in pulls."""

    settings = BITMAPS

    def setUp(self) -> None:
        # The bitmaps alone: what was said when messages were stored is not remembered.
        self.patch(consumer_filters, "_ANSWERS_MAX", -1)
        super().setUp()

    def read_records(self) -> list[int]:
        """Let the commit log be watched; :returns: where records are read, as it happens."""
        places: list[int] = []
        asked = message_filters.BitmapFilter.match_record

        def match_record(self: Any, data: Any) -> bool:
            places.append(len(data))
            return asked(self, data)

        self.patch(message_filters.BitmapFilter, "match_record", match_record)
        return places

    def test_records_are_spared(self) -> None:
        """Records whose bitmap excludes the group are not read; records without a bitmap are."""
        self.send(b"early", n="1")
        self.send(b"early too", n="9")
        self.subscribe("n > 5")
        for number in range(10):
            self.send(b"%d" % number, n=str(number))
        places = self.read_records()
        self.assertEqual(self.pull()[1], [b"early too", b"6", b"7", b"8", b"9"])
        self.assertEqual(len(places), 2 + 4)

    def test_changed_expression(self) -> None:
        """Bitmaps of the expression before do not count for the one now."""
        self.subscribe("n > 5")
        self.send(b"1", n="1")
        self.subscribe("n < 5", 2)
        self.send(b"2", n="2")
        self.send(b"9", n="9")
        self.assertEqual(self.pull(version=2)[1], [b"1", b"2"])

    def test_two_groups(self) -> None:
        """Each group has its own bits, and gets the same with and without bitmaps."""
        self.subscribe("n > 5")
        self.subscribe("n < 2", group="h")
        for number in range(10):
            self.send(b"%d" % number, n=str(number))
        self.assertEqual(self.pull()[1], [b"6", b"7", b"8", b"9"])
        self.assertEqual(self.pull(group="h")[1], [b"0", b"1"])

    def test_entries_that_recovery_made(self) -> None:
        """Entries that a recovery writes again have the bitmaps of the saved filters."""
        self.subscribe("n > 5")
        self.send(b"1", n="1")
        self.box.kernel.filters.consumer_filters.persist()  # type: ignore[union-attr]
        for number in range(2, 10):
            self.send(b"%d" % number, n=str(number))
        # The process is killed: entries and their units are lost with its memory.
        self.disk.forget_locks()
        self.start()
        self.subscribe("n > 5")
        places = self.read_records()
        self.assertEqual(self.pull()[1], [b"6", b"7", b"8", b"9"])
        self.assertEqual(len(places), 4)


class OtherLanguageTests(PluginTestCase):
    """The language of another plugin beside SQL92."""

    plugins = [*PluginTestCase.plugins, ("equals", EqualsPlugin())]  # noqa: RUF012
    settings = BITMAPS

    def test_a_language_of_another_plugin_filters_like_sql92(self) -> None:
        """It is checked, registered and saved, has bitmaps, and can replace SQL92
        and vice versa.
        """
        self.subscribe("colour=red", 1, "EQUALS")
        self.send(b"1", colour="red")
        self.send(b"2", colour="blue")
        self.assertEqual(self.pull(), (ResponseCode.SUCCESS, [b"1"]))
        self.subscribe("colour = 'blue'", 2)
        self.assertEqual(self.pull(version=2), (ResponseCode.SUCCESS, [b"2"]))
        self.subscribe("colour=red", 3, "EQUALS")
        self.box.stop()
        self.start()
        self.subscribe("colour=red", 3, "EQUALS")
        self.send(b"3", colour="red")
        self.assertEqual(self.pull(version=3), (ResponseCode.SUCCESS, [b"1", b"3"]))
        reply = self.box.ask(RequestCode.CHECK_CLIENT_CONFIG, body=CheckClientRequestBody(
            "c", "g", SubscriptionData("T", "red", expression_type="EQUALS")).encode_standard())
        self.assertEqual((reply.code, reply.remark),
                         (ResponseCode.SUBSCRIPTION_PARSE_FAILED, "no = in the expression"))


class OffTests(PluginTestCase):
    """A broker without enablePropertyFilter."""

    settings = {**BITMAPS, "enablePropertyFilter": "false"}  # noqa: RUF012

    def test_costs_nothing(self) -> None:
        """No filter, bitmap or task exists, and pulls are refused as by Apache's broker."""
        self.subscribe("n > 5")
        self.send(b"1", n="9")
        kernel = self.box.kernel
        self.assertIsNone(kernel.filters.consumer_filters)
        self.assertIsNone(kernel.store.dispatch.make_bitmap)
        self.assertFalse([task for task in kernel.periodic_tasks if "filter" in task.name])
        self.assertEqual(self.pull()[0], ResponseCode.SYSTEM_ERROR)
        self.assertFalse(self.disk.exists("/store/config/consumerFilter.json"))

    def test_parser_is_not_loaded(self) -> None:
        """The parser library is imported only for an expression."""
        code = ("import sys; from twistmq.plugins import filter_sql92; "
                "from twistmq.broker.testing.kernel import KernelBox; "
                "KernelBox([('f', filter_sql92.Plugin)]); assert 'lark' not in sys.modules; "
                "KernelBox([('f', filter_sql92.Plugin)], {'enablePropertyFilter': 'true'}); "
                "assert 'lark' in sys.modules")
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


class TagTests(PluginTestCase):
    """Tags, which are filtered by their hashes."""

    def test_two_tags_with_one_hash_both_come(self) -> None:
        """Two tags with one hash are both delivered, because the client compares the texts."""
        self.assertEqual(java_string_hash("Aa"), java_string_hash("BB"))
        for tag in ("Aa", "BB", "C"):
            self.send(tag.encode(), TAGS=tag)
        self.subscribe("Aa", kind="TAG")
        self.assertEqual(self.pull(), (ResponseCode.SUCCESS, [b"Aa", b"BB"]))
        self.subscribe("TAGS = 'Aa'", 2)
        self.assertEqual(self.pull(version=2), (ResponseCode.SUCCESS, [b"Aa"]))
