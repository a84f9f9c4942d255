"""The static topics of a broker: their table, its file, and which queue a request means.

Source: TopicQueueMappingManager, TopicQueueMappingContext @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from twisted.logger import Logger

from twistmq.broker.api import (
    AnyHandler,
    Handled,
    Request,
    RequestCode,
    RequestRefused,
    ResponseCode,
)
from twistmq.broker.api.bodies import DIALECT_SIZE_MAX, Body, DataVersion, TopicQueueMappingInfo
from twistmq.broker.api.errors import StoreDamaged, WireError
from twistmq.broker.api.requests import SavedTable, Saving
from twistmq.broker.api.wire import encode_pretty_row
from twistmq.plugins.static_topic.checks import MappingError, check_detail, merged
from twistmq.plugins.static_topic.mapping import (
    LogicQueueMappingItem,
    TopicQueueMappingDetail,
    TopicQueueMappingSerializeWrapper,
)

if TYPE_CHECKING:
    from twistmq.broker.api.store import ConfigFile

__all__ = ["INFOS_SIZE_MAX", "LogicalPlace", "QueueMappings", "decode_mappings",
           "wrapped_row"]

#: The refusal for a queue that is led elsewhere, in Apache's words.
_REMARK: Final = "{queue} does not exit in request process of current broker {broker}"
_PULL_REMARK: Final = (
    "{queue} cannot find mapping item in request process of current broker {broker}")
_REMARKS: Final[dict[int, str]] = {
    RequestCode.PULL_MESSAGE: _PULL_REMARK, RequestCode.LITE_PULL_MESSAGE: _PULL_REMARK,
    RequestCode.GET_MIN_OFFSET: "{queue} is not leader in broker {broker}, "
                                f"request code {RequestCode.GET_MIN_OFFSET:d}"}


#: Bytes of all static topics in a registration: a name server reads no longer ones, because their
#: keys are bare.
INFOS_SIZE_MAX: Final = DIALECT_SIZE_MAX * 15 // 16


def decode_mappings(data: bytes) -> TopicQueueMappingSerializeWrapper:
    """Read what the file holds.

    :raises WireError: when it is not such a table.
    :raises ValueError: when a mapping in it cannot be.
    """
    saved = TopicQueueMappingSerializeWrapper.decode_saved(data)
    for name, detail in saved.topic_queue_mapping_info_map.items():
        if name != detail.topic:
            raise ValueError(f"{name!r} is {detail.topic!r}")
        try:
            check_detail(detail)
        except MappingError as error:
            raise ValueError(f"static topic {name!r}: {error}") from None
    return saved


class _TopicMappings(Body):
    """The part of an answer with all topics that is about static ones."""

    mapping_data_version: DataVersion | None = None
    topic_queue_mapping_detail_map: dict[str, TopicQueueMappingDetail] | None = None


@dataclass(frozen=True, slots=True)
class LogicalPlace:
    """A logical queue that is led here, as a request found it."""

    number: int
    detail: TopicQueueMappingDetail
    #: Its parts, oldest first, at least one.
    items: list[LogicQueueMappingItem]

    @property
    def leader(self) -> LogicQueueMappingItem:
        """The part that messages are sent to."""
        return self.items[-1]

    def is_here(self, item: LogicQueueMappingItem) -> bool:
        """Whether a part lies on this broker."""
        return item.bname == self.detail.bname


class QueueMappings(SavedTable):
    """The static topics of a broker, by name.

    :param file: topicQueueMapping.json.
    :param broker_name: of the broker itself.
    :param now_ms: the clock, for the data version.
    """

    log = Logger()

    def __init__(self, file: ConfigFile, broker_name: str, now_ms: Callable[[], int]) -> None:
        super().__init__(file)
        self._broker_name = broker_name
        self._now_ms = now_ms
        self.data_version = DataVersion(timestamp=now_ms())
        #: Empty: no request needs to be looked at.
        self.table: dict[str, TopicQueueMappingDetail] = {}
        #: By topic, what is registered of it, and the size of that in bytes.
        self._infos: dict[str, tuple[TopicQueueMappingInfo, int]] = {}
        #: The topics as the file has them. It belongs to the thread that saves.
        self._rows: dict[str, bytes] = {}
        #: Topics whose rows there are old, with what they say now; None: they are deleted.
        self._unsaved: dict[str, TopicQueueMappingDetail | None] = {}

    @property
    def infos(self) -> dict[str, TopicQueueMappingInfo]:
        """What is registered of all topics, by name."""
        return {topic: info for topic, (info, _) in self._infos.items()}

    # --- file

    def load(self) -> None:
        """Take over what was saved.

        :raises StoreDamaged: when it cannot be read, or is of a broker with another name, whose
            part of the topics no client would find here.
        """
        self._file.load_rows(TopicQueueMappingSerializeWrapper, self._take_saved)
        for topic, detail in self.table.items():
            if detail.bname != self._broker_name:
                raise StoreDamaged(f"{self._file.path}: topic {topic} is of broker "
                                   f"{detail.bname}, this one is {self._broker_name}")

    def _take_saved(self, saved: TopicQueueMappingSerializeWrapper, data: bytes) -> None:
        table = saved.topic_queue_mapping_info_map
        for name, detail in table.items():
            if name != detail.topic:
                raise ValueError(f"{name!r} is {detail.topic!r}")
        whole = {name: detail for name, detail in table.items() if self._is_possible(detail)}
        if len(whole) < len(table) and data:
            self._file.keep_refused(data)
        for topic, detail in whole.items():
            self._set(topic, detail)
        self.data_version.assign(saved.data_version)

    def _is_possible(self, detail: TopicQueueMappingDetail) -> bool:
        """Whether a saved mapping can be served; a broker must not lose all topics for one."""
        try:
            check_detail(detail)
        except MappingError as error:
            self.log.error("{path}: the static topic {topic} is left out: {error}. The file is "
                           "kept with the ending .refused", path=self._file.path,
                           topic=detail.topic, error=str(error))
            return False
        return True

    def saving(self) -> Saving:
        """See SavedTable."""
        yield
        unsaved, self._unsaved = self._unsaved, {}
        maps: dict[str, list[bytes]] = {}
        job = self._job(TopicQueueMappingSerializeWrapper({}, self.data_version), maps)

        def save() -> None:
            # A topic may have thousands of queues: it is written on the thread, and once.
            for topic, detail in unsaved.items():
                if detail is None:
                    self._rows.pop(topic, None)
                else:
                    self._rows[topic] = encode_pretty_row(topic, detail)
            maps["topicQueueMappingInfoMap"] = list(self._rows.values())
            job()

        return save

    # --- change

    def checked(
        self, new: TopicQueueMappingDetail, force: bool, physical_queues: int | None = None
    ) -> TopicQueueMappingDetail:
        """The mapping of a topic after a change; nothing is changed yet.

        :param physical_queues: the number of write queues that the topic will have here.
        :raises MappingError: when it must not.
        """
        if new.bname != self._broker_name:
            raise MappingError(
                f"the mapping is of broker {new.bname}, this is {self._broker_name}")
        # Queues that are left out stay, also when the topic has fewer physical ones now.
        check_detail(new, physical_queues)
        detail = merged(new, self.table.get(new.topic), force)
        check_detail(detail)
        size = len(detail.info().encode()) + sum(
            size for topic, (_, size) in self._infos.items() if topic != detail.topic)
        if size > INFOS_SIZE_MAX:
            raise MappingError(f"the static topics would take {size} bytes in a registration, the "
                               f"limit is {INFOS_SIZE_MAX}")
        return detail

    def put(self, detail: TopicQueueMappingDetail) -> None:
        """Take a mapping that was checked."""
        self.log.info("static topic {topic}: epoch {epoch}, {count} of {total} queues led here",
                      topic=detail.topic, epoch=detail.epoch, count=len(detail.led()),
                      total=detail.total_queues)
        self._set(detail.topic, detail)
        self._changed()

    def delete(self, topic: str) -> None:
        """Let a topic be static no more; it may not be."""
        if topic in self.table:
            self._forget(topic)
            self._changed()

    def _set(self, topic: str, detail: TopicQueueMappingDetail) -> None:
        info = detail.info()
        self.table[topic] = self._unsaved[topic] = detail
        self._infos[topic] = info, len(info.encode())

    def _forget(self, topic: str) -> None:
        del self.table[topic], self._infos[topic]
        self._unsaved[topic] = None

    def take(self, body: bytes) -> None:
        """Become the table of the master, with its data version; an older master has none.

        :param body: of its answer with all topics.
        :raises WireError: when the body has no such table, or one of another broker name; nothing
            is changed then.
        """
        theirs = _TopicMappings.decode(body)
        table, version = theirs.topic_queue_mapping_detail_map, theirs.mapping_data_version
        if table is None or version is None:
            return
        for name, detail in table.items():
            if (name, self._broker_name) != (detail.topic, detail.bname):
                raise WireError(f"there cannot be a static topic {name!r} that is of broker "
                                f"{detail.bname!r} and topic {detail.topic!r}")
            try:
                check_detail(detail)
            except MappingError as error:
                raise WireError(f"there cannot be a static topic {name!r}: {error}") from None
        if table != self.table:
            # Rows of handlers keep the table itself.
            for name in [name for name in self.table if name not in table]:
                self._forget(name)
            for name, detail in table.items():
                if detail != self.table.get(name):
                    self._set(name, detail)
            self.dirty = True
        if version != self.data_version:
            self.data_version.assign(version)
            self.dirty = True

    def _changed(self) -> None:
        self.data_version.next_version(self._now_ms())
        self.dirty = True

    # --- look-up

    def place(self, request: Request[Any], *, choose: bool = False) -> LogicalPlace | None:
        """The logical queue a request means; None: its topic is not static, or it is forwarded.

        :param choose: whether any queue is meant when it names none.
        :raises RequestRefused: NOT_LEADER_FOR_QUEUE when it is not led here.
        """
        header = request.header
        detail = self.table.get(header.topic)
        if detail is None or request.command.fields().get("lo", "").lower() == "false":
            return None
        number: int = header.queue_id if header.queue_id is not None else -1
        if number < 0 and choose:
            number = next(iter(detail.led()), number)
        items = detail.hosted_queues.get(number)
        if items is None or not detail.leads(items):
            raise RequestRefused(
                ResponseCode.NOT_LEADER_FOR_QUEUE, _REMARKS.get(
                    request.command.code, _REMARK).format(
                        queue=f"{detail.topic}-{number}", broker=detail.bname))
        return LogicalPlace(number, detail, items)


def wrapped_row(
    row: AnyHandler, mappings: QueueMappings,
    answer: Callable[[Request[Any], LogicalPlace], Handled],
) -> AnyHandler:
    """A row whose requests are answered otherwise when they mean a logical queue.

    While there is no static topic a request costs one truth test.
    """
    inner, table = row.handle, mappings.table

    def handle(request: Request[Any]) -> Handled:
        place = mappings.place(request) if table else None
        return inner(request) if place is None else answer(request, place)

    return replace(row, handle=handle)
