"""One store of the differential run: it gets requests, and returns digests."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Sequence
from importlib.metadata import entry_points
from types import SimpleNamespace
from typing import Any

from twistmq.broker.plugin.discovery import ENTRY_POINT_GROUP
from twistmq.broker.remoting.messages import Request
from twistmq.broker.scheduling.periodic import PeriodicTask
from twistmq.broker.testing.disk import MemoryDisk
from twistmq.broker.testing.kernel import KernelBox, Peer
from twistmq.protocol.frame import Frame, FrameDecoder

__all__ = ["Round"]

#: Connections whose requests are run together, at most.
_JOINED_MAX = 3
#: Settings with which more of the stock plugins take part.
_SETTINGS = {"enablePropertyFilter": "true", "traceTopicEnable": "true", "timerWheelEnable": "true"}


class Round:
    """A broker with all stock plugins, a store in memory and a clock that this moves.

    :param chance: where reads are cut, which connection they come on, how time passes.
    """

    def __init__(self, chance: random.Random, connections: int) -> None:
        random.seed(chance.random())
        # Identifiers of messages have it.
        os.getpid = lambda: 4711
        self._chance = chance
        self._disk = MemoryDisk()
        plugins = sorted((point.name, point.load()) for point in entry_points(
            group=ENTRY_POINT_GROUP) if point.value.startswith("twistmq."))
        self.box = KernelBox(plugins, _SETTINGS, disk=self._disk)
        self.box.kernel.random.seed(chance.random())
        self._peers = [self._connect() for _ in range(connections)]
        self._digest = hashlib.sha256()
        #: Requests of connections that are to be run together, and their code.
        self._joined: list[tuple[Peer, list[Request[Any]]]] = []
        self._joined_code: int | None = None
        begin = self.box.now_ms
        self._due = [SimpleNamespace(task=task, at=begin + task.first_ms)
                     for task in self.box.kernel.periodic_tasks]

    def read(self, frames: Sequence[bytes]) -> None:
        """Deliver some frames and let time pass: on one connection, cut somewhere,
        or each on one.
        """
        if self._chance.random() < 0.3:
            for frame in frames:
                self._feed(self._chance.randrange(len(self._peers)), frame)
        else:
            number = self._chance.randrange(len(self._peers))
            data = b"".join(frames)
            cut = self._chance.randrange(len(data)) if self._chance.random() < 0.3 else len(data)
            for part in (data[:cut], data[cut:]):
                self._feed(number, part)
        self._let_pass(self._chance.randrange(40))
        for peer, _ in self._peers:
            self._take_from(peer)

    def _feed(self, number: int, data: bytes) -> None:
        """Deliver bytes on a connection, which is replaced when it ends."""
        peer, decoder = self._peers[number]
        found = decoder.feed(data)
        if found:
            self._run(peer, found)
        if decoder.failure or not peer.active:
            self._run_joined()
            self._add(decoder.failure.encode())
            self._take_from(peer)
            self._peers[number] = self._connect()

    def _run(self, peer: Peer, frames: Sequence[Frame]) -> None:
        """Run the frames of a connection, or keep them for a joined batch."""
        dispatcher = self.box.kernel.dispatcher
        head = dispatcher.read_head(peer, frames, self.box.now_ms)
        code = dispatcher.joined_code(head, len(frames))
        if code not in (None, self._joined_code) or any(peer is each for each, _ in self._joined):
            self._run_joined()
        if code is None or self._chance.random() < 0.3:
            self._add(b"".join(dispatcher.execute(peer, frames, self.box.now_ms, head)))
            return
        self._joined_code = code
        self._joined.append((peer, head[0]))
        if len(self._joined) == _JOINED_MAX:
            self._run_joined()

    def _run_joined(self) -> None:
        """Run the frames of several connections as one batch."""
        runs, self._joined = [run for _, run in self._joined], []
        if runs:
            for replies in self.box.kernel.dispatcher.execute_together(runs):
                self._add(b"".join(replies))

    def _connect(self) -> tuple[Peer, FrameDecoder]:
        peer = self.box.peer()
        # A changed request may say that it is a reply; the real connection waits for none.
        peer.response_received = lambda command: None  # type: ignore[method-assign]
        return peer, FrameDecoder()

    def digest(self) -> str:
        """Return a digest of all responses so far."""
        return self._digest.hexdigest()

    def end(self) -> str:
        """Let delayed messages fall due, stop; :returns: a digest of the store's files."""
        self._run_joined()
        for _ in range(20):
            self._let_pass(500)
        self.box.stop()
        self._list("/")
        return self.digest()

    def _add(self, data: bytes) -> None:
        self._digest.update(len(data).to_bytes(4))
        self._digest.update(data)

    def _take_from(self, peer: Peer) -> None:
        """Replies that waited, and requests of the broker."""
        for data in peer.written:
            self._add(data)
        for request in peer.requests:
            self._add(f"{request.code} {request.header}".encode() + request.body)
        peer.written.clear()
        peer.requests.clear()

    def _let_pass(self, elapsed_ms: int) -> None:
        self.box.now_ms += elapsed_ms
        now_ms = self.box.now_ms
        for each in self._due:
            if each.at <= now_ms:
                task: PeriodicTask = each.task
                task.run(now_ms)
                period = task.period_ms
                each.at = now_ms + (period() if callable(period) else period)

    def _list(self, path: str) -> None:
        for name in self._disk.list_directory(path):
            below = f"{path.rstrip('/')}/{name}"
            self._add(below.encode())
            try:
                self._list(below)
            except NotADirectoryError:
                self._add(self._disk.read_file(below))
