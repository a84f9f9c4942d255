"""Requests to other brokers."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from tests.plugins.static_topic.case import TOPIC, A, B, ClusterCase, item
from twistmq.broker.remoting.forwarded_headers import forwarded
from twistmq.plugins.static_topic.remote import OtherBrokers
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import BrokerError, RequestRefused
from twistmq.protocol.header import ext_fields_of
from twistmq.protocol.headers.offset import GetMaxOffsetRequestHeader, GetMaxOffsetResponseHeader


class ForwardedTests(ClusterCase):
    """The fields of a forwarded request."""

    def test_its_own_and_how_it_is_forwarded(self) -> None:
        """A forwarded request has its own fields and the mark of forwarding."""
        self.assertEqual(ext_fields_of(forwarded(GetMaxOffsetRequestHeader(TOPIC, 3), B)), {
            "topic": TOPIC, "queueId": "3", "committed": "true", "lo": "false", "bname": B})
        self.assertEqual(ext_fields_of(forwarded(
            GetMaxOffsetRequestHeader(TOPIC, 3), B, logical=True))["lo"], "true")

    def test_the_namespace_is_forwarded(self) -> None:
        """The fields of the namespace are forwarded."""
        self.updated(A, [item(0, B, 0, 0), item(1, A, 1, -1)])
        self.ask(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(TOPIC, 0), ns="n",
                 nsd="true")
        [(_, _, fields)] = self.asked
        self.assertEqual((fields["ns"], fields["nsd"], fields["lo"]), ("n", "true", False))


class AskTests(ClusterCase):
    """The address of a request, and its failures."""

    def setUp(self) -> None:
        super().setUp()
        self.others = OtherBrokers(self.boxes[A].kernel)

    def asking(self, name: str = B) -> Deferred[RemotingCommand]:
        return Deferred.fromCoroutine(self.others.ask(
            name, RequestCode.GET_MAX_OFFSET,
            forwarded(GetMaxOffsetRequestHeader(TOPIC, 0), name)))

    def test_name_servers_are_asked_once(self) -> None:
        """The name servers are asked once."""
        for _ in range(2):
            reply = self.successResultOf(self.asking())
            self.assertEqual(reply.header(GetMaxOffsetResponseHeader).offset, 0)
        self.assertEqual(self.found, [B])

    def test_a_broker_that_no_name_server_knows(self) -> None:
        """No name server knows the broker, or no name server exists."""
        error = self.failureResultOf(self.asking("broker-z"), BrokerError).value
        self.assertEqual(str(error), "cannot find addr for broker broker-z")
        self.boxes[A].host.has_name_servers = False
        self.failureResultOf(self.asking(), BrokerError)

    def test_an_unexpected_code_is_an_error_that_names_it(self) -> None:
        """An unexpected code is an error whose text has the code."""
        asked = Deferred.fromCoroutine(self.others.ask(
            B, 30_000, forwarded(GetMaxOffsetRequestHeader(TOPIC, 0), B)))
        error = self.failureResultOf(asked, RequestRefused).value
        self.assertIn(f"broker {B} at {B} answered 3:", str(error))
