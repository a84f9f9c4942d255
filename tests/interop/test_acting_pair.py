"""Pairs of our broker and Apache's whose slave acts as master, with either name server."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, ClassVar

from tests.interop.peer import Peer
from tests.interop.servers import free_port
from tests.interop.test_replication import COMMON, PairCase
from tests.plugins.ha.pair import LOCAL, LoneBroker, lone_broker, wait_until
from tests.plugins.ha.test_acting_pair import ACTING
from twistmq.broker.testing import RawClient, running_broker
from twistmq.broker.testing.raw_client import pull_header, send_header
from twistmq.protocol.bodies import KVTable, SubscriptionGroupConfig, TopicRouteData
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import BrokerError
from twistmq.protocol.header import CommandHeader
from twistmq.protocol.headers.namesrv import GetRouteInfoRequestHeader
from twistmq.protocol.headers.offset import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from twistmq.protocol.headers.topic import CreateTopicRequestHeader
from twistmq.protocol.record import records_of

#: How long a change of a group may take, seconds: a Java slave looks for its master every 5 s.
PATIENCE = 90.0


class ActingCase(PairCase):
    """Both brokers of a pair, and a name server of either kind."""

    #: Of both brokers.
    settings: ClassVar[dict[str, str]] = {**ACTING}

    def apaches_name_server(self) -> str:
        peer = Peer(self.folder / "names", namesrv_port=free_port(), heap="256m",
                    namesrv_settings={"supportActingMaster": "true",
                                      "notifyMinBrokerIdChanged": "true"})
        self.addCleanup(peer.stop_one, "namesrv", kill=True)
        peer.start_namesrv()
        return peer.namesrv_address

    def our_name_server(self) -> str:
        beside = self.stack.enter_context(running_broker(
            {**LOCAL, "brokerName": "beside"}, data=self.folder / "beside"))
        for name in ("supportActingMaster", "notifyMinBrokerIdChanged"):
            beside.call(beside.service.namesrv.settings.put, name, True)
        return beside.namesrv_address

    def lone(self, namesrv: str, folder: str, **settings: str) -> LoneBroker:
        """Return a broker of ours."""
        return self.stack.enter_context(lone_broker(self.folder / folder / "store", {
            **COMMON, **self.settings, "namesrvAddr": namesrv, **settings}))

    def java(self, namesrv: str, **settings: str) -> Any:
        """Return a broker of Apache's."""
        name = settings.get("brokerName", "peer")
        return self.start_apache(name, with_namesrv=False, namesrv_address=namesrv, settings={
            **COMMON, **self.settings, **settings})

    def apaches_master(self, namesrv: str) -> tuple[Any, str, LoneBroker]:
        """Return an online master of Apache's, its address, and a slave of ours."""
        java = self.java(namesrv)
        master = f"127.0.0.1:{java.broker_port}"
        wait_until(lambda: self.is_active(master) == "true", "the master is online", PATIENCE)
        return java, master, self.lone(namesrv, "slave", brokerRole="SLAVE", brokerId="1")

    @staticmethod
    def ask(address: str, code: int, header: CommandHeader | None = None) -> Any:
        with RawClient(address) as client:
            return client.request(code, header)

    def route(self, namesrv: str) -> tuple[dict[int, str], int] | None:
        """Return the addresses and the permission of the topic as a client sees them."""
        reply = self.ask(namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC,
                         GetRouteInfoRequestHeader(topic="T"))
        if reply.code:
            return None
        route = TopicRouteData.decode(reply.body)
        return dict(route.broker_datas[0].broker_addrs), route.queue_datas[0].perm

    def wait_for_route(self, namesrv: str, addresses: dict[int, str], perm: int) -> None:
        wait_until(lambda: self.route(namesrv) == (addresses, perm),
                   f"the route is {addresses} with {perm}", PATIENCE)

    def is_active(self, address: str) -> str:
        """Return the runtime information of a broker; empty if it does not answer."""
        try:
            reply = self.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        except BrokerError:
            return ""
        return KVTable.decode(reply.body).table["brokerActive"] if reply.body else ""

    def offset(self, address: str) -> int | None:
        """Return the offset of group g in queue 0."""
        reply = self.ask(address, RequestCode.QUERY_CONSUMER_OFFSET,
                         QueryConsumerOffsetRequestHeader(
                             consumer_group="g", topic="T", queue_id=0))
        if reply.code:
            return None
        found = reply.header(QueryConsumerOffsetResponseHeader).offset
        return None if found is None else int(found)

    def commit(self, address: str, offset: int) -> None:
        reply = self.ask(address, RequestCode.UPDATE_CONSUMER_OFFSET,
                         UpdateConsumerOffsetRequestHeader(
                             consumer_group="g", topic="T", queue_id=0, commit_offset=offset))
        self.assertEqual(reply.code, 0)

    def create(self, *addresses: str) -> None:
        """Make the topic and the group."""
        for address in addresses:
            with RawClient(address) as client:
                reply = client.request(
                    RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader(
                        topic="T", default_topic="TBW102", read_queue_nums=4, write_queue_nums=4,
                        perm=6, topic_filter_type="SINGLE_TAG"))
                self.assertEqual(reply.code, 0, reply.remark)
                reply = client.request(
                    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None,
                    SubscriptionGroupConfig("g").encode())
                self.assertEqual(reply.code, 0, reply.remark)

    def stands_in(self, address: str) -> None:
        """The slave serves reads and refuses sends."""
        wait_until(lambda: self.is_active(address) == "true", "the slave is active", PATIENCE)
        with RawClient(address) as client:
            reply = client.request(RequestCode.PULL_MESSAGE, pull_header(
                "T", group="g", queue_id=0, offset=0))
            self.assertEqual(len(list(records_of(reply.body))), 5)
            reply = client.request(RequestCode.SEND_MESSAGE_V2, send_header("T", 0), b"x")
            self.assertEqual(reply.code, ResponseCode.SERVICE_NOT_AVAILABLE, reply.remark)
        self.commit(address, 4)

    def returns(self, namesrv: str, master: str, slave: str) -> None:
        """The master returns with the offset of the group, and the slave is a slave again."""
        self.wait_for_route(namesrv, {0: master, 1: slave}, 6)
        self.assertEqual(self.offset(master), 4)
        wait_until(lambda: self.is_active(slave) == "false", "the slave is not active", PATIENCE)
        self.assertEqual(self.is_active(master), "true")
        self.assertEqual(set(self.send(master, 20)), {0})
        wait_until(lambda: self.end_of(slave) == self.end_of(master), "the slave has all", PATIENCE)


