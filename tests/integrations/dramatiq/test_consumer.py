"""The messages of Dramatiq that a consumer reads."""

from __future__ import annotations

import json
from typing import Any

from dramatiq.message import Message
from twisted.trial.unittest import SynchronousTestCase

from tests.protocol.test_plain_record import record
from twistmq.client import MessageQueue, ReceivedMessage, Undecodable
from twistmq.integrations.dramatiq.consumer import message_of


def received(body: bytes) -> ReceivedMessage[Any]:
    """A message as a consumer gets it."""
    return ReceivedMessage(record(body), MessageQueue("T", "a", 0), 0, "T")


class MessageTests(SynchronousTestCase):
    """Bodies that are messages, and bodies that are not."""

    def test_a_message_is_read_as_it_was_sent(self) -> None:
        """Its option ``eta`` is left out, and its queue is the one that is read."""
        sent = Message("q.DQ", "actor", (1,), {"a": 2}, {"eta": 5, "x": 3})
        self.assertEqual(
            message_of("q", received(sent.encode())),
            Message("q", "actor", (1,), {"a": 2}, {"x": 3}, sent.message_id,
                    sent.message_timestamp))

    def test_a_field_of_another_type_is_refused(self) -> None:
        """A worker would fail at each delivery of such a message."""
        whole = Message("q", "actor", (), {}, {}).asdict()
        for name, value in (
                ("queue_name", 5), ("actor_name", {}), ("kwargs", []), ("options", ["eta"]),
                ("options", None), ("message_id", 7), ("message_timestamp", "now"), ("args", 5)):
            body = json.dumps({**whole, name: value}).encode()
            self.assertRaises(Undecodable, message_of, "q", received(body))
        for text in ("", "[]", "5", "[" * 20_000, json.dumps({**whole, "more": 1})):
            self.assertRaises(Undecodable, message_of, "q", received(text.encode()))
