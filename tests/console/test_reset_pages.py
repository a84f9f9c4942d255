"""The reset of a group: the preview, the reset, and the way back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from tests.console.case import ConsoleCase
from tests.tools.admin.case import AdminCase
from twistmq.client import Client
from twistmq.console import reset_pages
from twistmq.protocol.bodies import MessageQueue

PATH = "/groups/billing/reset"
QUEUES = [MessageQueue("orders", "broker-a", at) for at in range(2)]


class ResetCase(ConsoleCase):
    """Two queues of four messages each, of which a group consumed three and one."""

    def setUp(self) -> None:
        super().setUp()
        self.browser.log_in()
        self.topic("orders", 2)
        with self.running.client() as sender:
            for queue in range(2):
                for _ in range(4):
                    sender.send("orders", b"x", queue_id=queue)
        self.commit("billing", "orders", 0, 3)
        self.commit("billing", "orders", 1, 1)
        self.client = Client(self.running.namesrv_address)
        self.addCleanup(self.client.close)

    def offsets(self) -> list[int | None]:
        """The offsets of the group."""
        return [self.client.group_offset("billing", queue) for queue in QUEUES]

    def preview(self, parameters: str) -> tuple[list[tuple[Any, ...]], dict[str, Any]]:
        """The queues before and after, and the facts of the page."""
        answer = self.browser.json(f"{PATH}?topic=orders&{parameters}")
        self.assertEqual(answer.status, 200, msg=answer.text)
        return ([(row["queue"], row["before"], row["after"], row["change"], row["lag_after"])
                 for row in answer.rows["queues"]], json.loads(answer.text)["facts"])

    def reset(self, way: str, value: str = "", **more: str) -> str:
        """Send the form; the text of the answer."""
        return self.browser.post(PATH, {
            "topic": "orders", "to": way, "value": value, **more}, Accept="application/json").text


class ResetTests(ResetCase):
    """A group without clients."""

    def test_the_preview_is_what_happens(self) -> None:
        """Each queue is shown before and after, and then the group is there."""
        for way, value, after in (("begin", "", [0, 0]), ("end", "", [4, 4]),
                                  ("time", "1000", [0, 0]),
                                  ("offsets", "broker-a:0=2 broker-a:1=3", [2, 3])):
            before = self.offsets()
            rows, facts = self.preview(f"to={way}&value={quote(value)}")
            self.assertEqual([row[:3] for row in rows],
                             [(at, before[at], after[at]) for at in range(2)], msg=way)
            self.assertEqual(self.offsets(), before)
            self.assertEqual(facts["is_ready"], before != after)
            answer = json.loads(self.reset(way, value))
            self.assertEqual(answer["result"], "The group billing was moved in 2 queues of orders.")
            self.assertEqual(answer["details"], [
                f"queue {at} of broker-a: from {before[at]} to {after[at]}" for at in range(2)])
            self.assertEqual(self.offsets(), after, msg=way)

    def test_the_preview_counts_messages(self) -> None:
        """It tells how many are consumed again, and how many are skipped."""
        rows, facts = self.preview("to=offsets&value=broker-a:0=1,broker-a:1=4")
        self.assertEqual(rows, [(0, 3, 1, -2, 3), (1, 1, 4, 3, 0)])
        self.assertEqual((facts["again"], facts["skipped"], facts["clients"]), (2, 3, 0))
        rows, _ = self.preview("to=offsets&value=broker-a:1=4")
        self.assertEqual([row[1:4] for row in rows], [(3, 3, 0), (1, 4, 3)])

    def test_a_browser_is_led_back(self) -> None:
        """After the reset, the next page offers the offsets before it."""
        text = self.browser.get(f"{PATH}?topic=orders&to=begin").text
        self.assertIn("Move the group", text)
        following = text.partition('name="next" value="')[2].partition('"')[0].replace("&amp;", "&")
        answer = self.browser.post(PATH, {"topic": "orders", "to": "begin", "next": following})
        self.assertEqual((answer.status, self.offsets()), (303, [0, 0]))
        page = self.browser.get(answer.headers["location"]).text
        self.assertIn("The group billing was moved in 2 queues of orders.", page)
        self.assertIn("Go back", page)
        [value] = parse_qs(urlsplit(following).query)["value"]
        self.assertEqual(value, "broker-a:0=3,1=1")
        self.reset("offsets", value)
        self.assertEqual(self.offsets(), [3, 1])

    def test_fields_that_are_not_valid(self) -> None:
        """They are named, and no offset moves."""
        for way, value in (("time", "soon"), ("time", "-5"), ("offsets", "x"), ("offsets", ","),
                           ("offsets", "broker-a:0=-1"), ("sideways", "")):
            self.assertEqual(
                self.browser.json(f"{PATH}?topic=orders&to={way}&value={value}").status, 400,
                msg=value)
        self.assertIn("orders has no queue 7 of broker-a",
                      self.reset("offsets", "broker-a:0=0,broker-a:7=0"))
        self.assertIn("queue 0 of broker-a ends at offset 4", self.reset("offsets", "broker-a:0=5"))
        self.assertEqual(self.browser.json(
            f"{PATH}?topic=orders&to=offsets&value=broker-b:0=0").status, 400)
        self.assertIn("value is missing", self.reset("time"))
        self.assertEqual(self.browser.json(f"{PATH}?topic=nothing&to=end").status, 404)
        self.assertEqual(self.offsets(), [3, 1])

    def test_without_a_topic(self) -> None:
        """The page proposes the topics of the group."""
        answer = self.browser.json(PATH)
        self.assertEqual(json.loads(answer.text)["facts"]["topics"], ["orders"])
        self.assertIn("Choose a topic", self.browser.get(PATH).text)
        self.assertIn(f'href="{PATH}?topic=orders"', self.browser.get("/groups/billing").text)


class ClientsTests(ResetCase):
    """A group with a client."""

    def test_the_broker_moves_the_group(self) -> None:
        """The page counts the clients, and the reset is the same."""
        self.member("billing", "orders")
        _, facts = self.preview("to=begin")
        self.assertEqual(facts["clients"], 1)
        self.assertIn("moved in 2 queues", self.reset("begin"))
        self.assertEqual(self.offsets(), [0, 0])
        self.assertIn("moved in 1 queues", self.reset("offsets", "broker-a:1=2"))
        self.assertEqual(self.offsets(), [0, 2])

    def test_a_broker_before_50_moves_no_single_queue(self) -> None:
        """It would move the whole topic, so nothing is asked of it while there are clients."""
        self.patch(reset_pages, "runtime_table", lambda *_: {"brokerVersionDesc": "V4_9_4"})
        member = self.member("billing", "orders")
        self.assertIn("older than 5.0", self.reset("offsets", "broker-a:1=2"))
        self.assertEqual(self.offsets(), [3, 1])
        member.close()


class ReadonlyTests(ResetCase):
    """A console that changes nothing."""

    readonly = True

    def test_nothing_moves(self) -> None:
        """The preview has no button, and a form that is sent without it is refused."""
        text = self.browser.get(f"{PATH}?topic=orders&to=begin").text
        self.assertIn("Consumed again", text)
        self.assertNotIn("Move the group", text)
        self.assertIn("read-only", self.reset("begin"))
        self.assertEqual(self.offsets(), [3, 1])


class OldResetTests(ResetTests):
    """A broker that leaves resets to the clients of the group, as Apache's did before 5.0."""

    settings: Mapping[str, str] = {**AdminCase.settings, "useServerSideResetOffset": "false"}
