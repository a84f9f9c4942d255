"""The page of messages."""

from __future__ import annotations

import json
from unittest.mock import patch

from tests.console.case import ConsoleCase
from twistmq.console import message_pages


class MessageTests(ConsoleCase):
    """Messages of a running broker, as a browser sees them."""

    def setUp(self) -> None:
        super().setUp()
        self.browser.log_in()
        self.topic("orders", 2)

    def fill(self, count: int) -> None:
        """Send messages "m0", "m1" and so on, to both queues in turn."""
        with self.running.client() as client:
            for at in range(count):
                client.send("orders", f"m{at}".encode(), queue_id=at % 2)

    def bodies(self, query: str) -> list[str]:
        """The bodies that a query finds."""
        answer = self.browser.json(f"/messages?topic=orders&{query}")
        self.assertEqual(answer.status, 200, msg=answer.text)
        return [row["body"] for row in answer.rows["messages"]]

    def test_the_newest(self) -> None:
        """They come from all queues, the newest first, and no offset of a group moves."""
        self.fill(100)
        self.assertEqual(len(self.bodies("count=500")), 100)
        newest = self.bodies("count=9")
        self.assertEqual(len(newest), 9)
        self.assertEqual(set(newest) - {f"m{at}" for at in range(80, 100)}, set())
        self.assertEqual(self.browser.json("/topics/orders").rows["groups"], [])

    def test_by_offset_and_by_time(self) -> None:
        """A search by offset and a search by time both read forward."""
        self.fill(10)
        self.assertEqual(self.bodies("by=offset&broker=broker-a&queue=1&value=3"), ["m7", "m9"])
        self.assertEqual(len(self.bodies("by=time&value=1000")), 10)
        self.assertEqual(self.bodies("by=time&value=2999-01-01+00:00"), [])
        answer = self.browser.json("/messages?topic=orders&by=time&value=soon")
        self.assertEqual(answer.status, 400)

    def test_by_key_and_by_id(self) -> None:
        """An id shows the properties and the whole body, which is escaped."""
        self.send("orders", "<script>alert(1)</script>", "-k", "K1")
        [row] = self.browser.json("/messages?topic=orders&by=key&value=K1").rows["messages"]
        path = f"/messages?topic=orders&by=id&value={row['message']}"
        answer = self.browser.json(path)
        self.assertEqual(json.loads(answer.text)["facts"]["body"], "<script>alert(1)</script>")
        self.assertIn({"name": "KEYS", "value": "K1"}, answer.rows["details"])
        html = self.browser.get(path).text
        self.assertIn("&lt;script&gt;alert(1)", html)
        self.assertNotIn("<script>alert", html)
        self.assertEqual(self.browser.get("/messages?topic=orders&by=id&value=F00").status, 404)

    def test_a_tag(self) -> None:
        """Only messages with one of the tags are shown."""
        for tag in ("a", "b", "c"):
            self.send("orders", tag, "-c", tag)
        self.assertEqual(sorted(self.bodies("tag=a+||+c")), ["a", "c"])

    def test_a_text_and_the_end_of_its_search(self) -> None:
        """A search for a text says where it stopped."""
        self.fill(200)
        self.assertEqual(sorted(self.bodies("text=M19")), sorted(
            ["m19", *(f"m19{at}" for at in range(10))]))
        with patch.object(message_pages, "SCAN_MAX", 40):
            answer = self.browser.json("/messages?topic=orders&text=m1&count=500")
            self.assertNotIn("m19", [row["body"] for row in answer.rows["messages"]])
            notes = json.loads(answer.text)["notes"]
        self.assertEqual(notes, [
            f"The search in queue {queue} of broker-a stopped at offset 60: older messages were "
            "not read." for queue in (0, 1)])

    def test_without_a_topic(self) -> None:
        """The page says what to enter."""
        self.assertIn("Enter the name of a topic.", self.browser.get("/messages").text)
        self.assertEqual(self.browser.get("/messages?topic=nothing").status, 404)
