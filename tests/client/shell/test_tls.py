"""TLS of the three clients: a broker that requires it, and wrong certificates."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import ssl
import threading
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from twisted.internet import reactor
from twisted.internet.tcp import Connection
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from tests.certificates import Authority
from twistmq.broker.testing import RunningBroker, running_broker
from twistmq.client import Client, Consumer, Producer, aio, tx
from twistmq.protocol.errors import BrokerError

BODIES = [b"%d" % number for number in range(20)]

#: Sends the bodies and consumes them; is given the name servers and the TLS context.
Shell = Callable[[str, ssl.SSLContext | None], Awaitable[list[bytes]]]


def blocking(where: str, context: ssl.SSLContext | None) -> list[bytes]:
    """Send and consume on threads."""
    found: list[bytes] = []
    with Client(where, tls=context, timeout_s=5, retries=0) as client:
        with Producer(client=client, group="p") as producer:
            for body in BODIES:
                producer.send("Blocking", body)
        with Consumer[bytes](
                client=client, group="g-blocking", topics="Blocking", start="first") as consumer:
            for message in consumer:
                found.append(message.body)
                if len(found) == len(BODIES):
                    consumer.stop()
    return found


async def in_asyncio(where: str, context: ssl.SSLContext | None) -> list[bytes]:
    """Send and consume in asyncio."""
    found: list[bytes] = []
    async with aio.Client(where, tls=context, timeout_s=5, retries=0) as client:
        async with aio.Producer(client=client, group="p") as producer:
            for body in BODIES:
                await producer.send("Asyncio", body)
        async with aio.Consumer[bytes](
                client=client, group="g-asyncio", topics="Asyncio", start="first") as consumer:
            async for message in consumer:
                found.append(message.body)
                if len(found) == len(BODIES):
                    consumer.stop()
    return found


async def in_twisted(where: str, context: ssl.SSLContext | None) -> list[bytes]:
    """Send and consume by the reactor of the test."""
    found: list[bytes] = []
    async with tx.Client(
            where, reactor=reactor, tls=context, timeout_s=5, retries=0) as client:
        async with tx.Producer(client=client, group="p") as producer:
            for body in BODIES:
                await producer.send("Twisted", body)
        async with tx.Consumer[bytes](
                client=client, group="g-twisted", topics="Twisted", start="first") as consumer:
            async for message in consumer:
                found.append(message.body)
                if len(found) == len(BODIES):
                    consumer.stop()
    return found


async def threads(where: str, context: ssl.SSLContext | None) -> list[bytes]:
    """Run the blocking client beside the reactor."""
    return await deferToThread(blocking, where, context)


def open_sockets() -> int:
    """Return how many sockets the running asyncio loop watches, except its own."""
    loop: Any = asyncio.get_running_loop()
    return len(loop._selector.get_map()) - 1


async def to_its_end(where: str, context: ssl.SSLContext | None) -> list[bytes]:
    """Run the client of asyncio; no socket is open once it is closed."""
    try:
        return await in_asyncio(where, context)
    finally:
        if count := open_sockets():
            raise AssertionError(f"{count} sockets are open after the close")


async def asyncio_beside(where: str, context: ssl.SSLContext | None) -> list[bytes]:
    """The client of asyncio, in a loop beside the reactor."""
    return await deferToThread(lambda: asyncio.run(to_its_end(where, context)))


SHELLS: dict[str, Shell] = {
    "threads": threads, "asyncio": asyncio_beside, "Twisted": in_twisted}


class EndTests(TestCase):
    """A closed client has closed its sockets within a limit, whatever the server does."""

    timeout = 60

    def setUp(self) -> None:
        """Make a certificate for a server that says nothing."""
        folder = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        folder.mkdir()
        authority = Authority(folder)
        pair = authority.pair("server", hosts=("127.0.0.1",))
        self.context = ssl.create_default_context(cafile=str(authority.cert))
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server.load_cert_chain(pair.cert, pair.key)

    @contextlib.contextmanager
    def silent(self, *, is_tls: bool, says_hello: bool) -> Iterator[str]:
        """Start a server that accepts connections and never answers, not even at the end of TLS.

        :param says_hello: whether TLS begins.
        """
        taken: list[socket.socket] = []
        with socket.create_server(("127.0.0.1", 0)) as listener:
            def serve() -> None:
                with contextlib.suppress(OSError):
                    while True:
                        taken.append(listener.accept()[0])
                        if is_tls and says_hello:
                            taken.append(self.server.wrap_socket(taken.pop(), server_side=True))

            thread = threading.Thread(target=serve, daemon=True)
            thread.start()
            try:
                yield f"127.0.0.1:{listener.getsockname()[1]}"
            finally:
                listener.shutdown(socket.SHUT_RDWR)
                thread.join(10)
                for each in taken:
                    each.close()

    def servers(self) -> Iterator[tuple[str, str, ssl.SSLContext | None]]:
        """Start three silent servers; :returns: names, addresses, and the context of clients."""
        for name, is_tls, says_hello in (
                ("TCP", False, False), ("TLS", True, True), ("half of TLS", True, False)):
            with self.silent(is_tls=is_tls, says_hello=says_hello) as where:
                yield name, where, self.context if is_tls else None

    def test_asyncio(self) -> None:
        """The loop watches no socket, and none is left to the garbage collector."""
        async def main(where: str, context: ssl.SSLContext | None) -> tuple[int, float]:
            client = aio.Client(where, tls=context, timeout_s=0.3, retries=0)
            with self.assertRaises(BrokerError):
                await client.topics()
            begin = time.monotonic()
            await client.close()
            return open_sockets(), time.monotonic() - begin

        for name, where, context in self.servers():
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always", ResourceWarning)
                count, took_s = asyncio.run(main(where, context))
                gc.collect()
            self.assertEqual((count, [str(each.message) for each in warned]), (0, []), msg=name)
            self.assertLess(took_s, 5, msg=name)

    async def test_twisted(self) -> None:
        """The reactor watches no socket of the client."""
        def sockets() -> list[Any]:
            readers: Any = reactor
            return [each for each in readers.getReaders() if isinstance(each, Connection)]

        for name, where, context in self.servers():
            client = tx.Client(where, reactor=reactor, tls=context, timeout_s=0.3, retries=0)
            with self.assertRaises(BrokerError):
                await client.topics()
            await client.close()
            self.assertEqual(sockets(), [], msg=name)

    def test_threads(self) -> None:
        """The sockets of the blocking client are closed as well."""
        for name, where, context in self.servers():
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always", ResourceWarning)
                client = Client(where, tls=context, timeout_s=0.3, retries=0)
                with self.assertRaises(BrokerError):
                    client.topics()
                client.close()
                del client
                gc.collect()
            self.assertEqual([str(each.message) for each in warned], [], msg=name)


class ShellTests(TestCase):
    """The name server and the broker enforce TLS."""

    timeout = 120

    def setUp(self) -> None:
        """Make an authority, and another one."""
        self.folder = Path(self.mktemp()).absolute()  # type: ignore[no-untyped-call]
        self.folder.mkdir()
        self.authority = Authority(self.folder)
        self.other = Authority(self.folder, "other")

    def servers(self, *hosts: str) -> RunningBroker:
        """Start servers whose certificate has these hosts."""
        own = self.authority.pair("server", hosts=hosts)
        running = running_broker({
            "tls.server.mode": "enforcing", "tls.server.certPath": str(own.cert),
            "tls.server.keyPath": str(own.key), "tls.enable": "true",
            "tls.client.authServer": "false", "brokerFastFailureEnable": "false"})
        broker = running.__enter__()
        self.addCleanup(running.__exit__, None, None, None)
        return broker

    async def refused(self, broker: RunningBroker, context: ssl.SSLContext | None) -> None:
        """Check that no shell can send."""
        for name, shell in SHELLS.items():
            try:
                found = await shell(broker.namesrv_address, context)
            except BrokerError:
                continue
            self.fail(f"{name} trusts the server, and read {found}")
        self.assertEqual(broker.call(lambda: [
            topic for topic in broker.kernel.tables.topic_config.table
            if topic in ("Blocking", "Asyncio", "Twisted")]), [])

    async def test_every_message_is_sent_and_consumed(self) -> None:
        """Each of the three shells trusts the authority of the certificate."""
        broker = self.servers("127.0.0.1")
        context = ssl.create_default_context(cafile=str(self.authority.cert))
        for name, shell in SHELLS.items():
            with self.subTest(shell=name):
                self.assertEqual(sorted(await shell(broker.namesrv_address, context)),
                                 sorted(BODIES))

    async def test_a_certificate_of_another_authority_is_refused(self) -> None:
        """A connection without TLS is refused as well."""
        broker = self.servers("127.0.0.1")
        await self.refused(broker, ssl.create_default_context(cafile=str(self.other.cert)))
        await self.refused(broker, None)

    async def test_a_certificate_of_another_host_is_refused(self) -> None:
        """The context may disable the check of names, as Apache's clients do."""
        broker = self.servers("localhost", "10.0.0.1", "another.example")
        context = ssl.create_default_context(cafile=str(self.authority.cert))
        await self.refused(broker, context)
        context.check_hostname = False
        found: Any = await SHELLS["threads"](broker.namesrv_address, context)
        self.assertEqual(sorted(found), sorted(BODIES))
