"""The requests of the list of groups: which times it asks for, and from which brokers."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.client.scripted_server import ScriptedServer, answer
from twistmq.console.group_pages import groups_page
from twistmq.console.page import Cell, Page
from twistmq.console.page_session import PageSession
from twistmq.console.query import Query
from twistmq.protocol.bodies import (
    BrokerData,
    ClusterInfo,
    ConsumeStats,
    ConsumeStatsList,
    GroupList,
    MessageQueue,
    OffsetWrapper,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.headers.admin import GetConsumeStatsInBrokerHeader

#: The lags of the groups at each broker; the group without settings consumed nothing.
LAGS = {"slow": 7, "late": 3, "quick": 0}
FIRST_MS = 1_700_000_000_000
#: The deadline of a page, seconds.
PAGE_S = 30.0


class ScriptedBroker:
    """A broker of one topic.

    :param name: its name; the times of the broker "second" are one second newer.
    :param is_apache: whether it reports all groups and their times in any case.
    :ivar asked: for each request of the progress, whether it was about times, and the names of the
        groups; None: all groups.
    """

    def __init__(self, name: str, *, is_apache: bool = False) -> None:
        self.name = name
        self.is_apache = is_apache
        self.asked: list[tuple[bool, set[str] | None]] = []
        self.server = ScriptedServer(self._answer)

    def _answer(self, request: RemotingCommand) -> bytes:
        if request.code == RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG:
            return answer(request, body=SubscriptionGroupWrapper(
                {name: SubscriptionGroupConfig(name) for name in (*LAGS, "new")}).encode())
        assert request.code == RequestCode.GET_BROKER_CONSUME_STATS, request.code
        with_times = request.header(GetConsumeStatsInBrokerHeader).with_times is not False
        groups = GroupList.decode(request.body).group_list if request.body else None
        self.asked.append((with_times, groups))
        time_ms = FIRST_MS + 1_000 * (self.name == "second")
        if not with_times and not self.is_apache:
            time_ms = 0
        return answer(request, body=ConsumeStatsList([
            {name: [ConsumeStats({MessageQueue("T", self.name): OffsetWrapper(
                10, 10 - lag, 10, time_ms + lag if time_ms else 0)})]}
            for name, lag in LAGS.items()
            if groups is None or self.is_apache or name in groups]).encode())


class TimeTests(SynchronousTestCase):
    """The times of the last consumed messages, for which brokers read their stores."""

    def page(self, *brokers: ScriptedBroker, **values: str) -> Page:
        """Make the list."""
        info = ClusterInfo(
            {each.name: BrokerData("c", each.name, {0: each.server.address}) for each in brokers},
            {"c": {each.name for each in brokers}}).encode_standard()
        names = ScriptedServer(lambda request: answer(request, body=info))
        session = PageSession(names.address)
        for each in (session, names, *(broker.server for broker in brokers)):
            self.addCleanup(each.close)
        page_session = session.for_page(PAGE_S)
        page = groups_page(page_session, Query(values))
        self.assertEqual(page_session.unanswered, [])
        return page

    @staticmethod
    def times(page: Page) -> dict[Cell, Cell]:
        """Return the times of the rows by group."""
        return {row["group"]: row["last_consumed"] for row in page.tables["groups"].row_objects()}

    def test_only_the_groups_on_the_page_have_their_times_read(self) -> None:
        """The list is sorted without times, which are then added to its rows."""
        brokers = ScriptedBroker("first"), ScriptedBroker("second")
        page = self.page(*brokers, size="2")
        self.assertEqual(self.times(page), {"slow": FIRST_MS + 1_007, "late": FIRST_MS + 1_003})
        self.assertEqual(page.tables["groups"].rows[0][1], 2 * LAGS["slow"])
        for each in brokers:
            self.assertEqual(each.asked, [(False, None), (True, {"slow", "late"})])

    def test_brokers_of_apache_report_them_at_once(self) -> None:
        """A broker that reports the times at once is asked once, and any other one twice."""
        apache, other = ScriptedBroker("first", is_apache=True), ScriptedBroker("second")
        page = self.page(apache, other, q="late")
        self.assertEqual(self.times(page), {"late": FIRST_MS + 1_003})
        self.assertEqual(apache.asked, [(False, None)])
        self.assertEqual(other.asked, [(False, None), (True, {"late"})])
        apache, other = ScriptedBroker("second", is_apache=True), ScriptedBroker("first")
        self.assertEqual(self.times(self.page(other, apache, q="late")),
                         {"late": FIRST_MS + 1_003})
        self.assertEqual((len(apache.asked), len(other.asked)), (1, 2))

    def test_all_times_are_read_where_the_page_needs_them(self) -> None:
        """An order by time, and a page of most groups, need one request for the progress."""
        for values in ({"sort": "last_consumed"}, {"sort": "-last_consumed"}, {"size": "500"}):
            broker = ScriptedBroker("first")
            page = self.page(broker, **values)
            self.assertEqual(broker.asked, [(True, None)], msg=str(values))
            self.assertEqual(self.times(page)["late"], FIRST_MS + 3)
        self.assertEqual([*self.times(self.page(ScriptedBroker("first"), sort="-last_consumed"))],
                         ["slow", "late", "quick", "new"])

    def test_groups_without_progress_are_not_asked_about(self) -> None:
        """A page of groups that consumed nothing has no times."""
        broker = ScriptedBroker("first")
        self.assertEqual(self.times(self.page(broker, q="new")), {"new": None})
        self.assertEqual(broker.asked, [(False, None)])
