"""Commands for the offsets of consumer groups: reset, skip and clone.

A reset is a request to the broker, which informs the clients of the group. For a group without
clients, the command commits the offsets itself, with the requests of a client.

Source: ResetOffsetByTimeCommand, SkipAccumulationSubCommand, CloneGroupOffsetCommand,
DefaultMQAdminExtImpl.resetOffsetByTimestampOld @5.3.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from twistmq.protocol.bodies import ConsumeStats, MessageQueue, OffsetWrapper, ResetOffsetBody
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import RequestRefused
from twistmq.protocol.headers.client import ResetOffsetRequestHeader
from twistmq.protocol.headers.offset import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from twistmq.protocol.headers.topic import GetConsumeStatsRequestHeader
from twistmq.tools.admin.groups import consume_stats
from twistmq.tools.admin.rows import Row
from twistmq.tools.admin.session import AdminError, Broker, Session
from twistmq.tools.admin.topics import topic_stats

__all__ = ["clone_offsets", "commit_offset", "offset_at", "reset_offsets", "skip_messages"]

#: The time that stands for the end of a queue.
_END: Final = -1


def offset_at(session: Session, address: str, queue: MessageQueue, at_ms: int) -> int:
    """Return the offset of the first message stored at a time or later; -1: the queue's end."""
    if at_ms == _END:
        reply = session.ask(address, RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id))
        return reply.header(GetMaxOffsetResponseHeader).offset
    reply = session.ask(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, SearchOffsetRequestHeader(
        topic=queue.topic, queue_id=queue.queue_id, timestamp=at_ms))
    return reply.header(SearchOffsetResponseHeader).offset


def commit_offset(
    session: Session, address: str, group: str, queue: MessageQueue, offset: int
) -> None:
    """Commit an offset for a group."""
    session.ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset))


def reset_offsets(
    session: Session, *, group: str, topic: str, at_ms: int, force: bool, broker: str | None,
    queue: int | None, offset: int | None, route_topic: str | None, cplus: bool,
) -> Iterator[Row]:
    """Reset a group to a time, or in one queue to a time or an offset.

    :param cplus: accepted as by mqadmin, and without effect: clients in C++ no longer need it.
    """
    if (queue is None) is not (broker is None):
        raise AdminError("-b and -q go together: a broker's queue")
    if broker is not None and queue is not None:
        yield _reset_queue(session, group, MessageQueue(topic, broker, queue), broker, at_ms,
                           offset)
        return
    if offset is not None:
        raise AdminError("-o is an offset in one queue, which -b and -q name")
    yield from _reset(session, group, topic, at_ms, force, route_topic)


def _reset_queue(
    session: Session, group: str, queue: MessageQueue, address: str, at_ms: int, offset: int | None
) -> Row:
    to = offset_at(session, address, queue, at_ms) if offset is None else offset
    if to < 0:
        raise AdminError(f"queue {queue.queue_id} of {queue.topic} has no offset {to}")
    commit_offset(session, address, group, queue, to)
    try:
        session.ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetRequestHeader(
            group=group, topic=queue.topic, timestamp=0, is_force=True, queue_id=queue.queue_id,
            offset=to))
    except RequestRefused as error:
        if error.response_code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
    return session.brokers(address)[0].name, queue.topic, queue.queue_id, to


def _reset(
    session: Session, group: str, topic: str, at_ms: int, force: bool, route_topic: str | None
) -> Iterator[Row]:
    """Reset all queues of a topic through its brokers, or without clients by commits."""
    header = ResetOffsetRequestHeader(group=group, topic=topic, timestamp=at_ms, is_force=force)
    offsets: dict[MessageQueue, int] = {}

    def one(broker: Broker) -> None:
        try:
            reply = session.ask(broker.address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        except RequestRefused as error:
            if error.response_code != ResponseCode.CONSUMER_NOT_ONLINE:
                raise
            offsets.update(_without_clients(session, broker, group, topic, at_ms, force))
        else:
            offsets.update(ResetOffsetBody.decode_reply(reply.body).offset_table)

    for _ in session.for_each(session.brokers_of(topic, route_topic), one):
        pass
    for queue, offset in sorted(offsets.items()):
        yield queue.broker_name, queue.topic, queue.queue_id, offset


def _without_clients(
    session: Session, broker: Broker, group: str, topic: str, at_ms: int, force: bool
) -> dict[MessageQueue, int]:
    stats = ConsumeStats.decode(session.ask(
        broker.address, RequestCode.GET_CONSUME_STATS,
        GetConsumeStatsRequestHeader(consumer_group=group)).body)
    queues = {queue: offsets for queue, offsets in stats.offset_table.items()
              if queue.topic == topic}
    if not queues:
        queues = {queue: OffsetWrapper(bounds.max_offset, bounds.min_offset) for queue, bounds
                  in topic_stats(session, broker, topic).offset_table.items()}
    new_offsets = {}
    for queue, offsets in queues.items():
        to = offset_at(session, broker.address, queue, at_ms)
        if force or to <= offsets.consumer_offset:
            commit_offset(session, broker.address, group, queue, to)
        else:
            to = offsets.consumer_offset
        new_offsets[queue] = to
    return new_offsets


def skip_messages(
    session: Session, *, group: str, topic: str, force: bool, route_topic: str | None
) -> Iterator[Row]:
    """Move a group to the end of every queue."""
    return _reset(session, group, topic, _END, force, route_topic)


def clone_offsets(
    session: Session, *, source: str, destination: str, topic: str, offline: bool
) -> Iterator[Row]:
    """Give a group the offsets of another group.

    :param offline: accepted as by mqadmin, and without effect: the request goes to the brokers in
        both cases.
    """
    addresses = {each.name: each.address for each in session.brokers_of(topic)}
    stats = consume_stats(session, source, topic)
    for queue, offsets in sorted(stats.offset_table.items()):
        address = addresses.get(queue.broker_name)
        if address is not None and offsets.consumer_offset >= 0:
            commit_offset(session, address, destination, queue, offsets.consumer_offset)
            yield queue.broker_name, queue.topic, queue.queue_id, offsets.consumer_offset
