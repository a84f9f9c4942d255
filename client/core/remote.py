"""Answers to what a broker asks a consumer on behalf of tools, such as ``mqadmin``.

    220    the offsets of a topic are set: the queues are dropped, and taken again from there
    221    how far the member has come in each queue
    307    what the member does: queues, subscriptions, rates, stacks
    309    one message, which the member's handler is to process now

Source: ClientRemotingProcessor, ConsumerRunningInfo, ProcessQueueInfo,
ConsumeMessageDirectlyResult, MQClientInstance.resetOffset @5.3.3. Differs from Apache: its client
waits ten seconds between dropping the queues of a topic and taking them again.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from twistmq.broker.codes import RequestCode, ResponseCode
from twistmq.broker.wire import json_dialect
from twistmq.broker.wire.bodies import (
    ConsumerRunningInfo,
    ConsumeType,
    GetConsumerStatusBody,
    MessageQueue,
    ResetOffsetBody,
)
from twistmq.broker.wire.command import RemotingCommand
from twistmq.broker.wire.headers.client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)
from twistmq.broker.wire.properties import RETRY_TOPIC
from twistmq.broker.wire.record import decode_record
from twistmq.client.answers import OFFSET_MAX
from twistmq.client.core.client import ClientCore
from twistmq.client.core.consuming import Member
from twistmq.client.core.engine import Connection
from twistmq.client.core.held import Held
from twistmq.client.errors import Busy, Closed
from twistmq.client.handlers import failure_outcome
from twistmq.client.messages import ReceivedMessage

__all__ = ["DIRECT_MS", "running_info", "serve_tools"]

log = logging.getLogger("twistmq.client")

#: Apache's CMResult of a handler that did not process the message, by its outcome.
_RESULTS: Final = {"exception": "CR_THROW_EXCEPTION", "no result": "CR_RETURN_NULL",
                   "retry": "CR_LATER"}
#: How long a handler may take for a message that a tool sends, ms: brokers wait for 10 s.
DIRECT_MS: Final = 10_000
#: The name of the version that our commands announce. Source: MQVersion.
_VERSION_NAME: Final = "V5_3_3"


def serve_tools(client: ClientCore) -> None:
    """Answer the questions of tools about the consumers of a client."""
    served: dict[int, Callable[[ClientCore, Connection, RemotingCommand], None]] = {
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET: _reset,
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: _status,
        RequestCode.GET_CONSUMER_RUNNING_INFO: _running_info,
        RequestCode.CONSUME_MESSAGE_DIRECTLY: _consume,
    }
    for code, function in served.items():
        client.engine.handlers.setdefault(code, partial(function, client))


def _member(client: ClientCore, group: str) -> Member[Any] | None:
    """The consumer of a group, which is named as at brokers."""
    for member in client.members:
        if isinstance(member, Member) and member.group == group:
            return member
    return None


def _present(client: ClientCore, group: str) -> Member[Any]:
    """The consumer of a group; :raises LookupError: when the client has none."""
    member = _member(client, group)
    if member is None:
        raise LookupError(f"this client has no consumer of the group {group}")
    return member


# --- offsets

def _reset(client: ClientCore, connection: Connection, request: RemotingCommand) -> None:
    """Continue a topic at other offsets. The request is one-way."""
    header = request.header(ResetOffsetRequestHeader)
    member = _present(client, header.group)
    offsets = {queue: offset
               for queue, offset in ResetOffsetBody.decode_reply(request.body).offset_table.items()
               if queue.topic == header.topic and 0 <= offset <= OFFSET_MAX}
    client.tasks.spawn(member.move_to(offsets), "reset of offsets")
    connection.link.answer(request, ResponseCode.SUCCESS)


def _status(client: ClientCore, connection: Connection, request: RemotingCommand) -> None:
    """Say how far a member has come; without the member the table is empty."""
    header = request.header(GetConsumerStatusRequestHeader)
    member = _member(client, header.group)
    table = {} if member is None or not member.has_offsets else {
        held.queue: held.window.committable for held in member.held.values()
        if header.topic in ("", held.queue.topic)}
    connection.link.answer(request, ResponseCode.SUCCESS, None,
                           GetConsumerStatusBody(message_queue_table=table).encode())


# --- the state

def _running_info(client: ClientCore, connection: Connection, request: RemotingCommand) -> None:
    header = request.header(GetConsumerRunningInfoRequestHeader)
    member = _present(client, header.consumer_group)
    info = running_info(member)
    if header.jstack_enable:
        info.jstack = _stacks()
    connection.link.answer(request, ResponseCode.SUCCESS, None, info.encode())


def running_info(member: Member[Any]) -> ConsumerRunningInfo:
    """The state of a member, as ``mqadmin consumerStatus`` shows it."""
    tasks = member.tasks
    return ConsumerRunningInfo(
        properties={
            "PROP_NAMESERVER_ADDR": ";".join(member.client.names.addresses),
            "PROP_CONSUME_TYPE": member.consume_type.value,
            "PROP_CONSUMEORDERLY": str(member.options.in_order).lower(),
            "PROP_CLIENT_VERSION": _VERSION_NAME,
            "PROP_CONSUMER_START_TIMESTAMP": str(member.started_ms)},
        subscription_set=tuple(each.data(member.sub_version)
                               for each in member.subscriptions.values()),
        mq_table={queue: _queue_info(member, held) for queue, held in member.held.items()
                  if member.has_offsets},
        mq_pop_table=member.pop_table(),
        status_table={topic: stats.table(tasks.now_ms)
                      for topic, stats in member.stats.topics.items()
                      if topic in member.subscriptions})


def _queue_info(member: Member[Any], held: Held[Any]) -> dict[str, int | bool]:
    """The fields of Apache's ProcessQueueInfo; times are Unix ms, 0: never."""
    tasks, window = member.tasks, held.window

    def wall(steady_ms: float | None) -> int:
        return 0 if steady_ms is None else int(
            tasks.clock.wall_ms() - (tasks.now_ms - steady_ms))

    first, last = window.bounds or (0, 0)
    running = window.running_bounds if member.options.in_order else None
    return {
        "commitOffset": window.committable, "cachedMsgMinOffset": first,
        "cachedMsgMaxOffset": last, "cachedMsgCount": window.count,
        "cachedMsgSizeInMiB": window.byte_count >> 20,
        "transactionMsgMinOffset": running[0] if running else 0,
        "transactionMsgMaxOffset": running[1] if running else 0,
        "transactionMsgCount": window.running_count if running else 0,
        "locked": window.holds_lock(int(tasks.now_ms)), "tryUnlockTimes": 0,
        "lastLockTimestamp": wall(window.lock_ms), "droped": window.is_dropped,
        "lastPullTimestamp": wall(window.pulled_ms), "lastConsumeTimestamp": wall(held.taken_ms)}


