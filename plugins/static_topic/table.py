"""The static topics of a broker: their table, its file, and the lookup of the queue of a request.

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

#: Refusal for a queue that is led elsewhere, with Apache's text.
_REMARK: Final = "{queue} does not exit in request process of current broker {broker}"
_PULL_REMARK: Final = (
    "{queue} cannot find mapping item in request process of current broker {broker}")
_REMARKS: Final[dict[int, str]] = {
    RequestCode.PULL_MESSAGE: _PULL_REMARK, RequestCode.LITE_PULL_MESSAGE: _PULL_REMARK,
    RequestCode.GET_MIN_OFFSET: "{queue} is not leader in broker {broker}, "
                                f"request code {RequestCode.GET_MIN_OFFSET:d}"}


#: Limit of bytes of all static topics in a registration: a name server does not read longer ones,
#: because their keys are not quoted.
INFOS_SIZE_MAX: Final = DIALECT_SIZE_MAX * 15 // 16


def decode_mappings(data: bytes) -> TopicQueueMappingSerializeWrapper:
    """Decode the contents of the file.

    :raises WireError: when the data is not such a table.
    :raises ValueError: when a mapping in it is impossible.
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
    """The mappings of static topics in an answer with all topics."""

    mapping_data_version: DataVersion | None = None
    topic_queue_mapping_detail_map: dict[str, TopicQueueMappingDetail] | None = None


@dataclass(frozen=True, slots=True)
class LogicalPlace:
    """A logical queue that this broker leads and that a request refers to."""

    number: int
    detail: TopicQueueMappingDetail
    #: The parts of the queue, oldest first, at least one.
    items: list[LogicQueueMappingItem]

    @property
    def leader(self) -> LogicQueueMappingItem:
        """The part to which messages are sent."""
        return self.items[-1]

    def is_here(self, item: LogicQueueMappingItem) -> bool:
        """Whether a part is on this broker."""
        return item.bname == self.detail.bname


class QueueMappings(SavedTable):
    """The static topics of a broker, by name.

    :param file: the file topicQueueMapping.json.
    :param broker_name: the name of this broker.
    :param now_ms: the clock that provides the time of the data version.
    """

    log = Logger()

    def __init__(self, file: ConfigFile, broker_name: str, now_ms: Callable[[], int]) -> None:
        super().__init__(file)
        self._broker_name = broker_name
        self._now_ms = now_ms
        self.data_version = DataVersion(timestamp=now_ms())
        #: While it is empty, no request has to be examined.
        self.table: dict[str, TopicQueueMappingDetail] = {}
        #: Topic to (the registered part of its mapping, the size of that part in bytes).
        self._infos: dict[str, tuple[TopicQueueMappingInfo, int]] = {}
        #: The rows of the topics in the file. Only the saving thread uses it.
        self._rows: dict[str, bytes] = {}
        #: Topics with outdated rows and their present mappings; None for deleted topics.
        self._unsaved: dict[str, TopicQueueMappingDetail | None] = {}

    @property
    def infos(self) -> dict[str, TopicQueueMappingInfo]:
        """The registered part of all mappings, by topic name."""
        return {topic: info for topic, (info, _) in self._infos.items()}

    # --- file

    def load(self) -> None:
        """Load the saved mappings.

        :raises StoreDamaged: when the file cannot be read, or belongs to a broker with another
            name, whose parts of the topics clients would not find here.
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
        valid = {name: detail for name, detail in table.items() if self._is_possible(detail)}
        if len(valid) < len(table) and data:
            self._file.keep_refused(data)
        for topic, detail in valid.items():
            self._set(topic, detail)
        self.data_version.assign(saved.data_version)

    def _is_possible(self, detail: TopicQueueMappingDetail) -> bool:
        """Whether a saved mapping is valid; one bad mapping must not disable all topics."""
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
            # A topic may have thousands of queues, so it is encoded once and on the thread.
            for topic, detail in unsaved.items():
                if detail is None:
                    self._rows.pop(topic, None)
                else:
                    self._rows[topic] = encode_pretty_row(topic, detail)
            maps["topicQueueMappingInfoMap"] = list(self._rows.values())
            job()

        return save

    # --- changes

    def checked(
        self, new: TopicQueueMappingDetail, force: bool, physical_queues: int | None = None
    ) -> TopicQueueMappingDetail:
        """Return the mapping of a topic after a change, without applying the change.

        :param physical_queues: the future number of write queues of the topic on this broker.
        :raises MappingError: when the change is not allowed.
        """
        if new.bname != self._broker_name:
            raise MappingError(
                f"the mapping is of broker {new.bname}, this is {self._broker_name}")
        # Queues that are left out stay, even if the topic now has fewer physical queues.
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
        """Store a mapping that was checked."""
        self.log.info("static topic {topic}: epoch {epoch}, {count} of {total} queues led here",
                      topic=detail.topic, epoch=detail.epoch, count=len(detail.led()),
                      total=detail.total_queues)
        self._set(detail.topic, detail)
        self._changed()

    def delete(self, topic: str) -> None:
        """Remove the mapping of a topic, if there is one."""
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
        """Take over the master's table and data version; an older master does not send them.

        :param body: the body of the master's answer with all topics.
        :raises WireError: when the body has no such table, or a table of another broker name;
            then nothing is changed.
        """
        wrapper = _TopicMappings.decode(body)
        table, version = wrapper.topic_queue_mapping_detail_map, wrapper.mapping_data_version
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
            # The wrapped handlers refer to the table object, so it is changed in place.
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

    # --- lookup

    def logical_queue(self, request: Request[Any], *, choose: bool = False) -> LogicalPlace | None:
        """Return the logical queue of a request; None for other topics and forwarded requests.

        :param choose: whether a request that names no queue refers to any queue.
        :raises RequestRefused: NOT_LEADER_FOR_QUEUE when the queue is not led here.
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
    """Wrap a handler, so that requests about a logical queue are answered in another way.

    While the broker has no static topics, a request costs only one truth test.
    """
    inner, table = row.handle, mappings.table

    def handle(request: Request[Any]) -> Handled:
        queue = mappings.logical_queue(request) if table else None
        return inner(request) if queue is None else answer(request, queue)

    return replace(row, handle=handle)
