"""Plain sends have the same records as with the general code."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.broker.remoting.test_request_runs import PLAIN, READER, SEND, frame_of
from twistmq.broker.remoting.request import Request
from twistmq.broker.remoting.request_runs import UnreadSend, read_run
from twistmq.broker.request.send_record import KEYS_MAX, RecordMaker
from twistmq.broker.request.sent_topics import SentTopics
from twistmq.broker.store.consume_queue import ConsumeQueue
from twistmq.protocol.bodies import TopicConfig, TopicFilterType
from twistmq.protocol.message_id import UniqueIdMaker
from twistmq.protocol.properties import parse_properties
from twistmq.protocol.record import SYS_INNER_BATCH, MessageRecord, encode_record

HOST, STORE_HOST = b"\x7f\0\0\1\0\0\x30\x39", b"\x7f\0\0\1\0\0\x2a\x9f"
ASKING = frozenset(("DELAY", "TRAN_MSG"))
LOOKED_AT = ASKING | {"POP_CK", "MSG_REGION", "TRACE_ON", "CLUSTER", "INNER_NUM"}
TOPICS = {"T": TopicConfig("T", 4, 4),
          "M": TopicConfig("M", 4, 4, topic_filter_type=TopicFilterType.MULTI_TAG)}
TEXTS = (
    "KEYS\x01a b\x02UNIQ_KEY\x01U\x02WAIT\x01true\x02TAGS\x01red", "UNIQ_KEY\x01U\x02",
    "UNIQ_KEY\x01U\x02own\x01caf\u00e9\x02", "UNIQ_KEY\x01U\x02TAGS\x01\u4e2d",
    "UNIQ_KEY\x01U\x02POP_CK\x01c\x02", "UNIQ_KEY\x01U\x02CLUSTER\x01other\x02",
    "UNIQ_KEY\x01U\x02a\x01\x02", "UNIQ_KEY\x01U\x02UNIQ_KEY\x01V\x02", "UNIQ_KEY\x01U\x02\x02")


class PlainTests(SynchronousTestCase):
    """The method RecordMaker.make_plain."""

    def setUp(self) -> None:
        self.maker = RecordMaker("Region", "true", "Cluster", UniqueIdMaker(b"\x7f\0\0\1", 5))
        self.queue = ConsumeQueue("T", 3)
        self.topics = SentTopics(TOPICS, TopicFilterType.MULTI_TAG, lambda topic, queue_id: (
            self.queue if queue_id == 3 else None))

    def request(self, fields: dict[str, str], *, is_read: bool) -> Request[Any]:
        """Return a request as it is read, scanned or decoded."""
        channel: Any = SimpleNamespace(remote_host=HOST)
        frame = frame_of(fields)
        [request], _ = read_run(READER, [frame], {SEND}, 10**6, channel, 9)
        if is_read:
            return Request(request.command, request.header, channel, 9)
        return request

    def plain(self, request: Request[Any]) -> MessageRecord | None:
        [record] = self.maker.make_plain(
            [request], self.topics, {"F"}, ASKING, LOOKED_AT, 100, STORE_HOST)
        return record

    def facts(self, record: MessageRecord) -> tuple[object, ...]:
        return encode_record(record), record.keys, record.tags_code, record.properties

    def test_they_are_stored_alike(self) -> None:
        """This is so whether the header was scanned or decoded, and for any properties."""
        for text in TEXTS:
            fields = {**PLAIN, "i": text}
            looked = self.request(fields, is_read=False)
            self.assertEqual(isinstance(looked, UnreadSend), text.isascii())
            header = looked.header
            record = self.maker.make(
                "T", 3, b"body", parse_properties(text), text, header.flag, header.sys_flag,
                header.reconsume_times, header.born_timestamp, HOST, STORE_HOST, 9)
            for request in (looked, self.request(fields, is_read=True)):
                found = self.plain(request)
                assert found is not None
                self.assertEqual(self.facts(found), self.facts(record), repr(text))

    def test_a_record_knows_its_queue(self) -> None:
        """The store then need not search for it."""
        found = [self.plain(self.request({**PLAIN, "e": queue_id, "i": TEXTS[1]}, is_read=False))
                 for queue_id in "32"]
        self.assertNotIn(None, found)
        self.assertEqual([record and record.queue for record in found], [self.queue, None])

    def test_who_has_no_unique_key_gets_one(self) -> None:
        """Such a message is not plain, and is stored by the general code."""
        record = self.plain(self.request({**PLAIN, "i": "TAGS\x01red"}, is_read=False))
        assert record is not None
        self.assertEqual((len(record.keys), record.is_plain), (1, False))

    def test_what_must_be_looked_at_closely_has_no_record(self) -> None:
        """A message that is refused, special, or of another kind has no record."""
        many = " ".join(f"k{number}" for number in range(KEYS_MAX))
        for change in (
            {"i": "UNIQ_KEY\x01U\x02DELAY\x013\x02"}, {"i": f"UNIQ_KEY\x01U\x02KEYS\x01{many}"},
            {"b": "M"}, {"b": "F"}, {"b": "unknown"}, {"e": "-1"}, {"e": "4"}, {"m": "true"},
            {"f": str(SYS_INNER_BATCH)},
        ):
            for is_read in (False, True):
                request = self.request({**PLAIN, "i": TEXTS[0], **change}, is_read=is_read)
                self.assertIsNone(self.plain(request), change)

    def test_a_record_that_a_plugin_changes_is_plain_no_more(self) -> None:
        """Its properties are those that the plugin set."""
        record = self.plain(self.request({**PLAIN, "i": TEXTS[1]}, is_read=False))
        assert record is not None
        self.assertTrue(record.is_plain)
        record.properties += "DELAY\x013\x02"
        self.assertFalse(record.is_plain)
        self.assertIn(b"DELAY\x013\x02", record.stored_properties)
        self.assertIn(b"DELAY\x013\x02", encode_record(record))
