"""Options that several commands share."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from twistmq.tools.admin.rows import Option

__all__ = [
    "BODY_FORMAT", "BROKER", "BROKER_NAME", "CLUSTER", "CONSUMER", "FROM_MS", "GROUP", "INTERVAL",
    "KEY", "MAX_COUNT", "MESSAGE_ID", "NAMESPACE", "OUTPUT_FILE", "QUEUE", "ROUTE_TOPIC", "TOPIC",
    "TO_MS", "VALUE", "needed",
]


def needed(option: Option) -> Option:
    """Return a copy of the option that is required."""
    return replace(option, required=True)


TOPIC: Final = Option("topic", ("-t", "--topic"), "The topic.", required=True)
GROUP: Final = Option("group", ("-g", "--groupName", "--group"), "The group.", required=True)
CONSUMER: Final = Option("group", ("-g", "--consumerGroup", "--group"), "The consumer group.",
                         required=True)
BROKER: Final = Option("broker", ("-b", "--brokerAddr"), "The broker at this address.")
BROKER_NAME: Final = Option("broker", ("-b", "--brokerName"), "The broker of this name.",
                            required=True)
CLUSTER: Final = Option("cluster", ("-c", "--clusterName", "--cluster"),
                        "The brokers of this cluster.")
#: A light queue does not have its own route.
ROUTE_TOPIC: Final = Option("route_topic", ("-c", "--cluster"),
                            "The topic or cluster whose route is used, for a light queue.")
QUEUE: Final = Option("queue", ("-i", "--queueId"), "The queue's number.", "int", required=True)
MESSAGE_ID: Final = Option("message_id", ("-i", "--msgId"), "The message's id.", required=True)
MAX_COUNT: Final = Option("max_count", ("-m", "--maxNum"),
                          "The largest number of messages from a broker.",
                          "int", default=64)
FROM_MS: Final = Option("begin_ms", ("-b", "--beginTimestamp"), "Stored at this time or later.",
                        "time")
TO_MS: Final = Option("end_ms", ("-e", "--endTimestamp"), "Stored at this time or before.", "time")
NAMESPACE: Final = Option("namespace", ("-s", "--namespace"), "The namespace of the value.",
                          required=True)
INTERVAL: Final = Option("interval", ("-i", "--interval"),
                         "Repeat after this number of seconds.", "float")
KEY: Final = Option("key", ("-k", "--key"), "The name of the value.", required=True)
VALUE: Final = Option("value", ("-v", "--value"), "The value.", required=True)
BODY_FORMAT: Final = Option("charset", ("-f", "--bodyFormat"),
                            "The encoding in which the body is shown.", default="UTF-8")
OUTPUT_FILE: Final = Option("folder", ("-f", "--filePath"),
                            "A folder to which the export is written instead of being shown.")
