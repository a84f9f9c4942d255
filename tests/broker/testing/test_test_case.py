"""The trial base class, used as its users do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from twistmq.broker import hookimpl
from twistmq.broker.store.interfaces import IStoreIO
from twistmq.broker.testing import BrokerTestCase, FaultyDisk
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.send import SendMessageResponseHeader


class _Refuser:
    """A plugin that counts sends and refuses none."""

    count = 0

    @hookimpl
    def before_send(self, batch: Any) -> None:
        self.count += len(batch.requests)


class BrokerTestCaseTests(BrokerTestCase):
    """A broker a test, with its settings and plugins."""

    settings: ClassVar[Mapping[str, str]] = {"brokerName": "mine"}

    def setUp(self) -> Any:
        self.plugin = _Refuser()
        self.plugins = (("refuser", self.plugin),)
        return super().setUp()

    async def test_send_and_pull(self) -> None:
        """A sent message is pulled; each test begins with an empty store."""
        for offset in range(2):
            reply = await self.send("orders", b"paid", tag="a")
            self.assertEqual(reply.header(SendMessageResponseHeader).queue_offset, offset)
        messages = await self.pull("orders", 1, expression="a")
        self.assertEqual([m.body for m in messages], [b"paid"])
        self.assertEqual(self.plugin.count, 2)

    test_send_and_pull_again = test_send_and_pull

    async def test_name_server(self) -> None:
        """The name server answers too; the broker has registered."""
        reply = await self.request(RequestCode.GET_BROKER_CLUSTER_INFO,
                                   address=self.namesrv_address)
        self.assertEqual(reply.code, ResponseCode.SUCCESS)
        self.assertIn(b"mine", reply.body)
        self.assertEqual(self.kernel.broker_address, self.broker_address)


class FaultyDiskTests(BrokerTestCase):
    """A broker on a disk of the test."""

    def make_disk(self) -> IStoreIO:
        self.disk = FaultyDisk()
        return self.disk

    async def test_full_disk(self) -> None:
        """While the disk is full, sends get code 14, and stored messages can be read."""
        self.assertEqual((await self.send("orders", b"before")).code, ResponseCode.SUCCESS)
        self.disk.room_bytes = 0
        reply = await self.send("orders", b"refused")
        self.assertEqual(reply.code, ResponseCode.SERVICE_NOT_AVAILABLE)
        self.assertEqual([m.body for m in await self.pull("orders")], [b"before"])
        self.disk.room_bytes = None
        self.assertEqual((await self.send("orders", b"after")).code, ResponseCode.SUCCESS)
        self.assertEqual([m.body for m in await self.pull("orders")], [b"before", b"after"])
