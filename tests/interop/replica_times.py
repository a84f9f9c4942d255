"""A relay between a master and its slaves that records the times of their bytes.

    with Relay(("127.0.0.1", 20000), ("127.0.0.1", 10912)) as relay:
        relay.links[0].reports()
        relay.mute("slave")

It reads the stream as little as it must, so that its figures do not depend on the code under test.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, NamedTuple, Self

__all__ = ["Frame", "Link", "Relay", "Report", "gaps"]

_REPORT: Final = struct.Struct(">q")
_HEAD: Final = struct.Struct(">qi")
_READ_SIZE: Final = 1 << 16

Address = tuple[str, int]


class Report(NamedTuple):
    """A slave has the log up to a place; ``at`` is when its last byte came, seconds."""

    at: float
    offset: int


class Frame(NamedTuple):
    """A frame of a master; ``size`` 0: a heartbeat. ``at`` as of a report."""

    at: float
    offset: int
    size: int


@dataclass
class Link:
    """One connection; times are seconds of a monotonic clock.

    :param began: when the slave had connected.
    """

    began: float
    #: When bytes came, of which side, and the bytes; those that were dropped as well.
    parts: list[tuple[float, str, bytes]] = field(default_factory=list)
    #: When bytes of a side began to be handed on last.
    handed_on: dict[str, float] = field(default_factory=dict)
    #: Which side closed it, and when.
    closed: tuple[str, float] | None = None

    def _ends(self, side: str) -> tuple[bytes, list[tuple[int, float]]]:
        """Return all bytes of one side, with the times at which they were sent."""
        data, ends = b"", []
        for at, whose, part in list(self.parts):
            if whose == side:
                data += part
                ends.append((len(data), at))
        return data, ends

    def reports(self) -> list[Report]:
        """Return the reports of the slave."""
        data, ends = self._ends("slave")
        return [Report(_when(ends, at + _REPORT.size), _REPORT.unpack_from(data, at)[0])
                for at in range(0, len(data) - _REPORT.size + 1, _REPORT.size)]

    def frames(self) -> list[Frame]:
        """Return the frames of the master."""
        data, ends = self._ends("master")
        found, at = [], 0
        while len(data) - at >= _HEAD.size:
            offset, size = _HEAD.unpack_from(data, at)
            at += _HEAD.size + size
            if at > len(data):
                break
            found.append(Frame(_when(ends, at), offset, size))
        return found


def _when(ends: list[tuple[int, float]], size: int) -> float:
    """Return the time at which a number of bytes had arrived."""
    return next(at for end, at in ends if end >= size)


def gaps(times: list[float]) -> list[float]:
    """Return the seconds from each to the next."""
    return [after - before for before, after in itertools.pairwise(times)]


class Relay:
    """Listens, and relays the bytes of masters and slaves.

    :param listen: where slaves connect.
    :param master: where the master listens.
    :param hold_seconds: what a slave says is handed on so long after its connect, not before.
    """

    def __init__(self, listen: Address, master: Address, hold_seconds: float = 0.0) -> None:
        self._master, self._hold_seconds = master, hold_seconds
        self._listener = socket.create_server(listen)
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._sockets: list[socket.socket] = []
        self._muted: set[str] = set()
        #: In the order of their connects.
        self.links: list[Link] = []

    @property
    def address(self) -> str:
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Closing alone leaves the port taken as long as the other thread waits in accept.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for each in self._sockets:
            each.close()

    def mute(self, side: str) -> None:
        """Drop the bytes of "slave" or "master" from now on, on all existing connections."""
        self._muted.add(side)

    def unmute(self) -> None:
        """Relay all bytes from now on."""
        self._muted.clear()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                slave, _ = self._listener.accept()
                link = Link(time.monotonic())
                try:
                    master = socket.create_connection(self._master)
                except OSError:
                    slave.close()
                    continue
                self.links.append(link)
                for source, target, side in ((slave, master, "slave"), (master, slave, "master")):
                    source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._sockets.append(source)
                    thread = threading.Thread(
                        target=self._copy, args=(link, source, target, side), daemon=True)
                    self._threads.append(thread)
                    thread.start()

    def _copy(self, link: Link, source: socket.socket, target: socket.socket, side: str) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_READ_SIZE):
                link.parts.append((time.monotonic(), side, data))
                if side in self._muted:
                    continue
                if side == "slave":
                    time.sleep(max(0.0, link.began + self._hold_seconds - time.monotonic()))
                # Before it is: the silence of this side begins no earlier.
                link.handed_on[side] = time.monotonic()
                target.sendall(data)
        # The other thread ends when its side is shut down here.
        link.closed = link.closed or (side, time.monotonic())
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
