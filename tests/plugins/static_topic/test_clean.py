"""The removal of old parts of static topics."""

from __future__ import annotations

from datetime import datetime

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests.plugins.static_topic.case import TOPIC, A, B, ClusterCase, item
from twistmq.plugins.static_topic import plugin
from twistmq.plugins.static_topic.clean import route_leaders
from twistmq.protocol.bodies import TopicQueueMappingInfo, TopicRouteData
from twistmq.protocol.codes import RequestCode

OLD, NEW = item(0, B, 2, 0), item(1, A, 1, 10_000)


class CleanCase(ClusterCase):
    """Tests that run the periodic task."""

    def step(self, name: str = A, hour: int = 4) -> Deferred[None] | None:
        box = self.boxes[name]
        [task] = box.plugin(plugin.Plugin).clean.tasks()
        day = datetime.fromtimestamp(box.now_ms / 1000)
        return task.run(int(day.replace(hour=hour, minute=30).timestamp() * 1000))

    def clean(self, name: str = A) -> None:
        waiting = self.step(name)
        assert waiting is not None
        self.successResultOf(waiting)


class EmptyPartTests(CleanCase):
    """Parts without messages."""

    def setUp(self) -> None:
        super().setUp()
        self.updated(B, [OLD])
        self.updated(A, [OLD, NEW])

    def parts(self) -> list[str]:
        return [part.bname for part in self.mappings().table[TOPIC].hosted_queues[0]]

    def test_the_broker_that_has_it_says_that_it_is_empty(self) -> None:
        """The broker of the part marks it as empty, and the mapping is saved."""
        self.clean()
        self.assertEqual(self.parts(), [A])
        self.assertEqual([code for _, code, _ in self.asked], [RequestCode.GET_TOPIC_STATS_INFO])
        self.assertNotIn(b'"broker-b"', self.boxes[A].disk.read_file(
            "/store/config/topicQueueMapping.json"))
        self.assertEqual(self.send(b"x"), (0, 10_000))

    def test_not_empty(self) -> None:
        """A part with messages remains, and so does one whose broker does not answer."""
        self.send(b"x", name=B)
        self.clean()
        self.assertEqual(self.parts(), [B, A])
        self.silent = {B}
        self.clean()
        self.assertEqual(self.parts(), [B, A])

    def test_other_hours(self) -> None:
        """At other hours no broker is asked."""
        self.assertIsNone(self.step(hour=5))
        self.assertEqual(self.asked, [])

    def test_next_is_not_decided(self) -> None:
        """The only part with an offset remains."""
        self.updated(A, [OLD, item(2, A, 3, -1)], epoch=2)
        self.clean()
        self.assertEqual(self.parts(), [B, A])


class LedOnTests(CleanCase):
    """Queues that this broker handed to one which handed them on."""

    route_broker = "broker-c"

    async def find_route(self, topic: str) -> TopicRouteData:
        route = await super().find_route(topic)
        route.topic_queue_mapping_by_broker = {self.route_broker: TopicQueueMappingInfo(
            topic=TOPIC, total_queues=4, bname=self.route_broker, epoch=3, curr_id_map={0: 0})}
        return route

    def setUp(self) -> None:
        super().setUp()
        self.boxes["broker-c"] = self.start("broker-c")
        first, second, third = item(0, A, 0, 0), item(1, B, 0, 100), item(2, "broker-c", 0, 200)
        self.updated(A, [first, second], epoch=3)
        self.updated("broker-c", [first, second, third], epoch=3)

    def test_went_on(self) -> None:
        """The part is removed here, because no consumer needs it any more."""
        self.clean()
        self.assertEqual(self.mappings().table[TOPIC].hosted_queues, {})
        [(address, code, fields)] = self.asked
        self.assertEqual((address, code, fields["lo"]),
                         ("broker-c", RequestCode.GET_TOPIC_CONFIG, True))

    def test_still_there(self) -> None:
        """The part remains on the next leader, or the leader has another epoch."""
        self.updated("broker-c", [item(2, "broker-c", 0, 200)], epoch=4)
        self.clean()
        self.assertEqual(set(self.mappings().table[TOPIC].hosted_queues), {0})
        self.route_broker = B
        self.asked.clear()
        self.clean()
        self.assertEqual(set(self.mappings().table[TOPIC].hosted_queues), {0})
        self.assertEqual(self.asked, [])


class RouteTests(SynchronousTestCase):
    """The leaders of queues, as a route shows them."""

    def test_newest_counts(self) -> None:
        """The newest epoch counts, in the requested scope."""
        def info(name: str, epoch: int, *queues: int, scope: str = "__global__"
                 ) -> TopicQueueMappingInfo:
            return TopicQueueMappingInfo(bname=name, epoch=epoch, scope=scope,
                                         curr_id_map=dict.fromkeys(queues, 0))

        route = TopicRouteData(topic_queue_mapping_by_broker={
            "a": info("a", 2, 0, 1), "b": info("b", 1, 1, 2), "c": info("c", 9, 0, scope="x")})
        self.assertEqual(route_leaders(route, "__global__"), {0: "a", 1: "a", 2: "b"})
        self.assertEqual(route_leaders(TopicRouteData(), "__global__"), {})
