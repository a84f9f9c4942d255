"""Producers and consumers: heartbeats, leaving, silence, and the calls of listeners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from twisted.logger import LogEvent, capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.request.client_table import ChangeKind, Client, ClientChange, ClientTable
from twistmq.broker.testing.kernel import Peer
from twistmq.protocol.bodies import ConsumerData, MessageModel, SubscriptionData
from twistmq.protocol.log_rate import EVENTS_A_MINUTE, LINES_A_MINUTE

NOW_MS = 1_700_000_000_000
CHANGE, REGISTER = ChangeKind.CHANGE, ChangeKind.REGISTER
GONE, UNREGISTER = ChangeKind.CLIENT_GONE, ChangeKind.UNREGISTER


def subscriptions(*wanted: tuple[str, int]) -> tuple[SubscriptionData, ...]:
    """Return subscriptions by topic and version."""
    return tuple(SubscriptionData(topic, sub_version=version) for topic, version in wanted)


class TableCase(SynchronousTestCase):
    """A table that records the calls of its listener."""

    def setUp(self) -> None:
        self.changes: list[ClientChange] = []
        self.table = ClientTable(self.changes.append)
        self.peers = [Peer(number, 40_000 + number) for number in range(1, 4)]

    def client(self, number: int, client_id: str = "", at_ms: int = NOW_MS) -> Client:
        """Return the client of connection ``number``, from 1."""
        return Client(client_id or f"c{number}", self.peers[number - 1], "JAVA", 479, at_ms, at_ms)

    def beat(
        self, number: int, group: str = "G", *wanted: tuple[str, int], notify: bool = True,
        model: MessageModel = MessageModel.CLUSTERING, client_id: str = "",
        keep_subscriptions: bool = False, at_ms: int = NOW_MS,
    ) -> bool:
        """Register a consumer by a heartbeat."""
        data = ConsumerData(group, message_model=model,
                            subscription_data_set=subscriptions(*wanted))
        return self.table.register_consumer(
            data, self.client(number, client_id, at_ms), notify=notify,
            keep_subscriptions=keep_subscriptions)

    def told(self) -> list[tuple[ChangeKind, str, str | None, bool]]:
        """Return (kind, group, client id, notify) of each call since the last time."""
        told = [(change.kind, change.group, change.client.client_id if change.client else None,
                 change.notify) for change in self.changes]
        self.changes.clear()
        return told

    def topics(self, group: str = "G") -> dict[str, int]:
        members = self.table.consumer_group(group)
        assert members is not None
        return {topic: data.sub_version for topic, data in members.subscriptions.items()}


class ConsumerTests(TableCase):
    """The members of consumer groups."""

    def test_first_heartbeat(self) -> None:
        """It creates the group; listeners get the change first and then the member."""
        self.assertTrue(self.beat(1, "G", ("T", 1)))
        self.assertEqual(self.told(), [(CHANGE, "G", None, True), (REGISTER, "G", "c1", True)])
        members = self.table.consumer_group("G")
        assert members is not None
        self.assertEqual((members.client_ids, members.message_model), (["c1"], "CLUSTERING"))
        self.assertIsNone(self.table.consumer_group("H"))

    def test_heartbeat_that_says_nothing_new(self) -> None:
        """It keeps the client alive."""
        self.beat(1, "G", ("T", 1))
        self.told()
        self.assertFalse(self.beat(1, "G", ("T", 1), at_ms=NOW_MS + 5))
        self.assertEqual(self.told(), [(REGISTER, "G", "c1", True)])
        client = self.table.find_consumer("G", "c1")
        assert client is not None
        self.assertEqual(client.last_heartbeat_ms, NOW_MS + 5)

    def test_second_member(self) -> None:
        """It is listed after the first one, and makes all share the queues again."""
        self.beat(1, "G", ("T", 1))
        self.told()
        self.assertTrue(self.beat(2, "G", ("T", 1)))
        self.assertEqual(self.told(), [(CHANGE, "G", None, True), (REGISTER, "G", "c2", True)])
        members = self.table.consumer_group("G")
        assert members is not None
        self.assertEqual(members.client_ids, ["c1", "c2"])
        self.assertIs(self.table.find_consumer("G", "c2"), members.find("c2"))
        self.assertIsNone(self.table.find_consumer("G", "c3"))
        self.assertIsNone(self.table.find_consumer("H", "c1"))

    def test_other_id_on_the_same_connection(self) -> None:
        """The new id counts; as with Apache's broker, the queues are not shared again."""
        self.beat(1, "G", ("T", 1))
        self.told()
        self.assertFalse(self.beat(1, "G", ("T", 1), client_id="other"))
        self.assertEqual(self.told(), [(REGISTER, "G", "other", True)])
        members = self.table.consumer_group("G")
        assert members is not None
        self.assertEqual(members.client_ids, ["other"])

    def test_subscriptions_change(self) -> None:
        """Another topic is a change; a newer version is accepted without one."""
        self.beat(1, "G", ("T", 5))
        self.assertFalse(self.beat(1, "G", ("T", 6)))
        self.assertEqual(self.topics(), {"T": 6})
        self.assertFalse(self.beat(1, "G", ("T", 4)))
        self.assertEqual(self.topics(), {"T": 6})
        self.assertTrue(self.beat(1, "G", ("T", 6), ("U", 1)))
        self.assertEqual(self.topics(), {"T": 6, "U": 1})
        self.assertTrue(self.beat(1, "G", ("U", 1)))
        self.assertEqual(self.topics(), {"U": 1})

    def test_subscriptions_left_out(self) -> None:
        """A heartbeat may omit them, and then they remain."""
        self.beat(1, "G", ("T", 5))
        self.assertFalse(self.beat(1, "G", keep_subscriptions=True))
        self.assertEqual(self.topics(), {"T": 5})

    def test_quiet_groups(self) -> None:
        """Members of a broadcast group, and of one with a setting, are not to be notified."""
        for group, model, notify in (("B", MessageModel.BROADCASTING, True),
                                     ("Q", MessageModel.CLUSTERING, False)):
            self.beat(1, group, ("T", 1), model=model, notify=notify)
            self.beat(2, group, ("T", 1), model=model, notify=notify)
            self.table.unregister_consumer(group, self.peers[1], notify=notify)
            changes = [notified for kind, _, _, notified in self.told() if kind is CHANGE]
            self.assertEqual(changes, [False] * 3, group)

    def test_lost_member_of_a_broadcast_group(self) -> None:
        """The others need not share queues again."""
        for number in (1, 2):
            self.beat(number, "B", model=MessageModel.BROADCASTING)
        self.told()
        self.table.connection_lost(self.peers[1])
        self.assertEqual(self.told(), [(GONE, "B", "c2", True), (CHANGE, "B", None, False)])

    def test_groups_consuming(self) -> None:
        """The groups that subscribe to a topic are returned."""
        self.beat(1, "G", ("T", 1), ("U", 1))
        self.beat(2, "H", ("T", 1))
        self.assertEqual(self.table.groups_consuming("T"), ["G", "H"])
        self.assertEqual(self.table.groups_consuming("U"), ["G"])
        self.assertEqual(self.table.groups_consuming("none"), [])


