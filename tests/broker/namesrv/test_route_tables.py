"""The tables agree with each other and with a simple model, whatever brokers do."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests.draw import examples
from twistmq.broker.constants import ROUTE_ROW_BYTES
from twistmq.broker.namesrv.registration import MasterOfGroup, Registration
from twistmq.broker.namesrv.route_info import RouteInfoManager
from twistmq.broker.namesrv.route_tables import BrokerKey, RouteTables
from twistmq.broker.namesrv.route_views import RouteViews
from twistmq.broker.testing.name_server import StillChannel, make_registration
from twistmq.protocol.bodies import QueueData

CLUSTERS = st.sampled_from(["C", "D"])
NAMES = st.sampled_from(["a", "b", "c"])
IDS = st.integers(0, 2)
ADDRESSES = st.sampled_from(["h1:1", "h2:1", "h3:1", "h4:1"])
TOPICS = st.sets(st.sampled_from(["T", "U", "V"]))
TIMEOUT_MS = 10


class RoutesMachine(RuleBasedStateMachine):
    """Brokers register, change their registrations, fall silent and unregister.

    The model knows one thing: who was heard of last at each address of a cluster, and when.
    """

    def __init__(self) -> None:
        super().__init__()
        self.on: set[str] = set()
        self.tables = RouteTables()
        self.routes = RouteInfoManager(self.tables, self.on.__contains__)
        self.views = RouteViews(self.tables, self.on.__contains__)
        self.channels = [StillChannel() for _ in range(3)]
        self.now_ms = 0
        #: By address: its registration, and when it last gave a sign of life.
        self.model: dict[BrokerKey, tuple[Registration, int]] = {}

    @initialize(on=st.sets(st.sampled_from(
        ["supportActingMaster", "deleteTopicWithBrokerRegistration"])))
    def choose_settings(self, on: set[str]) -> None:
        """Any mix of the settings that change tables and routes."""
        self.on |= on

    @rule(cluster=CLUSTERS, name=NAMES, broker_id=IDS, address=ADDRESSES, topics=TOPICS,
          counter=st.integers(1, 3), state=st.integers(0, 1), channel=st.integers(0, 2),
          acting=st.sampled_from([None, False, True]),
          filters=st.sampled_from([None, [], ["f:1"]]))
    def register(
        self, cluster: str, name: str, broker_id: int, address: str, topics: set[str],
        channel: int, filters: Any, acting: Any, **version: int,
    ) -> None:
        """A registration is accepted, refused, or found outdated, as the model predicts."""
        new = make_registration(
            address, dict.fromkeys(topics, 6), name=name, broker_id=broker_id, cluster=cluster,
            timeout_ms=TIMEOUT_MS, channel=self.channels[channel], acting_master=acting,
            filter_servers=filters, **version)
        holder = next((each for each, _ in self.model.values()
                       if (each.broker_name, each.broker_id) == (name, broker_id)), None)
        result = self.routes.register(new, self.now_ms)
        if (holder is not None and holder.address != address and holder.cluster == cluster
                and holder.topics.data_version.state_version > version["state"]):
            assert result == MasterOfGroup()
            if new.key in self.model and self.model[new.key][0].channel is new.channel:
                del self.model[new.key]
        elif holder is None and len(topics) == 1:
            assert result is None
        else:
            assert result is not None
            for key, (other, _) in list(self.model.items()):
                if key.address != address:
                    continue
                is_here, is_named_so = key.cluster == cluster, key.broker_name == name
                if (is_named_so and not is_here) or (
                        is_here and not is_named_so and other.channel is new.channel):
                    del self.model[key]
            if holder is not None:
                self.model.pop(holder.key, None)
            # A broker that takes another id leaves its own.
            self.model[new.key] = (new, self.now_ms)

    @rule(cluster=CLUSTERS, name=NAMES, address=ADDRESSES)
    def unregister(self, cluster: str, name: str, address: str) -> None:
        """Only a broker with exactly this name and cluster is removed."""
        key = BrokerKey(cluster, address, name)
        is_known = key in self.model
        assert self.routes.unregister(cluster, address, name) == is_known
        if is_known:
            del self.model[key]

    @rule(cluster=CLUSTERS, name=NAMES, address=ADDRESSES)
    def heartbeat(self, cluster: str, name: str, address: str) -> None:
        """A sign of life of a known broker counts."""
        self.routes.heartbeat(cluster, address, name, self.now_ms)
        key = BrokerKey(cluster, address, name)
        if key in self.model:
            self.model[key] = (self.model[key][0], self.now_ms)

    @rule(passed_ms=st.integers(0, TIMEOUT_MS + 2))
    def scan(self, passed_ms: int) -> None:
        """Time passes, and brokers that were silent for too long are removed."""
        self.now_ms += passed_ms
        closed = self.routes.scan_not_active_broker(self.now_ms)
        silent = [key for key, (_, heard_ms) in self.model.items()
                  if heard_ms + TIMEOUT_MS < self.now_ms]
        theirs = {id(self.model.pop(key)[0].channel) for key in silent}
        in_use = {id(new.channel) for new, _ in self.model.values()}
        assert {id(channel) for channel in closed} == theirs - in_use

    @rule(channel=st.integers(0, 2))
    def lose_connection(self, channel: int) -> None:
        """All brokers of a connection are removed."""
        self.routes.on_channel_destroy(self.channels[channel])
        self.model = {key: (new, heard_ms) for key, (new, heard_ms) in self.model.items()
                      if new.channel is not self.channels[channel]}

    @rule(topic=st.sampled_from(["T", "X"]), names=st.lists(NAMES))
    def register_topic(self, topic: str, names: list[str]) -> None:
        """One topic is registered on some brokers."""
        known = {new.broker_name for new, _ in self.model.values()}
        queues = [QueueData(name, 1, 1, 6) for name in names]
        assert self.routes.register_topic(topic, queues) == known.issuperset(names)

    @rule(topic=st.sampled_from(["T", "X"]), cluster=st.sampled_from([None, "C", "D"]))
    def delete_topic(self, topic: str, cluster: str | None) -> None:
        """A topic is deleted."""
        self.routes.delete_topic(topic, cluster)

    @invariant()
    def live_is_the_model(self) -> None:
        """The tables have exactly the living brokers of the model, with their last data."""
        assert {key: (live.broker_name, live.last_update_ms, live.channel, live.data_version)
                for key, live in self.tables.live.items()} == {
            new.key: (new.broker_name, heard_ms, new.channel, new.topics.data_version)
            for new, heard_ms in self.model.values()}

    @invariant()
    def brokers_are_the_model(self) -> None:
        """Each name has the addresses of its living brokers under their ids."""
        expected: dict[str, dict[int, str]] = {}
        for new, _ in self.model.values():
            expected.setdefault(new.broker_name, {})[new.broker_id] = new.address
        assert {name: group.broker_addrs
                for name, group in self.tables.brokers.items()} == expected

    @invariant()
    def clusters_hold_exactly_the_names(self) -> None:
        """No cluster is empty, and every living broker's cluster has its name."""
        assert all(self.tables.clusters.values())
        assert set().union(*self.tables.clusters.values()) == set(self.tables.brokers)
        for new, _ in self.model.values():
            assert new.broker_name in self.tables.clusters[new.cluster]

    @invariant()
    def nothing_points_nowhere(self) -> None:
        """Topics have queues, of known brokers; filter servers belong to living ones."""
        for queues in self.tables.topics.values():
            assert queues
            assert queues.keys() <= self.tables.brokers.keys()
            assert all(queue.broker_name == name for name, queue in queues.items())
        assert self.tables.filter_servers.keys() <= self.tables.live.keys()

    @invariant()
    def the_ways_back_are_those_of_the_tables(self) -> None:
        """The reverse tables are equal to those that are built from the tables."""
        tables = self.tables
        by_address: dict[str, set[BrokerKey]] = {}
        by_channel: dict[int, set[BrokerKey]] = {}
        for key, live in tables.live.items():
            by_address.setdefault(key.address, set()).add(key)
            by_channel.setdefault(live.channel.channel_id, set()).add(key)
        clusters: dict[str, set[str]] = {}
        for cluster, names in tables.clusters.items():
            for name in names:
                clusters.setdefault(name, set()).add(cluster)
        queues: dict[str, dict[str, QueueData]] = {}
        for topic, by_name in tables.topics.items():
            for name, queue in by_name.items():
                queues.setdefault(name, {})[topic] = queue
        assert {at: set(keys) for at, keys in tables._keys_by_address.items()} == by_address
        assert {on: set(keys) for on, keys in tables._keys_by_channel.items()} == by_channel
        assert tables._clusters_by_name == clusters
        assert tables._queues_by_name == queues

    @invariant()
    def room_is_what_the_tables_take(self) -> None:
        """The counted bytes of each name and the brokers of each connection and host are right."""
        used: Counter[str] = Counter()
        for topic, queues in self.tables.topics.items():
            for name in queues:
                used[name] += ROUTE_ROW_BYTES + len(topic)
        room = self.tables.room
        for name in ("a", "b", "c"):
            assert room.used_bytes(name) == used[name]
            assert name in room._rows or not used[name]
        assert room.size_bytes >= sum(used.values())
        assert room.size_bytes == sum(rows.charged_bytes for rows in room._rows.values())
        assert room._on_connection == Counter(
            live.channel.channel_id for live in self.tables.live.values())
        assert room._place_shares.total == len(room._places) >= len(self.tables.live)
        assert {key for key, place in room._places.items() if place.until_ms is None} == set(
            self.tables.live)
        assert self.tables.topic_chars == sum(map(len, self.tables.topics))

    @invariant()
    def every_topic_has_a_route(self) -> None:
        """A route names each broker of the topic once, with a living address."""
        for topic, queues in self.tables.topics.items():
            route = self.views.route(topic)
            assert route is not None
            assert [group.broker_name for group in route.broker_datas] == list(queues)
            for group in route.broker_datas:
                assert group.broker_addrs
                assert all(any(BrokerKey(cluster, address, group.broker_name or "")
                               in self.tables.live
                               for cluster in ("C", "D"))
                           for address in group.broker_addrs.values())


