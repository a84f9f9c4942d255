"""Serves the requests that a broker sends to a consumer on behalf of tools, such as ``mqadmin``.

    220    set the offsets of a topic: the queues are dropped, and assigned again from there
    221    report the member's offset in each queue
    307    report the member's state: queues, subscriptions, rates, stacks
    309    let the member's handler process one message now

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

from twistmq.client.base.answers import OFFSET_MAX
from twistmq.client.base.errors import Busy, Closed
from twistmq.client.base.handlers import failure_outcome
from twistmq.client.base.messages import ReceivedMessage
from twistmq.client.core.connection.client import ClientCore
from twistmq.client.core.connection.engine import Connection
from twistmq.client.core.consumer.assigned_queues import AssignedQueue
from twistmq.client.core.consumer.member import Member
from twistmq.protocol import json_dialect
from twistmq.protocol.bodies import (
    ConsumerRunningInfo,
    ConsumeType,
    GetConsumerStatusBody,
    MessageQueue,
    ResetOffsetBody,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.headers.client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)
from twistmq.protocol.properties import RETRY_TOPIC
from twistmq.protocol.record import decode_record

__all__ = ["DIRECT_MS", "running_info", "serve_tools"]

log = logging.getLogger("twistmq.client")

#: Apache's CMResult for a handler that did not process the message, by its outcome.
_RESULTS: Final = {"exception": "CR_THROW_EXCEPTION", "no result": "CR_RETURN_NULL",
                   "retry": "CR_LATER"}
#: The time-out of a handler for a message from a tool, in ms: brokers wait for 10 s.
DIRECT_MS: Final = 10_000
#: The name of the version that our requests announce. Source: MQVersion.
_VERSION_NAME: Final = "V5_3_3"


def serve_tools(client: ClientCore) -> None:
    """Serve the requests of tools about the consumers of a client."""
    served: dict[int, Callable[[ClientCore, Connection, RemotingCommand], None]] = {
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET: _reset,
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: _status,
        RequestCode.GET_CONSUMER_RUNNING_INFO: _running_info,
        RequestCode.CONSUME_MESSAGE_DIRECTLY: _consume,
    }
    for code, function in served.items():
        client.engine.handlers.setdefault(code, partial(function, client))


def _member(client: ClientCore, group: str) -> Member[Any] | None:
    """Return the consumer of a group, which has its name at brokers."""
    for member in client.members:
        if isinstance(member, Member) and member.group == group:
            return member
    return None


def _present(client: ClientCore, group: str) -> Member[Any]:
    """Return the consumer of a group; :raises LookupError: when the client has none."""
    member = _member(client, group)
    if member is None:
        raise LookupError(f"this client has no consumer of the group {group}")
    return member


# --- offsets

def _reset(client: ClientCore, connection: Connection, request: RemotingCommand) -> None:
    """Continue a topic at the offsets of a request, which is one-way."""
    header = request.header(ResetOffsetRequestHeader)
    member = _present(client, header.group)
    offsets = {queue: offset
               for queue, offset in ResetOffsetBody.decode_reply(request.body).offset_table.items()
               if queue.topic == header.topic and 0 <= offset <= OFFSET_MAX}
    client.tasks.spawn(member.intake.move_to(offsets), "reset of offsets")
    connection.link.answer(request, ResponseCode.SUCCESS)


def _status(client: ClientCore, connection: Connection, request: RemotingCommand) -> None:
    """Report the offsets of a member; without the member, the table is empty."""
    header = request.header(GetConsumerStatusRequestHeader)
    member = _member(client, header.group)
    table = {} if member is None or not member.intake.has_offsets else {
        assigned.queue: assigned.window.committable for assigned in member.assigned_queues.values()
        if header.topic in ("", assigned.queue.topic)}
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
    """Return the state of a member, as ``mqadmin consumerStatus`` shows it."""
    tasks = member.tasks
    return ConsumerRunningInfo(
        properties={
            "PROP_NAMESERVER_ADDR": ";".join(member.client.names.addresses),
            "PROP_CONSUME_TYPE": member.consume_type.value,
            "PROP_CONSUMEORDERLY": str(member.options.in_order).lower(),
            "PROP_CLIENT_VERSION": _VERSION_NAME,
            "PROP_CONSUMER_START_TIMESTAMP": str(member.started_ms)},
        subscription_set=member.subscriptions.data(),
        mq_table={queue: _queue_info(member, assigned) for queue,
                  assigned in member.assigned_queues.items()
                  if member.intake.has_offsets},
        mq_pop_table=member.intake.pop_table(),
        status_table={topic: stats.table(tasks.now_ms)
                      for topic, stats in member.stats.topics.items()
                      if topic in member.subscriptions})


def _queue_info(member: Member[Any], assigned: AssignedQueue[Any]) -> dict[str, int | bool]:
    """Return the fields of Apache's ProcessQueueInfo; times are Unix ms, 0 means never."""
    tasks, window = member.tasks, assigned.window

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
        "lastPullTimestamp": wall(window.pulled_ms),
        "lastConsumeTimestamp": wall(assigned.taken_ms)}


def _stacks() -> str:
    """Return the stack of each thread of the process; threads have numbers instead of names."""
    return "\n".join(f"thread {number}\n{''.join(traceback.format_stack(frame))}"
                     for number, frame in sys._current_frames().items())


# --- one message

def _consume(client: ClientCore, connection: Connection, request: RemotingCommand) -> None:
    """Let the handler of a member process a message, and answer with its result.

    :raises HeaderError, StoreDamaged: when the request is malformed.
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
        is_success = await member.tool_messages.consume(message, DIRECT_MS)
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
