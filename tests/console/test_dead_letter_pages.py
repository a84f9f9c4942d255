"""Dead letters: the list, the resend and the export."""

from __future__ import annotations

import io
import json
import time
from itertools import count
from urllib.parse import quote, urlencode

from tests.console.case import ConsoleCase
from twistmq.client import Consumer
from twistmq.client.commands.lines import read_messages
from twistmq.console import dead_letter_pages
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.send import ConsumerSendMsgBackRequestHeader
from twistmq.protocol.record import StoredMessage

GROUP = "billing"
PATH = f"/dead-letters/{GROUP}"


class DeadLetterCase(ConsoleCase):
    """A group some of whose messages are dead letters."""

    def setUp(self) -> None:
        super().setUp()
        self.numbers = count(1)
        self.browser.log_in()
        self.topic("orders", 1)
        self.rows("updateSubGroup", "-b", self.broker, "-g", GROUP)

    def bury(self, *bodies: bytes, group: str = GROUP) -> None:
        """Send messages, and give each one back as a client does after the last attempt."""
        with self.running.client() as client:
            for body in bodies:
                at = client.send("orders", body, keys=f"k-{len(body)} other", properties={
                    "own": "x", "UNIQ_KEY": f"{next(self.numbers):032X}"}).queue_offset
                [message] = client.pull("orders", at)
                reply = client.request(
                    RequestCode.CONSUMER_SEND_MSG_BACK, ConsumerSendMsgBackRequestHeader(
                        offset=message.physical_offset, group=group, delay_level=-1,
                        origin_topic="orders"))
                self.assertEqual(reply.code, ResponseCode.SUCCESS, msg=reply.remark)

    def messages(self, topic: str) -> list[StoredMessage]:
        """All messages of a topic."""
        with self.running.client() as client:
            return list(client.pull(topic))

    def wait_for_route(self, topic: str) -> None:
        """Wait until the name server knows a topic that the broker made."""
        ends_s = time.monotonic() + 30
        while self.call("topicRoute", "-t", topic)[0] != 0:
            self.assertLess(time.monotonic(), ends_s, msg=topic)
            time.sleep(0.02)

    def letters(self, parameters: str = "") -> list[dict[str, object]]:
        """The rows of the page of the group."""
        answer = self.browser.json(PATH + parameters)
        self.assertEqual(answer.status, 200, msg=answer.text)
        return answer.rows["letters"]

    def address(self, rows: list[dict[str, object]], **more: str) -> str:
        """The address of the preview of some rows."""
        pairs = [("select", str(row["select"])) for row in rows]
        return f"{PATH}/resend?{urlencode([*pairs, *more.items()])}"

    def resend(self, rows: list[dict[str, object]], **more: str) -> dict[str, object]:
        """Send the form for some rows; the JSON of the answer."""
        pairs = [("select", str(row["select"])) for row in rows]
        answer = self.browser.request(
            "POST", f"{PATH}/resend",
            {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"},
            urlencode([("csrf", self.browser.csrf), *pairs, *more.items()]))
        content: dict[str, object] = json.loads(answer.text)
        return {**content, "status": answer.status}


class DeadLetterTests(DeadLetterCase):
    """Dead letters of a running broker, as a browser sees them."""

    def test_the_list(self) -> None:
        """Groups with letters are listed with their number; a group without any is not."""
        self.rows("updateSubGroup", "-b", self.broker, "-g", "other")
        self.assertIn("No group has dead letters.", self.browser.get("/dead-letters").text)
        self.bury(b"a", b"b")
        self.bury(b"c", group="other")
        rows = self.browser.json("/dead-letters?sort=-dead_letters").rows["groups"]
        self.assertEqual([(row["group"], row["dead_letters"], row["brokers"]) for row in rows],
                         [("billing", 2, ["broker-a"]), ("other", 1, ["broker-a"])])
        [row] = self.browser.json("/dead-letters?q=OTH").rows["groups"]
        self.assertEqual(row["group"], "other")
        self.assertIn('href="/dead-letters/other"', self.browser.get("/dead-letters").text)

    def test_too_many_groups_to_count(self) -> None:
        """The page says that it counts only a part of them."""
        self.rows("updateSubGroup", "-b", self.broker, "-g", "other")
        self.bury(b"a")
        self.bury(b"c", group="other")
        self.patch(dead_letter_pages, "COUNTED_MAX", 1)
        answer = self.browser.json("/dead-letters")
        self.assertEqual([row["group"] for row in answer.rows["groups"]], ["billing"])
        self.assertIn("Only 1 of 2 groups", json.loads(answer.text)["notes"][0])

    def test_the_newest_come_first_and_older_ones_follow(self) -> None:
        """A page is bounded, and leads to the next one."""
        self.bury(*(f"m{at}".encode() for at in range(7)))
        answer = self.browser.json(f"{PATH}?count=3")
        self.assertEqual([row["body"] for row in answer.rows["letters"]], ["m6", "m5", "m4"])
        facts = json.loads(answer.text)["facts"]
        self.assertEqual(facts["dead_letters"], 7)
        for bodies in (["m3", "m2", "m1"], ["m0"]):
            answer = self.browser.json(f"{PATH}?count=3&older={facts['older']}")
            facts = json.loads(answer.text)["facts"]
            self.assertEqual([row["body"] for row in answer.rows["letters"]], bodies)
        self.assertEqual((facts["older"], facts["dead_letters"]), ("", 7))
        self.assertIn("older=broker-a%3A0%3D4", self.browser.get(f"{PATH}?count=3").text)

    def test_a_letter_names_its_message(self) -> None:
        """The row has the id, the topic and the attempts of the message; its text is escaped."""
        self.bury(b"<script>alert(1)</script>")
        [message] = self.messages("orders")
        [row] = self.letters()
        self.assertEqual(
            (row["message"], row["topic"], row["keys"], row["attempts"]),
            (message.properties_map()["UNIQ_KEY"], "orders", "k-25 other", 1))
        html = self.browser.get(PATH).text
        self.assertIn("&lt;script&gt;alert(1)", html)
        self.assertNotIn("<script>alert", html)

    def test_a_group_without_letters(self) -> None:
        """The page says what dead letters are."""
        self.assertIn("The group nothing has no dead letters.",
                      self.browser.get("/dead-letters/nothing").text)
        self.assertEqual(self.browser.get("/dead-letters/nothing/export").text, "")


class ResendTests(DeadLetterCase):
    """Three of ten letters are sent again."""

    def setUp(self) -> None:
        super().setUp()
        self.bury(*(f"m{at}".encode() for at in range(10)))

    def test_three_of_ten_arrive_once(self) -> None:
        """The preview counts them, each has an outcome, and a second click sends nothing."""
        rows = self.letters()
        self.assertEqual(len(rows), 10)
        chosen = rows[2:5]
        preview = self.browser.json(self.address(chosen))
        facts = json.loads(preview.text)["facts"]
        self.assertEqual((facts["count"], facts["clients"]), (3, 0))
        self.assertEqual({row["sent_to"] for row in preview.rows["letters"]},
                         {"%RETRY%billing"})
        html = self.browser.get(self.address(chosen)).text
        self.assertIn("Resend 3 messages", html)
        self.assertIn("No client of the group is connected.", html)
        self.assertEqual(self.messages("%RETRY%billing"), [])
        answer = self.resend(chosen, once=facts["once"])
        self.assertEqual(answer["result"], "3 of 3 dead letters of billing were sent again.")
        details = answer["details"]
        assert isinstance(details, list)
        self.assertEqual(len(details), 3)
        for line in details:
            self.assertRegex(line, r"^[0-9A-F]{32}: %RETRY%billing, queue 0 of broker-a, "
                                   r"offset [0-2] \(SEND_OK\)$")
        second = self.resend(chosen, once=facts["once"])
        self.assertEqual(second["status"], 400)
        sent = self.messages("%RETRY%billing")
        self.assertEqual(sorted(each.body for each in sent), [b"m5", b"m6", b"m7"])
        self.assertEqual({each.properties_map()["UNIQ_KEY"] for each in sent},
                         {row["message"] for row in chosen})
        for each in sent:
            properties = each.properties_map()
            self.assertEqual((properties["RETRY_TOPIC"], properties["own"], properties["KEYS"],
                              each.reconsume_times), ("orders", "x", "k-2 other", 0))
            self.assertNotIn("DELAY", properties)

    def test_a_consumer_gets_what_is_sent_again(self) -> None:
        """It arrives under its topic, at the group that had failed."""
        self.commit(GROUP, "orders", 0, 10)
        self.wait_for_route("%RETRY%billing")
        [row] = [each for each in self.letters() if each["body"] == "m4"]
        with Consumer(self.running.namesrv_address, group=GROUP, topics="orders",
                      start="first") as consumer:
            self.assertEqual(self.resend([row])["status"], 200)
            for message in consumer:
                self.assertEqual((message.topic, message.body, message.id, message.attempt),
                                 ("orders", b"m4", row["message"], 1))
                consumer.stop()

    def test_to_every_group_of_the_topic(self) -> None:
        """The message is in its topic again, as a new one."""
        [row] = [each for each in self.letters() if each["body"] == "m9"]
        answer = self.resend([row], to="topic")
        self.assertEqual(answer["result"], "1 of 1 dead letters of billing were sent again.")
        messages = self.messages("orders")
        self.assertEqual([each.body for each in messages[10:]], [b"m9"])
        self.assertNotIn("RETRY_TOPIC", messages[-1].properties_map())

    def test_a_broker_that_refuses(self) -> None:
        """Each message has the reason, and nothing else happens."""
        rows = self.letters()[:2]
        self.rows("updateTopicPerm", "-t", "orders", "-p", "4", "-b", self.broker)
        answer = self.resend(rows, to="topic")
        self.assertEqual(answer["result"], "0 of 2 dead letters of billing were sent again.")
        self.assertIn("not sent, topic orders cannot be written to", str(answer["details"]))

    def test_a_resend_stops_before_its_deadline(self) -> None:
        """The page shows each outcome, and a letter that was not sent can be sent later."""
        rows = self.letters()[:2]
        self.patch(dead_letter_pages, "_SPARE_S", 1_000)
        answer = self.resend(rows)
        self.assertEqual(answer["details"], [
            f"{row['select']}: not sent, the time of the form was over" for row in rows])
        self.assertEqual(self.messages("%RETRY%billing"), [])

    def test_selections_that_are_not_valid(self) -> None:
        """A stranger's text is refused, and an expired letter is named."""
        for text in ("x", "broker-a:0", "broker-a:-1:0", "broker-a:0:9" + "9" * 30, ":0:0"):
            self.assertEqual(self.browser.json(f"{PATH}/resend?select={text}").status, 400)
        many = [{"select": f"broker-a:0:{at}"} for at in range(201)]
        self.assertEqual(self.browser.json(self.address(many)).status, 400)
        gone = {"select": "broker-a:0:99"}
        answer = self.browser.json(self.address([gone]))
        self.assertIn("have expired: broker-a:0:99", json.loads(answer.text)["notes"][0])
        answer = self.resend([gone])
        self.assertEqual(answer["result"], "0 of 1 dead letters of billing were sent again.")
        self.assertIn("there is no such message any more", str(answer["details"]))
        self.assertEqual(self.resend([])["status"], 400)

    def test_a_browser_goes_back_to_the_list(self) -> None:
        """It shows a line for each message."""
        form = {"select": str(self.letters()[0]["select"]), "next": PATH}
        answer = self.browser.post(f"{PATH}/resend", form)
        self.assertEqual((answer.status, answer.headers["location"]), (303, PATH))
        text = self.browser.get(PATH).text
        self.assertIn("1 of 1 dead letters of billing were sent again.", text)
        self.assertIn("queue 0 of broker-a, offset 0 (SEND_OK)", text)

    def test_the_export_has_all_of_them(self) -> None:
        """`twistmq produce --json` reads the lines, also those with a binary body."""
        self.bury(b"\x00\xff")
        answer = self.browser.get(f"{PATH}/export")
        self.assertEqual(answer.headers["content-disposition"],
                         'attachment; filename="dead-letters-billing.jsonl"')
        lines = [json.loads(line) for line in answer.text.splitlines()]
        self.assertEqual([line["offset"] for line in lines], list(range(11)))
        self.assertEqual((lines[0]["topic"], lines[0]["keys"], lines[0]["properties"]),
                         ("orders", ["k-2", "other"], {"own": "x"}))
        messages = list(read_messages([io.BytesIO(answer.text.encode())], "orders", b"\n", b"", {},
                                      "", True, 0))
        self.assertEqual([each.body for each in messages],
                         [*(f"m{at}".encode() for at in range(10)), b"\x00\xff"])
        self.patch(dead_letter_pages, "EXPORT_BYTES_MAX", 8)
        answer = self.browser.get(f"{PATH}/export")
        self.assertEqual(answer.headers["content-disposition"],
                         'attachment; filename="dead-letters-billing-newest-0.jsonl"')

    def test_large_letters_are_read_in_part(self) -> None:
        """A page stops at a number of bytes, and leads to the older letters."""
        self.patch(dead_letter_pages, "PAGE_BYTES_MAX", 7)
        answer = self.browser.json(PATH)
        self.assertEqual([row["body"] for row in answer.rows["letters"]],
                         ["m9", "m8", "m7", "m6"])
        facts = json.loads(answer.text)["facts"]
        self.assertEqual(facts["dead_letters"], 10)
        older = self.letters(f"?older={facts['older']}")
        self.assertEqual([row["body"] for row in older], ["m5", "m4", "m3", "m2"])


class ReadonlyTests(DeadLetterCase):
    """A console that changes nothing."""

    readonly = True

    def test_nothing_is_sent(self) -> None:
        """The pages have no button, and a form that is sent without it is refused."""
        self.bury(b"a")
        [row] = self.letters()
        self.assertNotIn("<button>Resend", self.browser.get(PATH).text)
        self.assertNotIn("<button>Resend", self.browser.get(self.address([row])).text)
        self.assertEqual(self.resend([row])["status"], 403)
        self.assertEqual(self.messages("%RETRY%billing"), [])


class PathTests(DeadLetterCase):
    """A name of a group with signs."""

    base = "/ops"

    def test_signs_in_the_name(self) -> None:
        """Every address has the path of the proxy, and each name is one segment."""
        group = "b-1%x"
        self.rows("updateSubGroup", "-b", self.broker, "-g", group)
        self.bury(b"a", group=group)
        text = self.browser.get(f"/dead-letters/{quote(group, safe='')}").text
        self.assertIn('action="/ops/dead-letters/b-1%25x/resend"', text)
        text = self.browser.get(f"/dead-letters/{quote(group, safe='')}/resend?select=broker-a:0:0")
        self.assertIn('name="next" value="/dead-letters/b-1%25x"', text.text)
