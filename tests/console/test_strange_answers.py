"""Answers that no broker should send: nonsense in each list, numbers without bounds, markup."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from twisted.trial.unittest import SynchronousTestCase

from tests.client.scripted_server import ScriptedServer, answer
from tests.draw import drawn
from twistmq.console.broker_pages import brokers_page, overview_page
from twistmq.console.dead_letter_pages import dead_letters_page
from twistmq.console.group_pages import group_page, groups_page
from twistmq.console.page import Page
from twistmq.console.page_session import PageSession
from twistmq.console.query import Query
from twistmq.console.renderer import Renderer, Visit, static_files
from twistmq.console.topic_pages import topic_page, topics_page
from twistmq.protocol.bodies import BrokerData, ClusterInfo, QueueData, TopicRouteData
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import BrokerError
from twistmq.tools.admin.session import AdminError

READERS: Final[tuple[Callable[[PageSession, Query], Page], ...]] = (
    overview_page, brokers_page, topics_page, groups_page, dead_letters_page, topic_page,
    group_page)
HUGE: Final = "9" * 400
#: The pages that read an answer, by its first member.
READERS_OF: Final[dict[str, tuple[Callable[[PageSession, Query], Page], ...]]] = {
    "table": (overview_page, brokers_page),
    "topicConfigTable": (overview_page, topics_page, dead_letters_page),
    "subscriptionGroupTable": (groups_page, group_page),
    "consumeStatsList": (overview_page, topics_page, groups_page, topic_page),
    "offsetTable": (dead_letters_page, topic_page, group_page), "connectionSet": (group_page,),
    "statsMinute": (topic_page,), "master": (brokers_page,)}
#: Values in place of every number, text, list and object.
VALUES: Final = ("null", "[]", "{}", '""', "7", "-1", "true", '"x"', "1e400", "-1e400", HUGE, "NaN",
                 "9223372036854775807", "-9223372036854775808", '"<script>alert(1)</script>"',
                 "[null]", '{"x":null}', "[[[]]]")
#: Answers with a gap for one of these values; each one is sent to every request.
BODIES: Final = (
    "%s", '{"table":%s}', '{"table":{"putTps":%s,"brokerRole":%s}}',
    '{"table":{"putTps":"nan inf","getTransferredTps":"1e400","commitLogDiskRatio":"-inf",'
    '"msgPutTotalTodayMorning":"9999999999999999999999","msgPutTotalTodayNow":"-1",'
    '"brokerVersionDesc":%s}}',
    '{"topicConfigTable":%s}', '{"topicConfigTable":{"T":%s}}',
    '{"topicConfigTable":{"T":{"topicName":%s,"readQueueNums":%s,"perm":%s,"attributes":%s}}}',
    '{"topicConfigTable":{"%%DLQ%%g":{"topicName":"x","readQueueNums":%s}}}',
    '{"subscriptionGroupTable":%s}',
    '{"subscriptionGroupTable":{"g":{"groupName":%s,"retryMaxTimes":%s,"consumeEnable":%s}}}',
    '{"consumeStatsList":%s}', '{"consumeStatsList":[{"g":%s}]}',
    '{"consumeStatsList":[{"g":[{"consumeTps":%s,"offsetTable":{}}]}]}',
    '{"consumeStatsList":[{"g":[{"consumeTps":%s,"offsetTable":{{"brokerName":"b","queueId":0,'
    '"topic":"T"}:{"brokerOffset":%s,"consumerOffset":%s,"lastTimestamp":%s,"pullOffset":%s}}}]}]}',
    '{"consumeStatsList":[{"g":[{"consumeTps":1e308,"offsetTable":{{"brokerName":"b","queueId":%s,'
    '"topic":"T"}:{"brokerOffset":-5,"consumerOffset":9223372036854775807,'
    '"lastTimestamp":9223372036854775807,"pullOffset":0}}}]}]}',
    '{"offsetTable":{{"brokerName":%s,"queueId":%s,"topic":"T"}:{"minOffset":%s,"maxOffset":%s,'
    '"lastUpdateTimestamp":%s}},"consumeTps":%s}',
    '{"connectionSet":[{"clientId":%s,"clientAddr":%s,"language":%s,"version":%s}],'
    '"subscriptionTable":{"T":{"subString":%s}},"consumeType":%s,"messageModel":%s}',
    '{"statsMinute":{"sum":%s,"tps":%s},"statsDay":%s}',
    '{"master":%s,"haConnectionInfo":%s,"haClientRuntimeInfo":%s}',
)
#: The same for a name server, with a gap for a value or an address.
NAME_SERVER_BODIES: Final = (
    "%s", '{"brokerAddrTable":%s,"clusterAddrTable":%s}',
    '{"brokerAddrTable":{"b":{"brokerName":%s,"cluster":%s,"brokerAddrs":%s}},'
    '"clusterAddrTable":{"c":["b",%s]}}',
    '{"brokerAddrTable":{"b":{"brokerName":"b","cluster":"c","brokerAddrs":{0:%s}}},'
    '"clusterAddrTable":{"c":["b"]}}')
ADDRESSES: Final = ('"127.0.0.1:99999"', '":1"', '"127.0.0.1:-1"', '"[::1"', '"127.0.0.1:1"', '"x"',
                    '"127.0.0.1:1;127.0.0.1:2"', '"' + "x" * 5000 + ':1"', '"\\u0000:1"')
DEEP: Final = (b"{" * 5000, b"[" * 100_000, b'{"a":' * 20_000, b"\xff\xfe\x00", b"")


class StrangeAnswersTests(SynchronousTestCase):
    """A name server that knows one broker, which answers every request with the same body."""

    def setUp(self) -> None:
        self.body = b""
        self.name_server_body: bytes | None = None
        self.broker = ScriptedServer(lambda request: answer(request, body=self.body))
        self.names = ScriptedServer(self.name_server)
        self.session = PageSession(self.names.address)
        for each in (self.session, self.names, self.broker):
            self.addCleanup(each.close)
        self.renderer = Renderer("", ("default",), static_files(), readonly=False)

    def name_server(self, request: RemotingCommand) -> bytes | None:
        """Answer as a name server with one broker, or as a test says."""
        if self.name_server_body is not None:
            return answer(request, body=self.name_server_body)
        data = BrokerData("c", "<b>", {0: self.broker.address})
        if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return answer(request, body=TopicRouteData(
                [data], [QueueData("<b>", 4, 4, 6)]).encode_standard())
        return answer(request, body=ClusterInfo({"<b>": data}, {"c": {"<b>"}}).encode_standard())

    def check(
        self, body: bytes,
        readers: tuple[Callable[[PageSession, Query], Page], ...] = READERS,
    ) -> None:
        """Every page is shown in both forms, and nothing of a server is markup in it."""
        if self.name_server_body is None:
            self.body = body
        for read in readers:
            session = self.session.for_page(10.0)
            try:
                page = read(session, Query({"topic": "T", "group": "g"}))
            except (BrokerError, AdminError):
                continue  # The visitor sees its text.
            page.unanswered += session.unanswered
            html = self.renderer.as_html(page, Visit((), {}, csrf="x")).decode()
            self.assertNotIn("<script>alert", html, msg=(read.__name__, body))
            self.assertNotIn("<b>", html.replace("<b data-line", ""), msg=(read.__name__, body))
            json.loads(page.as_json("default"))

    def test_every_value_in_every_place(self) -> None:
        """A page names the broker or shows what can be shown; it never fails."""
        for body in BODIES:
            readers = READERS_OF.get(body[2:].partition('"')[0], READERS)
            for value in drawn(VALUES):
                self.check(body.replace("%s", value).replace("%%", "%").encode(), readers)

    def test_a_name_server_that_answers_nonsense(self) -> None:
        """No broker and no address has to be as a name server says."""
        for body in NAME_SERVER_BODIES:
            for value in drawn((*VALUES, *ADDRESSES)):
                self.name_server_body = body.replace("%s", value).encode()
                self.check(self.name_server_body)

    def test_bodies_that_are_no_json(self) -> None:
        """Very deep ones, bytes, and nothing at all."""
        for body in DEEP:
            self.check(body)
