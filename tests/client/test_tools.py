"""``twistmq admin`` with consumers of the client."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from tests.interop.servers import wait_until
from tests.tools.admin.case import AdminCase
from twistmq.client import Consumer, Producer, ReceivedMessage


class ToolTests(AdminCase):
    """A consumer with a handler on threads."""

    settings: Mapping[str, str] = {**AdminCase.settings, "useServerSideResetOffset": "false"}

    def setUp(self) -> None:
        """Let it consume six messages."""
        super().setUp()
        self.note_queues: list[bytes] = []
        self.producer = Producer(self.running.namesrv_address)
        self.addCleanup(self.producer.close)
        self.sent = [self.producer.send("T", b"%d" % number) for number in range(6)]
        self.consumer: Consumer[Any] = Consumer(
            client=self.producer.client, group="g", topics="T", start="first")
        self.addCleanup(self.consumer.close)
        thread = threading.Thread(target=self.consumer.run, args=(self.handle,))
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.consumer.stop)
        self.wait_for(6)

    def handle(self, message: ReceivedMessage[Any]) -> None:
        """Record a message."""
        self.note_queues.append(message.body)

    def wait_for(self, count: int) -> None:
        """Wait until so many messages were handled."""
        wait_until("the messages are handled", lambda: len(self.note_queues) >= count, 20)

    def test_a_reset_to_a_time_delivers_everything_again(self) -> None:
        """The broker leaves it to the members."""
        self.consumer.commit()
        rows = self.rows("resetOffsetByTime", "-g", "g", "-t", "T", "-s", "0")
        self.assertEqual({row["offset"] for row in rows}, {0})
        self.wait_for(12)
        self.assertEqual(sorted(self.note_queues), sorted([b"%d" % each for each in range(6)] * 2))

    def test_the_state_of_a_member_is_shown(self) -> None:
        """All members are shown, and one with all details."""
        [row] = self.rows("consumerStatus", "-g", "g")
        client = self.producer.client.client_id
        self.assertEqual((row["client"], row["type"]), (client, "CONSUME_PASSIVELY"))
        self.assertIn("T: *", row["subscriptions"])
        out = self.rows("consumerStatus", "-g", "g", "-i", client, "-s")
        sections = {row["section"] for row in out}
        self.assertLessEqual({"property", "subscription", "queue", "statistics", "stack"},
                             sections)

    def test_a_message_is_consumed_once_more_for_a_tool(self) -> None:
        """Its result is printed."""
        client = self.producer.client.client_id
        [row] = self.rows("queryMsgById", "-i", self.sent[3].id, "-t", "T", "-g", "g",
                          "-d", client)
        self.assertEqual((row["client"], row["result"]), (client, "CR_SUCCESS"))
        self.wait_for(7)
        self.assertEqual(self.note_queues[6], b"3")
