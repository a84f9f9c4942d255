"""The messages of the answer to a pull."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.protocol.test_plain_record import HOSTS, record
from twistmq.client.base.answers import OFFSET_MAX
from twistmq.client.base.errors import Undecodable
from twistmq.client.base.messages import MessageQueue, PullResult, PullStatus, ReceivedMessage
from twistmq.client.base.received_message import DamagedMessage
from twistmq.client.core.consumer.pull_request import messages_of
from twistmq.protocol.batch import encode_batch
from twistmq.protocol.record import (
    SYS_INNER_BATCH,
    SYS_NEED_UNWRAP,
    MessageRecord,
    encode_record,
)

QUEUE = MessageQueue("T", "a", 0)


def found(
    body: bytes, tags: frozenset[str] = frozenset(), delta: int = 0
) -> list[ReceivedMessage[Any]]:
    """Return the messages of an answer with this body."""
    return messages_of(PullResult(PullStatus.FOUND, 9, 0, 9, body, "", offset_delta=delta), QUEUE,
                       tags)


class MessageTests(SynchronousTestCase):
    """Bodies as brokers send them."""

    def test_a_message_is_decoded_when_its_fields_are_asked_for(self) -> None:
        """Its offset, body, value and size need no decoding."""
        data = record(b"x")
        [message] = found(data, delta=100)
        self.assertEqual((message.offset, message.body, message.value, message.size),
                         (105, b"x", b"x", len(data)))
        self.assertIsInstance(message._record, bytes)
        self.assertEqual(message.properties, {"a": "b"})
        self.assertEqual(message.record.queue_offset, 5)
        self.assertIs(message._record, message.record)
        self.assertEqual((message.body, message.size), (b"x", len(data)))

    def test_a_retry_has_the_topic_it_was_first_sent_to(self) -> None:
        """A property that only looks similar changes nothing."""
        data = (record(b"1", properties="RETRY_TOPIC\x01orders\x02")
                + record(b"2", properties="K\x01RETRY_TOPIC\x02") + record(b"RETRY_TOPIC"))
        self.assertEqual([message.topic for message in found(data)], ["orders", "T", "T"])

    def test_a_message_is_shown_as_one_printable_line(self) -> None:
        """The id comes from its producer, and the log shows it."""
        data = record(b"x", properties="UNIQ_KEY\x01\x1b[2J\nforged\u202e\x02")
        [message] = found(data)
        self.assertEqual(repr(message), "<ReceivedMessage \\x1b[2J\\nforged\\u202e of T, broker a, "
                                        "queue 0, offset 5>")
        damaged: DamagedMessage[Any] = DamagedMessage(
            data, message.record, MessageQueue("T", "\x1b[2J\n", 0), 5, "T", "cut", False)
        self.assertTrue(repr(damaged).isprintable())

    def test_tags_are_compared(self) -> None:
        """Messages without a tag match none."""
        data = b"".join(record(b"x", properties=text, offset=offset) for offset, text in enumerate((
            "TAGS\x01eu\x02", "TAGS\x01us\x02", "", "TAGS\x01eu\x02")))
        self.assertEqual([message.offset for message in found(data, frozenset({"eu"}))], [0, 3])

    def test_an_inner_batch_is_its_messages(self) -> None:
        """It is between others, in order."""
        batch = encode_batch([(0, b"1", "INNER_BASE\x017\x02"), (0, b"2", "")])
        data = (record(b"0", offset=4) + record(
            batch, sys_flag=SYS_INNER_BATCH | SYS_NEED_UNWRAP, offset=5) + record(b"3", offset=7))
        self.assertEqual([(message.offset, message.body) for message in found(data)],
                         [(4, b"0"), (5, b"1"), (6, b"2"), (7, b"3")])

    def test_bytes_that_are_no_records_are_an_error(self) -> None:
        """Whole records before them do not matter."""
        self.assertRaises(Undecodable, found, record(b"1") + b"x" * 100)

    def test_an_offset_that_no_queue_has_is_damage(self) -> None:
        """It would be committed plus one, and no file or broker could store that."""
        flags = SYS_INNER_BATCH | SYS_NEED_UNWRAP
        batch = encode_batch([(0, b"1", ""), (0, b"2", "")])
        data = b"".join((
            record(b"whole", offset=OFFSET_MAX - 1), record(b"x", offset=OFFSET_MAX),
            record(b"x", offset=2**63 - 1), record(b"x", offset=-1), record(b"x", offset=-(2**63)),
            record(b"x", properties="RETRY_TOPIC\x01orders\x02", offset=OFFSET_MAX),
            record(batch, sys_flag=flags, offset=OFFSET_MAX - 1),
            *(record(batch, sys_flag=flags, properties=f"INNER_BASE\x01{base}\x02")
              for base in ("9" * 30, "-1", str(2**63 - 1)))))
        damaged: list[DamagedMessage[Any]] = []
        result = PullResult(PullStatus.FOUND, OFFSET_MAX, 0, OFFSET_MAX, data, "")
        self.assertEqual([each.body for each in messages_of(
            result, QUEUE, damaged=damaged)], [b"whole"])
        self.assertEqual(len(damaged), 9)
        for each in damaged:
            self.assertIn("offset", each.damage)
            self.assertIn(each.offset, range(OFFSET_MAX))

    def test_the_offset_of_a_static_topic_is_a_sum(self) -> None:
        """The broker sends both parts."""
        for delta in (2**63 - 1, -(2**63), -6):
            with self.assertRaisesRegex(Undecodable, "its offset is"):
                found(record(b"x", offset=5), delta=delta)

    def test_a_time_that_no_datetime_can_say_is_the_first_or_the_last(self) -> None:
        """A producer may send any, and a broker store it."""
        first, last = datetime.min.replace(tzinfo=UTC), datetime(
            9999, 12, 31, 23, 59, 59, 999_000, UTC)
        for time_ms, expected in (
                (2**63 - 1, last), (-(2**63), first), (2**55, last), (-(2**55), first),
                (253_402_300_799_999, last), (253_402_300_800_000, last),
                (0, datetime(1970, 1, 1, tzinfo=UTC)),
                (1_700_000_000_123, datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC))):
            made = MessageRecord("T", 1, b"x", "", time_ms, HOSTS[False], HOSTS[False], [])
            made.store_timestamp = time_ms
            [message] = found(encode_record(made))
            self.assertEqual((message.born_at, message.stored_at), (expected, expected))
