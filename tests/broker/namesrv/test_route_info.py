"""Registration, unregistration and silence: one test for each rule."""

from __future__ import annotations

from dataclasses import replace

from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.namesrv.registration import MasterOfGroup, Registration
from twistmq.broker.namesrv.route_info import BROKER_TIMEOUT_MS, RouteInfoManager
from twistmq.broker.namesrv.route_tables import BrokerKey, RouteTables
from twistmq.broker.testing.name_server import StillChannel, make_registration
from twistmq.protocol.bodies import (
    DataVersion,
    QueueData,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicQueueMappingInfo,
)
from twistmq.protocol.errors import RequestRefused
from twistmq.protocol.headers.admin import NotifyMinBrokerIdChangeRequestHeader
from twistmq.protocol.log_rate import EVENTS_A_MINUTE, LINES_A_MINUTE

MASTER, SLAVE, OTHER = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"


def static_registration(counter: int, epoch: int) -> Registration:
    """Broker a registers the static topic S and another one."""
    topics = TopicConfigSerializeWrapper(
        {"S": TopicConfig("S"), "S2": TopicConfig("S2")}, DataVersion(0, 0, counter), None,
        {"S": TopicQueueMappingInfo("S", bname="a", epoch=epoch)})
    return replace(make_registration(), topics=topics)


class RouteInfoCase(SynchronousTestCase):
    """Tables, with all settings off that a test does not name."""

    def setUp(self) -> None:
        self.on: set[str] = set()
        self.tables = RouteTables()
        self.told: list[tuple[str, NotifyMinBrokerIdChangeRequestHeader]] = []
        self.routes = RouteInfoManager(
            self.tables, self.on.__contains__,
            lambda address, header: self.told.append((address, header)))

    def addresses(self, name: str = "a") -> dict[int, str]:
        """Return the addresses of a broker name; none if it is unknown."""
        group = self.tables.brokers.get(name)
        return group.broker_addrs if group else {}

    def perms(self, name: str = "a") -> dict[str, int]:
        """Return the permissions of every topic of a broker name."""
        return {topic: queues[name].perm for topic, queues in self.tables.topics.items()
                if name in queues}


