"""The latency of requests, by code and result."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.remoting.messages import Reply, Request, RequestHandler
from twistmq.broker.testing.conversation import Conversation, make_server
from twistmq.plugins.metrics.rpc_latency import RpcLatency
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import encode_request
from twistmq.protocol.errors import RequestRefused


class RpcLatencyTests(SynchronousTestCase):
    """A server whose responses the test gives."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.waiting: list[Deferred[Reply]] = []
        self.latency = RpcLatency(lambda: server.now_ms())
        server = make_server([
            RequestHandler(RequestCode.SEND_MESSAGE_V2, lambda _: Reply(),
                           handle_batch=lambda run: [Reply() for _ in run]),
            RequestHandler(RequestCode.PULL_MESSAGE, self.hold),
            RequestHandler(RequestCode.HEART_BEAT, self.fail),
            RequestHandler(RequestCode.GET_MAX_OFFSET, self.refuse),
        ], plugins=[("latency", self.latency)], clock=self.clock)
        self.client = Conversation(server)

    def hold(self, request: Request[Any]) -> Deferred[Reply]:
        request.kept_bytes = 0
        self.waiting.append(Deferred())
        return self.waiting[-1]

    def fail(self, request: Request[Any]) -> Reply:
        raise ZeroDivisionError

    def refuse(self, request: Request[Any]) -> Reply:
        raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, "no such topic")

    def rows(self) -> dict[tuple[str, ...], tuple[list[int], float]]:
        """The samples: labels without the protocol, counts by class, sum."""
        family = self.latency.family()
        return {labels[1:]: (value.counts, value.total)  # type: ignore[union-attr]
                for labels, value in family.samples}

    def test_each_result_of_a_request_is_counted(self) -> None:
        """Each request of a batch counts, and failures, refusals, one-way requests,
        unknown codes.
        """
        for code, oneway in ((310, False), (310, False), (310, True), (34, False), (30, False),
                             (40_001, False), (40_002, False)):
            self.client.says(encode_request(code, 1, oneway=oneway))
        self.flushLoggedErrors(ZeroDivisionError)
        self.assertEqual({labels: sum(counts) for labels, (counts, _) in self.rows().items()}, {
            ("send_message_v2", "success", "false", "success"): 2,
            ("send_message_v2", "success", "false", "oneway"): 1,
            ("heart_beat", "system_error", "false", "process_request_failed"): 1,
            ("get_max_offset", "topic_not_exist", "false", "success"): 1,
            ("unknown", "request_code_not_supported", "false", "success"): 2,
        })

    def test_latency_is_measured_from_the_read_in_milliseconds(self) -> None:
        """The time begins with the read; a request that waited for a message is marked."""
        for milliseconds in (0, 2, 150):
            self.client.says(encode_request(RequestCode.PULL_MESSAGE, 1))
            self.clock.advance(milliseconds / 1000)
            self.waiting[-1].callback(Reply())
        [(labels, (counts, total))] = self.rows().items()
        self.assertEqual(labels, ("pull_message", "success", "true", "success"))
        self.assertEqual(counts, [1, 1, 0, 0, 0, 0, 1, 0, 0, 0])
        self.assertEqual(total, 152)
