"""The data that is read from the tables: routes, acting masters, zones and lists."""

from __future__ import annotations

from collections.abc import Generator

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.namesrv.route_info import RouteInfoManager
from twistmq.broker.namesrv.route_tables import RouteTables
from twistmq.broker.namesrv.route_views import (
    RouteViews,
    filter_by_zone,
)
from twistmq.broker.testing.name_server import make_registration
from twistmq.protocol.bodies import TopicQueueMappingInfo, TopicRouteData
from twistmq.protocol.flags import UNIT, UNIT_SUB
from twistmq.protocol.run_to_completion import run_to_completion

MASTER, SLAVE, OTHER = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"


class RouteViewsCase(SynchronousTestCase):
    """Tables with two brokers: a in cluster C and b in cluster D."""

    def setUp(self) -> None:
        self.on: set[str] = set()
        self.tables = RouteTables()
        self.routes = RouteInfoManager(self.tables, self.on.__contains__)
        self.views = RouteViews(self.tables, self.on.__contains__)
        self.routes.register(make_registration(filter_servers=["f:1"], zone_name="z1"), 0)
        self.routes.register(make_registration(
            OTHER, {"T": 4, "V": 6}, name="b", cluster="D", zone_name="z2"), 0)

    def route(self, topic: str) -> TopicRouteData:
        """Return the route of a topic that has one."""
        route = self.views.route(topic)
        assert route is not None
        return route


class RouteTests(RouteViewsCase):
    """The route of a topic."""

    def test_a_route_has_queues_brokers_and_filter_servers(self) -> None:
        """The route has every broker with the topic, and no other."""
        route = self.route("T")
        self.assertEqual([(each.broker_name, each.perm) for each in route.queue_datas],
                         [("a", 6), ("b", 4)])
        self.assertEqual([(each.cluster, each.broker_addrs) for each in route.broker_datas],
                         [("C", {0: MASTER}), ("D", {0: OTHER})])
        self.assertEqual(route.filter_server_table, {MASTER: ["f:1"]})
        self.assertIsNone(route.topic_queue_mapping_by_broker)
        self.assertEqual([each.broker_name for each in self.route("V").broker_datas], ["b"])

    def test_filter_servers_of_each_address(self) -> None:
        """They are listed for a master and its slave; those of a broker that left are removed."""
        self.routes.register(make_registration(
            SLAVE, broker_id=1, filter_servers=["f:2", "f:3"]), 0)
        self.assertEqual(self.route("T").filter_server_table,
                         {MASTER: ["f:1"], SLAVE: ["f:2", "f:3"]})
        self.routes.unregister("C", MASTER, "a")
        self.assertEqual(self.route("T").filter_server_table, {SLAVE: ["f:2", "f:3"]})

    def test_no_queue_is_no_route(self) -> None:
        """A topic without queues is not found."""
        self.assertIsNone(self.views.route("none"))

    def test_a_static_topics_mapping_is_in_its_route(self) -> None:
        """The mapping is listed by broker name."""
        info = TopicQueueMappingInfo("T", bname="a")
        self.tables.mappings["T"] = {"a": info}
        self.assertEqual(self.route("T").topic_queue_mapping_by_broker, {"a": info})


class ActingMasterTests(RouteViewsCase):
    """A slave acts for a master that is missing."""

    def setUp(self) -> None:
        super().setUp()
        self.on.add("supportActingMaster")
        topics = {"T": 6, "rmq_sys_SYNC_BROKER_MEMBER_g": 6}
        for address, broker_id in [("m:1", 0), ("s:1", 1), ("s:2", 2)]:
            self.routes.register(make_registration(
                address, topics, name="g", broker_id=broker_id, acting_master=True), 0)

    def addresses(self, topic: str = "T") -> dict[int, str]:
        """Return the addresses of group g in a topic's route."""
        group = next(each for each in self.route(topic).broker_datas if each.broker_name == "g")
        return group.broker_addrs

    def test_with_its_master_a_group_is_as_it_is(self) -> None:
        """No slave acts while the master is registered."""
        self.assertEqual(self.addresses(), {0: "m:1", 1: "s:1", 2: "s:2"})

    def test_the_lowest_slave_gets_the_masters_id(self) -> None:
        """This is so only in the route; the tables keep the real ids."""
        self.routes.unregister("C", "m:1", "g")
        self.assertEqual(self.addresses(), {0: "s:1", 2: "s:2"})
        self.assertEqual(self.tables.brokers["g"].broker_addrs, {1: "s:1", 2: "s:2"})

    def test_nobody_stands_in_without_the_setting(self) -> None:
        """supportActingMaster is off by default."""
        self.routes.unregister("C", "m:1", "g")
        self.on.clear()
        self.assertEqual(self.addresses(), {1: "s:1", 2: "s:2"})

    def test_nobody_stands_in_where_writing_is_allowed(self) -> None:
        """Producers must not use a slave as a master."""
        self.routes.unregister("C", "m:1", "g")
        self.tables.add_write_permission("g")
        self.assertEqual(self.addresses(), {1: "s:1", 2: "s:2"})

    def test_nobody_stands_in_where_brokers_look_for_each_other(self) -> None:
        """The topic with which members find each other shows the real brokers."""
        self.routes.unregister("C", "m:1", "g")
        self.assertEqual(self.addresses("rmq_sys_SYNC_BROKER_MEMBER_g"), {1: "s:1", 2: "s:2"})

    def test_nobody_stands_in_for_a_group_that_does_not_want_it(self) -> None:
        """Its brokers set this when they register."""
        for address, broker_id in [("m:5", 0), ("s:5", 1)]:
            self.routes.register(make_registration(
                address, {"W": 4, "X": 4}, name="h", broker_id=broker_id), 0)
        self.routes.unregister("C", "m:5", "h")
        self.assertEqual(self.route("W").broker_datas[0].broker_addrs, {1: "s:5"})


