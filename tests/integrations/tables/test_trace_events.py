"""Messages of the trace topic as rows of events."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.integrations.tables.records import encoded
from twistmq.integrations.tables.columns import TRACE_COLUMNS
from twistmq.integrations.tables.record_batches import BatchBuilder
from twistmq.integrations.tables.trace_events import MESSAGE_COLUMNS, TraceEvents
from twistmq.protocol import record
from twistmq.protocol.trace_records import (
    EndTransaction,
    Pub,
    Recall,
    SubAfter,
    SubBefore,
    decode_records,
    encode_records,
)

GOLDEN = Path(__file__).resolve().parents[2] / "golden/trace"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
RECORDS = (
    Pub(1_700_000_000_001, "R", "P", "T", "ID1", "a", "k1 k2", "10.0.0.1:10911", 12, 3, 1,
        "OFF", True),
    SubBefore(1_700_000_000_002, None, "C", "RQ", "ID1", 2, None),
    SubAfter("RQ", "ID1", 7, False, "k", 2, 1_700_000_000_009, "C"),
    EndTransaction(1_700_000_000_003, "R", "P", "T", "ID1", None, None, "10.0.0.1:10911", 2, "TX",
                   "COMMIT_MESSAGE", True),
    Recall(1_700_000_000_004, "R", "P", "T", "ID1", False),
    SubAfter("RQ", "ID1", 7, True, None, 0),
    Pub(1, None, "P", "T", "ID2", None, None, None, 1 << 40, 3, 77, None, False),
)


def rows_of(*bodies: bytes, **fields: Any) -> list[dict[str, Any]]:
    """Return the rows of messages with these bodies."""
    builder = BatchBuilder(MESSAGE_COLUMNS)
    for index, body in enumerate(bodies):
        builder.add(encoded("RMQ_SYS_TRACE_TOPIC", body, queue_offset=index, **fields), "broker-a")
    events = TraceEvents(TRACE_COLUMNS)
    found = []
    for batch in events.batches(builder.batch()):
        batch.validate(full=True)
        assert batch.schema == events.schema
        found += batch.to_pylist()
    return found


class TraceEventsTests(SynchronousTestCase):
    """The rows of trace records."""

    def test_each_kind(self) -> None:
        """The fields of each kind of record are in its columns, and the other columns are null."""
        host = record.host_bytes("10.9.8.7", 4711)
        found = rows_of(encode_records(RECORDS), born_host=host, queue_id=3)
        always = {"clientHost": "10.9.8.7", "brokerName": "broker-a", "queueId": 3,
                  "queueOffset": 0, "msgId": "ID1",
                  "storeTimestamp": _EPOCH + timedelta(milliseconds=1_700_000_000_500)}
        sent = {"region": "R", "group": "P", "topic": "T"}
        at = [_EPOCH + timedelta(milliseconds=1_700_000_000_000 + ms) for ms in range(10)]
        wanted: list[dict[str, Any]] = [
            {"traceType": "Pub", "time": at[1], **sent, "tags": "a", "keys": "k1 k2",
             "storeHost": "10.0.0.1:10911", "bodyLength": 12, "costMs": 3,
             "msgType": "TRANSACTION_HALF", "offsetMsgId": "OFF", "success": True},
            {"traceType": "SubBefore", "time": at[2], "group": "C", "requestId": "RQ",
             "retryTimes": 2},
            {"traceType": "SubAfter", "time": at[9], "group": "C", "requestId": "RQ", "costMs": 7,
             "success": False, "keys": "k", "contextCode": "EXCEPTION"},
            {"traceType": "EndTransaction", "time": at[3], **sent, "storeHost": "10.0.0.1:10911",
             "msgType": "TRANSACTION_COMMIT", "transactionId": "TX",
             "transactionState": "COMMIT_MESSAGE", "fromCheck": True},
            {"traceType": "Recall", "time": at[4], **sent, "success": False},
            {"traceType": "SubAfter", "requestId": "RQ", "costMs": 7, "success": True,
             "contextCode": "SUCCESS"},
            {"traceType": "Pub", "time": _EPOCH + timedelta(milliseconds=1), "group": "P",
             "topic": "T", "msgId": "ID2", "costMs": 3, "msgType": "77", "success": False},
        ]
        for index, (row, one) in enumerate(zip(found, wanted, strict=True)):
            whole = dict.fromkeys([column.name for column in TRACE_COLUMNS])
            self.assertEqual(row, whole | always | {"eventIndex": index} | one,
                             msg=one["traceType"])

    def test_what_clients_wrote(self) -> None:
        """Every record that Java and Go clients have stored is a row with the right position."""
        bodies = [path.read_bytes() for path in sorted(GOLDEN.rglob("*.bin"))]
        self.assertTrue(bodies)
        found = rows_of(*bodies)
        wanted = [(index, number, type(one).__name__, one.message_id)
                  for index, body in enumerate(bodies)
                  for number, one in enumerate(decode_records(body).records)]
        self.assertEqual([(row["queueOffset"], row["eventIndex"], row["traceType"], row["msgId"])
                          for row in found], wanted)

    def test_records_that_cannot_be_read(self) -> None:
        """Unreadable records are counted, and the other ones become rows."""
        builder = BatchBuilder(MESSAGE_COLUMNS)
        good = encode_records(RECORDS[:1])
        builder.add(encoded(body=b"Pub\x01now\x02" + good + b"What\x02"), "b")
        events = TraceEvents(TRACE_COLUMNS)
        found = [row for batch in events.batches(builder.batch()) for row in batch.to_pylist()]
        self.assertEqual(([row["msgId"] for row in found], events.bad_count), (["ID1"], 2))

    def test_clients_by_ipv6(self) -> None:
        """The host has no port, with both forms of addresses."""
        host = record.host_bytes("fe80::1", 4711)
        self.assertEqual(rows_of(encode_records(RECORDS[:1]), born_host=host)[0]["clientHost"],
                         "fe80::1")

    def test_times_no_calendar_has(self) -> None:
        """The clock of a client may have any value."""
        far = Pub((1 << 62), None, "P", "T", "I", None, None, None, 1, 1, 0, None, True)
        self.assertEqual(rows_of(encode_records([far]))[0]["time"].year, 9999)
