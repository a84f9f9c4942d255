"""The offset at which a queue begins for a member that gets it.

    known fact                                        the queue begins
    this member had the queue until a moment ago      where it stopped, see stop_positions.py
    the group has an offset                           there
    the topic was made again since the file of a      at its first message
    broadcasting member was written
    the group does not have an offset                 see initial_offsets.py

Source: RebalancePushImpl.computePullFromWhereWithException @5.3.3.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from twistmq.client.base.errors import refusal
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.consumer.initial_offsets import Beginnings
from twistmq.client.core.consumer.offsets import OffsetStore
from twistmq.client.core.consumer.stop_positions import StopPositions
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers import offset as headers

__all__ = ["StartOffset", "StartOffsets"]

log = logging.getLogger("twistmq.client")


class StartOffset(NamedTuple):
    """The offset at which a queue begins for a member.

    :param is_committed: whether the group has committed this offset.
    :param is_new: whether the group does not have an offset for the queue.
    """

    offset: int
    is_committed: bool = False
    is_new: bool = False


class StartOffsets:
    """Determines where the queues of one member begin.

    :param group: the group's name at brokers.
    :param offsets: the offsets of the group.
    :param stops: where this member stopped in queues that it lost.
    :param beginnings: where queues begin for which the group has no offset.
    """

    def __init__(
        self, client: ClientCore, group: str, offsets: OffsetStore, stops: StopPositions,
        beginnings: Beginnings,
    ) -> None:
        self._client = client
        self._group = group
        self._offsets = offsets
        self._stops = stops
        self._beginnings = beginnings

    async def first_offset(self, queue: MessageQueue) -> StartOffset:
        """Return the offset at which a queue begins for the group.

        :raises BrokerError: when it cannot be determined now: an unknown offset is never a number.
        """
        stops = self._stops
        stored = await self._offsets.read(queue)
        stop = stops.position(queue)
        if stop is not None and stops.is_valid(queue, stop, stored):
            end = await self._end(queue)
            if stops.position(queue) is not stop:
                # A tool moved the offset while the end of the queue was requested.
                stored = await self._offsets.read(queue)
            elif stop.offset <= end:
                stops.drop(queue)
                log.info("%s is back at %s: this member continues at %d, where it stopped", queue,
                         stored, stop.offset)
                return StartOffset(stop.offset)
            else:
                # A log does not become shorter at one broker: the topic was created again.
                stops.deleted.add(queue)
        stops.drop(queue)
        if stored is not None:
            self._beginnings.has_offset(queue.topic)
            known_ms = await self._offsets.written_ms(queue)
            if stored and known_ms and await self._beginnings.is_made_again(queue, known_ms):
                log.warning("group %s: %s was created again since the offset %d was written to the "
                            "file, and is read from its first message", self._group, queue, stored)
                return StartOffset(0)
            return StartOffset(stored, is_committed=True)
        offset = await self._beginnings.offset(queue, is_made_again=queue in stops.deleted)
        return StartOffset(offset, is_new=True)

    async def _end(self, queue: MessageQueue) -> int:
        """Return the offset that the next message of a queue will have."""
        address = self._client.routes.reader(self._client.routes.broker_of(queue))
        reply = await self._client.engine.invoke(
            address, RequestCode.GET_MAX_OFFSET, headers.GetMaxOffsetRequestHeader(
                topic=queue.topic, queue_id=queue.queue_id), timeout_ms=6000)
        if reply.code != ResponseCode.SUCCESS:
            raise refusal(reply.code, reply.remark, address)
        return reply.header(headers.GetMaxOffsetResponseHeader).offset
