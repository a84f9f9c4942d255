"""A slave that acts as master, and brokers that wait before they register."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted.logger import capturedLogs, formatEvent

from tests.kernel_case import run_task
from tests.plugins.ha.group_case import MASTER, SLAVE, GroupCase
from twistmq.broker.testing.kernel import KernelBox
from twistmq.broker.testing.raw_client import send_header
from twistmq.broker.testing.store import message
from twistmq.plugins import ha
from twistmq.plugins.ha.escape import EscapeBridge
from twistmq.plugins.ha.follower import Follower
from twistmq.plugins.ha.links import SlaveLink
from twistmq.plugins.ha.pre_online import has_pre_online
from twistmq.protocol.bodies import (
    BrokerData,
    BrokerMemberGroup,
    GetBrokerMemberGroupResponseBody,
    QueueData,
    TopicRouteData,
)
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.errors import BrokerError
from twistmq.protocol.header import CommandHeader
from twistmq.protocol.headers.admin import (
    ExchangeHAInfoRequestHeader,
    ExchangeHAInfoResponseHeader,
    NotifyMinBrokerIdChangeRequestHeader,
)
from twistmq.protocol.record import MessageRecord, records_of

LOOK, HEARTBEAT, ONLINE = (
    "query the brokers of the group", "send heartbeats to name servers", "come online")
OTHER = "127.0.0.1:10931"
MASTER_HA = "127.0.0.1:10912"
ACTING = {"enableSlaveActingMaster": "true", "totalReplicas": "2"}
HA_ADDRESS = {"brokerIP2": "127.0.0.1", "haListenPort": "10912"}


class ActingCase(GroupCase):
    """A master and a slave that may act for it; ``members`` are the brokers at the name servers."""

    master_settings: Mapping[str, str] = {**ACTING, "skipPreOnline": "true", **HA_ADDRESS}
    slave_settings: Mapping[str, str] = {**ACTING, "skipPreOnline": "true", "ha.master": ""}

    def setUp(self) -> None:
        super().setUp()
        self.told: list[tuple[int, Any, bytes, int]] = []
        self.asked_names: list[tuple[int, Any]] = []
        for box in (self.master, self.slave):
            box.host.find_route = self.find_route
            box.host.find_members = self.find_members
            box.host.ask_name_server = self.ask_name_server
            box.host.tell_name_servers = self.tell_name_servers

    def known(self) -> dict[int, str]:
        if isinstance(self.members, BrokerError):
            raise self.members
        return self.members

    async def find_route(self, topic: str) -> TopicRouteData | None:
        self.asked_names.append((RequestCode.GET_ROUTEINFO_BY_TOPIC, topic))
        name = self.master.kernel.broker_name
        if topic != f"rmq_sys_SYNC_BROKER_MEMBER_{name}" or not self.known():
            return None
        cluster = self.master.kernel.cluster_name
        return TopicRouteData(broker_datas=[
            BrokerData("other", name, {5: OTHER}), BrokerData(cluster, name, self.known())])

    async def ask_name_server(
        self, code: int, header: CommandHeader, *, timeout_ms: int
    ) -> RemotingCommand:
        self.asked_names.append((code, header))
        return RemotingCommand(0, body=GetBrokerMemberGroupResponseBody(BrokerMemberGroup(
            "C", "a", self.known())).encode())

    async def tell_name_servers(
        self, code: int, header: CommandHeader, body: bytes = b"", *, timeout_ms: int
    ) -> None:
        self.told.append((code, header, body, timeout_ms))

    @staticmethod
    def plugin(box: KernelBox) -> ha.Plugin:
        plugin = box.kernel.hooks.find(ha.Plugin)
        assert plugin is not None
        return plugin

    def look(self, members: dict[int, str], box: KernelBox | None = None) -> bool:
        """Let name servers know these members; :returns: whether the slave acts as master."""
        self.members = members
        box = box or self.slave
        run_task(box, LOOK)
        return box.kernel.identity.is_acting

    def notice(self, **fields: Any) -> None:
        reply = self.slave.ask(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE,
                               NotifyMinBrokerIdChangeRequestHeader(**fields))
        self.assertEqual(reply.code, 0)

    def exchange(self, box: KernelBox, **fields: Any) -> ExchangeHAInfoResponseHeader:
        reply = box.ask(RequestCode.EXCHANGE_BROKER_HA_INFO, ExchangeHAInfoRequestHeader(**fields))
        self.assertEqual((reply.code, reply.remark), (0, None))
        return reply.header(ExchangeHAInfoResponseHeader)

    def exchanges(self) -> list[str]:
        """Return the brokers that got a request EXCHANGE_BROKER_HA_INFO."""
        return [address for address, code in self.asked
                if code == RequestCode.EXCHANGE_BROKER_HA_INFO]

    def addresses(self) -> tuple[str, str]:
        """Return the addresses at which the slave expects its master."""
        master = self.plugin(self.slave).master
        return master.requests, master.replication


class LowestIdTests(ActingCase):
    """The slave with the lowest id acts as master."""

    def test_it_stands_in_while_it_has_the_lowest_id(self) -> None:
        """A broker with a lower id ends it; a missing group changes nothing."""
        self.assertFalse(self.look({0: MASTER, 1: SLAVE}))
        self.assertTrue(self.look({1: SLAVE, 2: OTHER}))
        self.assertTrue(self.look({}))
        self.assertFalse(self.look({0: MASTER, 1: SLAVE}))
        self.assertTrue(self.look({1: SLAVE}))

    def test_a_slave_that_has_not_the_lowest_id_does_not(self) -> None:
        """The slave acts as master after the other slave has left as well."""
        self.slave.stop()
        self.slave_settings = {**self.slave_settings, "brokerId": "2"}
        self.slave = self.start_slave()
        for lowest, address in ((1, OTHER), (2, SLAVE), (1, OTHER)):
            self.notice(min_broker_id=lowest, min_broker_addr=address)
            self.assertEqual(self.slave.kernel.identity.is_acting, lowest == 2)

    def test_name_servers_that_do_not_answer_change_nothing(self) -> None:
        """The failure is logged once."""
        self.look({1: SLAVE})
        with capturedLogs() as events:
            for _ in range(2):
                self.members = BrokerError("there are no name servers")
                run_task(self.slave, LOOK)
        self.assertTrue(self.slave.kernel.identity.is_acting)
        lines = [formatEvent(event) or "" for event in events]
        self.assertEqual(sum("do not report the brokers of the group" in line for line in lines), 1)

    def test_a_notice_is_as_good(self) -> None:
        """A notification names the brokers that left, and the address of a master that joined."""
        self.look({0: MASTER, 1: SLAVE})
        self.assertEqual(self.addresses(), (MASTER, MASTER_HA))
        self.notice(min_broker_id=1, min_broker_addr=SLAVE, offline_broker_addr=MASTER)
        self.assertTrue(self.slave.kernel.identity.is_acting)
        self.assertEqual(self.addresses(), ("", ""))
        self.asked.clear()
        self.notice(min_broker_id=0, min_broker_addr=OTHER, ha_broker_addr="127.0.0.1:10932")
        self.assertFalse(self.slave.kernel.identity.is_acting)
        self.assertEqual(self.addresses(), (OTHER, "127.0.0.1:10932"))
        self.assertEqual(self.exchanges(), [])

    def test_it_copies_no_table_meanwhile(self) -> None:
        """A master that returns takes the offsets of the slave before it is shown as master."""
        # Its log is followed all the time.
        self.patch(Follower, "source", MASTER)
        self.look({0: MASTER, 1: SLAVE})
        self.pass_time()
        self.look({1: SLAVE})
        self.plugin(self.slave).master.note_available(MASTER, MASTER_HA)
        self.asked.clear()
        self.pass_time()
        self.assertEqual(self.asked, [])
        self.look({0: MASTER, 1: SLAVE})
        self.pass_time()
        self.assertIn((MASTER, RequestCode.GET_ALL_CONSUMER_OFFSET), self.asked)

    def test_a_notice_without_an_id_changes_nothing(self) -> None:
        self.notice()
        self.assertFalse(self.slave.kernel.identity.is_acting)

    def test_a_master_that_came_is_asked_where_it_is_replicated_from(self) -> None:
        """The slave forgets the address of a master that left, and of no other broker."""
        self.look({0: MASTER, 1: SLAVE})
        self.assertEqual(self.exchanges(), [MASTER])
        self.look({2: OTHER})
        self.assertEqual(self.addresses(), ("", ""))
        self.look({0: MASTER})
        self.notice(min_broker_id=1, offline_broker_addr=OTHER)
        self.assertEqual(self.addresses(), (MASTER, MASTER_HA))

    def test_a_master_stands_in_for_no_broker(self) -> None:
        """A slave that became master, or a broker without the setting, does not act either."""
        self.assertFalse(self.look({0: MASTER}, self.master))
        self.look({1: SLAVE})
        self.slave.kernel.set_role("ASYNC_MASTER", 0)
        self.assertFalse(self.slave.kernel.identity.is_acting)
        self.slave.stop()
        self.slave_settings = {"ha.master": ""}
        self.slave = self.start_slave()
        self.notice(min_broker_id=1, min_broker_addr=SLAVE)
        self.assertFalse(self.slave.kernel.identity.is_acting)
        self.assertNotIn(LOOK, [task.name for task in self.slave.kernel.periodic_tasks])

    def test_registrations_say_so(self) -> None:
        """The registration says so, and has the time after which the broker counts as lost."""
        identity = self.slave.kernel.identity
        self.assertEqual((identity.enable_acting_master, identity.heartbeat_timeout_ms),
                         (True, 10_000))


class NameServerTests(ActingCase):
    """The requests to name servers of both kinds."""

    def test_those_before_5(self) -> None:
        """The group is the route of a topic, and asking for a version a sign of life."""
        self.look({1: SLAVE})
        self.assertEqual(self.asked_names, [
            (RequestCode.GET_ROUTEINFO_BY_TOPIC, "rmq_sys_SYNC_BROKER_MEMBER_"
             + self.slave.kernel.broker_name)])
        run_task(self.slave, HEARTBEAT)
        [(code, header, body, timeout_ms)] = self.told
        kernel = self.slave.kernel
        self.assertEqual((code, timeout_ms), (RequestCode.QUERY_DATA_VERSION, 1000))
        self.assertEqual((header.broker_name, header.broker_addr, header.cluster_name,
                          header.broker_id), (kernel.broker_name, SLAVE, kernel.cluster_name, 1))
        self.assertEqual(body, kernel.topic_config.data_version.encode())

    def test_those_of_5(self) -> None:
        """Name servers of 5.x have requests for both purposes."""
        self.slave.settings.put("compatibleWithOldNameSrv", False)
        self.assertTrue(self.look({1: SLAVE}))
        [(code, header)] = self.asked_names
        self.assertEqual((code, header.broker_name), (
            RequestCode.GET_BROKER_MEMBER_GROUP, self.slave.kernel.broker_name))
        run_task(self.slave, HEARTBEAT)
        [(code, header, body, timeout_ms)] = self.told
        kernel = self.slave.kernel
        self.assertEqual((code, body, timeout_ms), (RequestCode.BROKER_HEARTBEAT, b"", 1000))
        self.assertEqual((header.broker_name, header.broker_addr, header.cluster_name,
                          header.broker_id), (kernel.broker_name, SLAVE, kernel.cluster_name, 1))

    def test_how_often_they_are_sent(self) -> None:
        """The requests begin one second after the start, with the period of the settings."""
        tasks = {task.name: task for task in self.slave.kernel.periodic_tasks}
        for name, setting in ((HEARTBEAT, "brokerHeartbeatInterval"),
                              (LOOK, "syncBrokerMemberGroupPeriod")):
            task = tasks[name]
            assert callable(task.period_ms)
            self.assertEqual((task.first_ms, task.period_ms()), (1000, 1000))
            self.slave.settings.put(setting, 70)
            self.assertEqual(task.period_ms(), 70)

    def test_a_refusal_is_no_group(self) -> None:
        """A refusal, and a response without a group, change nothing."""
        async def refuse(code: int, header: CommandHeader, *, timeout_ms: int) -> RemotingCommand:
            return answers.pop()

        self.look({1: SLAVE})
        self.slave.settings.put("compatibleWithOldNameSrv", False)
        self.slave.host.ask_name_server = refuse
        for answer in (RemotingCommand(ResponseCode.REQUEST_CODE_NOT_SUPPORTED),
                       RemotingCommand(0, body=b"{}")):
            answers = [answer]
            run_task(self.slave, LOOK)
            self.assertEqual(answers, [])
        self.assertTrue(self.slave.kernel.identity.is_acting)


class ExchangeTests(ActingCase):
    """The request EXCHANGE_BROKER_HA_INFO (906)."""

    def test_a_master_says_where_it_is(self) -> None:
        """The response has the end of the log at the master's start."""
        self.send()
        end = self.master.kernel.store.commit_log.max_offset
        self.master.stop()
        self.master = self.start_master()
        self.send()
        found = self.exchange(self.master)
        self.assertEqual((found.master_address, found.master_ha_address, found.master_flush_offset),
                         (MASTER, MASTER_HA, end))
        self.assertEqual(self.exchange(self.slave), ExchangeHAInfoResponseHeader())

    def test_a_slave_follows_the_master_that_tells_it(self) -> None:
        """A master, and a broker without the setting, do not follow."""
        self.exchange(self.slave, master_address=OTHER, master_ha_address="127.0.0.1:10932",
                      master_flush_offset=0)
        self.assertEqual(self.addresses(), (OTHER, "127.0.0.1:10932"))
        self.exchange(self.master, master_address=OTHER, master_ha_address="127.0.0.1:10932")
        self.assertEqual(self.plugin(self.master).master.requests, "")
        self.slave.stop()
        self.slave_settings = {"ha.master": ""}
        self.slave = self.start_slave()
        self.exchange(self.slave, master_address=OTHER, master_ha_address="127.0.0.1:10932")
        self.assertEqual(self.addresses(), ("", ""))


