"""The name server as a service, on the real reactor and the loopback address."""

from __future__ import annotations

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from tests.interop.ports import free_port
from twistmq.broker.client.remoting_client import RemotingClient
from twistmq.broker.config.setting_rows import namesrv_rows
from twistmq.broker.config.settings import Settings
from twistmq.broker.edge.clock import monotonic, now_ms
from twistmq.broker.edge.namesrv_service import NamesrvService
from twistmq.broker.net.factory import RemotingFactory
from twistmq.broker.net.listener import ListenerService
from twistmq.broker.plugin.hooks import Hooks
from twistmq.broker.remoting.channels import ChannelTable
from twistmq.broker.remoting.dispatcher import Dispatcher
from twistmq.broker.remoting.messages import Reply, Request, RequestHandler
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.header import CommandHeader
from twistmq.protocol.headers.admin import NotifyMinBrokerIdChangeRequestHeader
from twistmq.protocol.headers.namesrv import (
    GetBrokerMemberGroupRequestHeader,
    RegisterBrokerRequestHeader,
)

MASTER = "10.0.0.1:10911"


class IdleTests(TestCase):
    """Connections that are silent."""

    def test_the_setting_counts(self) -> None:
        """They are looked for every ten seconds, by the setting as it is then."""
        settings = Settings.load(namesrv_rows(), None, {"kvConfigPath": self.mktemp()})
        service = NamesrvService(reactor, settings)
        asked: list[int] = []
        self.patch(RemotingFactory, "close_idle", lambda factory, idle_ms: asked.append(idle_ms))
        task, = [each for each in service._periodic._tasks if each.name == "close idle connections"]
        self.assertEqual((task.first_ms, task.period_ms), (10_000, 10_000))
        task.run(0)
        settings.put("serverChannelMaxIdleTimeSeconds", 7)
        task.run(0)
        self.assertEqual(asked, [120_000, 7_000])


class LowestIdTests(TestCase):
    """Brokers hear who has the lowest id of their group."""

    async def setUp(self) -> None:
        folder = self.mktemp()
        self.name_server = NamesrvService(reactor, Settings.load(namesrv_rows(), None, {
            "listenPort": "0", "bindAddress": "127.0.0.1", "notifyMinBrokerIdChanged": "true",
            "kvConfigPath": f"{folder}/kvConfig.json"}))
        self.name_server.startService()
        self.addCleanup(self.name_server.stopService)
        await self.name_server.started
        self.client = RemotingClient(reactor, now_ms, monotonic, Dispatcher({}, Hooks()))
        self.addCleanup(self.client.close)

    async def ask(self, code: int, header: CommandHeader) -> int:
        """Ask the name server; :returns: the code it answers."""
        reply = await self.client.invoke(
            f"127.0.0.1:{self.name_server.port}", code, header, timeout_ms=5000)
        return reply.code

    async def register(self, address: str, broker_id: int) -> None:
        code = await self.ask(RequestCode.REGISTER_BROKER, RegisterBrokerRequestHeader(
            broker_name="a", broker_addr=address, cluster_name="C", ha_server_addr="",
            broker_id=broker_id))
        self.assertEqual(code, ResponseCode.SUCCESS)

    def listen(self) -> tuple[str, Deferred[NotifyMinBrokerIdChangeRequestHeader]]:
        """A broker that waits to be told; :returns: its address, and what it is told."""
        told: Deferred[NotifyMinBrokerIdChangeRequestHeader] = Deferred()

        def take(request: Request[NotifyMinBrokerIdChangeRequestHeader]) -> Reply:
            told.callback(request.header)
            return Reply()

        code = RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE
        rows = {code: RequestHandler(code, take, NotifyMinBrokerIdChangeRequestHeader)}
        factory = RemotingFactory(
            reactor, Dispatcher(rows, Hooks()), ChannelTable(), now_ms, monotonic)
        listener = ListenerService(reactor, 0, "127.0.0.1", 50, factory, "a port")
        listener.startService()
        self.addCleanup(listener.stopService)
        return f"127.0.0.1:{listener.port}", told

    async def test_a_slave_is_told_of_its_master(self) -> None:
        """The name server connects to the slave when a master comes, and says who it is."""
        slave, told = self.listen()
        await self.register(slave, 1)
        await self.register(MASTER, 0)
        header = await told
        self.assertEqual((header.min_broker_id, header.min_broker_addr), (0, MASTER))

    async def test_a_slave_that_is_not_there_holds_up_nobody(self) -> None:
        """A broker that cannot be reached is logged, and requests go on."""
        events = self.patch_log()
        await self.register(f"127.0.0.1:{free_port()}", 1)
        await self.register(MASTER, 0)
        header = GetBrokerMemberGroupRequestHeader(cluster_name="C", broker_name="a")
        self.assertEqual(await self.ask(RequestCode.GET_BROKER_MEMBER_GROUP, header),
                         ResponseCode.SUCCESS)
        self.assertIn("connect to 127.0.0.1:", await events)

    def patch_log(self) -> Deferred[str]:
        """Fires with the reason of the first broker that could not be told."""
        reason: Deferred[str] = Deferred()

        class Log:
            def warn(self, text: str, **event: str) -> None:
                reason.callback(event["reason"])

        self.patch(NamesrvService, "log", Log())
        return reason