class RegisterTests(RouteInfoCase):
    """The changes that a registration makes."""

    def test_a_new_broker_is_in_every_table(self) -> None:
        """Cluster, name, address, sign of life and topics are known immediately."""
        self.routes.register(make_registration(MASTER, {"T": 6, "U": 4}, zone_name="z"), 5)
        self.assertEqual(self.tables.clusters, {"C": {"a"}})
        group = self.tables.brokers["a"]
        self.assertEqual((group.cluster, group.broker_addrs, group.zone_name),
                         ("C", {0: MASTER}, "z"))
        self.assertEqual(self.tables.live[BrokerKey("C", MASTER, "a")].last_update_ms, 5)
        self.assertEqual(self.tables.topics["U"], {"a": QueueData("a", 4, 4, 4, 0)})

    def test_again_is_a_sign_of_life_and_nothing_else(self) -> None:
        """The same version refreshes time and connection and leaves topics alone."""
        self.routes.register(make_registration(), 5)
        channel = StillChannel()
        self.routes.register(make_registration(topics={"T": 4, "U": 4}, channel=channel), 9)
        live = self.tables.live[BrokerKey("C", MASTER, "a")]
        self.assertEqual((live.last_update_ms, live.channel), (9, channel))
        self.assertEqual(self.perms(), {"T": 6, "U": 6})

    def test_same_version_still_brings_topics_that_are_not_known(self) -> None:
        """A topic that was deleted here returns with the next registration."""
        self.routes.register(make_registration(), 0)
        self.routes.delete_topic("U")
        self.routes.register(make_registration(), 1)
        self.assertEqual(self.perms(), {"T": 6, "U": 6})

    def test_another_version_changes_topics(self) -> None:
        """Topics change with a registration that has another data version."""
        self.routes.register(make_registration(), 0)
        self.routes.register(make_registration(topics={"T": 4, "V": 6}, counter=2), 1)
        self.assertEqual(self.perms(), {"T": 4, "U": 6, "V": 6})

    def test_a_version_that_is_older_changes_topics_too(self) -> None:
        """Any other version does: a broker that lost its tables counts from the beginning."""
        for version in (DataVersion(0, 0, 4), DataVersion(0, 7, 5), DataVersion(1, 0, 5)):
            self.routes.register(make_registration(counter=5), 0)
            again = make_registration(topics={"T": 4, "U": 2})
            again.topics.data_version = version
            self.routes.register(again, 1)
            self.assertEqual(self.perms(), {"T": 4, "U": 2}, msg=str(version))

    def test_missing_topics_go_only_when_the_setting_says_so(self) -> None:
        """deleteTopicWithBrokerRegistration removes topics that are no longer named."""
        self.routes.register(make_registration(), 0)
        self.on.add("deleteTopicWithBrokerRegistration")
        self.routes.register(make_registration(topics={"T": 6, "V": 6}, counter=2), 1)
        self.assertEqual(self.perms(), {"T": 6, "V": 6})
        self.assertNotIn("U", self.tables.topics)

    def test_static_topics_keep_missing_topics(self) -> None:
        """A registration with mappings removes nothing, whatever the setting is."""
        self.routes.register(make_registration(), 0)
        self.on.add("deleteTopicWithBrokerRegistration")
        self.routes.register(static_registration(2, 1), 1)
        self.assertEqual(set(self.perms()), {"S", "S2", "T", "U"})
        self.assertEqual(set(self.tables.mappings["S"]), {"a"})

    def test_one_topic_before_the_broker_is_refused_and_leaves_nothing(self) -> None:
        """An unknown broker cannot begin with a single topic."""
        self.assertIsNone(self.routes.register(make_registration(topics={"T": 6}), 0))
        self.assertEqual(self.tables, RouteTables())

    def test_one_topic_of_a_known_broker_is_taken(self) -> None:
        """A known broker may send one changed topic."""
        self.routes.register(make_registration(), 0)
        self.assertIsNotNone(
            self.routes.register(make_registration(topics={"V": 6}, counter=2), 1))
        self.assertEqual(self.perms(), {"T": 6, "U": 6, "V": 6})

    def test_no_topic_is_enough_to_be_known(self) -> None:
        """A slave registers without topics."""
        self.routes.register(make_registration(topics={}), 0)
        self.assertEqual(self.addresses(), {0: MASTER})

    def test_a_slaves_topics_do_not_count(self) -> None:
        """A slave does not change a topic, unless it has the version of a 5.x broker."""
        self.routes.register(make_registration(), 0)
        self.routes.register(make_registration(SLAVE, {"T": 4, "V": 6}, broker_id=1), 1)
        self.assertEqual(self.perms(), {"T": 6, "U": 6})
        self.routes.unregister("C", MASTER, "a")
        self.routes.register(make_registration(SLAVE, {"T": 4, "V": 6}, broker_id=1, counter=2), 2)
        self.assertEqual(self.perms(), {"T": 6, "U": 6})

    def test_the_first_slave_without_master_gives_topics(self) -> None:
        """In a group without a master the topics of the lowest id count."""
        self.routes.register(
            make_registration(SLAVE, broker_id=2, acting_master=False), 0)
        self.routes.register(
            make_registration(OTHER, {"W": 6, "X": 6}, broker_id=3, acting_master=False), 0)
        self.assertEqual(self.perms(), {"T": 6, "U": 6})

    def test_a_slave_that_may_act_as_master_gives_topics_to_read_only(self) -> None:
        """Write permission is wiped from its topics."""
        self.routes.register(make_registration(SLAVE, broker_id=1, acting_master=True), 0)
        self.assertEqual(self.perms(), {"T": 4, "U": 4})

    def test_a_slave_that_becomes_master_leaves_its_old_id(self) -> None:
        """An address has one id in a group."""
        self.routes.register(make_registration(), 0)
        self.routes.register(make_registration(SLAVE, broker_id=1), 0)
        self.routes.unregister("C", MASTER, "a")
        self.routes.register(make_registration(SLAVE), 1)
        self.assertEqual(self.addresses(), {0: SLAVE})
        # So does a master that becomes a slave.
        self.routes.register(make_registration(SLAVE, broker_id=2), 2)
        self.assertEqual(self.addresses(), {2: SLAVE})

    def test_an_id_goes_to_the_address_that_registers_last(self) -> None:
        """The address that had the id is forgotten, and its sign of life with it."""
        self.routes.register(make_registration(filter_servers=["f:1"]), 0)
        self.routes.register(make_registration(OTHER, {"T": 4, "U": 4}), 1)
        self.assertEqual(self.addresses(), {0: OTHER})
        self.assertEqual(set(self.tables.live), {BrokerKey("C", OTHER, "a")})
        self.assertEqual(self.tables.filter_servers, {})
        self.assertEqual(self.perms(), {"T": 4, "U": 4})

    def test_an_older_state_does_not_take_the_id(self) -> None:
        """The holder with the higher state version remains; the other one is not registered."""
        channel = StillChannel()
        self.routes.register(make_registration(state=3), 0)
        self.routes.register(make_registration(OTHER, broker_id=1, channel=channel), 0)
        result = self.routes.register(make_registration(OTHER, state=2, channel=channel), 1)
        self.assertEqual(result, MasterOfGroup())
        self.assertEqual(self.addresses(), {0: MASTER})
        self.assertEqual(set(self.tables.live), {BrokerKey("C", MASTER, "a")})

    def test_an_equal_state_takes_the_id(self) -> None:
        """Only a lower state version is refused."""
        self.routes.register(make_registration(state=3), 0)
        self.routes.register(make_registration(OTHER, state=3), 1)
        self.assertEqual(self.addresses(), {0: OTHER})

    def test_a_slave_is_told_its_master(self) -> None:
        """The response has the address and the HA address; that of a master has neither."""
        self.assertEqual(self.routes.register(make_registration(), 0), MasterOfGroup())
        self.assertEqual(self.routes.register(make_registration(SLAVE, broker_id=1), 0),
                         MasterOfGroup(MASTER, f"{MASTER}-ha"))

    def test_a_slave_without_master_is_told_nothing(self) -> None:
        """No master is known."""
        self.assertEqual(self.routes.register(make_registration(SLAVE, broker_id=1), 0),
                         MasterOfGroup())

    def test_filter_servers_stay_go_or_are_replaced(self) -> None:
        """None keeps them, an empty list removes them, and a list replaces them."""
        key = BrokerKey("C", MASTER, "a")
        cases = [(["f:1", "f:2"], ["f:1", "f:2"]), (None, ["f:1", "f:2"]), (["f:3"], ["f:3"]),
                 ([], None)]
        for given, expected in cases:
            self.routes.register(make_registration(filter_servers=given), 0)
            self.assertEqual(self.tables.filter_servers.get(key), expected, msg=str(given))

    def test_an_address_with_another_name_leaves_the_first(self) -> None:
        """A broker that is renamed while it runs is not known under both names."""
        channel = StillChannel()
        self.routes.register(make_registration(channel=channel), 0)
        self.routes.register(make_registration(name="b", channel=channel), 1)
        self.assertEqual(set(self.tables.brokers), {"b"})
        self.assertEqual(self.tables.clusters, {"C": {"b"}})
        self.assertEqual(set(self.tables.topics["T"]), {"b"})

    def test_nobody_drops_a_broker_by_its_address_alone(self) -> None:
        """The same address with another name, over another connection, is another broker."""
        first = make_registration(filter_servers=["f:1"])
        self.routes.register(first, 0)
        stranger = StillChannel()
        self.routes.register(make_registration(name="b", channel=stranger), 1)
        self.assertEqual(self.addresses("a"), {0: MASTER})
        self.assertEqual(self.perms("a"), {"T": 6, "U": 6})
        self.routes.heartbeat("C", MASTER, "b", 5)
        self.assertEqual(self.tables.live[first.key].last_update_ms, 0)
        self.assertFalse(self.routes.unregister("C", MASTER, "c"))
        self.routes.on_channel_destroy(stranger)
        self.assertEqual(set(self.tables.live), {first.key})
        self.assertEqual(self.tables.filter_servers, {first.key: ["f:1"]})
        self.assertEqual(set(self.tables.topics["T"]), {"a"})

    def test_nobody_drops_a_slave_by_an_older_state(self) -> None:
        """A slave's address that arrives as an outdated master's over another
        connection remains.
        """
        self.routes.register(make_registration(state=3), 0)
        slave = make_registration(SLAVE, broker_id=1)
        self.routes.register(slave, 0)
        self.routes.register(make_registration(SLAVE, state=2), 1)
        self.assertIn(slave.key, self.tables.live)
        self.assertEqual(self.addresses(), {0: MASTER, 1: SLAVE})

    def test_an_address_in_another_cluster_leaves_the_first(self) -> None:
        """A broker that was moved is in one cluster."""
        self.routes.register(make_registration(), 0)
        self.routes.register(make_registration(cluster="D"), 1)
        self.assertEqual(self.tables.clusters, {"D": {"a"}})
        self.assertEqual(self.tables.brokers["a"].cluster, "D")
        self.assertEqual(set(self.tables.live), {BrokerKey("D", MASTER, "a")})

    def test_two_clusters_may_use_one_address(self) -> None:
        """The same address with another name and cluster is another broker."""
        self.routes.register(make_registration(), 0)
        self.routes.register(make_registration(name="b", cluster="D"), 1)
        self.routes.register(make_registration(), 2)
        self.assertEqual(self.tables.clusters, {"C": {"a"}, "D": {"b"}})
        self.assertEqual((self.addresses("a"), self.addresses("b")), ({0: MASTER}, {0: MASTER}))
        self.routes.register(make_registration(OTHER), 3)
        self.assertEqual((self.addresses("a"), self.addresses("b")), ({0: OTHER}, {0: MASTER}))
        self.assertTrue(self.routes.unregister("D", MASTER, "b"))
        self.assertEqual(self.tables.clusters, {"C": {"a"}})

    def test_who_has_a_masters_address_elsewhere_is_not_the_master(self) -> None:
        """Its state and its replication address do not count for a name that it does not have."""
        self.routes.register(make_registration(), 0)
        self.routes.register(make_registration(MASTER, name="b", cluster="D", state=9), 0)
        slave = make_registration(SLAVE, broker_id=1, cluster="D")
        self.assertEqual(self.routes.register(slave, 0), MasterOfGroup())
        self.routes.register(make_registration(OTHER, cluster="D"), 0)
        self.assertEqual(self.addresses("a"), {0: OTHER, 1: SLAVE})

    def test_mappings_of_static_topics_are_kept_by_broker(self) -> None:
        """Mappings change with the version, and are stored under the name that they contain."""
        self.routes.register(static_registration(1, 1), 0)
        self.routes.register(static_registration(1, 2), 0)
        self.assertEqual(self.tables.mappings["S"]["a"].epoch, 1)
        self.routes.register(static_registration(2, 2), 0)
        self.assertEqual(self.tables.mappings["S"]["a"].epoch, 2)