class OurSlaveTests(ActingCase):
    """Our slave of a master of 5.3.3, at Apache's name server."""

    def name_server(self) -> str:
        return self.apaches_name_server()

    def test_it_stands_in_while_the_master_is_dead(self) -> None:
        """It is shown as the master after the kill, until the master returns."""
        namesrv = self.name_server()
        java, master, slave = self.apaches_master(namesrv)
        address = slave.kernel.broker_address
        self.create(master)
        self.assertEqual(set(self.send(master, 20)), {0})
        self.commit(master, 2)
        self.wait_for_route(namesrv, {0: master, 1: address}, 6)
        wait_until(lambda: self.end_of(address) == self.end_of(master), "the slave has all")
        wait_until(lambda: self.offset(address) == 2, "the place is copied")
        # A master without the file takes the time of its start for the version of its places,
        # so those of the slave are older: it is not written in the first ten seconds.
        places = java.home / "store/config/consumerOffset.json"
        wait_until(lambda: places.exists() and '"T@g"' in places.read_text(),
                   "the master's places are on its disk", PATIENCE)
        java.stop_one("broker", kill=True)
        self.wait_for_route(namesrv, {0: address}, 4)
        self.stands_in(address)
        java.start_broker()
        self.returns(namesrv, master, address)


class NewRequestsTests(OurSlaveTests):
    """The same with the requests that name servers before 5 lack, at our name server."""

    settings: ClassVar[dict[str, str]] = {**ACTING, "compatibleWithOldNameSrv": "false"}

    def name_server(self) -> str:
        return self.our_name_server()