class PreOnlineCase(ActingCase):
    """Brokers of a group of two, which start while name servers know ``members``."""

    master_settings: Mapping[str, str] = {**ACTING, **HA_ADDRESS}
    slave_settings: Mapping[str, str] = {**ACTING, "ha.master": ""}

    def _joined(self, box: KernelBox, address: str) -> KernelBox:
        self.assertTrue(box.kernel.identity.registers, "there are no name servers")
        box.host.has_name_servers = True
        box.kernel.identity.registers = False
        return super()._joined(box, address)

    def online(self, box: KernelBox) -> bool:
        """Continue; :returns: whether the broker registers."""
        run_task(box, ONLINE)
        return box.kernel.identity.registers


class SlaveOnlineTests(PreOnlineCase):
    """A slave waits until it follows its master."""

    def test_it_asks_its_master_and_waits(self) -> None:
        """The reason is logged once; heartbeats wait too, and no lowest id counts."""
        self.members = {0: MASTER}
        with capturedLogs() as events:
            self.assertFalse(self.online(self.slave))
            self.assertFalse(self.online(self.slave))
        self.assertEqual(self.addresses(), (MASTER, MASTER_HA))
        said = [formatEvent(event) for event in events]
        self.assertEqual(said.count(
            f"this broker does not register yet: it is not connected to its master, {MASTER}"), 1)
        run_task(self.slave, HEARTBEAT)
        self.assertEqual(self.told, [])
        self.assertFalse(self.look({1: SLAVE}))
        follower = self.plugin(self.slave).follower
        follower.link = object()  # type: ignore[assignment]
        self.assertTrue(self.online(self.slave))
        follower.link = None
        run_task(self.slave, HEARTBEAT)
        self.assertEqual(len(self.told), 1)

    def test_it_registers_at_once_without_a_master(self) -> None:
        """An old registration of the broker's own address does not count as another broker."""
        [task] = [each for each in self.slave.kernel.periodic_tasks if each.name == ONLINE]
        self.assertEqual((task.first_ms, task.period_ms), (0, 500))
        registered: list[int] = []
        self.slave.host.on_topic_change.append(lambda: registered.append(1))
        self.members = {1: SLAVE, 2: OTHER}
        self.assertTrue(self.online(self.slave))
        self.assertEqual(registered, [1])
        self.assertTrue(self.look({1: SLAVE, 2: OTHER}))

    def test_it_waits_for_name_servers_and_a_master_that_answers(self) -> None:
        self.members = BrokerError("there are no name servers")
        self.assertFalse(self.online(self.slave))
        self.members = {0: OTHER}
        self.assertFalse(self.online(self.slave))
        self.assertEqual(self.plugin(self.slave).pre_online.fault, f"cannot connect to {OTHER}")


