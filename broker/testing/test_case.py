"""A trial test case with its own name server and broker, on the reactor of the process.

    class OrderTests(BrokerTestCase):
        settings = {"autoCreateTopicEnable": "false"}
        plugins = (("mine", my_plugin),)

        async def test_refused(self):
            reply = await self.send("orders", b"paid")
            self.assertEqual(reply.code, ResponseCode.TOPIC_NOT_EXIST)

The test case waits until both answer, stops them afterwards, and leaves the reactor clean.
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
from twistmq.broker.testing.in_process_broker import Plugins, ServedAddresses, up_service
from twistmq.broker.testing.raw_client import pull_header, records_of, send_header
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.command import RemotingCommand
from twistmq.protocol.header import CommandHeader
from twistmq.protocol.record import StoredMessage
from twistmq.tools.tap import process_reactor

__all__ = ["BrokerTestCase"]


class BrokerTestCase(ServedAddresses, TestCase):
    """A test with a broker.

    ``settings``, ``plugins`` and ``make_disk`` configure the broker; ``service`` contains the
    services, ``kernel`` is the kernel of the broker, and ``remoting`` is a separate client.
    """

    #: The texts of settings by name, as on the command line.
    settings: ClassVar[Mapping[str, str]] = {}
    #: Pairs of (name, plugin) to use in addition to the installed plugins.
    plugins: Plugins = ()
    #: The timeout of the helpers' requests, ms.
    timeout_ms = 10_000
    #: The timeout of one test, seconds; trial's default is two minutes.
    timeout = 30.0

    def make_disk(self) -> IStoreIO | None:
        """Return the disk of the broker; None for the real one, in a folder of the test."""
        return None

    def setUp(self) -> Deferred[Any]:  # type: ignore[override]
        """Start the name server and the broker; the Deferred fires once both answer."""
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
        """Send a request to the broker or to another address, and return the reply."""
        return await self.remoting.invoke(
            address or self.broker_address, code, header, body, timeout_ms=self.timeout_ms)

    async def send(self, topic: str, body: bytes, **fields: Any) -> RemotingCommand:
        """Send a message; return the reply regardless of its code.

        :param fields: keyword arguments of :meth:`RawClient.send`.
        """
        return await self.request(
            RequestCode.SEND_MESSAGE_V2, send_header(topic, now_ms(), **fields), body)

    async def pull(self, topic: str, offset: int = 0, **fields: Any) -> list[StoredMessage]:
        """Pull messages of one queue.

        :param fields: keyword arguments of :meth:`RawClient.pull`.
        """
        reply = await self.request(
            RequestCode.PULL_MESSAGE, pull_header(topic, offset, **fields))
        return records_of(reply.body)
