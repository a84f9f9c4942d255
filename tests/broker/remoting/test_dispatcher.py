"""The way of a request, from its frame to its reply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from twisted.internet.defer import Deferred, succeed
from twisted.logger import LogLevel, capturedLogs, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from twistmq.broker import hookimpl
from twistmq.broker.errors import StoreFull
from twistmq.broker.remoting.interfaces import IAccessValidator
from twistmq.broker.remoting.messages import DeferredReply, Handled, Reply, Request, RequestHandler
from twistmq.broker.testing.conversation import Conversation, make_server
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.raw_client import send_header
from twistmq.protocol.binary_header import encode_binary_header
from twistmq.protocol.codes import REFUSED, RequestCode, ResponseCode
from twistmq.protocol.command import encode_request
from twistmq.protocol.errors import BrokerError, RequestRefused
from twistmq.protocol.frame import FRAME_SIZE_MAX, JSON, ROCKETMQ, encode_frame
from twistmq.protocol.header import CommandHeader, Int32, ext_fields_of
from twistmq.protocol.headers.offset import GetMaxOffsetRequestHeader
from twistmq.protocol.headers.pull import PullMessageRequestHeader
from twistmq.protocol.headers.send import SendMessageRequestHeaderV2
from twistmq.protocol.log_rate import EVENTS_A_MINUTE, LINES_A_MINUTE

ECHO, FAIL, WAIT, BATCH = 901, 902, 903, 904


class EchoHeader(CommandHeader):
    """A header with a required number."""

    number: Int32
    text: str | None = None


def echo(request: Request[EchoHeader]) -> Reply:
    return Reply(header=request.header, body=request.body)


class DispatchTests(SynchronousTestCase):
    """The requests of one connection."""

    def setUp(self) -> None:
        self.waiting: list[Deferred[Reply]] = []
        self.batches: list[int] = []
        server = make_server([
            RequestHandler(ECHO, echo, EchoHeader),
            RequestHandler(FAIL, self.fail_with),
            RequestHandler(WAIT, self.wait),
            RequestHandler(BATCH, lambda request: Reply(), handle_batch=self.batch),
        ])
        self.client = Conversation(server)
        self.error: Exception = ValueError("broken")

    def fail_with(self, request: Request[Any]) -> Handled:
        raise self.error

    def wait(self, request: Request[Any]) -> Handled:
        waiting: Deferred[Reply] = Deferred()
        self.waiting.append(waiting)
        return waiting

    def batch(self, requests: Sequence[Request[Any]]) -> list[Handled]:
        self.batches.append(len(requests))
        return [Reply(body=request.body) for request in requests]

    def test_reply_has_header_body_and_opaque(self) -> None:
        """The reply has the data of the handler and the opaque of the request."""
        self.client.says(encode_request(ECHO, 7, EchoHeader(number=3, text="ä"), b"body"))
        [reply] = self.client.heard()
        self.assertEqual((reply.opaque, reply.code, reply.body), (7, 0, b"body"))
        self.assertTrue(reply.is_response)
        self.assertEqual(reply.header(EchoHeader), EchoHeader(number=3, text="ä"))

    def test_reply_longer_than_a_frame(self) -> None:
        """The largest frame is sent; one more byte, also in a remark, causes a refusal."""
        size = FRAME_SIZE_MAX - len(Reply().frame(1))
        self.assertEqual(len(Reply(body=bytes(size)).frame(1)), FRAME_SIZE_MAX)
        bodies = iter([Reply(body=bytes(size)), Reply(body=bytes(size + 1)),
                       Reply(remark="\x01" * (size // 5))])
        client = Conversation(make_server([RequestHandler(ECHO, lambda request: next(bodies))]))
        client.says(encode_request(ECHO, 1))
        self.assertEqual([len(reply.body) for reply in client.heard()], [size])
        for opaque in (2, 3):
            with capturedLogs() as events:
                client.says(encode_request(ECHO, opaque))
            [reply] = client.heard()
            self.assertEqual((reply.opaque, reply.code, reply.body),
                             (opaque, ResponseCode.SYSTEM_ERROR, b""))
            self.assertIn("a frame may have 16777216", reply.remark or "")
            self.assertEqual([event["code"] for event in events
                              if event["log_level"] >= LogLevel.warn], [ECHO])

    def test_unknown_code(self) -> None:
        """A code without a row answers as Apache's broker does."""
        self.client.says(encode_request(31_000, 5))
        [reply] = self.client.heard()
        self.assertEqual(reply.code, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        self.assertEqual(reply.remark, " request type 31000 not supported")

    def test_replies_of_one_read_leave_in_one_write(self) -> None:
        """Ten requests in one read cause one write."""
        header = EchoHeader(number=1)
        self.client.says(*[encode_request(ECHO, opaque, header) for opaque in range(10)])
        self.assertEqual(len(self.client.connection.writes), 1)
        self.assertEqual(self.client.hears(), [(opaque, 0) for opaque in range(10)])

    def test_reply_that_waits_holds_back_no_other(self) -> None:
        """Ready replies are written at once, and waiting ones when they are ready."""
        header = EchoHeader(number=1)
        self.client.says(encode_request(ECHO, 1, header), encode_request(WAIT, 2),
                         encode_request(ECHO, 3, header))
        self.assertEqual(self.client.hears(), [(1, 0), (3, 0)])
        self.client.says(encode_request(ECHO, 4, header))
        self.assertEqual(self.client.hears(), [(4, 0)])
        self.waiting[0].callback(Reply(ResponseCode.FLUSH_DISK_TIMEOUT))
        self.assertEqual(self.client.hears(), [(2, ResponseCode.FLUSH_DISK_TIMEOUT)])

    def test_deferred_that_fired(self) -> None:
        """A Deferred that has its result already leaves with the replies of its read."""
        rows = [RequestHandler(WAIT, lambda request: succeed(Reply()))]
        client = Conversation(make_server(rows))
        client.says(encode_request(WAIT, 1), encode_request(WAIT, 2))
        self.assertEqual(len(client.connection.writes), 1)
        self.assertEqual(client.hears(), [(1, 0), (2, 0)])

    def test_deferred_chained_to_one_that_waits(self) -> None:
        """A Deferred that was called but waits for another one is waited for."""
        inner: Deferred[Reply] = Deferred()
        rows = [RequestHandler(
            WAIT, lambda request: succeed(None).addCallback(lambda _: inner))]
        client = Conversation(make_server(rows))
        client.says(encode_request(WAIT, 1))
        self.assertEqual(client.hears(), [])
        inner.callback(Reply())
        self.assertEqual(client.hears(), [(1, 0)])

    def test_deferred_that_fails(self) -> None:
        """A late failure is answered as an error that is raised."""
        self.client.says(encode_request(WAIT, 1), encode_request(WAIT, 2))
        self.waiting[0].errback(StoreFull("the disk is full"))
        self.waiting[1].errback(ValueError("broken"))
        first, second = self.client.heard()
        self.assertEqual((first.code, first.remark),
                         (ResponseCode.SERVICE_NOT_AVAILABLE, "the disk is full"))
        self.assertEqual((second.code, second.remark),
                         (ResponseCode.SYSTEM_ERROR, "ValueError: broken"))
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_lost_connection_forgets_the_reply(self) -> None:
        """A reply to a lost connection is dropped, and nothing is kept."""
        self.client.says(encode_request(WAIT, 1, None, b"x" * 100))
        self.assertGreater(self.client.server.in_flight.total_bytes, 0)
        self.client.connection.drop()
        self.waiting[0].callback(Reply())
        self.assertEqual(self.client.connection.received, b"")
        self.assertEqual(self.client.server.in_flight.total_bytes, 0)

    def test_a_one_way_request_has_no_reply(self) -> None:
        """A one-way request has no reply: no ready, late or refusing one, and no error."""
        for frame in (encode_request(ECHO, 1, EchoHeader(number=1), oneway=True),
                      encode_request(WAIT, 2, oneway=True),
                      encode_request(FAIL, 3, oneway=True),
                      encode_request(31_000, 4, oneway=True),
                      encode_request(ECHO, 5, oneway=True)):
            self.client.says(frame)
        self.waiting[0].callback(Reply())
        self.assertEqual(self.client.hears(), [])
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_handler_that_returns_none(self) -> None:
        """If a handler returns None, no reply is written."""
        client = Conversation(make_server([RequestHandler(WAIT, lambda request: None)]))
        client.says(encode_request(WAIT, 1), encode_request(99, 2))
        self.assertEqual(client.hears(), [(2, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)])

    def test_a_brokererror_is_answered_with_its_code_and_text(self) -> None:
        """A BrokerError becomes a reply with its code and text, and is not logged as an error."""
        self.error = RequestRefused(ResponseCode.TOPIC_NOT_EXIST, "no such topic")
        self.client.says(encode_request(FAIL, 1))
        [reply] = self.client.heard()
        self.assertEqual((reply.code, reply.remark),
                         (ResponseCode.TOPIC_NOT_EXIST, "no such topic"))

    def test_handler_that_raises(self) -> None:
        """An unexpected error is logged and answered; other requests of the read are served."""
        self.client.says(encode_request(FAIL, 1), encode_request(BATCH, 2))
        first, second = self.client.heard()
        self.assertEqual((first.code, first.remark),
                         (ResponseCode.SYSTEM_ERROR, "ValueError: broken"))
        self.assertEqual(second.code, ResponseCode.SUCCESS)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_handler_that_returns_no_reply(self) -> None:
        """A result that is not a reply, or that cannot be encoded, is an error of ours."""
        async def coroutine(request: Request[Any]) -> Reply:
            return Reply()

        for handle in (
            lambda request: "text",
            coroutine,
            lambda request: succeed({"code": 0}),
            lambda request: Reply(header={"a": "b"}),  # type: ignore[arg-type]
            lambda request: Reply(body="text"),  # type: ignore[arg-type]
        ):
            client = Conversation(make_server([RequestHandler(FAIL, handle)]))  # type: ignore[arg-type]
            client.says(encode_request(FAIL, 1), encode_request(31_000, 2))
            self.assertEqual(client.hears(), [
                (1, ResponseCode.SYSTEM_ERROR), (2, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)])
            self.assertEqual(len(self.flushLoggedErrors()), 1)

    def test_requests_of_one_code_that_follow_each_other_run_together(self) -> None:
        """Requests of one code that follow each other run together, in the order they came."""
        frames = [encode_request(BATCH, 1, None, b"a"), encode_request(BATCH, 2, None, b"b"),
                  encode_request(ECHO, 3, EchoHeader(number=0)),
                  encode_request(BATCH, 4, None, b"c")]
        self.client.says(*frames)
        self.assertEqual([(r.opaque, r.body) for r in self.client.heard()],
                         [(1, b"a"), (2, b"b"), (3, b""), (4, b"c")])
        self.assertEqual(self.batches, [2, 1])

    def test_batch_that_raises(self) -> None:
        """Each request of a batch whose handler raised is answered; a wrong length is an error,
        too.
        """
        def broken(requests: Sequence[Request[Any]]) -> list[Handled]:
            raise ValueError("broken")

        def short(requests: Sequence[Request[Any]]) -> list[Handled]:
            return [Reply()]

        for handle_batch in (broken, short):
            rows = [RequestHandler(BATCH, lambda request: Reply(), handle_batch=handle_batch)]
            client = Conversation(make_server(rows))
            client.says(encode_request(BATCH, 1), encode_request(BATCH, 2))
            self.assertEqual(client.hears(), [(1, ResponseCode.SYSTEM_ERROR),
                                              (2, ResponseCode.SYSTEM_ERROR)])
            self.assertEqual(len(self.flushLoggedErrors()), 2)

    def hold(self, *until: Deferred[Any]) -> Conversation:
        """Return a client whose requests wait for these, one after the other."""
        def held(requests: Sequence[Request[Any]]) -> list[Handled]:
            return [DeferredReply(Reply(body=request.body), wanted)
                    for request, wanted in zip(requests, until, strict=True)]

        client = Conversation(make_server(
            [RequestHandler(BATCH, lambda request: Reply(), handle_batch=held)]))
        client.says(*[encode_request(BATCH, opaque, None, b"%d" % opaque)
                      for opaque in range(len(until))])
        return client

    def test_held_replies_leave_together(self) -> None:
        """Replies that wait for the same event are written together."""
        flushed: Deferred[None] = Deferred()
        client = self.hold(flushed, flushed, flushed)
        self.assertEqual(client.connection.writes, [])
        self.assertGreater(client.server.in_flight.total_bytes, 0)
        flushed.callback(None)
        self.assertEqual(len(client.connection.writes), 1)
        self.assertEqual([(r.opaque, r.body) for r in client.heard()],
                         [(0, b"0"), (1, b"1"), (2, b"2")])
        self.assertEqual(client.server.in_flight.total_bytes, 0)

    def test_held_replies_that_wait_for_different_things(self) -> None:
        """Each leaves after its own event; one whose event has occurred does not wait."""
        first: Deferred[None] = Deferred()
        second: Deferred[None] = Deferred()
        client = self.hold(first, second, second, succeed(None))
        self.assertEqual([r.opaque for r in client.heard()], [3])
        second.callback(None)
        self.assertEqual([r.opaque for r in client.heard()], [1, 2])
        first.callback(None)
        self.assertEqual([r.opaque for r in client.heard()], [0])

    def test_held_replies_whose_wait_fails(self) -> None:
        """The error is the answer to each of them."""
        flushed: Deferred[None] = Deferred()
        client = self.hold(flushed, flushed)
        flushed.errback(RequestRefused(ResponseCode.FLUSH_DISK_TIMEOUT, "too slow"))
        self.assertEqual([(r.opaque, r.code, r.remark) for r in client.heard()],
                         [(0, ResponseCode.FLUSH_DISK_TIMEOUT, "too slow"),
                          (1, ResponseCode.FLUSH_DISK_TIMEOUT, "too slow")])

    def test_header_that_does_not_fit(self) -> None:
        """A missing field and one of a wrong type refuse the request with a text."""
        self.client.says(
            encode_request(ECHO, 1), encode_request(ECHO, 2, None, extra_fields={"number": "x"}),
            encode_request(ECHO, 3, EchoHeader(number=1)))
        first, second, third = self.client.heard()
        self.assertEqual(first.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("number", first.remark or "")
        self.assertEqual(second.code, ResponseCode.SYSTEM_ERROR)
        self.assertEqual(third.code, ResponseCode.SUCCESS)

    def test_unreadable_header(self) -> None:
        """An invalid header is answered with the opaque that can be found in it."""
        self.client.says(
            encode_frame(JSON, b'{"code":10,"opaque": 77,"flag":"x"}', b""),
            encode_frame(JSON, b"not json", b""), encode_frame(ROCKETMQ, b"\x00", b""),
            encode_request(ECHO, 3, EchoHeader(number=1)))
        self.assertEqual(self.client.hears(), [
            (77, ResponseCode.SYSTEM_ERROR), (0, ResponseCode.SYSTEM_ERROR),
            (0, ResponseCode.SYSTEM_ERROR), (3, ResponseCode.SUCCESS)])

    def test_lines_of_the_log(self) -> None:
        """Requests of one connection, however many are bad, fill no log."""
        long_header = encode_frame(JSON, b'{"code":11,"opaque":1,"x":"%s"}' % bytes(70_000), b"")
        self.error = StoreFull("full")
        count = EVENTS_A_MINUTE + 50
        for frame in (encode_frame(JSON, b"not json", b""), long_header, encode_request(FAIL, 1)):
            with capturedLogs() as events:
                self.client.says(*[frame] * count)
            self.assertEqual(len(self.client.hears()), count)
            lines = [event for event in events if event["log_level"] >= LogLevel.info]
            self.assertLessEqual(len(lines), EVENTS_A_MINUTE)
        self.error = ValueError("broken")
        self.client.says(*[encode_request(FAIL, 1)] * 50)
        self.assertEqual(len(self.client.hears()), 50)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), LINES_A_MINUTE)

    def test_unreadable_opaque(self) -> None:
        """An opaque that is not an int32 is not returned, because no client could read it."""
        for text in (b"2147483648", b"-2147483649", b"99999999999", b"9999999999", b"7.5", b"1e10"):
            self.client.says(encode_frame(JSON, b'{"code":10,"opaque":%s}' % text, b""))
            self.assertEqual(self.client.hears(), [(0, ResponseCode.SYSTEM_ERROR)], msg=text)
        for opaque in (2**31 - 1, -2**31):
            for text in (b"%d", b'"%d"'):
                header = b'{"code":"x","opaque":' + text % opaque + b"}"
                self.client.says(encode_frame(JSON, header, b""))
                self.assertEqual(self.client.hears(), [(opaque, ResponseCode.SYSTEM_ERROR)])

    def test_deep_header_that_waits(self) -> None:
        """Brackets as deep as the stack leave a request that waits, or a refused one."""
        waiting: list[Deferred[Reply]] = []

        def wait(request: Request[Any]) -> Deferred[Reply]:
            waiting.append(Deferred())
            return waiting[-1]

        client = Conversation(make_server([RequestHandler(ECHO, wait, PullMessageRequestHeader)]))
        fields = msgspec.json.encode(ext_fields_of(PullMessageRequestHeader("g", "T", 0, 0, 32, 0)))
        refused = 0
        for depth in range(900, 1000):
            header = b'{"code":%d,"opaque":%d,"more":%s,"extFields":%s}' % (
                ECHO, depth, b"[" * depth + b"]" * depth, fields)
            client.says(encode_frame(JSON, header, b""))
            refused += len(client.hears())
        self.assertTrue(waiting)
        self.assertEqual(len(waiting) + refused, 100)
        for each in waiting:
            each.callback(Reply())
        self.assertEqual(len(client.hears()), len(waiting))

    def test_binary_request(self) -> None:
        """A request in the binary encoding is served; its reply is JSON, as Apache's is."""
        header = encode_binary_header(ECHO, "JAVA", 479, 9, 0, None, {"number": "5"})
        self.client.says(encode_frame(ROCKETMQ, header, b"b"))
        [reply] = self.client.heard()
        self.assertEqual((reply.opaque, reply.code, reply.serialize_type), (9, 0, JSON))
        self.assertEqual(reply.header(EchoHeader).number, 5)

    def test_another_port_serves_fewer_rows_with_the_same_checks(self) -> None:
        """Another port serves fewer codes with the same checks."""
        for validators, codes in (
            ([Agrees()], (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.SUCCESS)),
            ([Refuser()], (ResponseCode.NO_PERMISSION, ResponseCode.NO_PERMISSION)),
        ):
            server = make_server([RequestHandler(ECHO, echo, EchoHeader),
                                  RequestHandler(BATCH, lambda request: Reply())],
                                 validators=validators)
            rows = {BATCH: server.dispatcher.handlers[BATCH]}
            server.dispatcher = server.dispatcher.restricted_to(rows)
            client = Conversation(server)
            client.says(encode_request(ECHO, 1, EchoHeader(number=1)), encode_request(BATCH, 2))
            self.assertEqual(client.hears(), list(enumerate(codes, 1)))


