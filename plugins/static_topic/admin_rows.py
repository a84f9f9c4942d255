"""The rows of ``twistmq admin updateStaticTopic`` and ``remappingStaticTopic``.

Read for every help: what the commands do is elsewhere.

Source: UpdateStaticTopicSubCommand, RemappingStaticTopicSubCommand @5.3.3.
"""

from __future__ import annotations

from typing import Final

from twistmq.broker.api import RequestCode
from twistmq.broker.api.admin_commands import TOPIC, Command, Option

__all__ = ["COMMANDS"]

_CLUSTERS: Final = Option("clusters", ("-c", "--clusters"),
                          "The brokers of these clusters, apart by commas.")
_BROKERS: Final = Option("brokers", ("-b", "--brokers"),
                         "The brokers of these names, apart by commas.")
_FILE: Final = Option("file", ("-mf", "--mapFile"),
                      "Do what this file says, one of those that such a command writes.", "path")
_FORCE: Final = Option("force", ("-fr", "--forceReplace"),
                       "With a file: whether brokers take what contradicts what they have.", "bool",
                       default=False)
_WHERE: Final = ("brokers", "clusters")
_COLUMNS: Final = ("broker", "address", "topic", "read_queues", "write_queues", "leads", "epoch",
                   "before", "after")
_HERE: Final = "twistmq.plugins.static_topic.admin_commands"
_REQUESTS: Final = (RequestCode.GET_BROKER_CLUSTER_INFO, RequestCode.GET_TOPIC_CONFIG,
                    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC)

COMMANDS: Final = (
    Command("updateStaticTopic", "topic", "Create a static topic, or give it more queues.",
            f"{_HERE}:update_static_topic",
            (TOPIC, _BROKERS, _CLUSTERS,
             Option("total", ("-qn", "--totalQueueNum"), "How many queues it is to have.", "int",
                    required=True), _FILE, _FORCE),
            _REQUESTS, _COLUMNS, one_of=_WHERE),
    Command("remappingStaticTopic", "topic", "Move the queues of a static topic to brokers.",
            f"{_HERE}:remapping_static_topic", (TOPIC, _BROKERS, _CLUSTERS, _FILE, _FORCE),
            (*_REQUESTS, RequestCode.GET_TOPIC_STATS_INFO), _COLUMNS, one_of=_WHERE),
)
