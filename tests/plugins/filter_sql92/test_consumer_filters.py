"""The filters of groups: their versions, their removal, their file and their bitmaps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from tests.interop.capture_filter import CONSUMERS, COUNT, TOPIC, properties_of
from twistmq.broker.store.consume_queue import ENTRY
from twistmq.broker.store.extension_unit import ExtensionUnit, place_of
from twistmq.broker.testing.disk import MemoryDisk
from twistmq.broker.testing.kernel import KernelBox
from twistmq.plugins import filter_sql92
from twistmq.plugins.filter_sql92 import consumer_filters
from twistmq.plugins.filter_sql92.bodies import ConsumerFilterTable
from twistmq.plugins.filter_sql92.consumer_filters import ConsumerFilters
from twistmq.protocol.bodies import SubscriptionData
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.errors import RequestRefused, StoreDamaged
from twistmq.protocol.log_rate import EVENTS_A_MINUTE, LINES_A_MINUTE
from twistmq.protocol.properties import format_properties
from twistmq.protocol.record import MessageRecord, host_bytes

GOLDEN = Path(__file__).resolve().parents[2] / "golden/filter"
FILE = "/store/config/consumerFilter.json"
DAY_MS = 24 * 3600 * 1000


def sub(expression: str, version: int, topic: str = "T", kind: str = "SQL92") -> SubscriptionData:
    return SubscriptionData(topic, expression, sub_version=version, expression_type=kind)


def record(topic: str, properties: dict[str, str]) -> MessageRecord:
    host = host_bytes("127.0.0.1", 1)
    return MessageRecord(topic, 0, b"", format_properties(properties), 0, host, host, [])


class FiltersTestCase(SynchronousTestCase):
    """A broker whose filters are called by heartbeats and pulls."""

    settings: Mapping[str, str] = {}

    def setUp(self) -> None:
        self.disk = MemoryDisk()
        self.start()
        self.addCleanup(lambda: self.box.stop())

    def restart(self, **settings: str) -> None:
        self.box.stop()
        self.start(**settings)

    def start(self, **settings: str) -> None:
        self.box = KernelBox([("filter_sql92", filter_sql92.Plugin)], {
            "enablePropertyFilter": "true", **self.settings, **settings}, self.disk)
        self.kernel = self.box.kernel
        filters = self.kernel.filters.consumer_filters
        assert isinstance(filters, ConsumerFilters)
        self.filters = filters

    def data(self, topic: str = "T", group: str = "g") -> Any:
        """Return the data of a filter; None if it does not exist."""
        topics = self.filters.table().filter_data_by_topic
        return topics[topic].group_filter_data.get(group) if topic in topics else None

    def refusal(self, version: int = 0, topic: str = "T", group: str = "g") -> int:
        error = self.assertRaises(RequestRefused, self.filters.group_filter, group, topic, version)
        return error.response_code


class RegisterTests(FiltersTestCase):
    """Filters from heartbeats."""

    def test_a_groups_expression_holds_from_the_time_it_comes(self) -> None:
        """An expression applies from its heartbeat on; subscriptions by tags have no filter."""
        self.filters.register("g", [sub("a > 1", 5), sub("x || y", 6, "U", "TAG"),
                                    sub("", 7, "V")])
        data = self.data()
        self.assertEqual(
            (data.expression, data.expression_type, data.client_version, data.born_time,
             data.dead_time, data.dead, data.consumer_group, data.topic),
            ("a > 1", "SQL92", 5, self.box.now_ms, 0, False, "g", "T"))
        self.assertEqual(list(self.filters.table().filter_data_by_topic), ["T"])

    def test_lines_of_the_log(self) -> None:
        """Filters of ever new groups, good ones and bad ones, fill no log."""
        with capturedLogs() as events:
            for number in range(200):
                self.filters.register(f"g{number}", [sub("a > 1", 5), sub("a >", 6, "U")])
        lines = [str(event["log_format"]) for event in events]
        self.assertEqual([len([line for line in lines if words in line])
                          for words in ("filters {topic} by", "cannot filter")],
                         [EVENTS_A_MINUTE, LINES_A_MINUTE])

    def test_a_higher_version_changes_the_expression(self) -> None:
        """A higher version changes the expression, the same or a lower one does not."""
        self.filters.register("g", [sub("a > 1", 5)])
        born = self.box.now_ms
        self.box.now_ms += 10
        for version, expression, kept, version_after in (
            (4, "a > 4", "a > 1", 5), (5, "a > 5", "a > 1", 5), (6, "a > 1", "a > 1", 6),
        ):
            self.filters.register("g", [sub(expression, version)])
            data = self.data()
            self.assertEqual((data.expression, data.client_version, data.born_time),
                             (kept, version_after, born))
        self.filters.register("g", [sub("a > 7", 7)])
        data = self.data()
        self.assertEqual((data.expression, data.client_version, data.born_time),
                         ("a > 7", 7, born + 10))

    def test_a_wrong_expression_is_not_taken(self) -> None:
        """A wrong expression is refused, and removes the right one before it."""
        self.filters.register("g", [sub("a > 1", 5)])
        self.filters.register("g", [sub("a >", 5)])
        self.assertIsNotNone(self.data())
        self.filters.register("g", [sub("a >", 6)])
        self.assertIsNone(self.data())
        self.assertEqual(self.filters.table(), ConsumerFilterTable())
        self.filters.register("g", [sub("a > 1", 6, kind="SQL93")])
        self.assertEqual(self.refusal(), ResponseCode.FILTER_DATA_NOT_EXIST)

    def test_filters_die_with_their_group(self) -> None:
        """Filters die with their group, or when it leaves the topic; and live again."""
        self.filters.register("g", [sub("a > 1", 5), sub("b > 1", 5, "U")])
        self.filters.register("h", [sub("a > 2", 5)])
        self.box.now_ms += 1000
        self.filters.register("g", [sub("a > 1", 5)])
        self.assertEqual((self.data("U").dead_time, self.data("U").dead), (self.box.now_ms, True))
        self.assertEqual(self.data().dead_time, 0)
        died = self.box.now_ms
        self.box.now_ms += 1000
        self.filters.unregister("g")
        self.assertEqual((self.data("U").dead_time, self.data().dead_time),
                         (died, self.box.now_ms))
        self.assertFalse(self.data(group="h").dead)
        self.filters.register("g", [sub("a > 1", 5), sub("b > 1", 9, "U")])
        self.assertEqual([(self.data(topic).dead_time, self.data(topic).dead)
                          for topic in "TU"], [(0, False)] * 2)
        self.assertEqual(self.data("U").client_version, 9)

    def test_a_group_dead_for_a_day_is_removed_at_the_next_save(self) -> None:
        """A group that was offline for a day loses its filters when the file is written."""
        self.filters.register("g", [sub("a > 1", 5)])
        self.filters.unregister("g")
        self.box.now_ms += 1
        self.filters.register("h", [sub("a > 1", 5)])
        self.filters.unregister("h")
        self.box.now_ms += DAY_MS - 1
        self.filters.persist()
        self.assertEqual((self.data(), self.data(group="h") is None), (None, False))
        self.kernel.settings.update({"filterDataCleanTimeSpan": "0"})
        self.filters.persist()
        self.assertEqual(self.filters.table(), ConsumerFilterTable())


class PullTests(FiltersTestCase):
    """The filters of pulls."""

    def test_a_heartbeat_with_long_expressions_is_compiled_in_slices(self) -> None:
        """A heartbeat compiles only a few expressions; a pull compiles its own if it is earlier."""
        def long(number: int) -> str:
            return f"a = {number} OR " + " OR ".join(f"b = {each}" for each in range(200))

        compiled: list[str] = []
        compile_one = self.kernel.filters.compile

        def noting(kind: str, expression: str) -> Any:
            compiled.append(expression)
            return compile_one(kind, expression)

        self.patch(self.kernel.filters, "compile", noting)
        slices: list[Any] = []
        self.patch(self.kernel.slices, "run", lambda work: slices.append(work) or Deferred())
        subscriptions = [sub(long(number), 5, f"T{number}") for number in range(20)]
        self.filters.register("g", subscriptions)
        self.filters.register("g", subscriptions)
        self.assertLess(sum(map(len, compiled)), 10_000)
        self.assertEqual(len(slices), 1)
        passes = self.filters.group_filter("g", "T19", 5)
        self.assertTrue(passes.match_properties(format_properties({"a": "19"})))
        self.assertFalse(passes.match_properties(format_properties({"a": "18"})))
        for _ in slices[0]:
            continue
        self.assertEqual(sorted(compiled), sorted(map(long, range(20))))
        self.assertEqual(len(self.filters.table().filter_data_by_topic), 20)

    def test_what_waits_goes_with_its_group_and_its_topic(self) -> None:
        """An expression of a removed subscription or group is not compiled."""
        self.patch(self.kernel.slices, "run", lambda work: Deferred())
        long = " OR ".join(f"b = {each}" for each in range(450))
        self.filters.register("g", [sub(long, 5, topic) for topic in ("T", "U", "V")])
        self.filters.register("g", [sub(long, 5, topic) for topic in ("T", "U")])
        self.assertEqual(self.refusal(topic="V"), ResponseCode.FILTER_DATA_NOT_EXIST)
        self.filters.group_filter("g", "U", 5)
        self.filters.unregister("g")
        self.assertEqual(self.refusal(topic="T"), ResponseCode.FILTER_DATA_NOT_EXIST)

    def test_filters_of_dead_groups_have_a_limit(self) -> None:
        """If there are too many filters of offline groups, the oldest are removed."""
        self.patch(consumer_filters, "DEAD_CHARS_MAX", 100)
        self.filters.register("living", [sub("a = 1" + " " * 90, 5)])
        for number in range(8):
            self.box.now_ms += 1000
            self.filters.register(f"g{number}", [sub(f"a = {number}" + " " * 25, 5)])
            self.filters.unregister(f"g{number}")
        self.filters.persist()
        self.assertEqual([number for number in range(8) if self.data(group=f"g{number}")],
                         [5, 6, 7])
        self.assertIsNotNone(self.data(group="living"))

    def test_a_filter_that_is_missing_or_newer_is_refused(self) -> None:
        """A filter that does not exist, or is newer than the stored one, is refused."""
        self.filters.register("g", [sub("a > 1", 5)])
        self.assertEqual(self.refusal(6), ResponseCode.FILTER_DATA_NOT_LATEST)
        self.assertEqual(self.refusal(topic="U"), ResponseCode.FILTER_DATA_NOT_EXIST)
        self.assertEqual(self.refusal(group="h"), ResponseCode.FILTER_DATA_NOT_EXIST)
        self.filters.unregister("g")
        found = self.filters.group_filter("g", "T", 5)
        self.assertEqual([found.match_properties(f"a\x01{n}\x02") for n in (1, 2)], [False, True])

    def test_a_bitmap_counts_when_it_was_made_with_the_filter(self) -> None:
        """A bitmap counts when it was made with the filter, and has its length."""
        self.filters.register("g", [sub("a > 1", 5)])
        born = self.box.now_ms
        found = self.filters.group_filter("g", "T", 5)
        hit = self.filters.bitmaps.bitmap(record("T", {"a": "2"}))
        assert hit is not None
        self.assertEqual(len(hit), 14)
        miss = bytes(14)
        for bitmap, time, wanted in (
            (hit, born + 1, True), (miss, born + 1, False), (miss, born, True),
            (None, born + 1, True), (miss, None, True), (bytes(13), born + 1, True),
            (b"\xff" * 14, born + 1, True),
        ):
            self.assertEqual(found.match_queue_entry(0, time, bitmap), wanted)
        for bit in self.data().bloom_filter_data.bit_pos:
            less = bytearray(hit)
            less[bit // 8] &= ~(1 << bit % 8)
            self.assertFalse(found.match_queue_entry(0, born + 1, bytes(less)))

    def test_a_groups_filter_is_described_for_tools(self) -> None:
        """Tools can read the filter of a group."""
        self.assertEqual(self.filters.describe("g", "T"), "null")
        self.filters.register("g", [sub("a > 1", 5)])
        self.assertEqual(json.loads(self.filters.describe("g", "T"))["expression"], "a > 1")


class BitmapTests(FiltersTestCase):
    """The bitmaps for the store."""

    settings = {"enableCalcFilterBitMap": "true"}  # noqa: RUF012

    def test_bitmaps_equal_those_of_apaches_broker(self) -> None:
        """Bitmaps have the bytes that Apache's broker wrote for the same groups and messages."""
        for group, topic, expression, version in CONSUMERS:
            self.filters.register(group, [sub(expression, version, topic)])
        entries = list(ENTRY.iter_unpack((GOLDEN / "queue.bin").read_bytes()))
        extension = (GOLDEN / "extension.bin").read_bytes()
        self.assertEqual(len(entries), COUNT)
        seen = set()
        for number, (_, _, address) in enumerate(entries):
            unit = ExtensionUnit.decode(extension, place_of(address))
            assert unit is not None
            self.assertEqual(self.filters.bitmaps.bitmap(record(TOPIC, properties_of(number))),
                             unit.bitmap, msg=str(number))
            seen.add(unit.bitmap)
        self.assertEqual(len(seen), 4)

    def test_only_where_filters_are(self) -> None:
        """The store asks for bitmaps only in topics that have filters."""
        self.assertIsNone(self.kernel.store.dispatch.make_bitmap)
        self.filters.register("g", [sub("a > 1", 5)])
        make = self.kernel.store.dispatch.make_bitmap
        assert make is not None
        self.assertIsNone(make(record("U", {"a": "2"})))
        self.assertEqual(make(record("T", {"a": "1"})), bytes(14))
        self.filters.register("g", [sub("a >", 6)])
        self.assertIsNone(self.kernel.store.dispatch.make_bitmap)

    def test_language_that_raises(self) -> None:
        """A filter that raises an error counts as matching; the pull then reports the error."""
        class Broken:
            def compile(self, expression: str) -> Any:
                return lambda properties: 1 // 0

        self.kernel.filters.add_languages({"BROKEN": Broken()})
        self.filters.register("g", [sub("x", 5, kind="BROKEN")])
        bitmap = self.filters.bitmaps.bitmap(record("T", {}))
        assert bitmap is not None
        self.assertTrue(any(bitmap))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_other_sizes(self) -> None:
        """The settings give the length of a bitmap and the number of bits of a group."""
        self.restart(maxErrorRateOfBloomFilter="1", expectConsumerNumUseFilter="1000")
        self.filters.register("g", [sub("a > 1", 5)])
        bitmap = self.filters.bitmaps.bitmap(record("T", {"a": "2"}))
        assert bitmap is not None
        self.assertEqual((len(bitmap) * 8, int.from_bytes(bitmap, "big").bit_count()), (9592, 7))