class LeaveTests(RouteInfoCase):
    """The removal of data."""

    def test_mappings_go_with_their_broker_or_topic(self) -> None:
        """The parts of a static topic on other brokers remain."""
        def register() -> None:
            self.routes.register(static_registration(1, 1), 0)
            topics = TopicConfigSerializeWrapper(
                {"S": TopicConfig("S"), "T": TopicConfig("T")}, DataVersion(0, 0, 1), None,
                {"S": TopicQueueMappingInfo("S", bname="b", epoch=1)})
            self.routes.register(replace(make_registration(OTHER, name="b"), topics=topics), 0)

        register()
        self.routes.unregister("C", MASTER, "a")
        self.assertEqual(set(self.tables.mappings["S"]), {"b"})
        self.routes.unregister("C", OTHER, "b")
        self.assertEqual(self.tables, RouteTables())
        register()
        self.routes.delete_topic("S")
        self.assertEqual(self.tables.mappings, {})

    def test_the_last_of_a_name_takes_its_topics_along(self) -> None:
        """Nothing of it remains in any table."""
        self.routes.register(make_registration(filter_servers=["f:1"]), 0)
        self.assertTrue(self.routes.unregister("C", MASTER, "a"))
        self.assertEqual(self.tables, RouteTables())

    def test_topics_other_brokers_have_stay(self) -> None:
        """Only the queues of the broker that left are removed."""
        self.routes.register(make_registration(), 0)
        self.routes.register(make_registration(OTHER, {"T": 6, "V": 6}, name="b"), 0)
        self.routes.unregister("C", MASTER, "a")
        self.assertEqual({topic: set(queues) for topic, queues in self.tables.topics.items()},
                         {"T": {"b"}, "V": {"b"}})
        self.assertEqual(self.tables.clusters, {"C": {"b"}})

    def test_while_a_slave_lives_topics_stay(self) -> None:
        """Consumers can still read from the slave."""
        self.routes.register(make_registration(), 0)
        self.routes.register(make_registration(SLAVE, broker_id=1), 0)
        self.routes.unregister("C", MASTER, "a")
        self.assertEqual(self.addresses(), {1: SLAVE})
        self.assertEqual(self.perms(), {"T": 6, "U": 6})

    def test_without_master_topics_are_read_only_when_a_slave_may_act(self) -> None:
        """Write permission goes with the master, and not with a slave."""
        for address, broker_id in [(MASTER, 0), (SLAVE, 1), (OTHER, 2)]:
            self.routes.register(
                make_registration(address, broker_id=broker_id, acting_master=True), 0)
        self.routes.unregister("C", OTHER, "a")
        self.assertEqual(self.perms(), {"T": 6, "U": 6})
        self.routes.unregister("C", MASTER, "a")
        self.assertEqual(self.perms(), {"T": 4, "U": 4})

    def test_who_is_not_known_changes_nothing(self) -> None:
        """Another address, cluster or name removes no broker."""
        self.routes.register(make_registration(), 0)
        for cluster, address, name in [("C", OTHER, "a"), ("D", MASTER, "a"), ("C", MASTER, "b")]:
            self.assertFalse(self.routes.unregister(cluster, address, name), msg=name)
        self.assertEqual(self.addresses(), {0: MASTER})

    def test_silence_of_exactly_the_time_allowed_is_life(self) -> None:
        """A broker that is silent for 120 s stays, and is removed one millisecond later."""
        registration = make_registration()
        self.routes.register(registration, 1000)
        self.assertEqual(self.routes.scan_not_active_broker(1000 + BROKER_TIMEOUT_MS), [])
        self.assertEqual(self.addresses(), {0: MASTER})
        self.assertEqual(self.routes.scan_not_active_broker(1001 + BROKER_TIMEOUT_MS),
                         [registration.channel])
        self.assertEqual(self.tables, RouteTables())

    def test_a_broker_may_name_its_own_time(self) -> None:
        """heartbeatTimeoutMillis of the registration counts, also when it is 0."""
        self.routes.register(make_registration(timeout_ms=10), 0)
        self.routes.register(make_registration(OTHER, name="b", timeout_ms=0), 5)
        self.routes.scan_not_active_broker(6)
        self.assertEqual(set(self.tables.brokers), {"a"})
        self.routes.scan_not_active_broker(11)
        self.assertEqual(self.tables.brokers, {})

    def test_a_heartbeat_is_a_sign_of_life(self) -> None:
        """A heartbeat extends the time-out, and registers no broker."""
        self.routes.register(make_registration(timeout_ms=10), 0)
        self.routes.heartbeat("C", MASTER, "a", 8)
        self.routes.heartbeat("C", OTHER, "b", 8)
        self.routes.scan_not_active_broker(18)
        self.assertEqual(set(self.tables.live), {BrokerKey("C", MASTER, "a")})

    def test_a_connection_that_a_living_broker_uses_is_not_closed(self) -> None:
        """Brokers of one process share it."""
        channel = StillChannel()
        self.routes.register(make_registration(timeout_ms=10, channel=channel), 0)
        self.routes.register(make_registration(OTHER, name="b", channel=channel), 0)
        self.assertEqual(self.routes.scan_not_active_broker(11), [])
        self.assertEqual(set(self.tables.brokers), {"b"})

    def test_a_lost_connection_takes_all_its_brokers_along(self) -> None:
        """Brokers of other connections remain."""
        channel = StillChannel()
        self.routes.register(make_registration(channel=channel), 0)
        self.routes.register(make_registration(SLAVE, name="b", channel=channel), 0)
        self.routes.register(make_registration(OTHER, name="c"), 0)
        self.routes.on_channel_destroy(channel)
        self.assertEqual(set(self.tables.brokers), {"c"})

    def test_a_connection_a_broker_no_longer_uses_means_nothing(self) -> None:
        """The connection of the last registration counts."""
        old = StillChannel()
        self.routes.register(make_registration(channel=old), 0)
        self.routes.register(make_registration(), 1)
        self.routes.on_channel_destroy(old)
        self.assertEqual(self.addresses(), {0: MASTER})


