"""Clients that write their own traces are recognised; only the others are recorded."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from twistmq.protocol.record import host_bytes
from twistmq.protocol.trace_records import (
    DecodedRecords,
    Pub,
    SubBefore,
    decode_records,
    encode_records,
)
from twistmq.trace import tracing_clients
from twistmq.trace.tracing_clients import (
    CLIENTS_MAX,
    DECODED_MAX,
    FORGET_MS,
    WATCH_MS,
    TracingClients,
    Verdict,
    client_key,
)

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "trace"
NOW_MS = 1_700_000_000_000
HOST, OTHER = host_bytes("10.0.0.1", 5001), host_bytes("10.0.0.2", 5002)
PUB = encode_records([Pub(1, "R", "g", "T", "i", None, None, None, 1, 1, 0, "o", True)])


class VerdictTests(SynchronousTestCase):
    """The decision about a client, and its time."""

    def setUp(self) -> None:
        self.clients = TracingClients()

    def verdict(self, at_ms: int, host: bytes = HOST, group: str = "g",
                is_consumer: bool = False) -> Verdict:
        return self.clients.verdict(client_key(host, group, is_consumer), NOW_MS + at_ms)

    def test_client_that_does_not_trace(self) -> None:
        """A client is watched for as long as clients delay their records, and is then recorded."""
        self.assertIs(self.verdict(0), Verdict.WAIT)
        self.assertIs(self.verdict(WATCH_MS - 1), Verdict.WAIT)
        self.assertIs(self.verdict(WATCH_MS), Verdict.RECORD)

    def test_client_that_traces(self) -> None:
        """Its first own record decides, from any port; a consumer of the same group is separate."""
        self.verdict(0)
        self.clients.traced(host_bytes("10.0.0.1", 6001), [PUB], NOW_MS + 4000)
        self.assertIs(self.verdict(4001), Verdict.SKIP)
        self.assertIs(self.verdict(4001, is_consumer=True), Verdict.WAIT)
        self.assertIs(self.verdict(4001, OTHER), Verdict.WAIT)
        self.assertIs(self.verdict(4001, group="h"), Verdict.WAIT)

    def test_an_activity_that_the_client_cannot_have_traced(self) -> None:
        """Records arrive within six seconds, so an older activity belongs to another program."""
        self.verdict(0)
        self.clients.traced(HOST, [PUB], NOW_MS + 60_000)
        client, now_ms = client_key(HOST, "g", False), NOW_MS + 61_000
        self.assertIs(self.clients.verdict(client, now_ms, 1000 + WATCH_MS), Verdict.SKIP)
        self.assertIs(self.clients.verdict(client, now_ms, 1001 + WATCH_MS), Verdict.RECORD)

    def test_records_that_came_first(self) -> None:
        """The client's own record can arrive before the request that it describes."""
        self.clients.traced(HOST, [PUB], NOW_MS)
        self.assertIs(self.verdict(0), Verdict.SKIP)

    def test_records_leave_the_namespace_of_a_group_out(self) -> None:
        """A record names the group without its namespace."""
        self.clients.traced(HOST, [PUB], NOW_MS)
        self.assertIs(self.verdict(0, group="ns%g"), Verdict.SKIP)

    def test_consumer_that_traces(self) -> None:
        """Records of the types SubBefore and SubAfter belong to a consumer."""
        body = encode_records([SubBefore(1, "R", "g", "q", "i", 0, None)])
        self.clients.traced(HOST, [body], NOW_MS)
        self.assertIs(self.verdict(0, is_consumer=True), Verdict.SKIP)
        self.assertIs(self.verdict(0), Verdict.WAIT)

    def test_idle_clients_are_forgotten(self) -> None:
        """A client that was idle for long is watched again."""
        self.clients.traced(HOST, [PUB], NOW_MS)
        self.clients.forget_idle(NOW_MS + FORGET_MS - 1)
        self.assertIs(self.verdict(FORGET_MS - 1), Verdict.SKIP)
        self.clients.forget_idle(NOW_MS + 2 * FORGET_MS)
        self.assertIs(self.verdict(2 * FORGET_MS), Verdict.WAIT)

    def test_too_many_clients(self) -> None:
        """Clients above the limit are recorded, and the memory does not grow."""
        for number in range(CLIENTS_MAX):
            self.verdict(0, group=f"g{number}")
        self.assertIs(self.verdict(0, group="late"), Verdict.RECORD)
        self.assertIs(self.verdict(0, group="g5"), Verdict.WAIT)

    def test_every_captured_client(self) -> None:
        """The records of the Java clients and the Go client tell their groups."""
        for file, group, is_consumer in (
            ("java-4.9.4/0.bin", "TraceP", False), ("java-4.9.4/1.bin", "TraceC", True),
            ("java-5.3.3/0.bin", "TraceC", True), ("java-5.3.3/1.bin", "TraceP", False),
            ("go-2.1.2/0.bin", "TraceGoP", False), ("go-2.1.2/1.bin", "TraceGoC", True),
        ):
            self.clients.traced(HOST, [(GOLDEN / file).read_bytes()], NOW_MS)
            self.assertIs(self.verdict(0, group=group, is_consumer=is_consumer), Verdict.SKIP,
                          msg=file)

    def test_an_invalid_record_decides_nothing(self) -> None:
        """An invalid record decides nothing."""
        self.clients.traced(HOST, [b"\xff\x01\x02Pub\x02"], NOW_MS)
        self.assertIs(self.verdict(0), Verdict.WAIT)

    def test_a_request_of_too_many_records(self) -> None:
        """Only the first records of a request are read, however many messages they are in."""
        decoded: list[int] = []

        def count(body: bytes) -> DecodedRecords:
            decoded.append(len(body))
            return decode_records(body)

        self.patch(tracing_clients, "decode_records", count)
        many = PUB * (DECODED_MAX // len(PUB))
        last = PUB.replace(b"\x01g\x01", b"\x01h\x01")
        for bodies in ([many + last], [many, last], [PUB, many, last]):
            self.clients = TracingClients()
            self.clients.traced(HOST, bodies, NOW_MS)
            self.assertIs(self.verdict(0), Verdict.SKIP)
            self.assertIs(self.verdict(0, group="h"), Verdict.WAIT)
            self.assertLessEqual(sum(decoded), DECODED_MAX)
            decoded.clear()
