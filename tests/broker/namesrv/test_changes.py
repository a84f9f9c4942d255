"""Registrations that take long, and the requests that arrive meanwhile."""

from __future__ import annotations

from itertools import pairwise

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.constants import ROUTE_ROW_BYTES
from twistmq.broker.namesrv import changes
from twistmq.broker.remoting.messages import Handled, Reply
from twistmq.broker.scheduling.scheduler import IDLE_PERIOD_MS
from twistmq.broker.testing.name_server import PortlessNameServer, StillChannel
from twistmq.protocol.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import BrokerError, RequestRefused
from twistmq.protocol.headers.namesrv import (
    BrokerHeartbeatRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetRouteInfoRequestHeader,
    RegisterBrokerRequestHeader,
    UnRegisterBrokerRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)

ADDRESS = "10.0.0.1:10911"
#: Topics of a registration that takes many turns, and turns that none here takes.
MANY = 5000
STEPS_MAX = 1000


class ChangesCase(SynchronousTestCase):
    """A name server in which each reading of the clock takes a millisecond."""

    def setUp(self) -> None:
        self.looks = 0
        self.server = PortlessNameServer(
            {"deleteTopicWithBrokerRegistration": "true"}, clock=self.look)
        self.tables = self.server.routes.tables
        self.channel = StillChannel()

    def look(self) -> int:
        self.looks += 1
        return self.looks

    def step(self) -> None:
        self.server.background.step(self.looks)

    def register(
        self, count: int, counter: int = 1, *, name: str = "a", address: str = ADDRESS,
        prefix: str = "T", compressed: bool = False, channel: StillChannel | None = None,
        broker_id: int = 0, acting: bool | None = None,
    ) -> Handled:
        """Register a broker with a number of topics."""
        body = self.body(count, counter, prefix)
        return self.server.handle(
            RequestCode.REGISTER_BROKER,
            RegisterBrokerRequestHeader(
                broker_name=name, broker_addr=address, cluster_name="C", ha_server_addr="h",
                broker_id=broker_id, compressed=compressed, enable_acting_master=acting),
            body.encode(compressed),
            channel=channel or self.channel)

    @staticmethod
    def body(count: int, counter: int = 1, prefix: str = "T") -> RegisterBrokerBody:
        """Return the body of a registration."""
        topics = {f"{prefix}{number}": TopicConfig(f"{prefix}{number}", 4, 4)
                  for number in range(count)}
        return RegisterBrokerBody(TopicConfigSerializeWrapper(topics, DataVersion(0, 0, counter)))

    def reply(self, answer: Handled) -> Reply:
        """Run turns until a response exists."""
        if isinstance(answer, Reply):
            return answer
        assert isinstance(answer, Deferred)
        found: list[Reply] = []
        failed: list[BrokerError] = []
        answer.addCallbacks(found.append, lambda failure: failed.append(failure.value))
        for _ in range(STEPS_MAX):
            if found or failed:
                break
            self.step()
        return found[0] if found else Reply(failed[0].response_code, remark=str(failed[0]))

    def finish(self) -> None:
        """Run turns until no work remains."""
        for _ in range(STEPS_MAX):
            if self.server.background.period_ms() == IDLE_PERIOD_MS:
                return
            self.step()
        self.fail("it does not end")

    def unregister(self) -> Handled:
        return self.server.handle(RequestCode.UNREGISTER_BROKER, UnRegisterBrokerRequestHeader(
            broker_name="a", broker_addr=ADDRESS, cluster_name="C", broker_id=0))


