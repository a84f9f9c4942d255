"""``twistmq admin queryMsgTraceById``: the history of a message, compiled from its traces.

Source: QueryMsgTraceByIdSubCommand, TraceView @5.3.3.
"""

from __future__ import annotations

from collections.abc import Iterator

from twistmq.broker.api.admin_commands import AdminError, Millis, Row, Session, find_messages
from twistmq.broker.api.wire import host_text
from twistmq.protocol.trace_records import Pub, SubAfter, SubBefore, decode_records

__all__ = ["query_trace"]


def query_trace(
    session: Session, *, message_id: str, topic: str, begin_ms: int | None, end_ms: int | None,
    max_count: int,
) -> Iterator[Row]:
    """Return the sends and consumptions of a message in chronological order.

    :raises AdminError: when no trace is found.
    """
    rows: list[Row] = []
    begins: dict[str, SubBefore] = {}
    ends: list[tuple[SubAfter, str]] = []
    for message in find_messages(session, topic, message_id, begin_ms=begin_ms, end_ms=end_ms,
                                 max_count=max_count):
        client = host_text(message.born_host).rpartition(":")[0]
        for record in decode_records(message.body).records:
            if message_id not in record.message_id.split(","):
                continue
            if isinstance(record, Pub):
                rows.append(("Pub", record.group, record.client_host or client,
                             Millis(record.time_ms), record.cost_ms, _status(record.success)))
            elif isinstance(record, SubBefore):
                begins[record.request_id] = record
            elif isinstance(record, SubAfter):
                ends.append((record, client))
    for after, client in ends:
        before = begins.get(after.request_id)
        rows.append(("Sub", after.group or (before.group if before else None),
                     (before.client_host if before else None) or client,
                     Millis(after.time_ms or (before.time_ms if before else 0)), after.cost_ms,
                     _status(after.success)))
    if not rows:
        raise AdminError(f"{topic} holds no trace of {message_id}")
    yield from sorted(rows, key=lambda row: row[3] if isinstance(row[3], int) else 0)


def _status(success: bool) -> str:
    return "success" if success else "failed"
