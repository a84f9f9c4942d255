"""The list of topics, one topic, and its changes."""

from __future__ import annotations

from tests.console.case import ConsoleCase


class TopicTests(ConsoleCase):
    """Topics of a running broker, as a browser sees them."""

    def setUp(self) -> None:
        super().setUp()
        self.browser.log_in()

    def test_the_list(self) -> None:
        """Topics of users are listed as a default, and others by their kind."""
        self.topic("orders", 3)
        self.send("orders")
        self.commit("billing", "orders", 0, 0)
        [row] = self.browser.json("/topics?q=ORD").rows["topics"]
        self.assertEqual(row, {"topic": "orders", "type": "normal", "queues": 3,
                               "permission": "RW", "groups": 1, "lag": row["lag"],
                               "brokers": ["broker-a"]})
        self.assertEqual([each["topic"] for each in self.browser.json("/topics").rows["topics"]],
                         ["orders"])
        systems = {each["topic"] for each in
                   self.browser.json("/topics?kind=system&size=500").rows["topics"]}
        self.assertLessEqual({"broker-a", "DefaultCluster", "SCHEDULE_TOPIC_XXXX",
                              "DefaultCluster_REPLY_TOPIC"}, systems)
        self.assertEqual(self.browser.get("/topics?kind=nothing").status, 400)

    def test_one_topic_equals_the_command(self) -> None:
        """The page has the rows of topicStatus, and the groups with their lag."""
        self.topic("orders")
        for _ in range(3):
            self.send("orders", "x", "-b", "broker-a", "-i", "1")
        self.commit("billing", "orders", 1, 1)
        tables = self.browser.json("/topics/orders").rows
        self.assertEqual(
            [(row["broker"], row["queue"], row["first_offset"], row["end_offset"],
              row["last_stored"] or 0) for row in tables["queues"]],
            [(row["broker"], row["queue"], row["min_offset"], row["max_offset"],
              row["last_updated"]) for row in self.rows("topicStatus", "-t", "orders")])
        self.assertEqual([(row["group"], row["lag"]) for row in tables["groups"]],
                         [("billing", 2)])
        self.assertIn("billing", self.browser.get("/topics/orders").text)

    def test_create_send_delete(self) -> None:
        """A form changes the broker, and the next page tells the result once."""
        answer = self.browser.post("/topics", {"topic": "new", "queues": "3", "type": "FIFO"})
        self.assertEqual((answer.status, answer.headers["location"]), (303, "/topics"))
        self.assertIn("Topic new has 3 queues on each of 1 broker.",
                      self.browser.get("/topics").text)
        self.assertNotIn("Topic new has", self.browser.get("/topics").text)
        [row] = self.browser.json("/topics?q=new").rows["topics"]
        self.assertEqual((row["type"], row["queues"]), ("fifo", 3))
        self.browser.post("/topics/new", {"act": "send", "body": "hi", "keys": "K", "tags": "t"})
        self.assertIn("SEND_OK", self.browser.get("/topics/new").text)
        [found] = self.rows("queryMsgByKey", "-t", "new", "-k", "K")
        self.assertEqual(found["offset"], 0)
        self.browser.post("/topics/new", {"act": "delete", "confirm": "other"})
        self.assertIn("type the name of the topic", self.browser.get("/topics/new").text)
        answer = self.browser.post(
            "/topics/new", {"act": "delete", "confirm": "new", "next": "/topics"})
        self.assertEqual(answer.headers["location"], "/topics")
        self.assertEqual(self.browser.json("/topics?q=new").rows["topics"], [])

    def test_fields_that_are_not_valid(self) -> None:
        """Nothing is created, and the page says which field is wrong."""
        for fields, text in (({"topic": "a b"}, "topic"), ({"topic": ""}, "topic is missing"),
                             ({"topic": "ok", "queues": "0"}, "queues is not between 1 and 1024"),
                             ({"topic": "ok", "type": "ODD"}, "type is not one of")):
            self.browser.post("/topics", fields)
            self.assertIn(text, self.browser.get("/topics").text, msg=fields)
        self.assertEqual(self.browser.json("/topics").rows["topics"], [])

    def test_a_topic_that_does_not_exist(self) -> None:
        """The answer is 404 in both forms."""
        self.assertEqual(self.browser.get("/topics/nothing").status, 404)
        answer = self.browser.json("/topics/nothing")
        self.assertEqual(answer.status, 404)
        self.assertIn("nothing", answer.text)

    def test_names_with_every_kind_of_character(self) -> None:
        """A name in an address is one segment, and a name in a page is escaped."""
        self.browser.post("/topics", {"topic": "%RETRY%g|x"})
        page = self.browser.get("/topics?kind=retry").text
        self.assertIn('href="/topics/%25RETRY%25g%7Cx"', page)
        self.assertEqual(self.browser.json("/topics/%25RETRY%25g%7Cx").status, 200)
        page = self.browser.get("/topics?q=%3Cscript%3Ealert(1)%3C/script%3E").text
        self.assertNotIn("<script>alert", page)
        self.assertIn("&lt;script&gt;alert(1)", page)
