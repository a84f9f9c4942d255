"""A close that is called in a handler, an iteration or a callback of its own object."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.threads import deferToThread

from tests.client.test_shells import ShellCase
from twistmq.client import Client, Consumer, Full, PopConsumer, Producer, PullConsumer, aio, tx
from twistmq.client.event_loop.consumer import LoopConsumer

#: A close that waits for itself takes ten seconds, and so does a send that waits for its own room.
AT_ONCE_S = 8


class CloseCase(ShellCase):
    """A topic with messages."""

    def fill(self, count: int = 3) -> None:
        """Send messages to topic T, in one queue, which keeps their order."""
        with Producer(self.where) as producer:
            for _ in range(count):
                producer.send("T", b"x", sharding_key="one")

    def committed(self, group: str = "g") -> int:
        """Return the committed offset of a group, over all queues."""
        with Client(self.where) as client:
            return sum(client.group_offset(group, queue) or 0
                       for queue in client.read_queues("T"))


class BlockingCloseTests(CloseCase):
    """The blocking style."""

    def check(self, consumer: Consumer[Any], run: Callable[[Callable[[Any], None]], None],
              committed: int | None) -> None:
        """Close in the first handler: that one counts, and the run ends."""
        took: list[float] = []

        def handle(_: Any) -> None:
            begin = time.monotonic()
            consumer.close()
            took.append(time.monotonic() - begin)

        begin = time.monotonic()
        run(handle)
        self.assertLess(time.monotonic() - begin, AT_ONCE_S)
        self.assertEqual(len(took), 1)
        self.assertLess(took[0], AT_ONCE_S)
        self.assertTrue(consumer._member.has_left)
        self.assertTrue(consumer.client._core.is_closed)
        if committed is not None:
            self.assertEqual(self.committed(), committed)

    def test_a_handler_closes_its_consumer(self) -> Deferred[Any]:
        """Handlers of messages, of lists, and of popped messages are tested."""
        def run() -> None:
            self.fill()
            consumer: Consumer[Any] = Consumer(
                self.where, group="g", topics="T", start="first", order="queue")
            self.check(consumer, lambda handle: consumer.run(handle, workers=2), 1)
            consumer = Consumer(self.where, group="g", topics="T")
            self.check(consumer, lambda handle: consumer.run_batches(handle, size=2), 3)
            consumer = PopConsumer(self.where, group="popping", topics="T", start="first")
            self.check(consumer, lambda handle: consumer.run(handle, workers=1), None)

        return self.in_thread(run)

    def test_other_handlers_end_before_the_close(self) -> Deferred[Any]:
        """One handler closes while another one runs; both results count."""
        def run() -> None:
            with Producer(self.where) as producer:
                for queue in producer.queues("T")[:2]:
                    producer.send("T", b"x", queue=queue)
            both, closed = threading.Barrier(2, timeout=20), threading.Event()
            consumer: Consumer[Any] = Consumer(self.where, group="g", topics="T", start="first")

            def handle(message: Any) -> None:
                if both.wait() == 0:
                    consumer.close()
                    closed.set()
                else:
                    closed.wait(20)
                    consumer.commit()

            consumer.run(handle)
            self.assertEqual(self.committed(), 2)

        return self.in_thread(run)

    def test_what_a_handler_began_closes_it_after_the_run(self) -> Deferred[Any]:
        """The context of the handler lives on, and its turn is over."""
        def run() -> None:
            self.fill(1)
            consumer: Consumer[Any] = Consumer(self.where, group="g", topics="T", start="first")
            contexts: list[Context] = []

            def handle(_: Any) -> None:
                contexts.append(copy_context())
                consumer.stop()

            consumer.run(handle, workers=1)
            self.assertFalse(consumer._member.has_left)
            contexts[0].run(consumer.close)
            self.assertTrue(consumer._member.has_left)

        return self.in_thread(run)

    def test_a_loop_closes_its_consumer(self) -> Deferred[Any]:
        """Earlier messages are finished; that of the loop is delivered again, as
        after ``break``.
        """
        def run() -> None:
            self.fill()
            for kind, group in ((Consumer, "g"), (PopConsumer, "popping")):
                consumer = kind(self.where, group=group, topics="T", start="first")
                begin, count = time.monotonic(), 0
                for _ in consumer:
                    count += 1
                    if count == 2:
                        consumer.close()
                self.assertLess(time.monotonic() - begin, AT_ONCE_S)
                self.assertEqual((count, consumer._member.delivery.running), (2, 0))
            self.assertEqual(self.committed(), 1)
            kept = PopConsumer(self.where, group="popping", topics="T")
            self.assertEqual(len(kept.receive(3, wait_s=10)), 2)
            # An iterator that is kept, and not asked again.
            consumer = Consumer(self.where, group="g", topics="T")
            found = iter(consumer)
            next(found)
            begin = time.monotonic()
            consumer.close()
            self.assertLess(time.monotonic() - begin, AT_ONCE_S)
            self.assertEqual(list(found), [])
            kept.close()

        return self.in_thread(run)

    def test_the_clients_own_thread_is_told_to_do_it_elsewhere(self) -> Deferred[Any]:
        """Call-backs of futures and of queues: the refusal comes at once and changes nothing."""
        def run() -> None:
            said: list[str] = []
            done = threading.Event()

            def refused(function: Callable[[], object]) -> None:
                begin = time.monotonic()
                try:
                    function()
                except RuntimeError as error:
                    said.append(str(error))
                self.assertLess(time.monotonic() - begin, AT_ONCE_S)

            with Producer(self.where, auto_batch=True) as producer:
                def told(_: Any) -> None:
                    refused(producer.close)
                    refused(producer.flush)
                    refused(producer.client.close)
                    done.set()

                producer.send_soon("T", b"x").add_done_callback(told)
                self.assertTrue(done.wait(20))
                producer.send("T", b"still open")
            self.assertEqual(len(said), 3)
            self.assertIn("on another thread", said[0])
            made: list[Consumer[Any] | PullConsumer[Any]] = []

            def assigned(_: Any) -> None:
                while not made:
                    time.sleep(0.01)
                refused(made[0].close)
                done.set()

            for kind in (Consumer, PullConsumer):
                done.clear()
                said.clear()
                made.clear()
                made.append(kind(self.where, group="g", topics="T", on_assigned=assigned))
                self.assertTrue(done.wait(20))
                self.assertEqual(len(said), 1)
                made[0].commit()
                made[0].close()

        return self.in_thread(run)

    def test_a_call_back_does_not_wait_for_room_that_it_frees_itself(self) -> Deferred[Any]:
        """Its thread is the one that ends messages."""
        def run() -> None:
            done = threading.Event()
            errors: list[Exception] = []

            with Producer(self.where, in_flight_max=1, timeout_s=10) as producer:
                def told(_: Any) -> None:
                    begin = time.monotonic()
                    try:
                        for _ in range(2):
                            producer.send_soon("T", b"x")
                    except Full as error:
                        errors.append(error)
                    self.assertLess(time.monotonic() - begin, AT_ONCE_S)
                    done.set()

                producer.send_soon("T", b"x").add_done_callback(told)
                self.assertTrue(done.wait(20))
            self.assertEqual(len(errors), 1)

        return self.in_thread(run)

    def test_a_check_closes_its_producer(self) -> Deferred[Any]:
        """``on_check`` runs on its own thread, for which nothing waits."""
        def run() -> None:
            took: list[float] = []

            def check() -> None:
                begin = time.monotonic()
                producer.close()
                took.append(time.monotonic() - begin)

            producer = Producer(self.where, on_check=lambda message: None)
            checks = producer._sender.checks
            assert checks is not None
            working = producer.client._loop.call_in_loop(
                lambda: producer.client._core.engine.in_thread(check))
            begin = time.monotonic()
            while not took and time.monotonic() < begin + 20:
                time.sleep(0.01)
            self.assertLess(took[0], AT_ONCE_S)
            self.assertIsNotNone(working)

        return self.in_thread(run)


async def close_in_a_handler(consumer: LoopConsumer[Any, Any]) -> list[float]:
    """Close in the first handler; :returns: how long that took, and the run."""
    took: list[float] = []

    async def handle(_: Any) -> None:
        begin = time.monotonic()
        await consumer.close()
        took.append(time.monotonic() - begin)

    begin = time.monotonic()
    await consumer.run(handle)
    return [*took, time.monotonic() - begin]


async def close_in_a_loop(consumer: LoopConsumer[Any, Any]) -> tuple[int, float]:
    """Close in the second turn; :returns: how many turns there were, and how long they took."""
    count, begin = 0, time.monotonic()
    async for _ in consumer:
        count += 1
        if count == 2:
            await consumer.close()
    return count, time.monotonic() - begin


class LoopCloseTests(CloseCase):
    """The shells of asyncio and Twisted."""

    def check(self, handled: list[float], looped: tuple[int, float]) -> None:
        """Check one handler, and two steps of a loop."""
        self.assertEqual(len(handled), 2)
        self.assertLess(handled[0], 1)
        self.assertLess(handled[1], AT_ONCE_S)
        self.assertEqual(looped[0], 2)
        self.assertLess(looped[1], AT_ONCE_S)
        self.assertEqual(self.committed(), 1)
        self.assertEqual(self.committed("looping"), 1)

    def test_asyncio(self) -> Deferred[Any]:
        """A coroutine function, and a plain one on a thread, which has the loop close it."""
        def run() -> None:
            self.fill()

            async def main() -> None:
                options: Any = {"topics": "T", "start": "first", "order": "queue"}
                handled = await close_in_a_handler(
                    aio.Consumer(self.where, group="g", **options))
                looped = await close_in_a_loop(
                    aio.Consumer(self.where, group="looping", **options))
                await asyncio.to_thread(self.check, handled, looped)
                loop = asyncio.get_running_loop()
                consumer: aio.Consumer[Any] = aio.Consumer(self.where, group="threads", **options)

                def handle(_: Any) -> None:
                    asyncio.run_coroutine_threadsafe(consumer.close(), loop).result(20)

                begin = time.monotonic()
                await consumer.run(handle)
                self.assertLess(time.monotonic() - begin, AT_ONCE_S)

            asyncio.run(main())

        return self.in_thread(run)

    @inlineCallbacks
    def test_twisted(self) -> Any:
        """A coroutine function, and a function that returns the Deferred of the close."""
        yield deferToThread(self.fill)
        options: Any = {"topics": "T", "start": "first", "order": "queue", "reactor": reactor}
        handled = yield Deferred.fromCoroutine(close_in_a_handler(
            tx.Consumer(self.where, group="g", **options)))
        looped = yield Deferred.fromCoroutine(close_in_a_loop(
            tx.Consumer(self.where, group="looping", **options)))
        yield deferToThread(self.check, handled, looped)
        consumer: tx.Consumer[Any] = tx.Consumer(self.where, group="deferring", **options)
        begin = time.monotonic()
        yield consumer.run(lambda _: consumer.close())
        self.assertLess(time.monotonic() - begin, AT_ONCE_S)

    @inlineCallbacks
    def test_a_service_is_stopped_by_its_handler(self) -> Any:
        """The handler waits for the end of the service, which does not wait for the handler."""
        yield deferToThread(self.fill)
        stopped: Deferred[None] = Deferred()
        consumer: tx.Consumer[Any] = tx.Consumer(
            self.where, group="g", topics="T", start="first", order="queue", reactor=reactor)

        async def handle(_: Any) -> None:
            await service.stopService()
            stopped.callback(None)

        service = tx.ConsumerService(consumer, handle)
        service.startService()
        yield stopped
        yield service._running
        committed = yield deferToThread(self.committed)
        self.assertEqual(committed, 1)
