"""A trial test case with a name server and a broker of its own, on the process's reactor.

    class OrderTests(BrokerTestCase):
        settings = {"autoCreateTopicEnable": "false"}
        plugins = (("mine", my_plugin),)

        async def test_refused(self):
            reply = await self.send("orders", b"paid")
            self.assertEqual(reply.code, ResponseCode.TOPIC_NOT_EXIST)

It waits until they answer and stops them afterwards, and leaves the reactor clean.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from twistmq.broker.client.remoting_client import RemotingClient
from twistmq.broker.edge.clock import monotonic, now_ms
from twistmq.broker.net.tls import tls_client
from twistmq.broker.plugin.hooks import Hooks
from twistmq.broker.remoting.dispatcher import Dispatcher
from twistmq.broker.store.interfaces import IStoreIO
from twistmq.broker.testing.raw_client import pull_header, records_of, send_header
from twistmq.broker.testing.running import Plugins, ServedAddresses, up_service
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.header import CommandHeader
from twistmq.protocol.record import StoredMessage
from twistmq.tools.tap import process_reactor

__all__ = ["BrokerTestCase"]


class BrokerTestCase(ServedAddresses, TestCase):
    """A test with a broker.

    ``settings``, ``plugins`` and ``make_disk`` say what broker; ``service`` are the services,
    ``kernel`` is the broker's kernel, ``remoting`` a client of its own.
    """

    #: Texts by name, as on the command line.
    settings: ClassVar[Mapping[str, str]] = {}
    #: (name, plugin) to use beside those that are installed.
    plugins: Plugins = ()
    #: Bound on requests of the helpers here, ms.
    timeout_ms = 10_000
    #: Bound on one test, seconds; trial's own is two minutes.
    timeout = 30.0

    def make_disk(self) -> IStoreIO | None:
        """The broker's disk; None: the real one, in a folder of the test."""
        return None

    def setUp(self) -> Deferred[Any]:  # type: ignore[override]
        """Start name server and broker; fires once both answer."""
        self.reactor = process_reactor()
        self.data = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        self.service = up_service(
            self.reactor, self.data, self.settings, self.plugins, self.make_disk())
        self.remoting = RemotingClient(
            self.reactor, now_ms, monotonic, Dispatcher({}, Hooks()),
            tls=tls_client(self.reactor, self.kernel.settings))
        self.addCleanup(self.service.stopService)
        self.addCleanup(self.remoting.close)
        self.service.startService()
        return self.service.started

    async def request(
        self, code: int, header: CommandHeader | None = None, body: bytes = b"",
        address: str | None = None,
    ) -> RemotingCommand:
        """Send a request to the broker, or to another address; :returns: the reply."""
        return await self.remoting.invoke(
            address or self.broker_address, code, header, body, timeout_ms=self.timeout_ms)

    async def send(self, topic: str, body: bytes, **fields: Any) -> RemotingCommand:
        """Send a message; :returns: the reply, whatever its code.

        :param fields: as :meth:`RawClient.send` has them.
        """
        return await self.request(
            RequestCode.SEND_MESSAGE_V2, send_header(topic, now_ms(), **fields), body)

    async def pull(self, topic: str, offset: int = 0, **fields: Any) -> list[StoredMessage]:
        """Pull messages of one queue.

        :param fields: as :meth:`RawClient.pull` has them.
        """
        reply = await self.request(
            RequestCode.PULL_MESSAGE, pull_header(topic, offset, **fields))
        return records_of(reply.body)