class MasterOnlineTests(PreOnlineCase):
    """A master waits until its slaves follow it."""

    def test_it_tells_its_slave_and_takes_its_offsets(self) -> None:
        """It does so when the slave is connected."""
        for _ in range(5):
            self.send()
        self.copy_log()
        self.slave.kernel.consumer_offset.commit("peer", "g", "T", 0, 4)
        self.members = {0: MASTER, 1: SLAVE}
        self.assertFalse(self.online(self.master))
        self.assertEqual(self.addresses(), (MASTER, MASTER_HA))
        self.connect(1)
        self.assertTrue(self.online(self.master))
        self.assertEqual(self.master.kernel.consumer_offset.query("g", "T", 0), 4)

    def test_it_waits_for_each_slave_of_a_host(self) -> None:
        """One connection of a host counts for one of its brokers."""
        self.servers[OTHER] = self.slave
        self.members = {1: SLAVE, 2: OTHER}
        self.connect(1)
        self.assertFalse(self.online(self.master))
        self.assertIn(f"the slave at {OTHER} is not connected",
                      self.plugin(self.master).pre_online.fault)
        self.connect(2)
        self.assertTrue(self.online(self.master))

    def test_it_registers_at_once_when_it_is_alone(self) -> None:
        self.assertTrue(self.online(self.master))

    def connect(self, count: int) -> None:
        """So many connections of the slaves' host have reported."""
        links = self.plugin(self.master).slaves._links
        while len(links) < count:
            link = self.plugin(self.master).slaves.connected(_Peer())
            assert link is not None
            link.transport = _Transport()
            link.connectionMade()
            link.dataReceived(bytes(8))


