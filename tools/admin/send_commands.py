"""Commands that send messages and measure the duration of sends.

Source: SendMessageCommand, CheckMsgSendRTCommand, SendMsgStatusCommand, CLusterSendMsgRTCommand
@5.3.3.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Final

from twistmq.client.base.messages import check_properties
from twistmq.client.core.producer.outgoing_message import send_header
from twistmq.client.core.producer.unique_id import process_ids
from twistmq.protocol.bodies import MessageQueue
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import BrokerError
from twistmq.protocol.headers.send import SendMessageResponseHeader
from twistmq.protocol.properties import KEYS, TAGS, UNIQ_KEY, format_properties
from twistmq.protocol.record import StoredMessage
from twistmq.tools.admin.rows import Millis, Result, Row, Table
from twistmq.tools.admin.session import AdminError, Session

__all__ = ["SENT", "check_send_time", "cluster_send_time", "send_again", "send_message",
           "send_status", "send_to_queue"]

#: The columns for sent messages.
SENT: Final = ("broker", "queue", "offset", "status", "message", "offset_message")

#: The names for the result of a send in Apache's client.
_STATUS: Final = {
    ResponseCode.SUCCESS: "SEND_OK", ResponseCode.FLUSH_DISK_TIMEOUT: "FLUSH_DISK_TIMEOUT",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "FLUSH_SLAVE_TIMEOUT",
    ResponseCode.SLAVE_NOT_AVAILABLE: "SLAVE_NOT_AVAILABLE",
}
_PRODUCER: Final = "twistmq_admin"

_ids: Final = process_ids(b"\x7f\0\0\1")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def send_to_queue(
    session: Session, queue: MessageQueue, address: str, body: bytes, properties: dict[str, str],
    flag: int = 0, sys_flag: int = 0,
) -> Row:
    """Send a message; it gets a new id if its properties have none.

    :param address: the address of the queue's broker.
    :returns: a row of ``SENT``.
    """
    fields = {UNIQ_KEY: _ids.make(_now_ms()), **properties}
    header = send_header(_PRODUCER, queue.topic, queue.queue_id, _now_ms(),
                         format_properties(fields), flag, sys_flag)
    reply = session.ask(address, RequestCode.SEND_MESSAGE_V2, header, body,
                        accepted_codes=tuple(_STATUS))
    answer = reply.header(SendMessageResponseHeader)
    return (queue.broker_name, answer.queue_id, answer.queue_offset,
            _STATUS[ResponseCode(reply.code)], fields[UNIQ_KEY], answer.msg_id)


def send_message(
    session: Session, *, topic: str, body: str, keys: str | None, tags: str | None,
    broker: str | None, queue: int | None, trace: bool,
) -> Iterator[Row]:
    """Send a message.

    :param keys: keys separated by blanks, as in mqadmin.
    :param trace: accepted as by mqadmin; the broker traces messages that clients do not (`trace`).
    :raises OptionError: when the keys or the tag cannot be a property.
    """
    if queue is not None and broker is None:
        raise AdminError("-i needs -b: a broker's queue")
    queues = [each for each in session.write_queues(topic)
              if (broker is None or each.broker_name == broker) and queue in (None, each.queue_id)]
    if not queues:
        raise AdminError(f"topic {topic} has no such queue for writing")
    chosen = queues[time.time_ns() // 1000 % len(queues)]
    properties = {name: text for name, text in ((KEYS, keys), (TAGS, tags)) if text is not None}
    check_properties(properties)
    yield send_to_queue(session, chosen, session.named(chosen.broker_name).address, body.encode(),
                {**properties, "WAIT": "true"})


def send_again(session: Session, messages: Iterable[StoredMessage]) -> Iterator[Row]:
    """Send messages again, with new ids."""
    for message in messages:
        properties = message.properties_map()
        properties.pop(UNIQ_KEY, None)
        queues = session.write_queues(message.topic)
        if not queues:
            raise AdminError(f"topic {message.topic} cannot be written to")
        queue = queues[time.time_ns() // 1000 % len(queues)]
        yield send_to_queue(session, queue, session.named(queue.broker_name).address, message.body,
                    properties, message.flag, message.sys_flag)


def _timed(
    session: Session, queue: MessageQueue, address: str, size: int
) -> tuple[bool, float, str]:
    """Send a message of a size; return whether it is stored, the duration in ms, and the error."""
    begin = time.perf_counter()
    try:
        send_to_queue(session, queue, address, b"a" * size, {"WAIT": "true"})
    except BrokerError as error:
        return False, (time.perf_counter() - begin) * 1000, str(error)
    return True, (time.perf_counter() - begin) * 1000, ""


def check_send_time(session: Session, *, topic: str, amount: int, size: int) -> Iterator[Row]:
    """Measure the duration of sends to the queues of a topic in turn."""
    queues = session.write_queues(topic)
    if not queues:
        raise AdminError(f"topic {topic} cannot be written to")
    for at in range(amount):
        queue = queues[at % len(queues)]
        stored, ms, reason = _timed(session, queue, session.named(queue.broker_name).address, size)
        if reason:
            session.failures.append(reason)
        yield queue.broker_name, queue.queue_id, stored, ms


def send_status(session: Session, *, broker: str, size: int, count: int) -> Iterator[Row]:
    """Measure the duration of sends to a broker, to the topic with the broker's name."""
    target = session.named(broker)
    for at in range(count):
        stored, ms, reason = _timed(session, MessageQueue(broker, broker, 0), target.address, size)
        if reason:
            session.failures.append(reason)
        yield at, broker, stored, ms


def cluster_send_time(
    session: Session, *, amount: int, size: int, cluster: str | None, as_log: bool, room: str
) -> Result:
    """Measure the average duration of sends to each broker of clusters.

    Messages go to the topic with the broker's name. The first send is not counted.

    :param as_log: whether rows contain a time and a room instead of counts.
    """
    rows = _send_times(session, amount, size, cluster)
    if not as_log:
        return rows
    return Table(("time", "room", "cluster", "broker", "ms"), (
        (Millis(_now_ms()), room, name, broker, ms) for name, broker, ms, *_ in rows))


def _send_times(
    session: Session, amount: int, size: int, cluster: str | None
) -> Iterator[Row]:
    for name in session.cluster_names(cluster):
        for broker in session.brokers(None, name):
            queue = MessageQueue(broker.name, broker.name, 0)
            times = [_timed(session, queue, broker.address, size)
                     for _ in range(amount)]
            session.failures += sorted({reason for _, _, reason in times if reason})
            counted = [ms for _, ms, _ in times[1:]]
            yield (name, broker.name, sum(counted) / len(counted) if counted else None,
                   sum(stored for stored, _, _ in times),
                   sum(not stored for stored, _, _ in times))


