"""SET_MESSAGE_REQUEST_MODE, GET_ALL_MESSAGE_REQUEST_MODE (401, 402): does a group pull or pop?

The modes are saved in ``config/messageRequestMode.json``. The total size of all modes is limited,
and changes that arrive while the file is being written share the next write. Without these limits,
a client that sets one mode after another would make the broker write a longer file each time, on
the reactor.

Source: MessageRequestModeManager, QueryAssignmentProcessor.setMessageRequestMode @5.3.3, which have
no limit and write the whole file for each change.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from msgspec import field
from twisted.internet.defer import Deferred

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
from twistmq.broker.api.requests import FileRows, SavedTable, Saving, SyncedTable
from twistmq.broker.api.topics import RETRY_GROUP_TOPIC_PREFIX
from twistmq.broker.api.wire import Int32, encode_pretty_row

if TYPE_CHECKING:
    from twistmq.broker.api import Broker

__all__ = ["MODES_SIZE_MAX", "ModeTable", "RequestMode", "RequestModes",
           "SetMessageRequestModeRequestBody"]

#: The maximum size of all modes as computed by ``_row_size``, in bytes: room for 8,000 modes with
#: usual names.
#: An administrator sets each mode, so a cluster has only some dozens of them.
MODES_SIZE_MAX: Final = 1024 * 1024
#: Size of a mode in the file in addition to its names, bytes.
_ROW_BYTES: Final = 100

#: Interval between two copies of the master's table, ms.
_COPY_PERIOD_MS = 3000


class RequestMode(StrEnum):
    """How a group receives messages."""

    PULL = "PULL"
    POP = "POP"


class SetMessageRequestModeRequestBody(Body):
    """How one group receives the messages of one topic."""

    topic: str = ""
    consumer_group: str = ""
    mode: RequestMode = RequestMode.PULL
    #: The number of following members with which a consumer shares its queues; 0 or less: all.
    pop_share_queue_num: Int32 = 0


class ModeTable(Body):
    """The modes by topic and group, as they are stored in the file and in a reply."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeRequestBody]] = field(
        default_factory=dict)


class RequestModes(SavedTable):
    """The request modes that were set for groups of one broker."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker.store.config_file("messageRequestMode.json"))
        self._broker = broker
        #: Topic to group to mode.
        self._table: dict[str, dict[str, SetMessageRequestModeRequestBody]] = {}
        self._size_bytes = 0
        self._file_rows = FileRows(self._file_row)

    # --- file

    def load(self) -> None:
        """Load the saved modes; :raises StoreDamaged: when they cannot be read."""
        self._file.load_rows(ModeTable, self._take_saved)

    def _take_saved(self, saved: ModeTable, data: bytes) -> None:
        self._become(saved)
        self._file_rows.loaded(data, "messageRequestModeMap", self._table)

    def _become(self, table: ModeTable) -> None:
        """Take over the modes of another table, even if they exceed the limit."""
        self._table = table.message_request_mode_map
        self._size_bytes = sum(
            _row_size(topic, group) for topic, groups in self._table.items() for group in groups)

    def saving(self) -> Saving:
        """See SavedTable."""
        yield from self._forgetting_gone()
        yield from self._file_rows.write()
        return self._job(ModeTable(), {"messageRequestModeMap": self._file_rows.rows()})

    def _file_row(self, topic: str) -> bytes | None:
        groups = self._table.get(topic)
        return None if groups is None else encode_pretty_row(topic, groups)

    # --- requests

    def handlers(self) -> list[AnyHandler]:
        return [RequestHandler(RequestCode.SET_MESSAGE_REQUEST_MODE, self._set),
                RequestHandler(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, self._all)]

    def tables(self) -> list[SyncedTable]:
        """The tables that a slave copies."""
        return [SyncedTable("request modes", RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, self._take,
                            _COPY_PERIOD_MS)]

    def _take(self, body: bytes) -> Deferred[None] | None:
        """Take over the master's table; :raises WireError: when the body cannot be decoded."""
        master_table = ModeTable.decode(body)
        if master_table.message_request_mode_map == self._table:
            return None
        for topic in (*self._table, *master_table.message_request_mode_map):
            self._file_rows.changed(topic)
        self._become(master_table)
        return self._broker.saves.save(self)

    def mode_of(self, topic: str, group: str) -> SetMessageRequestModeRequestBody:
        """Return how a group receives the messages of a topic."""
        existing = self._table.get(topic, {}).get(group)
        if existing is not None:
            return existing
        settings = self._broker.settings
        if topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            return SetMessageRequestModeRequestBody(topic, group)
        mode = RequestMode(settings.text("defaultMessageRequestMode"))
        share = settings.int("defaultPopShareQueueNum") if mode is RequestMode.POP else 0
        return SetMessageRequestModeRequestBody(topic, group, mode, share)

    def _set(self, request: Request[Any]) -> Deferred[Reply]:
        """Set a mode and answer once it is saved; :raises BrokerError: when it cannot be saved."""
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
        self._put(topic, group, body)

        def answer(_: object) -> Reply:
            if self in broker.saves.unsaved:
                raise RequestRefused(
                    ResponseCode.SYSTEM_ERROR,
                    "the mode is in effect but not saved yet: see the broker's log for the reason")
            return Reply()

        return broker.saves.save(self).addCallback(answer)

    def _put(self, topic: str, group: str, body: SetMessageRequestModeRequestBody) -> None:
        """Set a mode; :raises RequestRefused: when there is no room for another mode."""
        if group not in self._table.get(topic, {}):
            more_bytes = _row_size(topic, group)
            if self._size_bytes + more_bytes > MODES_SIZE_MAX:
                for _ in self._forgetting_gone():
                    continue
            if self._size_bytes + more_bytes > MODES_SIZE_MAX:
                raise RequestRefused(
                    ResponseCode.SYSTEM_ERROR,
                    f"the request modes of all groups have {self._size_bytes} bytes, and with "
                    f"another mode they would exceed {MODES_SIZE_MAX}")
            self._size_bytes += more_bytes
        self._table.setdefault(topic, {})[group] = body
        self._file_rows.changed(topic)
        self.dirty = True

    def _forgetting_gone(self) -> Iterator[None]:
        """Forget topics and groups that no longer exist, one topic in each step."""
        broker = self._broker
        for topic, groups in list(self._table.items()):
            if self._table.get(topic) is not groups:
                # The master's table replaced it in the meantime.
                continue
            has_topic = broker.topic_config.get(topic) is not None
            gone = [group for group in groups
                    if not has_topic or not broker.subscription_group.has(group)]
            for group in gone:
                del groups[group]
                self._size_bytes -= _row_size(topic, group)
            if not groups:
                del self._table[topic]
            if gone or not groups:
                self._file_rows.changed(topic)
            yield

    def _all(self, request: Request[Any]) -> Reply:
        return Reply(body=ModeTable(self._table).encode())


def _row_size(topic: str, group: str) -> int:
    """Return the size of a mode, whose topic and group are both keys and values in the file."""
    return _ROW_BYTES + 2 * (len(topic) + len(group))