class SingleTopicTests(RouteInfoCase):
    """Topics that are registered and deleted one by one."""

    def test_a_topic_is_added_to_known_brokers(self) -> None:
        """The queues of other brokers remain."""
        self.routes.register(make_registration(), 0)
        self.routes.register(make_registration(OTHER, name="b"), 0)
        self.assertTrue(self.routes.register_topic("V", [QueueData("a", 1, 1, 6)]))
        self.assertTrue(self.routes.register_topic("V", [QueueData("b", 2, 2, 6)]))
        self.assertEqual(self.tables.topics["V"],
                         {"a": QueueData("a", 1, 1, 6), "b": QueueData("b", 2, 2, 6)})

    def test_an_unknown_broker_spoils_the_whole_list(self) -> None:
        """Neither a new topic nor a known one changes."""
        self.routes.register(make_registration(), 0)
        for topic in ("T", "V"):
            queues = [QueueData("a", 9, 9, 4), QueueData("z", 1, 1, 6)]
            self.assertFalse(self.routes.register_topic(topic, queues), msg=topic)
        self.assertEqual(self.perms(), {"T": 6, "U": 6})
        self.assertNotIn("V", self.tables.topics)

    def test_no_queues_make_no_topic(self) -> None:
        """An empty list is accepted and changes nothing."""
        self.routes.register_topic("V", [])
        self.assertEqual(self.tables.topics, {})

    def test_a_topic_is_deleted_everywhere_or_in_one_cluster(self) -> None:
        """In an unknown cluster nothing is deleted."""
        self.routes.register(make_registration(), 0)
        self.routes.register(make_registration(OTHER, name="b", cluster="D"), 0)
        self.routes.delete_topic("T", "E")
        self.routes.delete_topic("none", "D")
        self.assertEqual(set(self.tables.topics["T"]), {"a", "b"})
        self.routes.delete_topic("T", "D")
        self.assertEqual(set(self.tables.topics["T"]), {"a"})
        self.routes.delete_topic("U")
        self.routes.delete_topic("T", "C")
        self.assertEqual(self.tables.topics, {})

    def test_write_permission_is_wiped_and_added(self) -> None:
        """Both return the number of topics; the addition permits reading and writing only."""
        self.routes.register(make_registration(topics={"T": 7, "U": 4}), 0)
        self.assertEqual(self.tables.wipe_write_permission("a"), 2)
        self.assertEqual(self.perms(), {"T": 5, "U": 4})
        self.assertEqual(self.tables.add_write_permission("a"), 2)
        self.assertEqual(self.perms(), {"T": 6, "U": 6})
        self.assertEqual(self.tables.wipe_write_permission("b"), 0)

    def test_wiped_stays_wiped_until_the_version_changes(self) -> None:
        """A registration with the same version does not give it back."""
        self.routes.register(make_registration(), 0)
        self.tables.wipe_write_permission("a")
        self.routes.register(make_registration(), 1)
        self.assertEqual(self.perms(), {"T": 4, "U": 4})
        self.routes.register(make_registration(counter=2), 2)
        self.assertEqual(self.perms(), {"T": 6, "U": 6})


