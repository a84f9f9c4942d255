"""Rows of ``format("rocketmq_trace")`` equal the output of `mqadmin queryMsgTraceById`.

A Java producer, a transactional producer and a consumer trace themselves; the tool and Spark read
the same topic.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final

from tests.interop.clients import JavaTestCase
from tests.interop.mqadmin import mqadmin
from tests.interop.servers import Servers
from tests.interop.test_trace import PARTS, WANTED, shape, until
from tests.interop.trace_round import java_trace
from tests.spark_bridge.session import spark_session

#: A line of the tool: kind, group, client, time, cost, result.
_LINE: Final = re.compile(
    r"(Pub|Sub)\s+(\S+)\s+(\S+)\s+(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\s+(\d+)ms\s+(\w+)")

Line = tuple[str, str, str, str, int, str]


def lines_of(text: str) -> list[Line]:
    """Return the tool's output about a message."""
    return sorted((kind, group, host, time, int(cost), result)
                  for kind, group, host, time, cost, result in _LINE.findall(text))


def shown(time: datetime) -> str:
    """A time as the tool prints it: local, whole seconds."""
    return time.astimezone().strftime("%Y-%m-%d %H:%M:%S")


class TraceRowTests(JavaTestCase):
    """One round of the Java client 5.3.3."""

    def long_rows_are_what_the_tool_prints(self) -> None:
        """Sends and consumptions are compared, and transactions, which it does not
        print, checked.
        """
        spark = spark_session()
        from twistmq.spark_bridge.trace_view import messages_of_traces

        servers = Servers(self.folder / "ours", "brokerIP1=127.0.0.1", "traceTopicEnable=true")
        servers.start()
        self.addCleanup(servers.stop)
        printed: dict[str, str] = {}

        def wait(ids: dict[str, str]) -> None:
            def is_whole() -> bool:
                texts = mqadmin(servers.namesrv, [f"queryMsgTraceById -i {ids[kind]}"
                                                  for kind in WANTED])
                printed.update(zip(WANTED, texts, strict=True))
                return {kind: shape(text) for kind, text in printed.items()} == WANTED

            until(is_whole)

        ids = java_trace("5.3.3", servers.namesrv, "TraceRows", True, PARTS, wait)
        events = spark.read.format("rocketmq_trace").option("nameServer", servers.namesrv).load()
        rows = {row["msgId"]: row for row in messages_of_traces(events).collect()}
        for kind in WANTED:
            self.assertEqual(self.lines(rows[ids[kind]]), lines_of(printed[kind]), msg=kind)
        ends = {kind: rows[ids[kind]]["transactionState"] for kind in WANTED}
        self.assertEqual(ends, {**dict.fromkeys(WANTED), "committed": "COMMIT_MESSAGE",
                                "rolled-back": "ROLLBACK_MESSAGE"})
        for kind in ("tagged", "bare", "committed"):
            self.assertGreaterEqual(rows[ids[kind]]["endToEndMs"], 0, msg=kind)
        self.assertIsNone(rows[ids["rolled-back"]]["endToEndMs"])
        self.assertEqual(rows[ids["tagged"]]["failedCount"], 1)

    def lines(self, row: Any) -> list[Line]:
        """Return the lines that the tool would print for a message."""
        found: list[Line] = [(
            "Pub", row["producerGroup"], row["producerHost"], shown(row["sendTime"]),
            row["sendCostMs"], "success" if row["sendSuccess"] else "failed")]
        found += [("Sub", one["group"], one["clientHost"], shown(one["end"]), one["costMs"],
                   "success" if one["success"] else "failed") for one in row["consumptions"] or ()]
        return sorted(found)