class FileTests(FiltersTestCase):
    """The file ``config/consumerFilter.json``."""

    def saved(self) -> Any:
        return json.loads(self.disk.read_file(FILE))

    def test_without_filters_only_an_existing_file_is_emptied(self) -> None:
        """A broker without filters writes no file, but empties one that exists."""
        self.filters.persist()
        self.assertFalse(self.disk.exists(FILE))
        self.filters.register("g", [sub("a > 1", 5)])
        self.filters.persist()
        self.filters.register("g", [sub("a >", 6)])
        self.filters.persist()
        self.assertEqual(self.saved(), {"filterDataByTopic": {}})

    def test_apaches_file_is_read(self) -> None:
        """Apache's file is read, and written again as it was."""
        self.box.stop()
        self.disk.write_file_atomically(FILE, (GOLDEN / "consumerFilter.json").read_bytes())
        self.start()
        self.assertEqual(self.filters.table().encode_pretty(),
                         (GOLDEN / "consumerFilter.json").read_bytes())
        found = self.filters.group_filter("golden_dear", TOPIC, 1700000000001)
        self.assertTrue(found.match_properties("price\x016\x02"))

    def test_filters_survive_a_restart(self) -> None:
        """Filters survive a restart, are dead then, and live on with their bitmaps' time."""
        self.filters.register("g", [sub("a > 1", 5)])
        born = self.box.now_ms
        self.box.stop()
        self.assertEqual(self.saved()["filterDataByTopic"]["T"]["groupFilterData"]["g"]["dead"],
                         False)
        self.start()
        self.assertEqual((self.data().dead_time, self.data().dead), (born, True))
        self.filters.register("g", [sub("a > 1", 5)])
        self.assertEqual((self.data().born_time, self.data().dead), (born, False))
        self.box.stop()
        text = self.disk.read_file(FILE)
        later = self.box.now_ms + 60_000
        self.patch(KernelBox, "_now", lambda box: later)
        self.start()
        self.assertEqual(self.data().dead_time, later - 30_000)
        self.assertEqual(self.disk.read_file(FILE), text)

    def test_other_bits(self) -> None:
        """Filters whose bits would be different now are discarded."""
        self.filters.register("g", [sub("a > 1", 5)])
        self.restart(expectConsumerNumUseFilter="64")
        self.assertIsNone(self.data())

    def test_wrong_expression(self) -> None:
        """An expression that is no longer valid is left out, and the others are kept."""
        self.filters.register("g", [sub("a > 1", 5)])
        self.filters.register("h", [sub("a > 2", 5)])
        self.box.stop()
        text = self.disk.read_file(FILE)
        self.disk.write_file_atomically(FILE, text.replace(b"a > 2", b"a >"))
        self.start()
        self.assertEqual((self.data().expression, self.data(group="h")), ("a > 1", None))

    def test_a_damaged_filter_file_stops_the_start(self) -> None:
        """A damaged file stops the start, as in Apache's broker."""
        self.box.stop()
        self.disk.write_file_atomically(FILE, b"{")
        self.assertRaises(StoreDamaged, self.start)


