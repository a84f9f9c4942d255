"""The transactions of the three shells with a running broker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from itertools import count
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from twistmq.broker.testing import running_broker
from twistmq.client import COMMIT, ROLLBACK, UNKNOWN, Consumer, Producer, ReceivedMessage, aio, tx

#: Half messages are looked at often, and asked about when a test says so: one that its producer
#: ends is not asked about before, however long that takes. None is given up after a few questions,
#: however long a producer takes to start.
SETTINGS = {"transactionTimeOut": "60000", "transactionCheckInterval": "100",
            "transactionCheckMax": "1000"}
#: How old a half message is that is asked about once it is to be, ms.
SOON_MS = 300


def unknown(message: ReceivedMessage[Any]) -> Any:
    """An ``on_check`` that returns None."""
    return UNKNOWN


class TransactionTests(TestCase):
    """A broker on its own thread that asks producers on request."""

    timeout = 60

    def setUp(self) -> None:
        """Start the broker."""
        running = running_broker(SETTINGS)
        self.broker = running.__enter__()
        self.where = self.broker.namesrv_address
        self.addCleanup(running.__exit__, None, None, None)
        self.numbers = count()

    def ask_after(self, after_ms: int) -> None:
        """Let the broker ask about the half messages that are so old."""
        self.broker.call(self.broker.kernel.settings.put, "transactionTimeOut", after_ms)

    def bodies(self, wanted: int) -> list[bytes]:
        """Consume the topic's first messages as a new group; :returns: their bodies, in order."""
        found: list[bytes] = []
        with Consumer(self.where, group=f"g{next(self.numbers)}", topics="T",
                      start="first") as consumer:
            for message in consumer:
                found.append(message.body)
                if len(found) == wanted:
                    break
        return sorted(found)

    def in_thread(self, function: Callable[[], Any]) -> Deferred[Any]:
        """Run a blocking test beside the reactor."""
        return deferToThread(function)

    def test_a_commit_is_delivered_and_a_rollback_is_not(self) -> Deferred[Any]:
        """The broker asks about a third one that is left open, and not about these."""
        asked: list[bytes] = []

        def decide(message: ReceivedMessage[Any]) -> Any:
            asked.append(message.body)
            return COMMIT

        def run() -> None:
            with Producer(self.where, group="pay", on_check=decide) as producer:
                with producer.transaction("T", b"committed", keys=["k"]) as transaction:
                    self.assertTrue(transaction.result.safe)
                with producer.transaction("T", b"rolled back") as transaction:
                    transaction.rollback()
                with producer.transaction("T", b"committed too"):
                    pass
                self.assertEqual(self.bodies(2), [b"committed", b"committed too"])
                self.assertEqual(asked, [])
                # Half messages are looked at in their order: those above before this one.
                self.assertRaises(KeyError, self.fail_in_block, producer)
                self.ask_after(SOON_MS)
                self.assertEqual(self.bodies(3), [b"committed", b"committed too", b"open"])
            self.assertEqual(set(asked), {b"open"})

        return self.in_thread(run)

    def test_a_transaction_left_open_is_asked_about_off_the_clients_thread(self) -> Deferred[Any]:
        """The producer decides after its block raised; a check that fails is repeated."""
        asked: list[bytes] = []
        threads: set[str] = set()
        questions = count(1)

        def decide(message: ReceivedMessage[Any]) -> Any:
            number = next(questions)
            threads.add(threading.current_thread().name)
            asked.append(message.body)
            if number == 1:
                raise ValueError("not now")
            # It may be asked again before it has answered.
            if number == 2:
                producer.send("T", b"sent by the check")
            return COMMIT

        def run() -> None:
            with producer:
                self.assertRaises(KeyError, self.fail_in_block, producer)
                self.ask_after(SOON_MS)
                self.assertEqual(self.bodies(2), [b"open", b"sent by the check"])

        producer = Producer(self.where, group="pay", on_check=decide)
        waiting = self.in_thread(run)

        def check(_: Any) -> None:
            self.assertEqual(asked[:2], [b"open", b"open"])
            self.assertTrue(all(name.startswith("twistmq-client-work") for name in threads))

        return waiting.addCallback(check)

    def fail_in_block(self, producer: Producer) -> None:
        """Run a transaction whose local part raises."""
        with producer.transaction("T", b"open"):
            raise KeyError

    def test_the_check_reaches_another_producer_of_the_group(self) -> Deferred[Any]:
        """The producer of the half message is closed."""
        def run() -> None:
            with Producer(self.where, group="pay", on_check=unknown) as first:
                self.assertRaises(KeyError, self.fail_in_block, first)
            self.ask_after(SOON_MS)
            asked: list[bytes] = []

            def decide(message: ReceivedMessage[Any]) -> Any:
                asked.append(message.body)
                return COMMIT

            with Producer(self.where, group="pay", on_check=decide) as second:
                second.queues("T")
                second.send("T", b"after")
                self.assertEqual(self.bodies(2), [b"after", b"open"])
            self.assertEqual(set(asked), {b"open"})

        return self.in_thread(run)

    def test_asyncio_has_transactions_and_coroutines_that_check(self) -> Deferred[Any]:
        """The check runs in the producer's loop."""
        async def main() -> None:
            loop = asyncio.get_running_loop()

            async def decide(message: ReceivedMessage[Any]) -> Any:
                self.assertIs(asyncio.get_running_loop(), loop)
                await asyncio.sleep(0)
                return COMMIT if message.body == b"open" else ROLLBACK

            async with aio.Producer(self.where, group="pay", on_check=decide) as producer:
                async with producer.transaction("T", b"committed"):
                    pass
                async with producer.transaction("T", b"rolled back") as transaction:
                    transaction.rollback()
                for body in (b"open", b"rolled back by the check"):
                    with self.assertRaises(KeyError):
                        async with producer.transaction("T", body):
                            raise KeyError
                self.ask_after(SOON_MS)
                found = await asyncio.to_thread(self.bodies, 2)
                self.assertEqual(found, [b"committed", b"open"])

        return self.in_thread(lambda: asyncio.run(main()))

    def test_twisted_has_transactions_and_coroutines_that_check(self) -> Deferred[Any]:
        """A plain function is run by a thread of the reactor's pool."""
        asked: list[bytes] = []

        def plain(message: ReceivedMessage[Any]) -> Any:
            asked.append(message.body)
            return COMMIT

        async def coroutine(message: ReceivedMessage[Any]) -> Any:
            return plain(message)

        async def main() -> None:
            for wanted, group, decide in ((2, "one", plain), (4, "two", coroutine)):
                async with tx.Producer(self.where, group=group, on_check=decide,
                                       reactor=reactor) as producer:
                    self.ask_after(60_000)
                    async with producer.transaction("T", group.encode()):
                        pass
                    with self.assertRaises(KeyError):
                        async with producer.transaction("T", b"open " + group.encode()):
                            raise KeyError
                    self.ask_after(SOON_MS)
                    await deferToThread(self.bodies, wanted)
            self.assertEqual(set(asked), {b"open one", b"open two"})

        return Deferred.fromCoroutine(main())