class TurnTests(ChangesCase):
    """The work of one turn, and the other clients that are served in between."""

    def test_a_turn_takes_at_most_four_parts_of_the_topics(self) -> None:
        """A turn registers at most four parts of the topics; routes are served in between."""
        for compressed in (False, True):
            answer = self.register(MANY, 1 + compressed, compressed=compressed,
                                   prefix=f"T{compressed:d}-")
            self.assertIsInstance(answer, Deferred)
            done: list[Handled] = []
            assert isinstance(answer, Deferred)
            answer.addCallback(done.append)
            sizes = [len(self.tables.topics)]
            while not done:
                self.step()
                sizes.append(len(self.tables.topics))
                self.assertLess(len(sizes), STEPS_MAX)
                # Who asks is answered, whatever is there already.
                self.server.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC,
                                GetRouteInfoRequestHeader(topic="T0"))
                self.server.ask(RequestCode.BROKER_HEARTBEAT, BrokerHeartbeatRequestHeader(
                    broker_name="a", broker_addr=ADDRESS, cluster_name="C"))
            self.assertLessEqual(
                max(abs(after - before) for before, after in pairwise(sizes)),
                4 * 256)
            # Those that are gone leave in turns as well.
            self.assertGreater(len(sizes), 2 * MANY // (4 * 256))
            self.assertEqual(set(self.tables.topics),
                             {f"T{compressed:d}-{number}" for number in range(MANY)})

    def test_a_broker_with_some_topics_is_answered_in_its_own_turn(self) -> None:
        """The response follows in the same turn."""
        self.assertIsInstance(self.register(200), Reply)
        self.assertEqual(len(self.tables.topics), 200)


class OrderTests(ChangesCase):
    """Of two changes the later one counts."""

    def test_two_registrations(self) -> None:
        """The second one's topics count, however short it is."""
        first, second = self.register(MANY), self.register(3, 2, prefix="U")
        self.assertEqual([self.reply(each).code for each in (second, first)], [0, 0])
        self.assertEqual(set(self.tables.topics), {"U0", "U1", "U2"})
        version = self.server.routes.data_version("C", ADDRESS, "a")
        assert version is not None
        self.assertEqual(version.counter, 2)

    def test_a_broker_that_goes_is_gone(self) -> None:
        """A broker that unregisters is removed, and one that registers again is present."""
        answers = [self.register(MANY), self.unregister()]
        self.assertEqual([self.reply(each).code for each in answers], [0, 0])
        self.finish()
        self.assertEqual((self.tables.topics, self.tables.live, self.tables.brokers), ({}, {}, {}))
        answers = [self.register(MANY), self.unregister(), self.register(MANY)]
        self.assertEqual([self.reply(each).code for each in answers], [0, 0, 0])
        self.assertEqual((len(self.tables.topics), len(self.tables.live)), (MANY, 1))

    def test_a_topic_that_is_deleted_stays_so(self) -> None:
        """A deleted topic stays deleted, and all topics lose a permission."""
        self.register(MANY)
        last = f"T{MANY - 1}"
        deleted = self.server.handle(
            RequestCode.DELETE_TOPIC_IN_NAMESRV,
            DeleteTopicFromNamesrvRequestHeader(topic=last))
        wiped = self.server.handle(
            RequestCode.WIPE_WRITE_PERM_OF_BROKER,
            WipeWritePermOfBrokerRequestHeader(broker_name="a"))
        header = self.reply(wiped).header
        assert isinstance(header, WipeWritePermOfBrokerResponseHeader)
        self.assertEqual(header.wipe_topic_count, MANY - 1)
        self.assertEqual(self.reply(deleted).code, ResponseCode.SUCCESS)
        self.assertNotIn(last, self.tables.topics)
        self.assertEqual({queues["a"].perm for queues in self.tables.topics.values()}, {4})

    def test_others_wait_and_come(self) -> None:
        """Another broker's registration is done behind it."""
        first, second = self.register(MANY), self.register(2, name="b", address="10.0.0.2:1",
                                                           prefix="U")
        self.assertIsInstance(second, Deferred)
        self.assertEqual([self.reply(each).code for each in (first, second)], [0, 0])
        self.assertEqual(len(self.tables.topics), MANY + 2)
        self.assertIsInstance(self.register(2, 2, name="b", address="10.0.0.2:1"), Reply)

    def test_one_that_sends_many(self) -> None:
        """A connection waits for one change of each other one; its own changes keep their order."""
        self.register(MANY)
        done: list[str] = []

        def note(answer: Handled, who: str) -> None:
            assert isinstance(answer, Deferred)
            answer.addCallback(lambda _: done.append(who))

        wipe = WipeWritePermOfBrokerRequestHeader(broker_name="a")
        for number in range(50):
            note(self.server.handle(RequestCode.WIPE_WRITE_PERM_OF_BROKER, wipe,
                                    channel=self.channel), f"many {number}")
        note(self.register(2, name="b", address="10.0.0.2:1", prefix="U",
                           channel=StillChannel()), "one")
        self.finish()
        self.assertEqual(done.index("one"), 1)
        done.remove("one")
        self.assertEqual(done, [f"many {number}" for number in range(50)])

    def test_many_connections(self) -> None:
        """Another host waits for one change of theirs, however many they are."""
        self.register(MANY)
        done: list[str] = []
        wipe = WipeWritePermOfBrokerRequestHeader(broker_name="a")
        for number, host in enumerate(["10.0.0.9"] * 50 + ["[::ffff:10.0.0.9]", "10.0.0.7"]):
            channel = StillChannel()
            channel.remote_address = f"{host}:{number}"
            answer = self.server.handle(
                RequestCode.WIPE_WRITE_PERM_OF_BROKER, wipe, channel=channel)
            assert isinstance(answer, Deferred)
            answer.addCallback(lambda _, address=channel.remote_address: done.append(address))
        self.finish()
        self.assertEqual(done[:2], ["10.0.0.9:0", "10.0.0.7:51"])
        self.assertEqual(len(done), 52)

    def test_refused_later(self) -> None:
        """A body that cannot be read fails only its own request."""
        first = self.register(MANY)
        wrong = self.server.handle(
            RequestCode.REGISTER_BROKER,
            RegisterBrokerRequestHeader(
                broker_name="b", broker_addr="10.0.0.2:1", cluster_name="C", ha_server_addr="h",
                broker_id=0), b"{", channel=self.channel)
        self.assertEqual(self.reply(wrong).code, ResponseCode.SYSTEM_ERROR)
        self.assertEqual(self.reply(first).code, ResponseCode.SUCCESS)


class LostTests(ChangesCase):
    """A broker that is lost during its registration."""

    def lose(self) -> None:
        self.channel.active = False
        self.server.connection_lost(self.channel)

    def test_at_every_turn(self) -> None:
        """Nothing of it remains, at whatever turn it is lost."""
        turns = 0
        while True:
            answer = self.register(MANY, channel=self.channel)
            done: list[object] = []
            assert isinstance(answer, Deferred)
            answer.addBoth(done.append)
            for _ in range(turns):
                self.step()
            was_done = bool(done)
            self.lose()
            for _ in range(STEPS_MAX):
                if done:
                    break
                self.step()
            self.assertEqual(len(done), 1)
            self.finish()
            self.assertEqual(
                (self.tables.topics, self.tables.live, self.tables.brokers, self.tables.clusters),
                ({}, {}, {}, {}))
            if was_done:
                break
            turns += 1
            self.channel = StillChannel()
        self.assertGreater(turns, MANY // (4 * 256))

    def test_nothing_waits(self) -> None:
        """Waiting registrations are dropped with their connection; other changes remain."""
        self.register(MANY)
        lost = StillChannel()
        answers = [self.register(MANY, name=f"l{number}", channel=lost) for number in range(20)]
        wiped = self.server.handle(
            RequestCode.WIPE_WRITE_PERM_OF_BROKER,
            WipeWritePermOfBrokerRequestHeader(broker_name="a"), channel=lost)
        lost.active = False
        self.server.connection_lost(lost)
        for each in answers:
            assert isinstance(each, Deferred)
            self.failureResultOf(each, RequestRefused)
        self.assertEqual(self.reply(wiped).code, ResponseCode.SUCCESS)
        self.assertEqual(len(self.tables.topics), MANY)

    def test_bytes_that_wait(self) -> None:
        """Each host has half of what the others left; a single or small change always waits."""
        self.patch(changes, "CHANGES_BYTES_FREE", 1000)
        first = self.register(MANY)
        size = len(self.body(MANY).encode(False))
        self.patch(changes, "CHANGES_BYTES_MAX", 6 * size + 10)
        own = [self.register(MANY, name=f"o{number}") for number in range(2)]
        for _ in range(2):
            refused = self.assertRaises(RequestRefused, self.register, MANY, name="more")
            self.assertEqual(refused.response_code, ResponseCode.SYSTEM_BUSY)
        small = self.register(2, name="small")
        other = StillChannel()
        other.remote_address = "10.0.0.9:4000"
        theirs = self.register(MANY, name="b", address="10.0.0.9:10911", channel=other)
        self.assertRaises(RequestRefused, self.register, MANY, name="c", address="10.0.0.9:10912",
                          channel=other)
        for each in (first, *own, small, theirs):
            self.assertEqual(self.reply(each).code, ResponseCode.SUCCESS)
        again = self.register(MANY, name="more")
        self.assertEqual(self.reply(again).code, ResponseCode.SUCCESS)

    def test_nothing_is_read(self) -> None:
        """It is not executed, and takes no time from others."""
        first = self.register(MANY)
        self.lose()
        lost = StillChannel()
        answers = [self.register(MANY, name=f"l{number}", channel=lost) for number in range(20)]
        for each in (first, *answers):
            assert isinstance(each, Deferred)
            each.addErrback(lambda _: None)
        lost.active = False
        begin = self.looks
        self.finish()
        self.assertLess(self.looks - begin, 60)
        self.assertEqual(self.tables.live, {})

    def test_leaves_in_turns(self) -> None:
        """Its topics have no route immediately; the tables are cleaned in parts."""
        self.assertEqual(self.reply(self.register(MANY)).code, ResponseCode.SUCCESS)
        self.register(3, name="b", address="10.0.0.2:1", channel=StillChannel())
        self.lose()
        sizes = [len(self.tables.topics)]
        self.assertGreater(sizes[0], MANY // 2)
        while self.server.background.period_ms() != IDLE_PERIOD_MS:
            gone = ResponseCode.TOPIC_NOT_EXIST
            for topic, code in (
                ("T0", ResponseCode.SUCCESS), ("T10", gone), (f"T{MANY - 1}", gone),
            ):
                self.assertEqual(self.server.ask(
                    RequestCode.GET_ROUTEINFO_BY_TOPIC,
                    GetRouteInfoRequestHeader(topic=topic)).code, code, msg=topic)
            self.step()
            sizes.append(len(self.tables.topics))
        self.assertLessEqual(max(before - after for before, after in pairwise(sizes)), 4 * 256)
        self.assertEqual(set(self.tables.topics), {"T0", "T1", "T2"})
        self.assertEqual(self.tables.room.used_bytes("a"), 0)

    def test_back_before_it_is_dropped(self) -> None:
        """A registration that waited before the connection was lost counts with all its topics."""
        self.assertEqual(self.reply(self.register(MANY)).code, ResponseCode.SUCCESS)
        long = self.register(MANY, name="b", address="10.0.0.2:1", prefix="U",
                             channel=StillChannel())
        again = self.register(MANY - 7, 2, channel=StillChannel())
        self.lose()
        self.assertEqual([self.reply(each).code for each in (long, again)], [0, 0])
        self.finish()
        self.assertEqual(set(self.tables.queues_of("a")), {f"T{n}" for n in range(MANY - 7)})
        self.assertEqual(len(self.tables.topics), 2 * MANY - 7)
        self.assertEqual(self.tables.room.used_bytes("a"),
                         sum(ROUTE_ROW_BYTES + len(f"T{n}") for n in range(MANY - 7)))

    def test_a_slave_alone_loses_write_permission_in_turns(self) -> None:
        """A slave keeps the permission if its master is back in time."""
        self.register_master_and_slave()
        self.lose()
        self.assertEqual({each.perm for each in self.tables.queues_of("a").values()}, {4, 6})
        self.finish()
        self.assertEqual({each.perm for each in self.tables.queues_of("a").values()}, {4})
        self.channel = StillChannel()
        self.register_master_and_slave()
        long = self.register(MANY, name="b", address="10.0.0.2:1", prefix="U",
                             channel=StillChannel())
        again = self.register(MANY, 9, acting=True, channel=StillChannel())
        self.lose()
        self.assertEqual([self.reply(each).code for each in (long, again)], [0, 0])
        self.finish()
        self.assertEqual({each.perm for each in self.tables.queues_of("a").values()}, {6})

    def register_master_and_slave(self) -> None:
        """Register the master by ``channel``, and a slave."""
        slave = StillChannel()
        for answer in (self.register(MANY, self.looks, acting=True, channel=self.channel),
                       self.register(2, address="10.0.0.3:1", broker_id=1, acting=True,
                                     channel=slave)):
            self.assertEqual(self.reply(answer).code, ResponseCode.SUCCESS)

    def test_comes_again(self) -> None:
        """It has the data of its registration over a new connection."""
        first = self.register(MANY)
        while not self.tables.topics:
            self.step()
        self.lose()
        second = self.register(MANY, 2, prefix="U", channel=StillChannel())
        self.assertEqual(self.reply(first).code, ResponseCode.SYSTEM_ERROR)
        self.assertEqual(self.reply(second).code, ResponseCode.SUCCESS)
        self.assertEqual(set(self.tables.topics), {f"U{number}" for number in range(MANY)})