class _Peer:
    host, port = "127.0.0.1", 50_000


class _Transport:
    def registerProducer(self, producer: object, streaming: bool) -> None:
        pass

    def write(self, data: bytes) -> None:
        pass

    def abortConnection(self) -> None:
        pass


class InSyncTests(ActingCase):
    """A SYNC_MASTER that requires two brokers for each message."""

    master_settings: Mapping[str, str] = {
        **ACTING, "skipPreOnline": "true", "brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}

    def try_send(self, **properties: str) -> tuple[int, str | None]:
        reply = self.master.send(self.master.peer(), RequestCode.SEND_MESSAGE_V2, send_header(
            "T", self.master.now_ms, properties=properties), b"x")
        return (reply.code, reply.remark) if reply is not None else (-1, "it waits")

    @property
    def end(self) -> int:
        return self.master.kernel.store.commit_log.max_offset

    def connect(self) -> SlaveLink:
        """Connect a slave that has all messages."""
        link = self.plugin(self.master).slaves.connected(_Peer())
        assert link is not None
        link.transport = _Transport()
        link.connectionMade()
        link.dataReceived(self.end.to_bytes(8, "big"))
        return link

    def test_without_a_slave_nothing_is_stored(self) -> None:
        """Only messages that wait for no slave are stored; a slave far behind does not count."""
        refused = (ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough")
        self.assertEqual(self.try_send(), refused)
        self.assertEqual(self.end, 0)
        self.assertEqual(self.try_send(WAIT="false"), (0, None))
        link = self.connect()
        self.assertEqual(self.try_send(), (-1, "it waits"))
        self.master.settings.put("haMaxGapNotInSync", 1)
        self.assertEqual(self.try_send(), refused)
        self.master.settings.put("haMaxGapNotInSync", 1 << 20)
        self.assertEqual(self.try_send(), (-1, "it waits"))
        self.look({0: MASTER}, self.master)
        self.assertEqual(self.try_send(), refused, msg="name servers know one broker")
        self.look({0: MASTER, 1: SLAVE}, self.master)
        link.end("a test")
        self.assertEqual(self.try_send(), refused)

    def test_as_many_as_there_are(self) -> None:
        """With enableAutoInSyncReplicas, but minInSyncReplicas at least."""
        self.master.settings.put("enableAutoInSyncReplicas", True)
        self.assertEqual(self.try_send(), (0, None))
        self.connect()
        self.assertEqual(self.try_send(), (-1, "it waits"))
        self.look({0: MASTER}, self.master)
        self.assertEqual(self.try_send(), (0, None))
        self.master.settings.put("minInSyncReplicas", 2)
        self.assertEqual(self.try_send()[0], ResponseCode.SYSTEM_ERROR)

    def test_a_send_waits_for_as_many_as_were_there(self) -> None:
        """If a slave leaves, the send does not count as safe."""
        self.master.settings.put("enableAutoInSyncReplicas", True)
        link = self.connect()
        self.assertEqual(self.try_send(), (-1, "it waits"))
        waits = self.plugin(self.master).slaves.waits
        link.end("a test")
        self.assertEqual((waits.count, self.try_send()), (1, (0, None)))
        self.connect()
        self.assertEqual(waits.count, 0)

    def test_other_roles_refuse_nothing(self) -> None:
        self.master.kernel.set_role("ASYNC_MASTER", 0)
        self.assertEqual(self.try_send(), (0, None))
        self.master.kernel.set_role("SYNC_MASTER", 0)
        self.assertEqual(self.try_send()[0], ResponseCode.SYSTEM_ERROR)


class EscapeTests(ActingCase):
    """Messages that other brokers store."""

    def setUp(self) -> None:
        super().setUp()
        own = self.slave.kernel.broker_name
        self.route: TopicRouteData | None = TopicRouteData(
            broker_datas=[BrokerData("C", own, {0: SLAVE}), BrokerData("C", "b", {0: MASTER}),
                          BrokerData("C", "c", {0: OTHER}), BrokerData("C", "d", {1: OTHER})],
            queue_datas=[QueueData(own, 4, 4, 6), QueueData("b", 4, 2, 6),
                         QueueData("c", 4, 4, 4), QueueData("d", 4, 4, 6)])
        self.slave.host.find_route = self.find
        self.looks = 0
        self.escape = EscapeBridge(self.slave.kernel)

    async def find(self, topic: str) -> TopicRouteData | None:
        self.looks += 1
        return self.route

    def store(self, *records: MessageRecord) -> dict[int, str]:
        refusals = self.successResultOf(self.escape.store(records))
        return {index: str(error) for index, error in refusals.items()}

    def queue(self, queue_id: int) -> list[bytes]:
        return [record.body for data in self.master.kernel.store.get_message(
            "T", queue_id, 0, 32).messages for record in records_of(data)]

    def test_writable_queues_of_other_masters_get_them_in_turn(self) -> None:
        """The route is requested once in thirty seconds; the messages are unchanged."""
        self.assertEqual(self.store(*(message("T", body=b"%d" % number, keys="k")
                                      for number in range(4))), {})
        self.assertEqual((self.queue(0), self.queue(1)), ([b"1", b"3"], [b"0", b"2"]))
        stored = self.master.kernel.store.get_message("T", 0, 0, 1).messages[0]
        self.assertEqual(next(iter(records_of(stored))).properties_map()["KEYS"], "k")
        self.assertEqual(self.escape.count, 4)
        before = self.looks
        self.store(message("T"))
        self.assertEqual(self.looks, before)
        self.slave.now_ms += 31_000
        self.store(message("T"))
        self.assertEqual(self.looks, before + 1)

    def test_refusals_are_by_message(self) -> None:
        """Errors: no broker, a refusal, a late flush (the message is stored), and a lost broker."""
        self.answers[MASTER, RequestCode.SEND_MESSAGE_V2] = RemotingCommand(
            ResponseCode.SYSTEM_BUSY, remark="busy")
        self.assertEqual(self.store(message("T")), {0: f"{MASTER} answered 2: busy"})
        self.answers[MASTER, RequestCode.SEND_MESSAGE_V2] = RemotingCommand(
            ResponseCode.FLUSH_DISK_TIMEOUT)
        self.assertEqual(self.store(message("T")), {})
        del self.answers[MASTER, RequestCode.SEND_MESSAGE_V2]
        del self.servers[MASTER]
        self.assertEqual(self.store(message("T")), {0: f"cannot connect to {MASTER}"})
        self.route = None
        self.assertEqual(self.store(message("T")), {0: "no other broker accepts messages of T"})

    def test_the_setting_gives_it_to_the_broker(self) -> None:
        self.assertIsNone(self.slave.kernel.escape)
        self.slave.stop()
        self.slave_settings = {**self.slave_settings, "enableRemoteEscape": "true"}
        self.slave = self.start_slave()
        self.assertIsNotNone(self.slave.kernel.escape)


class StartTests(GroupCase):
    """The brokers that wait at their start."""

    def waits(self, **settings: str) -> bool:
        self.slave.stop()
        self.slave_settings = settings
        self.slave = self.start_slave()
        self.slave.host.has_name_servers = True
        return has_pre_online(self.slave.kernel)

    def test_only_in_groups_of_several_with_the_setting(self) -> None:
        self.assertTrue(self.waits(**ACTING))
        self.assertFalse(self.waits(**{**ACTING, "totalReplicas": "1"}))
        self.assertFalse(self.waits(totalReplicas="2"))
        self.assertFalse(self.waits(**ACTING, skipPreOnline="true"))
