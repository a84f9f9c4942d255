"""The maximum length of a request for each code; no more is read or handled."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from twistmq.broker.constants import (
    BATCH_ACK_SIZE_MAX,
    BODY_SIZE_MAX,
    DECODED_BYTES_PER_BYTE,
    HEADER_SIZE_MAX,
    HEARTBEAT_SIZE_MAX,
    LOCK_BODY_SIZE_MAX,
    LONG_HEADER_SIZE_MAX,
    SINGLE_TOPIC_SIZE_MAX,
    SUBSCRIPTION_BODY_SIZE_MAX,
    TABLE_BODY_SIZE_MAX,
)
from twistmq.broker.plugin.discovery import ENTRY_POINT_GROUP
from twistmq.broker.remoting.interfaces import IAccessValidator
from twistmq.broker.remoting.messages import AnyHandler, Reply, Request, RequestHandler
from twistmq.broker.testing.conversation import Conversation, make_server
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.name_server import PortlessNameServer
from twistmq.protocol.bodies.body import DIALECT_SIZE_MAX
from twistmq.protocol.codes import RequestCode as Code
from twistmq.protocol.codes import ResponseCode
from twistmq.protocol.command import encode_request
from twistmq.protocol.errors import RequestRefused
from twistmq.protocol.frame import FRAME_SIZE_MAX, JSON, ROCKETMQ, encode_frame
from twistmq.protocol.limits import DATA_VERSION_SIZE_MAX

#: Longest header and longest body of each code that needs more or less than others, bytes.
BOUNDS: dict[int, tuple[int, int]] = {
    **dict.fromkeys((Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE,
                     Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2),
                    (LONG_HEADER_SIZE_MAX, FRAME_SIZE_MAX)),
    **dict.fromkeys((Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE, Code.POP_MESSAGE,
                     Code.NOTIFICATION, Code.PUT_KV_CONFIG, Code.UPDATE_AND_CREATE_ACL_CONFIG),
                    (LONG_HEADER_SIZE_MAX, BODY_SIZE_MAX)),
    **dict.fromkeys((Code.UPDATE_AND_CREATE_TOPIC_LIST,
                     Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST),
                    (HEADER_SIZE_MAX, TABLE_BODY_SIZE_MAX)),
    **dict.fromkeys((Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ),
                    (HEADER_SIZE_MAX, LOCK_BODY_SIZE_MAX)),
    Code.QUERY_DATA_VERSION: (HEADER_SIZE_MAX, DATA_VERSION_SIZE_MAX),
    Code.REGISTER_TOPIC_IN_NAMESRV: (HEADER_SIZE_MAX, SINGLE_TOPIC_SIZE_MAX),
    Code.UPDATE_AND_CREATE_STATIC_TOPIC: (HEADER_SIZE_MAX, DIALECT_SIZE_MAX),
    Code.HEART_BEAT: (HEADER_SIZE_MAX, HEARTBEAT_SIZE_MAX),
    Code.CHECK_CLIENT_CONFIG: (HEADER_SIZE_MAX, SUBSCRIPTION_BODY_SIZE_MAX),
    Code.BATCH_ACK_MESSAGE: (HEADER_SIZE_MAX, BATCH_ACK_SIZE_MAX),
    Code.REGISTER_BROKER: (HEADER_SIZE_MAX, FRAME_SIZE_MAX),
}
#: A body that long leaves no room in the frame.
_SOME = 64


def request(code: int, header_size: int, body_size: int, serialize_type: int = JSON,
            flag: int = 0) -> bytes:
    """Return a frame of these sizes, with opaque 7."""
    if serialize_type == JSON:
        head = b'{"code":%d,"extFields":{"no":"' % code
        tail = b'"},"flag":%d,"language":"JAVA","opaque":7,"version":479}' % flag
        header = head + b"x" * (header_size - len(head) - len(tail)) + tail
    else:
        frame = encode_request(code, 7, None, serialize_type=ROCKETMQ, oneway=bool(flag & 2),
                               extra_fields={"no": ""})
        header = encode_request(
            code, 7, None, serialize_type=ROCKETMQ, oneway=bool(flag & 2),
            extra_fields={"no": "x" * (header_size - len(frame) + 8)})[8:]
    assert len(header) == header_size
    return encode_frame(serialize_type, header, bytes(body_size))


class TableTests(SynchronousTestCase):
    """Every code that is served."""

    def rows(self) -> list[AnyHandler]:
        plugins = [(point.name, point.load())
                   for point in entry_points(group=ENTRY_POINT_GROUP)
                   if point.value.startswith("twistmq.")]
        box = KernelBox(plugins=plugins)
        self.addCleanup(box.stop)
        rows = [*box.kernel.handler_table().values(), *PortlessNameServer().handlers()]
        self.assertGreater(len(rows), 80)
        return rows

    def test_each_code_with_a_larger_bound_is_in_the_table(self) -> None:
        """A code that needs more than others is one of the table's."""
        for row in self.rows():
            self.assertEqual((row.header_size_max, row.body_size_max),
                             BOUNDS.get(row.code, (HEADER_SIZE_MAX, BODY_SIZE_MAX)),
                             msg=str(row.code))

    def test_every_row(self) -> None:
        """A request of the maximum length is handled; one more byte of header or
        body is refused.
        """
        for row in self.rows():
            handled: list[Request[Any]] = []

            def handle(request: Request[Any], handled: list[Any] = handled) -> Reply:
                handled.append(request)
                return Reply()

            client = Conversation(make_server([RequestHandler(
                row.code, handle, header_size_max=row.header_size_max,
                body_size_max=row.body_size_max, too_long=row.too_long)]))
            header_size = row.header_size_max
            body_size = min(row.body_size_max, FRAME_SIZE_MAX - header_size - _SOME)
            # A binary header has 16 bits for the code.
            for kind in (JSON, ROCKETMQ) if row.code < 2**15 else (JSON,):
                client.says(request(row.code, header_size, body_size, kind))
                [reply] = client.heard()
                self.assertEqual((reply.code, len(handled)), (0, 1), msg=str(row.code))
                client.says(request(row.code, header_size + 1, 0, kind))
                [reply] = client.heard()
                self.assertEqual((reply.code, reply.opaque), (row.too_long, 7), msg=str(row.code))
                self.assertIn(f"over the limit of {header_size}", reply.remark or "")
                if body_size == row.body_size_max:
                    client.says(request(row.code, 200, body_size + 1, kind))
                    [reply] = client.heard()
                    self.assertEqual((reply.code, reply.opaque), (row.too_long, 7))
                    self.assertIn(f"over the limit of {body_size}", reply.remark or "")
                self.assertEqual(len(handled), 1, msg=str(row.code))
                handled.clear()


