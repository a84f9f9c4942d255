"""A server on a thread that answers as a test asks: late, wrongly, or not at all."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator

from twistmq.client.blocking.connection import Connection
from twistmq.protocol.bodies import BrokerData, QueueData, TopicRouteData
from twistmq.protocol.command import RemotingCommand, decode_command, encode_reply
from twistmq.protocol.frame import FrameDecoder
from twistmq.protocol.header import CommandHeader

__all__ = ["ScriptedServer", "answer", "relay", "route_body", "scripted_server"]

#: Gets a request; gives the bytes to send, None for no answer. ConnectionError ends the connection.
Script = Callable[[RemotingCommand], bytes | None]


def answer(request: RemotingCommand, code: int = 0, header: CommandHeader | None = None,
           body: bytes = b"", remark: str | None = None) -> bytes:
    """Return a reply to a request."""
    return encode_reply(code, request.opaque, header, body, remark)


def route_body(brokers: dict[str, dict[int, str]], queues: int = 1) -> bytes:
    """The body of a route: brokers by name, each with its addresses by id, and so many queues."""
    return TopicRouteData(
        queue_datas=[QueueData(name, queues, queues, 6) for name in brokers],
        broker_datas=[BrokerData("c", name, addresses) for name, addresses in brokers.items()],
    ).encode_standard()


class ScriptedServer:
    """Listens on 127.0.0.1; ``requests`` are all it was sent."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[RemotingCommand] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def codes(self) -> list[int]:
        """Return the codes of all requests, in order."""
        return [request.code for request in self.requests]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = self._socket.accept()[0]
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        decoder = FrameDecoder()
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(65536):
                for frame in decoder.feed(data):
                    request = decode_command(frame)
                    self.requests.append(request)
                    reply = self.script(request)
                    if reply is not None:
                        connection.sendall(reply)


@contextlib.contextmanager
def scripted_server(script: Script) -> Iterator[ScriptedServer]:
    """Run a server during the block."""
    server = ScriptedServer(script)
    try:
        yield server
    finally:
        server.close()


@contextlib.contextmanager
def relay(address: str, tls: ssl.SSLContext) -> Iterator[str]:
    """TLS in front of a server without; :returns: the address."""
    def script(request: RemotingCommand) -> bytes:
        with Connection(address) as connection:
            reply = connection.request(request.code, None, request.body)
        return encode_reply(reply.code, request.opaque, None, reply.body, reply.remark)

    class TlsServer(ScriptedServer):
        def _serve(self, connection: socket.socket) -> None:
            with contextlib.suppress(OSError):
                super()._serve(tls.wrap_socket(connection, server_side=True))

    server = TlsServer(script)
    try:
        yield server.address
    finally:
        server.close()