class NotifyTests(RouteInfoCase):
    """Brokers are notified of the lowest id."""

    def setUp(self) -> None:
        super().setUp()
        self.on.add("notifyMinBrokerIdChanged")
        self.register(SLAVE, 1)
        self.register(OTHER, 2)
        self.told.clear()

    def register(self, address: str, broker_id: int) -> None:
        """Register a broker of group a that may act as master."""
        self.routes.register(
            make_registration(address, broker_id=broker_id, acting_master=True), 0)

    def test_a_lower_id_is_told_to_the_others(self) -> None:
        """The new broker is not notified of itself."""
        self.register(MASTER, 0)
        self.assertEqual(self.told, [
            (address, NotifyMinBrokerIdChangeRequestHeader(
                min_broker_id=0, min_broker_addr=MASTER, ha_broker_addr=f"{MASTER}-ha"))
            for address in (SLAVE, OTHER)])

    def test_the_lowest_that_leaves_is_told_to_those_that_stay(self) -> None:
        """The notification has the address that left; a higher id that leaves causes none."""
        self.register(MASTER, 0)
        self.told.clear()
        self.routes.unregister("C", OTHER, "a")
        self.assertEqual(self.told, [])
        self.routes.unregister("C", MASTER, "a")
        self.assertEqual(self.told, [(SLAVE, NotifyMinBrokerIdChangeRequestHeader(
            min_broker_id=1, min_broker_addr=SLAVE, offline_broker_addr=MASTER))])

    def test_nobody_is_told_without_the_setting(self) -> None:
        """notifyMinBrokerIdChanged is off by default."""
        self.on.clear()
        self.register(MASTER, 0)
        self.routes.unregister("C", MASTER, "a")
        self.assertEqual(self.told, [])


