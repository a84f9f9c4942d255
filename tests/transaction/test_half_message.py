"""The records of half messages: how they are hidden, put back, committed and given up."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.testing.store import message
from twistmq.protocol.errors import BrokerError
from twistmq.protocol.properties import format_properties, parse_properties
from twistmq.protocol.record import (
    SYS_MULTI_TAGS,
    SYS_TRANSACTION_COMMIT,
    SYS_TRANSACTION_PREPARED,
    MessageRecord,
    StoredMessage,
    decode_record,
    encode_record,
)
from twistmq.transaction.half_message import (
    check_body,
    checks_of,
    copy_of_half,
    discarded_record,
    final_record,
    immunity_ms,
    make_half,
    origin_of,
)


def half(**properties: str) -> MessageRecord:
    """Return a half message before it is stored."""
    record = message("T", b"body", 3, tag="red", keys="k")
    record.sys_flag = SYS_TRANSACTION_PREPARED | SYS_MULTI_TAGS
    record.flag, record.reconsume_times = 7, 2
    fields = {**parse_properties(record.properties), "TRAN_MSG": "true", "PGROUP": "g",
              "UNIQ_KEY": "U", **properties}
    record.properties = format_properties(fields)
    make_half(record, fields)
    return record


def stored(record: MessageRecord, queue_offset: int = 5) -> StoredMessage:
    record.queue_offset, record.physical_offset, record.store_timestamp = queue_offset, 777, 888
    return decode_record(encode_record(record))


class HalfTests(SynchronousTestCase):
    """The conversion of a sent message to a half message, and of that to its later forms."""

    def test_topic_and_queue_are_hidden(self) -> None:
        """The topic and the queue become properties, and the system flag has no transaction."""
        record = half()
        self.assertEqual((record.topic, record.queue_id, record.sys_flag),
                         ("RMQ_SYS_TRANS_HALF_TOPIC", 0, SYS_MULTI_TAGS))
        fields = parse_properties(record.properties)
        self.assertEqual([fields[name] for name in (
            "REAL_TOPIC", "REAL_QID", "__transactionId__", "TRAN_MSG", "TAGS", "KEYS")],
            ["T", "3", "U", "true", "red", "k"])

    def test_what_an_earlier_transaction_left(self) -> None:
        """If a committed message is sent again, it begins a new transaction."""
        fields = parse_properties(half(
            TRANSACTION_CHECK_TIMES="15", TRAN_PREPARED_QUEUE_OFFSET="4").properties)
        self.assertNotIn("TRANSACTION_CHECK_TIMES", fields)
        self.assertNotIn("TRAN_PREPARED_QUEUE_OFFSET", fields)

    def test_the_final_one_is_where_it_was_sent(self) -> None:
        """The committed message has its real topic and queue, and names the half message."""
        found = stored(half())
        record = final_record(found, found.properties_map())
        self.assertEqual(
            (record.topic, record.queue_id, record.sys_flag, record.prepared_transaction_offset),
            ("T", 3, SYS_MULTI_TAGS | SYS_TRANSACTION_COMMIT, 777))
        for name in ("body", "properties", "born_timestamp", "born_host", "store_host", "flag",
                     "reconsume_times"):
            self.assertEqual(getattr(record, name), getattr(found, name), msg=name)
        self.assertEqual((record.tags_code, record.keys),
                         (message(tag="red").tags_code, ["U", "k"]))

    def test_where_it_belongs_is_not_said(self) -> None:
        """Half messages without a topic, or with an invalid queue number."""
        for fields in ({"REAL_QID": "1"}, {"REAL_TOPIC": "T"},
                       *({"REAL_TOPIC": "T", "REAL_QID": text}
                         for text in ("-1", "x", "1.0", "٣", str(2**31)))):
            record = message("RMQ_SYS_TRANS_HALF_TOPIC", b"")
            record.properties = format_properties(fields)
            found = stored(record)
            self.assertRaises(BrokerError, final_record, found, found.properties_map())

    def test_a_copy_counts(self) -> None:
        """A copy counts its checks and names the first half message; so does a copy of a copy."""
        found = stored(half())
        fields = found.properties_map()
        copy = copy_of_half(found, fields, checks=1)
        self.assertEqual((copy.topic, copy.queue_id, copy.flag, copy.reconsume_times),
                         (found.topic, 0, 7, 2))
        self.assertEqual(parse_properties(copy.properties), fields)
        self.assertEqual(fields, {**found.properties_map(), "TRANSACTION_CHECK_TIMES": "1",
                                  "TRAN_PREPARED_QUEUE_OFFSET": "5"})
        again = stored(copy, 9)
        fields = again.properties_map()
        self.assertEqual((checks_of(fields), origin_of(again, fields)), (1, 5))
        copy_of_half(again, fields)
        self.assertEqual((checks_of(fields), origin_of(again, fields)), (1, 5))

    def test_check_body(self) -> None:
        """The body of a question has the real topic, the copy's offset and the old store time."""
        found = stored(half())
        fields = found.properties_map()
        copy = copy_of_half(found, fields, checks=1)
        copy.queue_offset, copy.physical_offset, copy.store_timestamp = 6, 999, 1000
        shown = decode_record(check_body(found, copy, fields))
        self.assertEqual(
            (shown.topic, shown.queue_id, shown.queue_offset, shown.physical_offset,
             shown.store_timestamp, shown.body, shown.born_timestamp, shown.flag),
            ("T", 3, 6, 999, 888, b"body", found.born_timestamp, 7))
        self.assertEqual(shown.properties_map(), fields)

    def test_a_discarded_message_keeps_all_but_its_topic(self) -> None:
        """A message that is given up keeps everything but its topic."""
        found = stored(half())
        record = discarded_record(found)
        self.assertEqual((record.topic, record.queue_id), ("TRANS_CHECK_MAX_TIME_TOPIC", 0))
        self.assertEqual((record.body, record.properties), (found.body, found.properties))

    def test_an_invalid_number_is_none(self) -> None:
        """An invalid number counts as missing."""
        self.assertEqual([checks_of({"TRANSACTION_CHECK_TIMES": text})
                          for text in ("3", "0", "-1", "x", "")], [3, 0, 0, 0, 0])
        self.assertEqual([immunity_ms({"CHECK_IMMUNITY_TIME_IN_SECONDS": text}, 6000)
                          for text in ("3", "0", "-1", "1.5")], [3000, 0, 6000, 6000])
        self.assertIsNone(immunity_ms({}, 6000))