class LeavingTests(TableCase):
    """Consumers that leave."""

    def test_one_of_two(self) -> None:
        """The other one is notified and remains."""
        self.beat(1)
        self.beat(2)
        self.told()
        self.table.unregister_consumer("G", self.peers[0])
        self.assertEqual(self.told(), [(GONE, "G", "c1", True), (CHANGE, "G", None, True)])
        members = self.table.consumer_group("G")
        assert members is not None
        self.assertEqual(members.client_ids, ["c2"])

    def test_last_member(self) -> None:
        """The group and its subscriptions are removed."""
        self.beat(1, "G", ("T", 1))
        self.told()
        self.table.unregister_consumer("G", self.peers[0])
        self.assertEqual(self.told(), [(GONE, "G", "c1", True), (UNREGISTER, "G", None, True)])
        self.assertIsNone(self.table.consumer_group("G"))

    def test_who_was_not_there(self) -> None:
        """Nothing happens."""
        self.beat(1)
        self.told()
        self.table.unregister_consumer("G", self.peers[1])
        self.table.unregister_consumer("H", self.peers[0])
        self.table.unregister_producer("P", self.peers[0])
        self.table.connection_lost(self.peers[2])
        self.assertEqual(self.told(), [])

    def test_lost_connection(self) -> None:
        """It is removed from all groups of either kind, and no other client is."""
        self.beat(1, "G")
        self.beat(2, "G")
        self.beat(1, "H")
        self.table.register_producer("P", self.client(1))
        self.told()
        self.table.connection_lost(self.peers[0])
        self.assertEqual(self.told(), [
            (GONE, "P", "c1", True), (UNREGISTER, "P", None, True),
            (GONE, "G", "c1", True), (CHANGE, "G", None, True),
            (GONE, "H", "c1", True), (UNREGISTER, "H", None, True)])
        self.assertEqual(list(self.table.consumers), ["G"])
        self.assertEqual(self.table.producers, {})


