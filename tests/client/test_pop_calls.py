"""The calls of each style about received messages: the broker gets the program's decision, and the
program gets the broker's answer.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from types import ModuleType
from typing import Any, Final

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

import twistmq.client
from twistmq.broker.api import BrokerError, Reply, Request, hookimpl
from twistmq.broker.testing import running_broker
from twistmq.client import Producer, ReceivedMessage, RequestRefused, aio, tx
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.errors import RequestRefused as Refusal
from twistmq.protocol.headers.pop import (
    ChangeInvisibleTimeRequestHeader,
    PopMessageRequestHeader,
)

_STYLES: Final[tuple[ModuleType, ...]] = (twistmq.client, aio, tx)
_COUNT: Final = 6


class Broker:
    """A plugin that records the times in requests, and refuses on request."""

    def __init__(self) -> None:
        self.refused: set[int] = set()
        #: The new invisible time of each change, ms.
        self.changes: list[int] = []
        #: The invisible time and the poll time of each pop, ms.
        self.pops: list[tuple[int, int]] = []

    @hookimpl
    def before_request(self, request: Request[Any]) -> Reply | BrokerError | None:
        """Implement the hook; it runs on the broker's thread."""
        code, header = request.command.code, request.header
        if isinstance(header, ChangeInvisibleTimeRequestHeader):
            self.changes.append(header.invisible_time)
        elif isinstance(header, PopMessageRequestHeader):
            self.pops.append((header.invisible_time, header.poll_time))
        if code in self.refused:
            return Refusal(ResponseCode.SYSTEM_ERROR, "refused by the test")
        return None


class Style:
    """One style of the client, whose calls can be awaited even in the blocking style."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.name = module.__name__.rpartition(".")[2]
        self._more: dict[str, Any] = {"reactor": reactor} if module is tx else {}

    def consumer(self, where: str, **options: Any) -> Any:
        """Return a consumer of a group of this style."""
        return self.module.PopConsumer(where, group=f"g-{self.name}", topics="T", start="first",
                                       **self._more, **options)

    async def call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call a method of the client, and wait for its end."""
        result = function(*arguments, **options)
        return await result if inspect.isawaitable(result) else result

    def run(self, main: Callable[[Style], Coroutine[Any, Any, None]]) -> Deferred[Any]:
        """Run a test; the blocking style runs on a thread that nothing else needs."""
        if self.module is tx:
            return Deferred.fromCoroutine(main(self))
        return deferToThread(lambda: asyncio.run(main(self)))  # type: ignore[arg-type]


class CallTests(TestCase):
    """Six messages of one queue, received by a group of each style."""

    timeout = 60

    def setUp(self) -> None:
        """Start a broker, and send them."""
        self.note_queues = Broker()
        running = running_broker(plugins=[("seen", self.note_queues)])
        self.where = running.__enter__().namesrv_address
        self.addCleanup(running.__exit__, None, None, None)
        with Producer(self.where) as producer:
            for number in range(_COUNT):
                producer.send("T", b"%d" % number, sharding_key="one")

    def each_style(self, main: Callable[[Style], Coroutine[Any, Any, None]]) -> Deferred[Any]:
        """Run a test in each style, one after the other."""
        async def run() -> None:
            for module in _STYLES:
                await Style(module).run(main)

        return Deferred.fromCoroutine(run())

    async def received(self, style: Style, consumer: Any) -> list[ReceivedMessage[Any]]:
        """Receive all messages, hidden for 40 s."""
        found: list[ReceivedMessage[Any]] = []
        while len(found) < _COUNT:
            found += await style.call(
                consumer.receive, _COUNT - len(found), wait_s=5, invisible_s=40)
        return found

    def test_times_in_seconds_reach_the_broker_in_milliseconds(self) -> Deferred[Any]:
        """The time of a pop, of an extension, and the delay of a retry; without one the default."""
        async def main(style: Style) -> None:
            seen, call = self.note_queues, style.call
            consumer = style.consumer(self.where, invisible_s=30)
            try:
                seen.pops.clear()
                found = await self.received(style, consumer)
                self.assertEqual({invisible_ms for invisible_ms, _ in seen.pops}, {40_000})
                self.assertTrue(all(4000 < poll_ms <= 5000 for _, poll_ms in seen.pops), seen.pops)
                seen.changes.clear()
                for change, arguments, expected_ms in (
                    (consumer.retry, (found[0], 7.5), 7500), (consumer.retry, (found[1], 0), 0),
                    (consumer.retry, (found[2],), 10_000),
                    (consumer.extend, (found[3], 60), 60_000),
                    (consumer.extend, (found[3], 0.5), 500), (consumer.extend, (found[4], 2), 2000),
                ):
                    await call(change, *arguments)
                    self.assertEqual(seen.changes[-1:], [expected_ms],
                                     f"{style.name} {change.__name__}{arguments[1:]}")
                self.assertEqual(len(seen.changes), 6)
                seen.pops.clear()
                await call(consumer.receive, wait_s=0)
                self.assertEqual(seen.pops[:1], [(30_000, 0)], style.name)
            finally:
                await call(consumer.close)

        return self.each_style(main)

    def test_a_refused_batch_of_acknowledgements_is_told(self) -> Deferred[Any]:
        """The program must not count messages as finished that the broker will deliver again."""
        async def main(style: Style) -> None:
            seen, call = self.note_queues, style.call
            consumer = style.consumer(self.where, invisible_s=30)
            try:
                found = await self.received(style, consumer)
                for code, messages in ((RequestCode.BATCH_ACK_MESSAGE, found[:4]),
                                       (RequestCode.ACK_MESSAGE, found[4])):
                    seen.refused = {code}
                    with self.assertRaises(RequestRefused) as caught:
                        await call(consumer.acknowledge, messages)
                    self.assertIn("refused by the test", str(caught.exception), style.name)
                seen.refused = set()
                await call(consumer.acknowledge, found[5])
            finally:
                seen.refused = set()
                await call(consumer.close)

        return self.each_style(main)