def _stacks() -> str:
    """The stack of each thread of the process, by number: names of threads are the shells'."""
    return "\n".join(f"thread {number}\n{''.join(traceback.format_stack(frame))}"
                     for number, frame in sys._current_frames().items())


# --- one message

def _consume(client: ClientCore, connection: Connection, request: RemotingCommand) -> None:
    """Have the handler of a member process a message, and answer with its result.

    :raises HeaderError, StoreDamaged: when it is no such request.
    """
    header = request.header(ConsumeMessageDirectlyResultRequestHeader)
    member = _present(client, header.consumer_group)
    if member.consume_type is not ConsumeType.CONSUME_PASSIVELY:
        connection.link.answer(request, ResponseCode.SYSTEM_ERROR, None, b"",
                               f"the consumer of the group {header.consumer_group} is polled: no "
                               "message can be given to it")
        return
    record = decode_record(request.body)
    queue = MessageQueue(client.namespace.without(record.topic), header.broker_name or "",
                         record.queue_id)
    topic = record.properties_map().get(RETRY_TOPIC) or queue.topic
    message: ReceivedMessage[Any] = ReceivedMessage(
        record, queue, record.queue_offset, topic, member.decode)
    client.tasks.spawn(_consume_now(member, message, connection, request),
                       "consumption for a tool")


async def _consume_now(
    member: Member[Any], message: ReceivedMessage[Any], connection: Connection,
    request: RemotingCommand,
) -> None:
    """Answer with Apache's ConsumeMessageDirectlyResult; the time is in ms."""
    begin_ms = member.tasks.now_ms
    try:
        is_success = await member.consume_now(message, DIRECT_MS)
    except (Busy, Closed, TimeoutError) as error:
        member.client.engine.answer(connection, request, ResponseCode.SYSTEM_ERROR,
                                    remark=str(error))
        return
    result = "CR_SUCCESS" if is_success else _RESULTS[failure_outcome(message)]
    body = json_dialect.encode({
        "order": member.options.in_order, "autoCommit": True, "consumeResult": result,
        "remark": None if message.error is None else repr(message.error),
        "spentTimeMills": int(member.tasks.now_ms - begin_ms)}, quote_int_keys=True)
    member.client.engine.answer(connection, request, ResponseCode.SUCCESS, body)
