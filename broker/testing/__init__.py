"""Public test doubles: a broker in process, disks in memory and with faults, conversations.

    from twistmq.broker.testing import running_broker

    with running_broker() as broker, broker.client() as client:
        client.send("orders", b"paid")

``running_broker`` takes settings as texts, plugins in addition to the installed ones, and a folder
whose data is kept: ``running_broker({"mine.rate": "5"}, plugins=[("mine", plugin)], data="d")``.
``client.send`` takes ``queue_id=``, ``tag=``, ``keys=`` and ``properties=``, ``client.pull`` also
takes ``group=``, ``expression=``, ``expression_type=``, ``max_count=`` and ``hold_ms=``, the time
that the broker may wait for a message; both raise RequestRefused when the broker refuses the
request. ``client.request(code, header, body)`` sends any request and returns the reply regardless
of its code.

``BrokerTestCase`` is for trial; its ``send`` returns the reply regardless of its code:

    class OrderTests(BrokerTestCase):
        settings = {"autoCreateTopicEnable": "false"}
        plugins = [("mine", plugin)]

        async def test_refused(self):
            reply = await self.send("orders", b"paid")
            self.assertEqual(reply.code, ResponseCode.TOPIC_NOT_EXIST)
            self.assertEqual(await self.pull("orders"), [])

``trial test_orders`` does not search the working directory, while ``python -m twisted.trial
test_orders`` does.

Names are imported when they are first used, because pytest imports this package through its plugin
in every project with this package installed, and must not import Twisted there.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twistmq.broker.testing.conversation import Conversation, make_server
    from twistmq.broker.testing.disk import FaultyDisk, MemoryDisk
    from twistmq.broker.testing.in_process_broker import RunningBroker, running_broker
    from twistmq.broker.testing.raw_client import RawClient
    from twistmq.broker.testing.test_case import BrokerTestCase

__all__ = [
    "BrokerTestCase",
    "Conversation",
    "FaultyDisk",
    "MemoryDisk",
    "RawClient",
    "RunningBroker",
    "make_server",
    "running_broker",
]

_MODULES = {
    "RawClient": "raw_client",
    "BrokerTestCase": "test_case",
    "Conversation": "conversation",
    "FaultyDisk": "disk",
    "MemoryDisk": "disk",
    "RunningBroker": "in_process_broker",
    "make_server": "conversation",
    "running_broker": "in_process_broker",
}


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)
