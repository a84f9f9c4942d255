"""Requests of mqadmin and other tools: settings, statistics, topics, groups, clients, queues.

    25   change settings       202  offsets of a topic      201  all groups
    26   settings              300  groups of a topic       208  progress of a group
    28   runtime table         303  times of a topic        343  topics of a group
    315  statistics
    203  consumers             305  system topics           345  subscription of a group
    204  producers             351  one topic               352  one group
    328  all producers         321  entries of a queue      353  topics forbidden to a group
    223  offsets of consumers  306  clean queues            222  move a group
    307  state of a consumer    316  clean topics            308  the slowest group
    309  consume a message     329  delete expired files    314  clone a group's offsets
    317  progress of all groups

Requests that change topics and groups (17, 200, 207, 215) belong to the kernel, because clients
send them too.

Source: AdminBrokerProcessor @5.3.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from twistmq.broker.api import AnyHandler, Setting, hookimpl
from twistmq.plugins.admin.clients import ClientQuestions
from twistmq.plugins.admin.groups import GroupQuestions
from twistmq.plugins.admin.offset_reset import ResetRequests
from twistmq.plugins.admin.progress import ProgressRequests
from twistmq.plugins.admin.queues import QueueQuestions
from twistmq.plugins.admin.retention import RetentionRequests
from twistmq.plugins.admin.runtime import RuntimeQuestions
from twistmq.plugins.admin.settings import SettingRequests
from twistmq.plugins.admin.stats import StatsQuestions
from twistmq.plugins.admin.topics import TopicQuestions

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["Plugin"]


_SETTINGS: Final = (
    Setting("useServerSideResetOffset", "flag", True,
            "Whether the broker itself resets offsets, also for groups without a connected member; "
            "if not, the group's members are asked to do it.", source="BrokerConfig"),
)


class Plugin:
    """The administration requests of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @staticmethod
    @hookimpl
    def register_settings() -> Sequence[Setting]:
        return _SETTINGS

    @hookimpl
    def register_request_handlers(self) -> Sequence[AnyHandler]:
        """Return the handlers of one broker, by subject."""
        parts = [make(self._broker) for make in (
            RuntimeQuestions, TopicQuestions, GroupQuestions, ClientQuestions, QueueQuestions,
            RetentionRequests, ProgressRequests, ResetRequests, StatsQuestions, SettingRequests)]
        return [row for part in parts for row in part.handlers()]