class RefusalTests(SynchronousTestCase):
    """The refusal of requests that are too long."""

    def setUp(self) -> None:
        self.handled = 0
        self.client = Conversation(self.server())

    def server(self, *validators: Any) -> Any:
        return make_server([
            RequestHandler(10, self.handle, header_size_max=LONG_HEADER_SIZE_MAX,
                           body_size_max=FRAME_SIZE_MAX, too_long=ResponseCode.MESSAGE_ILLEGAL),
            RequestHandler(11, self.handle),
        ], validators=validators)

    def handle(self, request: Request[Any]) -> Reply:
        self.handled += 1
        return Reply()

    def test_another_code(self) -> None:
        """The code in the header counts, even if it looks like a code with a higher limit."""
        frame = request(10, HEADER_SIZE_MAX + 1, 0).replace(b'"opaque"', b'"code":11,"opaque"')
        frame = frame.replace(b"x" * 10, b"", 1)
        self.client.says(frame)
        [reply] = self.client.heard()
        self.assertEqual((reply.code, reply.opaque), (ResponseCode.INVALID_PARAMETER, 7))
        self.assertEqual(self.handled, 0)

    def test_code_nobody_serves(self) -> None:
        """An unknown code has the limits of most codes."""
        for sizes in ((HEADER_SIZE_MAX + 1, 0), (200, BODY_SIZE_MAX + 1)):
            self.client.says(request(901, *sizes))
            [reply] = self.client.heard()
            self.assertEqual((reply.code, reply.opaque), (ResponseCode.INVALID_PARAMETER, 7))

    def test_requests_before_and_behind_are_answered(self) -> None:
        """Requests before and after it are answered."""
        self.client.says(request(11, 200, 0), request(10, LONG_HEADER_SIZE_MAX + 1, 5),
                         request(11, 200, BODY_SIZE_MAX + 1), request(10, 200, 0))
        self.assertEqual([reply.code for reply in self.client.heard()],
                         [0, ResponseCode.MESSAGE_ILLEGAL, ResponseCode.INVALID_PARAMETER, 0])
        self.assertEqual(self.handled, 2)

    def test_a_one_way_request_gets_no_answer(self) -> None:
        """A one-way request gets no answer."""
        for kind in (JSON, ROCKETMQ):
            self.client.says(request(11, HEADER_SIZE_MAX + 1, 0, kind, flag=2),
                             request(11, 200, BODY_SIZE_MAX + 1, kind, flag=2))
        self.assertEqual(self.client.heard(), [])
        self.assertEqual(self.handled, 0)

    def test_no_opaque(self) -> None:
        """A peer that cannot be answered is disconnected after earlier responses."""
        long = encode_frame(JSON, b"x" * (HEADER_SIZE_MAX + 1), b"")
        self.client.says(request(11, 200, 0), long, request(11, 200, 0))
        self.assertEqual([reply.code for reply in self.client.heard()], [0])
        self.assertEqual(self.handled, 1)
        self.assertTrue(self.client.connection.protocol.closing)

    def test_no_validator_runs_for_a_request_that_is_too_long(self) -> None:
        """No validator is called, and nothing is decoded."""
        asked: list[Request[Any]] = []

        @implementer(IAccessValidator)
        class Denies:
            def validate(self, request: Request[Any]) -> None:
                asked.append(request)
                raise RequestRefused(ResponseCode.NO_PERMISSION, "no")

        client = Conversation(self.server(Denies()))
        client.says(request(10, LONG_HEADER_SIZE_MAX + 1, 0), request(11, 200, BODY_SIZE_MAX + 1))
        self.assertEqual([reply.code for reply in client.heard()],
                         [ResponseCode.MESSAGE_ILLEGAL, ResponseCode.INVALID_PARAMETER])
        self.assertEqual(asked, [])
        client.says(request(11, 200, 0))
        self.assertEqual([reply.code for reply in client.heard()], [ResponseCode.NO_PERMISSION])


class WaitTests(SynchronousTestCase):
    """A waiting request with a decoded body counts with the memory that this takes."""

    def test_ten_times_its_bytes(self) -> None:
        """It counts ten times its bytes."""
        until: Deferred[Reply] = Deferred()
        sizes = []
        for decodes in (False, True):
            client = Conversation(make_server([
                RequestHandler(11, lambda request: until, decodes_body=decodes)]))
            client.says(request(11, 200, 1000))
            sizes.append(client.server.in_flight.total_bytes)
        self.assertEqual(sizes[1] - sizes[0], 1000 * DECODED_BYTES_PER_BYTE)
