"""Servers that flood a client with requests, or never read, in each of the three styles."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from tests.client.scripted_server import ScriptedServer, answer, route_body
from twistmq.client import Consumer, RemotingError, aio, tx
from twistmq.protocol.codes import RequestCode
from twistmq.protocol.command import RemotingCommand, decode_command, encode_request
from twistmq.protocol.frame import FrameDecoder

COUNT, AT_ONCE = 100_000, 500
#: More memory than this, MiB, is not taken for all of the requests.
GROWTH_MAX_MIB = 48

_CODES = (RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
          RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, RequestCode.GET_CONSUMER_RUNNING_INFO,
          RequestCode.CONSUME_MESSAGE_DIRECTLY, RequestCode.CHECK_TRANSACTION_STATE,
          RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, 7, 99_999)
#: A round of requests. Changes of a group are one-way; each of the others is answered.
ROUND = b"".join(
    encode_request(int(_CODES[number % len(_CODES)]), number, None, b"no such body",
                   oneway=number % len(_CODES) == 0,
                   extra_fields={"consumerGroup": "other"} if number % 2 else {})
    for number in range(AT_ONCE))
ANSWERS = sum(number % len(_CODES) > 0 for number in range(AT_ONCE))


def memory_mib() -> float:
    """The anonymous memory of this process, which runs the servers too."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("RssAnon"):
                return int(line.split()[1]) / 1024
    return 0.0


class FloodServer(ScriptedServer):
    """A name server and broker that sends requests from its first heartbeat on."""

    def __init__(self) -> None:
        self.answered = 0
        self.is_over = threading.Event()
        self.growth_mib = 0.0
        super().__init__(self._answer)

    def _answer(self, request: RemotingCommand) -> bytes:
        if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return answer(request, 0, None, route_body({"b": {0: self.address}}))
        return answer(request)

    def _serve(self, connection: socket.socket) -> None:
        decoder = FrameDecoder()
        begun = False
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(1 << 18):
                for frame in decoder.feed(data):
                    command = decode_command(frame)
                    self.answered += command.is_response
                    if not command.is_response and not command.is_oneway:
                        connection.sendall(self._answer(command))
                    if command.code == RequestCode.HEART_BEAT and not begun:
                        begun = True
                        self._begin_mib = memory_mib()
                        connection.sendall(ROUND)
                    elif command.is_response and self.answered % ANSWERS == 0:
                        if self.answered >= COUNT // AT_ONCE * ANSWERS:
                            self.growth_mib = memory_mib() - self._begin_mib
                            self.is_over.set()
                        else:
                            connection.sendall(ROUND)


class Lines(logging.Handler):
    """A log handler that counts lines, and those with an internal error."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.tracebacks = 0

    def emit(self, record: logging.LogRecord) -> None:
        """See ``logging.Handler``."""
        self.count += 1
        self.tracebacks += record.exc_info is not None


class FloodTests(TestCase):
    """A hundred thousand requests of nine codes, with wrong bodies."""

    timeout = 300

    def setUp(self) -> None:
        """Start the server."""
        self.server = FloodServer()
        self.addCleanup(self.server.close)
        self.lines = Lines()
        log = logging.getLogger("twistmq.client")
        log.addHandler(self.lines)
        log.propagate = False
        self.addCleanup(log.removeHandler, self.lines)
        self.addCleanup(setattr, log, "propagate", True)

    def check(self, _: object = None) -> None:
        """Check that each request was answered, with limited memory and few log lines."""
        self.assertTrue(self.server.is_over.is_set())
        self.assertLess(self.server.growth_mib, GROWTH_MAX_MIB)
        self.assertLess(self.lines.count, COUNT / 100)
        self.assertEqual(self.lines.tracebacks, 0)

    def on_thread(self, work: Callable[[], object]) -> Deferred[Any]:
        """Work on a thread, then :meth:`check`."""
        return deferToThread(work).addCallback(self.check)

    def test_a_blocking_consumer_answers_them(self) -> Deferred[Any]:
        """The thread of all clients answers."""
        def work() -> None:
            with Consumer(self.server.address, group="g", topics="t"):
                self.assertTrue(self.server.is_over.wait(100))

        return self.on_thread(work)

    def test_a_consumer_of_asyncio_answers_them(self) -> Deferred[Any]:
        """Its loop answers."""
        async def main() -> None:
            async with aio.Consumer(self.server.address, group="g", topics="t"):
                await asyncio.to_thread(self.server.is_over.wait, 100)

        return self.on_thread(lambda: asyncio.run(main()))

    def test_a_consumer_of_twisted_answers_them(self) -> Deferred[Any]:
        """The reactor answers."""
        async def main() -> None:
            consumer = tx.Consumer(self.server.address, group="g", topics="t", reactor=reactor)
            async with consumer:
                await deferToThread(self.server.is_over.wait, 100)

        return Deferred.fromCoroutine(main()).addCallback(self.check)


class DeafServerTests(TestCase):
    """A server that reads nothing: a close ends in time, and no connection remains."""

    timeout = 120

    def setUp(self) -> None:
        """Create a socket that accepts connections and reads nothing."""
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.addCleanup(self._socket.close)
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.accepted: list[socket.socket] = []

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    self.accepted.append(self._socket.accept()[0])

        threading.Thread(target=accept, daemon=True).start()
        self.addCleanup(self._socket.shutdown, socket.SHUT_RDWR)
        self.addCleanup(lambda: [each.close() for each in self.accepted])

    def count(self) -> int:
        """The sockets of this process that are connected to the server."""
        port = f"{int(self.address.rpartition(':')[2]):04X}"
        inodes = set()
        with open("/proc/net/tcp") as table:
            for line in table:
                words = line.split()
                if words[2].endswith(f":{port}") and words[3] != "0A":
                    inodes.add(f"socket:[{words[9]}]")
        found = 0
        for number in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                found += os.readlink(f"/proc/self/fd/{number}") in inodes
        return found

    async def fill(self, client: Any) -> None:
        """Ask with more bytes than the system takes."""
        with contextlib.suppress(RemotingError):
            await client._shell.call(client._core.ask(
                self.address, 1, None, bytes(8 << 20), timeout_ms=500))

    def test_a_connection_of_asyncio_is_gone(self) -> Deferred[Any]:
        """The loop can be used for something else."""
        async def main() -> None:
            client = aio.Client(self.address)
            await self.fill(client)
            self.assertEqual(self.count(), 1)
            await client.close()
            while self.count():
                await asyncio.sleep(0.05)

        return deferToThread(lambda: asyncio.run(main()))

    def test_a_connection_of_twisted_is_gone(self) -> Deferred[Any]:
        """Trial checks the reactor."""
        async def main() -> None:
            client = tx.Client(self.address, reactor=reactor)
            await self.fill(client)
            self.assertEqual(self.count(), 1)
            await client.close()
            while self.count():
                paused: Deferred[None] = Deferred()
                reactor.callLater(0.05, paused.callback, None)  # type: ignore[attr-defined]
                await paused

        return Deferred.fromCoroutine(main())
