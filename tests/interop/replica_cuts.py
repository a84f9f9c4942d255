"""A slave whose master is lost in the middle of a message is promoted, sends, and is killed.

A relay between both gives the slave so many bytes of the stream, and no more. The master is in this
process, the slave in one of its own: it is killed after its promotion.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import socket
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.interop.load import Load
from tests.interop.ports import free_port
from tests.interop.replicas import OurReplica, end_of
from tests.interop.servers import wait_until
from tests.plugins.ha.pair import LoneBroker, lone_broker
from twistmq.broker.testing import RawClient
from twistmq.protocol.codes import RequestCode, ResponseCode
from twistmq.protocol.headers.admin import NotifyBrokerRoleChangedRequestHeader
from twistmq.protocol.record import StoredMessage

__all__ = ["CutOutcome", "cut_and_promote"]

#: Bytes of a commit-log file: cuts are near the end of one, too.
_FILE_SIZE: Final = 64 * 1024
_SETTINGS: Final = {"mappedFileSizeCommitLog": str(_FILE_SIZE), "maxMessageSize": "30000"}
#: Messages before the cut and, at least, after it.
_BEFORE, _AFTER = 200, 50
_READ_SIZE: Final = 1 << 16


@dataclass
class CutOutcome:
    """The result of some cuts."""

    cuts: int = 0
    #: Of them, those in the middle of a message.
    halves: int = 0
    copied: int = 0
    acknowledged: int = 0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (f"{self.cuts} cuts, {self.halves} of them within a message; {self.copied:,} "
                f"messages were whole before it and {self.acknowledged:,} acknowledged after it; "
                f"{len(self.problems)} problems")


class _Relay:
    """Listens, and relays two sides until a number of the master's bytes arrived.

    :param port: of the master.
    """

    def __init__(self, port: int, most: int) -> None:
        self._port, self._most = port, most
        self._listener = socket.create_server(("127.0.0.1", free_port()))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        #: Whether the bytes were handed on, and the connection is closed.
        self.is_over = threading.Event()

    @property
    def address(self) -> str:
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            slave, _ = self._listener.accept()
            with slave, socket.create_connection(("127.0.0.1", self._port)) as master:
                back = threading.Thread(target=_copy, args=(slave, master), daemon=True)
                back.start()
                left = self._most
                while left and (data := master.recv(min(left, _READ_SIZE))):
                    slave.sendall(data)
                    left -= len(data)
                # What was sent is read before the end is.
                slave.shutdown(socket.SHUT_WR)
                back.join()
            self.is_over.set()
            # Who comes again is sent away.
            while True:
                self._listener.accept()[0].close()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_READ_SIZE):
            target.sendall(data)


def cut_and_promote(
    folder: Path, cuts: int, seconds: float = 1e9, seed: int = 1
) -> CutOutcome:
    """Cut the stream at random places; each time no acknowledged message may be lost.

    :param seconds: after which there are no more.
    """
    deadline, outcome, chance = time.monotonic() + seconds, CutOutcome(), random.Random(seed)
    with lone_broker(folder / "master", {**_SETTINGS, "brokerName": "before"}) as master:
        with Load(master.address, 0, size_max=3000) as load:
            load.wait_for(_BEFORE)
        before = _messages(master)
        while outcome.cuts < cuts and time.monotonic() < deadline and not outcome.problems:
            _cut_once(folder / f"slave{outcome.cuts}", master, before, outcome, chance)
            outcome.cuts += 1
    return outcome


def _cut_once(
    folder: Path, master: LoneBroker, before: list[StoredMessage], outcome: CutOutcome,
    chance: random.Random,
) -> None:
    """Make one cut: copy a part, promote, send, kill, and compare."""
    # The slave stores whole frames: these are small, so that they end anywhere in a message.
    master.kernel.settings.put("haTransferBatchSize", chance.randint(20, 5000))
    at = master.address
    with _Relay(master.kernel.identity.ha_port, chance.randint(1000, master.end)) as relay:
        slave = OurReplica(folder, "", {
            **_SETTINGS, "brokerRole": "SLAVE", "brokerId": "1", "brokerName": "before",
            "ha.master": at, "haMasterAddress": relay.address})
        try:
            slave.start()
            wait_until("the stream is cut", relay.is_over.is_set, 120)
            end = end_of(slave.address)
            _promote(slave.address)
            with Load(slave.address, 1, size_max=3000) as load:
                load.wait_for(_AFTER)
                slave.end(signal.SIGKILL)
        finally:
            slave.end(signal.SIGKILL)
    whole = [message for message in before if message.physical_offset + message.size <= end]
    outcome.halves += all(message.physical_offset + message.size != end for message in before)
    outcome.copied += len(whole)
    outcome.acknowledged += load.count()
    with lone_broker(folder / "store", {**_SETTINGS, "brokerName": "before"}) as promoted:
        found = _messages(promoted)
    outcome.problems += load.failures + _differences(whole, found, load.acknowledged)
    shutil.rmtree(folder)


def _promote(address: str) -> None:
    """Promote a slave."""
    with RawClient(address, 60) as client:
        reply = client.request(
            RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
            NotifyBrokerRoleChangedRequestHeader(master_address=address, master_broker_id=None))
        assert reply.code == ResponseCode.SUCCESS, (reply.code, reply.remark)


def _messages(broker: LoneBroker) -> list[StoredMessage]:
    """Return all messages that consumers find, in the order of the log."""
    found: list[StoredMessage] = []
    with broker.client() as client:
        for queue_id in range(4):
            queue: list[StoredMessage] = []
            while messages := client.pull("T", len(queue), queue_id=queue_id):
                queue += messages
            found += queue
    return sorted(found, key=lambda message: message.physical_offset)


def _differences(
    whole: list[StoredMessage], found: list[StoredMessage], acknowledged: set[bytes]
) -> list[str]:
    """Return the messages that a killed broker lacks, or has twice."""
    problems = []
    if [each.body for each in found[: len(whole)]] != [each.body for each in whole]:
        problems.append("what was copied is not all there")
    names = Counter(each.body.rstrip(b"x") for each in found[len(whole):])
    if acknowledged - names.keys():
        problems.append(f"lost: {sorted(acknowledged - names.keys())[:5]}")
    if any(count > 1 for count in names.values()):
        problems.append(f"twice: {names.most_common(5)}")
    return problems
