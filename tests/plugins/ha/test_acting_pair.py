"""A pair whose slave acts as master, over real sockets."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar

from twisted.trial.unittest import SynchronousTestCase

from tests.plugins.ha.pair import LOCAL, LoneBroker, lone_broker, wait_until
from twistmq.broker.testing import RawClient, running_broker
from twistmq.broker.testing.raw_client import pull_header, send_header
from twistmq.plugins import schedule
from twistmq.protocol.bodies import BrokerData, KVTable, QueueData
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.record import records_of

__all__ = ["ACTING", "ActingPairCase"]

#: Settings of both brokers.
ACTING = {"enableSlaveActingMaster": "true", "totalReplicas": "2", "slaveReadEnable": "true"}


class ActingPairCase(SynchronousTestCase):
    """A name server, and brokers of the name "pair"."""

    namesrv_settings = ("supportActingMaster", "notifyMinBrokerIdChanged")
    settings: ClassVar[dict[str, str]] = {}

    def setUp(self) -> None:
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.folder = Path(self.mktemp())
        # Its broker has another name: the name server outlives the brokers of the pair.
        self.beside = self.stack.enter_context(running_broker({
            **LOCAL, "brokerName": "beside"}, data=self.folder / "beside"))
        for name in self.namesrv_settings:
            self.beside.call(self.beside.service.namesrv.settings.put, name, True)
        self.names = self.beside.namesrv_address
        self.masters = ExitStack()
        self.stack.enter_context(self.masters)

    def start_master(self, **settings: str) -> LoneBroker:
        return self.masters.enter_context(lone_broker(self.folder / "master", {
            "namesrvAddr": self.names, **ACTING, **self.settings, **settings}))

    def start_slave(self, **settings: str) -> LoneBroker:
        return self.stack.enter_context(lone_broker(self.folder / "slave", {
            "namesrvAddr": self.names, "brokerRole": "SLAVE", "brokerId": "1", **ACTING,
            **self.settings, **settings}))

    def start_pair(self) -> tuple[LoneBroker, LoneBroker]:
        """Start a master and a connected slave."""
        master = self.start_master()
        self.wait_for_members(0)
        slave = self.start_slave()
        self.wait_for_members(0, 1)
        return master, slave

    def members(self) -> dict[int, str]:
        """Return the members of the group at the name server."""
        group = self.beside.call(
            lambda: self.beside.service.namesrv.name_server.routes.tables.brokers.get("pair"))
        return dict(group.broker_addrs) if group is not None else {}

    def wait_for_members(self, *ids: int) -> None:
        wait_until(lambda: sorted(self.members()) == sorted(ids), f"{ids} are in the group")

    def route(self, topic: str) -> list[tuple[BrokerData, QueueData]]:
        """Return the brokers of a topic as clients see them."""
        views = self.beside.service.namesrv.name_server.views
        route = self.beside.call(views.route, topic)
        return list(zip(route.broker_datas, route.queue_datas, strict=True)) if route else []

    def caught_up(self, slave: LoneBroker, master: LoneBroker) -> None:
        wait_until(lambda: slave.end == master.end
                   and not slave.kernel.store.dispatch.behind_bytes, "the slave has all")

    @staticmethod
    def is_active(client: RawClient) -> str:
        """Return what the broker reports about the tasks of a master."""
        reply = client.request(RequestCode.GET_BROKER_RUNTIME_INFO)
        return KVTable.decode(reply.body).table["brokerActive"]


class StandInTests(ActingPairCase):
    """The master stops, and returns."""

    def test_the_slave_is_shown_as_master(self) -> None:
        """Clients read and commit there; sends and changes are refused."""
        master, slave = self.start_pair()
        with master.client() as client:
            for number in range(10):
                client.send("T", b"%d" % number)
        self.caught_up(slave, master)
        wait_until(lambda: "T" in slave.kernel.topic_config.table, "the topic is copied")
        address = slave.kernel.broker_address
        self.masters.close()
        wait_until(lambda: slave.kernel.identity.is_acting, "the slave stands in")
        wait_until(lambda: [(group.broker_addrs, queues.perm) for group, queues
                            in self.route("T")] == [({0: address}, 4)], "it is shown as master")
        with slave.client() as client:
            self.assertEqual(self.is_active(client), "true")
            reply = client.request(RequestCode.PULL_MESSAGE, pull_header("T", queue_id=0, offset=0))
            self.assertEqual(len(list(records_of(reply.body))), 10)
            reply = client.request(RequestCode.SEND_MESSAGE_V2, send_header("T", 0), b"x")
            self.assertEqual(reply.code, ResponseCode.SERVICE_NOT_AVAILABLE, reply.remark)
        slave.thread.call(slave.kernel.consumer_offset.commit, "peer", "g", "T", 0, 7)
        again = self.start_master()
        self.wait_for_members(0, 1)
        self.assertEqual(again.kernel.consumer_offset.query("g", "T", 0), 7)
        self.assertTrue(again.plugin.slaves.links)
        wait_until(lambda: not slave.kernel.identity.is_acting, "the slave is a slave again")
        with slave.client() as client:
            self.assertEqual(self.is_active(client), "false")
        with again.client() as client:
            client.send("T", b"after")
        self.caught_up(slave, again)


class EscapeTests(ActingPairCase):
    """Delayed messages become due while the master is away."""

    settings: ClassVar[dict[str, str]] = {"enableRemoteEscape": "true"}

    def test_another_master_stores_them(self) -> None:
        """They are stored once; the returned master does not deliver them again."""
        bodies = [b"%d" % number for number in range(20)]
        with self.beside.client() as client:
            client.send("T", b"makes the topic")
        master, slave = self.start_pair()
        with master.client() as client:
            client.send("T", b"makes the topic")
            for body in bodies:
                client.send("T", body, properties={"DELAY": "4"})
        self.caught_up(slave, master)
        wait_until(lambda: "T" in slave.kernel.topic_config.table, "the topic is copied")
        self.masters.close()
        store = self.beside.kernel.store

        def beside() -> list[bytes]:
            return sorted(record.body for queue_id in range(4) for data in self.beside.call(
                store.get_message, "T", queue_id, 0, 32).messages for record in records_of(data))

        wait_until(lambda: len(beside()) > len(bodies), "they are stored", 90)
        self.assertEqual(beside(), sorted([*bodies, b"makes the topic"]))
        again = self.start_master()
        self.wait_for_members(0, 1)
        offsets = [(broker.thread.call(schedule_offsets, broker)) for broker in (slave, again)]
        self.assertEqual(offsets[0], offsets[1])
        self.assertEqual(offsets[0][4], len(bodies))
        self.assertEqual(again.kernel.store.queues.max_offset("T", 0), 1)


def schedule_offsets(broker: LoneBroker) -> dict[int, int]:
    """Return the progress of each delay level."""
    plugin = broker.kernel.hooks.find(schedule.Plugin)
    assert plugin is not None
    return dict(plugin._service.offsets)