class RetryTests(FiltersTestCase):
    """The setting filterSupportRetry."""

    settings = {"filterSupportRetry": "true"}  # noqa: RUF012

    def wanted(self, **properties: str) -> bool:
        found = self.filters.group_filter("g", "%RETRY%g", 5)
        self.assertTrue(found.match_queue_entry(0, self.box.now_ms + 1, bytes(14)))
        return found.match_properties(format_properties(properties))

    def test_real_topic_decides(self) -> None:
        """The expression on the topic a message came from decides, if the group has one."""
        self.filters.register("g", [sub("a > 1", 5), sub("a > 8", 5, "U"),
                                    sub("n IS NULL", 5, "%RETRY%g")])
        self.assertEqual([self.wanted(a=a, RETRY_TOPIC=topic) for a in ("1", "2", "9")
                          for topic in ("T", "U", "V")],
                         [False, False, True, True, False, True, True, True, True])
        self.assertTrue(self.wanted(a="1"))
        own = self.filters.own_filter("g", "%RETRY%g", "SQL92", "a > 100")
        self.assertTrue(own.match_properties("a\x012\x02RETRY_TOPIC\x01T\x02"))
        self.assertFalse(own.match_properties("a\x011\x02RETRY_TOPIC\x01T\x02"))
        self.assertFalse(self.filters.own_filter("g", "T", "SQL92", "a > 100")
                         .match_properties("a\x012\x02"))

    def test_without_the_setting_the_retry_topics_own_expression_counts(self) -> None:
        """Otherwise the expression on the retry topic itself."""
        self.restart(filterSupportRetry="false")
        self.filters.register("g", [sub("a > 1", 5), sub("a > 8", 5, "%RETRY%g")])
        found = self.filters.group_filter("g", "%RETRY%g", 5)
        self.assertEqual([found.match_properties(f"a\x01{a}\x02RETRY_TOPIC\x01T\x02")
                          for a in (2, 9)], [False, True])
