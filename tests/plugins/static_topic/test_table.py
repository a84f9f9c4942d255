"""The table of static topics and its file."""

from __future__ import annotations

import re
from pathlib import Path

from twisted.logger import LogLevel, capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests.plugins.static_topic.case import A, B, item, part_lists
from twistmq.broker.store.config_file import ConfigFile
from twistmq.broker.testing.disk import MemoryDisk
from twistmq.plugins.static_topic import table
from twistmq.plugins.static_topic.mapping import TopicQueueMappingDetail
from twistmq.plugins.static_topic.table import QueueMappings
from twistmq.protocol.bodies import DataVersion, TopicConfigSerializeWrapper
from twistmq.protocol.errors import StoreDamaged, WireError
from twistmq.protocol.json_writer import encode_pretty_row
from twistmq.protocol.run_to_completion import run_to_completion

PATH = "/store/config/topicQueueMapping.json"
GOLDEN = Path(__file__).resolve().parents[2] / "golden/static-topic/topicQueueMapping.json"


def _fail(*_: object, **__: object) -> None:
    raise OSError(5, "no write")


class FileTests(SynchronousTestCase):
    """The file topicQueueMapping.json."""

    def setUp(self) -> None:
        self.disk = MemoryDisk()

    def mappings(self, name: str = A) -> QueueMappings:
        found = QueueMappings(ConfigFile(self.disk, PATH), name, lambda: 5)
        found.load()
        return found

    def write(self, data: bytes) -> None:
        self.disk.make_directory("/store/config")
        self.disk.write_file_atomically(PATH, data)

    def test_saved_and_loaded(self) -> None:
        """The whole table with its version is saved; the previous file is kept."""
        first = self.mappings()
        self.assertFalse(first.dirty)
        detail = TopicQueueMappingDetail(
            topic="S", total_queues=2, bname=A, epoch=9,
            hosted_queues=part_lists([item(0, B, 0, 0), item(1, A, 1, 10_000)]))
        first.put(detail)
        self.assertTrue(first.dirty)
        first.persist()
        first.delete("S")
        first.delete("S")
        first.persist()
        self.assertEqual(self.mappings().table, {})
        self.assertEqual(self.mappings().data_version.counter, 2)
        self.disk.write_file_atomically(PATH, self.disk.read_file(PATH + ".bak"))
        again = self.mappings()
        self.assertEqual((again.table, again.data_version.counter, again.data_version.timestamp),
                         ({"S": detail}, 1, 5))

    def test_a_change_writes_its_own_topic_only_and_on_the_thread(self) -> None:
        """The rows of other topics are kept as they were encoded, even after a failed save."""
        found = self.mappings()
        for name in ("S", "T", "U"):
            found.put(self.detail(name, 1))
        found.persist()
        written: list[str] = []
        self.patch(table, "encode_pretty_row", lambda name, detail: written.append(name)
                   or encode_pretty_row(name, detail))
        found.put(self.detail("T", 2))
        job = run_to_completion(found.saving())
        self.assertEqual(written, [])
        failing = self.patch(self.disk, "write_file_atomically", _fail)
        self.assertRaises(OSError, job)
        failing.restore()
        found.delete("S")
        found.persist()
        self.assertEqual(written, ["T"])
        again = self.mappings()
        self.assertEqual({name: each.epoch for name, each in again.table.items()},
                         {"T": 2, "U": 1})
        self.assertEqual(again.infos, found.infos)
        again.put(self.detail("V", 3))
        again.persist()
        self.assertEqual(list(self.mappings().table), ["T", "U", "V"])

    def detail(self, topic: str, epoch: int) -> TopicQueueMappingDetail:
        return TopicQueueMappingDetail(topic=topic, total_queues=1, bname=A, epoch=epoch,
                                       hosted_queues=part_lists([item(0, A, 0, 0)]))

    def test_a_file_of_apaches_broker_is_read_and_written_alike(self) -> None:
        """A file of Apache's broker is read and written again byte by byte."""
        data = GOLDEN.read_bytes()
        self.write(data)
        found = self.mappings("broker-b")
        [detail] = found.table.values()
        self.assertEqual((detail.topic, detail.total_queues, detail.bname), ("Static", 4, B))
        self.assertEqual(set(detail.hosted_queues), {0, 1, 2, 3})
        self.assertEqual({items[-1].bname for items in detail.hosted_queues.values()}, {B})
        found.persist()
        self.assertEqual(self.disk.read_file(PATH), data)
        found.data_version.counter += 1
        found.persist()
        counter = found.data_version.counter
        self.assertEqual(self.disk.read_file(PATH), data.replace(
            b'"counter":%d,' % (counter - 1), b'"counter":%d,' % counter))

    def test_a_damaged_or_foreign_mapping_file_stops_the_start(self) -> None:
        """A file that cannot be read, or belongs to another broker, stops the start."""
        for data in (b"{", b'{"topicQueueMappingInfoMap":{"S":{"topic":"T","bname":"broker-a"}}}',
                     b'{"topicQueueMappingInfoMap":{"S":null}}'):
            self.write(data)
            self.assertRaises(StoreDamaged, self.mappings)
        self.write(b'{"topicQueueMappingInfoMap":{"S":{"topic":"S","bname":"broker-b"}}}')
        error = self.assertRaises(StoreDamaged, self.mappings)
        self.assertIn("topic S is of broker broker-b, this one is broker-a", str(error))


    def test_a_poisoned_file_does_not_keep_the_broker_from_starting(self) -> None:
        """Invalid topics are left out with an error, and the file is kept."""
        part = (b'{"bname":"broker-a","endOffset":-1,"gen":0,"logicOffset":0,"queueId":%d,'
                b'"startOffset":%d}')
        for number, queue_id, start in ((99_999_999_999, 0, 0), (7, 0, 0), (0, 2**40, 0),
                                        (0, 20_000, 0), (0, 0, 10**20), (0, 0, 2**62)):
            data = (b'{"dataVersion":{"counter":4},"topicQueueMappingInfoMap":{"S":{"topic":"S",'
                    b'"bname":"broker-a","totalQueues":1,"hostedQueues":{%d:[%b]}},"T":{"topic":'
                    b'"T","bname":"broker-a","totalQueues":1,"hostedQueues":{0:[%b]}}}}' % (
                        number, part % (queue_id, start), part % (0, 0)))
            self.write(data)
            with capturedLogs() as events:
                found = self.mappings()
            self.assertEqual((list(found.table), found.data_version.counter), (["T"], 4))
            texts = [formatEvent(event) for event in events
                     if event["log_level"] is LogLevel.error]
            self.assertEqual(len(texts), 1, msg=texts)
            self.assertIn("S", texts[0] or "")
            self.assertEqual(self.disk.read_file(PATH + ".refused"), data)


