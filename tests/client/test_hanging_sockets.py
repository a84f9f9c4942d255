"""Brokers whose sockets accept no connection or no bytes: sends end in time."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from tests.client.roles.styles import Style, in_each_style
from tests.client.scripted_server import answer, route_body, scripted_server
from tests.interop.ports import free_port
from twistmq.client import Producer, SendFailed, aio, tx
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.command import RemotingCommand

#: More than any socket takes for a server that does not read.
BODY = bytes(4 << 20)
COUNT = 5
TIMEOUT_S = 2.0
#: A hang would last for longer, also on a busy machine.
PATIENCE_S = 60.0


@contextlib.contextmanager
def full_socket() -> Iterator[socket.socket]:
    """Return the socket of a broker that accepts connections and reads nothing."""
    with socket.create_server(("127.0.0.1", free_port())) as server:
        # Connections inherit it: the system takes little for a program that does not read.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        yield server


@contextlib.contextmanager
def closed_door() -> Iterator[socket.socket]:
    """Return the socket of a broker whose system answers no attempt to connect."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", free_port()), backlog=0))
        for _ in range(4):
            # Those that the line of the server has no place for get no answer.
            other = stack.enter_context(socket.socket())
            other.setblocking(False)
            other.connect_ex(server.getsockname())
        yield server


def received(server: socket.socket) -> list[int]:
    """Return the number of bytes on each connection of a server, until it ended."""
    server.setblocking(False)
    counts = []
    with contextlib.suppress(BlockingIOError):
        while True:
            connection = server.accept()[0]
            connection.settimeout(PATIENCE_S)
            count = 0
            with connection, contextlib.suppress(ConnectionResetError):
                while data := connection.recv(1 << 20):
                    count += len(data)
            counts.append(count)
    return counts


@contextlib.contextmanager
def namesrv_of(broker: socket.socket) -> Iterator[str]:
    """Start a name server that knows one broker; :returns: its address."""
    address = f"127.0.0.1:{broker.getsockname()[1]}"

    def script(request: RemotingCommand) -> bytes:
        body = route_body({"a": {0: address}})
        return answer(request, body=body if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC
                      else b"")

    with scripted_server(script) as server:
        yield server.address


class TimeTests(TestCase):
    """The time-out of a send in each style; the broker answers no send."""

    timeout = 120

    def test_the_sends_own_time_then_the_producers_then_the_clients(self) -> Deferred[Any]:
        """A producer of a shared client may have its own time-out, and so may each send."""
        def script(request: RemotingCommand) -> bytes | None:
            body = route_body({"a": {0: server.address}})
            if request.code == RequestCode.SEND_MESSAGE_V2:
                return None
            return answer(request, body=body if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC
                          else b"")

        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        server = stack.enter_context(scripted_server(script))

        async def main(style: Style) -> None:
            module, got = style.module, style.got
            for client_s, producer_s, send_s in ((0.3, None, None), (100, 0.3, None),
                                                 (100, 100, 0.3), (100, None, 0.3)):
                client = module.Client(server.address, timeout_s=client_s, **style.more)
                options = {} if producer_s is None else {"timeout_s": producer_s}
                own = {} if send_s is None else {"timeout_s": send_s}
                async with style.opened(client):
                    producer = module.Producer(client=client, **options)
                    async with style.opened(producer):
                        self.assertEqual(producer._sender.options.timeout_ms,
                                         1000 * (producer_s or client_s))
                        begin = time.monotonic()
                        with self.assertRaises(SendFailed):
                            await got(producer.send("T", b"x", **own))
                        self.assertTrue(0.25 < time.monotonic() - begin < PATIENCE_S,
                                        msg=f"{client_s} {producer_s} {send_s}")

        return in_each_style(main)


class HangingTests(TestCase):
    """Several large messages under way, in each shell."""

    timeout = 120

    def check(self, errors: list[Any], maybe_stored: bool, begin: float) -> None:
        """Check that each send failed after its time-out, and whether it may be stored."""
        self.assertTrue(TIMEOUT_S - 0.1 < time.monotonic() - begin < PATIENCE_S)
        self.assertEqual(len(errors), COUNT)
        for error in errors:
            self.assertIsInstance(error, SendFailed)
            self.assertEqual(error.maybe_stored, maybe_stored)
            # A try begins some time after its send, where the machine is busy.
            self.assertGreaterEqual(sum(each.duration_ms for each in error.attempts),
                                    TIMEOUT_S * 500)

    def blocking(self, broker: socket.socket, maybe_stored: bool) -> None:
        """Use the blocking client."""
        with namesrv_of(broker) as where:
            with Producer(where, timeout_s=TIMEOUT_S, compress_over=0) as producer:
                begin = time.monotonic()
                futures = [producer.send_soon("T", BODY) for _ in range(COUNT)]
                self.check([each.exception(PATIENCE_S) for each in futures], maybe_stored, begin)
            self.assertLess(time.monotonic() - begin, PATIENCE_S)

    async def awaited(
        self, broker: socket.socket, maybe_stored: bool, module: Any, **options: Any
    ) -> None:
        """Use the client of an event loop."""
        with namesrv_of(broker) as where:
            async with module.Producer(where, timeout_s=TIMEOUT_S, compress_over=0,
                                       **options) as producer:
                begin = time.monotonic()
                futures = [await producer.send_soon("T", BODY) for _ in range(COUNT)]
                errors = []
                for future in futures:
                    try:
                        await future
                    except SendFailed as error:
                        errors.append(error)
                self.check(errors, maybe_stored, begin)
            self.assertLess(time.monotonic() - begin, PATIENCE_S)

    def each(self, broker: Callable[[], contextlib.AbstractContextManager[socket.socket]],
             maybe_stored: bool) -> Deferred[None]:
        """Run all three at the same time, each with its own broker."""
        async def run() -> None:
            with contextlib.ExitStack() as stack:
                first, second, third = (stack.enter_context(broker()) for _ in range(3))
                await gatherResults([
                    deferToThread(self.blocking, first, maybe_stored),
                    deferToThread(lambda: asyncio.run(self.awaited(second, maybe_stored, aio))),
                    Deferred.fromCoroutine(
                        self.awaited(third, maybe_stored, tx, reactor=reactor)),
                ], consumeErrors=True)
                for server in (first, second, third) if maybe_stored else ():
                    # What waited when a connection was closed is not sent any more.
                    counts = await deferToThread(received, server)
                    self.assertGreaterEqual(len(counts), 1)
                    for count in counts:
                        self.assertLess(count, COUNT * len(BODY))

        return Deferred.fromCoroutine(run())

    def test_a_socket_that_takes_no_bytes_costs_a_send_its_time(self) -> Deferred[None]:
        """A part of the messages is sent, so they may be stored."""
        return self.each(full_socket, True)

    def test_an_address_without_an_answer_costs_a_send_its_time(self) -> Deferred[None]:
        """Nothing can be stored."""
        return self.each(closed_door, False)
