"""Two of our brokers over real sockets: tables, returned offsets, and a promotion."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.plugins.ha.pair import LOCAL, LoneBroker, lone_broker, wait_until, within
from twistmq.broker.client.name_servers import Registered
from twistmq.broker.testing import RawClient, running_broker
from twistmq.broker.testing.raw_client import pull_header, send_header
from twistmq.plugins import timer
from twistmq.protocol.bodies import (
    DataVersion,
    RegisterBrokerBody,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.namesrv import RegisterBrokerRequestHeader
from twistmq.protocol.headers.pop import PopMessageRequestHeader
from twistmq.protocol.headers.send import SendMessageResponseHeader
from twistmq.protocol.headers.transaction import EndTransactionRequestHeader
from twistmq.protocol.message_id import parse_offset_message_id
from twistmq.protocol.record import (
    SYS_TRANSACTION_COMMIT,
    SYS_TRANSACTION_PREPARED,
    records_of,
)
from twistmq.tools.admin.roles import promote_slave
from twistmq.tools.admin.session import Session


class PairCase(SynchronousTestCase):
    """A name server, and brokers of the name "pair"."""

    def setUp(self) -> None:
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.folder = Path(self.mktemp())
        # Its broker has another name: the name server outlives the brokers of the pair.
        self.names = self.stack.enter_context(running_broker(
            {**LOCAL, "brokerName": "beside"}, data=self.folder / "beside")).namesrv_address
        self.masters = ExitStack()
        self.stack.enter_context(self.masters)

    def start_master(self) -> LoneBroker:
        return self.masters.enter_context(lone_broker(
            self.folder / "master", {"namesrvAddr": self.names, "timerPrecisionMs": "100"}))

    def start_slave(self, **settings: str) -> LoneBroker:
        slave = self.stack.enter_context(lone_broker(self.folder / "slave", {
            "namesrvAddr": self.names, "brokerRole": "SLAVE", "brokerId": "1",
            "slaveReadEnable": "true", "timerPrecisionMs": "100", **settings}))
        wait_until(lambda: slave.plugin.follower.is_connected, "the slave is connected")
        return slave

    def caught_up(self, slave: LoneBroker, master: LoneBroker) -> None:
        wait_until(lambda: slave.end == master.end
                   and not slave.kernel.store.dispatch.behind_bytes, "the slave has all")

    def bodies(self, broker: LoneBroker, topic: str = "T", queue_id: int = 0) -> list[bytes]:
        """Return all messages of a queue."""
        store, found, offset = broker.kernel.store, [], 0
        while True:
            messages = broker.thread.call(
                store.get_message, topic, queue_id, offset, 32).messages
            if not messages:
                return found
            found += [record.body for data in messages for record in records_of(data)]
            offset += len(messages)


class TableTests(PairCase):
    """A change on the master is on the slave in five seconds."""

    def test_tables_follow_within_five_seconds(self) -> None:
        """Topics and groups, with their versions, and offsets."""
        master = self.start_master()
        slave = self.start_slave()
        ours, theirs = slave.kernel, master.kernel

        def change() -> None:
            theirs.topic_config.update(TopicConfig("New", 3, 3), {})
            theirs.subscription_group.update(SubscriptionGroupConfig("g", retry_max_times=3), {})
            theirs.consumer_offset.commit("peer", "g", "New", 0, 0)

        master.thread.call(change)
        within(5, lambda: (
            "New@g" in ours.consumer_offset.table
            and ours.topic_config.data_version == theirs.topic_config.data_version
            and ours.subscription_group.data_version == theirs.subscription_group.data_version),
            "the tables are copied")
        self.assertEqual(ours.topic_config.table["New"], theirs.topic_config.table["New"])


    def test_a_topic_that_is_made_again_begins_at_0_on_the_slave(self) -> None:
        """The queues on the slave have the same messages as on the master."""
        master = self.start_master()
        slave = self.start_slave()
        with master.client() as client:
            for number in range(5):
                client.send("T", b"old %d" % number)
            self.caught_up(slave, master)
            master.thread.call(master.kernel.tables.delete_topic, "T")
            for number in range(2):
                client.send("T", b"new %d" % number)
        self.caught_up(slave, master)
        self.assertEqual(self.bodies(slave), [b"new 0", b"new 1"])
        self.assertEqual(self.bodies(slave), self.bodies(master))


class ReturnTests(PairCase):
    """The master is killed and returns."""

    def test_consumers_go_on_with_the_slave_and_lose_no_place(self) -> None:
        """Consumers read and commit there; the master takes their offsets before it is routable."""
        master = self.start_master()
        slave = self.start_slave()
        with master.client() as client:
            for number in range(10):
                client.send("T", b"%d" % number)
        self.caught_up(slave, master)
        wait_until(lambda: "T" in slave.kernel.topic_config.table, "the topic is copied")
        self.masters.close()
        with slave.client() as client:
            reply = client.request(RequestCode.PULL_MESSAGE, pull_header("T", queue_id=0, offset=0))
            self.assertEqual(reply.code, ResponseCode.SUCCESS)
            self.assertEqual(len(list(records_of(reply.body))), 10)
        slave.thread.call(slave.kernel.consumer_offset.commit, "peer", "g", "T", 0, 7)
        again = self.start_master()
        self.assertEqual(again.kernel.consumer_offset.query("g", "T", 0), 7)
        self.assertEqual(again.kernel.role, "ASYNC_MASTER")


class StrangerTests(PairCase):
    """Another broker is registered under the name of the pair, by whoever reaches the name server.
    """

    def test_the_slave_takes_nothing_and_the_master_starts_again(self) -> None:
        """Log and tables are the real master's all the time."""
        master = self.start_master()
        slave = self.start_slave()
        with master.client() as client:
            client.send("T", b"real")
        self.caught_up(slave, master)
        wait_until(lambda: "T" in slave.kernel.topic_config.table, "the topic is copied")
        stranger = self.stack.enter_context(lone_broker(
            self.folder / "stranger", {"brokerName": "stranger"}))
        with stranger.client() as client:
            for _ in range(5):
                client.send("Evil", b"evil" * 100)
        version = DataVersion(2**40, 2**40, 2**40)

        def register() -> None:
            header = RegisterBrokerRequestHeader(
                "pair", stranger.address, "DefaultCluster",
                stranger.kernel.identity.ha_address, 0)
            body = RegisterBrokerBody(TopicConfigSerializeWrapper({}, version)).encode()
            with RawClient(self.names) as client:
                self.assertEqual(
                    client.request(RequestCode.REGISTER_BROKER, header, body).code, 0)

        def tell() -> None:
            """Notify the slave of its master, as the response to its next registration would do."""
            register()
            slave.thread.call(slave.kernel.registered, [
                Registered(stranger.address, stranger.kernel.identity.ha_address, {})])

        tell()
        self.assertEqual(slave.plugin.master.requests, stranger.address)
        with master.client() as client:
            client.send("New", b"real")
        wait_until(lambda: "New" in slave.kernel.topic_config.table, "tables are copied")
        self.assertNotIn("Evil", slave.kernel.topic_config.table)
        self.assertEqual(slave.plugin.follower.source, master.address)
        self.masters.close()
        wait_until(lambda: not slave.plugin.follower.is_connected, "the master is gone")
        tell()
        wait_until(lambda: slave.plugin.follower.differs, "the slave looked at the stranger")
        register()
        self.assertEqual(self.start_master().kernel.role, "ASYNC_MASTER")
        self.assertNotIn("Evil", slave.kernel.topic_config.table)
        self.assertEqual(self.bodies(slave), [b"real"])
        self.assertEqual(stranger.plugin.slaves.links, [])


