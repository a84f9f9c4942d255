"""The offsets of a group: kept by brokers, or in a file of this member when it broadcasts.

The file has the path and format of Apache's client,
``~/.rocketmq_offsets/CLIENT_ID/GROUP/offsets.json``, with the previous file as ``.bak``, so that a
member can change from one client to the other.

Source: RemoteBrokerOffsetStore, LocalFileOffsetStore, OffsetSerializeWrapper @5.3.3.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

import msgspec

from twistmq.client.base.answers import OFFSET_MAX, checked_offset
from twistmq.client.base.errors import refusal
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.connection.tasks import Future, Task
from twistmq.protocol.bodies import Body, MessageQueue, TopicList
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import BrokerError, WireError
from twistmq.protocol.header import Int64
from twistmq.protocol.headers import offset as headers
from twistmq.protocol.headers.topic import QueryTopicsByConsumerRequestHeader
from twistmq.protocol.topic_names import retry_topic

__all__ = [
    "Familiarity", "FileAccess", "LocalOffsets", "OffsetStore", "OffsetTable", "RemoteOffsets",
]

R = TypeVar("R")

log = logging.getLogger("twistmq.client")


class Familiarity(enum.IntEnum):
    """Where a group has offsets, as seen from one topic; the highest value that applies."""

    #: Nowhere: the group is new.
    NONE = 0
    #: Only in other topics, or this cannot be determined.
    GROUP = 1
    #: In at least one queue of the topic.
    TOPIC = 2


class OffsetStore(Protocol):
    """Keeps the offsets of a group; queues have their names at brokers."""

    async def read(self, queue: MessageQueue) -> int | None:
        """Return the first offset that is not consumed; None when the group never had the queue.

        :raises BrokerError: when the offset cannot be determined now, which differs from None.
        """

    async def write(self, offsets: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """Store offsets; :returns: the offsets that are known to be stored."""

    async def familiarity(
        self, topic: str, queues: Mapping[str, Iterable[MessageQueue]]
    ) -> Familiarity:
        """Return where the group has offsets.

        :param queues: the queues of all topics that the group reads, by topic.
        """

    async def written_ms(self, queue: MessageQueue) -> int:
        """Return when the offset of a queue was written to a file, in Unix ms; 0 without a file."""

    def forget_familiarity(self) -> None:
        """Forget where the group has offsets, so that the next call asks again."""

    def topic_deleted(self, queue: MessageQueue) -> None:
        """Forget a queue whose topic was deleted at a broker, and with it the group's offsets."""


