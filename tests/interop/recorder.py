"""A relay between a client and a server that records their frames, and a plain client.

It knows as little of the protocol as it needs to cut frames and to find the reply of a request, so
that what is captured with it does not depend on the code that is tested with the captures.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

__all__ = ["Exchange", "Frame", "PlainClient", "Recorder"]

ONEWAY: Final = 2
RESPONSE: Final = 1
#: code, language, version, opaque, flag: how a binary header begins.
BINARY_HEAD: Final = struct.Struct(">hbhii")


@dataclass(frozen=True)
class Frame:
    """One frame as it was relayed, with its length.

    ``connection`` counts the recorder's connections from 0, and ``seconds`` is the time at which
    the frame was relayed, of a steady clock.
    """

    data: bytes
    connection: int = 0
    from_client: bool = True
    seconds: float = 0.0

    @property
    def body(self) -> bytes:
        """Return the bytes after the header."""
        (mark,) = struct.unpack_from(">I", self.data, 4)
        return self.data[8 + (mark & 0xFFFFFF):]

    @property
    def fields(self) -> dict[str, str]:
        """Return the extFields of a JSON header."""
        (size,) = struct.unpack_from(">I", self.data, 4)
        fields: dict[str, str] | None = json.loads(self.data[8:8 + size]).get("extFields")
        return fields or {}

    def _head(self) -> tuple[int, int, int]:
        """Code, opaque and flag, from either encoding of the header."""
        (mark,) = struct.unpack_from(">I", self.data, 4)
        if mark >> 24:
            code, _, _, opaque, flag = BINARY_HEAD.unpack_from(self.data, 8)
            return code, opaque, flag
        header = json.loads(self.data[8:8 + (mark & 0xFFFFFF)])
        return header["code"], header["opaque"], header["flag"]

    @property
    def code(self) -> int:
        """Return the code of the request or response."""
        return self._head()[0]

    @property
    def opaque(self) -> int:
        """Return the number that connects a reply with its request."""
        return self._head()[1]

    @property
    def is_reply(self) -> bool:
        """Whether it is a reply to a frame of the other side."""
        return bool(self._head()[2] & RESPONSE)

    @property
    def is_oneway(self) -> bool:
        """Whether it needs no reply."""
        return bool(self._head()[2] & ONEWAY)


@dataclass(frozen=True)
class Exchange:
    """A request and its reply; a one-way request has none."""

    request: Frame
    reply: Frame | None


@dataclass
class Recorder:
    """Listens on one port and relays to another, keeping whole frames of both directions.

    ``rewrite`` is applied to frames for the client after they were kept: with it a recorder before
    a name server sends clients to a recorder before the broker. It may not change a length.
    """

    port: int
    target_port: int
    rewrite: tuple[bytes, bytes] = (b"", b"")
    frames: list[Frame] = field(default_factory=list)
    _connections: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _listener: socket.socket = field(init=False)

    def __enter__(self) -> Recorder:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        # Closing alone leaves the port taken as long as the other thread waits in accept.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.target_port))
            except OSError:
                client.close()
                continue
            number = self._connections
            self._connections += 1
            threading.Thread(target=self._join, args=(client, server, number), daemon=True).start()

    def _join(self, client: socket.socket, server: socket.socket, number: int) -> None:
        """Relay in both directions until both ends have closed."""
        with client, server:
            replies = threading.Thread(
                target=self._relay, args=(server, client, number, False), daemon=True)
            replies.start()
            self._relay(client, server, number, True)
            replies.join()

    def _relay(
        self, source: socket.socket, target: socket.socket, number: int, from_client: bool
    ) -> None:
        waiting = b""
        try:
            while data := source.recv(65536):
                waiting += data
                while len(waiting) >= 4 and len(waiting) >= (size := frame_size(waiting)):
                    frame = Frame(waiting[:size], number, from_client, time.monotonic())
                    waiting = waiting[size:]
                    with self._lock:
                        self.frames.append(frame)
                    self.pass_on(target, frame)
        except OSError:
            pass
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def pass_on(self, target: socket.socket, frame: Frame) -> None:
        """Send a frame to the other side. A subclass may send other bytes instead."""
        data = frame.data
        if self.rewrite[0] and not frame.from_client:
            data = data.replace(*self.rewrite)
        target.sendall(data)

    def exchanges(self, code: int, *, from_client: bool = True) -> list[Exchange]:
        """Every request with this code, in order, with its reply."""
        with self._lock:
            frames = list(self.frames)
        requests = [frame for frame in frames if frame.from_client == from_client
                    and not frame.is_reply and frame.code == code]
        replies = {(frame.connection, frame.opaque): frame for frame in frames
                   if frame.from_client != from_client and frame.is_reply}
        return [Exchange(request, None if request.is_oneway
                         else replies.get((request.connection, request.opaque)))
                for request in requests]

    def wait_for(
        self, code: int, seconds: float, accept: Callable[[Exchange], bool] = lambda _: True
    ) -> Exchange:
        """The first exchange with this code that is complete and accepted.

        :raises TimeoutError: when there is none in time.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for exchange in self.exchanges(code):
                complete = exchange.reply is not None or exchange.request.is_oneway
                if complete and accept(exchange):
                    return exchange
            time.sleep(0.05)
        raise TimeoutError(f"no exchange with code {code} in {seconds} s")


def frame_size(data: bytes) -> int:
    """Return the size of the frame that begins here, with its length."""
    return int(struct.unpack_from(">i", data)[0]) + 4


class PlainClient:
    """Sends requests with JSON headers over one connection and waits for each reply."""

    def __init__(self, port: int, version: int = 479) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._version = version
        self._opaque = 0

    def __enter__(self) -> PlainClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def call(self, code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> Exchange:
        """Send a request; both frames."""
        self._opaque += 1
        header = json.dumps({
            "code": code, "extFields": fields or {}, "flag": 0, "language": "JAVA",
            "opaque": self._opaque, "serializeTypeCurrentRPC": "JSON", "version": self._version,
        }, ensure_ascii=False, separators=(",", ":")).encode()
        request = struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body
        self._socket.sendall(request)
        while True:
            reply = Frame(self._read(), from_client=False)
            if reply.is_reply and reply.opaque == self._opaque:
                return Exchange(Frame(request), reply)

    def _read(self) -> bytes:
        start = self._exactly(4)
        return start + self._exactly(frame_size(start) - 4)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the server closed the connection")
            data += more
        return data