class ProducerTests(TableCase):
    """The members of producer groups."""

    def test_first_and_next_heartbeats(self) -> None:
        """Listeners are called for the first one."""
        self.table.register_producer("P", self.client(1))
        self.table.register_producer("P", self.client(1, at_ms=NOW_MS + 5))
        self.assertEqual(self.told(), [(REGISTER, "P", "c1", True)])
        client, = self.table.producers["P"].values()
        self.assertEqual(client.last_heartbeat_ms, NOW_MS + 5)

    def test_the_group_goes_with_its_last_member(self) -> None:
        """The group is removed with its last member."""
        for number in (1, 2):
            self.table.register_producer("P", self.client(number))
        self.told()
        self.table.unregister_producer("P", self.peers[0])
        self.assertEqual(self.told(), [(GONE, "P", "c1", True)])
        self.table.unregister_producer("P", self.peers[1])
        self.assertEqual(self.told(), [(GONE, "P", "c2", True), (UNREGISTER, "P", None, True)])
        self.assertNotIn("P", self.table.producers)

    def test_available_producer(self) -> None:
        """Live members of the group are returned in turn."""
        self.assertIsNone(self.table.available_producer("P"))
        for number in (1, 2, 3):
            self.table.register_producer("P", self.client(number))
        found = [self.table.available_producer("P") for _ in range(6)]
        self.assertEqual(sorted(client.client_id for client in found if client),
                         ["c1", "c1", "c2", "c2", "c3", "c3"])
        self.peers[0].active = self.peers[2].active = False
        client = self.table.available_producer("P")
        assert client is not None
        self.assertEqual(client.client_id, "c2")
        self.peers[1].active = False
        self.assertIsNone(self.table.available_producer("P"))

    def test_available_producer_that_may_be_asked(self) -> None:
        """Those that may be asked are returned in turn; no more are checked than necessary."""
        for number in (1, 2, 3):
            self.table.register_producer("P", self.client(number))
        asked: list[str] = []

        def is_odd(client: Client) -> bool:
            asked.append(client.client_id)
            return client.client_id != "c2"

        found = [self.table.available_producer("P", is_odd) for _ in range(8)]
        self.assertEqual({client.client_id for client in found if client}, {"c1", "c3"})
        self.assertLessEqual(len(asked), 12)
        self.assertIsNone(self.table.available_producer("P", lambda client: False))


