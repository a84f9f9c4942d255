"""The state of a message in each group."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch
from urllib.parse import urlencode

from tests.console.test_dead_letter_pages import GROUP, DeadLetterCase
from twistmq.console import message_groups


class MessageGroupsTests(DeadLetterCase):
    """A message that one group consumed, and that another one gave up."""

    def rows_of(self, key: str) -> dict[str, dict[str, Any]]:
        """The rows of the groups on the page of the message with a key, by group."""
        [row] = self.browser.json(f"/messages?topic=orders&by=key&value={key}").rows["messages"]
        self.path = "/messages?" + urlencode({
            "topic": "orders", "by": "id", "value": row["message"]})
        answer = self.browser.json(self.path)
        self.assertEqual((answer.status, '"unanswered":[]' in answer.text), (200, True),
                         msg=answer.text)
        return {row["group"]: row for row in answer.rows["groups"]}

    def states(self, key: str) -> dict[str, str]:
        """The states by group."""
        return {name: row["state"] for name, row in self.rows_of(key).items()}

    def test_the_life_of_a_message(self) -> None:
        """It waits, is consumed by one group, dies in another one, is sent again and consumed."""
        self.commit("mail", "orders", 0, 0)
        self.commit(GROUP, "orders", 0, 0)
        self.bury(b"lost")
        self.assertEqual(self.states("k-4"), {GROUP: "dead letter", "mail": "waiting"})
        self.commit("mail", "orders", 0, 1)
        self.commit(GROUP, "orders", 0, 1)
        self.assertEqual(self.states("k-4"), {GROUP: "dead letter", "mail": "consumed"})
        text = self.browser.get(self.path).text
        self.assertIn(f'<a href="/dead-letters/{GROUP}">{GROUP}</a>', text)
        self.assertIn('">Trace of this message</a>', text)
        self.assertEqual(self.resend(self.letters())["status"], 200)
        self.assertEqual(self.states("k-4")[GROUP], "retrying")
        self.commit(GROUP, f"%RETRY%{GROUP}", 0, 1)
        row = self.rows_of("k-4")[GROUP]
        self.assertEqual((row["state"], row["dead_letters"]), ("consumed again", GROUP))

    def test_the_page_of_a_dead_letter(self) -> None:
        """It leads to the letters of its group, and to the message itself; it has no groups."""
        self.bury(b"lost")
        self.topic("other")  # The name server then knows the topic of the letters as well.
        self.wait_for_route(f"%DLQ%{GROUP}")
        [letter] = self.letters()
        query = urlencode({"topic": f"%DLQ%{GROUP}", "by": "id", "value": letter["message"]})
        answer = self.browser.json(f"/messages?{query}")
        self.assertNotIn("groups", answer.rows)
        text = self.browser.get(f"/messages?{query}").text
        self.assertIn(f'<a href="/dead-letters/{GROUP}">Dead letters of {GROUP}</a>', text)
        self.assertIn(">The message in orders</a>", text)

    def test_very_many_groups(self) -> None:
        """Only the first ones are asked, and the page says so."""
        self.send("orders", "x", "-k", "k-1")
        for name in ("a", "b", "c"):
            self.commit(name, "orders", 0, 0)
        with patch.object(message_groups, "GROUPS_MAX", 2):
            self.assertEqual(self.states("k-1"), {"a": "waiting", "b": "waiting"})
            self.assertIn("Only the first 2 of 3 groups are asked.",
                          self.browser.get(self.path).text)