class PromotionTests(PairCase):
    """The master is lost, and its slave is promoted."""

    def test_delayed_and_timed_messages_come_once(self) -> None:
        """Messages that were delivered before do not arrive again, and none is lost."""
        master = self.start_master()
        slave = self.start_slave()
        with master.client() as client:
            for number in range(40):
                client.send("T", b"timed %d" % number,
                            properties={"TIMER_DELAY_MS": str(1000 + 200 * number)})
            for number in range(5):
                client.send("T", b"early %d" % number, properties={"DELAY": "1"})
            for number in range(5):
                client.send("T", b"late %d" % number, properties={"DELAY": "2"})
        wait_until(lambda: len(self.bodies(master)) > 8, "some have come")
        self.caught_up(slave, master)
        # Deliveries since the last copy come twice, so that none is lost.
        copied_ms = slave.plugin.tables.ages_ms
        wait_until(lambda: "timer check point" in copied_ms(), "the check point is copied")
        self.masters.close()
        before = self.bodies(slave)
        with Session(self.names) as session:
            steps = [row[2] for row in promote_slave(
                session, broker=slave.kernel.broker_address, switch=False, force=False,
                dry=False)]
        self.assertEqual(steps, ["check", "become master", "verify"])
        wait_until(lambda: len(set(self.bodies(slave))) == 50, "all have come")
        timers = slave.kernel.hooks.find(timer.Plugin)
        assert timers is not None and timers.service is not None
        wheel = timers.service.wheel
        wait_until(lambda: not wheel.count, "no timed message waits")
        bodies = self.bodies(slave)
        self.assertEqual(len(set(bodies)), 50)
        self.assertTrue(8 < len(before) < 50)
        # Timed messages of two copies, on a machine that is busy.
        self.assertLessEqual(len(bodies) - 50, 5)
        with slave.client() as client:
            client.send("T", b"new")
        self.assertIn(b"new", self.bodies(slave))

    def test_transactions_and_pops_go_on(self) -> None:
        """The new master ends the half message; popped messages without an ack are
        delivered again.
        """
        master = self.start_master()
        slave = self.start_slave()
        now_ms = master.kernel.now_ms()
        with master.client() as client:
            header = send_header("T", now_ms, queue_id=0, properties={
                "TRAN_MSG": "true", "PGROUP": "p", "UNIQ_KEY": "u"})
            header.sys_flag = SYS_TRANSACTION_PREPARED
            half = client.request(RequestCode.SEND_MESSAGE_V2, header, b"half").header(
                SendMessageResponseHeader)
            client.send("P", b"popped")
            pop = PopMessageRequestHeader(
                consumer_group="g", topic="P", queue_id=0, max_msg_nums=8, invisible_time=2000,
                poll_time=0, born_time=now_ms, init_mode=1, exp_type="TAG", exp="*", order=False)
            self.assertEqual(client.request(RequestCode.POP_MESSAGE, pop).code,
                             ResponseCode.SUCCESS)
        self.caught_up(slave, master)
        wait_until(lambda: "P" in slave.kernel.topic_config.table, "the topic is copied")
        self.masters.close()
        with Session(self.names) as session:
            list(promote_slave(session, broker=slave.kernel.broker_address, switch=False,
                               force=False, dry=False))
        with slave.client() as client:
            reply = client.request(RequestCode.END_TRANSACTION, EndTransactionRequestHeader(
                producer_group="p", tran_state_table_offset=half.queue_offset,
                commit_log_offset=parse_offset_message_id(half.msg_id)[2],
                commit_or_rollback=SYS_TRANSACTION_COMMIT, msg_id=half.msg_id))
            self.assertEqual((reply.code, reply.remark), (ResponseCode.SUCCESS, None))
            self.assertEqual(self.bodies(slave), [b"half"])

            def comes() -> bool:
                pop.born_time = slave.kernel.now_ms()
                return b"popped" in client.request(RequestCode.POP_MESSAGE, pop).body

            wait_until(comes, "the popped message comes again")

    def test_master_and_slave_change_places(self) -> None:
        """The new master continues where the old one was, and the old one follows it."""
        master = self.start_master()
        slave = self.start_slave()
        with master.client() as client:
            for number in range(20):
                client.send("T", b"%d" % number,
                            properties={"TIMER_DELAY_MS": str(1000 + 200 * number)})
        wait_until(lambda: len(self.bodies(master)) > 2, "some have come")
        with Session(self.names) as session:
            steps = [row[2] for row in promote_slave(
                session, broker=slave.kernel.broker_address, switch=True, force=False,
                dry=False)]
        self.assertEqual(steps, ["check", "check", "become slave", "catch up", "become master",
                                 "verify"])
        with slave.client() as client:
            client.send("T", b"new")
        wait_until(lambda: len(set(self.bodies(slave))) == 21, "all have come")
        self.caught_up(master, slave)
        self.assertEqual(self.bodies(master), self.bodies(slave))
        self.assertEqual((master.kernel.role, slave.kernel.role), ("SLAVE", "ASYNC_MASTER"))
        self.assertLessEqual(len(self.bodies(slave)), 23)
