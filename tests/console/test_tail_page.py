"""The live tail."""

from __future__ import annotations

import json
import threading
import time
from typing import Any
from urllib.parse import urlencode

from twisted.trial.unittest import SynchronousTestCase

from tests.console.case import Answer, ConsoleCase
from twistmq.console.tail_limit import RATE_MAX, SERVED_MAX, TailLimit, TooManyTails


class TailTests(ConsoleCase):
    """The tail of a topic of a running broker."""

    def setUp(self) -> None:
        super().setUp()
        self.browser.log_in()
        self.topic("orders", 2)

    def look(self, mark: str = "", **values: str) -> tuple[list[str], str, dict[str, Any]]:
        """The bodies of one look, the mark for the next one, and the facts."""
        answer = self.browser.json(
            "/tail?" + urlencode({"topic": "orders", "from": mark, **values}))
        self.assertEqual(answer.status, 200, msg=answer.text)
        facts: dict[str, Any] = json.loads(answer.text)["facts"]
        return [row["body"] for row in answer.rows["messages"]], facts["from"], facts

    def test_a_tail_shows_each_new_message_once(self) -> None:
        """It begins with the newest messages, and no group and no offset is involved."""
        with self.running.client() as client:
            for at in range(14):
                client.send("orders", f"m{at}".encode(), queue_id=at % 2)
            bodies, mark, _ = self.look()
            self.assertEqual(len(bodies), 10)
            self.assertEqual(self.look(mark)[0], [])
            begin = time.monotonic()
            client.send("orders", b"new", queue_id=1)
            bodies, mark, _ = self.look(mark)
            self.assertEqual(bodies, ["new"])
            self.assertLess(time.monotonic() - begin, 1.0)
            self.assertEqual(self.look(mark)[0], [])
            client.send("orders", b"one", queue_id=0, properties={"TAGS": "a", "price": "7"})
            client.send("orders", b"two", queue_id=1, properties={"TAGS": "b", "price": "9"})
            self.assertEqual(sorted(self.look(mark)[0]), ["one", "two"])
            for name, value in (("tag", "b"), ("sql", "price > 8"), ("text", "TW")):
                self.assertEqual(self.look(mark, **{name: value})[0], ["two"], msg=name)
        self.assertEqual(self.browser.json("/topics/orders").rows["groups"], [])
        self.assertEqual(self.browser.json("/groups").rows["groups"], [])

    def test_too_many_messages_and_new_queues(self) -> None:
        """What is too much for one look is counted, and a new queue is read from its beginning."""
        _, mark, _ = self.look()
        with self.running.client() as client:
            for at in range(250):
                client.send("orders", f"m{at}".encode(), queue_id=0)
            bodies, mark, facts = self.look(mark)
            self.assertEqual((len(bodies), bodies[0], facts["skipped"]), (200, "m249", 50))
            self.topic("orders", 3)
            client.send("orders", b"third", queue_id=2)
        self.assertEqual(self.look(mark)[0], ["third"])

    def test_the_page(self) -> None:
        """Its script gets the address of the next look, and a browser without one a link."""
        self.send("orders", "<script>alert(1)</script>")
        text = self.browser.get("/tail?topic=orders&tag=*").text
        self.assertIn('data-tail="/tail?topic=orders&amp;tag=%2A&amp;from=broker-a%3A0%3D', text)
        self.assertIn("Show what is new since then", text)
        self.assertNotIn("<script>alert", text)
        self.assertIn("Enter the name of a topic.", self.browser.get("/tail").text)
        self.assertEqual(self.browser.get("/tail?topic=nothing").status, 404)
        self.assertEqual(self.browser.get("/tail?topic=orders&from=x").status, 400)

    def test_two_hundred_tails(self) -> None:
        """Looks beyond the limit are refused, and pages are made as before."""
        _, mark, _ = self.look()
        path = "/tail?" + urlencode({"topic": "orders", "from": mark})
        answers: list[Answer] = []
        threads = [threading.Thread(target=lambda: answers.append(self.browser.json(path)))
                   for _ in range(200)]
        for thread in threads:
            thread.start()
        self.assertEqual(self.browser.json("/topics/orders").status, 200)
        for thread in threads:
            thread.join()
        self.assertEqual({answer.status for answer in answers}, {200, 429})
        refused = next(answer for answer in answers if answer.status == 429)
        self.assertIn("more slowly", refused.text)


class LimitTests(SynchronousTestCase):
    """The limit alone."""

    def test_requests_of_a_second_and_requests_at_one_time(self) -> None:
        """A refused request is not counted, and time brings the credit back."""
        now_s = 0.0
        limit = TailLimit(lambda: now_s)
        for _ in range(int(RATE_MAX)):
            with limit.serve():
                pass
        self.assertRaises(TooManyTails, limit.serve().__enter__)
        now_s = 1.0
        served = [limit.serve() for _ in range(SERVED_MAX)]
        for each in served:
            each.__enter__()
        self.assertRaises(TooManyTails, limit.serve().__enter__)
        served[0].__exit__(None, None, None)
        with limit.serve():
            pass
