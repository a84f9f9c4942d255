"""Long routes and lists: they are written in parts with the same bytes, or refused."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.namesrv import route_bodies, route_views
from twistmq.broker.namesrv.route_bodies import route_body, topic_list_body
from twistmq.broker.namesrv.route_views import LONG_COUNT
from twistmq.broker.remoting.messages import Handled, Reply
from twistmq.broker.testing.name_server import (
    PortlessNameServer,
    StillChannel,
    make_registration,
)
from twistmq.protocol.bodies import (
    ClusterInfo,
    QueueData,
    TopicList,
    TopicQueueMappingInfo,
    TopicRouteData,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import BrokerError, ReplyTooLong
from twistmq.protocol.flags import UNIT_SUB
from twistmq.protocol.run_to_completion import run_to_completion

BROKERS = 700
#: More turns than anything here takes.
STEPS_MAX = 2000
#: Texts in which a place to write rows into could be found by mistake.
TRICKS = ('"queueDatas":[]', '\\"brokerDatas":[]', 'x","filterServerTable":{}', "é\u2028\x00")


class LongCase(SynchronousTestCase):
    """A name server with many brokers, in which each reading of the clock takes a millisecond."""

    def setUp(self) -> None:
        self.looks = 0
        self.server = PortlessNameServer(clock=self.look)
        self.tables = self.server.routes.tables
        self.channels = []
        for number in range(BROKERS):
            channel = StillChannel()
            channel.remote_address = f"10.0.{number % 50}.1:{number}"
            self.channels.append(channel)
            odd = TRICKS[number] if number < len(TRICKS) else ""
            self.server.routes.register(make_registration(
                f"h{number}:1", {"T": 6, f"U{number}{odd}": 6}, name=f"b{number}{odd}",
                cluster=f"C{number % 2}", filter_servers=["f:1", odd], zone_name=odd,
                channel=channel), 0)

    def look(self) -> int:
        self.looks += 1
        return self.looks

    def ask(self, code: int, *, version: int = 479, **fields: Any) -> Handled:
        return self.server.handle(code, fields, version=version)

    def reply(self, answer: Handled) -> tuple[Reply, int]:
        """Return the response and the number of turns that it took."""
        if isinstance(answer, Reply):
            return answer, 0
        assert isinstance(answer, Deferred)
        found: list[Reply] = []
        failed: list[BrokerError] = []
        answer.addCallbacks(found.append, lambda failure: failed.append(failure.value))
        for turn in range(STEPS_MAX):
            if failed:
                return Reply(failed[0].response_code, remark=str(failed[0])), turn
            if found:
                return found[0], turn
            self.server.background.step(self.looks)
        raise self.failureException("no answer")


class SameBytesTests(LongCase):
    """The parts have the same bytes as one call."""

    def test_a_long_route_takes_several_slices_and_short_ones_pass_it(self) -> None:
        """In both forms it takes several turns, and a short one does not wait for it."""
        route = self.server.views.route("T")
        assert route is not None
        for version, body in ((479, route.encode_standard()), (317, route.encode())):
            answer = self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T", version=version)
            short = self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="U9")
            self.assertIsInstance(short, Reply)
            reply, turns = self.reply(answer)
            self.assertEqual(reply.body, body)
            self.assertGreater(turns, 5)

    def test_route_with_all_there_is(self) -> None:
        """The configuration of the order and the mappings are unchanged, whatever they contain."""
        whole = self.server.views.route("T")
        assert whole is not None
        for trick in TRICKS:
            whole.order_topic_conf = trick
            whole.topic_queue_mapping_by_broker = {
                trick: TopicQueueMappingInfo(trick, bname="queueDatas"),
                "queueDatas": TopicQueueMappingInfo("brokerDatas")}
            self.assertEqual(run_to_completion(route_body(whole, standard=False)), whole.encode())
            self.assertEqual(run_to_completion(route_body(whole, standard=True)),
                             whole.encode_standard())
        empty = TopicRouteData()
        self.assertEqual(run_to_completion(route_body(empty, standard=False)), empty.encode())

    def test_long_mappings_are_written_in_parts(self) -> None:
        """The mappings of a few brokers may be long."""
        for name in ("b5", "b6"):
            self.tables.put_mapping("T", name, TopicQueueMappingInfo(
                TRICKS[0], curr_id_map={each: each for each in range(3000)}))
        whole = self.server.views.route("T")
        assert whole is not None
        self.assertEqual(run_to_completion(route_body(whole, standard=False)), whole.encode())
        self.assertEqual(run_to_completion(route_body(whole, standard=True)),
                         whole.encode_standard())
        self.tables.put_mapping("U7", "b7", TopicQueueMappingInfo(
            "U7", curr_id_map={each: each for each in range(16_000)}))
        route = self.server.views.route("U7")
        assert route is not None
        reply, turns = self.reply(
            self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="U7", version=317))
        self.assertEqual(reply.body, route.encode())
        self.assertGreater(turns, 2)

    def test_many_addresses(self) -> None:
        """A broker name may have many, each with filter servers."""
        for number in range(1, 100):
            self.server.routes.register(make_registration(
                f"s{number}:1", {}, name="b8", cluster="C0", broker_id=number,
                filter_servers=["f:1"], channel=self.channels[number]), 0)
        self.assertIsInstance(self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="U9"), Reply)
        self.assertFalse(self.server.views.is_long("U9"))
        for number in range(1, 100):
            for name in ("b10", "b11", "b12"):
                self.server.routes.register(make_registration(
                    f"{name}s{number}:1", {}, name=name, cluster="C0", broker_id=number,
                    filter_servers=["f:1"], channel=self.channels[number]), 0)
                self.server.routes.register_topic("U8", [QueueData(name, 1, 1, 6)])
        self.assertTrue(self.server.views.is_long("U8"))

    def test_cluster_info(self) -> None:
        """Every name and every cluster is included."""
        reply, turns = self.reply(self.ask(RequestCode.GET_BROKER_CLUSTER_INFO))
        self.assertGreater(turns, 2)
        info = ClusterInfo.decode(reply.body)
        self.assertEqual(info.broker_addr_table, self.tables.brokers)
        self.assertEqual(info.cluster_addr_table, self.tables.clusters)
        self.assertEqual(len(reply.body), len(self.server.views.cluster_info().encode()))

    def test_each_topic_is_listed_once(self) -> None:
        """Each topic is listed once."""
        for queue in self.tables.topics["T"].values():
            queue.topic_sys_flag = UNIT_SUB
        cluster = {topic for name in self.tables.clusters["C0"]
                   for topic in self.tables.queues_of(name)}
        names = {*self.tables.clusters, *self.tables.brokers}
        for code, asked, topics in (
            (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, "", set(self.tables.topics)),
            (RequestCode.GET_TOPICS_BY_CLUSTER, "C0", cluster),
            (RequestCode.GET_TOPICS_BY_CLUSTER, "no", set()),
            (RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, "", names),
            (RequestCode.GET_UNIT_TOPIC_LIST, "", set()),
            (RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, "", {"T"}),
            (RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, "", {"T"}),
        ):
            reply, _ = self.reply(self.ask(code, cluster=asked))
            found = TopicList.decode(reply.body)
            self.assertEqual(found.topic_list, topics, msg=str(code))
            self.assertEqual(len(reply.body), len(TopicList(topics, found.broker_addr).encode()))


class ChangeTests(LongCase):
    """Brokers that leave while an answer about them is made."""

    def test_they_leave(self) -> None:
        """A broker that has left before its part is written is missing, and none occurs twice."""
        self.patch(route_views, "PART_COUNT", 32)
        answers = [self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T"),
                   self.ask(RequestCode.GET_BROKER_CLUSTER_INFO)]
        for number in range(100, 600):
            self.server.connection_lost(self.channels[number])
        route = TopicRouteData.decode(self.reply(answers[0])[0].body)
        self.assertEqual(len(route.broker_datas), len(route.queue_datas))
        self.assertLess(len(route.broker_datas), BROKERS)
        self.assertGreaterEqual(len(route.broker_datas), BROKERS - 500)
        self.assertEqual(self.reply(answers[1])[0].code, ResponseCode.SUCCESS)
        route = TopicRouteData.decode(
            self.reply(self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T"))[0].body)
        self.assertEqual(len(route.broker_datas), BROKERS - 500)


class TooLongTests(LongCase):
    """Responses that do not fit into a frame."""

    def test_refused_while_it_is_made(self) -> None:
        """The refusal has the reason, and the rest is not written."""
        for code in (RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO):
            before = self.looks
            self.assertEqual(self.reply(self.ask(code, topic="T"))[0].code, ResponseCode.SUCCESS)
            whole = self.looks - before
            self.patch(route_bodies, "BODY_SIZE_MAX", 9_000)
            before = self.looks
            with self.assertRaises(ReplyTooLong) as caught:
                self.ask(code, topic="T")
            self.assertIn("over 9000 bytes", str(caught.exception))
            self.assertLess(self.looks - before, whole // 2)
            self.patch(route_bodies, "BODY_SIZE_MAX", 10**9)

    def test_refused_before_it_is_made(self) -> None:
        """The lengths of all topic names are known."""
        self.patch(route_bodies, "BODY_SIZE_MAX", 2_000)
        self.patch(route_views.RouteViews, "_chosen", self.fail)
        with self.assertRaises(ReplyTooLong):
            self.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        with self.assertRaises(ReplyTooLong):
            next(topic_list_body(["t"] * 700))

    def test_as_long_as_a_frame(self) -> None:
        """A list that just fits is sent."""
        names = [f"{number}" for number in range(LONG_COUNT + 1)]
        body = run_to_completion(topic_list_body(names))
        self.patch(route_bodies, "BODY_SIZE_MAX", len(body))
        self.assertEqual(run_to_completion(topic_list_body(names)), body)


class BusyTests(LongCase):
    """Many clients ask for long lists at the same time."""

    def test_further_long_lists_are_refused_and_short_ones_served(self) -> None:
        """They are told to ask later; short routes and lists are served."""
        answers = [self.ask(RequestCode.GET_BROKER_CLUSTER_INFO) for _ in range(4)]
        with self.assertRaises(BrokerError) as caught:
            self.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
        self.assertEqual(caught.exception.response_code, ResponseCode.SYSTEM_BUSY)
        self.assertIsInstance(self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="U9"), Reply)
        route, _ = self.reply(self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T"))
        self.assertEqual(route.code, ResponseCode.SUCCESS)
        self.assertEqual({self.reply(each)[0].code for each in answers}, {ResponseCode.SUCCESS})