class ZoneTests(RouteViewsCase):
    """A client may ask for the brokers of its own zone only."""

    def names(self, zone_name: str) -> list[str | None]:
        """Return the brokers that a client of a zone sees, after a check of the queues."""
        route = filter_by_zone(self.route("T"), zone_name)
        names = [each.broker_name for each in route.broker_datas]
        self.assertEqual([each.broker_name for each in route.queue_datas], names)
        return names

    def test_only_the_own_zone_is_left(self) -> None:
        """Case does not matter; an unknown zone has no brokers."""
        self.assertEqual(self.names("Z1"), ["a"])
        self.assertEqual(self.names("z2"), ["b"])
        self.assertEqual(self.names("z3"), [])

    def test_filter_servers_of_other_zones_go(self) -> None:
        """Those of the own zone remain."""
        route = self.route("T")
        self.assertEqual(filter_by_zone(route, "z2").filter_server_table, {})
        self.assertEqual(filter_by_zone(route, "z1").filter_server_table, {MASTER: ["f:1"]})

    def test_a_group_without_master_is_in_every_zone(self) -> None:
        """Its slaves may be read from any zone."""
        self.routes.register(make_registration(SLAVE, broker_id=1, zone_name="z1"), 0)
        self.routes.unregister("C", MASTER, "a")
        self.assertEqual(self.names("z2"), ["a", "b"])


class ListTests(RouteViewsCase):
    """Lists of topics, brokers and clusters."""

    def topics(self, work: Generator[None, None, list[str]]) -> list[str]:
        return sorted(run_to_completion(work))

    def test_topics_of_all_and_of_one_cluster(self) -> None:
        """An unknown cluster has none; a topic of two brokers occurs once."""
        self.assertEqual(self.topics(self.views.all_topics()), ["T", "U", "V"])
        self.assertEqual(self.topics(self.views.topics_of_cluster("D")), ["T", "V"])
        self.assertEqual(self.topics(self.views.topics_of_cluster("E")), [])
        self.routes.register(make_registration(SLAVE, name="c"), 0)
        self.assertEqual(self.topics(self.views.topics_of_cluster("C")), ["T", "U"])

    def test_system_topics_are_names_of_clusters_and_brokers(self) -> None:
        """The response has the address of a broker if there is one."""
        names, address = self.views.system_topics()
        self.assertEqual((set(names), address), ({"a", "b", "C", "D"}, MASTER))
        nothing = RouteViews(RouteTables(), self.on.__contains__).system_topics()
        self.assertEqual(nothing, ([], None))

    def test_topics_by_their_flags(self) -> None:
        """Unit, unit-subscribed, and the latter without the former."""
        for topic, flags in [("T", UNIT), ("U", UNIT_SUB),
                             ("V", UNIT | UNIT_SUB)]:
            for queue in self.tables.topics[topic].values():
                queue.topic_sys_flag = flags
        views = self.views
        self.assertEqual(self.topics(views.topics_with_flags(UNIT)), ["T", "V"])
        self.assertEqual(self.topics(views.topics_with_flags(UNIT_SUB)), ["U", "V"])
        self.assertEqual(self.topics(views.topics_with_flags(UNIT_SUB, UNIT)), ["U"])

    def test_a_group_and_all_of_them(self) -> None:
        """Members of a name, and the whole of both tables."""
        self.assertEqual(self.views.member_group("C", "a").broker_addrs, {0: MASTER})
        self.assertEqual(self.views.member_group("C", "none").broker_addrs, {})
        info = self.views.cluster_info()
        self.assertEqual(set(info.broker_addr_table), {"a", "b"})
        self.assertEqual(info.cluster_addr_table, {"C": {"a"}, "D": {"b"}})
