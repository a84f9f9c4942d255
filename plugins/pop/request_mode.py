"""SET_MESSAGE_REQUEST_MODE, GET_ALL_MESSAGE_REQUEST_MODE (401, 402): does a group pull or pop?

``config/messageRequestMode.json`` holds it.

Source: MessageRequestModeManager, QueryAssignmentProcessor.setMessageRequestMode @5.3.3.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from msgspec import field

from twistmq.broker.api import (
    AnyHandler,
    Reply,
    Request,
    RequestCode,
    RequestHandler,
    RequestRefused,
    ResponseCode,
)
from twistmq.broker.api.bodies import Body
from twistmq.broker.api.requests import SyncedTable
from twistmq.broker.api.topics import RETRY_GROUP_TOPIC_PREFIX
from twistmq.broker.api.wire import Int32

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["ModeTable", "RequestMode", "RequestModes", "SetMessageRequestModeRequestBody"]

#: From one copy of the master's table to the next, ms.
_COPY_PERIOD_MS = 3000


class RequestMode(StrEnum):
    """How a group gets messages."""

    PULL = "PULL"
    POP = "POP"


class SetMessageRequestModeRequestBody(Body):
    """How one group gets the messages of one topic."""

    topic: str = ""
    consumer_group: str = ""
    mode: RequestMode = RequestMode.PULL
    #: The number of members after it with which a consumer shares its queues; 0 or less: all.
    pop_share_queue_num: Int32 = 0


class ModeTable(Body):
    """The modes by topic and group, as the file and a reply hold them."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeRequestBody]] = field(
        default_factory=dict)


class RequestModes:
    """The request modes that were set for groups of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._file = broker.store.config_file("messageRequestMode.json")
        self._saved = ModeTable()

    def load(self) -> None:
        """Take over what was saved; :raises StoreDamaged: when it cannot be read."""
        self._file.load_rows(ModeTable, self._take_saved)

    def _take_saved(self, saved: ModeTable, _: bytes) -> None:
        self._saved = saved

    def handlers(self) -> list[AnyHandler]:
        return [RequestHandler(RequestCode.SET_MESSAGE_REQUEST_MODE, self._set),
                RequestHandler(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, self._all)]

    def tables(self) -> list[SyncedTable]:
        """The table that a slave copies."""
        return [SyncedTable("request modes", RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, self._take,
                            _COPY_PERIOD_MS)]

    def _take(self, body: bytes) -> None:
        """Become the table of the master; :raises WireError: when the body is none."""
        theirs = ModeTable.decode(body)
        if theirs != self._saved:
            self._saved = theirs
            self._file.save_bytes(self._saved.encode_pretty())

    def mode_of(self, topic: str, group: str) -> SetMessageRequestModeRequestBody:
        """How a group gets the messages of a topic."""
        found = self._saved.message_request_mode_map.get(topic, {}).get(group)
        if found is not None:
            return found
        settings = self._broker.settings
        if topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            return SetMessageRequestModeRequestBody(topic, group)
        mode = RequestMode(settings.text("defaultMessageRequestMode"))
        share = settings.int("defaultPopShareQueueNum") if mode is RequestMode.POP else 0
        return SetMessageRequestModeRequestBody(topic, group, mode, share)

    def _set(self, request: Request[Any]) -> Reply:
        """It is answered when it is saved; :raises BrokerError: when it cannot be."""
        broker = self._broker
        body = SetMessageRequestModeRequestBody.decode(request.body)
        topic, group = body.topic, body.consumer_group
        if topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            raise RequestRefused(ResponseCode.NO_PERMISSION,
                                 "retry topic is not allowed to set mode")
        if broker.topic_config.get(topic) is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        if broker.subscription_group.find(group) is None:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                                 "subscription group does not exist")
        self._forget_gone()
        self._saved.message_request_mode_map.setdefault(topic, {})[group] = body
        self._file.save_bytes(self._saved.encode_pretty())
        return Reply()

    def _forget_gone(self) -> None:
        """Forget topics and groups that are not there any more."""
        broker, table = self._broker, self._saved.message_request_mode_map
        for topic, groups in list(table.items()):
            for group in [group for group in groups if not broker.subscription_group.has(group)]:
                del groups[group]
            if not groups or broker.topic_config.get(topic) is None:
                del table[topic]

    def _all(self, request: Request[Any]) -> Reply:
        return Reply(body=self._saved.encode())