class CopyTests(SynchronousTestCase):
    """The table of a slave, from its master's answer with all topics."""

    def setUp(self) -> None:
        self.mappings = QueueMappings(ConfigFile(MemoryDisk(), PATH), A, lambda: 5)

    def body(self, name: str = "S", bname: str = A, counter: int = 3) -> bytes:
        detail = TopicQueueMappingDetail(
            topic="S", total_queues=1, bname=bname, epoch=9,
            hosted_queues=part_lists([item(0, bname, 0, 0)]))
        return TopicConfigSerializeWrapper(
            {}, DataVersion(0, 1, 1), DataVersion(0, 7, counter), None, {name: detail}).encode()

    def test_the_masters_mappings_and_version_are_taken(self) -> None:
        """Equal mappings change nothing; mappings that the master has deleted are removed."""
        known = self.mappings.table
        self.mappings.take(self.body())
        self.assertEqual((list(known), self.mappings.data_version, self.mappings.dirty),
                         (["S"], DataVersion(0, 7, 3), True))
        self.assertEqual(known["S"].hosted_queues[0][0].bname, A)
        self.mappings.persist()
        self.mappings.take(self.body())
        self.assertFalse(self.mappings.dirty)
        self.mappings.take(TopicConfigSerializeWrapper(
            {}, DataVersion(), DataVersion(0, 7, 4), None, {}).encode())
        self.assertEqual((known, self.mappings.dirty), ({}, True))

    def test_an_older_master_has_no_mappings(self) -> None:
        """The mappings of the slave remain."""
        self.mappings.take(self.body())
        self.mappings.take(TopicConfigSerializeWrapper({}, DataVersion()).encode())
        self.assertEqual(list(self.mappings.table), ["S"])

    def test_an_answer_with_numbers_that_cannot_be(self) -> None:
        """A slave refuses all of it; keys with equal hashes are read fast."""
        self.mappings.take(self.body())
        for bad in (b'"7":[]', b'"-1":[]', b'"0":[{"queueId":1099511627776}]',
                    b'"0":[{"logicOffset":4611686018427387904}]',
                    b",".join(b'"%d":[]' % (number * (2**61 - 1)) for number in range(1, 9000))):
            body, count = re.subn(rb'"hostedQueues":\{.*?\]\}', b'"hostedQueues":{%b}' % bad,
                                  self.body(counter=9))
            self.assertEqual(count, 1)
            self.assertRaises(WireError, self.mappings.take, body)
        self.assertEqual(self.mappings.data_version.counter, 3)

    def test_a_bad_answer_changes_nothing(self) -> None:
        """A mapping of another broker, under another name, or none at all."""
        self.mappings.take(self.body())
        for bad in (b"", b"[]", self.body(bname="broker-b"), self.body(name="R"),
                    b'{"mappingDataVersion":{},"topicQueueMappingDetailMap":{"S":3}}'):
            self.assertRaises(WireError, self.mappings.take, bad)
        self.assertEqual((list(self.mappings.table), self.mappings.data_version.counter),
                         (["S"], 3))
