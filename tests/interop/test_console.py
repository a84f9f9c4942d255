"""The pages of the console with Apache's servers, which are started once."""

from __future__ import annotations

import json
import threading
from typing import Any, Final
from urllib.parse import quote, urlencode

from tests.console.case import PATIENCE_S, TOKEN, Answer, start_console
from tests.interop.clients import JavaTestCase
from tests.interop.servers import wait_until
from tests.tools.admin.case import call
from twistmq.client import Consumer, Producer
from twistmq.console.message_pages import WAYS
from twistmq.console.page_session import PageSession
from twistmq.console.views import VIEWS
from twistmq.console.visitor import ConsoleOptions

TOPIC, GROUP = "Orders", "billing"
#: The addresses that are given the topic and the id of a message.
WITH_TOPIC: Final = (("messages",), ("messages", "body"), ("tail",), ("groups", "GROUP", "reset"))
#: The addresses that show the host of our own servers.
WITHOUT_SERVERS: Final = (("doctor",),)


class WalkTests(JavaTestCase):
    """A browser that visits every page."""

    def test_5_5_0(self) -> None:
        """This is the newest release: every page is whole."""
        self.walk("5.5.0")
        self.assertEqual(self.limits, set())
        [broker] = self.json("/brokers").rows["brokers"]
        self.assertEqual((broker["role"], broker["replication"]), ("master", []))

    def test_5_3_3(self) -> None:
        """Our broker behaves like this release, so every page is whole."""
        self.walk("5.3.3")
        self.assertEqual(self.limits, set())
        [broker] = self.json("/brokers").rows["brokers"]
        self.assertEqual((broker["role"], broker["replication"]), ("master", []))

    def test_4_9_4(self) -> None:
        """This is the last 4.x: pages name the numbers that it does not report."""
        self.walk("4.9.4")
        [broker] = self.json("/brokers").rows["brokers"]
        self.assertEqual((broker["role"], broker["replication"]),
                         ("master", ["not reported by this release"]))

    def walk(self, version: str) -> None:
        """Fill Apache's broker, visit every page in both forms, and change something."""
        #: The pages that name a request that the broker does not support.
        self.limits: set[tuple[str, str]] = set()
        peer = self.start_apache(version=version)
        self.address = f"127.0.0.1:{peer.broker_port}"
        self.name_server = peer.namesrv_address
        self.browser, _, _ = start_console(self, ConsoleOptions({"default": lambda: PageSession(
            peer.namesrv_address, timeout_s=PATIENCE_S)}, TOKEN, page_s=PATIENCE_S))
        self.browser.log_in()
        self.create()
        with Consumer(self.name_server, group=GROUP, topics=TOPIC, start="first") as consumer:
            bodies: list[bytes] = []
            thread = threading.Thread(target=consumer.run, args=(
                lambda message: bodies.append(message.body),))
            thread.start()
            try:
                wait_until("all are consumed", lambda: len(bodies) == len(self.sent))
                self.visit()
            finally:
                consumer.stop()
                thread.join()
        self.search()
        self.change()

    def json(self, path: str) -> Answer:
        """Load the JSON form of a page; a server may omit data that its release lacks."""
        answer = self.browser.json(path)
        self.assertEqual(answer.status, 200, msg=f"{path}: {answer.text}")
        content: dict[str, Any] = json.loads(answer.text)
        self.assertEqual([each for each in content["unanswered"]
                          if "does not support" not in each["reason"]], [], msg=path)
        self.limits |= {(path.partition("?")[0], each["reason"]) for each in content["unanswered"]}
        return answer

    def create(self) -> None:
        """Create a topic with the form of the console, and send to it."""
        self.browser.post("/topics", {"topic": TOPIC, "queues": "4"})
        self.assertIn(f"Topic {TOPIC} has 4 queues", self.browser.get("/topics").text)
        wait_until("the topic has a route", lambda: self.browser.get(
            f"/topics/{TOPIC}").status == 200)
        status, _, err = call("updateSubGroup", "-b", self.address, "-g", GROUP,
                              "-n", self.name_server)
        self.assertEqual((status, err), (0, ""))
        with Producer(self.name_server, timeout_s=15) as producer:
            self.sent = [producer.send(TOPIC, b"m%d" % at, keys=[f"K{at}"], tags="ab"[at % 2],
                                       properties={"price": str(at)}) for at in range(12)]

    def visit(self) -> None:
        """Load each view in both forms."""
        client = self.json(f"/groups/{GROUP}").rows["clients"][0]["client"]
        message = self.sent[0].id
        names = {"TOPIC": TOPIC, "GROUP": GROUP, "CLIENT": client, "ID": message}
        query = urlencode({"topic": TOPIC, "id": message})
        for view in VIEWS:
            if view.path in WITHOUT_SERVERS:
                continue
            path = "/" + "/".join(quote(names.get(part, part), safe="") for part in view.path)
            if view.path in WITH_TOPIC:
                path += f"?{query}"
            self.json(path)
            self.assertEqual(self.browser.get(path).status, 200, msg=path)
        for kind in ("all", "system"):
            self.json(f"/topics?kind={kind}")
            self.json(f"/groups?kind={kind}")

    def search(self) -> None:
        """Find messages in each way."""
        message = self.sent[3]
        values = {"newest": "", "time": "1000", "offset": "0", "key": "K3",
                  "id": message.id}
        counts = {"newest": 12, "time": 12, "offset": 3, "key": 1, "id": 1}
        for way in WAYS:
            rows = self.json("/messages?" + urlencode({
                "topic": TOPIC, "by": way, "value": values[way], "broker": "broker-peer",
                "queue": "0"})).rows["messages"]
            self.assertEqual(len(rows), counts[way], msg=way)
        for name, value, count in (("tag", "a", 6), ("sql", "price >= 10", 2), ("text", "M1", 3)):
            rows = self.json("/messages?" + urlencode({"topic": TOPIC, name: value})
                             ).rows["messages"]
            self.assertEqual(len(rows), count, msg=name)
        answer = self.browser.get(f"/messages/body?topic={TOPIC}&id={message.id}")
        self.assertEqual(answer.content, b"m3")
        mark = json.loads(self.json(f"/tail?topic={TOPIC}").text)["facts"]["from"]
        with Producer(self.name_server, timeout_s=15) as producer:
            producer.send(TOPIC, b"new")
        [row] = self.json("/tail?" + urlencode({"topic": TOPIC, "from": mark})).rows["messages"]
        self.assertEqual(row["body"], "new")

    def change(self) -> None:
        """Send by the form, and delete the topic."""
        self.browser.post(f"/topics/{TOPIC}", {"act": "send", "body": "hi", "keys": "FORM"})
        self.assertIn("SEND_OK", self.browser.get(f"/topics/{TOPIC}").text)
        self.browser.post(f"/topics/{TOPIC}", {
            "act": "delete", "confirm": TOPIC, "next": "/topics"})
        self.assertIn(f"Topic {TOPIC} is deleted", self.browser.get("/topics").text)
        self.assertEqual(self.json(f"/topics?q={TOPIC}").rows["topics"], [])
