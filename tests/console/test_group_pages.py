"""The list of groups, one group, and one client."""

from __future__ import annotations

from tests.console.case import ConsoleCase


class GroupTests(ConsoleCase):
    """Groups of a running broker, as a browser sees them."""

    def setUp(self) -> None:
        super().setUp()
        self.browser.log_in()
        self.topic("orders")
        for _ in range(4):
            self.send("orders", "x", "-b", "broker-a", "-i", "0")

    def test_the_list(self) -> None:
        """Groups with and without settings are listed, the largest lag first."""
        self.rows("updateSubGroup", "-b", self.broker, "-g", "idle", "-s", "false")
        self.commit("billing", "orders", 0, 1)
        rows = self.browser.json("/groups").rows["groups"]
        self.assertEqual([(row["group"], row["lag"], row["state"]) for row in rows],
                         [("billing", 3, rows[0]["state"]), ("idle", 0, "disabled")])
        systems = self.browser.json("/groups?kind=system").rows["groups"]
        self.assertIn("TOOLS_CONSUMER", [row["group"] for row in systems])

    def test_one_group_equals_the_command(self) -> None:
        """The page has the rows of consumerProgress, its clients and its subscriptions."""
        self.member("billing", "orders")
        self.commit("billing", "orders", 0, 1)
        answer = self.browser.json("/groups/billing")
        rows = [row for row in answer.rows["queues"] if row["topic"] == "orders"]
        commands = [row for row in self.rows("consumerProgress", "-g", "billing")
                    if row["topic"] == "orders"]
        self.assertEqual(
            [(row["broker"], row["queue"], row["end_offset"], row["committed_offset"], row["lag"])
             for row in rows],
            [(row["broker"], row["queue"], row["broker_offset"], row["consumer_offset"],
              row["diff"]) for row in commands])
        self.assertEqual(sum(row["lag"] for row in rows), 3)
        [client] = answer.rows["clients"]
        self.assertEqual((client["client"], client["brokers"]), ("10.0.0.1@7", ["broker-a"]))
        self.assertEqual([row["topic"] for row in answer.rows["subscriptions"]], ["orders"])
        settings = {row["setting"]: row["value"] for row in answer.rows["settings"]}
        self.assertEqual(settings["retryMaxTimes"], "16")
        self.assertIn("/groups/billing/clients/10.0.0.1%407",
                      self.browser.get("/groups/billing").text)

    def test_the_report_of_a_client(self) -> None:
        """The broker asks the client, and the page shows the answer."""
        member = self.member("billing", "orders")
        thread = member.tell()
        answer = self.browser.json("/groups/billing/clients/10.0.0.1%407")
        thread.join(5)
        self.assertEqual(answer.status, 200)
        report = {(row["section"], row["name"]): row["value"] for row in answer.rows["report"]}
        self.assertEqual(report["property", "PROP_CONSUME_TYPE"], "CONSUME_PASSIVELY")

    def test_a_group_that_does_not_exist(self) -> None:
        """The answer is 404, and no broker creates the group."""
        answer = self.browser.json("/groups/nothing")
        self.assertEqual(answer.status, 404, msg=answer.text)
        self.assertIn("no broker has a group nothing", answer.text)
        self.assertEqual(self.browser.json("/groups").rows["groups"], [])
