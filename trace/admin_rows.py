"""The row of ``twistmq admin queryMsgTraceById``, which is loaded for every help text.

Source: QueryMsgTraceByIdSubCommand @5.3.3.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from twistmq.broker.api import RequestCode
from twistmq.broker.api.admin_commands import FROM_MS, MAX_COUNT, MESSAGE_ID, TO_MS, Command, Option
from twistmq.broker.api.topics import TRACE_TOPIC

__all__ = ["COMMANDS"]

COMMANDS: Final = (
    Command("queryMsgTraceById", "message", "Show the traces of a message.",
            "twistmq.trace.admin_commands:query_trace",
            (MESSAGE_ID,
             Option("topic", ("-t", "--traceTopic"), "The topic that contains the traces.",
                    default=TRACE_TOPIC),
             FROM_MS, TO_MS, replace(MAX_COUNT, flags=("-c", "--maxNum"))),
            (RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.QUERY_MESSAGE),
            ("type", "group", "client", "time", "ms", "status")),
)
