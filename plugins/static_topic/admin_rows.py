"""The rows of ``twistmq admin updateStaticTopic`` and ``remappingStaticTopic``.

This module is loaded for every help text; the code of the commands is elsewhere.

Source: UpdateStaticTopicSubCommand, RemappingStaticTopicSubCommand @5.3.3.
"""

from __future__ import annotations

from typing import Final

from twistmq.broker.api import RequestCode
from twistmq.broker.api.admin_commands import TOPIC, Command, Option

__all__ = ["COMMANDS"]

_CLUSTERS: Final = Option("clusters", ("-c", "--clusters"),
                          "The brokers of these clusters, separated by commas.")
_BROKERS: Final = Option("brokers", ("-b", "--brokers"),
                         "The brokers of these names, separated by commas.")
_FILE: Final = Option("file", ("-mf", "--mapFile"),
                      "Apply the mapping in this file, which such a command has written.", "path")
_FORCE: Final = Option("force", ("-fr", "--forceReplace"),
                       "With a file: whether brokers accept a mapping that contradicts theirs.",
                       "bool",
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
             Option("total", ("-qn", "--totalQueueNum"), "The number of queues to reach.", "int",
                    required=True), _FILE, _FORCE),
            _REQUESTS, _COLUMNS, one_of=_WHERE),
    Command("remappingStaticTopic", "topic", "Move the queues of a static topic to brokers.",
            f"{_HERE}:remapping_static_topic", (TOPIC, _BROKERS, _CLUSTERS, _FILE, _FORCE),
            (*_REQUESTS, RequestCode.GET_TOPIC_STATS_INFO), _COLUMNS, one_of=_WHERE),
)