class InSyncTests(ActingCase):
    """A SYNC_MASTER without its slave refuses sends as Apache's does."""

    settings: ClassVar[dict[str, str]] = {
        **ACTING, "skipPreOnline": "true", "brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}

    def answers(self, address: str) -> list[Any]:
        """The answers to a send, to one that does not wait, and to one when the count adapts."""
        found = []

        def send(client: RawClient, **properties: str) -> None:
            reply = client.request(RequestCode.SEND_MESSAGE_V2,
                                   send_header("T", 0, properties=properties), b"x")
            found.append((reply.code, reply.remark, self.end_of(address) > 0))

        with RawClient(address) as client:
            send(client)
            send(client, WAIT="false")
            reply = client.request(RequestCode.UPDATE_BROKER_CONFIG, None,
                                   b"enableAutoInSyncReplicas=true\n")
            self.assertEqual(reply.code, 0, reply.remark)
            send(client)
        return found

    def test_too_few_brokers(self) -> None:
        """Refused messages are not stored."""
        namesrv = self.our_name_server()
        ours = self.answers(self.lone(namesrv, "ours").kernel.broker_address)
        java = self.java(namesrv, brokerName="java")
        theirs = f"127.0.0.1:{java.broker_port}"
        wait_until(lambda: self.is_active(theirs) == "true", "it is active", PATIENCE)
        self.assertEqual(ours, self.answers(theirs))
        self.assertEqual(ours, [(1, "in-sync replicas not enough", False), (0, None, True),
                                (0, None, True)])


class OurMasterTests(ActingCase):
    """Our master with a slave of 5.3.3."""

    def test_the_slave_stands_in_while_our_master_is_gone(self) -> None:
        """The master waits for it before it is shown again."""
        namesrv = self.apaches_name_server()
        master = self.lone(namesrv, "master")
        address = master.kernel.broker_address
        java = self.java(namesrv, brokerRole="SLAVE", brokerId="1")
        slave = f"127.0.0.1:{java.broker_port}"
        # A Java slave copies topics and groups after a minute.
        self.create(address, slave)
        self.assertEqual(set(self.send(address, 20)), {0})
        self.wait_for_route(namesrv, {0: address, 1: slave}, 6)
        wait_until(lambda: self.end_of(slave) == self.end_of(address), "the slave has all",
                   PATIENCE)
        self.stack.close()
        self.wait_for_route(namesrv, {0: slave}, 4)
        self.stands_in(slave)
        again = self.lone(namesrv, "master", listenPort=address.rpartition(":")[2],
                          haListenPort=str(free_port()))
        self.assertFalse(again.kernel.identity.registers)
        self.returns(namesrv, address, slave)
        self.assertTrue(again.plugin.slaves.links)


class EscapeTests(ActingCase):
    """Delayed messages that fall due on our slave are stored on another master, of Apache's."""

    settings: ClassVar[dict[str, str]] = {**ACTING, "enableRemoteEscape": "true"}

    def test_a_master_of_another_name_stores_them(self) -> None:
        """They are stored once, unchanged, and without a second delay."""
        namesrv = self.our_name_server()
        other = f"127.0.0.1:{self.java(namesrv, brokerName='other').broker_port}"
        masters = ExitStack()
        self.stack.enter_context(masters)
        master = masters.enter_context(lone_broker(self.folder / "master/store", {
            **COMMON, **self.settings, "namesrvAddr": namesrv}))
        address = master.kernel.broker_address
        slave = self.lone(namesrv, "slave", brokerRole="SLAVE", brokerId="1")
        wait_until(lambda: self.is_active(other) == "true", "the other one is active", PATIENCE)
        self.create(address, other)
        bodies = [b"%d" % number for number in range(20)]
        with RawClient(address) as client:
            for number, body in enumerate(bodies):
                client.send("T", body, tag="t", keys=f"k{number}", properties={"DELAY": "4"})
        wait_until(lambda: slave.end == master.end, "the slave has all")
        wait_until(lambda: "T" in slave.kernel.topic_config.table, "the topic is copied")
        found: dict[str, bytes] = {}
        masters.close()
        wait_until(lambda: slave.kernel.identity.is_acting, "the slave stands in", PATIENCE)

        def stored() -> int:
            with RawClient(other) as client:
                for queue_id in range(4):
                    reply = client.request(RequestCode.PULL_MESSAGE, pull_header(
                        "T", group="g", queue_id=queue_id, offset=0))
                    for record in records_of(reply.body):
                        found[record.properties_map()["KEYS"]] = record.body
                return sum(client.max_offset("T", queue_id) for queue_id in range(4))

        wait_until(lambda: stored() >= len(bodies), "they are stored", PATIENCE)
        self.assertEqual(stored(), len(bodies))
        self.assertEqual(found, {f"k{number}": body for number, body in enumerate(bodies)})