class CostTests(SynchronousTestCase):
    """The cost of a request about one broker does not depend on the others."""

    def steps(self, brokers: int, topics: int) -> dict[str, int]:
        """Return the number of executed lines of a few requests beside a number of brokers."""
        tables = RouteTables()
        routes = RouteInfoManager(tables, set[str]().__contains__)
        others = StillChannel()
        for number in range(brokers):
            routes.register(make_registration(
                f"o:{number}", {f"T{number}-{each}": 6 for each in range(topics)},
                name=f"o{number}", cluster=f"C{number}", channel=others), 0)
        channel, count = StillChannel(), 0

        def trace(frame: Any, event: str, argument: object) -> Any:
            nonlocal count
            if "namesrv" in frame.f_code.co_filename:
                count += 1
                return trace
            return None

        def run(work: Callable[[], object]) -> int:
            nonlocal count
            count, before = 0, sys.gettrace()
            sys.settrace(trace)
            try:
                work()
            finally:
                sys.settrace(before)
            return count

        new = make_registration(channel=channel)
        return {
            "register": run(lambda: routes.register(new, 0)),
            "register again": run(lambda: routes.register(new, 0)),
            "wipe": run(lambda: tables.wipe_write_permission("a")),
            "add": run(lambda: tables.add_write_permission("a")),
            "client gone": run(lambda: routes.on_channel_destroy(StillChannel())),
            "gone": run(lambda: routes.on_channel_destroy(channel)),
        }

    def test_one_broker_beside_many(self) -> None:
        """Beside 300 brokers with 10 topics each it takes about as many steps as alone."""
        alone = self.steps(0, 0)
        self.assertGreater(min(alone.values()), 0)
        for what, count in self.steps(300, 10).items():
            self.assertLessEqual(abs(count - alone[what]), 4, msg=what)

    def test_many_leave_at_once(self) -> None:
        """Nothing of them remains, and a few lines are logged."""
        routes = RouteInfoManager(RouteTables(), set[str]().__contains__)
        channel = StillChannel()
        for number in range(200):
            routes.register(make_registration(
                f"o:{number}", {f"T{number}": 6, f"U{number}": 6}, name=f"o{number}",
                cluster=f"C{number}", channel=channel), 0)
        with capturedLogs() as events:
            routes.on_channel_destroy(channel)
        self.assertEqual(routes.tables, RouteTables())
        self.assertLess(len(events), 30)
        self.assertIn("180 more broker names are gone", [formatEvent(event) for event in events])


class RouteTablesTests(SynchronousTestCase):
    """The machine above is run."""

    def test_tables_agree_with_the_model_after_every_step(self) -> None:
        """They agree for any mix of registrations, departures, silence and lost connections."""
        run_state_machine_as_test(
            RoutesMachine,
            settings=settings(max_examples=examples(60), stateful_step_count=30, deadline=None))
