"""The messages of a pull's answer."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.protocol.test_plain_record import record
from twistmq.client.base.errors import Undecodable
from twistmq.client.base.messages import MessageQueue, PullResult, PullStatus, ReceivedMessage
from twistmq.client.core.consumer.pull_request import messages_of
from twistmq.protocol.batch import encode_batch
from twistmq.protocol.record import SYS_INNER_BATCH, SYS_NEED_UNWRAP

QUEUE = MessageQueue("T", "a", 0)


def found(
    body: bytes, tags: frozenset[str] = frozenset(), delta: int = 0
) -> list[ReceivedMessage[Any]]:
    """The messages of an answer with this body."""
    return messages_of(PullResult(PullStatus.FOUND, 9, 0, 9, body, "", offset_delta=delta), QUEUE,
                       tags)


class MessageTests(SynchronousTestCase):
    """Bodies as brokers send them."""

    def test_a_message_is_decoded_when_its_fields_are_asked_for(self) -> None:
        """Its offset, body, value and size do not need that."""
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
        """A property that only looks like it changes nothing."""
        data = (record(b"1", properties="RETRY_TOPIC\x01orders\x02")
                + record(b"2", properties="K\x01RETRY_TOPIC\x02") + record(b"RETRY_TOPIC"))
        self.assertEqual([message.topic for message in found(data)], ["orders", "T", "T"])

    def test_tags_are_compared(self) -> None:
        """Messages without a tag do not fit any."""
        data = b"".join(record(b"x", properties=text, offset=offset) for offset, text in enumerate((
            "TAGS\x01eu\x02", "TAGS\x01us\x02", "", "TAGS\x01eu\x02")))
        self.assertEqual([message.offset for message in found(data, frozenset({"eu"}))], [0, 3])

    def test_an_inner_batch_is_its_messages(self) -> None:
        """Between others, in order."""
        batch = encode_batch([(0, b"1", "INNER_BASE\x017\x02"), (0, b"2", "")])
        data = (record(b"0", offset=4) + record(
            batch, sys_flag=SYS_INNER_BATCH | SYS_NEED_UNWRAP, offset=5) + record(b"3", offset=7))
        self.assertEqual([(message.offset, message.body) for message in found(data)],
                         [(4, b"0"), (5, b"1"), (6, b"2"), (7, b"3")])

    def test_bytes_that_are_no_records_are_an_error(self) -> None:
        """Whole ones before them do not matter."""
        self.assertRaises(Undecodable, found, record(b"1") + b"x" * 100)
