"""How far a group has come: kept by brokers, or in a file of this member when it broadcasts.

The file is that of Apache's client, ``~/.rocketmq_offsets/CLIENT_ID/GROUP/offsets.json``, with a
``.bak`` of the one before, so that a member may change from one client to the other.

Source: RemoteBrokerOffsetStore, LocalFileOffsetStore, OffsetSerializeWrapper @5.3.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from twistmq.broker.codes import RequestCode, ResponseCode
from twistmq.broker.errors import BrokerError, WireError
from twistmq.broker.wire.bodies import Body, MessageQueue
from twistmq.broker.wire.header import Int64
from twistmq.broker.wire.headers import offset as headers
from twistmq.client.core.client import ClientCore
from twistmq.client.core.tasks import Future, Task
from twistmq.client.errors import Undecodable, refusal

__all__ = ["FileAccess", "LocalOffsets", "OffsetStore", "OffsetTable", "RemoteOffsets"]

log = logging.getLogger("twistmq.client")


class OffsetStore(Protocol):
    """Keeps the offsets of a group; queues have the names that brokers know."""

    async def read(self, queue: MessageQueue) -> int | None:
        """The first offset that is not consumed; None when the group never had the queue.

        :raises BrokerError: when it cannot be known now, which is not the same.
        """

    async def write(self, offsets: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """Keep offsets; :returns: those that are kept for sure."""

    def topic_deleted(self, queue: MessageQueue) -> None:
        """A broker has the topic of a queue no more, and with it none of the group's offsets."""


class RemoteOffsets:
    """Offsets that brokers keep.

    :param group: its name at brokers.
    """

    def __init__(self, client: ClientCore, group: str) -> None:
        self._client = client
        self._group = group
        #: The last commit of each queue that is not answered.
        self._under_way: dict[MessageQueue, Task[None]] = {}
        #: Topics and brokers where the group has an offset for sure.
        self._known: set[tuple[str, str]] = set()
        #: The first commit of each other topic and broker, while it is not answered.
        self._firsts: dict[tuple[str, str], Task[None]] = {}

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
        offset = reply.header(headers.QueryConsumerOffsetResponseHeader).offset
        if offset < 0:
            raise Undecodable(f"{address} says that the group is at offset {offset}")
        # 4.9.4 answers 0 for a group that has no offset yet.
        if offset:
            self._known.add((queue.topic, queue.broker_name))
        return offset

    async def write(self, offsets: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """See :class:`OffsetStore`. Commits go to the master, or to a slave when it is gone."""
        kept: dict[MessageQueue, int] = {}
        asking = {queue: self._begin(queue, offset) for queue, offset in offsets.items()}
        outcomes = await self._client.tasks.all_of(list(asking.values()))
        for queue, outcome in zip(asking, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                log.warning("the offset %d of %s cannot be committed now: %s",
                            offsets[queue], queue, outcome)
            else:
                kept[queue] = offsets[queue]
        return kept

    def topic_deleted(self, queue: MessageQueue) -> None:
        """See :class:`OffsetStore`. The next commit of the topic is a first one again."""
        self._known.discard((queue.topic, queue.broker_name))

    def _begin(self, queue: MessageQueue, offset: int) -> Task[None]:
        """Commit once the commit before is answered.

        Apache's broker handles requests of one connection on several threads: a later commit may
        be handled first, and the group would go back to the earlier one. The broker also loses
        all but one of the group's first commits in a topic when they come together, so the first
        is made alone. Source: ConsumerOffsetManager.commitOffset @4.9.4, 5.3.3.
        """
        key = queue.topic, queue.broker_name
        before = [task for task in (self._under_way.get(queue), self._firsts.get(key)) if task]
        task = self._client.tasks.spawn(self._commit(queue, offset, before), "commit")
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
        self, queue: MessageQueue, offset: int, before: list[Task[None]]
    ) -> None:
        if before:
            await self._client.tasks.all_of(before)
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

    def read(self) -> bytes | None:
        """The content, of the backup if need be; None when there is no file."""

    def write(self, data: bytes) -> None:
        """Replace the content in one step, and keep the old as a backup."""


class LocalOffsets:
    """Offsets in a file.

    :param file: the file, or None: nothing is kept.
    """

    def __init__(self, client: ClientCore, file: FileAccess | None) -> None:
        self._client = client
        self._file = file
        self._table: dict[MessageQueue, int] | None = None
        #: The last write of the file, under way or done.
        self._writing = _nothing()

    async def read(self, queue: MessageQueue) -> int | None:
        """See :class:`OffsetStore`."""
        return (await self._load()).get(queue)

    async def _load(self) -> dict[MessageQueue, int]:
        if self._table is None:
            data = await self._in_thread(lambda file: file.read())
            table: dict[MessageQueue, int] = {}
            if data:
                try:
                    table = dict(OffsetTable.decode_reply(data).offset_table)
                except WireError as error:
                    raise BrokerError(f"the file of offsets cannot be read: {error}") from None
            # Another one may have read the file meanwhile, and changed the table.
            if self._table is None:
                self._table = table
        return self._table

    async def write(self, offsets: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """See :class:`OffsetStore`. The file is written once at a time, with all that is known."""
        table = await self._load()
        table.update(offsets)
        while not self._writing.is_done:
            await self._client.tasks.all_of([self._writing])
        data = OffsetTable(offset_table=dict(table)).encode()
        # It goes on when the commit is cancelled.
        self._writing = self._in_thread(lambda file: file.write(data))
        try:
            await self._writing
        except OSError as error:
            log.error("the offsets of a broadcasting consumer cannot be saved: %s", error)
            return {}
        return dict(offsets)

    def topic_deleted(self, queue: MessageQueue) -> None:
        """See :class:`OffsetStore`. The file keeps them, as that of Apache's client."""

    def _in_thread(
        self, function: Callable[[FileAccess], bytes | None]
    ) -> Future[bytes | None]:
        file = self._file
        if file is None:
            return _nothing()
        return self._client.engine.in_thread(lambda: function(file))


def _nothing() -> Future[bytes | None]:
    """No offsets: there is no file."""
    nothing: Future[bytes | None] = Future()
    nothing.set_result(None)
    return nothing
