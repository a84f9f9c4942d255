"""The timeline of a message."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tests.console.case import ConsoleCase
from tests.tools.admin.case import AdminCase
from twistmq.client import Producer
from twistmq.protocol.trace_records import (
    EndTransaction,
    Pub,
    Recall,
    SubAfter,
    SubBefore,
    TraceRecord,
    encode_records,
)

NAME = "0A" * 16
BEGIN_MS = 1_700_000_000_000


class TraceCase(ConsoleCase):
    """A broker with the topic of traces."""

    settings: Mapping[str, str] = {**AdminCase.settings, "traceTopicEnable": "true"}

    def setUp(self) -> None:
        super().setUp()
        self.browser.log_in()

    def write(self, *records: TraceRecord) -> None:
        """Write traces as a client does."""
        with Producer(self.running.namesrv_address) as producer:
            producer.send("RMQ_SYS_TRACE_TOPIC", encode_records(records), keys=[NAME])


class TraceTests(TraceCase):
    """Traces of a message that was retried."""

    def test_the_timeline_equals_the_command(self) -> None:
        """Each attempt is an event, with the group, the client, the duration and the result."""
        self.write(
            Pub(BEGIN_MS, None, "p", "orders", NAME, None, "k1", "1.2.3.4:5", 5, 3, 0, None, True),
            Pub(BEGIN_MS, None, "p", "orders", "0B" * 16, None, None, None, 5, 3, 0, None, True),
            SubBefore(BEGIN_MS + 10, None, "g", "r1", NAME, 0, "k1"),
            SubAfter("r1", NAME, 7, False, None, 2, BEGIN_MS + 17, "g"))
        self.write(SubBefore(BEGIN_MS + 10_000, None, "g", "r2", NAME, 1, None),
                   SubAfter("r2", NAME, 4, True, None, 0, BEGIN_MS + 10_004, "g"))
        answer = self.browser.json(f"/traces/{NAME}")
        rows = answer.rows["events"]
        commands = self.rows("queryMsgTraceById", "-i", NAME)
        self.assertEqual(len(rows), 3)
        self.assertEqual(
            [("Pub" if row["event"] == "sent" else "Sub", row["group"], row["client"],
              row["ended"] or row["time"], row["ms"], row["status"]) for row in rows],
            [(row["type"], row["group"], row["client"], row["time"], row["ms"], row["status"])
             for row in commands])
        self.assertEqual([row["details"] for row in rows],
                         [["5 bytes", "stored by 1.2.3.4:5"], ["attempt 1", "exception"],
                          ["attempt 2"]])
        facts = json.loads(answer.text)["facts"]
        self.assertEqual(
            (facts["topic"], facts["keys"], facts["span_ms"], facts["attempts"], facts["groups"]),
            ("orders", "k1", 10_004, 2, 1))
        self.assertEqual(facts["bars"], [[0, 6], [0, 6], [994, 6]])
        text = self.browser.get(f"/traces?id={NAME}").text
        self.assertIn("+10,000 ms", text)
        self.assertNotIn(" style=", text)

    def test_an_attempt_without_an_end(self) -> None:
        """A client that died leaves a begin alone; an old one writes an end without a time."""
        self.write(SubBefore(BEGIN_MS, None, "g", "r1", NAME, 0, None),
                   SubAfter("r2", NAME, 4, True, None, 0, BEGIN_MS + 9, "h"))
        rows = self.browser.json(f"/traces/{NAME}").rows["events"]
        self.assertEqual([(row["group"], row["status"], row["after_ms"], row["ms"])
                          for row in rows], [("g", "no end", 0, None), ("h", "success", 5, 4)])

    def test_transactions_and_recalls(self) -> None:
        """They are events of the producer."""
        self.write(
            EndTransaction(BEGIN_MS, None, "p", "orders", NAME, None, None, None, 2, "t",
                           "COMMIT_MESSAGE", True),
            Recall(BEGIN_MS + 1, None, "p", "orders", NAME, False))
        rows = self.browser.json(f"/traces/{NAME}").rows["events"]
        self.assertEqual([(row["event"], row["status"], row["details"]) for row in rows],
                         [("transaction", "success", ["COMMIT_MESSAGE", "after a check"]),
                          ("recalled", "failed", [])])

    def test_a_text_of_a_stranger_is_no_markup(self) -> None:
        """A client writes any text into its traces."""
        self.write(Pub(BEGIN_MS, None, "<img src=x>", "<b>", NAME, None, "<i>", "<u>", 5, 3, 9,
                       None, True))
        text = self.browser.get(f"/traces/{NAME}").text
        for markup in ("<img src=x>", "<b>", "<i>", "<u>"):
            self.assertNotIn(markup, text)
        self.assertIn("type 9", text)

    def test_a_message_without_traces(self) -> None:
        """The page says how traces are switched on."""
        for path in ("/traces/nothing", "/traces"):
            answer = self.browser.get(path)
            self.assertEqual(answer.status, 200)
            self.assertIn("trace.server=true", answer.text)
        self.assertEqual(self.browser.json("/traces/nothing").rows["events"], [])


class WithoutTopicTests(ConsoleCase):
    """A broker that traces nothing."""

    def test_the_page_says_so(self) -> None:
        """A topic of traces that does not exist is not an error."""
        self.browser.log_in()
        answer = self.browser.get(f"/traces/{NAME}")
        self.assertEqual(answer.status, 200, msg=answer.text)
        self.assertIn("There is no topic RMQ_SYS_TRACE_TOPIC, so nothing is traced.", answer.text)
        self.assertIn("traceTopicEnable=true", answer.text)