class ExpiryTests(TableCase):
    """Clients that are silent for too long."""

    def test_a_silent_client_is_removed_and_its_connection_closed(self) -> None:
        """A client that is silent for longer than the limit is removed and disconnected."""
        self.beat(1, "G", at_ms=NOW_MS)
        self.beat(2, "G", at_ms=NOW_MS + 1)
        self.table.register_producer("P", self.client(3, at_ms=NOW_MS))
        self.told()
        self.table.expire(NOW_MS + 120_000, 120_000)
        self.assertEqual(self.told(), [])
        self.table.expire(NOW_MS + 120_001, 120_000)
        self.assertEqual(self.told(), [
            (GONE, "P", "c3", True), (UNREGISTER, "P", None, True),
            (GONE, "G", "c1", True), (CHANGE, "G", None, True)])
        self.assertEqual([peer.active for peer in self.peers], [False, True, False])

    def test_client_of_two_groups(self) -> None:
        """A client that is silent for one group leaves only that group."""
        self.beat(1, "G", at_ms=NOW_MS)
        self.beat(1, "H", at_ms=NOW_MS + 60_000)
        self.table.expire(NOW_MS + 130_000, 120_000)
        self.assertEqual(list(self.table.consumers), ["H"])

    def test_connections_that_go_meanwhile(self) -> None:
        """A listener may close connections that the scan has yet to examine."""
        def lose_third(change: ClientChange) -> None:
            if change.kind is GONE:
                table.connection_lost(self.peers[2])

        table = ClientTable(lose_third)
        for number in (1, 2, 3):
            table.register_producer("P", self.client(number, at_ms=NOW_MS))
        table.expire(NOW_MS + 120_001, 120_000)
        self.assertEqual(table.producers, {})


class ProducerIdTests(TableCase):
    """Producers by their client id."""

    def found(self, client_id: str = "c") -> Peer | None:
        client = self.table.find_producer(client_id)
        return None if client is None else cast(Peer, client.channel)

    def test_leaving_one_group_of_two(self) -> None:
        """A client is known as long as one of its groups has it."""
        for group in ("P", "Q"):
            self.table.register_producer(group, self.client(1, "c"))
        self.table.unregister_producer("P", self.peers[0])
        self.assertIs(self.found(), self.peers[0])
        self.table.unregister_producer("Q", self.peers[0])
        self.assertIsNone(self.found())

    def test_newest_live_connection(self) -> None:
        """A client that connects again is found there, and at its old connection if the new one
        ends.
        """
        self.table.register_producer("P", self.client(1, "c"))
        self.table.register_producer("P", self.client(2, "c"))
        self.assertIs(self.found(), self.peers[1])
        self.peers[1].active = False
        self.assertIs(self.found(), self.peers[0])
        self.table.connection_lost(self.peers[0])
        self.assertIsNone(self.found())

    def test_another_id_on_the_same_connection(self) -> None:
        """The old id is forgotten; the connection of one that is silent for long is too."""
        self.table.register_producer("P", self.client(1, "old"))
        self.table.register_producer("P", self.client(1, "c"))
        self.assertIsNone(self.found("old"))
        self.assertIs(self.found(), self.peers[0])
        self.table.expire(NOW_MS + 120_001, 120_000)
        self.assertIsNone(self.found())


class LogTests(TableCase):
    """Clients that connect and leave, however often, do not fill the log."""

    def lines(self, words: str, events: Sequence[LogEvent]) -> int:
        return len([event for event in events if words in str(event.get("log_format"))])

    def test_new_groups_and_lost_connections(self) -> None:
        """A connection with a new group in each heartbeat, and connections that are lost."""
        with capturedLogs() as events:
            for number in range(200):
                self.beat(1, f"G{number}")
                self.table.log_new(self.client(1), number)
            for number in range(200):
                self.beat(2, f"G{number}")
                self.table.connection_lost(self.peers[1])
        self.assertEqual([self.lines(words, events) for words in ("connected", "is gone")],
                         [EVENTS_A_MINUTE] * 2)

    def test_silence(self) -> None:
        """A silent connection is a member of many groups."""
        for number in range(50):
            self.beat(1, f"G{number}")
        with capturedLogs() as events:
            self.table.expire(NOW_MS + 10_001, 10_000)
        self.assertEqual(self.lines("no heartbeat", events), LINES_A_MINUTE)
        self.assertEqual(self.table.consumers, {})

    def test_ids_of_others(self) -> None:
        """An account claims in many groups to be another client."""
        self.table.register_producer("P", self.client(1))
        stranger = replace(self.client(2, "c1"), owner=("other",))
        with capturedLogs() as events:
            for number in range(50):
                self.table.register_producer(f"P{number}", stranger)
        self.assertEqual(self.lines("another account", events), LINES_A_MINUTE)
