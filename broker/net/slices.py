"""Slices: the requests that connections run in their turns, separately or joined into one batch.

Many producers send one message at a time. If one round of the reactor reads several of these sends,
or if they wait because the broker is overloaded, they form one batch, with one append and one write
to the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from twistmq.broker.remoting.dispatcher import Head
from twistmq.protocol.frame import Frame

__all__ = ["JOINING_FRAMES_MAX", "PIECE_FRAMES_MAX", "Connection", "Port", "Slice", "SliceBatch"]

#: The number of requests in a piece. The sends of a piece form one batch, which takes two to three
#: milliseconds with this number.
PIECE_FRAMES_MAX: Final = 256
#: A read with this number of requests forms a separate batch, unless it has to wait.
JOINING_FRAMES_MAX: Final = 64
#: A batch with this number of bytes does not take further slices.
_BYTES_MAX: Final = 1024 * 1024


class Port(Protocol):
    """The port of a connection."""

    def run_together(self, slices: Sequence[Slice]) -> None:
        """Run slices of its connections, whose requests have one code, as one batch."""


class Connection(Protocol):
    """A connection as the run queue uses it."""

    remote_address: str

    @property
    def factory(self) -> Port:
        """The port of the connection."""

    def begin_slice(self) -> Slice | None:
        """Take one piece of the waiting requests; None when no request may run now."""

    def run_slice(self, part: Slice) -> None:
        """Run a slice that is not joined, and queue again if more requests are left."""

    def write(self, data: bytes) -> None:
        """Send replies."""

    def end_slice(self) -> None:
        """Continue after a slice that was run with others."""

    def abort(self, why: str) -> None:
        """Abort the connection."""


@dataclass(eq=False, slots=True)
class Slice:
    """The requests that one connection runs in its turn.

    :param now_ms: the time when it was taken, Unix ms.
    :param head: the requests at its beginning that are handled together.
    :param code: the code of all its requests, if other connections' requests may join them.
    """

    connection: Connection
    frames: Sequence[Frame]
    now_ms: int
    head: Head
    code: int | None


class SliceBatch:
    """Slices of one port, with requests of one code, that are run as one batch."""

    def __init__(self) -> None:
        self._slices: list[Slice] = []
        self._request_count = self._size_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._slices)

    @property
    def is_full(self) -> bool:
        """Whether it cannot take further slices."""
        return self._request_count >= PIECE_FRAMES_MAX or self._size_bytes >= _BYTES_MAX

    def add(self, part: Slice) -> None:
        """Add a slice; if it cannot join the present slices, they are run first."""
        if self._slices and not self._takes(part):
            self.run()
        self._slices.append(part)
        self._request_count += len(part.frames)
        self._size_bytes += sum([len(header) + len(body) for _, header, body in part.frames])

    def _takes(self, part: Slice) -> bool:
        first = self._slices[0]
        return (part.code == first.code and part.connection.factory is first.connection.factory
                and self._request_count + len(part.frames) <= PIECE_FRAMES_MAX
                and not self.is_full)

    def run(self) -> None:
        """Run the slices, and forget them."""
        slices, self._slices = self._slices, []
        self._request_count = self._size_bytes = 0
        if len(slices) == 1:
            slices[0].connection.run_slice(slices[0])
        elif slices:
            slices[0].connection.factory.run_together(slices)
