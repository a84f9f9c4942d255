"""The overview and the brokers."""

from __future__ import annotations

import json

from tests.console.case import ConsoleCase


class OverviewTests(ConsoleCase):
    """A running broker, as a browser sees it."""

    def setUp(self) -> None:
        super().setUp()
        self.browser.log_in()

    def test_the_overview(self) -> None:
        """It counts topics, groups and waiting messages of users."""
        self.topic("orders")
        for _ in range(3):
            self.send("orders", "x", "-b", "broker-a", "-i", "0")
        self.commit("billing", "orders", 0, 1)
        answer = self.browser.json("/")
        facts = json.loads(answer.text)["facts"]
        self.assertEqual(
            {name: facts[name] for name in ("brokers", "answering", "topics", "groups", "lag")},
            {"brokers": 1, "answering": 1, "topics": 1, "groups": 1, "lag": 2})
        self.assertEqual([(row["group"], row["lag"]) for row in answer.rows["lags"]],
                         [("billing", 2)])
        page = self.browser.get("/").text
        self.assertIn("1 of 1", page)
        self.assertNotIn("This page is incomplete", page)

    def test_brokers(self) -> None:
        """Each broker has its role, its address and its figures."""
        self.topic("orders")
        self.send("orders")
        [row] = self.browser.json("/brokers").rows["brokers"]
        self.assertEqual((row["broker"], row["role"], row["address"], row["stored_today"]),
                         ("broker-a", "master", self.broker, 1))
        self.assertGreater(row["disk"], 0)

    def test_members_of_a_group(self) -> None:
        """A group replaces replication: each member has its place, and the leader the lags."""
        hooks = self.running.kernel.hooks
        runtime_info = hooks.runtime_info
        for figures, lines in (
                ({"dledgerRole": "leader", "dledgerLeader": "n0", "dledgerLag.n1": "1200",
                  "dledgerReachable.n1": "true", "dledgerLag.n2": "unknown",
                  "dledgerReachable.n2": "false"},
                 ["leads its group in term 7", "n1: 1,200 entries behind",
                  "n2: unknown entries behind, does not answer"]),
                ({"dledgerRole": "follower", "dledgerLeader": "n2"}, ["follows n2 in term 7"]),
                ({"dledgerRole": "candidate", "dledgerLeader": "", "dledgerMayVote": "false"},
                 ["knows no leader in term 7", "may not vote before it has caught up"])):
            rows = {**figures, "dledgerTerm": "7", "brokerRole": "SLAVE"}
            self.patch(hooks, "runtime_info", lambda rows=rows: {**runtime_info(), **rows})
            [row] = self.browser.json("/brokers").rows["brokers"]
            self.assertEqual((row["replication"], row["role"]), (lines, "slave"))
