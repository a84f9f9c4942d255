"""The deadline of a page, and the servers that do not contribute to it."""

from __future__ import annotations

import time
from collections.abc import Callable
from unittest.mock import patch

from twisted.trial.unittest import SynchronousTestCase

from tests.client.scripted_server import Script, ScriptedServer, answer
from twistmq.client.blocking.client import Client
from twistmq.console.broker_pages import brokers_page, overview_page
from twistmq.console.group_pages import groups_page
from twistmq.console.page import Page
from twistmq.console.page_session import PageSession, is_denial
from twistmq.console.query import Query
from twistmq.console.topic_pages import topics_page
from twistmq.protocol.bodies import (
    BrokerData,
    ClusterInfo,
    ConsumeStats,
    ConsumeStatsList,
    HARuntimeInfo,
    KVTable,
    MessageQueue,
    OffsetWrapper,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import BrokerError, RemotingTimeout, RequestRefused
from twistmq.tools.admin.topics import delete_topic

#: The deadline in these tests, seconds; the healthy broker answers in a few milliseconds.
DEADLINE_S = 1.0
BODIES = {
    RequestCode.GET_ALL_TOPIC_CONFIG:
        TopicConfigSerializeWrapper({"T": TopicConfig("T", 4, 4)}).encode(),
    RequestCode.GET_BROKER_CONSUME_STATS: ConsumeStatsList([
        {"g": [ConsumeStats({MessageQueue("T", "good"): OffsetWrapper(5, 2, 2, 0)})]}]).encode(),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG:
        SubscriptionGroupWrapper({"g": SubscriptionGroupConfig("g")}).encode(),
    RequestCode.GET_BROKER_RUNTIME_INFO: KVTable({"putTps": "2.5 0 0"}).encode(),
    RequestCode.GET_BROKER_HA_STATUS: HARuntimeInfo(master=True).encode(),
}
PAGES: tuple[tuple[Callable[[PageSession, Query], Page], str, int], ...] = (
    (topics_page, "topics", 2), (groups_page, "groups", 3), (overview_page, "brokers", 4),
    (brokers_page, "brokers", 2))


def healthy(request: RemotingCommand) -> bytes | None:
    """Answer as a broker with one topic and one group."""
    return answer(request, body=BODIES[RequestCode(request.code)])


class TwoBrokersTests(SynchronousTestCase):
    """A name server, a healthy broker, and another one as each test says."""

    def page(
        self, other: Script, read: Callable[[PageSession, Query], Page]
    ) -> tuple[Page, PageSession]:
        """Make a page."""
        self.brokers = {name: ScriptedServer(script)
                        for name, script in (("good", healthy), ("other", other))}
        info = ClusterInfo(
            {name: BrokerData("c", name, {0: each.address}) for name, each in self.brokers.items()},
            {"c": set(self.brokers)}).encode_standard()
        self.names = ScriptedServer(lambda request: answer(request, body=info))
        session = PageSession(self.names.address)
        for each in (session, self.names, *self.brokers.values()):
            self.addCleanup(each.close)
        page_session = session.for_page(DEADLINE_S)
        return read(page_session, Query({})), page_session

    def test_a_hung_broker_is_named_and_the_others_are_shown(self) -> None:
        """The page ends at its deadline, with all rows of the other broker.

        The list of groups asks for times last, which is too late then, and has a note about it.
        """
        for read, table, _ in PAGES:
            begin = time.monotonic()
            page, session = self.page(lambda request: None, read)
            self.assertLess(time.monotonic() - begin, DEADLINE_S + 1.0)
            names = [row[0] for row in page.tables[table].rows]
            self.assertIn({"topics": "T", "groups": "g", "brokers": "good"}[table], names)
            address = self.brokers["other"].address
            self.assertEqual([(each.server, each.reason) for each in session.unanswered],
                             [(f"other ({address})", "no answer in time")], msg=table)
            self.assertEqual(page.notes, ["The times of the last consumed messages are missing, "
                                          "because a broker did not answer in time."]
                             if read is groups_page else [])

    def test_a_broker_that_answers_nonsense_is_named(self) -> None:
        """The reason is one short line, whatever the broker wrote."""
        page, session = self.page(
            lambda request: answer(request, body=b"\x1b[31m" + b"nonsense\n" * 1000), topics_page)
        self.assertEqual([row[0] for row in page.tables["topics"].rows], ["T"])
        self.assertTrue(session.unanswered)
        for each in session.unanswered:
            self.assertIn("other", each.server)
            self.assertLessEqual(len(each.reason), 300)
            self.assertTrue(each.reason.isprintable(), msg=each.reason)

    def test_an_old_broker_is_named_as_one(self) -> None:
        """A request that a broker does not know is a limit of the broker and not a fault."""
        _, session = self.page(lambda request: answer(
            request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark="no"), topics_page)
        [only] = session.unanswered
        self.assertIn("does not support", only.reason)

    def test_pages_need_few_requests(self) -> None:
        """Each list has a fixed number of requests for a broker, however many rows it has."""
        for read, _, count in PAGES:
            self.page(healthy, read)
            for broker in self.brokers.values():
                self.assertLessEqual(len(broker.codes()), count, msg=read.__name__)

    def test_a_denied_change_does_not_reach_the_name_servers(self) -> None:
        """All brokers are tried, but the name servers, which check no account, keep the topic."""
        def deny(request: RemotingCommand) -> bytes:
            return answer(request, ResponseCode.NO_PERMISSION, remark="not allowed")

        for other in (deny, answer):
            _, session = self.page(healthy, brokers_page)
            self.brokers["good"].script, self.brokers["other"].script = deny, other
            for each in (*self.brokers.values(), self.names):
                each.requests.clear()
            change = session.for_page(DEADLINE_S, is_change=True)
            error = self.assertRaises(
                RequestRefused, list, delete_topic(change, topic="T", cluster="c"))
            self.assertIn("not allowed", str(error))
            for broker in self.brokers.values():
                self.assertEqual(broker.codes(), [RequestCode.DELETE_TOPIC_IN_BROKER])
            self.assertNotIn(RequestCode.DELETE_TOPIC_IN_NAMESRV, self.names.codes())

    def test_denials(self) -> None:
        """ACL 2.0 has a code for them, and ACL 1.0 the name of an exception."""
        acl_1_0 = "org.apache.rocketmq.acl.common.AclException: No accessKey is configured"
        cases: tuple[tuple[BrokerError, bool], ...] = (
                (RequestRefused(ResponseCode.NO_PERMISSION, "no"), True),
                (RequestRefused(ResponseCode.SYSTEM_ERROR, acl_1_0), True),
                (RequestRefused(ResponseCode.SYSTEM_ERROR, "the disk is full"), False),
                (RequestRefused(ResponseCode.TOPIC_NOT_EXIST, acl_1_0), False),
                (RemotingTimeout(acl_1_0), False))
        for error, expected in cases:
            self.assertEqual(is_denial(error), expected, msg=repr(error))

    def test_a_slow_broker_has_the_whole_time_of_the_next_page(self) -> None:
        """A broker that needs a second for its groups does not stay unanswered from then on."""
        session = PageSession("127.0.0.1:1")
        self.addCleanup(session.close)
        with patch.object(Client, "ask", side_effect=RemotingTimeout("no answer")) as ask:
            for _ in range(2):
                self.assertRaises(RemotingTimeout, session.for_page(DEADLINE_S).ask, "127.0.0.1:2",
                                  RequestCode.GET_BROKER_RUNTIME_INFO)
        self.assertEqual(ask.call_count, 2)
        self.assertGreater(ask.call_args.kwargs["timeout_s"], 0.8 * DEADLINE_S)

    def test_nothing_is_asked_after_the_deadline(self) -> None:
        """A page that is late asks no further server."""
        _, session = self.page(healthy, brokers_page)
        before = len(self.brokers["good"].codes())
        late = session.for_page(0)
        self.assertRaises(RemotingTimeout, late.ask, self.brokers["good"].address,
                          RequestCode.GET_BROKER_RUNTIME_INFO)
        self.assertEqual(len(self.brokers["good"].codes()), before)
