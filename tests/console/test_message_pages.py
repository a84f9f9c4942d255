"""The page of messages."""

from __future__ import annotations

import base64
import json
from itertools import chain, pairwise
from typing import Any
from unittest.mock import patch
from urllib.parse import urlencode

from tests.console.case import ConsoleCase
from twistmq.console import message_scan


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

    def test_the_newest_of_many_queues(self) -> None:
        """They are in the order of their times, and none that is older is shown in place of one."""
        self.topic("wide", 8)
        with self.running.client() as client:
            for at in range(150):
                client.send("wide", f"m{at}".encode(), queue_id=at * at % 8)
        rows = self.browser.json("/messages?topic=wide&count=100").rows["messages"]
        self.assertEqual(len(rows), 100)
        self.assertTrue(all(one["stored"] >= two["stored"] for one, two in pairwise(rows)))
        every = self.browser.json("/messages?topic=wide&count=500").rows["messages"]
        self.assertEqual(len(every), 150)
        shown = {row["body"] for row in rows}
        self.assertEqual([row for row in every if row["stored"] > rows[-1]["stored"]
                          and row["body"] not in shown], [])

    def follow(self, query: str) -> list[list[str]]:
        """The bodies of all pages of a search, each of which goes on where the last one stopped."""
        pages, mark = [], ""
        while True:
            answer = self.browser.json(
                f"/messages?topic=orders&{query}&{urlencode({'from': mark})}")
            self.assertEqual(answer.status, 200, msg=answer.text)
            pages.append([row["body"] for row in answer.rows["messages"]])
            mark = json.loads(answer.text)["facts"]["from"]
            if not mark:
                return pages
            self.assertLess(len(pages), 60)

    def test_going_on_after_the_end_of_a_search(self) -> None:
        """Every message is shown once, in either direction, whatever the reason for the end."""
        self.fill(200)
        every = [f"m{at}" for at in range(200)]
        for query in ("", "by=time&value=1000&"):
            pages = self.follow(f"{query}count=45")
            self.assertEqual(sorted(chain(*pages)), sorted(every), msg=query)
            self.assertEqual([len(page) for page in pages[:4]], [45] * 4, msg=query)
        with patch.object(message_scan, "SCAN_MAX", 40):
            for query in ("", "by=time&value=1000&"):
                pages = self.follow(f"{query}text=m1&count=500")
                self.assertEqual(sorted(chain(*pages)), sorted(
                    each for each in every if "m1" in each), msg=query)
                self.assertEqual(len(pages), 3, msg=query)
            pages = self.follow("by=offset&broker=broker-a&queue=1&value=7&count=500")
            self.assertEqual(list(chain(*pages)), every[15::2])
            html = self.browser.get("/messages?topic=orders&text=m1&count=500").text
            self.assertIn("from=broker-a%3A0%3D60%2C1%3D60", html)
            self.assertIn("Continue with older messages", html)
            path = "/messages?topic=orders&from=broker-a:1%3D20&text=m1&count=500"
            self.assertIn("From the beginning", self.browser.get(path).text)
            self.assertEqual([row["queue"] for row in self.browser.json(path).rows["messages"]],
                             [1] * 6)
        for mark in ("x", "broker-a:0", "broker-a:0.x", ":0.1", "broker-a:-1.5"):
            answer = self.browser.json(f"/messages?topic=orders&{urlencode({'from': mark})}")
            self.assertEqual(answer.status, 400, msg=mark)

    def test_by_offset_and_by_time(self) -> None:
        """A search by offset and a search by time both read forward."""
        self.fill(10)
        self.assertEqual(self.bodies("by=offset&broker=broker-a&queue=1&value=3"), ["m7", "m9"])
        self.assertEqual(len(self.bodies("by=time&value=1000")), 10)
        self.assertEqual(self.bodies("by=time&value=2999-01-01+00:00"), [])
        answer = self.browser.json("/messages?topic=orders&by=time&value=soon")
        self.assertEqual(answer.status, 400)
        answer = self.browser.json("/messages?topic=orders&by=offset&broker=broker-a&queue=9")
        self.assertEqual(answer.status, 404)

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

    def test_an_sql92_expression(self) -> None:
        """The console evaluates it, since brokers refuse it as a default."""
        with self.running.client() as client:
            for at in range(6):
                client.send("orders", f"m{at}".encode(), properties={
                    "price": str(at), **({"region": "eu"} if at % 2 else {})})
            client.send("orders", b"text", properties={"price": "dear"})
        for sql, expected in (
                ("price > 2", ["m3", "m4", "m5"]), ("region IS NOT NULL", ["m1", "m3", "m5"]),
                ("price BETWEEN 1 AND 3 AND region = 'eu'", ["m1", "m3"])):
            self.assertEqual(sorted(self.bodies(urlencode({"sql": sql}))), expected, msg=sql)
        self.assertEqual(self.bodies(urlencode({"sql": "price > 2", "text": "m4"})), ["m4"])
        answer = self.browser.json("/messages?topic=orders&sql=price+%3E")
        self.assertEqual(answer.status, 400)
        self.assertIn("sql is not an SQL92 expression", answer.text)

    def test_bodies_as_files(self) -> None:
        """A file has the bytes that were sent, and no browser shows it as a page."""
        large = bytes(range(256)) * 12_000
        for key, body in (("K1", b"<script>alert(1)</script>"), ("K2", b"\xff\x00\r\n\xfe"),
                          ("K3", large)):
            with self.running.client() as client:
                client.send("orders", body, keys=key)
            [row] = self.browser.json(f"/messages?topic=orders&by=key&value={key}").rows["messages"]
            path = f"/messages/body?topic=orders&id={row['message']}"
            answer = self.browser.get(path)
            self.assertEqual(answer.content, body)
            self.assertEqual(answer.headers["content-type"], "application/octet-stream")
            self.assertEqual(answer.headers["x-content-type-options"], "nosniff")
            self.assertEqual(answer.headers["content-disposition"],
                             f'attachment; filename="{row["message"]}.bin"')
            file: dict[str, Any] = json.loads(self.browser.json(path).text)["file"]
            self.assertEqual(base64.b64decode(file["content"]), body)
            page = self.browser.get(f"/messages?topic=orders&by=id&value={row['message']}").text
            self.assertIn("Download the body", page)
            self.assertIn("/messages/body?topic=orders", page)
            self.assertLess(len(page), 100_000)
        self.assertEqual(self.browser.get("/messages/body?topic=orders&id=F00").status, 404)
        self.assertEqual(self.browser.get("/messages/body?topic=orders").status, 400)

    def test_a_text_and_the_end_of_its_search(self) -> None:
        """A search for a text says where it stopped."""
        self.fill(200)
        self.assertEqual(sorted(self.bodies("text=M19")), sorted(
            ["m19", *(f"m19{at}" for at in range(10))]))
        with patch.object(message_scan, "SCAN_MAX", 40):
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
