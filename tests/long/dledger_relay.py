"""Relays between the members of a group, which lose, delay, copy and reorder frames.

A member connects to a port of a relay instead of another member's port, so each connection between
two members passes a relay. A frame has a direction: a request goes from the member that connected,
and an answer to it. What happens to the frames of a direction is decided by its ``Weather``, which
may change at any time.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from tests.interop.ports import free_port

__all__ = ["CALM", "Direction", "Relays", "Weather"]

#: The sending and the receiving member.
Direction = tuple[str, str]
#: How often a connection whose end is held back by a cut is looked at, s.
_LOOK_SECONDS: Final = 0.1
_SIZE_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class Weather:
    """What happens to the frames of a direction.

    :param is_cut: whether all of them are lost, and no new connection is made.
    :param lost: the part that is lost, 0 to 1.
    :param copied: the part that arrives twice, 0 to 1.
    :param delay_ms: the mean time that a frame takes.
    :param spread_ms: the largest difference from this time. Frames overtake each other by it.
    """

    is_cut: bool = False
    lost: float = 0.0
    copied: float = 0.0
    delay_ms: float = 0.0
    spread_ms: float = 0.0


CALM: Final = Weather()


class Relays:
    """The relays of all directions, which run in one thread.

    :param ports: the port of each member.
    """

    def __init__(self, ports: Mapping[str, int], seed: int = 1) -> None:
        self._targets = dict(ports)
        #: The port at which the first member reaches the second one.
        self.ports = {(source, target): free_port() for source in ports for target in ports
                      if source != target}
        self.weather: dict[Direction, Weather] = dict.fromkeys(self.ports, CALM)
        #: The frames that were passed on, and those that were lost.
        self.passed = self.lost = 0
        self._chance = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._listen())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._call(self._cancel())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def ports_for(self, member: str) -> dict[str, int]:
        """Return the ports at which a member reaches the members, its own port included."""
        return {other: port if other == member else self.ports[member, other]
                for other, port in self._targets.items()}

    async def _listen(self) -> None:
        for (source, target), port in self.ports.items():
            self._servers.append(await asyncio.start_server(
                lambda reader, writer, source=source, target=target:  # type: ignore[misc]
                self._accept(source, target, reader, writer), "127.0.0.1", port))

    async def _cancel(self) -> None:
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(
        self, source: str, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter,
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve((source, target), reader, writer)
        except (OSError, asyncio.CancelledError):
            # One of the members, or the run, has ended.
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve(
        self, there: Direction, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        back = there[1], there[0]
        if self.weather[there].is_cut or self.weather[back].is_cut:
            # Neither side learns of the other. A connection that outlives the cut is closed after
            # it, because Apache's members do not give up one that answers nothing.
            while self.weather[there].is_cut or self.weather[back].is_cut:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_SECONDS):
                        if not await reader.read(1 << 16):
                            return
            return
        target, target_writer = await asyncio.open_connection(
            "127.0.0.1", self._targets[there[1]])
        pumps = [asyncio.ensure_future(self._pump(there, reader, target_writer)),
                 asyncio.ensure_future(self._pump(back, target, writer))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            target_writer.close()

    async def _pump(
        self, direction: Direction, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Pass frames on until one side closes the connection."""
        try:
            while True:
                size = await reader.readexactly(_SIZE_BYTES)
                frame = size + await reader.readexactly(int.from_bytes(size, "big"))
                self._pass_on(direction, frame, writer)
        except asyncio.IncompleteReadError:
            pass
        while self.weather[direction].is_cut:
            # The end of a connection does not arrive either.
            await asyncio.sleep(_LOOK_SECONDS)

    def _pass_on(self, direction: Direction, frame: bytes, writer: asyncio.StreamWriter) -> None:
        weather, draw = self.weather[direction], self._chance.random
        if weather.is_cut or draw() < weather.lost:
            self.lost += 1
            return
        for _ in range(2 if draw() < weather.copied else 1):
            self.passed += 1
            delay_ms = weather.delay_ms + weather.spread_ms * (2 * draw() - 1)
            if delay_ms <= 0:
                writer.write(frame)
            else:
                self._loop.call_later(delay_ms / 1000, _write, writer, frame)


def _write(writer: asyncio.StreamWriter, frame: bytes) -> None:
    """Write a frame unless the connection is closed."""
    if not writer.is_closing():
        writer.write(frame)