class LogTests(RouteInfoCase):
    """Brokers that register, however many, do not fill the log."""

    def test_lines_of_the_log(self) -> None:
        """Brokers that come and leave, that are refused, and that are unknown."""
        with capturedLogs() as events:
            for number in range(200):
                address = f"10.0.1.{number}:10911"
                self.routes.register(make_registration(address, name=f"b{number}"), 0)
                self.routes.unregister("C", address, f"b{number}")
                self.routes.unregister("C", address, f"b{number}")
                self.routes.register(make_registration(topics={"T": 6}), 0)
                self.routes.register_topic("T", [QueueData("nobody", 4, 4, 6, 0)])
                self.assertRaises(RequestRefused, self.routes.register, make_registration(
                    "x" * 10_000), 0)
                channel = StillChannel()
                self.routes.register(make_registration(OTHER, channel=channel), 0)
                self.routes.on_channel_destroy(channel)
        lines = [str(event["log_format"]) for event in events]
        self.assertEqual({words: len([line for line in lines if words in line]) for words in (
            "new broker", "is gone", "but was not registered", "a single topic", "is not known",
            "is refused", "is lost")}, {
                "new broker": EVENTS_A_MINUTE, "is gone": EVENTS_A_MINUTE,
                "but was not registered": EVENTS_A_MINUTE, "a single topic": LINES_A_MINUTE,
                "is not known": LINES_A_MINUTE, "is refused": LINES_A_MINUTE,
                "is lost": LINES_A_MINUTE})