class RefusedCodesTests(SynchronousTestCase):
    """Codes of features that are not supported."""

    def test_each_refused_code_has_its_reason(self) -> None:
        """Each code is refused with its reason, for any request."""
        box = KernelBox()
        self.addCleanup(box.stop)
        for code, reason in REFUSED.items():
            reply = box.ask(code, body=b"{}")
            self.assertEqual((reply.code, reply.remark), (
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f" request type {int(code)} not supported: {reason}"))
        self.assertIn(RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON, REFUSED)

    def test_a_request_of_an_unknown_code_is_logged(self) -> None:
        """The log has the code and the peer, at level debug."""
        box = KernelBox()
        self.addCleanup(box.stop)
        with capturedLogs() as events:
            box.ask(RequestCode.QUERY_BROKER_OFFSET)
        refusals = [event for event in events if event.get("code") == 13]
        self.assertEqual([event["log_level"] for event in refusals], [LogLevel.debug])
        self.assertIn("request type 13 not supported", refusals[0]["error"])


@implementer(IAccessValidator)
class Refuser:
    """Refuses every request in the given way."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error or RequestRefused(ResponseCode.NO_PERMISSION, "no")

    def validate(self, request: Request[Any]) -> None:
        raise self.error


@implementer(IAccessValidator)
class Agrees:
    """Accepts and counts every request."""

    count = 0

    def validate(self, request: Request[Any]) -> None:
        self.count += 1


class AccessTests(SynchronousTestCase):
    """Validators come before the handler."""

    def setUp(self) -> None:
        self.served = 0

    def serve(self, request: Request[Any]) -> Reply:
        self.served += 1
        return Reply()

    def answer(self, *validators: Any) -> tuple[int, str | None]:
        """Return the code and the remark of the response."""
        rows = [RequestHandler(ECHO, self.serve)]
        client = Conversation(make_server(rows, validators=validators))
        client.says(encode_request(ECHO, 1))
        [reply] = client.heard()
        return reply.code, reply.remark

    def test_all_must_agree(self) -> None:
        """One refusal suffices; validators are asked until then."""
        agrees = Agrees()
        self.assertEqual(self.answer(agrees, agrees)[0], ResponseCode.SUCCESS)
        self.assertEqual(self.answer(agrees, Refuser()), (ResponseCode.NO_PERMISSION, "no"))
        self.assertEqual((agrees.count, self.served), (3, 1))

    def test_each_request_of_a_read_is_asked_about(self) -> None:
        """Requests that are handled together are checked separately; a refused one
        stays refused.
        """
        @implementer(IAccessValidator)
        class RefusesEven:
            def validate(self, request: Request[Any]) -> None:
                if request.command.opaque % 2 == 0:
                    raise RequestRefused(ResponseCode.NO_PERMISSION, "no")

        def serve_all(requests: Sequence[Request[Any]]) -> list[Handled]:
            counts.append(len(requests))
            return [self.serve(request) for request in requests]

        counts: list[int] = []
        code = RequestCode.SEND_MESSAGE_V2
        rows = [RequestHandler(code, self.serve, SendMessageRequestHeaderV2,
                               handle_batch=serve_all)]
        client = Conversation(make_server(rows, validators=[Agrees(), RefusesEven()]))
        client.says(b"".join(
            encode_request(code, opaque, send_header("T", 1)) for opaque in range(5)))
        self.assertEqual(sorted(client.hears()), [
            (opaque, ResponseCode.SUCCESS if opaque % 2 else ResponseCode.NO_PERMISSION)
            for opaque in range(5)])
        self.assertEqual((counts, self.served), ([2], 2))

    def test_validator_that_raises_denies(self) -> None:
        """An error in a validator refuses the request."""
        self.assertEqual(self.answer(Refuser(KeyError("bug")))[0], ResponseCode.SYSTEM_ERROR)
        self.assertEqual(self.served, 0)
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)


    def test_what_is_not_served(self) -> None:
        """An unknown code and a header that cannot be read pass them first as well."""
        rows = [RequestHandler(ECHO, self.serve, GetMaxOffsetRequestHeader)]
        for validators, unknown, unreadable in (
            ([Refuser()], ResponseCode.NO_PERMISSION, ResponseCode.NO_PERMISSION),
            ([Agrees()], ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.SYSTEM_ERROR),
        ):
            client = Conversation(make_server(rows, validators=validators))
            client.says(encode_request(ECHO + 5000, 1))
            client.says(encode_request(ECHO, 2))
            self.assertEqual(client.hears(), [(1, unknown), (2, unreadable)])
        self.assertEqual(self.served, 0)

    def test_a_signed_request_of_a_kind_that_comes_often_is_read_once(self) -> None:
        """A signed request that arrives often is decoded once, only for the validators."""
        seen: list[tuple[str | None, str | None]] = []
        served: list[Any] = []

        @implementer(IAccessValidator)
        class Reads:
            def validate(self, request: Request[Any]) -> None:
                texts = request.texts
                seen.append((texts and texts.get("topic"), request.command.fields().get("topic")))

        def serve(request: Request[Any]) -> Reply:
            served.append((request.texts, request.header.topic, request.command.fields()["topic"]))
            return Reply()

        header = PullMessageRequestHeader("g", "T", 0, 0, 32, 0)
        rows = [RequestHandler(ECHO, serve, PullMessageRequestHeader),
                RequestHandler(ECHO + 1, serve, GetMaxOffsetRequestHeader)]
        client = Conversation(make_server(rows, validators=[Reads()]))
        signed = {"AccessKey": "k", "Signature": "s"}
        for _ in range(2):
            client.says(encode_request(ECHO, 1, header, extra_fields=signed))
        client.says(encode_request(ECHO, 2, header))
        client.says(encode_request(
            ECHO + 1, 3, GetMaxOffsetRequestHeader("T", 0), extra_fields=signed))
        self.assertEqual([reply.code for reply in client.heard()], [ResponseCode.SUCCESS] * 4)
        self.assertEqual(seen, [(None, "T"), ("T", "T"), (None, "T"), (None, "T")])
        self.assertEqual(served, [(None, "T", "T")] * 4)


class RpcHookTests(SynchronousTestCase):
    """``before_request`` and ``after_response`` around each handler."""

    def setUp(self) -> None:
        self.seen: list[tuple[str, int, int]] = []
        self.answer: Reply | BrokerError | None = None
        self.waiting: Deferred[Reply] = Deferred()

    @hookimpl
    def before_request(self, request: Request[Any]) -> Reply | BrokerError | None:
        self.seen.append(("before", request.command.opaque, 0))
        return self.answer

    @hookimpl
    def after_response(self, request: Request[Any], reply: Reply) -> None:
        self.seen.append(("after", request.command.opaque, reply.code))
        reply.remark = "seen"

    def client(self) -> Conversation:
        def echo(request: Request[Any]) -> Reply:
            self.seen.append(("handler", request.command.opaque, 0))
            return Reply()

        rows = [RequestHandler(ECHO, echo), RequestHandler(WAIT, lambda request: self.waiting)]
        return Conversation(make_server(rows, plugins=[("watcher", self)]))

    def test_hooks_run_before_the_handler_and_before_the_reply(self) -> None:
        """They run before the handler and before the reply, which they may change."""
        client = self.client()
        client.says(encode_request(ECHO, 1))
        [reply] = client.heard()
        self.assertEqual(reply.remark, "seen")
        self.assertEqual(self.seen, [("before", 1, 0), ("handler", 1, 0), ("after", 1, 0)])

    def test_late_reply(self) -> None:
        """A late reply passes ``after_response`` when it is ready."""
        client = self.client()
        client.says(encode_request(WAIT, 1))
        self.assertEqual(self.seen, [("before", 1, 0)])
        self.waiting.callback(Reply(ResponseCode.PULL_NOT_FOUND))
        self.assertEqual(self.seen[1:], [("after", 1, ResponseCode.PULL_NOT_FOUND)])

    def test_answers_instead(self) -> None:
        """A reply or an error of ``before_request`` is the answer; the handler does not run."""
        client = self.client()
        self.answer = Reply(ResponseCode.SYSTEM_BUSY)
        client.says(encode_request(WAIT, 1))
        self.answer = RequestRefused(ResponseCode.NO_PERMISSION, "not you")
        client.says(encode_request(WAIT, 2))
        self.assertEqual(client.hears(), [(1, ResponseCode.SYSTEM_BUSY),
                                          (2, ResponseCode.NO_PERMISSION)])

    def test_wrong_answer(self) -> None:
        """An answer that is neither a reply nor an error is logged, and the request is served."""
        client = self.client()
        self.answer = "no"  # type: ignore[assignment]
        events: list[Any] = []
        globalLogPublisher.addObserver(events.append)
        self.addCleanup(globalLogPublisher.removeObserver, events.append)
        client.says(encode_request(ECHO, 1))
        self.assertEqual(client.hears(), [(1, 0)])
        self.assertEqual([(e["plugin"], e["hook"]) for e in events if "hook" in e],
                         [("watcher", "before_request")])