class RemoteOffsets:
    """Offsets that brokers keep.

    :param group: the group's name at brokers.
    """

    def __init__(self, client: ClientCore, group: str) -> None:
        self._client = client
        self._group = group
        #: The last commit of each queue that has not been answered.
        self._under_way: dict[MessageQueue, Task[None]] = {}
        #: The topics and brokers where the group is known to have an offset.
        self._known: set[tuple[str, str]] = set()
        #: The first commit for each other topic and broker, until it is answered.
        self._firsts: dict[tuple[str, str], Task[None]] = {}
        #: The topics in which the group had offsets when a broker was first asked, by broker name.
        self._topics: dict[str, set[str]] = {}

    async def read(self, queue: MessageQueue) -> int | None:
        """See :class:`OffsetStore`."""
        header = headers.QueryConsumerOffsetRequestHeader(
            consumer_group=self._group, topic=queue.topic, queue_id=queue.queue_id,
            set_zero_if_not_found=False)
        address = self._client.routes.reader(self._client.routes.broker_of(queue))
        reply = await self._client.engine.invoke(
            address, RequestCode.QUERY_CONSUMER_OFFSET, header, timeout_ms=5000)
        if reply.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        if reply.code != ResponseCode.SUCCESS:
            raise refusal(reply.code, reply.remark, address)
        offset = checked_offset(reply.header(headers.QueryConsumerOffsetResponseHeader).offset,
                                f"{address} reports that the group")
        # Version 4.9.4 answers 0 for a group that has no offset yet.
        if offset:
            self._known.add((queue.topic, queue.broker_name))
        return offset

    async def write(self, offsets: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """See :class:`OffsetStore`. Commits go to the master, or to a slave without a master."""
        committed: dict[MessageQueue, int] = {}
        asking = {queue: self._begin(queue, offset) for queue, offset in offsets.items()}
        outcomes = await self._client.tasks.all_of(list(asking.values()))
        for queue, outcome in zip(asking, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                log.warning("the offset %d of %s cannot be committed now: %s",
                            offsets[queue], queue, outcome)
            else:
                committed[queue] = offsets[queue]
        return committed

    async def familiarity(
        self, topic: str, queues: Mapping[str, Iterable[MessageQueue]]
    ) -> Familiarity:
        """See :class:`OffsetStore`. A broker that does not answer may have offsets."""
        at: dict[str, list[MessageQueue]] = {}
        for each in queues.values():
            for queue in each:
                at.setdefault(self._client.routes.broker_of(queue), []).append(queue)
        asking = [self._client.tasks.spawn(self._familiarity_at(name, topic, at[name]),
                                           "topics of the group") for name in sorted(at)]
        familiarity = Familiarity.NONE
        for outcome in await self._client.tasks.all_of(asking):
            if isinstance(outcome, BrokerError):
                log.info("a broker does not report where group %s has offsets: %s", self._group,
                         outcome)
                familiarity = max(familiarity, Familiarity.GROUP)
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                familiarity = max(familiarity, outcome)
        return familiarity

    async def written_ms(self, queue: MessageQueue) -> int:
        """See :class:`OffsetStore`. When brokers delete a topic, they delete its offsets too."""
        return 0

    def forget_familiarity(self) -> None:
        """See :class:`OffsetStore`."""
        self._topics.clear()

    async def _familiarity_at(
        self, broker_name: str, topic: str, queues: list[MessageQueue]
    ) -> Familiarity:
        """Like :meth:`familiarity`, for one broker; each broker is asked for its list only once.

        Commits that this member makes later do not count as the group's earlier offsets.
        """
        topics = self._topics.get(broker_name)
        if topics is None:
            address = self._client.routes.reader(broker_name)
            reply = await self._client.engine.invoke(
                address, RequestCode.QUERY_TOPICS_BY_CONSUMER,
                QueryTopicsByConsumerRequestHeader(self._group), timeout_ms=5000)
            if reply.code != ResponseCode.SUCCESS:
                # Brokers before 5.0 do not know the request, and access rules may forbid it.
                return await self._familiarity_by_queues(broker_name, topic, queues)
            topics = self._topics[broker_name] = TopicList.decode_reply(reply.body).topic_list
        if topic in topics:
            return Familiarity.TOPIC
        return Familiarity.GROUP if topics else Familiarity.NONE

    async def _familiarity_by_queues(
        self, broker_name: str, topic: str, queues: list[MessageQueue]
    ) -> Familiarity:
        """Like :meth:`familiarity`, by the offsets of the queues and of the first retry queue."""
        retries = MessageQueue(retry_topic(self._group), broker_name, 0)
        all_queues = [*queues, retries]
        asking = [self._client.tasks.spawn(self.read(queue), "offset of the group")
                  for queue in all_queues]
        familiarity = Familiarity.NONE
        offsets = await self._client.tasks.all_of(asking)
        for queue, offset in zip(all_queues, offsets, strict=True):
            # Version 4.9.4 answers 0 for a group that has no offset yet.
            if queue.topic == topic and isinstance(offset, int) and offset:
                return Familiarity.TOPIC
            if isinstance(offset, BrokerError) or offset or (offset == 0 and queue == retries):
                familiarity = Familiarity.GROUP
        return familiarity

    def topic_deleted(self, queue: MessageQueue) -> None:
        """See :class:`OffsetStore`. The next commit of the topic counts as a first commit again."""
        self._known.discard((queue.topic, queue.broker_name))

    def _begin(self, queue: MessageQueue, offset: int) -> Task[None]:
        """Commit an offset after the previous commit has been answered.

        Apache's broker handles requests of one connection on several threads: a later commit may
        be handled first, and the group would go back to the earlier offset. The broker also loses
        all but one of the group's first commits in a topic when they arrive together, so the first
        commit is made alone. Source: ConsumerOffsetManager.commitOffset @4.9.4, 5.3.3.
        """
        key = queue.topic, queue.broker_name
        earlier_commits = [
            task for task in (self._under_way.get(queue), self._firsts.get(key)) if task]
        task = self._client.tasks.spawn(self._commit(queue, offset, earlier_commits), "commit")
        self._under_way[queue] = task
        if key not in self._known:
            self._firsts.setdefault(key, task)

        def end(_: object) -> None:
            if self._under_way.get(queue) is task:
                del self._under_way[queue]
            if self._firsts.get(key) is task:
                del self._firsts[key]

        task.when_done(end)
        return task

    async def _commit(
        self, queue: MessageQueue, offset: int, earlier_commits: list[Task[None]]
    ) -> None:
        if earlier_commits:
            await self._client.tasks.all_of(earlier_commits)
        header = headers.UpdateConsumerOffsetRequestHeader(
            consumer_group=self._group, topic=queue.topic, queue_id=queue.queue_id,
            commit_offset=offset)
        address = self._client.routes.reader(self._client.routes.broker_of(queue))
        reply = await self._client.engine.invoke(
            address, RequestCode.UPDATE_CONSUMER_OFFSET, header, timeout_ms=5000)
        if reply.code != ResponseCode.SUCCESS:
            raise refusal(reply.code, reply.remark, address)
        self._known.add((queue.topic, queue.broker_name))


class OffsetTable(Body):
    """The file of a broadcasting member. Source: OffsetSerializeWrapper @5.3.3."""

    offset_table: dict[MessageQueue, Int64] = msgspec.field(default_factory=dict)


class FileAccess(Protocol):
    """Reads and replaces one file; the functions block, so they run outside the engine."""

    @property
    def name(self) -> str:
        """The name of the file in errors and log lines."""

    def read(self, parse: Callable[[bytes], R]) -> R | None:
        """Read the file, or its backup if the file is missing, empty or damaged.

        :param parse: returns the result for the bytes of a file; raises ``WireError`` if the bytes
            are damaged.
        :returns: the result; None when neither the file nor the backup exists.
        :raises WireError, OSError: when neither of the existing files can be read.
        """

    def write(self, data: bytes) -> None:
        """Replace the content atomically, and keep the old file as a backup if it was intact."""

    def written_ms(self) -> int:
        """Return when the content was written, in Unix ms; 0 when there is no file."""


class LocalOffsets:
    """Offsets in a file.

    :param file: the file; with None, nothing is stored.
    """

    def __init__(self, client: ClientCore, file: FileAccess | None) -> None:
        self._client = client
        self._file = file
        self._table: dict[MessageQueue, int] | None = None
        #: When the file that was read had been written, in Unix ms.
        self._written_ms = 0
        #: When this member last wrote the offset of a queue, in Unix ms.
        self._times_ms: dict[MessageQueue, int] = {}
        #: The read of the file in progress.
        self._reading: Future[tuple[dict[MessageQueue, int], int]] | None = None
        #: The last write of the file, in progress or completed, and the write that follows it.
        self._writing = _nothing()
        self._next_write: Task[bool] | None = None

    async def read(self, queue: MessageQueue) -> int | None:
        """See :class:`OffsetStore`."""
        return (await self._load()).get(queue)

    async def _load(self) -> dict[MessageQueue, int]:
        """Return the table; queues that need it at the same time share one read of the file."""
        if self._table is None:
            file = self._file
            if file is None:
                self._table = {}
                return self._table
            reading = self._reading
            if reading is None:
                reading = self._reading = self._client.engine.in_thread(
                    lambda: (file.read(_table_of) or {}, file.written_ms()))
            try:
                table, written_ms = await reading
            except (WireError, OSError) as error:
                raise BrokerError(
                    f"neither the file of offsets {file.name} nor its backup can be read, "
                    "and nothing is consumed until one of them is repaired or both are "
                    f"removed: {error}") from None
            finally:
                # After a failure, the next caller reads the file again.
                if reading.is_done and self._reading is reading:
                    self._reading = None
            # Another task may have received the table first and changed it.
            if self._table is None:
                self._table, self._written_ms = table, written_ms
        return self._table

    async def write(self, offsets: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """See :class:`OffsetStore`. Only one write runs at a time, with all known offsets.

        Commits that arrive during a write share the next write.
        """
        table = await self._load()
        table.update(offsets)
        self._times_ms.update(dict.fromkeys(offsets, self._client.tasks.clock.wall_ms()))
        if self._next_write is None:
            # The write is a task of its own, so it continues if the commit is cancelled.
            self._next_write = self._client.tasks.spawn(self._write_next(), "file of offsets")
        return dict(offsets) if await self._next_write else {}

    async def _write_next(self) -> bool:
        """Write the table after the write in progress; :returns: whether the table is saved."""
        await self._client.tasks.all_of([self._writing])
        self._next_write = None
        data = OffsetTable(offset_table=dict(self._table or {})).encode()
        self._writing = self._write(data)
        try:
            await self._writing
        except OSError as error:
            log.error("the offsets of a broadcasting consumer cannot be saved: %s", error)
            return False
        return True

    async def familiarity(
        self, topic: str, queues: Mapping[str, Iterable[MessageQueue]]
    ) -> Familiarity:
        """See :class:`OffsetStore`."""
        table = await self._load()
        if any(queue.topic == topic for queue in table):
            return Familiarity.TOPIC
        return Familiarity.GROUP if table else Familiarity.NONE

    async def written_ms(self, queue: MessageQueue) -> int:
        """See :class:`OffsetStore`. It includes offsets that could not be written."""
        await self._load()
        return self._times_ms.get(queue, self._written_ms)

    def forget_familiarity(self) -> None:
        """See :class:`OffsetStore`. The file is local, so nothing about it is remembered."""

    def topic_deleted(self, queue: MessageQueue) -> None:
        """See :class:`OffsetStore`. Differs from Apache, whose client keeps the offset."""
        if self._table is not None:
            self._table.pop(queue, None)
            self._times_ms.pop(queue, None)

    def _write(self, data: bytes) -> Future[None]:
        file = self._file
        if file is None:
            return _nothing()
        return self._client.engine.in_thread(lambda: file.write(data))


def _table_of(data: bytes) -> dict[MessageQueue, int]:
    """Return the offsets in a file's content; :raises WireError: when it is damaged."""
    table = OffsetTable.decode_reply(data).offset_table
    for queue, offset in table.items():
        if not 0 <= offset <= OFFSET_MAX:
            raise WireError(f"the offset of {queue} is {offset}")
    return dict(table)


def _nothing() -> Future[None]:
    """Return a completed future, because there is no file to write."""
    nothing: Future[None] = Future()
    nothing.set_result(None)
    return nothing
